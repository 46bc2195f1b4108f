//! Restarts: what was given away is known again before the first answer, from the objects alone.

use serde_json::json;

use super::api_server::Fault;
use super::lab::{Lab, gpu_node, node_object, pod_object, until, uuid};

#[tokio::test]
async fn nothing_is_answered_before_the_lists_are_there() {
    let lab = Lab::new(1, 1).await;
    lab.api.set_down(true);
    let extender = lab.extender_unready("a", "4").await;
    let answer = extender.filter(&pod_object("p", "1g.10gb"), &["n1"]).await;
    assert_eq!(
        answer["Error"],
        "snapshot not loaded: still waiting for the first list of pods, nodes, gpunodes, gpupools"
    );
    let pod = pod_object("p", "1g.10gb");
    assert!(extender.bind(&pod, "n1").await.starts_with("snapshot not loaded"));
    let (status, report) = extender.get("/readyz").await;
    assert!(
        status == 503 && report.contains("snapshot: not ready: snapshot not loaded"),
        "{report}"
    );
    lab.api.set_down(false);
    until("ready", || async { extender.get("/readyz").await.0 == 200 }).await;
}

#[tokio::test]
async fn a_restart_knows_what_was_given_away() {
    let lab = Lab::new(1, 1).await;
    let first = lab.extender("a").await;
    let pod = lab.pod("p", "4g.40gb");
    first.place(&pod, &["n1"]).await;
    first.kill().await;
    // the agent has reported nothing yet: the annotation is all there is
    let second = lab.extender("b").await;
    let answer = second.filter(&pod_object("q", "4g.40gb"), &["n1"]).await;
    assert_eq!(answer["FailedNodes"]["n1"], "0/1 GPUs can take 4g.40gb: 1 full");
    let small = lab.pod("s", "3g.40gb");
    second.place(&small, &["n1"]).await;
    assert_eq!(lab.placement("s"), format!("main={}:3g.40gb:4", uuid("n1", 0)));
}

#[tokio::test]
async fn a_leader_killed_between_binding_and_status_leads_to_no_double_allocation() {
    let lab = Lab::new(1, 1).await;
    let first = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    first.filter(&pod, &["n1"]).await;
    // the Binding is written, its answer never comes, and the extender dies
    lab.api.fail_next_binding(Fault::WrittenInSilence);
    let asked = tokio::time::timeout(std::time::Duration::from_secs(1), first.bind(&pod, "n1")).await;
    assert!(asked.is_err());
    first.kill().await;
    let second = lab.extender("b").await;
    let other = lab.pod("q", "7g.80gb");
    let answer = second.filter(&other, &["n1"]).await;
    assert_eq!(answer["FailedNodes"]["n1"], "0/1 GPUs can take 7g.80gb: 1 full");
    // kube-scheduler asks again for the first pod: it is there already
    assert_eq!(second.bind(&pod, "n1").await, "");
    assert_eq!(lab.api.asked("POST", "/binding"), 1);
}

#[tokio::test]
async fn a_node_that_rebooted_takes_nothing_new_until_its_agent_reports() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "3g.40gb");
    extender.place(&pod, &["n1"]).await;
    lab.api.put("nodes", node_object("n1", "boot-2"));
    until("away", || async {
        extender.get("/layout").await.1.contains("agent not ready")
    })
    .await;
    let answer = extender.filter(&pod_object("q", "3g.40gb"), &["n1"]).await;
    assert_eq!(
        answer["FailedNodes"]["n1"],
        "0/1 GPUs can take 3g.40gb: 1 on nodes whose agent is not ready"
    );
    let mut back = gpu_node("n1", 1, &[]);
    back["status"]["bootId"] = json!("boot-2");
    lab.api.put("gpunodes", back);
    until("back", || async {
        !extender.get("/layout").await.1.contains("agent not ready")
    })
    .await;
    // the pod still has its place, though the agent has not cut it again yet
    let next = lab.pod("q", "3g.40gb");
    extender.place(&next, &["n1"]).await;
    assert_eq!(lab.placement("q"), format!("main={}:3g.40gb:0", uuid("n1", 0)));
}

#[tokio::test]
async fn a_relist_forgets_pods_that_went_while_nobody_looked() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    extender.place(&pod, &["n1"]).await;
    lab.api.set_down(true);
    until("lost", || async {
        lab.pass(61);
        extender.get("/readyz").await.0 == 503
    })
    .await;
    lab.api.delete("pods", "default/p");
    lab.api.set_down(false);
    until("free", || async {
        extender.filter(&pod_object("q", "7g.80gb"), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
}
