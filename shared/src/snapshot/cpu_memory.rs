//! CPU and memory as kube-scheduler counts them: what a pod asks, what a node has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount of CPU and one of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuMemory {
    /// CPU, thousandths of a core.
    pub cpu_milli: u64,
    /// Memory, MiB.
    pub memory_mib: u64,
}

/// The same in the units that sums are exact in.
#[derive(Clone, Copy, Default)]
struct Exact {
    cpu_milli: u128,
    bytes: u128,
}

type Quantities = BTreeMap<String, Quantity>;

impl CpuMemory {
    /// What a pod asks: its containers and sidecars together, or an init container with the sidecars started before
    /// it where that is more, and what its runtime class adds. What is asked for the pod as a whole takes the place
    /// of what its containers ask. A quantity that cannot be read counts as none: the API server lets none in.
    #[must_use]
    pub fn of_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let (mut sidecars, mut highest) = (Exact::default(), Exact::default());
        for container in spec.init_containers.iter().flatten() {
            let asked = Exact::asked(container);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = sidecars.plus(asked);
                highest = highest.max(sidecars);
            } else {
                highest = highest.max(sidecars.plus(asked));
            }
        }
        let together = spec
            .containers
            .iter()
            .fold(sidecars, |sum, container| sum.plus(Exact::asked(container)));
        let containers = highest.max(together);
        let whole = Exact::stated(spec.resources.as_ref(), containers);
        let overhead = Exact::of(spec.overhead.as_ref(), Exact::default());
        whole.plus(overhead).rounded_up()
    }

    /// What a node's `allocatable` says; `None` where it lacks one of the two.
    #[must_use]
    pub fn of_allocatable(allocatable: &Quantities) -> Option<Self> {
        let cpu_milli = milli(allocatable.get("cpu")?)?;
        let bytes = milli(allocatable.get("memory")?)? / 1_000;
        // a part of a MiB cannot be given to anybody
        Some(Self {
            cpu_milli: whole(cpu_milli),
            memory_mib: whole(bytes >> 20),
        })
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    /// What is left without `other`; nothing where that is more.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    /// Whether `other` is no more than this, in both.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.cpu_milli >= other.cpu_milli && self.memory_mib >= other.memory_mib
    }
}

impl Exact {
    fn asked(container: &Container) -> Self {
        Self::stated(container.resources.as_ref(), Self::default())
    }

    /// What is asked, else the limit (the API server writes it down so), else what stands in for it.
    fn stated(resources: Option<&ResourceRequirements>, otherwise: Self) -> Self {
        let limits = Self::of(resources.and_then(|all| all.limits.as_ref()), otherwise);
        Self::of(resources.and_then(|all| all.requests.as_ref()), limits)
    }

    fn of(quantities: Option<&Quantities>, otherwise: Self) -> Self {
        let read = |name: &str| milli(quantities?.get(name)?);
        Self {
            cpu_milli: read("cpu").unwrap_or(otherwise.cpu_milli),
            bytes: read("memory").map_or(otherwise.bytes, |milli| milli.div_ceil(1_000)),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            bytes: self.bytes.max(other.bytes),
        }
    }

    fn rounded_up(self) -> CpuMemory {
        CpuMemory {
            cpu_milli: whole(self.cpu_milli),
            memory_mib: whole(self.bytes.div_ceil(1 << 20)),
        }
    }
}

