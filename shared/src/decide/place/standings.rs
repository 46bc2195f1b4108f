//! The nodes that can take a request, best first, kept from one decision to the next. A node is ranked anew when it
//! changed and when the tables did, so a decision costs a look at the front of the order and not a walk over the
//! cluster. The order is that of [`super::rank`]: a test holds the two against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::needs::Needs;
use super::{Rank, rank_on};
use crate::decide::score::Tables;
use crate::policy::STANDINGS_KEPT;
use crate::snapshot::{Request, Snapshot};

/// One standing for each kind of request that was asked about lately.
#[derive(Debug, Default)]
pub struct Standings {
    tables: Arc<Tables>,
    kept: BTreeMap<Needs, Standing>,
    /// Rises with every question, so that the one asked about longest ago is let go.
    asked: u64,
}

/// The nodes that can take one kind of request.
#[derive(Debug, Default)]
struct Standing {
    asked: u64,
    order: BTreeSet<(Rank, Arc<str>)>,
    ranks: BTreeMap<Arc<str>, Rank>,
    /// Nodes that changed since this was last brought up to date.
    changed: BTreeSet<Arc<str>>,
}

impl Standings {
    /// A node changed, came or went.
    pub fn changed(&mut self, node: &Arc<str>) {
        for standing in self.kept.values_mut() {
            standing.changed.insert(Arc::clone(node));
        }
    }

    /// The best node for a request among those `offered`, as `snapshot` is now. Every change of the snapshot since
    /// the last question must have been told by [`Standings::changed`].
    pub fn best(
        &mut self,
        snapshot: &Snapshot,
        request: &Request,
        tables: &Arc<Tables>,
        mut offered: impl FnMut(&str) -> bool,
    ) -> Option<Arc<str>> {
        let standing = self.standing(snapshot, request, tables);
        let best = standing.order.iter().find(|(_, node)| offered(node));
        best.map(|(_, node)| Arc::clone(node))
    }

    /// The standing for a request, brought up to date.
    fn standing(&mut self, snapshot: &Snapshot, request: &Request, tables: &Arc<Tables>) -> &Standing {
        if !Arc::ptr_eq(&self.tables, tables) {
            self.tables = Arc::clone(tables);
            self.kept.clear();
        }
        let needs = Needs::of(request);
        if self.kept.len() >= STANDINGS_KEPT && !self.kept.contains_key(&needs) {
            let oldest = self.kept.iter().min_by_key(|(_, standing)| standing.asked);
            if let Some(oldest) = oldest.map(|(needs, _)| needs.clone()) {
                self.kept.remove(&oldest);
            }
        }
        self.asked += 1;
        let all = || Standing {
            changed: snapshot.nodes.keys().map(Arc::clone).collect(),
            ..Standing::default()
        };
        let standing = self.kept.entry(needs.clone()).or_insert_with(all);
        standing.asked = self.asked;
        standing.update(snapshot, &needs, tables);
        standing
    }
}

impl Standing {
    fn update(&mut self, snapshot: &Snapshot, needs: &Needs, tables: &Tables) {
        for name in std::mem::take(&mut self.changed) {
            let node = snapshot.nodes.get(&name);
            let now = node.and_then(|node| rank_on(node, needs, tables));
            let before = match now {
                Some(rank) => self.ranks.insert(Arc::clone(&name), rank),
                None => self.ranks.remove(&name),
            };
            if before == now {
                continue;
            }
            if let Some(rank) = before {
                self.order.remove(&(rank, Arc::clone(&name)));
            }
            if let Some(rank) = now {
                self.order.insert((rank, name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::place::{on_node, rank};
    use crate::decide::score::{Demand, Stock};
    use crate::decide::testing::{asks, cluster, node, owner, tables};
    use crate::snapshot::{CpuMemory, Node, Outlook};

    const PROFILES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever happened before, the answer is the one that a walk over the cluster gives.
        #[test]
        fn a_standing_answers_as_a_fresh_ranking_does(
            steps in prop::collection::vec((0..=PROFILES.len(), 1..3_u32, any::<u8>(), 0..4_u8, 0..4_u64), 1..60),
        ) {
            let known = |(at, name): (u64, &str)| Node {
                free: (at > 0).then_some(CpuMemory { cpu_milli: at * 9_000, memory_mib: 1 }),
                rack: Some(format!("r{}", at / 2).as_str().into()),
                outlook: (at < 2).then(|| Outlook::of_milli(300)),
                ..node(name, if at == 3 { "none" } else { "H100-80GB" }, 2)
            };
            let mut snapshot = cluster((0..).zip(["a", "b", "c", "d"]).map(known));
            let boards: Vec<_> = snapshot.gpus().filter_map(|(_, gpu)| gpu.board.clone()).collect();
            let mut tables = Arc::new(tables(&snapshot));
            let mut demand = Demand::default();
            let mut standings = Standings::default();
            let mut placed = Vec::new();
            for (at, (profile, count, offer, what, cpu)) in steps.into_iter().enumerate() {
                // past the profiles: whole GPUs
                let request = Request {
                    besides: CpuMemory { cpu_milli: cpu * 2_500, memory_mib: 1 },
                    ..asks(PROFILES.get(profile).and_then(|name| name.parse().ok()), count)
                };
                let offered = |name: &str| name.bytes().any(|byte| offer & (1 << (byte - b'a')) != 0);
                let names: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|name| offered(name)).collect();
                let kept = standings.best(&snapshot, &request, &tables, offered);
                let fresh = rank(&snapshot, &request, &names, &tables).ok();
                let fresh = fresh.and_then(|ranking| ranking.best().map(|best| best.node.name.clone()));
                prop_assert_eq!(kept.as_deref(), fresh.as_deref());
                match (what, kept) {
                    (0, Some(name)) => {
                        let chosen = on_node(&snapshot.nodes[&name], &request, &tables).unwrap();
                        let undo = snapshot.assume(&name, &chosen.placements, &owner(&format!("p{at}"))).unwrap();
                        standings.changed(&name);
                        placed.push((name, undo));
                    }
                    (1, _) => {
                        if let Some((name, undo)) = placed.pop() {
                            undo.undo(&mut snapshot);
                            standings.changed(&name);
                        }
                    }
                    (2, Some(name)) => {
                        snapshot.nodes.remove(&name);
                        placed.retain(|(on, _)| *on != name);
                        standings.changed(&name);
                    }
                    (3, _) => {
                        demand.arrive(&request, 0, at as f64, 60.0);
                        let (stock, policy) = (Stock::of(&snapshot), crate::policy::Policy::default());
                        tables = Arc::new(Tables::of_pool(&boards, &demand, &stock, &policy));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn the_request_asked_about_longest_ago_is_let_go() {
        let snapshot = cluster([node("a", "H100-80GB", 1)]);
        let tables = Arc::new(tables(&snapshot));
        let mut standings = Standings::default();
        for count in 1..=2 * u32::try_from(STANDINGS_KEPT).unwrap() {
            standings.best(&snapshot, &asks("1g.10gb".parse().ok(), count), &tables, |_| true);
            standings.best(&snapshot, &asks("7g.80gb".parse().ok(), 1), &tables, |_| true);
        }
        assert_eq!(standings.kept.len(), STANDINGS_KEPT);
        assert!(
            standings
                .kept
                .contains_key(&Needs::of(&asks("7g.80gb".parse().ok(), 1)))
        );
        assert!(
            !standings
                .kept
                .contains_key(&Needs::of(&asks("1g.10gb".parse().ok(), 1)))
        );
    }
}
