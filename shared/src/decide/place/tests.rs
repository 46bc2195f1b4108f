//! Placement: exact order, oracles by brute force, and the sentences of refusals.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::decide::check::{Fault, check};
use crate::decide::testing::{cluster, gpu_uuid, node, owner, tables};
use crate::mig::layout::enumerate;
use crate::mig::{Board, Slice};
use crate::snapshot::{Phase, Want};

fn request(wants: &[(&str, u32)]) -> Request {
    let want = |(at, (profile, count)): (usize, &(&str, u32))| Want {
        container: format!("c{at}"),
        phase: Phase::Main,
        profile: (*profile != "gpu").then(|| profile.parse().unwrap()),
        count: *count,
    };
    Request {
        wants: wants.iter().enumerate().map(want).collect(),
        ..Request::default()
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.nodes.keys().map(ToString::to_string).collect()
}

/// Places one request after another until one is refused.
fn fill(snapshot: &mut Snapshot, request: &Request) -> (Vec<String>, Refusal) {
    let mut placed = Vec::new();
    loop {
        let tables = tables(snapshot);
        let node = match rank(snapshot, request, names(snapshot), &tables) {
            Ok(ranking) => ranking.best().unwrap().node.name.clone(),
            Err(refusal) => return (placed, refusal),
        };
        let chosen = on_node(&snapshot.nodes[node.as_str()], request, &tables).unwrap();
        check(snapshot, &node, request, &chosen.placements).unwrap();
        let _ = snapshot
            .assume(&node, &chosen.placements, &owner(&placed.len().to_string()))
            .unwrap();
        placed.push(format!("{node}/{}", chosen.placements));
    }
}

#[test]
fn seven_small_slices_fill_one_gpu_from_the_top_before_the_next_is_touched() {
    let mut snapshot = cluster([node("a", "H100-80GB", 2)]);
    let (placed, refusal) = fill(&mut snapshot, &request(&[("1g.10gb", 1)]));
    assert_eq!(placed.len(), 14);
    assert!(
        placed[..7].iter().all(|place| place.contains(&gpu_uuid("a", 0))),
        "{placed:?}"
    );
    let starts: std::collections::BTreeSet<_> = placed[..7]
        .iter()
        .map(|place| place.rsplit(':').next().unwrap())
        .collect();
    assert_eq!(starts.len(), 7);
    assert_eq!(refusal.to_string(), "0/2 GPUs can take 1g.10gb: 2 full");
}

#[test]
fn a_full_pool_says_why_by_gpu_count() {
    let mut snapshot = cluster([node("a", "H100-80GB", 4), node("b", "H100-80GB", 4)]);
    let mut b = Node::clone(&snapshot.nodes["b"]);
    b.gpus[2].withheld = true;
    b.gpus[3].withheld = true;
    snapshot.nodes.insert("b".into(), Arc::new(b));
    for (name, index) in [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)] {
        let placements: Placements = format!("m={}:1g.10gb:6", gpu_uuid(name, index)).parse().unwrap();
        let _ = snapshot.assume(name, &placements, &owner("x")).unwrap();
    }
    let refusal = rank(
        &snapshot,
        &request(&[("7g.80gb", 1)]),
        names(&snapshot),
        &tables(&snapshot),
    )
    .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "0/8 GPUs can take 7g.80gb: 6 hold smaller slices, 2 withheld"
    );
}

#[test]
fn an_idle_slice_that_is_there_is_taken_before_an_equal_place_is_cut() {
    let mut a = node("a", "H100-80GB", 2);
    a.gpus[1].put(
        Slice {
            place: "2g.20gb:4".parse().unwrap(),
            used: Use::Idle,
        },
        None,
    );
    let snapshot = cluster([a]);
    let chosen = on_node(
        &snapshot.nodes["a"],
        &request(&[("2g.20gb", 1)]),
        &tables(&snapshot),
    )
    .unwrap();
    assert_eq!(
        chosen.placements.to_string(),
        format!("c0={}:2g.20gb:4", gpu_uuid("a", 1))
    );
    assert_eq!(chosen.rank.cuts, 0);
}

