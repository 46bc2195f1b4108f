//! What a request needs of a node: all of it that a rank depends on, so that requests with equal needs share a
//! standing.

use crate::decide::score::demand::cpu_milli;
use crate::mig::Profile;
use crate::snapshot::Request;

/// What a request needs of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Needs {
    /// Whole GPUs (`None`) and slices one by one, largest first.
    pub(super) items: Vec<Option<Profile>>,
    /// CPU that goes with them, thousandths of a core, in steps.
    pub(super) cpu_milli: u64,
}

impl Needs {
    /// Those of a request.
    pub(super) fn of(request: &Request) -> Self {
        let times = |(profile, count): (Option<Profile>, u32)| std::iter::repeat_n(profile, count as usize);
        Self {
            items: request.distinct().into_iter().flat_map(times).collect(),
            cpu_milli: cpu_milli(request),
        }
    }

    /// How many whole GPUs.
    pub(super) fn whole(&self) -> usize {
        self.items.iter().filter(|item| item.is_none()).count()
    }

    /// The slices.
    pub(super) fn slices(&self) -> impl Iterator<Item = Profile> {
        self.items.iter().filter_map(|item| *item)
    }
}
