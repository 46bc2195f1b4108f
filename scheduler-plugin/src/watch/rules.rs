//! Which nodes a pod may go to, as far as labels, cordons and taints tell. Kube-scheduler judges all of it and more
//! before it asks us; this is for plans made ahead of it, so that they do not name a node it would refuse.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

use shared::names::TAINT_CORDON;

use super::nodes::NodePart;

/// Where a pod may go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRules {
    /// Labels that its node must have.
    pub selector: BTreeMap<String, String>,
    /// One of these must hold, where there are any.
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
    /// It says which of several nodes it likes better: that is for kube-scheduler to weigh, so it gets more than
    /// one node to weigh.
    pub soft: bool,
    /// It has rules that only kube-scheduler can judge: pods to be near or away from, spreading, volumes, ports,
    /// claims.
    pub beyond: bool,
}

impl NodeRules {
    /// Reads a Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let node_affinity = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
        let required =
            node_affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.clone().unwrap_or_default(),
            terms: required.map(|selector| selector.node_selector_terms.clone()),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            soft: is_soft(spec),
            beyond: is_beyond(spec),
        }
    }

    /// Whether it has no rules that tie it to some nodes; taints are another matter.
    #[must_use]
    pub fn goes_anywhere(&self) -> bool {
        self.selector.is_empty() && self.terms.is_none()
    }

    /// Whether the pod may go to a node.
    #[must_use]
    pub fn allow(&self, node: &NodePart) -> bool {
        let cordon = node.cordoned.then(|| Taint {
            key: TAINT_CORDON.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
        let tolerated = |taint: &Taint| {
            taint.effect == "PreferNoSchedule" || self.tolerations.iter().any(|one| tolerates(one, taint))
        };
        node.has_labels(&self.selector)
            && cordon.iter().chain(&node.taints).all(tolerated)
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| holds(term, node)))
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || key.is_empty() && exists)
        && (exists || value == taint.value.as_deref().unwrap_or_default())
}

/// A term without any requirement holds nowhere.
fn holds(term: &NodeSelectorTerm, node: &NodePart) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |one: &NodeSelectorRequirement| meets(one, node.labels.get(&one.key).map(String::as_str));
    // the name is the only field there is
    let field =
        |one: &NodeSelectorRequirement| meets(one, (one.key == "metadata.name").then_some(&node.name));
    !(labels.is_empty() && fields.is_empty()) && labels.iter().all(label) && fields.iter().all(field)
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let numbers = || {
        let bound: i64 = values.first()?.parse().ok()?;
        Some((value?.parse::<i64>().ok()?, bound))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

fn is_soft(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref();
    let preferred = affinity.is_some_and(|affinity| {
        let node = affinity.node_affinity.as_ref();
        let near = affinity.pod_affinity.as_ref();
        let far = affinity.pod_anti_affinity.as_ref();
        let node = node.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let near = near.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let far = far.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        some(node) || some(near) || some(far)
    });
    let spread = spec.topology_spread_constraints.iter().flatten();
    preferred
        || spread
            .into_iter()
            .any(|one| one.when_unsatisfiable == "ScheduleAnyway")
}

fn is_beyond(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|all| all.pod_affinity.as_ref());
    let far = affinity.and_then(|all| all.pod_anti_affinity.as_ref());
    let near = near.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let far = far.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    let spread = spec.topology_spread_constraints.iter().flatten();
    let volumes = spec.volumes.iter().flatten();
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    some(near)
        || some(far)
        || some(spec.resource_claims.as_ref())
        || spread
            .into_iter()
            .any(|one| one.when_unsatisfiable == "DoNotSchedule")
        || volumes
            .into_iter()
            .any(|one| one.persistent_volume_claim.is_some() || one.ephemeral.is_some() || one.csi.is_some())
        || containers
            .flat_map(|one| one.ports.iter().flatten())
            .any(|port| port.host_port.is_some_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(spec: Value) -> NodeRules {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "main"}]);
        NodeRules::of(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    fn node(spec: Value) -> NodePart {
        let labels = json!({"zone": "a", "cores": "96"});
        NodePart::of(
            &serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}, "spec": spec}))
                .unwrap(),
        )
    }

    fn term(key: &str, operator: &str, values: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "none", "operator": "Exists"}]},
            {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
        ]}}}})
    }

    #[test]
    fn labels_are_matched_as_kube_scheduler_does() {
        for (spec, allowed) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (term("zone", "In", json!(["b", "a"])), true),
            (term("zone", "In", json!(["b"])), false),
            (term("zone", "NotIn", json!(["b"])), true),
            (term("rack", "NotIn", json!(["b"])), true),
            (term("zone", "NotIn", json!(["a"])), false),
            (term("zone", "Exists", json!([])), true),
            (term("zone", "DoesNotExist", json!([])), false),
            (term("cores", "Gt", json!(["64"])), true),
            (term("cores", "Lt", json!(["64"])), false),
            (term("zone", "Gt", json!(["1"])), false),
            (term("zone", "Near", json!(["a"])), false),
        ] {
            assert_eq!(rules(spec.clone()).allow(&node(json!({}))), allowed, "{spec}");
        }
        let by_name = |name: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
        };
        assert!(rules(by_name("n")).allow(&node(json!({}))));
        assert!(!rules(by_name("m")).allow(&node(json!({}))));
        let empty = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{}]}}}});
        assert!(
            !rules(empty).allow(&node(json!({}))),
            "a term without requirements holds nowhere"
        );
    }

    #[test]
    fn cordons_and_taints_keep_away_whom_they_should() {
        let gpu = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        let cordoned = json!({"unschedulable": true});
        let soft = json!({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]});
        let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
        for (taint, pod, allowed) in [
            (&gpu, json!({}), false),
            (&gpu, tolerate(json!({"key": "gpu", "value": "yes"})), true),
            (&gpu, tolerate(json!({"key": "gpu", "value": "no"})), false),
            (&gpu, tolerate(json!({"key": "gpu", "operator": "Exists"})), true),
            (&gpu, tolerate(json!({"operator": "Exists"})), true),
            (
                &gpu,
                tolerate(json!({"operator": "Exists", "effect": "NoExecute"})),
                false,
            ),
            (&cordoned, json!({}), false),
            (
                &cordoned,
                tolerate(json!({"key": TAINT_CORDON, "operator": "Exists"})),
                true,
            ),
            (&soft, json!({}), true),
        ] {
            assert_eq!(
                rules(pod.clone()).allow(&node(taint.clone())),
                allowed,
                "{taint} {pod}"
            );
        }
    }

    #[test]
    fn rules_beyond_labels_are_left_to_kube_scheduler() {
        let near = json!([{"topologyKey": "zone"}]);
        for (spec, beyond) in [
            (json!({}), false),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}}}),
                true,
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}}}),
                true,
            ),
            (
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
                true,
            ),
            (
                json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
                true,
            ),
            (json!({"volumes": [{"name": "v", "emptyDir": {}}]}), false),
            (json!({"resourceClaims": [{"name": "c"}]}), true),
        ] {
            assert_eq!(rules(spec.clone()).beyond, beyond, "{spec}");
        }
    }
}
