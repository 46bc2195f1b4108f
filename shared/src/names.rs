//! Every name that migpool reads or writes in a cluster: API group, labels, annotations, resource names, device
//! ids, environment variables. Parsing and printing of each stand together.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::mig::{Place, Profile};

/// API group of our objects.
pub const GROUP: &str = "migpool.dev";
/// Version of our objects.
pub const VERSION: &str = "v1alpha1";
/// Namespace that the chart installs into by default.
pub const NAMESPACE: &str = "migpool-system";
/// `spec.schedulerName` of pods that migpool places.
pub const SCHEDULER: &str = "migpool-scheduler";
/// Name of the GpuPool that is read when no other selects a node.
pub const DEFAULT_POOL: &str = "default";

/// Domain of GPU resources.
pub const RESOURCE_DOMAIN: &str = "nvidia.com";
/// A whole GPU that is not in MIG mode.
pub const RESOURCE_GPU: &str = "nvidia.com/gpu";
/// What every slice resource starts with.
pub const RESOURCE_MIG_PREFIX: &str = "nvidia.com/mig-";

/// Pod annotation, written in the Binding: where each container's slices are ([`Placements`]).
pub const ANNOTATION_PLACEMENT: &str = "migpool.dev/placement";
/// Pod annotation: how many parameters the model has (`7B`, `500M`, `70e9`), where the pod asks for no slice itself.
pub const ANNOTATION_MODEL_PARAMETERS: &str = "migpool.dev/model-parameters";
/// Pod annotation: how much GPU memory the model needs (`18Gi`, `18GB`), where the pod asks for no slice itself.
pub const ANNOTATION_GPU_MEMORY: &str = "migpool.dev/gpu-memory";
/// Node label of NVIDIA's MIG manager: where it is set, another owner cuts slices.
pub const LABEL_MIG_CONFIG: &str = "nvidia.com/mig.config";
/// Node label that opts a node in to us although the MIG manager's label is there: `migpool.dev/owner=migpool`.
pub const LABEL_OWNER: &str = "migpool.dev/owner";
/// Value of [`LABEL_OWNER`].
pub const OWNER_MIGPOOL: &str = "migpool";
/// Node label: rack (the key can be changed in the policy).
pub const LABEL_RACK: &str = "migpool.dev/rack";
/// Taint of a cordoned node (Kubernetes).
pub const TAINT_CORDON: &str = "node.kubernetes.io/unschedulable";
/// Node label of GPU feature discovery: where it is, another program writes the GPU labels.
pub const LABEL_DISCOVERED: &str = "nvidia.com/gfd.timestamp";
/// DRA driver whose ResourceSlices mean that another owner serves a node's GPUs.
pub const DRA_DRIVER: &str = "gpu.nvidia.com";

/// CDI kind of our devices; device names are [`DeviceId`]s.
pub const CDI_KIND: &str = "migpool.dev/mig";
/// CDI kind of whole GPUs; device names are GPU uuids.
pub const CDI_KIND_GPU: &str = "migpool.dev/gpu";
/// Container environment variable that NVIDIA's runtime reads.
pub const ENV_VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Start of the container environment variables that tell one slice each: `MIGPOOL_SLICE_<n>=<MIG uuid>`.
pub const ENV_SLICE_PREFIX: &str = "MIGPOOL_SLICE_";

/// Lease of the scheduler's leader.
pub const LEASE: &str = "migpool-scheduler-leader";
/// Audience of the tokens that the scheduler shows to agents: one that leaks opens nothing else.
pub const AUDIENCE_USAGE: &str = "migpool.dev/usage";
/// Name of the scheduler's ServiceAccount.
pub const ACCOUNT_SCHEDULER: &str = "migpool-scheduler";
/// Field manager of the agent's writes.
pub const MANAGER_AGENT: &str = "migpool-device-plugin";
/// Field manager of the scheduler's writes.
pub const MANAGER_SCHEDULER: &str = "migpool-scheduler";

/// The resource name of a profile: `nvidia.com/mig-1g.10gb.me`.
#[must_use]
pub fn resource(profile: Profile) -> String {
    format!("{RESOURCE_MIG_PREFIX}{}", profile.resource_suffix())
}

/// What a resource name asks for, if it is one of ours.
#[must_use]
pub fn parse_resource(name: &str) -> Option<Asked> {
    if name == RESOURCE_GPU {
        return Some(Asked::WholeGpu);
    }
    let suffix = name.strip_prefix(RESOURCE_MIG_PREFIX)?;
    Some(
        suffix
            .parse()
            .map_or_else(|_| Asked::Unknown(suffix.to_owned()), Asked::Slice),
    )
}

/// What a resource name of ours asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// `nvidia.com/gpu`.
    WholeGpu,
    /// `nvidia.com/mig-<profile>`.
    Slice(Profile),
    /// `nvidia.com/mig-<something that is no profile>`.
    Unknown(String),
}

