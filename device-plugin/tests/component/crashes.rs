//! The agent dies at any moment, the node reboots: what was given stays given, what was half done is undone.

use std::time::Duration;

use crate::node::Node;

const ONE: &str = "nvidia.com/mig-1g.10gb";
const TWO: &str = "nvidia.com/mig-2g.20gb";
const THREE: &str = "nvidia.com/mig-3g.40gb";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_within_any_step_leaves_nothing_that_the_next_one_does_not_repair() {
    for function in [
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
    ] {
        let mut node = Node::new("H100-80GB", 1).await.with_api().await;
        node.start().await;
        let kept = node.admit("kept", TWO, 1).await;
        // both before either goes: the second would be given the slice of a first that is known to be gone
        for pod in ["a", "b"] {
            node.admit(pod, ONE, 1).await;
        }
        for pod in ["a", "b"] {
            node.remove(pod).await;
        }
        node.counts(&kept).await;
        let before = node.instances(0);
        assert_eq!(before.len(), 3);
        let free = ["3g.40gb:0", "3g.40gb:4"].map(|place| node.id(0, place));
        let three = free
            .iter()
            .find(|id| node.kubelet.devices(THREE)[*id])
            .unwrap()
            .clone();

        node.world().delay(function, Duration::from_secs(20)).unwrap();
        let log = node.agent.as_ref().unwrap().log.clone();
        {
            let call = node.kubelet.allocate(THREE, std::slice::from_ref(&three));
            let begun = async {
                let journal = node.folder.path().join("state/journal.json");
                while !std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"underWay\":[{")) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // into the call whose delay holds it, not only up to it
                for _ in 0..40 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                answer = call => panic!("{function}: answered {answer:?}\n{}", std::fs::read_to_string(log).unwrap()),
                () = begun => {}
            }
        }
        node.kill();
        node.world().clear().unwrap();
        node.start().await;
        node.counts(&kept).await;
        assert_eq!(
            node.instances(0),
            before,
            "{function}: idle slices are back, nothing half done is left"
        );
        let uuids = node.world().state().unwrap();
        assert!(
            uuids.gpus[0]
                .instances
                .iter()
                .all(|instance| !instance.compute_instances.is_empty()),
            "{function}"
        );
        assert!(node.kubelet.allocate(THREE, &[three]).await.is_ok(), "{function}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_agent_keeps_what_pods_have_and_touches_no_slice_of_theirs() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    for pod in 0..5 {
        node.admit(&format!("p{pod}"), if pod % 2 == 0 { ONE } else { TWO }, 1)
            .await;
    }
    let state = |node: &Node| {
        let state = node.world().state().unwrap();
        state
            .gpus
            .iter()
            .map(|gpu| format!("{:?}", gpu.instances))
            .collect::<Vec<_>>()
    };
    let before = state(&node);
    for _ in 0..3 {
        node.kill();
        node.start().await;
        node.counts(&node.kubelet.held()).await;
    }
    assert_eq!(state(&node), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_lost_its_journal_learns_from_the_kubelet_and_from_nvml() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    node.admit("p", TWO, 1).await;
    node.kill();
    std::fs::remove_dir_all(node.folder.path().join("state")).unwrap();
    node.start().await;
    node.counts(&node.kubelet.held()).await;
    assert_eq!(node.instances(0).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_slices_stand_at_their_places_before_the_kubelet_asks() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let two = node.admit("p", TWO, 1).await;
    let ones = node.admit("q", ONE, 2).await;
    let before = node.instances(0);
    let uuid = |node: &Node| {
        let file = node
            .cdi()
            .join(format!("migpool.dev-mig_{}.json", two[0].replace(':', "_")));
        std::fs::read_to_string(file).unwrap()
    };
    let told = uuid(&node);
    node.kubelet.stop();
    node.kill();
    node.world().reboot(None).unwrap();
    std::fs::remove_dir_all(node.cdi()).unwrap();
    assert!(node.instances(0).is_empty());
    node.kubelet.restart();
    node.start().await;
    assert_eq!(node.instances(0), before, "cut before the first registration");
    assert_ne!(uuid(&node), told, "the file names the new instance");
    for (resource, ids) in [(TWO, &two), (ONE, &ones)] {
        assert!(
            ids.iter().all(|id| node.kubelet.devices(resource)[id]),
            "held ids stay healthy"
        );
        node.kubelet.pre_start(resource, ids).await.unwrap();
    }
    node.counts(&node.kubelet.held()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_somebody_destroyed_is_cut_again_before_its_container_starts_and_a_taken_place_is_told()
{
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let id = node.id(0, "1g.10gb:0");
    node.kubelet
        .allocate(ONE, std::slice::from_ref(&id))
        .await
        .unwrap();
    node.kubelet.note("p", "main", ONE, std::slice::from_ref(&id));
    let gi = |node: &Node| node.world().state().unwrap().gpus[0].instances[0].id;
    node.world().foreign_destroy(0, gi(&node)).unwrap();
    node.until("seen", |node| {
        node.page("/metrics")
            .is_some_and(|page| !page.contains("migpool_slice_info{"))
    })
    .await;
    node.kubelet
        .pre_start(ONE, std::slice::from_ref(&id))
        .await
        .unwrap();
    assert_eq!(node.instances(0), ["1g.10gb:0"]);

    node.world().foreign_destroy(0, gi(&node)).unwrap();
    // somebody else's, with a process on it
    let foreign = node.world().foreign_create(0, "4g.40gb", Some(0), false).unwrap();
    let process = nvidia_ml::control::Leftover {
        gpu: 0,
        gpu_instance: Some(foreign),
        pid: 99,
        memory_mib: 1,
    };
    node.world().leftover(&process).unwrap();
    node.until("seen", |node| {
        node.page("/metrics")
            .is_some_and(|page| page.contains("profile=\"4g.40gb\",start=\"0\",gi"))
    })
    .await;
    let refused = node.kubelet.pre_start(ONE, &[id]).await.unwrap_err();
    assert!(
        refused.message().contains("no room") || refused.message().contains("in use"),
        "{refused}"
    );
    assert_eq!(node.instances(0), ["4g.40gb:0"]);
}
