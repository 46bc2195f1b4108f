//! Which devices a pod should get: those that the scheduler wrote on it, else the best by our own lights. Advice
//! never fails: an error here would fail the pod's admission.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::api::gpu_node::Health;
use shared::decide::place;
use shared::decide::score::{Demand, Tables};
use shared::mig::{Slice, Use};
use shared::names::{self, Asked, DeviceId};
use shared::policy::Policy;
use shared::snapshot::{Gpu, Node, Phase, Request, Want};

use crate::inventory::State;
use crate::pods::Facts;

/// What the kubelet asks for one container.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Resource.
    pub resource: String,
    /// Devices it may choose from, those it must included.
    pub available: BTreeSet<String>,
    /// Devices it has already.
    pub must: BTreeSet<String>,
    /// How many it needs in all.
    pub size: usize,
}

/// The devices that the scheduler wrote on a pod of this node which has not got them yet.
#[must_use]
pub fn as_written(question: &Question, state: &State, pods: &Facts) -> Option<Vec<String>> {
    let fits = |places: &Vec<DeviceId>| {
        let ours = places
            .iter()
            .filter(|id| names::resource(id.place.profile) == question.resource);
        let ids: Vec<String> = ours.map(ToString::to_string).collect();
        let free = |id: &String| {
            question.must.contains(id) || (question.available.contains(id) && !state.held.contains_key(id))
        };
        let all = question.must.iter().all(|id| ids.contains(id));
        (ids.len() == question.size && all && ids.iter().all(free)).then_some(ids)
    };
    pods.by_age()
        .into_iter()
        .find_map(|pod| pod.placements.0.values().find_map(fits))
}

/// The best devices by our own lights: what `decide` chooses on this node, one by one.
#[must_use]
pub fn by_cost(question: &Question, state: &State) -> Vec<String> {
    let mut chosen: Vec<String> = question.must.iter().cloned().collect();
    let Some(Asked::Slice(profile)) = names::parse_resource(&question.resource) else {
        // whole GPUs, or slices by UUID: in the order of the list, which is that of their ids
        return fill(question, chosen);
    };
    let mut node = node(state);
    let boards: Vec<_> = node.gpus.iter().filter_map(|gpu| gpu.board.as_ref()).collect();
    let tables = Tables::new(boards.iter().copied(), &Demand::default(), &Policy::default());
    let want = Want {
        container: String::new(),
        phase: Phase::Main,
        profile: Some(profile),
        count: 1,
    };
    let request = Request {
        wants: vec![want],
        ..Request::default()
    };
    while chosen.len() < question.size {
        let Some(best) = place::on_node(&node, &request, &tables) else {
            break;
        };
        let Some(id) = best.placements.places().first().map(|id| (*id).clone()) else {
            break;
        };
        let name = id.to_string();
        // whatever it is, it is not to be chosen again
        if let Some(gpu) = node.gpus.iter_mut().find(|gpu| gpu.uuid == id.gpu) {
            gpu.put(
                Slice {
                    place: id.place,
                    used: Use::Allocated,
                },
                None,
            );
        }
        if question.available.contains(&name) && !chosen.contains(&name) {
            chosen.push(name);
        }
    }
    fill(question, chosen)
}

/// Any others, so that the answer has the size that was asked for.
fn fill(question: &Question, mut chosen: Vec<String>) -> Vec<String> {
    let rest: Vec<&String> = question
        .available
        .iter()
        .filter(|id| !chosen.contains(id))
        .collect();
    let missing = question.size.saturating_sub(chosen.len());
    chosen.extend(rest.into_iter().take(missing).cloned());
    chosen.truncate(question.size);
    chosen
}