fn whole(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

/// A quantity in thousandths, rounded up; `None` where it is none, or less than nothing.
fn milli(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.trim().trim_start_matches('+');
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (before, after) = number.split_once('.').unwrap_or((number, ""));
    if before.len() + after.len() == 0 || after.contains('.') {
        return None;
    }
    let digits: u128 = format!("{before}{after}").parse().ok()?;
    let ten = |exponent: i32| (10_u128.checked_pow(exponent.unsigned_abs())).filter(|_| exponent.abs() <= 30);
    let (times, exponent): (u128, i32) = match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let exponent = exponent
        .checked_add(3)?
        .checked_sub(i32::try_from(after.len()).ok()?)?;
    let scaled = digits.checked_mul(times)?;
    if exponent < 0 {
        Some(scaled.div_ceil(ten(exponent)?))
    } else {
        scaled.checked_mul(ten(exponent)?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value) -> (u64, u64) {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let asked = CpuMemory::of_pod(&serde_json::from_value(pod).unwrap());
        (asked.cpu_milli, asked.memory_mib)
    }

    fn asks(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = asks(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn a_pod_asks_what_kube_scheduler_says_it_does() {
        let table = [
            ("nothing", json!({"containers": [{"name": "c"}]}), (0, 0)),
            (
                "containers add up",
                json!({"containers": [asks("500m", "1Gi"), asks("2", "512Mi")]}),
                (2_500, 1_536),
            ),
            (
                "an init container counts where it is more, each of the two alone",
                json!({"initContainers": [asks("4", "100Mi")], "containers": [asks("1", "2Gi")]}),
                (4_000, 2_048),
            ),
            (
                "init containers run one after another",
                json!({"initContainers": [asks("3", "1Mi"), asks("3", "1Mi")], "containers": [asks("1", "1Mi")]}),
                (3_000, 1),
            ),
            (
                "a sidecar runs beside the containers",
                json!({"initContainers": [sidecar("1", "1Gi")], "containers": [asks("1", "1Gi")]}),
                (2_000, 2_048),
            ),
            (
                "and beside the init containers after it, not those before",
                json!({"initContainers": [asks("5", "1Mi"), sidecar("2", "1Mi"), asks("4", "1Mi")],
                    "containers": [asks("1", "1Mi")]}),
                (6_000, 2),
            ),
            (
                "a limit stands for a request that is not there",
                json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"},
                    "requests": {"cpu": "1"}}}]}),
                (1_000, 1_024),
            ),
            (
                "the runtime class adds its own",
                json!({"overhead": {"cpu": "250m", "memory": "120Mi"}, "containers": [asks("1", "8Mi")]}),
                (1_250, 128),
            ),
            (
                "what the pod asks as a whole goes before its containers, for what it names",
                json!({"resources": {"requests": {"cpu": "8"}}, "containers": [asks("1", "8Mi")]}),
                (8_000, 8),
            ),
            (
                "bytes are summed before they are rounded",
                json!({"containers": [asks("1u", "1"), asks("1n", "1048575")]}),
                (2, 1),
            ),
        ];
        for (what, spec, expected) in table {
            assert_eq!(of(spec), expected, "{what}");
        }
    }

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("+1", Some(1_000)),
            ("1.5", Some(1_500)),
            (".5", Some(500)),
            ("5.", Some(5_000)),
            ("100m", Some(100)),
            ("0.1m", Some(1)),
            ("1n", Some(1)),
            ("2k", Some(2_000_000)),
            ("1e3", Some(1_000_000)),
            ("15E-1", Some(1_500)),
            ("2E", Some(2_000_000_000_000_000_000_000)),
            ("1.5Ki", Some(1_536_000)),
            ("1Ei", Some((1_u128 << 60) * 1_000)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1.2.3", None),
            ("1ki", None),
            ("1e99", None),
            ("many", None),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        }
    }

    #[test]
    fn what_a_node_has_is_known_whole_or_not_at_all() {
        let of = |value: Value| CpuMemory::of_allocatable(&serde_json::from_value(value).unwrap());
        let known = CpuMemory {
            cpu_milli: 95_500,
            memory_mib: 1_023,
        };
        assert_eq!(of(json!({"cpu": "95500m", "memory": "1048575Ki"})), Some(known));
        assert_eq!(of(json!({"cpu": "96"})), None);
        assert_eq!(of(json!({"memory": "1Gi"})), None);
    }

    #[test]
    fn whether_a_node_has_what_a_request_asks_is_known_where_it_has_told() {
        use crate::decide::testing::{asks, node};
        use crate::snapshot::{Node, Request};
        let of = |cpu_milli| CpuMemory {
            cpu_milli,
            memory_mib: 1,
        };
        let request = Request {
            besides: of(2_000),
            ..asks(None, 1)
        };
        for (free, has) in [
            (None, None),
            (Some(of(2_000)), Some(true)),
            (Some(of(1_999)), Some(false)),
        ] {
            let node = Node {
                free,
                ..node("a", "none", 1)
            };
            assert_eq!(node.has_besides(&request), has);
        }
    }

    #[test]
    fn nothing_is_left_where_more_is_asked_than_there_is() {
        let of = |cpu_milli, memory_mib| CpuMemory {
            cpu_milli,
            memory_mib,
        };
        assert_eq!(of(3, 5).minus(of(4, 2)), of(0, 3));
        assert!(of(3, 5).covers(of(3, 5)) && !of(3, 5).covers(of(4, 0)) && !of(3, 5).covers(of(0, 6)));
        assert_eq!(of(3, 5).plus(of(u64::MAX, 1)), of(u64::MAX, 6));
    }
}