/// A device as the kubelet knows it, and its name in CDI: `<gpu uuid>:<profile>:<start>`. It names a place, not
/// an instance, so it survives reboots and re-cuts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// UUID of the GPU.
    pub gpu: String,
    /// Place on it.
    pub place: Place,
}

/// A device id or placement annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Not `<gpu uuid>:<profile>:<start>`.
    #[error("{0:?} is not a place; write it like GPU-<uuid>:2g.20gb:4")]
    Device(String),
    /// Not `<container>=<place>,...;<container>=...`.
    #[error("{0:?} is not a placement; write it like main=GPU-<uuid>:2g.20gb:4")]
    Placement(String),
}

impl DeviceId {
    /// A device id from its parts.
    #[must_use]
    pub fn new(gpu: impl Into<String>, place: Place) -> Self {
        Self {
            gpu: gpu.into(),
            place,
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.gpu, self.place)
    }
}

impl FromStr for DeviceId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadName::Device(text.to_owned());
        let (gpu, place) = text.split_once(':').ok_or_else(bad)?;
        let uuid = gpu.starts_with("GPU-") && gpu.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !uuid || text.len() > 63 {
            return Err(bad());
        }
        Ok(Self::new(gpu, place.parse().map_err(|_| bad())?))
    }
}

/// The value of [`ANNOTATION_PLACEMENT`]: container name -> its places, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements(pub BTreeMap<String, Vec<DeviceId>>);

impl Placements {
    /// Longest annotation that is read, in bytes; a pod with 100 slices needs about 7 KiB.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// All places, of all containers, each once (an init container's places are handed on to app containers).
    #[must_use]
    pub fn places(&self) -> Vec<&DeviceId> {
        let mut places: Vec<_> = self.0.values().flatten().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

impl fmt::Display for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (container, places)) in self.0.iter().enumerate() {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            write!(
                f,
                "{}{container}={}",
                if at > 0 { ";" } else { "" },
                places.join(",")
            )?;
        }
        Ok(())
    }
}

impl FromStr for Placements {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // a hostile annotation must not fill logs and events with itself
        let bad = || BadName::Placement(text.chars().take(80).collect());
        if text.len() > Self::MAX_BYTES {
            return Err(bad());
        }
        let mut containers = BTreeMap::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (container, places) = part.split_once('=').ok_or_else(bad)?;
            let places = places
                .split(',')
                .map(str::parse)
                .collect::<Result<Vec<DeviceId>, _>>()?;
            if container.is_empty() || containers.insert(container.to_owned(), places).is_some() {
                return Err(bad());
            }
        }
        Ok(Self(containers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-11111111-2222-3333-4444-555555555555";

    #[test]
    fn a_resource_name_reads_back() {
        let profile: Profile = "1g.10gb+me".parse().unwrap();
        assert_eq!(resource(profile), "nvidia.com/mig-1g.10gb.me");
        assert_eq!(
            parse_resource("nvidia.com/mig-1g.10gb.me"),
            Some(Asked::Slice(profile))
        );
        assert_eq!(parse_resource("nvidia.com/gpu"), Some(Asked::WholeGpu));
        assert_eq!(
            parse_resource("nvidia.com/mig-9x"),
            Some(Asked::Unknown("9x".into()))
        );
        assert_eq!(parse_resource("cpu"), None);
    }

    #[test]
    fn a_device_id_reads_back_and_stays_under_63_characters() {
        for place in ["1g.10gb.me:6", "7g.141gb:0", "1g.24gb.me.all:0"] {
            let text = format!("{GPU}:{place}");
            assert!(text.len() <= 63, "{text}");
            assert_eq!(text.parse::<DeviceId>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "GPU-1",
            "MIG-1:1g.10gb:0",
            "GPU-1:1g.10gb",
            "GPU-1/..:1g.10gb:0",
            "GPU-1:1g.10gb:0:0",
        ] {
            assert!(bad.parse::<DeviceId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_placement_reads_back() {
        let text = format!("a={GPU}:1g.10gb:6,{GPU}:1g.10gb:5;b={GPU}:2g.20gb:2");
        let placements: Placements = text.parse().unwrap();
        assert_eq!(placements.to_string(), text);
        assert_eq!(placements.places().len(), 3);
        assert_eq!("".parse::<Placements>().unwrap(), Placements::default());
    }

    #[test]
    fn a_malformed_placement_is_refused_with_one_short_sentence() {
        for bad in [
            "a",
            "=x",
            "a=;",
            "a=GPU-1:9x:0",
            &format!("a={GPU}:1g.10gb:6;a={GPU}:1g.10gb:5"),
            &"x".repeat(20_000),
        ] {
            let refused = bad.parse::<Placements>().unwrap_err().to_string();
            assert!(
                refused.contains("write it like") && refused.len() < 200,
                "{refused}"
            );
        }
    }
}
