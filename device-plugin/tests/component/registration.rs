//! The kubelet comes, goes and comes again; the driver comes late.

use std::time::{Duration, Instant};

use nvidia_ml::control::Setup;

use crate::node::Node;

const ONE: &str = "nvidia.com/mig-1g.10gb";

#[tokio::test(flavor = "multi_thread")]
async fn every_profile_is_registered_and_an_empty_node_counts_as_brute_force_does() {
    let mut node = Node::new("H100-80GB", 2).await;
    node.start().await;
    node.counts(&[]).await;
    assert_eq!(node.kubelet.devices(ONE).len(), 14);
    // the fake's GPUs have no PCI device on this machine, so there is no NUMA node to tell
    assert_eq!(node.kubelet.numa(&node.id(0, "1g.10gb:0")), None);
    node.until("readiness", |node| {
        node.page("/readyz").is_some_and(|page| page.contains("200 OK"))
    })
    .await;
    let metrics = node.page("/metrics").unwrap();
    assert!(
        metrics.contains("\nmigpool_gpu_free_memory_slices{")
            && metrics.contains("migpool_registrations_total")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_comes_again_is_told_again_within_a_second() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.start().await;
    for _ in 0..3 {
        node.kubelet.restart();
        let began = Instant::now();
        node.counts(&[]).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    // a kubelet that stays away for a while
    node.kubelet.stop();
    node.until("not ready", |node| {
        node.page("/readyz")
            .is_some_and(|page| page.contains("kubelet.sock is not there"))
    })
    .await;
    node.kubelet.restart();
    node.counts(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_ours_that_somebody_removes_is_made_again() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.start().await;
    let before = node.kubelet.registrations();
    let socket = node.kubelet.folder().join("migpool-mig-1g.10gb.sock");
    std::fs::remove_file(&socket).unwrap();
    node.until("made again", |node| {
        socket.exists() && node.kubelet.registrations() == before + 1
    })
    .await;
    assert!(node.kubelet.admit("p", ONE, 1).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_driver_waits_says_so_and_serves_when_it_comes() {
    let mut node = Node::without_driver().await;
    node.spawn();
    let says = |node: &Node| {
        node.page("/readyz")
            .is_some_and(|page| page.contains("no NVIDIA driver") && page.contains("503"))
    };
    node.until("says so", says).await;
    assert_eq!(node.kubelet.registrations(), 0);
    node.install_driver(&Setup::new("A100-40GB", 1, 3));
    node.counts(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plugin_on_the_node_is_left_alone_until_it_is_gone() {
    let mut node = Node::new("H100-80GB", 1).await;
    let other = tokio::net::UnixListener::bind(node.kubelet.folder().join("nvidia-gpu.sock")).unwrap();
    node.spawn();
    node.until("stands back", |node| node.log().contains("standing back"))
        .await;
    assert_eq!(node.kubelet.registrations(), 0);
    assert!(
        node.page("/metrics")
            .unwrap()
            .contains("migpool_stood_back{reason=\"OtherPlugin\"} 1")
    );
    drop(other);
    node.counts(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_in_the_config_file_ends_the_agent_with_one_sentence() {
    let mut node = Node::new("H100-80GB", 1).await;
    let config = node.folder.path().join("config.yaml");
    std::fs::write(&config, "migStrategi: single\n").unwrap();
    node.flags.push(format!("--config-file={}", config.display()));
    node.spawn();
    node.until("says so", |node| {
        node.log()
            .contains("unknown key \"migStrategi\"; known keys are migStrategy")
    })
    .await;
}
