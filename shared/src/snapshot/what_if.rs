//! What-if: assume that a pod gets a placement, look at the cluster as it would be, and take it back exactly.

use std::sync::Arc;

use super::{Node, Owner, Snapshot};
use crate::mig::Use;
use crate::names::Placements;

/// Takes an assumption back.
#[derive(Debug)]
#[must_use = "an assumption that is never taken back stays in the snapshot"]
pub struct Undo {
    before: Arc<Node>,
}

/// A placement that cannot be assumed; the snapshot is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotAssume {
    /// No such node.
    #[error("there is no GPU node {0}")]
    NoNode(String),
    /// No such GPU on the node.
    #[error("node {node} has no GPU {gpu} in MIG mode")]
    NoGpu {
        /// The node.
        node: String,
        /// The GPU's UUID.
        gpu: String,
    },
    /// Something is there already.
    #[error("{0} is taken")]
    Taken(String),
}

impl Snapshot {
    /// Assumes that `owner` has these places on `node`. Idle slices in the way are gone in the assumed cluster.
    ///
    /// # Errors
    /// [`CannotAssume`] where a place does not exist or is not free; nothing is changed then.
    pub fn assume(
        &mut self,
        node: &str,
        placements: &Placements,
        owner: &Owner,
    ) -> Result<Undo, CannotAssume> {
        let slot = self
            .nodes
            .get_mut(node)
            .ok_or_else(|| CannotAssume::NoNode(node.to_owned()))?;
        let before = Arc::clone(slot);
        let mut after = Node::clone(&before);
        for device in placements.places() {
            let gpu = after.gpus.iter_mut().find(|gpu| gpu.uuid == device.gpu);
            let no_gpu = || CannotAssume::NoGpu {
                node: node.to_owned(),
                gpu: device.gpu.clone(),
            };
            let gpu = gpu.ok_or_else(no_gpu)?;
            let board = gpu.board.clone().ok_or_else(no_gpu)?;
            let held = gpu
                .layout()
                .at(device.place)
                .is_some_and(|slice| slice.used != Use::Idle);
            if held || !gpu.layout().busy().fits(&board, device.place) {
                return Err(CannotAssume::Taken(device.to_string()));
            }
            gpu.hold(device.place, owner.clone());
        }
        after.version += 1;
        *slot = Arc::new(after);
        Ok(Undo { before })
    }
}

impl Undo {
    /// Puts the node back as it was, bit for bit. Assumptions on one node are taken back last first.
    pub fn undo(self, snapshot: &mut Snapshot) {
        snapshot
            .nodes
            .insert(self.before.name.as_str().into(), self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::{cluster, node, owner};

    #[test]
    fn an_assumption_takes_its_places_and_its_undo_restores_bit_for_bit() {
        let mut snapshot = cluster([node("a", "H100-80GB", 2)]);
        let before = snapshot.clone();
        let gpu = before.nodes["a"].gpus[1].uuid.clone();
        let placements: Placements = format!("main={gpu}:3g.40gb:4").parse().unwrap();
        let undo = snapshot.assume("a", &placements, &owner("one")).unwrap();
        assert_eq!(snapshot.nodes["a"].gpus[1].busy_mask(), 0b1111_0000);
        let again = snapshot.assume("a", &placements, &owner("two")).unwrap_err();
        assert_eq!(again, CannotAssume::Taken(format!("{gpu}:3g.40gb:4")));
        undo.undo(&mut snapshot);
        assert_eq!(snapshot, before);
    }

    #[test]
    fn half_a_placement_is_never_assumed() {
        let mut snapshot = cluster([node("a", "H100-80GB", 1)]);
        let before = snapshot.clone();
        let gpu = before.nodes["a"].gpus[0].uuid.clone();
        let placements: Placements = format!("x={gpu}:4g.40gb:0;y={gpu}:2g.20gb:2").parse().unwrap();
        assert!(snapshot.assume("a", &placements, &owner("one")).is_err());
        assert!(snapshot.assume("b", &placements, &owner("one")).is_err());
        assert_eq!(snapshot, before);
    }
}
