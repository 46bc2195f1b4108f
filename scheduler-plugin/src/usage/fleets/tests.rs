//! What becomes of what the agents told, with every clock handed in.

use serde_json::{Value, json};
use serve::watch::Change;
use shared::policy::LOAD_MINUTES;

use super::*;
use crate::index::books::Books;
use crate::index::testing::{empty, gpu_node};
use crate::watch::gpu_pools::PoolPart;
use crate::watch::nodes::NodePart;

/// Seconds since 1970, at the beginning of a bin; half a minute later it is taken in.
const NOW: i64 = 1_790_000_100 + 30;

/// A load that swings around `middle` in six hours, told for the last day until `silent` minutes ago.
fn wave(middle: f32, silent: i64) -> Option<Arc<Minutes>> {
    let until = NOW.div_euclid(60) - silent;
    let mut minutes = Minutes::default();
    for minute in until - LOAD_MINUTES as i64..until {
        let angle = (minute % 360) as f32 * std::f32::consts::TAU / 360.0;
        minutes.put(minute, middle + 0.2 * angle.sin());
    }
    Some(Arc::new(minutes))
}

fn pool(nodes: &[(&str, Option<Arc<Minutes>>)]) -> Members {
    Members {
        nodes: nodes
            .iter()
            .map(|(name, minutes)| (Arc::from(*name), minutes.clone()))
            .collect(),
        ..Members::default()
    }
}

fn pools(all: Vec<(&str, Members)>) -> BTreeMap<String, Members> {
    all.into_iter()
        .map(|(name, members)| (name.to_owned(), members))
        .collect()
}

#[test]
fn each_pool_is_forecast_from_its_own_nodes_and_neutral_by_them() {
    let all = pools(vec![
        (
            "busy",
            pool(&[
                ("b1", wave(0.7, 0)),
                ("b2", wave(0.75, 0)),
                ("b3", None),
                ("b4", wave(0.2, 4)),
            ]),
        ),
        ("calm", pool(&[("c1", wave(0.25, 0)), ("c2", None)])),
        ("silent", pool(&[("s1", None)])),
        ("empty", pool(&[])),
    ]);
    let expected = Fleets::default().turn(&all, NOW);
    let of = |node: &str| expected.outlooks[node];
    assert!(of("c1") < of("b1") && of("b1") < of("b2"), "{expected:?}");
    // one that never told anything, and one that has fallen silent
    assert_eq!((of("b3"), of("b4"), of("c2")), (of("b2"), of("b2"), of("c1")));
    assert_eq!(expected.outlooks.len(), 6);
    let counts = |pool: &str| expected.reports[pool].map(|report| (report.nodes, report.acting));
    assert_eq!(
        ["busy", "calm", "silent", "empty"].map(counts),
        [Some((2, 2)), Some((1, 1)), None, None]
    );
}

#[test]
fn nodes_that_all_fell_silent_are_expected_nothing_of_and_that_is_told() {
    let mut fleets = Fleets::default();
    let all = pools(vec![("p", pool(&[("a", wave(0.7, 0)), ("b", wave(0.3, 0))]))]);
    assert_eq!(fleets.turn(&all, NOW).outlooks.len(), 2);
    let later = fleets.turn(&all, NOW + 4 * 60);
    assert_eq!(later.outlooks, BTreeMap::new());
    let report = later.reports["p"].unwrap();
    assert_eq!((report.nodes, report.acting), (0, 0));
    // and after a day as if they had never told anything
    let day = LOAD_MINUTES as i64 * 60;
    assert_eq!(fleets.turn(&all, NOW + day + 60).reports["p"], None);
    assert!(fleets.pools.is_empty());
}

#[test]
fn a_pool_waits_for_nodes_that_are_called_for_the_first_time_but_not_forever() {
    let gathering = || Members {
        gathering: true,
        ..pool(&[("a", wave(0.5, -5)), ("b", None)])
    };
    let all = pools(vec![("p", gathering())]);
    let mut fleets = Fleets::default();
    assert_eq!(fleets.turn(&all, NOW), Expected::default());
    let limit = NOW + LOAD_STALE_MINUTES * 60;
    assert_eq!(fleets.turn(&all, limit - 1), Expected::default());
    assert_eq!(fleets.turn(&all, limit).outlooks.len(), 2);
    // once it is forecast, a node that comes later is not waited for
    assert_eq!(fleets.turn(&all, limit + 1).outlooks.len(), 2);
    // nor is a pool that others have settled in
    let settled = pools(vec![("p", pool(&[("a", wave(0.5, 0)), ("b", None)]))]);
    assert_eq!(Fleets::default().turn(&settled, NOW).outlooks.len(), 2);
}

