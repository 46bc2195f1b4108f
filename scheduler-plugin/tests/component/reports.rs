//! What people who run such schedulers have reported, each as a test with the symptom for its name.

use std::collections::BTreeSet;

use serde_json::json;

use super::api_server::Fault;
use super::lab::{Lab, PLACEMENT, gpu_node, pod_object, until, uuid};

/// kubernetes/kubernetes#96579.
#[tokio::test]
async fn bind_timed_out_though_the_binding_was_written() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender_unready("a", "1").await;
    until("ready", || async { extender.get("/readyz").await.0 == 200 }).await;
    let pod = lab.pod("p", "7g.80gb");
    extender.filter(&pod, &["n1"]).await;
    lab.api.fail_next_binding(Fault::WrittenInSilence);
    // the answer is lost; looking shows that it was written, so it is a success
    assert_eq!(extender.bind(&pod, "n1").await, "");
    assert_eq!(lab.pod_now("p")["spec"]["nodeName"], "n1");
}

/// kubernetes/kubernetes#96579, the other half: nobody knows, so nobody else gets the place.
#[tokio::test]
async fn bind_timed_out_and_the_place_was_given_to_somebody_else() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender_unready("a", "1").await;
    until("ready", || async { extender.get("/readyz").await.0 == 200 }).await;
    let pod = lab.pod("p", "7g.80gb");
    extender.filter(&pod, &["n1"]).await;
    lab.api.fail_next_binding(Fault::Silence);
    let error = extender.bind(&pod, "n1").await;
    assert!(error.contains("may or may not be bound"), "{error}");
    let other = extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await;
    assert_eq!(other["FailedNodes"]["n1"], "0/1 GPUs can take 7g.80gb: 1 full");
    // the same pod may try again, and goes to the same place
    assert_eq!(extender.filter(&pod, &["n1"]).await["NodeNames"], json!(["n1"]));
    assert_eq!(extender.bind(&pod, "n1").await, "");
    assert_eq!(lab.placement("p"), format!("main={}:7g.80gb:0", uuid("n1", 0)));
}

/// HAMi#450, HAMi#1130.
#[tokio::test]
async fn lock_of_a_dead_pod_blocks_the_node_for_minutes() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    extender.filter(&pod, &["n1"]).await;
    // gone before it was bound
    lab.api.delete("pods", "default/p");
    until("free at once", || async {
        extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
}

/// HAMi#1832, HAMi#2206.
#[tokio::test]
async fn two_binds_at_once_on_one_node_and_the_second_fails() {
    let lab = Lab::new(1, 2).await;
    let extender = lab.extender("a").await;
    let pods: Vec<_> = (0..14).map(|at| lab.pod(&format!("p{at}"), "1g.10gb")).collect();
    for pod in &pods {
        extender.filter(pod, &["n1"]).await;
    }
    let errors = futures::future::join_all(pods.iter().map(|pod| extender.bind(pod, "n1"))).await;
    assert_eq!(errors, vec![String::new(); 14]);
    let placements: BTreeSet<String> = (0..14).map(|at| lab.placement(&format!("p{at}"))).collect();
    assert_eq!(placements.len(), 14, "{placements:?}");
}

/// HAMi#2923, HAMi#1491.
#[tokio::test]
async fn stale_allocation_keeps_a_gpu_blocked_after_its_pod_has_gone() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    extender.place(&pod, &["n1"]).await;
    lab.api.put(
        "gpunodes",
        gpu_node("n1", 1, &[(0, "7g.80gb:0", "Allocated", Some("p"))]),
    );
    lab.api.delete("pods", "default/p");
    // while the agent says that it is used it is used, whatever became of the pod
    let still = extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await;
    assert_eq!(still["FailedNodes"]["n1"], "0/1 GPUs can take 7g.80gb: 1 full");
    lab.api
        .put("gpunodes", gpu_node("n1", 1, &[(0, "7g.80gb:0", "Idle", None)]));
    until("free", || async {
        extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
}

/// HAMi#404, gpushare#143: the kubelet gave the container another slice than the one written.
#[tokio::test]
async fn annotation_and_device_disagree_and_one_slice_is_lost() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "3g.40gb");
    extender.place(&pod, &["n1"]).await;
    assert_eq!(lab.placement("p"), format!("main={}:3g.40gb:4", uuid("n1", 0)));
    lab.api.put(
        "gpunodes",
        gpu_node("n1", 1, &[(0, "3g.40gb:0", "Allocated", Some("p"))]),
    );
    until("both count while the container has not started", || async {
        extender.get("/layout").await.1.contains("[33333333]")
    })
    .await;
    lab.api.edit("pods", "default/p", |pod| {
        pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "containerd://1",
            "image": "", "imageID": "", "ready": true, "restartCount": 0}]});
    });
    until("the agent's account wins", || async {
        extender.get("/layout").await.1.contains("[3333....]")
    })
    .await;
    until("and the difference shows", || async {
        extender
            .get("/metrics")
            .await
            .1
            .contains("migpool_scheduler_drift_places 1")
    })
    .await;
}

