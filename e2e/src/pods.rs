//! Pods that ask for slices. Each prints what it sees of GPUs and then waits, so its log is the proof.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};
use shared::names;

/// Image of the test containers: a shell and the usual tools.
pub const IMAGE: &str = "localhost/migpool/busybox:dev";
/// Prints the GPU part of the environment and of /dev, then waits for SIGTERM.
const LOOK: &str = "env | grep -E '^(MIGPOOL|NVIDIA)_' | sort; ls /dev | grep nvidia; ls /dev/nvidia-caps 2>/dev/null; \
echo looked; trap 'exit 0' TERM; sleep 1000000 & wait";

/// A pod with one container that asks for `count` slices of `profile`.
#[must_use]
pub fn pod(name: &str, profile: &str, count: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "migpool-e2e"}},
        "spec": spec(profile, count),
    })
}

/// A Deployment of such pods.
#[must_use]
pub fn deployment(name: &str, profile: &str, replicas: u32) -> Value {
    let labels = json!({"app": "migpool-e2e", "deployment": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec(profile, 1)},
        },
    })
}

fn spec(profile: &str, count: u32) -> Value {
    let resource = format!("{}{}", names::RESOURCE_MIG_PREFIX, profile.replace('+', "."));
    json!({
        "schedulerName": names::SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}],
        "containers": [{
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", LOOK],
            "resources": {"limits": {resource: count.to_string()}},
        }],
    })
}

/// What a container said that it sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `MIGPOOL_SLICE_*` variables.
    pub slices: BTreeMap<String, String>,
    /// Device nodes named `nvidia*` in /dev (GPUs and control nodes).
    pub devices: Vec<String>,
    /// Capability nodes in /dev/nvidia-caps.
    pub caps: Vec<String>,
}

impl Seen {
    /// Reads a log of such a container; `None` until it has looked.
    #[must_use]
    pub fn read(log: &str) -> Option<Self> {
        let mut seen = Self::default();
        let mut done = false;
        for line in log.lines() {
            if let Some((name, value)) = line.split_once('=') {
                if name.starts_with(names::ENV_SLICE_PREFIX) {
                    seen.slices.insert(name.to_owned(), value.to_owned());
                }
            } else if line.starts_with("nvidia-cap") && line != "nvidia-caps" {
                seen.caps.push(line.to_owned());
            } else if line.starts_with("nvidia") && line != "nvidia-caps" {
                seen.devices.push(line.to_owned());
            } else if line == "looked" {
                done = true;
            }
        }
        done.then_some(seen)
    }
}

/// Phase of a pod.
#[must_use]
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// Conditions of a pod.
pub fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    let status = pod.status.iter();
    status.flat_map(|status| status.conditions.iter().flatten())
}

/// The places that the scheduler wrote on a pod.
#[must_use]
pub fn placement(pod: &Pod) -> Option<names::Placements> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(names::ANNOTATION_PLACEMENT)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_reads_as_what_the_container_sees() {
        let log = "MIGPOOL_SLICE_0_6=MIG-1\nNVIDIA_VISIBLE_DEVICES=void\nnvidia-caps\nnvidia-uvm\nnvidia0\nnvidiactl\n\
                   nvidia-cap3\nnvidia-cap4\nlooked\n";
        let seen = Seen::read(log).unwrap();
        assert_eq!(
            seen.slices,
            [("MIGPOOL_SLICE_0_6".to_owned(), "MIG-1".to_owned())].into()
        );
        assert_eq!(seen.devices, ["nvidia-uvm", "nvidia0", "nvidiactl"]);
        assert_eq!(seen.caps, ["nvidia-cap3", "nvidia-cap4"]);
        assert_eq!(Seen::read("nvidia0\n"), None);
    }
}
