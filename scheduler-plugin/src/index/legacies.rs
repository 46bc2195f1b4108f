//! What a refused pod leaves behind. After a reboot the kubelet may refuse a pod because it asked before the agent
//! had registered; its controller makes another at once. The place stays with them: it is kept for the replacement
//! for as long as any reservation is, and nobody else gets it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::policy::REFUSAL_PAUSE_MILLISECONDS;
use shared::snapshot::Request;

use super::Index;
use super::binding::could_give;
use super::books::Books;
use super::fresh::Without;
use super::reservations::{Reservation, State};
use crate::http::node_names::NodeNames;
use crate::watch::pods::PodPart;
use crate::writer::PodRef;

/// Who leaves to whom.
#[derive(Debug, Default)]
pub struct Legacies {
    /// UID of a refused pod -> UID of its controller.
    controllers: BTreeMap<String, String>,
    /// UID of a replacement -> the refused pod whose place it was given.
    heirs: BTreeMap<String, PodRef>,
    /// UIDs of refused pods whose place was taken over: they show a few times more before they are gone.
    spent: BTreeSet<String>,
    /// UIDs of replacements that are bound. One that is refused too leaves nothing: the place may be at fault.
    settled: BTreeSet<String>,
    /// When the kubelet of a node last refused a pod, steady time.
    refusals: BTreeMap<String, Duration>,
}

impl Legacies {
    /// The refused pod whose place a pod was given: what its agent still counts as that pod's is the heir's.
    #[must_use]
    pub fn of_heir(&self, uid: &str) -> Option<&PodRef> {
        self.heirs.get(uid)
    }

    /// How long to wait before the next pod is sent to a node, because its kubelet has just refused one.
    #[must_use]
    pub fn pause(&self, node: &str, now: Duration) -> Option<Duration> {
        let pause = Duration::from_millis(REFUSAL_PAUSE_MILLISECONDS);
        let since = now.saturating_sub(*self.refusals.get(node)?);
        pause.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// A pod is bound.
    pub fn settle(&mut self, uid: &str) {
        if self.heirs.remove(uid).is_some() {
            self.settled.insert(uid.to_owned());
        }
    }

    /// Forgets a pod that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.heirs.remove(uid);
        self.settled.remove(uid);
        self.spent.remove(uid);
    }
}

impl Books {
    /// Keeps the place of a refused pod for its replacement, once.
    pub fn leave(&mut self, pod: &PodPart, now: Duration) {
        let (Some(node), Some(Ok(placements)), Some(controller)) =
            (&pod.node, &pod.placement, &pod.controller)
        else {
            return;
        };
        self.legacies.refusals.insert(node.clone(), now);
        let legacies = &self.legacies;
        // one place is left once, however many pods were refused it one after another
        let left = |held: &Reservation| held.state == State::Left && held.placements == *placements;
        let twice = self.reservations.on(node).any(left);
        if twice
            || legacies.spent.contains(&pod.pod.uid)
            || legacies.controllers.contains_key(&pod.pod.uid)
            || legacies.settled.contains(&pod.pod.uid)
        {
            return;
        }
        tracing::info!(pod = %pod.pod, node, place = %placements, "refused by its kubelet; the place is kept for its replacement");
        self.legacies
            .controllers
            .insert(pod.pod.uid.clone(), controller.clone());
        self.reserve(Reservation {
            pod: pod.pod.clone(),
            node: node.clone(),
            placements: placements.clone(),
            state: State::Left,
            since: now,
        });
    }

    /// Forgets legacies whose reservation is over.
    pub fn tidy_legacies(&mut self) {
        let reservations = &self.reservations;
        self.legacies
            .controllers
            .retain(|uid, _| reservations.get(uid).is_some());
        // nodes come and go
        let nodes = &self.nodes;
        self.legacies.refusals.retain(|node, _| nodes.contains_key(node));
    }
}

