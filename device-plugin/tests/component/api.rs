//! With an API server: what is written there, what is followed, and what happens while it is away.

use serde_json::{Value, json};

use crate::node::Node;

const ONE: &str = "nvidia.com/mig-1g.10gb";

fn gpu_node(node: &Node) -> Value {
    node.api().get("gpunodes", "node-a").unwrap_or_default()
}

fn condition(node: &Node, kind: &str) -> Option<String> {
    let object = gpu_node(node);
    let conditions = object["status"]["conditions"].as_array()?.clone();
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some(format!(
        "{}/{}",
        found["status"].as_str()?,
        found["reason"].as_str()?
    ))
}

/// What is wanted of the node.
fn ask(node: &Node, spec: &Value) {
    let mut object = gpu_node(node);
    object["spec"] = spec.clone();
    object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
    node.api().put("gpunodes", object);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpunode_is_made_and_tells_what_the_node_has() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    node.until("ready", |node| {
        condition(node, "Ready").as_deref() == Some("True/Serving")
    })
    .await;
    let status = gpu_node(&node)["status"].clone();
    assert_eq!(status["strategy"], "dynamic");
    assert_eq!(status["summary"]["layout"], "[........] [........]");
    assert_eq!(status["boards"][0]["name"], "H100-80GB");
    node.admit("p", ONE, 1).await;
    let held = |node: &Node| gpu_node(node)["status"]["gpus"][0]["slices"][0]["holder"]["pod"] == "p";
    node.until("holder", held).await;
    node.remove("p").await;
    node.until("idle", |node| {
        gpu_node(node)["status"]["gpus"][0]["slices"][0]["state"] == "Idle"
    })
    .await;
    let labels = node.api().get("nodes", "node-a").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["nvidia.com/gpu.count"], "2");
    assert_eq!(labels["nvidia.com/mig-1g.10gb.count"], "14");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_place_that_the_scheduler_wrote_on_it() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    let wanted = [node.id(1, "1g.10gb:2"), node.id(0, "1g.10gb:0")];
    node.api()
        .pod("p", &format!("main={};other={}", wanted[0], wanted[1]));
    for id in &wanted {
        let ids = node.kubelet.prefer(ONE, 1, &[]).await;
        assert_eq!(&ids, std::slice::from_ref(id));
        node.kubelet.allocate(ONE, &ids).await.unwrap();
    }
    assert_eq!(
        node.kubelet.prefer(ONE, 1, &[]).await.len(),
        1,
        "and without a word some other"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fails_admission_after_its_slice_was_cut_gives_it_back_at_once() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let id = node.id(0, "1g.10gb:3");
    node.api().pod("p", &format!("main={id}"));
    let ids = node.kubelet.prefer(ONE, 1, &[]).await;
    node.kubelet.allocate(ONE, &ids).await.unwrap();
    node.counts(&ids).await;
    let mut pod = node.api().get("pods", "p").unwrap();
    pod["status"]["phase"] = json!("Failed");
    node.api().put("pods", pod);
    node.counts(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_the_node_is_followed() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    node.until("made", |node| gpu_node(node).is_object()).await;
    let held = node.admit("p", ONE, 1).await;
    ask(
        &node,
        &json!({"withhold": [{"gpu": node.gpu(1), "reason": "tests"}]}),
    );
    let healthy = |node: &Node, gpu: usize| {
        let devices = node.kubelet.devices(ONE);
        devices
            .iter()
            .filter(|(id, healthy)| **healthy && id.starts_with(&node.gpu(gpu)))
            .count()
    };
    node.until("withheld", |node| healthy(node, 1) == 0 && healthy(node, 0) == 7)
        .await;
    let refused = node
        .kubelet
        .allocate(ONE, &[node.id(1, "1g.10gb:6")])
        .await
        .unwrap_err();
    assert!(refused.message().contains("is withheld: tests"), "{refused}");
    ask(&node, &json!({"paused": true}));
    node.until("paused", |node| node.kubelet.allocatable()[ONE] == 1)
        .await;
    assert!(node.kubelet.devices(ONE)[&held[0]], "what is held stays");
    ask(
        &node,
        &json!({"warm": [{"gpu": node.gpu(1), "profile": "2g.20gb", "start": 4}]}),
    );
    node.until("warm", |node| node.instances(1) == ["2g.20gb:4"])
        .await;
    node.until("observed", |node| {
        gpu_node(node)["status"]["observedGeneration"] == gpu_node(node)["metadata"]["generation"]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_says_how_long_idle_slices_are_kept() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.api().put(
        "gpupools",
        json!({
            "apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default"},
            "spec": {"policy": {"idleSliceSeconds": 0}},
        }),
    );
    node.start().await;
    node.until("heard", |node| {
        node.log().contains("idle slices are kept as the pool says")
    })
    .await;
    node.admit("p", ONE, 1).await;
    node.remove("p").await;
    node.until("removed", |node| node.instances(0).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_is_away_the_kubelet_is_served_and_nobody_is_taken_for_gone() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let held = node.admit("p", ONE, 1).await;
    node.until("known", |node| {
        gpu_node(node)["status"]["summary"]["allocated"] == 1
    })
    .await;
    node.api().away(true);
    node.until("noticed", |node| node.log().contains("watch lost"))
        .await;
    // a kubelet that has just started shows nobody
    node.kubelet.remove("p");
    node.kubelet.restart();
    node.counts(&held).await;
    let more = node.kubelet.admit("q", ONE, 1).await.unwrap();
    assert!(node.kubelet.devices(ONE)[&held[0]]);
    assert_ne!(more, held);
    node.api().away(false);
    node.until("told", |node| {
        gpu_node(node)["status"]["summary"]["allocated"] == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_mig_manager_is_left_alone_until_its_label_goes() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    let labelled = |labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}});
    node.api()
        .put("nodes", labelled(json!({"nvidia.com/mig.config": "all-1g.10gb"})));
    let foreign = node.world().foreign_create(0, "1g.10gb", Some(0), true).unwrap();
    node.spawn();
    node.until("stands back", |node| {
        condition(node, "StoodBack").as_deref() == Some("True/MigManager")
    })
    .await;
    assert_eq!(node.kubelet.registrations(), 0);
    assert_eq!(
        node.world().state().unwrap().gpus[0].instances[0].id,
        foreign,
        "nothing is touched"
    );
    node.until("told", |node| {
        node.api()
            .list("events")
            .iter()
            .any(|event| event["reason"] == "StoodBack")
    })
    .await;
    node.api().put("nodes", labelled(json!({})));
    node.counts(&[]).await;
    node.until("says so", |node| {
        condition(node, "StoodBack").as_deref() == Some("False/SoleOwner")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dra_driver_on_the_node_is_left_alone() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.api().put(
        "resourceslices",
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "node-a-gpu"},
            "spec": {"nodeName": "node-a", "driver": "gpu.nvidia.com"},
        }),
    );
    node.spawn();
    node.until("stands back", |node| {
        condition(node, "StoodBack").as_deref() == Some("True/DraDriver")
    })
    .await;
    assert_eq!(node.kubelet.registrations(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_changes_become_few_writes() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    node.until("made", |node| gpu_node(node).is_object()).await;
    let before = node.api().requests("PATCH /apis/migpool.dev/v1alpha1/gpunodes");
    let began = std::time::Instant::now();
    for pod in 0..12 {
        node.admit(&format!("p{pod}"), ONE, 1).await;
    }
    node.until("known", |node| {
        gpu_node(node)["status"]["summary"]["allocated"] == 12
    })
    .await;
    let writes = node.api().requests("PATCH /apis/migpool.dev/v1alpha1/gpunodes") - before;
    let most = usize::try_from(began.elapsed().as_millis() / 200).unwrap() + 2;
    assert!(writes <= most, "{writes} writes in {:?}", began.elapsed());
}
