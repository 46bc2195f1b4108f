//! The contract, byte by byte: what kube-scheduler sends and what it must get, and what becomes of everything else.

use serde_json::{Value, json};

use super::lab::{Lab, as_sent, pod_object, uuid};

/// Filter as kube-scheduler 1.37 marshals it: Go names, nulls where nothing is, no kind inside.
fn golden_filter(nodes: &str) -> String {
    format!(
        r#"{{"Pod":{{"metadata":{{"name":"p","namespace":"default","uid":"uid-p","resourceVersion":"12","generation":1,"creationTimestamp":"2026-11-29T00:00:00Z"}},"spec":{{"containers":[{{"name":"main","image":"i","resources":{{"limits":{{"nvidia.com/mig-1g.10gb":"1"}},"requests":{{"nvidia.com/mig-1g.10gb":"1"}}}},"terminationMessagePath":"/dev/termination-log"}}],"restartPolicy":"Always","schedulerName":"migpool-scheduler","enableServiceLinks":true}},"status":{{"phase":"Pending","qosClass":"BestEffort"}}}},"Nodes":null,"NodeNames":{nodes}}}"#
    )
}

#[tokio::test]
async fn filter_answers_the_one_best_node_and_explains_nothing() {
    let lab = Lab::new(3, 2).await;
    let extender = lab.extender("a").await;
    let answer = extender
        .post("/filter", golden_filter(r#"["n1","n2","n3"]"#))
        .await;
    assert_eq!(answer, (200, json!({"NodeNames": ["n1"], "Error": ""})));
}

#[tokio::test]
async fn when_nothing_fits_every_node_gets_the_same_sentence() {
    let lab = Lab::new(2, 1).await;
    lab.api.put(
        "gpunodes",
        super::lab::gpu_node("n1", 1, &[(0, "7g.80gb:0", "Allocated", None)]),
    );
    lab.api.put(
        "gpunodes",
        super::lab::gpu_node("n2", 1, &[(0, "1g.10gb:0", "Blocked", None)]),
    );
    let extender = lab.extender("a").await;
    let answer = extender
        .filter(&as_sent(&pod_object("p", "7g.80gb")), &["n1", "n2"])
        .await;
    let sentence = "0/2 GPUs can take 7g.80gb: 1 holds smaller slices, 1 full";
    assert_eq!(
        answer,
        json!({"NodeNames": [], "FailedNodes": {"n1": sentence, "n2": sentence}, "Error": ""})
    );
}

#[tokio::test]
async fn what_can_never_fit_is_unresolvable() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    for (profile, part) in [("9x", "names no MIG profile"), ("1g.5gb", "has no such profile")] {
        let answer = extender
            .filter(&as_sent(&pod_object("p", profile)), &["n1"])
            .await;
        let sentence = answer["FailedAndUnresolvableNodes"]["n1"].as_str().unwrap();
        assert!(
            sentence.contains(part) && answer["FailedNodes"].is_null(),
            "{answer}"
        );
    }
    let mut many = pod_object("p", "7g.80gb");
    many["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/mig-7g.80gb": "2"});
    let answer = extender.filter(&as_sent(&many), &["n1"]).await;
    assert_eq!(
        answer["FailedAndUnresolvableNodes"]["n1"],
        "0/1 GPUs can take 2 x 7g.80gb: 1 too small for the whole request"
    );
}

#[tokio::test]
async fn lower_case_nulls_and_unknown_fields_are_read() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let lower = json!({"pod": pod_object("p", "1g.10gb"), "nodenames": ["n1"], "nodes": null, "FutureField": {"x": 1}});
    assert_eq!(
        extender.post("/filter", lower.to_string()).await.1["NodeNames"],
        json!(["n1"])
    );
    let without = json!({"Pod": {"metadata": null, "spec": null}, "NodeNames": ["n1"]});
    assert_eq!(
        extender.post("/filter", without.to_string()).await.1["NodeNames"],
        json!(["n1"]),
        "a pod that asks nothing"
    );
    let pod = lab.pod("q", "1g.10gb");
    let bind = json!({"podName": "q", "podNamespace": "default", "podUID": pod["metadata"]["uid"], "node": "n1", "x": null});
    assert_eq!(
        extender.post("/bind", bind.to_string()).await,
        (200, json!({"Error": ""}))
    );
}

