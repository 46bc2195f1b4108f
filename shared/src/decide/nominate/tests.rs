//! Plans of many pods, held against placing them one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::decide::check::check;
use crate::decide::place::rank;
use crate::decide::testing::{asks, cluster, node, owner, tables};

const PROFILES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];

fn pending(at: usize, profile: &str, priority: i32, turn: u64) -> Pending {
    Pending {
        owner: owner(&format!("p{at:03}")),
        request: asks(profile.parse().ok(), 1),
        priority,
        turn,
        alike: 0,
        held: None,
    }
}

/// Planning as kube-scheduler would place: in order, each at its best.
fn one_by_one(snapshot: &Snapshot, pods: &[Pending], tables: &Tables) -> BTreeSet<usize> {
    let mut snapshot = snapshot.clone();
    let mut placed = BTreeSet::new();
    for pod in order(pods) {
        let names: Vec<Arc<str>> = snapshot.nodes.keys().cloned().collect();
        let Ok(ranking) = rank(&snapshot, &pods[pod].request, &names, tables) else {
            continue;
        };
        let node = ranking.best().unwrap().node.name.clone();
        let chosen = on_node(&snapshot.nodes[node.as_str()], &pods[pod].request, tables).unwrap();
        let _ = snapshot
            .assume(&node, &chosen.placements, &pods[pod].owner)
            .unwrap();
        placed.insert(pod);
    }
    placed
}

fn allocated(pods: &[Pending], placed: &BTreeSet<usize>) -> u64 {
    placed.iter().map(|pod| memory(&pods[*pod])).sum()
}

