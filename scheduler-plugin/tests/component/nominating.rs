//! Nominations ahead of kube-scheduler: written by the leader, held, cleared, and never in anybody's way.

use serde_json::{Value, json};
use shared::policy::PLANNED_AHEAD;

use super::lab::{Lab, gpu_node, pod_object, until};

fn nominated(lab: &Lab, pod: &str) -> Value {
    lab.pod_now(pod)["status"]["nominatedNodeName"].clone()
}

#[tokio::test]
async fn pods_that_wait_are_nominated_and_go_where_it_was_planned() {
    let lab = Lab::new(2, 1).await;
    // n1 has room for one 3g only at 0; n2 is empty
    lab.api.put(
        "gpunodes",
        gpu_node("n1", 1, &[(0, "4g.40gb:0", "Allocated", None)]),
    );
    let extender = lab.extender("a").await;
    let pods: Vec<Value> = ["first", "second", "third"]
        .map(|name| lab.pod(name, "3g.40gb"))
        .into();
    for name in ["first", "second", "third"] {
        until("nominated", || async { nominated(&lab, name).is_string() }).await;
    }
    let mut nodes: Vec<String> = Vec::new();
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let node = nominated(&lab, name).as_str().unwrap().to_owned();
        // kube-scheduler asks about that node alone
        assert_eq!(extender.place(&lab.pod_now(name), &[&node]).await, node);
        nodes.push(node);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n2"]);
    let placements: Vec<String> = ["first", "second", "third"]
        .map(|name| lab.placement(name))
        .into();
    let distinct: std::collections::BTreeSet<&String> = placements.iter().collect();
    assert_eq!(distinct.len(), 3, "{placements:?}");
}

#[tokio::test]
async fn more_pods_than_one_turn_writes_are_nominated_once_each_and_no_more_than_there_is_room() {
    // seven 1g.10gb a GPU, and ten pods too many
    let lab = Lab::new(10, 8).await;
    let room = 10 * 8 * 7;
    let names: Vec<String> = (0..room + 10).map(|number| format!("p{number:03}")).collect();
    for name in &names {
        lab.pod(name, "1g.10gb");
    }
    let _extender = lab.extender("a").await;
    let nominated = |name: &&String| nominated(&lab, name).is_string();
    until("as many nominated as fit", || async {
        names.iter().filter(nominated).count() == room
    })
    .await;
    let first = names.iter().take(room);
    assert!(
        first.clone().all(|name| nominated(&name)),
        "in the order in which they came"
    );
    assert!(
        first
            .clone()
            .all(|name| lab.api.asked("PATCH", &format!("/pods/{name}/status")) == 1)
    );
}

#[tokio::test]
async fn a_pod_behind_thousands_that_are_only_left_room_is_nominated() {
    let lab = Lab::new(75, 8).await;
    // each wants one node more than another, so kube-scheduler is to weigh them: room is left for it, no more
    let weighed = (0..PLANNED_AHEAD + 1).map(|number| {
        let mut pod = pod_object(&format!("a{number:04}"), "1g.10gb");
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]}});
        pod
    });
    lab.api.put_all("pods", weighed);
    lab.pod("z", "1g.10gb");
    let _extender = lab.extender("a").await;
    until("the one that can be is", || async {
        nominated(&lab, "z").is_string()
    })
    .await;
    assert_eq!(lab.api.asked("PATCH", "/status"), 1, "and no other");
}

#[tokio::test]
async fn a_pod_that_is_reached_takes_the_room_of_one_that_is_only_nominated() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    lab.pod("planned", "7g.80gb");
    until("nominated", || async { nominated(&lab, "planned") == "n1" }).await;
    // kube-scheduler comes to another pod first
    let mut urgent = pod_object("urgent", "3g.40gb");
    urgent["spec"]["priority"] = json!(1);
    urgent["spec"]["schedulingGates"] = json!([{"name": "not planned"}]);
    lab.api.put("pods", urgent.clone());
    urgent["spec"]["schedulingGates"] = json!(null);
    assert_eq!(extender.place(&urgent, &["n1"]).await, "n1");
    until("cleared", || async { nominated(&lab, "planned").is_null() }).await;
    let answer = extender.filter(&lab.pod_now("planned"), &["n1"]).await;
    assert!(answer["FailedNodes"]["n1"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_nomination_that_kube_scheduler_does_not_follow_is_cleared_and_not_repeated() {
    let lab = Lab::new(3, 1).await;
    lab.api.put(
        "gpunodes",
        gpu_node("n1", 1, &[(0, "4g.40gb:0", "Allocated", None)]),
    );
    let extender = lab.extender("a").await;
    let pod = lab.pod("p", "3g.40gb");
    until("nominated", || async { nominated(&lab, "p") == "n1" }).await;
    // something that only kube-scheduler knows keeps it off n1, and then off n2 too
    assert_eq!(
        extender.filter(&pod, &["n2", "n3"]).await["NodeNames"],
        json!(["n2"])
    );
    assert_eq!(extender.filter(&pod, &[]).await["NodeNames"], json!([]));
    until("cleared", || async { nominated(&lab, "p").is_null() }).await;
    assert_eq!(lab.api.asked("PATCH", "/pods/p/status"), 2);
    lab.pass(31);
    until("nominated anew", || async { nominated(&lab, "p").is_string() }).await;
}

#[tokio::test]
async fn what_others_nominated_is_left_alone() {
    let lab = Lab::new(2, 1).await;
    let mut preempting = pod_object("preempting", "3g.40gb");
    preempting["status"]["nominatedNodeName"] = json!("n2");
    lab.api.put("pods", preempting);
    let _extender = lab.extender("a").await;
    lab.pod("p", "1g.10gb");
    until("nominated", || async { nominated(&lab, "p").is_string() }).await;
    assert_eq!(nominated(&lab, "preempting"), "n2");
    assert_eq!(lab.api.asked("PATCH", "/pods/preempting/status"), 0);
}

#[tokio::test]
async fn when_the_planner_dies_its_nominations_hurt_nobody() {
    let lab = Lab::new(1, 1).await;
    let first = lab.extender("a").await;
    lab.pod("p", "7g.80gb");
    until("nominated", || async { nominated(&lab, "p") == "n1" }).await;
    first.kill().await;
    // the next one knows nothing of the hold; the pod that comes first gets the room, the other waits
    let second = lab.extender("b").await;
    let q = lab.pod("q", "3g.40gb");
    assert_eq!(second.place(&q, &["n1"]).await, "n1");
    let answer = second.filter(&lab.pod_now("p"), &["n1"]).await;
    assert!(answer["FailedNodes"]["n1"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_pod_in_a_pool_that_only_observes_is_not_nominated() {
    let lab = Lab::new(1, 1).await;
    lab.api.put(
        "gpupools",
        json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default", "generation": 1},
            "spec": {"mode": "Observe"}}),
    );
    let extender = lab.extender("a").await;
    lab.pod("p", "1g.10gb");
    extender.leads().await;
    until("counted", || async {
        lab.api.get("gpupools", "default").unwrap()["status"]["gpus"] == 1
    })
    .await;
    assert_eq!(lab.api.asked("PATCH", "/pods/p/status"), 0);
}
