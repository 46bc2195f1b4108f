//! The load that is expected of nodes, as [`crate::usage`] found it. A node whose outlook changed is made anew, and so
//! is its rank; the others stay as they are.

use std::collections::BTreeMap;

use shared::decide::forecast::fleet::Report;
use shared::snapshot::Outlook;

use super::books::Books;

/// What is expected, and how much that has been worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// By node: the load that it is expected to stay under. Those not named are as if there were no forecasts.
    pub outlooks: BTreeMap<String, Outlook>,
    /// By pool: how its forecasts stand, `None` where no node tells its load. Of a pool that is not named nothing is
    /// known yet.
    pub reports: BTreeMap<String, Option<Report>>,
}

impl Expected {
    /// Nodes whose outlooks differ, in either direction.
    fn moved<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a String> {
        let differs = |from: &'a Self, to: &'a Self| {
            let differing = from.outlooks.iter();
            differing.filter(|(node, outlook)| to.outlooks.get(*node) != Some(outlook))
        };
        let moved = differs(self, other).chain(differs(other, self));
        moved.map(|(node, _)| node)
    }
}

impl Books {
    /// Takes in what is expected now.
    pub(super) fn expect(&mut self, expected: Expected) {
        let moved = self.expected.moved(&expected);
        let with_gpus = moved.filter(|node| self.gpu_nodes.contains_key(*node));
        self.stale.extend(with_gpus.cloned());
        self.expected = expected;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::index::Index;
    use crate::index::testing::{empty, part, pod, put_node};

    fn expected(outlooks: &[(&str, u16)]) -> Expected {
        let outlook = |(node, milli): &(&str, u16)| ((*node).to_owned(), Outlook::of_milli(*milli));
        Expected {
            outlooks: outlooks.iter().map(outlook).collect(),
            ..Expected::default()
        }
    }

    fn best(index: &Index) -> String {
        let request = part(&pod("p", "2g.20gb")).request.unwrap();
        let (node, _) = index.books().best(&request, |_| true).unwrap();
        node.name.clone()
    }

    #[test]
    fn of_equal_nodes_a_pod_goes_to_the_calm_one_while_that_is_expected() {
        let (index, _) = empty();
        put_node(&index, "a", 1);
        put_node(&index, "b", 1);
        assert_eq!(best(&index), "a");
        index.expect(expected(&[("a", 900), ("b", 100)]));
        assert_eq!(best(&index), "b");
        let version = index.view().snapshot.nodes["a"].version;
        // the rank that is kept follows
        index.expect(expected(&[("a", 100), ("b", 900)]));
        assert_eq!(best(&index), "a");
        assert!(index.view().snapshot.nodes["a"].version > version);
        // a node of which nothing is expected costs as before
        index.expect(expected(&[("a", 100)]));
        assert_eq!(best(&index), "b");
        index.expect(Expected::default());
        assert_eq!(best(&index), "a");
        assert_eq!(index.view().snapshot.nodes["a"].outlook, None);
    }

    #[test]
    fn only_nodes_whose_outlook_changed_are_made_anew() {
        let (index, _) = empty();
        ["a", "b", "c", "d"]
            .iter()
            .for_each(|name| put_node(&index, name, 1));
        index.expect(expected(&[("a", 100), ("b", 100), ("c", 100)]));
        let before = index.view();
        let revision = *index.changes().borrow();
        // nobody is woken for nothing, nor for a node that has no GPUs
        index.expect(expected(&[("a", 100), ("b", 100), ("c", 100), ("elsewhere", 5)]));
        assert_eq!(*index.changes().borrow(), revision);
        index.expect(expected(&[("a", 100), ("b", 200), ("d", 0)]));
        assert!(*index.changes().borrow() > revision);
        let after = index.view();
        let same = |name: &str| Arc::ptr_eq(&before.snapshot.nodes[name], &after.snapshot.nodes[name]);
        assert_eq!(["a", "b", "c", "d"].map(same), [true, false, false, false]);
        assert_eq!(after.snapshot.nodes["b"].outlook, Some(Outlook::of_milli(200)));
        assert_eq!(after.snapshot.nodes["c"].outlook, None);
    }

    #[test]
    fn a_node_that_comes_later_has_what_was_expected_of_it() {
        let (index, _) = empty();
        index.expect(expected(&[("late", 300)]));
        put_node(&index, "late", 1);
        assert_eq!(
            index.view().snapshot.nodes["late"].outlook,
            Some(Outlook::of_milli(300))
        );
    }
}