/// This node as `decide` sees nodes.
fn node(state: &State) -> Node {
    let gpus = state.gpus.iter().map(|gpu| {
        let board = gpu.info.board.as_ref().filter(|_| gpu.info.mig).map(Arc::clone);
        let mut seen = Gpu::new(gpu.info.uuid.clone(), gpu.info.index, board);
        seen.withheld = state.closed(gpu).is_some();
        seen.health = if gpu.health == Health::Healthy {
            Health::Healthy
        } else {
            gpu.health
        };
        for slice in state.layout(gpu).slices() {
            seen.put(*slice, None);
        }
        seen
    });
    Node::new(String::new(), gpus.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::time::Instant;

    use super::*;
    use crate::args::Strategy;
    use crate::gpus::Gpus as _;
    use crate::gpus::fake::Fake;
    use crate::inventory::{self, Held, devices};
    use crate::pods::Fact;

    fn state() -> State {
        let gpus = Fake::node("H100-80GB", 2)
            .list()
            .unwrap()
            .into_iter()
            .map(|info| inventory::Gpu {
                info,
                slices: BTreeMap::new(),
                health: Health::Healthy,
                message: String::new(),
            });
        State {
            strategy: Strategy::Dynamic,
            gpus: gpus.collect(),
            ..State::default()
        }
    }

    fn question(state: &State, profile: &str, size: usize) -> Question {
        let resource = format!("nvidia.com/mig-{profile}");
        let devices = devices::resources(state, &BTreeMap::new())
            .remove(&resource)
            .unwrap();
        let available = devices
            .into_iter()
            .filter(|device| device.healthy)
            .map(|device| device.id)
            .collect();
        Question {
            resource,
            available,
            must: BTreeSet::new(),
            size,
        }
    }

    fn id(gpu: u32, place: &str) -> String {
        format!("GPU-{gpu:08}-0000-0000-0000-000000000000:{place}")
    }

    fn written(placement: &str) -> Facts {
        let fact = Fact {
            placements: placement.parse().unwrap(),
            ..Fact::default()
        };
        Facts::fresh([(("n".to_owned(), "p".to_owned()), fact)])
    }

    #[test]
    fn what_the_scheduler_wrote_is_followed_container_by_container() {
        let mut state = state();
        let (first, second) = (id(1, "1g.10gb:0"), id(1, "1g.10gb:3"));
        let pods = written(&format!("a={first};b={second}"));
        let question = question(&state, "1g.10gb", 1);
        assert_eq!(as_written(&question, &state, &pods), Some(vec![first.clone()]));
        state.held.insert(first, Held::new("", 1, Instant::now()));
        assert_eq!(as_written(&question, &state, &pods), Some(vec![second.clone()]));
        state.held.insert(second, Held::new("", 2, Instant::now()));
        assert_eq!(as_written(&question, &state, &pods), None);
    }

    #[test]
    fn what_is_not_available_or_of_another_size_is_not_followed() {
        let state = state();
        let pods = written(&format!("a={}", id(1, "1g.10gb:0")));
        assert_eq!(as_written(&question(&state, "1g.10gb", 2), &state, &pods), None);
        assert_eq!(as_written(&question(&state, "2g.20gb", 1), &state, &pods), None);
        let mut few = question(&state, "1g.10gb", 1);
        few.available.remove(&id(1, "1g.10gb:0"));
        assert_eq!(as_written(&few, &state, &pods), None);
    }

    #[test]
    fn without_a_word_the_least_harmful_places_are_taken_and_what_must_be_is_kept() {
        let state = state();
        let mut question = question(&state, "1g.10gb", 3);
        question.must.insert(id(1, "1g.10gb:2"));
        let chosen = by_cost(&question, &state);
        assert_eq!(chosen.len(), 3);
        assert!(chosen.contains(&id(1, "1g.10gb:2")));
        assert!(chosen.contains(&id(0, "1g.10gb:6")), "{chosen:?}");
    }

    #[test]
    fn the_answer_has_the_size_asked_for_even_where_nothing_is_known() {
        let question = Question {
            resource: "nvidia.com/gpu".to_owned(),
            available: ["b", "a", "c"].map(str::to_owned).into(),
            must: ["c".to_owned()].into(),
            size: 2,
        };
        assert_eq!(by_cost(&question, &State::default()), ["c", "a"]);
    }
}
