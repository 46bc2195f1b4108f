//! The pods that wait for a node, in the order in which they came. Kube-scheduler's queue has the same order among
//! pods of one priority: both see the same watch, and creation times are whole seconds.

use std::collections::BTreeMap;

/// Pods that wait, by UID.
#[derive(Debug, Default)]
pub struct Queue {
    numbers: BTreeMap<String, u64>,
    last: u64,
}

impl Queue {
    /// A pod waits; one that did already keeps its turn.
    pub fn enter(&mut self, uid: &str) {
        if !self.numbers.contains_key(uid) {
            self.last += 1;
            self.numbers.insert(uid.to_owned(), self.last);
        }
    }

    /// A pod waits no more.
    pub fn leave(&mut self, uid: &str) {
        self.numbers.remove(uid);
    }

    /// Lets go of all but these.
    pub fn keep(&mut self, waits: impl Fn(&str) -> bool) {
        self.numbers.retain(|uid, _| waits(uid));
    }

    /// UIDs with their turns: the least goes first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.numbers.iter().map(|(uid, number)| (uid.as_str(), *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_turn_until_it_leaves() {
        let mut queue = Queue::default();
        for uid in ["b", "a", "b", "c"] {
            queue.enter(uid);
        }
        queue.leave("a");
        queue.enter("a");
        queue.keep(|uid| uid != "c");
        assert_eq!(queue.iter().collect::<Vec<_>>(), [("a", 4), ("b", 1)]);
    }
}
