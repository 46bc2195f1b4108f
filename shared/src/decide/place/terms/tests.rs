//! The terms of whole nodes: by hand, against brute force, and what must hold whatever the cluster.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::decide::place::rank;
use crate::decide::score::{Demand, Stock};
use crate::decide::testing::{asks, cluster, node, owner};
use crate::mig::{Board, Slice, Use};
use crate::policy::Policy;
use crate::snapshot::{CpuMemory, Request, Snapshot};

const PROFILES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];

fn cores(cpu: u64) -> CpuMemory {
    CpuMemory {
        cpu_milli: cpu * 1_000,
        memory_mib: 1,
    }
}

/// A request of so many whole GPUs (`None`) or slices with so many cores.
fn with_cpu(profile: Option<&str>, count: u32, cpu: u64) -> Request {
    Request {
        besides: cores(cpu),
        ..asks(profile.map(|name| name.parse().unwrap()), count)
    }
}

/// Demand in which these requests came, and the tables for a snapshot under it.
fn tables(snapshot: &Snapshot, came: &[Request]) -> Tables {
    tables_with(snapshot, came, &Policy::default())
}

fn tables_with(snapshot: &Snapshot, came: &[Request], policy: &Policy) -> Tables {
    let mut demand = Demand::default();
    came.iter()
        .for_each(|request| demand.arrive(request, 0, 0.0, 60.0));
    let boards: Vec<Arc<Board>> = snapshot.gpus().filter_map(|(_, gpu)| gpu.board.clone()).collect();
    Tables::of_pool(&boards, &demand, &Stock::of(snapshot), policy)
}

fn cost(node: &Node, request: &Request, tables: &Tables) -> Cost {
    crate::decide::place::on_node(node, request, tables)
        .unwrap()
        .rank
        .cost
}

fn best(snapshot: &Snapshot, request: &Request, tables: &Tables) -> String {
    let ranking = rank(snapshot, request, snapshot.nodes.keys(), tables).unwrap();
    ranking.best().unwrap().node.name.clone()
}

fn with_free(node: Node, cpu: u64) -> Node {
    Node {
        free: Some(cores(cpu)),
        ..node
    }
}

#[test]
fn a_whole_gpu_goes_where_no_other_is_left_without_cpu() {
    let came = [with_cpu(None, 1, 8)];
    let snapshot = cluster([
        with_free(node("a", "none", 2), 12),
        with_free(node("b", "none", 2), 64),
    ]);
    assert_eq!(best(&snapshot, &came[0], &tables(&snapshot, &came)), "b");
    // without that it is the first by name
    let snapshot = cluster([node("a", "none", 2), node("b", "none", 2)]);
    assert_eq!(best(&snapshot, &came[0], &tables(&snapshot, &came)), "a");
}

#[test]
fn whole_gpus_are_kept_together_for_those_who_need_several() {
    let came = [with_cpu(None, 1, 0), with_cpu(None, 2, 0)];
    let mut used = node("b", "none", 2);
    used.gpus[0].whole = Some(owner("x"));
    let snapshot = cluster([node("a", "none", 2), used]);
    let tables = tables(&snapshot, &came);
    assert_eq!(best(&snapshot, &came[0], &tables), "b");
    assert_eq!(best(&snapshot, &came[1], &tables), "a");
}

#[test]
fn a_model_that_others_cannot_do_without_is_spared() {
    let of_model = |name: &str, model: &str| Node {
        model: Some(model.into()),
        ..node(name, "none", 1)
    };
    let snapshot = cluster([of_model("a", "H200"), of_model("b", "T4")]);
    let stock = Stock::of(&snapshot);
    let mut demand = Demand::default();
    demand.arrive(&with_cpu(None, 1, 0), 1 << stock.model(Some("H200")), 0.0, 60.0);
    let tables = Tables::of_pool([], &demand, &stock, &Policy::default());
    assert_eq!(best(&snapshot, &with_cpu(None, 1, 0), &tables), "b");
}

