//! GPUs are worth what CPU is left for them: pods that ask nothing of ours count where they are.

use serde_json::{Value, json};

use super::lab::{Extender, Lab, as_sent, node_object, until};

/// A node with 64 cores and two GPUs without MIG.
fn put_node(lab: &Lab, name: &str) {
    let mut node = node_object(name, "boot-1");
    node["status"]["allocatable"] = json!({"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "2"});
    lab.api.put("nodes", node);
    let gpu = |index: u32| {
        json!({"uuid": format!("GPU-{name}-{index}"), "index": index, "model": "NVIDIA L4", "memoryMib": 23_034,
            "mig": false, "health": "Healthy"})
    };
    lab.api.put(
        "gpunodes",
        json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "spec": {}, "status": {
            "strategy": "dynamic", "bootId": "boot-1", "boards": [], "gpus": [gpu(0), gpu(1)], "conditions": [{"type": "Ready",
            "status": "True", "reason": "Serving", "message": "m", "lastTransitionTime": "2026-11-29T00:00:00Z"}]}}),
    );
}

/// A pod of one container.
fn pod(name: &str, cpu: &str, gpus: u32) -> Value {
    let mut requests = json!({"cpu": cpu, "memory": "1Gi"});
    if gpus > 0 {
        requests["nvidia.com/gpu"] = json!(gpus.to_string());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"schedulerName": "migpool-scheduler", "containers": [{"name": "main", "image": "i",
            "resources": {"limits": requests, "requests": requests}}]},
        "status": {"phase": "Pending"}})
}

async fn answered(extender: &Extender, pod: &Value) -> Value {
    extender.filter(&as_sent(pod), &["n1", "n2"]).await["NodeNames"].clone()
}

#[tokio::test]
async fn of_two_nodes_a_whole_gpu_pod_gets_the_one_that_keeps_cpu_for_its_other_gpu() {
    let lab = Lab::new(0, 0).await;
    put_node(&lab, "n1");
    put_node(&lab, "n2");
    let asking = pod("p", "8", 1);
    lab.api.put("pods", asking.clone());
    // 52 cores are somebody else's: with 8 more the second GPU would have 4, and pods come with 8
    let mut foreign = pod("web", "52", 0);
    foreign["spec"]["nodeName"] = json!("n1");
    foreign["status"]["phase"] = json!("Running");
    lab.api.put("pods", foreign);
    let extender = lab.extender("a").await;
    assert_eq!(answered(&extender, &asking).await, json!(["n2"]));
    // the CPU is free again: of equal nodes the first
    lab.api.delete("pods", "default/web");
    until("the CPU to be seen as free", || async {
        answered(&extender, &asking).await == json!(["n1"])
    })
    .await;
}
