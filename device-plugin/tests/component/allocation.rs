//! Pods come and go: which slice, cut how, told how, given back when.

use std::collections::BTreeSet;

use nvidia_ml::code::Code;
use nvidia_ml::control::Leftover;

use crate::node::Node;

const ONE: &str = "nvidia.com/mig-1g.10gb";
const TWO: &str = "nvidia.com/mig-2g.20gb";
const THREE: &str = "nvidia.com/mig-3g.40gb";

fn cdi_of(node: &Node, id: &str) -> Option<serde_json::Value> {
    let file = node
        .cdi()
        .join(format!("migpool.dev-mig_{}.json", id.replace(':', "_")));
    Some(serde_json::from_slice(&std::fs::read(file).ok()?).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_pods_sit_at_seven_starts_each_with_its_own_nodes_and_uuid() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let (mut ids, mut uuids, mut caps) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for pod in 0..7 {
        let id = node.admit(&format!("p{pod}"), ONE, 1).await.remove(0);
        let spec = cdi_of(&node, &id).unwrap();
        assert_eq!(spec["kind"], "migpool.dev/mig");
        assert_eq!(spec["devices"][0]["name"], id.as_str());
        let edits = &spec["devices"][0]["containerEdits"];
        let env: Vec<&str> = edits["env"]
            .as_array()
            .unwrap()
            .iter()
            .map(|env| env.as_str().unwrap())
            .collect();
        assert_eq!(env[0], "NVIDIA_VISIBLE_DEVICES=void");
        let start = id.rsplit(':').next().unwrap();
        let uuid = env[1].strip_prefix(&format!("MIGPOOL_SLICE_0_{start}=")).unwrap();
        assert!(uuid.starts_with("MIG-") && uuids.insert(uuid.to_owned()));
        let nodes = edits["deviceNodes"].as_array().unwrap();
        for cap in nodes
            .iter()
            .filter(|node| node["path"].as_str().unwrap().contains("nvidia-cap"))
        {
            assert!(std::path::Path::new(cap["hostPath"].as_str().unwrap()).exists());
            assert!(caps.insert(cap["path"].as_str().unwrap().to_owned()));
        }
        assert!(nodes.iter().any(|node| node["path"] == "/dev/nvidia0"));
        ids.insert(id);
    }
    assert_eq!((ids.len(), caps.len(), node.instances(0).len()), (7, 14, 7));
    node.counts(&node.kubelet.held()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_slice_makes_room_for_another_profile_and_a_held_one_never_does() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    for pod in 0..7 {
        node.admit(&format!("p{pod}"), ONE, 1).await;
    }
    let refused = node
        .kubelet
        .allocate(THREE, &[node.id(0, "3g.40gb:4")])
        .await
        .unwrap_err();
    assert!(refused.message().contains("there is no room for"), "{refused}");
    for pod in 0..7 {
        node.remove(&format!("p{pod}")).await;
    }
    node.counts(&[]).await;
    assert_eq!(node.instances(0).len(), 7, "released slices stay idle");
    let ids = node.admit("big", THREE, 2).await;
    assert_eq!(ids.len(), 2);
    assert_eq!(node.instances(0), ["3g.40gb:0", "3g.40gb:4"]);
    assert_eq!(
        std::fs::read_dir(node.cdi()).unwrap().count(),
        2,
        "files of released slices are gone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_equal_brute_force_after_every_step_of_a_random_sequence() {
    let mut node = Node::new("H100-80GB", 2).await.with_api().await;
    node.start().await;
    let resources: Vec<String> = node.kubelet.allocatable().into_keys().collect();
    let (mut seed, mut pods, mut placed) = (0x2545_f491_4f6c_dd1d_u64, Vec::new(), 0);
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for step in 0..60 {
        if random(5) < 3 || pods.is_empty() {
            let resource = &resources[random(resources.len())];
            let free = node.kubelet.allocatable()[resource]
                - node
                    .kubelet
                    .devices(resource)
                    .iter()
                    .filter(|(id, _)| node.kubelet.held().contains(id))
                    .count();
            if free > 0 {
                let pod = format!("p{step}");
                let ids = node.admit(&pod, resource, 1).await;
                assert_eq!(ids.len(), 1);
                pods.push(pod);
                placed += 1;
            }
        } else {
            let pod = pods.swap_remove(random(pods.len()));
            node.remove(&pod).await;
        }
        node.counts(&node.kubelet.held()).await;
    }
    assert!(placed > 10, "{placed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_any_call_is_taken_back_and_answered_with_a_sentence() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    // leave idle slices that must make way, so that there is something to take back
    // both before either goes: the second would be given the slice of a first that is known to be gone
    for pod in ["a", "b"] {
        node.admit(pod, ONE, 1).await;
    }
    for pod in ["a", "b"] {
        node.remove(pod).await;
    }
    node.counts(&[]).await;
    let before = node.instances(0);
    let three = node.id(0, "3g.40gb:4");
    for (function, call) in [
        ("nvmlComputeInstanceDestroy", 1),
        ("nvmlGpuInstanceDestroy", 1),
        ("nvmlGpuInstanceDestroy", 2),
        ("nvmlDeviceCreateGpuInstanceWithPlacement", 1),
        ("nvmlGpuInstanceCreateComputeInstance", 1),
    ] {
        node.world().fail(function, call, Code::Unknown, 1).unwrap();
        let refused = node
            .kubelet
            .allocate(THREE, std::slice::from_ref(&three))
            .await
            .unwrap_err();
        assert!(
            refused.message().contains("an internal driver error occurred"),
            "{function}: {refused}"
        );
        node.until(function, |node| node.instances(0) == before).await;
        node.counts(&[]).await;
        assert!(!cdi_of(&node, &three).is_some_and(|_| true), "{function}");
    }
    assert!(node.kubelet.allocate(THREE, &[three]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_get_their_own_slices_and_the_same_one_is_given_once() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let (three, two, other) = (
        node.id(0, "3g.40gb:4"),
        node.id(0, "2g.20gb:0"),
        node.id(0, "2g.20gb:4"),
    );
    let (of_three, of_two, of_other) = (
        std::slice::from_ref(&three),
        std::slice::from_ref(&two),
        std::slice::from_ref(&other),
    );
    let (a, b, c) = tokio::join!(
        node.kubelet.allocate(THREE, of_three),
        node.kubelet.allocate(TWO, of_two),
        node.kubelet.allocate(TWO, of_other)
    );
    assert!(b.is_ok());
    assert_eq!(u32::from(a.is_ok()) + u32::from(c.is_ok()), 1, "they overlap");
    node.kubelet.note("p", "main", TWO, of_two);
    let refused = node.kubelet.allocate(TWO, of_two).await.unwrap_err();
    assert!(
        refused.message().contains("is already held by default/p"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_containers_slice_goes_on_to_the_next_container_of_its_pod() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let id = node.id(0, "1g.10gb:6");
    // the kubelet allocates once for the init container, which its account never shows, and again for the main one
    let first = node
        .kubelet
        .allocate(ONE, std::slice::from_ref(&id))
        .await
        .unwrap();
    let again = node
        .kubelet
        .allocate(ONE, std::slice::from_ref(&id))
        .await
        .unwrap();
    assert_eq!(first, again);
    assert_eq!(node.instances(0), ["1g.10gb:6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leftover_process_blocks_its_slice_until_it_ends() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    let id = node.admit("p", ONE, 1).await.remove(0);
    let gi = node.world().state().unwrap().gpus[0].instances[0].id;
    node.world()
        .leftover(&Leftover {
            gpu: 0,
            gpu_instance: Some(gi),
            pid: 4242,
            memory_mib: 100,
        })
        .unwrap();
    node.remove("p").await;
    node.until("blocked", |node| {
        node.log().contains("process 4242 is still on it")
    })
    .await;
    node.until("counted as used", |node| {
        node.kubelet.devices(ONE).get(&id) == Some(&false)
    })
    .await;
    let refused = node
        .kubelet
        .allocate(ONE, std::slice::from_ref(&id))
        .await
        .unwrap_err();
    assert!(refused.message().contains("process 4242"), "{refused}");
    assert!(
        node.kubelet
            .allocate("nvidia.com/mig-7g.80gb", &[node.id(0, "7g.80gb:0")])
            .await
            .is_err()
    );
    assert_eq!(node.instances(0), ["1g.10gb:6"], "never forced");
    node.world().remove_leftover(0, 4242).unwrap();
    node.counts(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_slices_are_removed_after_their_time() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.flags.push("--idle-slice-seconds=0".to_owned());
    node.start().await;
    node.admit("p", ONE, 1).await;
    assert_eq!(node.instances(0).len(), 1);
    node.remove("p").await;
    node.until("removed", |node| node.instances(0).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_device_of_the_node_is_refused_with_the_fix() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.start().await;
    for id in [
        "GPU-none:1g.10gb:0".to_owned(),
        node.id(0, "1g.10gb:7"),
        node.id(0, "9g.10gb:0"),
        "MIG-1".to_owned(),
        "x".to_owned(),
    ] {
        let refused = node
            .kubelet
            .allocate(ONE, std::slice::from_ref(&id))
            .await
            .unwrap_err();
        assert!(
            refused.message().contains("is not a device of this node"),
            "{id}: {refused}"
        );
        assert!(node.kubelet.pre_start(ONE, &[id]).await.is_err());
    }
    assert!(node.instances(0).is_empty());
}