impl Index {
    /// How long a Binding to a node has to wait; see [`Legacies::pause`].
    #[must_use]
    pub fn pause(&self, node: &str) -> Option<Duration> {
        let now = self.clock.steady();
        self.read(|books| books.legacies.pause(node, now))
    }
    /// Holds for a pod the place that a refused pod of the same controller left, if one is on a node among `names`
    /// and still right. Gives the node.
    pub fn inherit(&self, part: &PodPart, request: &Request, names: &NodeNames) -> Option<String> {
        let controller = part.controller.as_ref()?;
        let mut books = self.books();
        let refused: Vec<String> = books
            .legacies
            .controllers
            .iter()
            .filter(|(_, of)| *of == controller)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in refused {
            let Some(left) = books
                .reservations
                .get(&uid)
                .filter(|left| left.state == State::Left)
                .cloned()
            else {
                continue;
            };
            if !names.contains(&left.node) {
                continue;
            }
            // as it would be if the place were this pod's already
            books.release(&uid);
            books
                .legacies
                .heirs
                .insert(part.pod.uid.clone(), left.pod.clone());
            let built = books
                .built(&left.node, Without::Pod(&part.pod.uid))
                .map(|built| built.node);
            let right = built.is_some_and(|node| could_give(node, request, &left.placements));
            if !right {
                books.legacies.heirs.remove(&part.pod.uid);
                books.reserve(left);
                continue;
            }
            books.legacies.controllers.remove(&uid);
            books.legacies.spent.insert(uid);
            tracing::info!(pod = %part.pod, node = left.node, place = %left.placements, from = %left.pod, "takes a refused pod's place");
            let node = left.node.clone();
            books.reserve(Reservation {
                pod: part.pod.clone(),
                state: State::Tentative,
                since: self.clock.steady(),
                ..left
            });
            drop(books);
            self.outdate();
            return Some(node);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use serve::watch::Change;
    use shared::api::gpu_node::BoardStatus;
    use shared::mig::Board;

    use super::super::sources::Source;
    use super::*;
    use crate::clock::Clock;
    use crate::watch::gpu_nodes::GpuNodePart;
    use crate::watch::nodes::NodePart;

    const PLACE: &str = "main=GPU-a-0:2g.20gb:0";

    fn pod(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-11-29T00:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}}}]},
        })
    }

    fn part(pod: &Value) -> PodPart {
        PodPart::of(&serde_json::from_value(pod.clone()).unwrap())
    }

    fn refused() -> PodPart {
        let mut pod = pod("old");
        pod["metadata"]["annotations"] = json!({"migpool.dev/placement": PLACE});
        pod["spec"]["nodeName"] = json!("a");
        pod["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"});
        part(&pod)
    }

    /// A node of one GPU whose agent still counts the old pod's slice.
    fn index() -> Index {
        let index = Index::new(Clock::new(|| Duration::ZERO, || jiff::Timestamp::UNIX_EPOCH));
        Source::ALL.into_iter().for_each(|source| index.loaded(source));
        let board = BoardStatus::from(Board::named("H100-80GB").unwrap());
        let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "a"}, "spec": {},
            "status": {"boards": [board], "gpus": [{"uuid": "GPU-a-0", "index": 0, "model": "H100", "board": "H100-80GB",
                "memoryMib": 1, "mig": true, "health": "Healthy", "slices": [{"profile": "2g.20gb", "start": 0,
                "state": "Allocated", "holder": {"namespace": "ns", "pod": "old", "container": "main"}}]}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-11-29T00:00:00Z"}]}});
        index.gpu_nodes(Change::Apply(GpuNodePart::of(
            serde_json::from_value(object).unwrap(),
        )));
        let node = json!({"metadata": {"name": "a"}});
        index.nodes(Change::Apply(NodePart::of(
            &serde_json::from_value(node).unwrap(),
        )));
        index
    }

    #[test]
    fn the_replacement_of_a_refused_pod_gets_its_place_although_the_agent_still_counts_it() {
        let index = index();
        index.pods(Change::Apply(refused()));
        let heir = part(&pod("new"));
        index.pods(Change::Apply(heir.clone()));
        let request = heir.request.clone().unwrap();
        assert_eq!(
            index.inherit(&heir, &request, &["a"].into_iter().collect()),
            Some("a".to_owned())
        );
        // the refused pod shows once more, being deleted
        index.pods(Change::Apply(refused()));
        index.pods(Change::Delete(refused()));
        let Ok(super::super::binding::Step::Send(sending)) = index.begin_bind(&heir.pod, "a") else {
            panic!("no binding")
        };
        assert_eq!(sending.placements.to_string(), PLACE);
        sending.bound();
        // an heir that is refused too leaves nothing
        let mut second_refused = pod("new");
        second_refused["metadata"]["annotations"] = json!({"migpool.dev/placement": PLACE});
        second_refused["spec"]["nodeName"] = json!("a");
        index.pods(Change::Apply(part(&second_refused)));
        second_refused["status"] = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError"});
        index.pods(Change::Apply(part(&second_refused)));
        let second = part(&pod("second"));
        assert_eq!(
            index.inherit(&second, &request, &["a"].into_iter().collect()),
            None
        );
    }

    #[test]
    fn pods_refused_one_after_another_leave_one_place_and_the_next_binding_waits() {
        let index = index();
        assert_eq!(index.pause("a"), None);
        index.pods(Change::Apply(refused()));
        let mut another = refused();
        another.pod.uid = "older".to_owned();
        index.pods(Change::Apply(another));
        assert_eq!(index.reservations()[&State::Left], 1);
        assert_eq!(
            index.pause("a"),
            Some(Duration::from_millis(REFUSAL_PAUSE_MILLISECONDS))
        );
        assert_eq!(index.pause("b"), None);
    }

    #[test]
    fn a_stranger_and_another_request_inherit_nothing() {
        let index = index();
        index.pods(Change::Apply(refused()));
        let mut stranger = pod("new");
        stranger["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        let stranger = part(&stranger);
        let request = stranger.request.clone().unwrap();
        assert_eq!(
            index.inherit(&stranger, &request, &["a"].into_iter().collect()),
            None
        );
        let mut larger = pod("new");
        larger["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/mig-3g.40gb": "1"});
        let larger = part(&larger);
        let request = larger.request.clone().unwrap();
        assert_eq!(
            index.inherit(&larger, &request, &["a"].into_iter().collect()),
            None
        );
        assert_eq!(
            index.inherit(
                &part(&pod("new")),
                &part(&pod("new")).request.unwrap(),
                &["b"].into_iter().collect()
            ),
            None
        );
    }
}
