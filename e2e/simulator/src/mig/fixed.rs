//! Static layouts: slices that are cut once and never again. The layout is the best found for a known mix, so that
//! what is compared against is static partitioning at its best. A request may take a larger idle slice.

use std::collections::BTreeMap;

use shared::mig::layout::enumerate;
use shared::mig::profile::Media;

use super::engine::{Fleet, Outcome, Seat};
use super::load::Mix;
use super::shapes::{CLASSES, Shapes};

/// The slices of one GPU: (profile, start).
pub type Cut = Vec<(usize, u8)>;

/// GPUs with slices that stay.
#[derive(Clone, Debug)]
pub struct FixedFleet {
    /// Idle slices by profile.
    idle: Vec<Vec<Seat>>,
    /// Where each request sits: (profile of the slice, seat), by number.
    seats: Vec<Option<(usize, Seat)>>,
    /// Used slices by GPU.
    used: Vec<u32>,
}

impl FixedFleet {
    /// One cut for each GPU.
    #[must_use]
    pub fn new(cuts: &[Cut]) -> Self {
        let mut idle = vec![Vec::new(); CLASSES];
        for (gpu, cut) in cuts.iter().enumerate().rev() {
            for (class, start) in cut {
                idle[*class].push(Seat { gpu, start: *start });
            }
        }
        Self {
            idle,
            seats: Vec::new(),
            used: vec![0; cuts.len()],
        }
    }
}

impl Fleet for FixedFleet {
    fn arrive(&mut self, _: f64, pod: usize, class: usize) -> Outcome {
        // profiles are ordered so that each later one has at least the memory and compute of those before it
        let Some(from) = (class..CLASSES).find(|larger| !self.idle[*larger].is_empty()) else {
            return Outcome::default();
        };
        let seat = self.idle[from].pop();
        if let Some(seat) = seat {
            if self.seats.len() <= pod {
                self.seats.resize(pod + 1, None);
            }
            self.seats[pod] = Some((from, seat));
            self.used[seat.gpu] += 1;
        }
        Outcome {
            seat,
            moved: Vec::new(),
        }
    }

    fn depart(&mut self, _: f64, pod: usize) {
        if let Some((class, seat)) = self.seats.get_mut(pod).and_then(Option::take) {
            self.idle[class].push(seat);
            self.used[seat.gpu] -= 1;
        }
    }

    fn active(&self) -> usize {
        self.used.iter().filter(|used| **used > 0).count()
    }
}

/// All cuts to which nothing can be added, each multiset of profiles once.
#[must_use]
pub fn maximal_cuts(shapes: &Shapes) -> Vec<Cut> {
    let class_of = |profile| shapes.each().position(|shape| shape.profile == profile);
    let mut found: BTreeMap<Vec<usize>, Cut> = BTreeMap::new();
    for layout in enumerate(&shapes.board, |profile| profile.media == Media::Plain) {
        let full = shapes
            .each()
            .all(|shape| layout.free_places(&shapes.board, shape.profile).is_empty());
        let cut = layout
            .slices()
            .iter()
            .map(|slice| Some((class_of(slice.place.profile)?, slice.place.start)));
        if let Some(cut) = cut.collect::<Option<Cut>>().filter(|_| full) {
            let mut classes: Vec<usize> = cut.iter().map(|(class, _)| *class).collect();
            classes.sort_unstable();
            found.entry(classes).or_insert(cut);
        }
    }
    found.into_values().collect()
}

