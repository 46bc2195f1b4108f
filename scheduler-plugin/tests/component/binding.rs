//! Bind: one Binding carries node, placement and UID, and however often it is asked for a pod gets one place.

use std::collections::BTreeSet;

use serde_json::json;

use super::api_server::Fault;
use super::lab::{Lab, PLACEMENT, pod_object, until, uuid};

#[tokio::test]
async fn one_binding_writes_node_and_placement_together() {
    let lab = Lab::new(2, 2).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "2g.20gb");
    assert_eq!(extender.place(&pod, &["n1", "n2"]).await, "n1");
    let bound = lab.pod_now("p");
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(
        bound["metadata"]["annotations"][PLACEMENT],
        format!("main={}:2g.20gb:4", uuid("n1", 0))
    );
    // the pod itself is patched by nobody; its status may carry a nomination
    assert_eq!(
        (
            lab.api.asked("POST", "/binding"),
            lab.api.asked("PATCH", "/pods/p?")
        ),
        (1, 0)
    );
}

#[tokio::test]
async fn filter_asks_the_api_server_nothing() {
    let lab = Lab::new(2, 2).await;
    let extender = lab.extender("a").await;
    let before = lab.api.asked("", "/pods");
    for at in 0..20 {
        extender
            .filter(&pod_object(&format!("p{at}"), "1g.10gb"), &["n1", "n2"])
            .await;
    }
    assert_eq!(lab.api.asked("", "/pods"), before);
}

#[tokio::test]
async fn seven_small_pods_on_one_gpu_get_seven_starts() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let mut placements = BTreeSet::new();
    for at in 0..7 {
        let pod = lab.pod(&format!("p{at}"), "1g.10gb");
        extender.place(&pod, &["n1"]).await;
        placements.insert(lab.placement(&format!("p{at}")));
    }
    assert_eq!(placements.len(), 7);
    let eighth = extender.filter(&pod_object("p7", "1g.10gb"), &["n1"]).await;
    assert_eq!(eighth["FailedNodes"]["n1"], "0/1 GPUs can take 1g.10gb: 1 full");
}

#[tokio::test]
async fn a_bind_without_a_filter_decides_by_itself() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "3g.40gb");
    assert_eq!(extender.bind(&pod, "n1").await, "");
    assert_eq!(lab.placement("p"), format!("main={}:3g.40gb:4", uuid("n1", 0)));
}

#[tokio::test]
async fn a_bind_is_repeated_without_effect_and_refused_elsewhere() {
    let lab = Lab::new(2, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "1g.10gb");
    extender.place(&pod, &["n1", "n2"]).await;
    let placement = lab.placement("p");
    assert_eq!(extender.bind(&pod, "n1").await, "");
    assert_eq!(
        extender.bind(&pod, "n2").await,
        "pod default/p is already on node n1"
    );
    assert_eq!(
        (lab.api.asked("POST", "/binding"), lab.placement("p")),
        (1, placement)
    );
}

#[tokio::test]
async fn a_refused_binding_frees_its_place() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    extender.filter(&pod, &["n1"]).await;
    lab.api.fail_next_binding(Fault::Status(403));
    let error = extender.bind(&pod, "n1").await;
    assert_eq!(error, "pod default/p was not bound: refused by the test (403)");
    let other = lab.pod("q", "7g.80gb");
    assert_eq!(extender.place(&other, &["n1"]).await, "n1");
    assert_eq!(
        extender.bind(&pod, "n1").await,
        "node n1 has no room for 7g.80gb any more; it will be tried again"
    );
}

#[tokio::test]
async fn a_pod_made_again_under_its_name_is_another_pod() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let old = lab.pod("p", "1g.10gb");
    extender.filter(&old, &["n1"]).await;
    lab.api.delete("pods", "default/p");
    let mut new = pod_object("p", "1g.10gb");
    new["metadata"]["uid"] = json!("another");
    lab.api.put("pods", new);
    until("the old one is unknown", || async {
        extender.bind(&old, "n1").await.contains("does not exist")
    })
    .await;
    assert!(lab.pod_now("p")["spec"]["nodeName"].is_null());
}

#[tokio::test]
async fn a_pod_that_asks_nothing_is_bound_plainly() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let mut plain = pod_object("p", "1g.10gb");
    plain["spec"]["containers"][0]["resources"] = json!({});
    lab.api.put("pods", plain.clone());
    assert_eq!(extender.bind(&plain, "anywhere").await, "");
    let bound = lab.pod_now("p");
    assert_eq!(
        (&bound["spec"]["nodeName"], &bound["metadata"]["annotations"]),
        (&json!("anywhere"), &json!(null))
    );
    assert_eq!(extender.bind(&plain, "anywhere").await, "");
}

#[tokio::test]
async fn a_node_that_filled_up_since_filter_is_refused_by_bind() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "7g.80gb");
    extender.filter(&pod, &["n1"]).await;
    // somebody withheld the GPU in between
    lab.api.edit("gpunodes", "n1", |node| {
        node["spec"] = json!({"withhold": [{"gpu": uuid("n1", 0), "reason": "test"}]});
    });
    until("withheld", || async {
        extender.get("/layout").await.1.contains("withheld")
    })
    .await;
    let error = extender.bind(&pod, "n1").await;
    assert_eq!(
        error,
        "node n1 has no room for 7g.80gb any more; it will be tried again"
    );
    assert_eq!(lab.api.asked("POST", "/binding"), 0);
}

#[tokio::test]
async fn while_the_api_server_is_away_the_last_snapshot_serves_and_then_no_more() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let before = lab.api.asked("GET", "/pods");
    lab.api.set_down(true);
    until("a watch was tried again", || async {
        lab.api.asked("GET", "/pods") > before
    })
    .await;
    assert_eq!(
        extender.filter(&pod_object("p", "1g.10gb"), &["n1"]).await["NodeNames"],
        json!(["n1"])
    );
    until("too old", || async {
        lab.pass(61);
        let answer = extender.filter(&pod_object("p", "1g.10gb"), &["n1"]).await;
        answer["Error"]
            .as_str()
            .unwrap()
            .starts_with("snapshot too old: the watch of")
    })
    .await;
    until("not ready", || async { extender.get("/readyz").await.0 == 503 }).await;
    lab.api.set_down(false);
    until("back", || async { extender.get("/readyz").await.0 == 200 }).await;
    until("answers", || async {
        extender.filter(&pod_object("p", "1g.10gb"), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
}