fn pods() -> impl Strategy<Value = Vec<Pending>> {
    prop::collection::vec((0..PROFILES.len(), 0..3_i32, 0..4_u64), 1..24).prop_map(|pods| {
        let pod = |(at, (profile, priority, turn)): (usize, (usize, i32, u64))| {
            pending(at, PROFILES[profile], priority, turn)
        };
        pods.into_iter().enumerate().map(pod).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_plan_is_legal_gives_nothing_twice_and_is_never_worse_than_one_by_one(pods in pods(), filled in 0..12_usize) {
        let mut snapshot = cluster(["a", "b"].map(|name| node(name, "H100-80GB", 2)));
        let costs = Arc::new(tables(&snapshot));
        for at in 0..filled {
            let request = asks(PROFILES[at % 3].parse().ok(), 1);
            let name = if at % 2 == 0 { "a" } else { "b" };
            let chosen = on_node(&snapshot.nodes[name], &request, &costs).unwrap();
            let _ = snapshot.assume(name, &chosen.placements, &owner(&format!("old-{at}"))).unwrap();
        }
        let mut planner = Planner::default();
        planner.follow(&snapshot);
        let plan = planner.plan(&pods, usize::MAX, &costs, |_, _| true).planned;
        prop_assert_eq!(&planner.snapshot, &snapshot, "a plan leaves the snapshot bit for bit");
        let alone = one_by_one(&snapshot, &pods, &costs);
        let placed: BTreeSet<usize> = plan.iter().map(|planned| planned.pod).collect();
        prop_assert!(placed.is_superset(&alone), "{:?} lacks some of {:?}", placed, alone);
        prop_assert!(allocated(&pods, &placed) >= allocated(&pods, &alone));
        // judged independently, all together, in any order of the plan
        let mut after = snapshot.clone();
        for planned in &plan {
            let seats = &planned.seats;
            prop_assert!(check(&after, &seats.node, &pods[planned.pod].request, &seats.placements).is_ok());
            let _ = after.assume(&seats.node, &seats.placements, &pods[planned.pod].owner).unwrap();
        }
        let turns: Vec<usize> = order(&pods).into_iter().filter(|pod| placed.contains(pod)).collect();
        prop_assert_eq!(turns, plan.iter().map(|planned| planned.pod).collect::<Vec<_>>());
        // and the same again: a plan is a function of what it is given
        prop_assert_eq!(planner.plan(&pods, usize::MAX, &costs, |_, _| true).planned, plan);
    }

    #[test]
    fn a_pod_keeps_the_place_held_for_it_unless_one_before_it_needs_the_room(pods in pods(), late in pods()) {
        let snapshot = cluster([node("a", "H100-80GB", 2)]);
        let costs = Arc::new(tables(&snapshot));
        let mut planner = Planner::default();
        planner.follow(&snapshot);
        let first = planner.plan(&pods, usize::MAX, &costs, |_, _| true).planned;
        let mut held = snapshot.clone();
        let mut all = pods.clone();
        for planned in first {
            let seats = &planned.seats;
            let _ = held.assume(&seats.node, &seats.placements, &pods[planned.pod].owner).unwrap();
            all[planned.pod].held = Some(planned.seats);
        }
        planner.follow(&held);
        let again = planner.plan(&all, usize::MAX, &costs, |_, _| true).planned;
        let seats: BTreeMap<usize, Seats> = again.iter().map(|planned| (planned.pod, planned.seats.clone())).collect();
        for (pod, known) in all.iter().enumerate() {
            prop_assert_eq!(known.held.as_ref(), seats.get(&pod), "nothing new, nothing moves");
        }
        prop_assert_eq!(&planner.snapshot, &held);
        // newcomers of a higher priority: what they are given is legal beside what is kept
        let mut late = late;
        for pod in &mut late {
            pod.priority += 10;
            pod.owner.uid.push_str("-late");
        }
        all.extend(late);
        let plan = planner.plan(&all, usize::MAX, &costs, |_, _| true).planned;
        let mut after = snapshot.clone();
        for planned in &plan {
            let seats = &planned.seats;
            prop_assert!(after.assume(&seats.node, &seats.placements, &all[planned.pod].owner).is_ok());
        }
    }
}

#[test]
fn a_large_pod_that_came_late_is_not_shut_out_by_small_ones_that_can_go_elsewhere() {
    // one GPU is half full: in order of age the two 3g take the empty GPU from the 7g
    let mut snapshot = cluster([node("a", "H100-80GB", 2)]);
    let costs = Arc::new(tables(&snapshot));
    let gpu = snapshot.nodes["a"].gpus[0].uuid.clone();
    let half = format!("main={gpu}:4g.40gb:0").parse().unwrap();
    let _ = snapshot.assume("a", &half, &owner("old")).unwrap();
    let pods = [pending(0, "3g.40gb", 0, 0), pending(1, "7g.80gb", 0, 1)];
    let mut planner = Planner::default();
    planner.follow(&snapshot);
    assert_eq!(
        planner.plan(&pods, usize::MAX, &costs, |_, _| true).planned.len(),
        2
    );
}

#[test]
fn nobody_gives_up_a_place_so_that_a_larger_pod_fits() {
    let snapshot = cluster([node("a", "H100-80GB", 1)]);
    let costs = Arc::new(tables(&snapshot));
    let pods = [pending(0, "1g.10gb", 0, 0), pending(1, "7g.80gb", 0, 1)];
    let mut planner = Planner::default();
    planner.follow(&snapshot);
    let placed: Vec<usize> = planner
        .plan(&pods, usize::MAX, &costs, |_, _| true)
        .planned
        .iter()
        .map(|p| p.pod)
        .collect();
    assert_eq!(placed, [0]);
    let urgent = [pending(0, "1g.10gb", 0, 0), pending(1, "7g.80gb", 1, 1)];
    let placed: Vec<usize> = planner
        .plan(&urgent, usize::MAX, &costs, |_, _| true)
        .planned
        .iter()
        .map(|p| p.pod)
        .collect();
    assert_eq!(placed, [1]);
}

#[test]
fn a_plan_for_the_first_few_is_for_them_alone_and_those_that_fit_nowhere_do_not_count() {
    let snapshot = cluster([node("a", "H100-80GB", 2)]);
    let costs = Arc::new(tables(&snapshot));
    // two whole GPUs are all there is; the third finds none, whoever comes after it
    let mut pods: Vec<Pending> = (0..3).map(|at| pending(at, "7g.80gb", 0, at as u64)).collect();
    pods.extend((3..6).map(|at| pending(at, "1g.10gb", 0, at as u64)));
    let mut planner = Planner::default();
    planner.follow(&snapshot);
    let mut first = |pods: &[Pending], most| -> Vec<usize> {
        let plan = planner.plan(pods, most, &costs, |_, _| true).planned;
        plan.iter().map(|planned| planned.pod).collect()
    };
    assert_eq!(first(&pods, 1), [0]);
    assert_eq!(first(&pods, 2), [0, 1]);
    assert_eq!(first(&pods, usize::MAX), [0, 1]);
    // the second fits nowhere, and the third is planned all the same
    pods.remove(1);
    pods[1].request = asks("4g.40gb".parse().ok(), 5);
    assert_eq!(first(&pods, 2), [0, 2]);
}

#[test]
fn a_pod_goes_only_where_it_may() {
    let snapshot = cluster(["a", "b"].map(|name| node(name, "H100-80GB", 1)));
    let costs = Arc::new(tables(&snapshot));
    let mut pods = [pending(0, "1g.10gb", 0, 0), pending(1, "1g.10gb", 0, 0)];
    // other rules, another number
    pods[1].alike = 1;
    let mut planner = Planner::default();
    planner.follow(&snapshot);
    let plan = planner
        .plan(&pods, usize::MAX, &costs, |pod, node| {
            pod == 1 && node.name == "b"
        })
        .planned;
    assert_eq!(plan.len(), 1);
    assert_eq!((plan[0].pod, &*plan[0].seats.node), (1, "b"));
}
