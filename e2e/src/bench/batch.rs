//! The pods of a run. Kube-scheduler (1.35 and newer) keeps for half a second what it found for a pod and uses it for
//! the next one that asks for the same, unless an extender is set (`OpportunisticBatching`). So it is measured both ways.

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use shared::names;

/// Which pods come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Batch {
    /// All of one size, as one large Job makes them.
    Alike,
    /// Of several sizes in random order, as many users make them.
    Mixed,
}

/// What a pod asks for: profile, CPUs, GiB of memory, and how many of 100 mixed pods are such.
type Size = (&'static str, u32, u32, u32);

const SMALL: Size = ("1g.10gb", 1, 1, 100);
/// The four smaller profiles of MIG-100's mix `skew-small`, in its proportions; the nodes have no room for more than a
/// few of the larger ones. CPU and memory grow with the size.
const MIX: [Size; 4] = [
    ("1g.10gb", 1, 8, 45),
    ("1g.20gb", 2, 16, 22),
    ("2g.20gb", 2, 16, 22),
    ("3g.40gb", 4, 32, 11),
];

impl Batch {
    /// For the table.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Alike => "all of one size (1g.10gb)",
            Self::Mixed => {
                "of four sizes in random order (45 % 1g.10gb, 22 % 1g.20gb, 22 % 2g.20gb, 11 % 3g.40gb)"
            }
        }
    }

    /// Pod number `number` for a scheduler; the same for all of them but for names.
    #[must_use]
    pub fn pod(self, scheduler: &str, number: u32) -> Value {
        let (profile, cpus, gib, _) = match self {
            Self::Alike => SMALL,
            Self::Mixed => drawn(number),
        };
        let slice = format!("{}{profile}", names::RESOURCE_MIG_PREFIX);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{scheduler}-{number:05}"), "labels": {"bench": scheduler}},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "main", "image": "none",
                    "resources": {
                        "requests": {"cpu": cpus.to_string(), "memory": format!("{gib}Gi"), &slice: "1"},
                        "limits": {&slice: "1"},
                    },
                }],
            },
        })
    }
}

/// The size of a mixed pod; it depends on its number alone.
fn drawn(number: u32) -> Size {
    let mut left = StdRng::seed_from_u64(u64::from(number)).random_range(0..100);
    for size in MIX {
        if left < size.3 {
            return size;
        }
        left -= size.3;
    }
    SMALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_pods_are_of_all_sizes_in_their_proportions_and_the_same_for_every_scheduler() {
        assert_eq!(MIX.iter().map(|size| size.3).sum::<u32>(), 100);
        for (profile, _, _, percent) in MIX {
            let count = (0..2_000).filter(|number| drawn(*number).0 == profile).count();
            let expected = 20 * percent as usize;
            assert!(count.abs_diff(expected) < expected / 5, "{profile}: {count}");
        }
        let spec = |scheduler| Batch::Mixed.pod(scheduler, 7)["spec"]["containers"].clone();
        assert_eq!(spec("a"), spec("b"));
    }
}
