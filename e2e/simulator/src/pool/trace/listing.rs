//! A trace as `kubectl get pods -A -o json` prints it: what is there now, and what of it has ended.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod as KubePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;
use shared::decide::size::Hints;
use shared::snapshot::Request;

use super::{Judge, Pod, Trace, stay};

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    kind: String,
    items: Option<Vec<Value>>,
}

/// Reads it: a list of pods, or one pod.
///
/// # Errors
/// Where it is no JSON or holds no pods. Pods that cannot be read are in the trace.
pub fn read(bytes: &[u8], judge: &mut Judge) -> Result<Trace> {
    let listing: Listing = serde_json::from_slice(bytes).context("it is no JSON that kubectl prints")?;
    let items = match (listing.kind.as_str(), listing.items) {
        (_, Some(items)) => items,
        ("Pod", None) => vec![serde_json::from_slice(bytes)?],
        (kind, None) => bail!("it holds {kind:?}, not pods; write it with kubectl get pods -A -o json"),
    };
    let mut trace = Trace::default();
    for (at, item) in items.into_iter().enumerate() {
        let name = named(&item);
        let pod = one(&mut trace, item, &name, judge);
        trace.enter(|| format!("item {} ({name})", at + 1), pod);
    }
    Ok(trace)
}

fn named(item: &Value) -> String {
    let said = |field: &str| {
        item.pointer(&format!("/metadata/{field}"))
            .and_then(Value::as_str)
    };
    format!(
        "{}/{}",
        said("namespace").unwrap_or("default"),
        said("name").unwrap_or("?")
    )
}

fn one(trace: &mut Trace, item: Value, name: &str, judge: &mut Judge) -> Result<Option<Pod>, String> {
    let kind = item.get("kind").and_then(Value::as_str).unwrap_or("Pod");
    if kind != "Pod" {
        return Err(format!("it is a {kind}, not a Pod"));
    }
    let pod: KubePod = serde_json::from_value(item).map_err(|error| format!("it is no pod: {error}"))?;
    let request = Request::of_pod(&pod).map_err(|bad| bad.to_string())?;
    let request = if request.is_empty() {
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let hints = Hints::of_annotations(&annotations).map_err(|bad| bad.to_string())?;
        trace.sized(hints, judge)?
    } else {
        Some(request)
    };
    let Some(request) = request else { return Ok(None) };
    let from = began(&pod).ok_or("it has neither a start time nor a creation time")?;
    let until = ended(&pod);
    stay(from, until)?;
    Ok(Some(Pod {
        name: name.to_owned(),
        from,
        until,
        request: judge.judge(request)?,
    }))
}

/// When its first container started; where none has, when its kubelet took it, else when it was created.
fn began(pod: &KubePod) -> Option<f64> {
    let status = pod.status.as_ref();
    let first = containers(pod).filter_map(|container| {
        let states = [container.last_state.as_ref(), container.state.as_ref()];
        states
            .into_iter()
            .flatten()
            .filter_map(started)
            .min_by(f64::total_cmp)
    });
    let first = first.min_by(f64::total_cmp);
    let taken = || status.and_then(|status| status.start_time.as_ref()).map(seconds);
    first
        .or_else(taken)
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(seconds))
}

/// When its last container ended; `None` while any may still run.
fn ended(pod: &KubePod) -> Option<f64> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if !matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let finished = containers(pod).filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(seconds)
    });
    // a pod that was refused or evicted has no container that ended: it held nothing for longer than its start
    finished.max_by(f64::total_cmp).or_else(|| began(pod))
}

fn containers(pod: &KubePod) -> impl Iterator<Item = &ContainerStatus> {
    let lists = pod
        .status
        .iter()
        .flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.flatten().flatten()
}

fn started(state: &ContainerState) -> Option<f64> {
    let running = state
        .running
        .as_ref()
        .and_then(|running| running.started_at.as_ref());
    let terminated = state
        .terminated
        .as_ref()
        .and_then(|terminated| terminated.started_at.as_ref());
    running.or(terminated).map(seconds)
}

fn seconds(time: &Time) -> f64 {
    time.0.as_microsecond() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_value(value: &Value) -> Result<Trace> {
        read(
            value.to_string().as_bytes(),
            &mut crate::pool::trace::tests::judge(),
        )
    }

    fn pod(name: &str, resources: Value, status: Value) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-29T08:00:00Z"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
            "status": status,
        })
    }

    #[test]
    fn stays_are_those_of_the_containers() {
        let slice = json!({"limits": {"nvidia.com/mig-2g.20gb": "1"}});
        let ran = json!({"phase": "Succeeded", "startTime": "2026-11-29T08:00:01Z", "containerStatuses": [
            {"name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "",
             "state": {"terminated": {"exitCode": 0, "startedAt": "2026-11-29T08:00:05Z", "finishedAt": "2026-11-29T08:10:05Z"}}}]});
        let runs = json!({"phase": "Running", "startTime": "2026-11-29T08:00:01Z"});
        let list = json!({"kind": "List", "items": [
            pod("ran", slice.clone(), ran),
            pod("runs", slice.clone(), runs),
            pod("waits", slice, json!({"phase": "Pending"})),
            pod("none", json!({}), json!({})),
        ]});
        let trace = read_value(&list).unwrap();
        assert_eq!((trace.pods.len(), trace.bad.len(), trace.without_gpus), (3, 0, 1));
        let from = |at: usize| trace.pods[at].from - trace.pods[2].from;
        assert_eq!((from(0), from(1)), (5.0, 1.0));
        assert_eq!(trace.pods[0].until.unwrap() - trace.pods[0].from, 600.0);
        assert_eq!(
            (trace.pods[1].until, trace.pods[0].name.as_str()),
            (None, "team/ran")
        );
    }

    #[test]
    fn what_is_no_pod_is_named_and_what_is_no_list_refused() {
        let bad = pod("bad", json!({"limits": {"nvidia.com/mig-9x": "1"}}), json!({}));
        let list = json!({"kind": "PodList", "items": [
            json!({"kind": "Deployment", "metadata": {"name": "d"}}),
            bad,
            json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": 7}),
        ]});
        let trace = read_value(&list).unwrap();
        let bad: Vec<String> = trace.bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad[0], "item 1 (default/d): it is a Deployment, not a Pod");
        assert_eq!(
            bad[1],
            "item 2 (team/bad): container main: nvidia.com/mig-9x names no MIG profile; write it like nvidia.com/mig-2g.20gb"
        );
        assert!(
            bad[2].starts_with("item 3 (default/p): it is no pod: "),
            "{}",
            bad[2]
        );
        let no = read_value(&json!({"kind": "Deployment"}))
            .unwrap_err()
            .to_string();
        assert_eq!(
            no,
            "it holds \"Deployment\", not pods; write it with kubectl get pods -A -o json"
        );
    }

    #[test]
    fn hints_become_requests() {
        let mut hinted = pod("p", json!({}), json!({}));
        hinted["metadata"]["annotations"] = json!({"migpool.dev/model-parameters": "13B"});
        let found = read_value(&hinted).unwrap();
        assert_eq!(found.pods[0].request.in_words(), "3g.40gb");
        hinted["metadata"]["annotations"] = json!({"migpool.dev/gpu-memory": "lots"});
        let found = read_value(&hinted).unwrap();
        assert!(
            found.bad[0].why.starts_with("migpool.dev/gpu-memory is \"lots\""),
            "{:?}",
            found.bad
        );
    }
}
