//! What slices and GPUs do, as the driver tells it.

use std::time::Duration;

use device_plugin::gpus::nvml::NvmlGpus;
use device_plugin::gpus::{GpuInfo, Gpus as _, Usage};
use nvidia_ml::control::Setup;
use nvidia_ml::utilisation::Curve;
use serde_json::json;

use crate::node::Node;

/// More than there must be between two samples.
const APART: Duration = Duration::from_millis(150);

/// The GPUs of a node, opened in this process.
async fn gpus(setup: &Setup) -> (Node, NvmlGpus, GpuInfo) {
    let node = Node::set_up(setup).await;
    let mut gpus = NvmlGpus::open(&node.root()).unwrap();
    let gpu = gpus.list().unwrap().remove(0);
    (node, gpus, gpu)
}

/// Load of a GPU instance, or of the whole GPU.
fn busy(node: &Node, gi: Option<u32>, activity: f64) {
    node.world()
        .utilisation(0, gi, Some(Curve::constant(activity)), 1000)
        .unwrap();
}

fn activities(usages: &[Usage]) -> Vec<Option<f64>> {
    usages.iter().map(|usage| usage.activity).collect()
}

#[tokio::test]
async fn a_slice_is_as_busy_as_its_curve_says_since_it_was_read_before() {
    let (node, mut gpus, gpu) = gpus(&Setup::new("H100-80GB", 1, 7)).await;
    let foreign = node.world().foreign_create(0, "3g.40gb", Some(4), false).unwrap();
    busy(&node, Some(foreign), 0.5);
    let first = gpus.usage(&gpu).unwrap();
    assert_eq!(activities(&first), [None], "nobody read it before");
    assert_eq!(first[0].memory.unwrap().used, 1013 << 20);
    tokio::time::sleep(APART).await;
    assert_eq!(activities(&gpus.usage(&gpu).unwrap()), [Some(0.5)]);
    assert_eq!(activities(&gpus.usage(&gpu).unwrap()), [None], "too soon to tell");
    tokio::time::sleep(APART).await;
    busy(&node, Some(foreign), 1.5);
    assert_eq!(
        activities(&gpus.usage(&gpu).unwrap()),
        [Some(1.5)],
        "as it is told"
    );
}

#[tokio::test]
async fn a_slice_of_ours_is_watched_from_the_moment_it_is_made() {
    let (node, mut gpus, gpu) = gpus(&Setup::new("H100-80GB", 1, 7)).await;
    let place = "2g.20gb:2".parse().unwrap();
    let gi = gpus.create_instance(&gpu, place).unwrap();
    let made = gpus.create_compute(&gpu, place, gi).unwrap();
    busy(&node, Some(gi), 0.25);
    tokio::time::sleep(APART).await;
    let read = gpus.usage(&gpu).unwrap();
    assert_eq!(
        (read[0].uuid.as_str(), read[0].activity),
        (made.uuid.as_str(), Some(0.25))
    );
    gpus.destroy_compute(&gpu, gi).unwrap();
    assert_eq!(gpus.usage(&gpu).unwrap(), []);
    gpus.create_compute(&gpu, place, gi).unwrap();
    assert_eq!(
        activities(&gpus.usage(&gpu).unwrap()),
        [None],
        "what was before is another slice's"
    );
}

#[tokio::test]
async fn a_gpu_without_mig_tells_itself_and_an_older_one_tells_memory_alone() {
    let (node, mut gpus_, gpu) = gpus(&Setup {
        mig: false,
        ..Setup::new("H100-80GB", 1, 7)
    })
    .await;
    busy(&node, None, 0.8);
    let read = gpus_.usage(&gpu).unwrap();
    assert_eq!(
        (read[0].uuid.clone(), activities(&read)),
        (gpu.uuid, vec![Some(0.8)])
    );
    assert_eq!(read[0].memory.unwrap().total, 81_559 << 20);
    let (node, mut gpus, gpu) = gpus(&Setup::new("A100-80GB", 1, 7)).await;
    node.world().foreign_create(0, "3g.40gb", Some(4), false).unwrap();
    for _ in 0..2 {
        let read = gpus.usage(&gpu).unwrap();
        assert_eq!(activities(&read), [None]);
        assert!(read[0].memory.unwrap().total > 39 << 30);
        tokio::time::sleep(APART).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_tells_what_pods_do_in_its_metrics() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.api().put(
        "gpupools",
        json!({
            "apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default"},
            "spec": {"policy": {"scanIntervalSeconds": 1}},
        }),
    );
    node.start().await;
    node.until("heard", |node| {
        node.log().contains("load is read as the pool says")
    })
    .await;
    let value = |node: &Node, metric: &str| {
        let page = node.page("/metrics")?;
        let line = page.lines().find(|line| line.starts_with(metric))?.to_owned();
        Some((line.rsplit(' ').next()?.parse::<f64>().ok()?, line))
    };
    node.until("idle", |node| {
        value(node, "migpool_node_load_ratio").is_some_and(|(load, _)| load == 0.0)
    })
    .await;
    let id = node.id(0, "3g.40gb:4");
    node.api().pod("p", &format!("main={id}"));
    node.kubelet
        .admit("p", "nvidia.com/mig-3g.40gb", 1)
        .await
        .unwrap();
    let gi = node.world().state().unwrap().gpus[0].instances[0].id;
    busy(&node, Some(gi), 1.5);
    node.until("busy", |node| {
        let activity = value(node, "migpool_slice_activity_ratio");
        activity.is_some_and(|(activity, line)| {
            // more than a whole is clamped
            activity == 1.0
                && line.contains("pod=\"p\"")
                && line.contains("container=\"main\"")
                && line.contains("start=\"4\"")
        })
    })
    .await;
    node.until("counted", |node| {
        let load = value(node, "migpool_node_load_ratio").map(|(load, _)| load);
        let used = value(node, "migpool_slice_memory_used_bytes").map(|(used, _)| used);
        let clamped = value(node, "migpool_usage_samples_clamped_total").map(|(clamped, _)| clamped);
        // two GPUs, one of them with three sevenths at work
        load.is_some_and(|load| (load - 3.0 / 14.0).abs() < 1e-9)
            && used == Some(f64::from(1013 << 20))
            && clamped > Some(0.0)
    })
    .await;
}