#[test]
fn forecasts_begin_anew_with_other_numbers_and_go_with_their_pool() {
    let with = |change: fn(&mut Policy)| {
        let mut members = pool(&[("a", wave(0.5, 0))]);
        change(&mut members.policy);
        pools(vec![("p", members)])
    };
    let mut fleets = Fleets::default();
    fleets.turn(&with(|_| {}), NOW);
    let judged = |fleets: &mut Fleets, all: &_| fleets.turn(all, NOW).reports["p"].unwrap().standing.judged;
    let before = judged(&mut fleets, &with(|_| {}));
    // numbers that have nothing to do with it
    let same = with(|policy| policy.reservation_seconds = 61);
    assert_eq!(judged(&mut fleets, &same), before);
    // half-hour bins: half as many were judged
    let other = with(|policy| policy.forecast_horizon_minutes = 30);
    assert!(judged(&mut fleets, &other) < before * 2 / 3);
    fleets.turn(&BTreeMap::new(), NOW);
    assert!(fleets.pools.is_empty());
}

fn labelled(index: &Index, name: &str, pool: &str, endpoint: bool) {
    index.nodes(Change::Apply(NodePart {
        name: name.to_owned(),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..NodePart::default()
    }));
    let mut part = gpu_node(name, 1);
    part.endpoint = endpoint.then(|| {
        let told = shared::api::gpu_node::Endpoint {
            address: "10.0.0.7:9404".to_owned(),
            fingerprint: format!("sha256:{}", "ab".repeat(32)),
        };
        crate::watch::endpoint::Endpoint::of(&told)
    });
    index.gpu_nodes(Change::Apply(part));
}

#[test]
fn nodes_are_grouped_by_their_pool_and_those_of_none_are_left_out() {
    let (index, _) = empty();
    for (name, pool, endpoint) in [
        ("a", "one", true),
        ("b", "one", false),
        ("c", "two", true),
        ("d", "none", true),
    ] {
        labelled(&index, name, pool, endpoint);
    }
    let object = |name: &str, selector: Value| {
        let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": name},
            "spec": {"nodeSelector": selector, "policy": {"forecastWindowHours": 12}}});
        PoolPart::of(serde_json::from_value(object).unwrap())
    };
    for pool in ["one", "two", "three"] {
        index.gpu_pools(Change::Apply(object(pool, json!({"pool": pool}))));
    }
    let mut settled = Load::default();
    (settled.minutes, settled.settled) = (wave(0.5, 0).unwrap(), true);
    let mut half_told = settled.clone();
    half_told.settled = false;
    let loads = BTreeMap::from([
        (Arc::from("a"), settled.clone()),
        (Arc::from("c"), half_told),
        (Arc::from("d"), settled),
    ]);
    let groups = |followed| group(&index, &loads, followed);
    let found = groups(true);
    let told = |pool: &str| -> Vec<(String, bool)> {
        let nodes = found[pool].nodes.iter();
        nodes
            .map(|(name, minutes)| (name.to_string(), minutes.is_some()))
            .collect()
    };
    assert_eq!(told("one"), [("a".to_owned(), true), ("b".to_owned(), false)]);
    assert_eq!(told("two"), [("c".to_owned(), false)]);
    assert_eq!(told("three"), []);
    assert_eq!(found["one"].policy.forecast_window_hours, 12);
    // `c` has not told all that it remembers; `b` tells none
    assert_eq!((found["one"].gathering, found["two"].gathering), (false, true));
    assert!(!groups(false)["two"].gathering);
}

#[test]
fn where_nobody_tells_load_nobody_is_looked_at_and_pools_are_known_all_the_same() {
    let (index, _) = empty();
    labelled(&index, "a", "one", false);
    let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "one"}, "spec": {}});
    index.gpu_pools(Change::Apply(PoolPart::of(
        serde_json::from_value(object).unwrap(),
    )));
    let groups = |index: &Index| group(index, &BTreeMap::new(), true);
    assert_eq!(groups(&index)["one"].nodes, BTreeMap::new());
    labelled(&index, "b", "one", true);
    assert_eq!(groups(&index)["one"].nodes.len(), 2);
}

#[test]
fn what_comes_with_every_pod_is_no_news_of_who_tells_load() {
    let (index, _) = empty();
    let endpoints = || index.read(Books::endpoints);
    labelled(&index, "a", "one", false);
    let first = endpoints();
    index.gpu_nodes(Change::Apply(gpu_node("a", 2)));
    assert_eq!(endpoints(), first);
    labelled(&index, "a", "one", true);
    let told = endpoints();
    assert_ne!(told, first);
    index.gpu_nodes(Change::Delete(gpu_node("a", 2)));
    assert_ne!(endpoints(), told);
}