#[test]
fn a_static_pool_hands_out_only_what_is_there() {
    let mut a = node("a", "H100-80GB", 1);
    a.mode = Mode::Static;
    a.gpus[0].put(
        Slice {
            place: "2g.20gb:0".parse().unwrap(),
            used: Use::Idle,
        },
        None,
    );
    let mut snapshot = cluster([a]);
    let (placed, refusal) = fill(&mut snapshot, &request(&[("2g.20gb", 1)]));
    assert_eq!(placed.len(), 1);
    assert_eq!(
        refusal.to_string(),
        "0/1 GPUs can take 2g.20gb: 1 static without an idle slice of it"
    );
}

#[test]
fn several_slices_land_on_one_gpu_where_they_can_and_on_one_node_where_they_must() {
    let mut snapshot = cluster([node("a", "H100-80GB", 2)]);
    let three = request(&[("2g.20gb", 3)]);
    let tables = tables(&snapshot);
    let chosen = on_node(&snapshot.nodes["a"], &three, &tables).unwrap();
    assert_eq!(
        chosen
            .placements
            .places()
            .iter()
            .map(|device| &device.gpu)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        1
    );
    let four = request(&[("2g.20gb", 4)]);
    let chosen = on_node(&snapshot.nodes["a"], &four, &tables).unwrap();
    check(&snapshot, "a", &four, &chosen.placements).unwrap();
    let _ = snapshot.assume("a", &chosen.placements, &owner("x")).unwrap();
    assert_eq!(
        on_node(&snapshot.nodes["a"], &request(&[("2g.20gb", 3)]), &tables),
        None
    );
    let refusal = rank(&snapshot, &request(&[("2g.20gb", 7)]), names(&snapshot), &tables).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "0/2 GPUs can take 7 x 2g.20gb: 2 too small for the whole request"
    );
    assert!(!refusal.may_pass());
}

#[test]
fn a_whole_gpu_is_found_where_mig_is_off() {
    let snapshot = cluster([node("a", "H100-80GB", 1), node("b", "none", 1)]);
    let whole = request(&[("gpu", 1)]);
    let ranking = rank(&snapshot, &whole, names(&snapshot), &tables(&snapshot)).unwrap();
    assert_eq!(ranking.best().unwrap().node.name, "b");
    let refusal = rank(&snapshot, &whole, ["a"], &tables(&snapshot)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "0/2 GPUs can take whole GPU: 1 on nodes that kube-scheduler ruled out, 1 in MIG mode"
    );
}

#[test]
fn equal_nodes_are_ordered_by_name_and_never_tie() {
    let snapshot = cluster(["c", "b", "a"].map(|name| node(name, "H100-80GB", 1)));
    let ranking = rank(
        &snapshot,
        &request(&[("1g.10gb", 1)]),
        ["c", "b", "a"],
        &tables(&snapshot),
    )
    .unwrap();
    let order: Vec<_> = ranking
        .within(0)
        .iter()
        .map(|candidate| candidate.node.name.as_str())
        .collect();
    assert_eq!(order, ["a", "b", "c"]);
}

/// A GPU in any legal layout, its slices used in any way.
fn any_gpu() -> impl Strategy<Value = Vec<(Place, bool)>> {
    let layouts = enumerate(Board::named("H100-80GB").unwrap(), |_| true);
    (0..layouts.len(), proptest::collection::vec(any::<bool>(), 8)).prop_map(move |(at, idle)| {
        layouts[at]
            .slices()
            .iter()
            .map(|slice| slice.place)
            .zip(idle)
            .collect()
    })
}

