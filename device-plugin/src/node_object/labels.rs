//! The inventory as node labels, by the names and values of NVIDIA's feature discovery, so that what selects nodes
//! by them goes on selecting.

use std::collections::BTreeMap;

use shared::mig::{Profile, ProfileRow};
use shared::names;

use crate::args::Strategy;
use crate::inventory::devices::single_profile;
use crate::inventory::{Driver, State};

/// Labels of ours whose set changes with the boards: what is not true any more is taken away.
#[must_use]
pub fn is_ours(key: &str) -> bool {
    let slice = key
        .strip_prefix(names::RESOURCE_MIG_PREFIX)
        .and_then(|rest| rest.rsplit_once('.'));
    slice.is_some_and(|(profile, _)| {
        // "slices.gi" and "engines.copy" have a dot of their own
        let profile = profile.trim_end_matches(".slices").trim_end_matches(".engines");
        profile.parse::<Profile>().is_ok()
    })
}

/// The labels of a state; none while there is no driver.
#[must_use]
pub fn labels(state: &State) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let Driver::Works(driver) = &state.driver else {
        return labels;
    };
    let Some(first) = state.gpus.first() else {
        return labels;
    };
    let mut set =
        |key: &str, value: String| drop(labels.insert(format!("{}/{key}", names::RESOURCE_DOMAIN), value));
    let mut version = driver.version.splitn(3, '.');
    set("cuda.driver-version.full", driver.version.clone());
    for part in ["major", "minor", "revision"] {
        if let Some(number) = version.next() {
            set(&format!("cuda.driver-version.{part}"), number.to_owned());
        }
    }
    let (major, minor) = driver.cuda;
    set("cuda.runtime-version.full", format!("{major}.{minor}"));
    set("cuda.runtime-version.major", major.to_string());
    set("cuda.runtime-version.minor", minor.to_string());
    let info = &first.info;
    let product = product(&info.model);
    set("gpu.product", product.clone());
    set("gpu.count", state.gpus.len().to_string());
    set("gpu.replicas", "1".to_owned());
    set("gpu.sharing-strategy", "none".to_owned());
    set("gpu.memory", info.memory_mib.to_string());
    set("gpu.compute.major", info.capability.0.to_string());
    set("gpu.compute.minor", info.capability.1.to_string());
    if let Some(family) = family(info.capability) {
        set("gpu.family", family.to_owned());
    }
    set(
        "mig.capable",
        state.gpus.iter().any(|gpu| gpu.info.board.is_some()).to_string(),
    );
    match state.strategy {
        Strategy::None => {}
        Strategy::Single => {
            set("mig.strategy", "single".to_owned());
            single(state, &product, &mut set);
        }
        // what could be cut is told as what is there is: by profile
        Strategy::Mixed | Strategy::Dynamic => {
            set("mig.strategy", "mixed".to_owned());
            for (row, count) in counts(state) {
                of_profile(
                    &format!("mig-{}", row.profile.resource_suffix()),
                    &product,
                    row,
                    count,
                    &mut set,
                );
            }
        }
    }
    labels
}

/// What the strategy `single` says of `nvidia.com/gpu`.
fn single(state: &State, product: &str, set: &mut impl FnMut(&str, String)) {
    match single_profile(state) {
        Ok(None) => {}
        Ok(Some(profile)) => {
            let row = state
                .gpus
                .iter()
                .find_map(|gpu| gpu.info.board.as_ref()?.row(profile));
            let count = state.gpus.iter().map(|gpu| gpu.slices.len()).sum();
            if let Some(row) = row {
                of_profile("gpu", product, row, count, set);
            }
        }
        Err(_) => {
            set("gpu.product", format!("{product}-MIG-INVALID"));
            for key in ["gpu.count", "gpu.replicas", "gpu.memory"] {
                set(key, "0".to_owned());
            }
        }
    }
}

/// Profiles with how many there are: with `dynamic` the most that could be cut, which does not change with every pod.
fn counts(state: &State) -> Vec<(&ProfileRow, usize)> {
    let mut counts: Vec<(&ProfileRow, usize)> = Vec::new();
    for gpu in state.gpus.iter().filter(|gpu| gpu.info.mig) {
        let Some(board) = &gpu.info.board else { continue };
        for row in &board.profiles {
            let there = gpu
                .slices
                .keys()
                .filter(|place| place.profile == row.profile)
                .count();
            let count = if state.strategy == Strategy::Dynamic {
                usize::from(row.max)
            } else {
                there
            };
            match counts.iter_mut().find(|(known, _)| known.profile == row.profile) {
                Some((_, all)) => *all += count,
                None => counts.push((row, count)),
            }
        }
    }
    counts.retain(|(_, count)| *count > 0);
    counts
}