#[test]
fn slices_pay_for_those_that_the_cpu_of_the_node_serves_no_more() {
    // a core a slice is usual: 2g.20gb with 2 cores
    let came = [with_cpu(Some("2g.20gb"), 1, 2)];
    let (rich, poor) = (
        with_free(node("a", "H100-80GB", 1), 64),
        with_free(node("b", "H100-80GB", 1), 8),
    );
    let tables = tables(&cluster([rich.clone()]), &came);
    assert_eq!(tables.cpu_of_a_slice(), Some(1_000));
    let extra = |node: &Node, cpu| {
        let needs = Needs::of(&with_cpu(Some("2g.20gb"), 1, cpu));
        stranded(node, &needs, &tables)
    };
    // 8 slices and 8 cores: 5 cores for 2 slices leave 3 for 6, 2 leave as many as needed
    assert_eq!(
        (extra(&poor, 5), extra(&poor, 2), extra(&poor, 1)),
        (3 * SLICE, 0, 0)
    );
    assert_eq!((extra(&rich, 5), extra(&rich, 2), extra(&rich, 1)), (0, 0, 0));
    // 8 slices and 4 cores: 4 slices are lost already, and a pod that takes 2 of them with one core mends one
    let short = with_free(node("c", "H100-80GB", 1), 4);
    assert_eq!((extra(&short, 1), extra(&short, 4)), (-SLICE, 2 * SLICE));
    assert_eq!(extra(&node("d", "H100-80GB", 1), 9), 0, "unknown");
}

#[test]
fn the_first_in_a_rack_pays_for_breaking_it() {
    let in_rack = |name: &str, rack: &str| Node {
        rack: Some(rack.into()),
        ..node(name, "H100-80GB", 1)
    };
    let mut busy = in_rack("c", "r2");
    busy.gpus[0].put(
        Slice {
            place: "7g.80gb:0".parse().unwrap(),
            used: Use::Allocated,
        },
        Some(owner("x")),
    );
    let snapshot = cluster([in_rack("a", "r1"), in_rack("b", "r2"), busy]);
    let tables = tables(&snapshot, &[]);
    let one = with_cpu(Some("1g.10gb"), 1, 0);
    assert_eq!(best(&snapshot, &one, &tables), "b");
    let [a, b] = ["a", "b"].map(|name| cost(&snapshot.nodes[name], &one, &tables));
    assert_eq!(a - b, FREE_RACK_COST);
}

#[test]
fn requests_that_hardly_differ_in_cpu_are_one_kind() {
    let of = |cpu_milli| {
        let besides = CpuMemory {
            cpu_milli,
            memory_mib: cpu_milli,
        };
        Needs::of(&Request {
            besides,
            ..asks(None, 1)
        })
    };
    assert_eq!(of(3_001), of(4_000));
    assert_ne!(of(4_000), of(4_001));
    assert_eq!(of(0).cpu_milli, 0);
}

/// A node of any kind in any state.
fn any_node() -> impl Strategy<Value = Node> {
    let sliced = any::<bool>();
    let known = (
        prop::option::of(0..80_u64),
        prop::option::of(0..3_u8),
        prop::option::of(0..=1_000_u16),
    );
    (sliced, 1..4_u32, any::<[u8; 4]>(), known).prop_map(|(sliced, gpus, used, (cpu, rack, outlook))| {
        let mut node = node("n", if sliced { "H100-80GB" } else { "none" }, gpus);
        for (gpu, used) in node.gpus.iter_mut().zip(used) {
            if !sliced {
                gpu.whole = (used % 2 == 0).then(|| owner("x"));
                continue;
            }
            // single slices anywhere: every mask of the first seven can be
            for start in (0..7).filter(|start| used >> start & 1 == 1) {
                let place = format!("1g.10gb:{start}").parse().unwrap();
                gpu.put(
                    Slice {
                        place,
                        used: Use::Allocated,
                    },
                    Some(owner("x")),
                );
            }
        }
        Node {
            free: cpu.map(cores),
            rack: rack.map(|rack| format!("r{rack}").as_str().into()),
            model: Some(if gpus == 1 { "T4" } else { "A10" }.into()),
            outlook: outlook.map(Outlook::of_milli),
            ..node
        }
    })
}

