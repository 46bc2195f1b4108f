//! The rules against brute force on occupancy arrays, and against the layout counts that NVIDIA's tables give.

use proptest::prelude::*;

use super::*;
use crate::model;

/// Every legal set of places, by extending sets with later places only.
fn layouts(model: &Model, keep: fn(&Profile) -> bool) -> usize {
    fn grow<'m>(model: &Model, all: &[Place<'m>], held: &mut Vec<Place<'m>>) -> usize {
        let mut count = 1;
        for (index, place) in all.iter().enumerate() {
            if check(model, held, place).is_ok() {
                held.push(*place);
                count += grow(model, &all[index + 1..], held);
                held.pop();
            }
        }
        count
    }
    grow(model, &all_places(model, keep), &mut Vec::new())
}

fn all_places(model: &Model, keep: fn(&Profile) -> bool) -> Vec<Place<'_>> {
    let profiles = model.profiles.iter().filter(|profile| keep(profile));
    profiles
        .flat_map(|profile| {
            profile.starts.iter().map(move |start| Place {
                profile,
                start: *start,
            })
        })
        .collect()
}

/// The rules once more, by counting who sits in each slice.
fn legal_by_counting(model: &Model, places: &[Place<'_>]) -> bool {
    let mut slices = vec![0; model.memory_slices as usize];
    let mut of_profile = std::collections::BTreeMap::<u32, u32>::new();
    let (mut compute, mut media) = (0, 0);
    for place in places {
        for slice in place.start..place.start + place.profile.size {
            slices[slice as usize] += 1;
        }
        *of_profile.entry(place.profile.id).or_default() += 1;
        compute += place.profile.compute;
        media += u32::from(place.profile.takes_media());
    }
    let maxima = of_profile
        .iter()
        .all(|(id, count)| *count <= model.profile(*id).unwrap().max);
    slices.iter().all(|count| *count <= 1) && compute <= model.compute_slices && media <= 1 && maxima
}

#[test]
fn layout_counts_are_those_of_nvidias_tables() {
    let seven = Model::named("H100-80GB").unwrap();
    assert_eq!(
        layouts(seven, |profile| !profile.takes_media() && profile.nvml_enum != 9),
        298
    );
    assert_eq!(layouts(seven, |profile| !profile.takes_media()), 723);
    assert_eq!(layouts(seven, |_| true), 2319);
    // the A30's tables alone give 84; 8 of them have both +me profiles, for one set of media extensions
    let a30 = Model::named("A30-24GB").unwrap();
    assert_eq!(
        (
            layouts(a30, |profile| !profile.takes_media()),
            layouts(a30, |_| true)
        ),
        (26, 84 - 8)
    );
}

#[test]
fn instance_ids_start_where_the_driver_starts_and_are_used_again() {
    let model = Model::named("A100-40GB").unwrap();
    let gpu = Gpu::default();
    let ids = [8, 4, 2, 1].map(|size| gpu_instance_id(&gpu, model, size));
    assert_eq!(ids, [Some(0), Some(1), Some(3), Some(7)]);
}

#[test]
fn compute_instances_fill_their_gpu_instance() {
    for slices in [1, 2, 3, 4, 7] {
        let whole = compute_profiles(slices).last().unwrap();
        assert_eq!((whole.slices, compute_starts(whole, slices)), (slices, vec![0]));
    }
    assert_eq!(compute_starts(ComputeProfile { id: 1, slices: 2 }, 7), [0, 2, 4]);
    assert_eq!(compute_starts(ComputeProfile { id: 2, slices: 3 }, 7), [0, 4]);
}

proptest! {
    #[test]
    fn check_agrees_with_counting(board in 0..model::all().len(), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..14)) {
        let model = &model::all()[board];
        let all = all_places(model, |_| true);
        let mut held = Vec::new();
        for pick in picks {
            let place = *pick.get(&all);
            let mut then = held.clone();
            then.push(place);
            prop_assert_eq!(check(model, &held, &place).is_ok(), legal_by_counting(model, &then));
            if legal_by_counting(model, &then) {
                held = then;
            }
        }
        for profile in &model.profiles {
            let more = remaining(model, &held, profile);
            prop_assert_eq!(more > 0, first_fit(model, &held, profile).is_some());
            prop_assert!(more <= profile.max);
        }
    }
}
