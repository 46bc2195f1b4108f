//! Nominations under random histories: by a planner that is late, wrong or dead, kube-scheduler always finds the
//! room that it would find without any.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use serve::watch::Change;
use shared::decide::place::on_node;

use super::super::binding::Step;
use super::super::holding::Earlier;
use super::super::testing::{PROFILES, assert_disjoint, bound_to, empty, part, pod, put_node};
use super::*;
use crate::http::node_names::NodeNames;

const NODES: [&str; 3] = ["a", "b", "c"];

/// Three nodes with so many GPUs.
fn index(gpus: u32) -> (Index, Arc<AtomicU64>) {
    let (index, seconds) = empty();
    NODES.into_iter().for_each(|name| put_node(&index, name, gpus));
    (index, seconds)
}

fn waiting(index: &Index) -> Vec<Waiting> {
    index.waiting(&[shared::names::SCHEDULER.to_owned()])
}

fn names(of: &[&str]) -> NodeNames {
    of.iter().collect()
}

/// The best places on a node as it would be without nominations.
fn room(index: &Index, node: &str, request: &Request) -> Option<Seats> {
    let tables = index.view().tables.clone();
    let built = index.read(|books| books.built(node, Without::Nominations))?;
    let placements = on_node(&built.node, request, &tables)?.placements;
    Some(Seats {
        node: node.into(),
        placements,
    })
}

#[test]
fn whatever_a_planner_nominates_a_pod_that_is_reached_finds_the_room_it_would_find_without() {
    let (mut planned, mut gave_way) = (0, 0);
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let (index, seconds) = index(1);
        let mut waiting: Vec<Value> = Vec::new();
        let mut bound: BTreeMap<String, Seats> = BTreeMap::new();
        for step in 0..150 {
            match random.random_range(0..12) {
                0..=3 => {
                    let new = pod(&format!("p{step}"), PROFILES.choose(&mut random).unwrap());
                    index.pods(Change::Apply(part(&new)));
                    waiting.push(new);
                }
                // a planner: sometimes it sees the truth, sometimes it is late and nominates what was free then
                4..=6 if !waiting.is_empty() => {
                    let known = part(waiting.choose(&mut random).unwrap());
                    let node = NODES.choose(&mut random).unwrap();
                    let request = known.request.clone().unwrap();
                    let seats = if random.random_bool(0.5) {
                        room(&index, node, &request)
                    } else {
                        room(&self::index(1).0, node, &request)
                    };
                    if let Some(seats) = seats {
                        index.nominate(&known.pod, &seats);
                        if random.random_bool(0.5) {
                            index.announce(&known.pod.uid);
                        }
                    }
                }
                7..=9 if !waiting.is_empty() => {
                    let at = random.random_range(0..waiting.len());
                    let known = part(&waiting[at]);
                    let request = known.request.clone().unwrap();
                    // something that only kube-scheduler knows keeps some nodes away
                    let offered: Vec<&str> = NODES.into_iter().filter(|_| random.random_bool(0.8)).collect();
                    let node = match index.begin_filter(&known.pod, &request, &names(&offered)) {
                        Earlier::On(_) => continue,
                        Earlier::Planned(node) => {
                            planned += 1;
                            assert!(offered.contains(&node.as_str()));
                            node
                        }
                        Earlier::Nothing => {
                            let fits = offered.iter().any(|node| room(&index, node, &request).is_some());
                            let before = hints(&index);
                            let held = index.hold_best(&known.pod, &request, &names(&offered));
                            assert_eq!(held.is_some(), fits, "seed {seed} step {step}");
                            gave_way += before - hints(&index);
                            let Some(held) = held else { continue };
                            held.node
                        }
                    };
                    let Ok(Step::Send(sending)) = index.begin_bind(&known.pod, &node) else {
                        panic!("seed {seed} step {step}: {known:?} on {node}")
                    };
                    let placements = sending.placements.clone();
                    sending.bound();
                    let object = bound_to(&waiting.remove(at), &node, &placements);
                    index.pods(Change::Apply(part(&object)));
                    bound.insert(
                        known.pod.name.clone(),
                        Seats {
                            node: node.as_str().into(),
                            placements,
                        },
                    );
                    assert_disjoint(bound.iter().map(|(pod, seats)| (pod, &seats.placements)));
                }
                10 if !bound.is_empty() => {
                    let gone = bound.keys().next().unwrap().clone();
                    bound.remove(&gone);
                    index.pods(Change::Delete(part(&pod(&gone, "1g.10gb"))));
                }
                _ => {
                    seconds.fetch_add(random.random_range(0..40), Ordering::SeqCst);
                    index.expire();
                }
            }
        }
        // the planner died: what it held is free in the end
        seconds.fetch_add(61, Ordering::SeqCst);
        index.expire();
        assert_eq!(hints(&index), 0);
    }
    assert!(
        planned > 20 && gave_way > 20,
        "planned {planned}, gave way {gave_way}"
    );
}