fn any_cluster() -> impl Strategy<Value = Snapshot> {
    prop::collection::vec(any_node(), 1..6).prop_map(|nodes| {
        cluster(nodes.into_iter().enumerate().map(|(at, node)| Node {
            name: format!("n{at}"),
            ..node
        }))
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let profile = prop::option::of(0..PROFILES.len());
    (profile, 1..3_u32, 0..24_u64)
        .prop_map(|(profile, count, cpu)| with_cpu(profile.map(|at| PROFILES[at]), count, cpu))
}

fn any_demand() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(any_request(), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_order_is_total_and_the_same_however_nodes_are_listed(
        snapshot in any_cluster(), request in any_request(), came in any_demand(), turn in 0..6_usize,
    ) {
        let tables = tables(&snapshot, &came);
        let mut names: Vec<&str> = snapshot.nodes.keys().map(|name| &**name).collect();
        let order = |names: &[&str]| -> Vec<(super::super::Rank, String)> {
            let ranking = rank(&snapshot, &request, names, &tables);
            let all = ranking.map(|ranking| ranking.within(Cost::MAX)).unwrap_or_default();
            all.iter().map(|near| (near.rank, near.node.name.clone())).collect()
        };
        let one = order(&names);
        prop_assert!(one.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", one);
        let shift = turn % names.len();
        names.rotate_left(shift);
        prop_assert_eq!(&order(&names), &one);
        names.reverse();
        prop_assert_eq!(&order(&names), &one);
    }

    #[test]
    fn whole_gpus_go_where_packing_every_node_by_itself_says(
        snapshot in any_cluster(), count in 1..3_u32, cpu in 0..24_u64, came in any_demand(),
    ) {
        let request = with_cpu(None, count, cpu);
        // racks and forecasts are other terms
        let bare = |node: &Node| Node { rack: None, outlook: None, ..node.clone() };
        let snapshot = cluster(snapshot.nodes.values().map(|node| bare(node)));
        let tables = tables(&snapshot, &came);
        let ask = Ask { cpu_milli: cpu * 1_000, memory_mib: 0, gpus: count, share_milli: WHOLE, models: 0 };
        let alone = |node: &Node| {
            let free = |gpu: &Gpu| if gpu.board.is_none() && gpu.whole.is_none() { WHOLE } else { 0 };
            let room = Room {
                cpu_milli: node.free.map_or(u64::MAX / 2, |free| free.cpu_milli.max(ask.cpu_milli)),
                memory_mib: 0,
                model: tables.model(node.model.as_deref()),
                free_milli: node.gpus.iter().map(free).collect(),
            };
            // every way there is, not the first that is as good as any
            let fragment = tables.workload().fragment(&room);
            let (cost, _) = tables.workload().place(&room, fragment, &ask, &Weights::default())?;
            Some((cost, node.name.clone()))
        };
        let by_hand = snapshot.nodes.values().filter_map(|node| alone(node)).min().map(|(_, name)| name);
        let ranked = rank(&snapshot, &request, snapshot.nodes.keys(), &tables).ok();
        prop_assert_eq!(ranked.map(|ranking| ranking.best().unwrap().node.name.clone()), by_hand);
    }

    /// A pod that takes more CPU for a slice than is usual is never dearer where more is free; one that takes less
    /// is never cheaper there: it is the one for nodes that are short of it.
    #[test]
    fn more_free_cpu_draws_the_pods_that_need_it_and_no_others(
        node in any_node(), profile in 0..PROFILES.len(), cpu in 0..24_u64, came in any_demand(),
        less in 0..80_u64, more in 0..80_u64,
    ) {
        let tables = tables(&cluster([node.clone()]), &came);
        let needs = Needs::of(&with_cpu(Some(PROFILES[profile]), 1, cpu));
        let (Some(usual), Some(slices)) = (tables.cpu_of_a_slice(), size(&node, PROFILES[profile].parse().unwrap())) else {
            return Ok(());
        };
        let on = |cpu| stranded(&with_free(node.clone(), cpu), &needs, &tables);
        let (less, more) = (less.min(more).max(cpu), less.max(more).max(cpu));
        // a millionth of a slice is lost in rounding
        if cpu * 1_000 >= usual * slices.unsigned_abs() {
            prop_assert!(on(more) <= on(less) + 1, "{} {}", on(more), on(less));
        } else {
            prop_assert!(on(more) >= on(less) - 1, "{} {}", on(more), on(less));
        }
    }

    #[test]
    fn a_busier_outlook_never_makes_a_node_cheaper_and_weighs_no_more_than_its_share(
        node in any_node(), request in any_request(), came in any_demand(),
        outlooks in any::<[u16; 2]>(), percent in 0..=40_u32,
    ) {
        let policy = Policy { forecast_weight_percent: percent, ..Policy::default() };
        let tables = tables_with(&cluster([node.clone()]), &came, &policy);
        let with = |outlook: Option<u16>| {
            let node = Node { outlook: outlook.map(Outlook::of_milli), ..node.clone() };
            crate::decide::place::on_node(&node, &request, &tables).map(|chosen| chosen.rank.cost)
        };
        let Some(without) = with(None) else { return Ok(()) };
        let (calm, busy) = (outlooks[0].min(outlooks[1]), outlooks[0].max(outlooks[1]));
        prop_assert_eq!(with(Some(0)), Some(without));
        prop_assert!(with(Some(calm)) <= with(Some(busy)));
        let from_forecast = with(Some(busy)).unwrap() - without;
        let span: Cost = Needs::of(&request).items.iter().map(|item| span(&node, *item, &tables)).sum();
        prop_assert!(from_forecast >= 0 && from_forecast * 100 <= (from_forecast + span) * Cost::from(percent));
    }

    /// The span is what costs differ by: none on the board is further off.
    #[test]
    fn costs_of_a_slice_lie_within_its_span(nodes in prop::collection::vec(any_node(), 2), profile in 0..PROFILES.len()) {
        let bare = |node: &Node| Node { rack: None, outlook: None, free: None, ..node.clone() };
        let snapshot = cluster([node("x", "H100-80GB", 1)]);
        let tables = tables(&snapshot, &[]);
        let request = with_cpu(Some(PROFILES[profile]), 1, 0);
        let costs: Vec<Cost> = nodes.iter()
            .filter_map(|node| crate::decide::place::on_node(&bare(node), &request, &tables))
            .map(|chosen| chosen.rank.cost)
            .collect();
        let span = span(&snapshot.nodes["x"], Some(PROFILES[profile].parse().unwrap()), &tables);
        prop_assert!(costs.iter().all(|one| costs.iter().all(|other| (one - other).abs() <= span)));
    }

    #[test]
    fn where_cpu_is_not_known_it_decides_nothing(
        snapshot in any_cluster(), request in any_request(), came in any_demand(), cpu in 0..200_u64,
    ) {
        let unknown = |node: &Node| Node { free: None, ..node.clone() };
        let snapshot = cluster(snapshot.nodes.values().map(|node| unknown(node)));
        let order = |request: &Request, came: &[Request]| -> Vec<(Cost, String)> {
            let ranking = rank(&snapshot, request, snapshot.nodes.keys(), &tables(&snapshot, came));
            let all = ranking.map(|ranking| ranking.within(Cost::MAX)).unwrap_or_default();
            all.iter().map(|near| (near.rank.cost, near.node.name.clone())).collect()
        };
        let other = Request { besides: cores(cpu), ..request.clone() };
        prop_assert_eq!(order(&request, &came), order(&other, &came));
    }
}
