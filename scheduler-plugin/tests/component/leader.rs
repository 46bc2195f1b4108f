//! What the leader does on its own: events with reasons, and the numbers of the pool.

use serde_json::{Value, json};

use super::lab::{Lab, gpu_node, pod_object, until, uuid};

fn pending(name: &str, profile: &str) -> Value {
    let mut pod = pod_object(name, profile);
    pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient nvidia.com/mig-7g.80gb."}]);
    pod
}

#[tokio::test]
async fn a_pod_that_cannot_fit_carries_an_event_with_the_reason_by_gpu_count() {
    let lab = Lab::new(2, 4).await;
    for node in ["n1", "n2"] {
        let slices: Vec<_> = (0..3).map(|gpu| (gpu, "1g.10gb:6", "Allocated", None)).collect();
        let mut object = gpu_node(node, 4, &slices);
        object["spec"] = json!({"withhold": [{"gpu": uuid(node, 3), "reason": "test"}]});
        lab.api.put("gpunodes", object);
    }
    lab.api.put("pods", pending("p", "7g.80gb"));
    lab.api.put("pods", pending("fits", "1g.10gb"));
    let extender = lab.extender("a").await;
    until("event", || async { !lab.api.all("events").is_empty() }).await;
    let event = lab.api.all("events").remove(0);
    assert_eq!(
        event["note"],
        "0/8 GPUs can take 7g.80gb: 6 hold smaller slices, 2 withheld"
    );
    assert_eq!(
        (&event["type"], &event["reason"]),
        (&json!("Warning"), &json!("FailedPlacement"))
    );
    assert_eq!(
        (&event["regarding"]["name"], &event["regarding"]["uid"]),
        (&json!("p"), &json!("uid-p"))
    );
    assert_eq!(event["reportingController"], "migpool.dev/migpool-scheduler");
    // the reason changes: told again, but not before the spacing has passed
    lab.api.put(
        "gpunodes",
        gpu_node(
            "n1",
            4,
            &[
                (0, "7g.80gb:0", "Allocated", None),
                (1, "7g.80gb:0", "Allocated", None),
                (2, "7g.80gb:0", "Allocated", None),
                (3, "7g.80gb:0", "Allocated", None),
            ],
        ),
    );
    until("seen", || async {
        extender.get("/layout").await.1.contains("77777777")
    })
    .await;
    extender.leads().await;
    assert_eq!(lab.api.all("events").len(), 1);
    lab.pass(60);
    until("second event", || async { lab.api.all("events").len() == 2 }).await;
}

#[tokio::test]
async fn the_pool_says_what_it_has() {
    let lab = Lab::new(1, 2).await;
    lab.api.put(
        "gpunodes",
        gpu_node("n1", 2, &[(0, "3g.40gb:4", "Allocated", None)]),
    );
    let _extender = lab.extender("a").await;
    let status = || lab.api.get("gpupools", "default").unwrap()["status"].clone();
    until("status", || async { status()["gpus"] == 2 }).await;
    let status = status();
    assert_eq!(
        (&status["nodes"], &status["allocated"], &status["slices"]),
        (&json!(1), &json!(1), &json!({"3g.40gb": 1}))
    );
    assert_eq!(status["conditions"][0]["status"], "True");
    assert!(status["free"].as_str().unwrap().contains("1x7g.80gb"), "{status}");
}

#[tokio::test]
async fn of_two_replicas_one_leads_and_both_answer() {
    let lab = Lab::new(1, 1).await;
    let first = lab.extender("a").await;
    first.leads().await;
    let second = lab.extender("b").await;
    lab.api.put("pods", pending("p", "7g.141gb"));
    until("event", || async { !lab.api.all("events").is_empty() }).await;
    for extender in [&first, &second] {
        let answer = extender.filter(&pod_object("q", "1g.10gb"), &["n1"]).await;
        assert_eq!(answer["NodeNames"], json!(["n1"]));
    }
    assert_eq!(lab.api.all("events").len(), 1);
    assert_eq!(lab.api.all("events")[0]["reportingInstance"], "a");
}
