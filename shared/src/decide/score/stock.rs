//! What the tables need to know of the pool besides its boards: which racks nobody is in yet, and how many GPUs of
//! each model there are. Kept node by node, so that no decision walks over the cluster for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::snapshot::{Node, Snapshot};

/// Models that are told apart; the rest count as one that nobody asks for by name.
const MODELS: usize = 63;

/// The pool in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    racks: BTreeMap<Arc<str>, Rack>,
    /// Models with their GPUs, in the order in which they were first seen: the number of a model stays what it is.
    models: Vec<(Arc<str>, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rack {
    nodes: usize,
    used: usize,
}

impl Stock {
    /// That of a whole snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut stock = Self::default();
        for node in snapshot.nodes.values() {
            stock.change(None, Some(node));
        }
        stock
    }

    /// A node became another, came or went. Whether that changes anything that costs depend on.
    pub fn change(&mut self, before: Option<&Node>, after: Option<&Node>) -> bool {
        let racks = [before, after].map(|node| node.and_then(|node| node.rack.clone()));
        let free = |stock: &Self| {
            racks
                .each_ref()
                .map(|rack| rack.as_deref().is_some_and(|rack| stock.is_free(rack)))
        };
        let was = free(self);
        if let Some(node) = before {
            self.count(node, false);
        }
        if let Some(node) = after {
            self.count(node, true);
        }
        let gpus = |node: Option<&Node>| node.map(|node| (node.model.clone(), node.gpus.len()));
        was != free(self) || gpus(before) != gpus(after)
    }

    /// The number of a model; that of the rest where it is not told apart.
    #[must_use]
    pub fn model(&self, name: Option<&str>) -> u32 {
        let at = name.and_then(|name| self.models.iter().position(|(known, _)| **known == *name));
        u32::try_from(at.unwrap_or(MODELS)).unwrap_or(u32::MAX)
    }

    /// GPUs of each model, by its number.
    pub fn gpus(&self) -> impl Iterator<Item = u64> {
        self.models.iter().map(|(_, gpus)| *gpus)
    }

    /// Whether there is such a rack and pods have nothing in it.
    #[must_use]
    pub fn is_free(&self, rack: &str) -> bool {
        self.racks.get(rack).is_some_and(|rack| rack.used == 0)
    }

    /// Counts a node in or out.
    fn count(&mut self, node: &Node, comes: bool) {
        let step = |number: &mut usize| {
            *number = if comes {
                *number + 1
            } else {
                number.saturating_sub(1)
            };
        };
        if let Some(name) = &node.rack {
            let rack = self.racks.entry(Arc::clone(name)).or_default();
            step(&mut rack.nodes);
            if node.is_used() {
                step(&mut rack.used);
            }
            if rack.nodes == 0 {
                self.racks.remove(name);
            }
        }
        let Some(model) = &node.model else { return };
        if comes && self.models.len() < MODELS && !self.models.iter().any(|(name, _)| name == model) {
            self.models.push((Arc::clone(model), 0));
        }
        if let Some((_, gpus)) = self.models.iter_mut().find(|(name, _)| name == model) {
            let these = node.gpus.len() as u64;
            *gpus = if comes {
                *gpus + these
            } else {
                gpus.saturating_sub(these)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::{cluster, node, owner};

    fn in_rack(name: &str, rack: &str, model: &str) -> Node {
        Node {
            rack: Some(rack.into()),
            model: Some(model.into()),
            ..node(name, "none", 2)
        }
    }

    fn used(mut node: Node) -> Node {
        node.gpus[0].whole = Some(owner("x"));
        node
    }

    #[test]
    fn a_rack_is_free_until_a_pod_has_something_in_it() {
        let (a, b) = (in_rack("a", "r1", "T4"), in_rack("b", "r1", "T4"));
        let mut stock = Stock::of(&cluster([
            a.clone(),
            b.clone(),
            in_rack("c", "r2", "A10"),
            node("d", "none", 1),
        ]));
        let names = |stock: &Stock| {
            ["r1", "r2", "r3"]
                .into_iter()
                .filter(|rack| stock.is_free(rack))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&stock), ["r1", "r2"]);
        assert!(stock.change(Some(&a), Some(&used(a.clone()))));
        assert_eq!(names(&stock), ["r2"]);
        assert!(
            !stock.change(Some(&b), Some(&used(b.clone()))),
            "it was in use already"
        );
        assert!(!stock.change(Some(&used(b.clone())), Some(&b)));
        assert!(stock.change(Some(&used(a.clone())), Some(&a)));
        assert_eq!(names(&stock), ["r1", "r2"]);
        stock.change(Some(&a), None);
        stock.change(Some(&b), None);
        assert_eq!(names(&stock), ["r2"]);
    }

    #[test]
    fn a_model_keeps_its_number_when_its_nodes_go() {
        let (a, b) = (in_rack("a", "r", "T4"), in_rack("b", "r", "A10"));
        let mut stock = Stock::of(&cluster([a.clone(), b]));
        assert_eq!((stock.model(Some("T4")), stock.model(Some("A10"))), (0, 1));
        assert!(stock.change(Some(&a), None));
        assert_eq!(stock.gpus().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(
            (
                stock.model(Some("A10")),
                stock.model(Some("H100")),
                stock.model(None)
            ),
            (1, 63, 63)
        );
        assert!(stock.change(None, Some(&a)));
        assert_eq!(stock.gpus().collect::<Vec<_>>(), [2, 2]);
    }
}
