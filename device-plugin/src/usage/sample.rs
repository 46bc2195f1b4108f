//! The load of the node at one moment, from what was read of its slices. Each GPU counts the same; of a GPU in MIG mode
//! each slice counts by its compute slices. What is not known is not guessed.

use std::collections::BTreeMap;

use shared::api::gpu_node::Health;

use crate::gpus::Usage;
use crate::inventory::{Gpu, State};

/// Why the load is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The driver is away, or the GPUs are somebody else's.
    #[error("nothing can be read")]
    Away,
    /// There is no GPU to have a load.
    #[error("no GPU is healthy")]
    NoGpu,
    /// Somebody works there, and nobody can tell how much.
    #[error("the activity of {0}, which a pod holds, was not read")]
    Unread(String),
}

/// What was read, by UUID, with every activity within 0 to 1, and how many had to be brought there. No number at all
/// counts as not read.
#[must_use]
pub fn settle(read: impl IntoIterator<Item = Usage>) -> (BTreeMap<String, Usage>, u64) {
    let mut clamped = 0;
    let within = |mut usage: Usage| {
        let told = usage.activity.filter(|activity| !activity.is_nan());
        usage.activity = told.map(|activity| activity.clamp(0.0, 1.0));
        clamped += u64::from(usage.activity != told);
        (usage.uuid.clone(), usage)
    };
    let usages = read.into_iter().map(within).collect();
    (usages, clamped)
}

/// Load of the node, 0 to 1: the mean of its healthy GPUs.
///
/// # Errors
/// [`Unknown`]
pub fn load(state: &State, usages: &BTreeMap<String, Usage>) -> Result<f64, Unknown> {
    let (mut sum, mut count) = (0.0, 0.0);
    for gpu in state.gpus.iter().filter(|gpu| gpu.health == Health::Healthy) {
        sum += of_gpu(state, gpu, usages)?;
        count += 1.0;
    }
    if count > 0.0 {
        Ok(sum / count)
    } else {
        Err(Unknown::NoGpu)
    }
}