/// kubernetes/kubernetes#125579, #128043.
#[tokio::test]
async fn refused_pod_lingers_beside_its_replacement() {
    let lab = Lab::new(1, 1).await;
    let refused = |name: &str, owned: bool| {
        let mut pod = pod_object(name, "1g.10gb");
        pod["spec"]["nodeName"] = json!("n1");
        pod["metadata"]["annotations"] = json!({PLACEMENT: format!("main={}:1g.10gb:6", uuid("n1", 0))});
        pod["status"] =
            json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"});
        if owned {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
        }
        pod
    };
    lab.api.put("pods", refused("owned", true));
    lab.api.put("pods", refused("bare", false));
    let extender = lab.extender("a").await;
    until("deleted", || async {
        lab.api.get("pods", "default/owned").is_none()
    })
    .await;
    assert!(
        lab.api.get("pods", "default/bare").is_some(),
        "a bare pod is its owner's to look at"
    );
    // the place is kept for the replacement that the controller makes, and for nobody else
    let answer = extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await;
    assert_eq!(answer["NodeNames"], json!([]));
    let mut replacement = pod_object("new", "1g.10gb");
    replacement["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    let answer = extender.filter(&replacement, &["n1"]).await;
    assert_eq!(answer["NodeNames"], json!(["n1"]));
}

/// A bare pod that the kubelet refused has no replacement: its place is free at once.
#[tokio::test]
async fn refused_bare_pod_blocks_the_gpu_for_good() {
    let lab = Lab::new(1, 1).await;
    let mut pod = pod_object("bare", "1g.10gb");
    pod["spec"]["nodeName"] = json!("n1");
    pod["metadata"]["annotations"] = json!({PLACEMENT: format!("main={}:1g.10gb:6", uuid("n1", 0))});
    pod["status"] =
        json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"});
    lab.api.put("pods", pod);
    let extender = lab.extender("a").await;
    let answer = extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await;
    assert_eq!(answer["NodeNames"], json!(["n1"]));
}

/// HAMi#2831: enough free slices, no legal place, and nobody says so.
#[tokio::test]
async fn enough_free_memory_yet_the_pod_waits_without_a_reason() {
    let lab = Lab::new(1, 1).await;
    let slices = [
        (0, "1g.10gb:1", "Allocated", None),
        (0, "1g.10gb:5", "Allocated", None),
    ];
    lab.api.put("gpunodes", gpu_node("n1", 1, &slices));
    let extender = lab.extender("a").await;
    let answer = extender.filter(&pod_object("p", "3g.40gb"), &["n1"]).await;
    assert_eq!(
        answer["FailedNodes"]["n1"],
        "0/1 GPUs can take 3g.40gb: 1 holds smaller slices"
    );
}