fn any_node() -> impl Strategy<Value = Node> {
    proptest::collection::vec(any_gpu(), 1..4).prop_map(|gpus| {
        let mut node = node("a", "H100-80GB", u32::try_from(gpus.len()).unwrap());
        for (gpu, slices) in node.gpus.iter_mut().zip(gpus) {
            for (place, idle) in slices {
                let used = if idle { Use::Idle } else { Use::Allocated };
                gpu.put(Slice { place, used }, (!idle).then(|| owner("x")));
            }
        }
        node
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn one_slice_is_placed_exactly_when_brute_force_finds_a_place_and_at_the_least_cost(node in any_node(), row in 0..7_usize) {
        let board = Board::named("H100-80GB").unwrap();
        let profile = board.profiles[row].profile;
        let snapshot = cluster([node.clone()]);
        let tables = tables(&snapshot);
        let one = request(&[(&profile.to_string(), 1)]);
        let fits = |gpu: &Gpu| gpu.layout().busy().free_places(board, profile);
        let any = node.gpus.iter().any(|gpu| !fits(gpu).is_empty());
        let chosen = on_node(&node, &one, &tables);
        prop_assert_eq!(chosen.is_some(), any);
        prop_assert_eq!(rank(&snapshot, &one, ["a"], &tables).is_ok(), any);
        let Some(chosen) = chosen else { return Ok(()) };
        prop_assert_eq!(check(&snapshot, "a", &one, &chosen.placements), Ok(()));
        if profile.media == crate::mig::profile::Media::Plain {
            let table = tables.of(node.gpus[0].board.as_ref().unwrap()).unwrap();
            let costs = node.gpus.iter().flat_map(|gpu| {
                fits(gpu).into_iter().map(|place| table.cost(gpu.busy_mask(), place.window(board).unwrap()))
            });
            prop_assert_eq!(Some(chosen.rank.cost), costs.min());
        }
        // and what is assumed can be taken back bit for bit
        let mut assumed = snapshot.clone();
        let undo = assumed.assume("a", &chosen.placements, &owner("new")).unwrap();
        prop_assert!(check(&assumed, "a", &one, &chosen.placements).is_err());
        undo.undo(&mut assumed);
        prop_assert_eq!(assumed, snapshot);
    }

    #[test]
    fn check_refuses_every_mutated_placement(node in any_node(), start in 0..16_u8, other in 0..7_usize) {
        let board = Board::named("H100-80GB").unwrap();
        let snapshot = cluster([node.clone()]);
        let one = request(&[("1g.10gb", 1)]);
        let Some(chosen) = on_node(&node, &one, &tables(&snapshot)) else { return Ok(()) };
        let mut device = chosen.placements.places()[0].clone();
        device.place.start = start;
        let moved = Placements([("c0".to_owned(), vec![device.clone()])].into());
        let gpu = node.gpu(&device.gpu).unwrap();
        let legal = gpu.layout().busy().fits(board, device.place);
        prop_assert_eq!(check(&snapshot, "a", &one, &moved).is_ok(), legal);
        // another profile, another container, twice the amount, another node
        let profile = board.profiles[other].profile;
        if profile.to_string() != "1g.10gb" {
            let swapped = DeviceId::new(device.gpu.clone(), Place::new(profile, 0));
            let swapped = Placements([("c0".to_owned(), vec![swapped])].into());
            let is_amount = matches!(check(&snapshot, "a", &one, &swapped), Err(Fault::Amount { .. }));
            prop_assert!(is_amount);
        }
        let renamed = Placements([("c9".to_owned(), chosen.placements.0["c0"].clone())].into());
        prop_assert!(check(&snapshot, "a", &one, &renamed).is_err());
        let doubled = Placements([("c0".to_owned(), [&chosen.placements.0["c0"][..], &chosen.placements.0["c0"][..]].concat())].into());
        prop_assert!(check(&snapshot, "a", &one, &doubled).is_err());
        prop_assert!(check(&snapshot, "elsewhere", &one, &chosen.placements).is_err());
    }
}