fn of_profile(
    prefix: &str,
    product: &str,
    row: &ProfileRow,
    count: usize,
    set: &mut impl FnMut(&str, String),
) {
    let mut one = |key: &str, value: String| set(&format!("{prefix}.{key}"), value);
    let name = row.profile.resource_suffix();
    one("count", count.to_string());
    one("replicas", "1".to_owned());
    one("sharing-strategy", "none".to_owned());
    one("product", format!("{product}-MIG-{name}"));
    one("slices.gi", row.profile.compute.to_string());
    one("slices.ci", row.profile.compute.to_string());
    let numbers = [
        ("memory", row.memory_mib),
        ("multiprocessors", row.multiprocessors.map(u64::from)),
        ("engines.copy", row.engines.copy.map(u64::from)),
        ("engines.decoder", row.engines.decoders.map(u64::from)),
        ("engines.jpeg", row.engines.jpeg.map(u64::from)),
        ("engines.ofa", row.engines.ofa.map(u64::from)),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            one(key, number.to_string());
        }
    }
}

/// A product name as a label value: spaces become dashes, and nothing is in it that a value may not hold.
fn product(model: &str) -> String {
    let words = model.split_whitespace().collect::<Vec<_>>().join("-");
    let plain: String = words
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c))
        .take(63 - 20)
        .collect();
    plain.trim_matches(['-', '_', '.']).to_owned()
}

/// Generation by compute capability, in feature discovery's words.
fn family(capability: (u32, u32)) -> Option<&'static str> {
    match capability {
        (7, 0 | 2) => Some("volta"),
        (7, 5) => Some("turing"),
        (8, 9) => Some("ada-lovelace"),
        (8, _) => Some("ampere"),
        (9, _) => Some("hopper"),
        (10 | 12, _) => Some("blackwell"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use shared::api::gpu_node::Health;

    use super::*;
    use crate::gpus::fake::Fake;
    use crate::gpus::{DriverInfo, Gpus as _};
    use crate::inventory::Gpu;

    fn state(strategy: Strategy) -> State {
        let gpus = Fake::node("H100-80GB", 2)
            .list()
            .unwrap()
            .into_iter()
            .map(|info| Gpu {
                info,
                slices: BTreeMap::new(),
                health: Health::Healthy,
                message: String::new(),
            });
        let driver = Driver::Works(DriverInfo {
            version: "580.95.05".into(),
            cuda: (13, 0),
        });
        State {
            strategy,
            driver,
            gpus: gpus.collect(),
            ..State::default()
        }
    }

    #[test]
    fn a_node_is_labelled_as_feature_discovery_labels_it() {
        let labels = labels(&state(Strategy::Dynamic));
        for (key, value) in [
            ("gpu.product", "NVIDIA-H100-80GB-HBM3"),
            ("gpu.family", "hopper"),
            ("gpu.memory", "81559"),
            ("cuda.driver-version.revision", "05"),
            ("mig.strategy", "mixed"),
            ("mig-1g.10gb.me.count", "2"),
            ("mig-1g.10gb.count", "14"),
            ("mig-7g.80gb.product", "NVIDIA-H100-80GB-HBM3-MIG-7g.80gb"),
            ("mig-3g.40gb.slices.gi", "3"),
        ] {
            assert_eq!(
                labels.get(&format!("nvidia.com/{key}")).map(String::as_str),
                Some(value),
                "{key}"
            );
        }
        for (key, value) in &labels {
            assert!(
                value.len() <= 63 && key.len() <= 63 + "nvidia.com/".len(),
                "{key}: {value}"
            );
        }
    }

    #[test]
    fn an_impossible_single_strategy_says_so_in_the_product() {
        let labels = labels(&state(Strategy::Single));
        assert_eq!(
            labels["nvidia.com/gpu.product"],
            "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
        );
        assert_eq!(labels["nvidia.com/gpu.count"], "0");
    }

    #[test]
    fn only_labels_of_slices_are_taken_away() {
        for ours in [
            "nvidia.com/mig-1g.10gb.count",
            "nvidia.com/mig-1g.10gb.me.slices.gi",
            "nvidia.com/mig-1g.24gb-me.product",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for not in [
            "nvidia.com/mig.config",
            "nvidia.com/mig.config.state",
            "nvidia.com/gpu.count",
            "nvidia.com/mig-x.count",
            "a",
        ] {
            assert!(!is_ours(not), "{not}");
        }
    }
}