fn of_gpu(state: &State, gpu: &Gpu, usages: &BTreeMap<String, Usage>) -> Result<f64, Unknown> {
    let activity = |uuid: &str, held: bool| match usages.get(uuid).and_then(|usage| usage.activity) {
        Some(activity) => Ok(activity),
        // nobody works where nobody is
        None if !held => Ok(0.0),
        None => Err(Unknown::Unread(uuid.to_owned())),
    };
    let whole = state.held.contains_key(&gpu.info.uuid);
    let Some(board) = gpu.info.board.as_ref().filter(|_| gpu.info.mig) else {
        return activity(&gpu.info.uuid, whole);
    };
    let mut sum = 0.0;
    for (place, slice) in &gpu.slices {
        let held = whole || state.holding(gpu, slice).is_some();
        let share = f64::from(place.profile.compute) / f64::from(board.compute_slices.max(1));
        sum += share * activity(&slice.instance.uuid, held)?;
    }
    Ok(sum.min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shared::mig::Place;
    use shared::names::DeviceId;
    use tokio::time::Instant;

    use super::*;
    use crate::gpus::fake::Fake;
    use crate::gpus::{Gpus as _, Instance};
    use crate::inventory::{Held, SliceState};

    fn usage(uuid: &str, activity: Option<f64>) -> Usage {
        Usage {
            uuid: uuid.to_owned(),
            activity,
            memory: None,
        }
    }

    /// GPUs in MIG mode; each with its slices, `+` before those that are held.
    fn state(gpus: &[&[&str]]) -> State {
        let mut state = State::default();
        let count = u32::try_from(gpus.len()).unwrap();
        let infos = Fake::node("H100-80GB", count).list().unwrap();
        for (index, (info, slices)) in infos.into_iter().zip(gpus).enumerate() {
            let mut gpu = Gpu {
                info,
                slices: BTreeMap::new(),
                health: Health::Healthy,
                message: String::new(),
            };
            for text in *slices {
                let place: Place = text.trim_start_matches('+').parse().unwrap();
                if text.starts_with('+') {
                    hold(
                        &mut state,
                        &DeviceId::new(gpu.info.uuid.clone(), place).to_string(),
                    );
                }
                let instance = Instance {
                    place,
                    gi: 1,
                    ci: Some(0),
                    uuid: format!("MIG-{index}-{place}"),
                    partial: 0,
                };
                gpu.slices
                    .insert(place, SliceState::new(instance, Instant::now()));
            }
            state.gpus.push(gpu);
        }
        state
    }

    fn hold(state: &mut State, id: &str) {
        let held = Held::new("r", 1, Instant::now());
        state.held.insert(id.to_owned(), held);
    }

    fn read(usages: &[(&str, Option<f64>)]) -> BTreeMap<String, Usage> {
        let usages = usages.iter().map(|(uuid, activity)| usage(uuid, *activity));
        settle(usages).0
    }

    fn unread(uuid: &str) -> Result<f64, Unknown> {
        Err(Unknown::Unread(uuid.to_owned()))
    }

    #[test]
    fn a_slice_counts_by_its_compute_slices_and_each_gpu_the_same() {
        let half = [("MIG-0-3g.40gb:4", Some(0.5))];
        let both = [("MIG-0-3g.40gb:4", Some(0.5)), ("MIG-1-7g.80gb:0", Some(1.0))];
        for (gpus, usages, expected) in [
            (vec![&["+3g.40gb:4"][..]], &half[..], Ok(0.5 * 3.0 / 7.0)),
            (
                vec![&["+3g.40gb:4"][..], &[]],
                &half[..],
                Ok(0.5 * 3.0 / 7.0 / 2.0),
            ),
            (
                vec![&["+3g.40gb:4"][..], &["+7g.80gb:0"]],
                &both[..],
                Ok((0.5 * 3.0 / 7.0 + 1.0) / 2.0),
            ),
            // nobody holds it, and nothing was read
            (
                vec![&["+3g.40gb:4", "1g.10gb:0"][..]],
                &half[..],
                Ok(0.5 * 3.0 / 7.0),
            ),
            // a process that outlived its pod is load too
            (vec![&["3g.40gb:4"][..]], &half[..], Ok(0.5 * 3.0 / 7.0)),
            // somebody holds it
            (
                vec![&["+3g.40gb:4", "+1g.10gb:0"][..]],
                &half[..],
                unread("MIG-0-1g.10gb:0"),
            ),
            (vec![&[][..]], &[], Ok(0.0)),
            (vec![], &[], Err(Unknown::NoGpu)),
        ] {
            match (load(&state(&gpus), &read(usages)), expected) {
                (Ok(found), Ok(expected)) => assert!((found - expected).abs() < 1e-12, "{gpus:?}: {found}"),
                (found, expected) => assert_eq!(found, expected, "{gpus:?}"),
            }
        }
    }

    #[test]
    fn slices_are_held_by_their_own_uuid_and_by_that_of_their_gpu_too() {
        let mut state = state(&[&["3g.40gb:4"]]);
        assert_eq!(load(&state, &BTreeMap::new()), Ok(0.0));
        hold(&mut state, "MIG-0-3g.40gb:4");
        assert_eq!(load(&state, &BTreeMap::new()), unread("MIG-0-3g.40gb:4"));
        state.held.clear();
        let gpu = state.gpus[0].info.uuid.clone();
        hold(&mut state, &gpu);
        assert_eq!(load(&state, &BTreeMap::new()), unread("MIG-0-3g.40gb:4"));
    }

    #[test]
    fn a_gpu_without_mig_is_as_busy_as_it_is_and_one_that_is_ill_does_not_count() {
        let mut state = state(&[&["+3g.40gb:4"], &[]]);
        state.gpus[1].info.mig = false;
        state.gpus[0].health = Health::Suspect;
        let gpu = state.gpus[1].info.uuid.clone();
        assert_eq!(load(&state, &read(&[(&gpu, Some(0.75))])), Ok(0.75));
        assert_eq!(load(&state, &read(&[(&gpu, None)])), Ok(0.0), "nobody has it");
        hold(&mut state, &gpu);
        assert_eq!(load(&state, &read(&[(&gpu, None)])), unread(&gpu));
        state.gpus[1].health = Health::Unhealthy;
        assert_eq!(load(&state, &BTreeMap::new()), Err(Unknown::NoGpu));
    }

    #[test]
    fn what_is_out_of_range_is_clamped_and_counted_and_no_number_is_not_read() {
        for (told, settled, counted) in [
            (Some(0.0), Some(0.0), 0),
            (Some(1.0), Some(1.0), 0),
            (Some(1.5), Some(1.0), 1),
            (Some(-0.1), Some(0.0), 1),
            (Some(f64::INFINITY), Some(1.0), 1),
            (Some(f64::NAN), None, 0),
            (None, None, 0),
        ] {
            let (usages, clamped) = settle([usage("MIG-1", told)]);
            assert_eq!(
                (usages["MIG-1"].activity, clamped),
                (settled, counted),
                "{told:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_load_is_a_share_and_grows_with_every_activity(
            told in prop::collection::vec(-1.0_f64..2.0, 7), more in 0_usize..7,
        ) {
            let places: Vec<String> = (0..7).map(|start| format!("+1g.10gb:{start}")).collect();
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            let state = state(&[&places]);
            let of = |told: &[f64]| {
                let read = told.iter().enumerate();
                let read = read.map(|(start, activity)| usage(&format!("MIG-0-1g.10gb:{start}"), Some(*activity)));
                load(&state, &settle(read).0).unwrap()
            };
            let before = of(&told);
            let mut busier = told.clone();
            busier[more] += 0.5;
            prop_assert!((0.0..=1.0).contains(&before) && of(&busier) >= before);
            let mean = told.iter().map(|activity| activity.clamp(0.0, 1.0)).sum::<f64>() / 7.0;
            prop_assert!((before - mean).abs() < 1e-12);
        }
    }
}