#[tokio::test]
async fn no_names_and_no_nodes_are_no_nodes() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    for nodes in ["null", "[]"] {
        let answer = extender.post("/filter", golden_filter(nodes)).await;
        assert_eq!(answer, (200, json!({"NodeNames": [], "Error": ""})));
    }
}

#[tokio::test]
async fn a_pod_that_asks_nothing_of_ours_passes_everywhere() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let plain = json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}});
    let answer = extender.filter(&plain, &["n1", "cpu-only"]).await;
    assert_eq!(answer, json!({"NodeNames": ["n1", "cpu-only"], "Error": ""}));
}

#[tokio::test]
async fn whole_nodes_are_a_simulation_and_hold_nothing() {
    let lab = Lab::new(2, 1).await;
    lab.api.put(
        "gpunodes",
        super::lab::gpu_node("n1", 1, &[(0, "7g.80gb:0", "Allocated", None)]),
    );
    let extender = lab.extender("a").await;
    let node = |name: &str, slices: u32| json!({"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/mig-1g.10gb": slices.to_string()}}});
    // the autoscaler's templates are no nodes yet: what they promise counts
    let nodes = json!({"metadata": {}, "items": [node("n1", 7), node("n2", 7), node("template-1", 7), node("template-2", 0)]});
    let body = json!({"Pod": pod_object("p", "1g.10gb"), "Nodes": nodes, "NodeNames": null});
    let (_, answer) = extender.post("/filter", body.to_string()).await;
    let names: Vec<&str> = answer["Nodes"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["n2", "template-1"]);
    let failed: Vec<&str> = answer["FailedNodes"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(failed, ["n1", "template-2"]);
    assert_eq!(answer["NodeNames"], Value::Null);
    let (_, metrics) = extender.get("/metrics").await;
    assert!(
        !metrics.contains(r#"migpool_scheduler_reservations{state="tentative"} 1"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn soft_preferences_get_every_near_node_and_a_rank_without_a_tie_at_the_top() {
    let lab = Lab::new(3, 1).await;
    let extender = lab.extender("a").await;
    let mut pod = as_sent(&pod_object("p", "1g.10gb"));
    pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]);
    let answer = extender.filter(&pod, &["n3", "n1", "n2"]).await;
    assert_eq!(answer["NodeNames"], json!(["n1", "n2", "n3"]));
    let body = json!({"Pod": pod, "Nodes": null, "NodeNames": ["n3", "n2", "n1", "unknown"]});
    let (status, scores) = extender.post("/prioritize", body.to_string()).await;
    assert_eq!(status, 200);
    assert_eq!(
        scores,
        json!([{"Host": "n3", "Score": 8}, {"Host": "n2", "Score": 9}, {"Host": "n1", "Score": 10}, {"Host": "unknown", "Score": 0}])
    );
}

#[tokio::test]
async fn a_malformed_placement_annotation_is_refused_with_the_fix() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let mut pod = as_sent(&pod_object("p", "1g.10gb"));
    pod["metadata"]["annotations"] = json!({"migpool.dev/placement": "main=somewhere"});
    let answer = extender.filter(&pod, &["n1"]).await;
    assert_eq!(
        answer["FailedAndUnresolvableNodes"]["n1"],
        r#"annotation migpool.dev/placement: "somewhere" is not a place; write it like GPU-<uuid>:2g.20gb:4, or remove it"#
    );
}