/// The best static layout for a mix: one GPU after the other gets the cut by which most is let in, by Erlang's
/// loss formula for each profile alone.
#[must_use]
pub fn tuned(shapes: &Shapes, mix: &Mix, load: f64, gpus: usize) -> Vec<Cut> {
    let cuts = maximal_cuts(shapes);
    let requests = load * gpus as f64 * f64::from(shapes.slices) / mix.mean_size(shapes);
    let offered: Vec<f64> = mix.shares.iter().map(|share| share * requests).collect();
    let most = gpus * usize::from(shapes.slices);
    // slices busy of so many, by profile, weighted by size
    let busy: Vec<Vec<f64>> = (0..CLASSES)
        .map(|class| {
            carried(offered[class], most)
                .map(|carried| carried * f64::from(shapes.shape(class).size))
                .collect()
        })
        .collect();
    let mut have = [0; CLASSES];
    let mut chosen = Vec::new();
    for _ in 0..gpus {
        let gain = |cut: &Cut| {
            let mut more = have;
            for (class, _) in cut {
                more[*class] += 1;
            }
            (0..CLASSES)
                .map(|class| busy[class][more[class]] - busy[class][have[class]])
                .sum::<f64>()
        };
        let Some(best) = cuts.iter().max_by(|a, b| gain(a).total_cmp(&gain(b))) else {
            return chosen;
        };
        for (class, _) in best {
            have[*class] += 1;
        }
        chosen.push(best.clone());
    }
    chosen
}

/// Erlang-B: how many of 0, 1, 2, ... slices are busy on average when `offered` are asked for.
fn carried(offered: f64, most: usize) -> impl Iterator<Item = f64> {
    (0..=most).scan(1.0, move |blocked, slices| {
        if slices > 0 {
            *blocked = offered * *blocked / (slices as f64 + offered * *blocked);
        }
        Some(offered * (1.0 - *blocked))
    })
}

/// A quarter of the GPUs each: seven 1g; 2-2-2-1; 4-3; 7.
#[must_use]
pub fn quarters(gpus: usize) -> Vec<Cut> {
    let cuts: [Cut; 4] = [
        (0..7).map(|start| (0, start)).collect(),
        vec![(2, 0), (2, 2), (2, 4), (0, 6)],
        vec![(4, 0), (3, 4)],
        vec![(5, 0)],
    ];
    (0..gpus).map(|gpu| cuts[gpu * 4 / gpus.max(1)].clone()).collect()
}

/// No MIG: every request has a GPU to itself.
#[must_use]
pub fn whole(gpus: usize) -> Vec<Cut> {
    vec![vec![(5, 0)]; gpus]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::load::MIXES;

    #[test]
    fn erlang_b_gives_its_tabled_value() {
        // 10 erlangs on 10 servers block 21.46 %
        let carried: Vec<f64> = carried(10.0, 10).collect();
        assert!((carried[10] - 10.0 * (1.0 - 0.2146)).abs() < 1e-3, "{carried:?}");
        assert_eq!(carried[0], 0.0);
    }

    #[test]
    fn there_are_cuts_for_every_profile_and_all_are_full_and_legal() {
        let shapes = Shapes::h100();
        for cut in maximal_cuts(&shapes) {
            let mut mask = 0;
            for (class, start) in &cut {
                let window = shapes.window(*class, *start);
                assert_eq!(mask & window, 0, "{cut:?}");
                mask |= window;
            }
            for class in 0..CLASSES {
                assert_eq!(shapes.fit(class, mask), 0, "{cut:?}");
            }
        }
    }

    #[test]
    fn a_tuned_layout_has_what_its_mix_asks_for() {
        let shapes = Shapes::h100();
        let count = |mix, class| {
            let cuts = tuned(&shapes, mix, 0.85, 100);
            assert_eq!(cuts.len(), 100);
            cuts.iter().flatten().filter(|(other, _)| *other == class).count()
        };
        // skew-small asks for 109 1g.10gb and 14 7g.80gb at a time, skew-big for 7 and 54
        assert!(count(&MIXES[1], 0) > 100 && count(&MIXES[1], 5) < 30);
        assert!(count(&MIXES[2], 0) < 30 && count(&MIXES[2], 5) > 45);
    }

    #[test]
    fn a_larger_idle_slice_serves_and_comes_back() {
        let mut fleet = FixedFleet::new(&quarters(4));
        let whole = Seat { gpu: 3, start: 0 };
        assert_eq!(fleet.arrive(0.0, 0, 5).seat, Some(whole));
        assert_eq!(fleet.arrive(0.0, 1, 5).seat, None);
        fleet.depart(1.0, 0);
        assert_eq!(fleet.arrive(1.0, 2, 4).seat, Some(Seat { gpu: 2, start: 0 }));
        assert_eq!(fleet.arrive(1.0, 3, 4).seat, Some(whole));
        assert_eq!(fleet.active(), 2);
    }
}