fn hints(index: &Index) -> usize {
    let reservations = index.reservations();
    reservations[&State::Planned] + reservations[&State::Nominated]
}

#[test]
fn a_pod_that_was_reached_first_is_not_nominated_and_one_that_is_bound_neither() {
    let (index, _) = index(1);
    let known = part(&pod("p", "3g.40gb"));
    let request = known.request.clone().unwrap();
    index.pods(Change::Apply(known.clone()));
    let seats = room(&index, "b", &request).unwrap();
    index.hold_best(&known.pod, &request, &names(&["a"])).unwrap();
    assert!(!index.nominate(&known.pod, &seats));
    assert!(waiting(&index).is_empty());
    let stranger = PodRef {
        uid: "other".into(),
        ..known.pod.clone()
    };
    assert!(!index.nominate(&stranger, &seats));
}

#[test]
fn a_node_that_was_not_offered_is_avoided_for_a_while_and_the_pod_rests() {
    let (index, seconds) = index(1);
    let known = part(&pod("p", "3g.40gb"));
    let request = known.request.clone().unwrap();
    index.pods(Change::Apply(known.clone()));
    let seats = room(&index, "b", &request).unwrap();
    assert!(index.nominate(&known.pod, &seats));
    assert!(waiting(&index)[0].may_be_nominated && index.may_go(&known.rules, "b"));
    assert_eq!(
        index.begin_filter(&known.pod, &request, &names(&["a", "c"])),
        Earlier::Nothing
    );
    assert!(!waiting(&index)[0].may_be_nominated && !index.may_go(&known.rules, "b"));
    seconds.fetch_add(NOMINATION_REST_SECONDS, Ordering::SeqCst);
    index.expire();
    assert!(waiting(&index)[0].may_be_nominated && index.may_go(&known.rules, "b"));
}

#[test]
fn a_question_about_one_node_alone_says_nothing_of_the_node_that_is_planned() {
    let (index, _) = index(1);
    let known = part(&pod("p", "3g.40gb"));
    let request = known.request.clone().unwrap();
    index.pods(Change::Apply(known.clone()));
    let seats = room(&index, "b", &request).unwrap();
    assert!(index.nominate(&known.pod, &seats));
    // kube-scheduler follows a nomination that is older than the plan
    assert_eq!(
        index.begin_filter(&known.pod, &request, &names(&["a"])),
        Earlier::Nothing
    );
    let waits = waiting(&index);
    assert!(waits[0].may_be_nominated && index.may_go(&known.rules, "b"));
}

#[test]
fn kube_scheduler_is_held_back_only_while_nominations_are_being_written_right_before_it() {
    let (index, _) = index(1);
    assert_eq!(index.close_to_the_planner(), None);
    let parts: Vec<PodPart> = (0..2)
        .map(|at| part(&pod(&format!("p{at}"), "1g.10gb")))
        .collect();
    for (known, node) in parts.iter().zip(NODES) {
        index.pods(Change::Apply(known.clone()));
        let seats = room(&index, node, known.request.as_ref().unwrap()).unwrap();
        assert!(index.nominate(&known.pod, &seats));
    }
    let longest = Duration::from_micros(3 * HELD_BACK_MICROSECONDS_PER_NODE);
    assert_eq!(
        index.close_to_the_planner(),
        Some(longest),
        "so long for three nodes"
    );
    index.announce("p0");
    assert_eq!(
        index.close_to_the_planner(),
        Some(longest),
        "the other is on its way"
    );
    index.announce("p1");
    assert_eq!(index.close_to_the_planner(), None, "no more are coming");
    index.withdraw("p0");
    index.withdraw("p1");
    assert_eq!(index.close_to_the_planner(), None);
}

#[test]
fn what_waits_for_others_is_not_ours_to_plan() {
    let (index, _) = index(1);
    let gated = |pod: &mut Value| pod["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    let elsewhere = |pod: &mut Value| pod["spec"]["schedulerName"] = json!("default-scheduler");
    let whole = |pod: &mut Value| {
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    };
    let deleting = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T00:00:00Z");
    let changes: [&dyn Fn(&mut Value); 4] = [&gated, &elsewhere, &whole, &deleting];
    for (at, change) in changes.into_iter().enumerate() {
        let mut object = pod(&format!("p{at}"), "1g.10gb");
        change(&mut object);
        index.pods(Change::Apply(part(&object)));
    }
    assert!(waiting(&index).is_empty());
    let mut preempting = pod("preempting", "1g.10gb");
    preempting["status"] = json!({"nominatedNodeName": "a"});
    index.pods(Change::Apply(part(&preempting)));
    let waits = waiting(&index);
    assert_eq!(
        (waits.len(), waits[0].may_be_nominated),
        (1, false),
        "room is left for it, no more"
    );
}