#[tokio::test]
async fn broken_bodies_get_one_sentence_and_change_nothing() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    for (path, body, part) in [
        ("/filter", r#"{"Pod": "#, "the filter body is not ExtenderArgs"),
        ("/filter", r#"{"Pod": 7}"#, "invalid type"),
        ("/filter", "{}", "lacks Pod"),
        ("/prioritize", "[]", "the prioritize body"),
        ("/bind", r#"{"PodName": "p"}"#, "missing field `PodNamespace`"),
        ("/bind", "", "the bind body is not ExtenderBindingArgs"),
    ] {
        let (status, answer) = extender.post(path, body).await;
        let sentence = answer["Error"].as_str().unwrap_or_default();
        assert!(
            status == 400 && sentence.contains(part) && !sentence.contains('\n'),
            "{path} {body}: {status} {answer}"
        );
    }
    let (status, _) = extender.post("/preempt", "{}").await;
    assert_eq!(status, 404);
    assert_eq!(
        extender.filter(&pod_object("p", "1g.10gb"), &["n1"]).await["NodeNames"],
        json!(["n1"])
    );
}

#[tokio::test]
async fn ten_megabytes_are_read_and_more_than_the_limit_is_refused_early() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    let filler = "x".repeat(10 << 20);
    let body = json!({"Pod": pod_object("p", "1g.10gb"), "NodeNames": ["n1"], "Filler": filler}).to_string();
    assert_eq!(extender.post("/filter", body).await.1["NodeNames"], json!(["n1"]));
    let over = vec![b' '; shared::policy::EXTENDER_BODY_LIMIT_BYTES + 1];
    let (status, answer) = extender.post("/filter", over).await;
    assert_eq!(status, 413);
    assert!(
        answer["Error"]
            .as_str()
            .unwrap()
            .contains("nodeCacheCapable: true"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_thousand_callers_at_once_are_all_answered() {
    let lab = Lab::new(4, 8).await;
    let extender = lab.extender("a").await;
    let body = |at: usize| {
        let mut pod = as_sent(&pod_object(&format!("p{at}"), "1g.10gb"));
        pod["spec"]["topologySpreadConstraints"] =
            json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
        json!({"Pod": pod, "Nodes": null, "NodeNames": ["n1", "n2", "n3", "n4"]}).to_string()
    };
    // twice, so that the second round comes over connections that were kept
    for _ in 0..2 {
        let answers =
            futures::future::join_all((0..1_000).map(|at| extender.post("/filter", body(at)))).await;
        assert_eq!(answers.len(), 1_000);
        for (status, answer) in answers {
            assert_eq!(
                (status, answer["NodeNames"].as_array().map(Vec::len)),
                (200, Some(4)),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn filtered_twice_a_pod_holds_one_place() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    // room for one 4g: the second filter of the same pod must find it free, another pod must not
    for _ in 0..3 {
        let answer = extender.filter(&pod_object("p", "4g.40gb"), &["n1"]).await;
        assert_eq!(answer["NodeNames"], json!(["n1"]));
    }
    let other = extender.filter(&pod_object("q", "4g.40gb"), &["n1"]).await;
    assert_eq!(other["FailedNodes"]["n1"], "0/1 GPUs can take 4g.40gb: 1 full");
    lab.pass(61);
    super::lab::until("expiry", || async {
        extender.filter(&pod_object("q", "4g.40gb"), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
}

#[tokio::test]
async fn the_layout_page_draws_what_is_used_and_held() {
    let lab = Lab::new(1, 1).await;
    lab.api.put(
        "gpunodes",
        super::lab::gpu_node(
            "n1",
            1,
            &[(0, "1g.10gb:0", "Idle", None), (0, "1g.10gb:1", "Blocked", None)],
        ),
    );
    let extender = lab.extender("a").await;
    extender.filter(&pod_object("p", "3g.40gb"), &["n1"]).await;
    let (_, page) = extender.get("/layout").await;
    assert_eq!(
        page,
        format!(
            "n1\n   0 [-!..3333] {}\n       3g.40gb:4 default/p\n",
            uuid("n1", 0)
        )
    );
}
