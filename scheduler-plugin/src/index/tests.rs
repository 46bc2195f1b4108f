//! The index under random histories: whatever happens in which order, no place is given twice.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use shared::names::Placements;
use shared::snapshot::Node;

use super::binding::Step;
use super::holding::{Earlier, Held};
use super::testing::{PROFILES, assert_disjoint, bound_to, empty, gpu_node, part, pod, put_node};
use super::*;
use crate::http::node_names::NodeNames;

/// Nodes `n0`, `n1`, ...
fn with_nodes(index: &Index, nodes: u32, gpus: u32) -> NodeNames {
    let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
    names.iter().for_each(|name| put_node(index, name, gpus));
    names.iter().collect()
}

/// Filter's first step, with the first node offered.
fn filter(index: &Index, pod: &Value) -> Earlier {
    let known = part(pod);
    index.begin_filter(&known.pod, &known.request.unwrap(), &["n0"].into_iter().collect())
}

#[test]
fn no_history_of_filters_binds_failures_and_deletions_gives_a_place_twice() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let (index, seconds) = empty();
        let names = with_nodes(&index, 2, 2);
        let mut waiting: Vec<Value> = Vec::new();
        let mut given: BTreeMap<String, (String, Placements)> = BTreeMap::new();
        for step in 0..120 {
            match random.random_range(0..10) {
                0..=3 => {
                    let new = pod(&format!("p{step}"), PROFILES.choose(&mut random).unwrap());
                    index.pods(Change::Apply(part(&new)));
                    waiting.push(new);
                }
                4..=7 if !waiting.is_empty() => {
                    let at = random.random_range(0..waiting.len());
                    let chosen = waiting[at].clone();
                    let known = part(&chosen);
                    let request = known.request.clone().unwrap();
                    if index.begin_filter(&known.pod, &request, &names) != Earlier::Nothing {
                        continue;
                    }
                    let Some(Held { node, .. }) = index.hold_best(&known.pod, &request, &names) else {
                        continue;
                    };
                    // sometimes kube-scheduler never comes back
                    if random.random_bool(0.2) {
                        continue;
                    }
                    let Ok(Step::Send(sending)) = index.begin_bind(&known.pod, &node) else {
                        panic!("{known:?}")
                    };
                    let placements = sending.placements.clone();
                    if random.random_bool(0.2) {
                        sending.failed();
                        continue;
                    }
                    sending.bound();
                    waiting.remove(at);
                    // the watch may show it now or never in this history: the place is taken either way
                    if random.random_bool(0.7) {
                        index.pods(Change::Apply(part(&bound_to(&chosen, &node, &placements))));
                    }
                    given.insert(known.pod.name.clone(), (node, placements));
                    assert_disjoint(given.iter().map(|(pod, (_, placements))| (pod, placements)));
                }
                8 if !given.is_empty() => {
                    let names: Vec<String> = given.keys().cloned().collect();
                    let gone = names.choose(&mut random).unwrap();
                    given.remove(gone);
                    index.pods(Change::Delete(part(&pod(gone, "1g.10gb"))));
                }
                _ => {
                    seconds.fetch_add(random.random_range(0..40), Ordering::SeqCst);
                    index.expire();
                }
            }
        }
        assert!(!given.is_empty(), "seed {seed} placed nothing");
    }
}

#[test]
fn a_rebuilt_index_knows_the_same_as_one_that_was_there_all_along() {
    let (index, _) = empty();
    with_nodes(&index, 2, 2);
    let mut objects = Vec::new();
    for (at, profile) in ["3g.40gb", "2g.20gb", "1g.10gb", "7g.80gb"]
        .into_iter()
        .enumerate()
    {
        let new = pod(&format!("p{at}"), profile);
        index.pods(Change::Apply(part(&new)));
        let node = format!("n{}", at % 2);
        let Ok(Step::Send(sending)) = index.begin_bind(&part(&new).pod, &node) else {
            panic!("p{at}")
        };
        objects.push(bound_to(&new, &node, &sending.placements));
        sending.bound();
    }
    let strip = |snapshot: &Snapshot| -> Vec<Node> {
        snapshot
            .nodes
            .values()
            .map(|node| Node {
                version: 0,
                ..Node::clone(node)
            })
            .collect()
    };
    let (again, _) = empty();
    with_nodes(&again, 2, 2);
    again.pods(Change::Reset(objects.iter().map(part).collect()));
    assert_eq!(strip(&again.view().snapshot), strip(&index.view().snapshot));
}

#[test]
fn an_unchanged_node_is_the_same_value_in_the_next_view() {
    let (index, _) = empty();
    with_nodes(&index, 3, 1);
    let before = index.view();
    let new = pod("p", "1g.10gb");
    let known = part(&new);
    index
        .hold_best(&known.pod, &known.request.unwrap(), &["n1"].into_iter().collect())
        .unwrap();
    let after = index.view();
    let same = |name: &str| Arc::ptr_eq(&before.snapshot.nodes[name], &after.snapshot.nodes[name]);
    assert_eq!((same("n0"), same("n1"), same("n2")), (true, false, true));
    // what is unchanged as an object changes nothing
    index.gpu_nodes(Change::Apply(gpu_node("n0", 1)));
    assert!(Arc::ptr_eq(
        &after.snapshot.nodes["n0"],
        &index.view().snapshot.nodes["n0"]
    ));
}

#[test]
fn a_binding_that_was_dropped_is_unknown_and_goes_to_the_same_place_again() {
    let (index, seconds) = empty();
    with_nodes(&index, 1, 1);
    let new = pod("p", "3g.40gb");
    index.pods(Change::Apply(part(&new)));
    let Ok(Step::Send(sending)) = index.begin_bind(&part(&new).pod, "n0") else {
        panic!()
    };
    let first = sending.placements.clone();
    let under_way = index.begin_bind(&part(&new).pod, "n0").unwrap_err().code();
    assert_eq!(under_way, "UnderWay");
    drop(sending);
    assert_eq!(index.reservations()[&State::Unknown], 1);
    assert_eq!(filter(&index, &new), Earlier::On("n0".into()));
    let Ok(Step::Send(sending)) = index.begin_bind(&part(&new).pod, "n0") else {
        panic!()
    };
    assert_eq!(sending.placements, first);
    drop(sending);
    seconds.fetch_add(61, Ordering::SeqCst);
    index.expire();
    assert_eq!(filter(&index, &new), Earlier::Nothing);
}

#[test]
fn nodes_that_no_pool_selects_are_not_ours() {
    let (index, _) = empty();
    with_nodes(&index, 2, 1);
    assert_eq!(index.view().snapshot.nodes.len(), 2);
    let pool = |name: &str, selector: Value, mode: &str| {
        let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": name},
            "spec": {"nodeSelector": selector, "mode": mode}});
        PoolPart::of(serde_json::from_value(object).unwrap())
    };
    index.gpu_pools(Change::Apply(pool("b", json!({"pool": "b"}), "Static")));
    assert!(index.view().snapshot.nodes.is_empty());
    let labelled = NodePart {
        name: "n1".into(),
        labels: [("pool".into(), "b".into())].into(),
        ..NodePart::default()
    };
    index.nodes(Change::Apply(labelled));
    index.gpu_pools(Change::Apply(pool("c", json!({}), "Observe")));
    let view = index.view();
    let modes: BTreeSet<String> = view
        .snapshot
        .nodes
        .values()
        .map(|node| format!("{} {:?}", node.name, node.mode))
        .collect();
    assert_eq!(modes, ["n0 Observe".to_owned(), "n1 Static".to_owned()].into());
}
