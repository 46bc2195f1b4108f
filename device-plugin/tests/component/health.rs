//! GPUs and slices fall ill and get well.

use std::time::Duration;

use nvidia_ml::code::Code;

use crate::node::Node;

const ONE: &str = "nvidia.com/mig-1g.10gb";

fn healthy_on(node: &Node, gpu: usize) -> usize {
    let uuid = node.gpu(gpu);
    let devices = node.kubelet.devices(ONE);
    devices
        .iter()
        .filter(|(id, healthy)| **healthy && id.starts_with(&uuid))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xid_takes_its_gpu_out_and_no_other_and_the_gpu_comes_back() {
    let mut node = Node::new("H100-80GB", 2).await;
    node.start().await;
    node.until("listens", |node| {
        node.log().contains("listening for events of the GPUs")
    })
    .await;
    node.world().xid(0, 31, None, None).unwrap();
    node.world().recovery_action(0, 1).unwrap();
    node.world().xid(0, 48, None, None).unwrap();
    node.until("out", |node| healthy_on(node, 0) == 0).await;
    assert_eq!(healthy_on(&node, 1), 7);
    let metrics = node.page("/metrics").unwrap();
    assert!(
        metrics.contains("xid=\"48\"") && metrics.contains("xid=\"31\""),
        "{metrics}"
    );
    node.world().recovery_action(0, 0).unwrap();
    node.until("back", |node| healthy_on(node, 0) == 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xid_of_a_slice_has_that_slice_cut_again() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.start().await;
    node.until("listens", |node| {
        node.log().contains("listening for events of the GPUs")
    })
    .await;
    let ids = node.kubelet.admit("p", ONE, 2).await.unwrap();
    let state = node.world().state().unwrap();
    let ill = state.gpus[0].instances[0].clone();
    let starts: Vec<String> = ids
        .iter()
        .map(|id| id.rsplit(':').next().unwrap().to_owned())
        .collect();
    let at = starts
        .iter()
        .position(|start| *start == ill.start.to_string())
        .unwrap();
    node.world().xid(0, 109, Some(ill.id), None).unwrap();
    node.until("ill", |node| !node.kubelet.devices(ONE)[&ids[at]])
        .await;
    assert!(node.kubelet.devices(ONE)[&ids[1 - at]], "its neighbour is not");
    // the container starts again
    node.kubelet.pre_start(ONE, &ids).await.unwrap();
    node.until("well", |node| node.kubelet.devices(ONE)[&ids[at]])
        .await;
    let uuids = |state: &nvidia_ml::state::State| format!("{:?}", state.gpus[0].instances);
    assert_ne!(
        uuids(&state),
        uuids(&node.world().state().unwrap()),
        "it is another instance"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_gpu_is_out_with_all_that_is_on_it_and_the_others_work_on() {
    let mut node = Node::new("H100-80GB", 2).await;
    node.start().await;
    node.until("listens", |node| {
        node.log().contains("listening for events of the GPUs")
    })
    .await;
    node.world().lose(1, false).unwrap();
    node.until("out", |node| healthy_on(node, 1) == 0).await;
    assert_eq!(node.kubelet.devices(ONE).len(), 14, "an id never disappears");
    let ids = node.kubelet.admit("p", ONE, 1).await.unwrap();
    assert!(ids[0].starts_with(&node.gpu(0)));
    node.world().restore(1).unwrap();
    node.until("back", |node| healthy_on(node, 1) == 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_call_that_hangs_is_given_up_and_the_kubelet_still_gets_answers() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.flags.push("--driver-timeout-seconds=1".to_owned());
    node.start().await;
    node.world()
        .delay("nvmlDeviceCreateGpuInstanceWithPlacement", Duration::from_secs(4))
        .unwrap();
    let refused = node
        .kubelet
        .allocate(ONE, &[node.id(0, "1g.10gb:6")])
        .await
        .unwrap_err();
    assert!(
        refused.message().contains("no answer from the driver within 1 s"),
        "{refused}"
    );
    node.until("suspect", |node| healthy_on(node, 0) == 0).await;
    assert!(node.page("/metrics").is_some() && node.kubelet.prefer(ONE, 0, &[]).await.is_empty());
    node.world()
        .delay("nvmlDeviceCreateGpuInstanceWithPlacement", Duration::ZERO)
        .unwrap();
    node.until("well again", |node| healthy_on(node, 0) == 7).await;
    node.kubelet.admit("p", ONE, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_goes_away_is_waited_for() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.start().await;
    let held = node.kubelet.admit("p", ONE, 1).await.unwrap();
    node.world()
        .fail("nvmlDeviceGetCount_v2", 1, Code::Uninitialized, 2)
        .unwrap();
    node.until("gone", |node| node.kubelet.allocatable()[ONE] == 1)
        .await;
    assert!(node.kubelet.devices(ONE)[&held[0]], "what is held stays");
    node.counts(&held).await;
}
