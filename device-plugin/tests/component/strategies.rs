//! The strategies of NVIDIA's plugin, with its names and ids; and the ways to tell a container.

use nvidia_ml::control::Setup;

use crate::node::Node;

const GPU: &str = "nvidia.com/gpu";
const ONE: &str = "nvidia.com/mig-1g.10gb";

async fn with(strategy: &str, setup: &Setup) -> Node {
    let mut node = Node::set_up(setup).await;
    node.flags.push(format!("--mig-strategy={strategy}"));
    node
}

fn one_gpu() -> Setup {
    Setup::new("H100-80GB", 1, 7)
}

#[tokio::test(flavor = "multi_thread")]
async fn none_serves_whole_gpus_whatever_their_mode() {
    let mut node = with("none", &Setup::new("H100-80GB", 2, 7)).await;
    node.spawn();
    node.until("served", |node| node.kubelet.allocatable().get(GPU) == Some(&2))
        .await;
    assert!(node.kubelet.devices(GPU).contains_key(&node.gpu(0)));
    let ids = node.kubelet.admit("p", GPU, 1).await.unwrap();
    let file = node.cdi().join(format!("migpool.dev-gpu_{}.json", ids[0]));
    assert!(std::fs::read_to_string(file).unwrap().contains("migpool.dev/gpu"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_serves_the_slices_that_exist_by_their_uuids_and_sees_new_ones() {
    let mut node = with("mixed", &one_gpu()).await;
    node.world().foreign_create(0, "1g.10gb", Some(0), false).unwrap();
    node.spawn();
    node.until("served", |node| node.kubelet.allocatable().get(ONE) == Some(&1))
        .await;
    let id = node.kubelet.devices(ONE).into_keys().next().unwrap();
    assert!(id.starts_with("MIG-"), "{id}");
    node.world().foreign_create(0, "2g.20gb", Some(4), false).unwrap();
    node.until("seen", |node| {
        node.kubelet.allocatable().get("nvidia.com/mig-2g.20gb") == Some(&1)
    })
    .await;
    node.kubelet.admit("p", ONE, 1).await.unwrap();
    assert_eq!(node.instances(0).len(), 2, "nothing is cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_serves_slices_of_one_profile_as_gpus_and_nothing_when_there_are_two() {
    let mut node = with("single", &one_gpu()).await;
    node.world().foreign_create(0, "3g.40gb", Some(0), false).unwrap();
    node.world().foreign_create(0, "3g.40gb", Some(4), false).unwrap();
    node.spawn();
    node.until("served", |node| node.kubelet.allocatable().get(GPU) == Some(&2))
        .await;
    node.world()
        .foreign_destroy(0, node.world().state().unwrap().gpus[0].instances[0].id)
        .unwrap();
    node.world().foreign_create(0, "1g.10gb", None, false).unwrap();
    node.until("invalid", |node| node.kubelet.allocatable().get(GPU) == Some(&0))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamic_serves_gpus_without_mig_whole() {
    let mut setup = Setup::new("H100-80GB", 1, 7);
    setup.mig = false;
    let mut node = with("dynamic", &setup).await;
    node.spawn();
    node.until("served", |node| node.kubelet.allocatable().get(GPU) == Some(&1))
        .await;
    assert_eq!(node.kubelet.allocatable().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_told_by_environment_and_not_started_with_a_uuid_that_is_gone() {
    let mut node = Node::new("H100-80GB", 1).await;
    node.flags.extend([
        "--device-list-strategy=envvar".to_owned(),
        "--pass-device-specs".to_owned(),
    ]);
    node.start().await;
    let id = node.id(0, "1g.10gb:6");
    let answer = node
        .kubelet
        .allocate(ONE, std::slice::from_ref(&id))
        .await
        .unwrap();
    assert!(answer.envs["NVIDIA_VISIBLE_DEVICES"].starts_with("MIG-") && answer.cdi_devices.is_empty());
    assert!(
        answer
            .devices
            .iter()
            .any(|spec| spec.container_path.starts_with("/dev/nvidia-caps/"))
    );
    node.kubelet.note("p", "main", ONE, std::slice::from_ref(&id));
    node.kubelet.stop();
    node.kill();
    node.world().reboot(None).unwrap();
    node.kubelet.restart();
    node.start().await;
    let refused = node.kubelet.pre_start(ONE, &[id]).await.unwrap_err();
    assert!(
        refused.message().contains("was cut again") && refused.message().contains("delete the pod"),
        "{refused}"
    );
}
