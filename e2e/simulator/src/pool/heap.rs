//! What the same load would need if slices had no geometry: all memory in one heap, or all compute, a request let in
//! while enough is free. Exact (Kaufman and Roberts' recursion), so the gap to it is what geometry costs. It lets in
//! all that fits; a policy that refuses large requests could let in more of them by count.

use super::need::least;
use crate::mig::load::Mix;
use crate::mig::shapes::{CLASSES, Shapes};

/// The least GPUs on which a heap lets in so large a share of the requests, by count: the larger of what memory and
/// compute need.
#[must_use]
pub fn gpus(shapes: &Shapes, mix: &Mix, workloads: f64, accept: f64) -> Option<usize> {
    let memory: Vec<usize> = shapes.each().map(|shape| usize::from(shape.size)).collect();
    let compute: Vec<usize> = shapes
        .each()
        .map(|shape| usize::from(shape.profile.compute))
        .collect();
    let board = &shapes.board;
    let of = |sizes: &[usize], slices: u8| {
        let mean: f64 = sizes
            .iter()
            .zip(mix.shares)
            .map(|(size, share)| *size as f64 * share)
            .sum();
        let full = workloads * mean / f64::from(slices);
        least(full.ceil() as usize, (4.0 * full).ceil() as usize + 8, |gpus| {
            accepted(sizes, mix, workloads, gpus * usize::from(slices)) >= accept
        })
    };
    Some(of(&memory, board.memory_slices)?.max(of(&compute, board.compute_slices)?))
}

/// The share of requests that a heap of `slices` lets in.
fn accepted(sizes: &[usize], mix: &Mix, workloads: f64, slices: usize) -> f64 {
    // unnormalised probability that so many are busy; scaled down on the way, since it grows like e^workloads
    let mut weight = vec![1.0];
    for busy in 1..=slices {
        let term = |class: usize| {
            let before = busy
                .checked_sub(sizes[class])
                .map_or(0.0, |before| weight[before]);
            workloads * mix.shares[class] * sizes[class] as f64 * before
        };
        let next = (0..CLASSES).map(term).sum::<f64>() / busy as f64;
        weight.push(next);
        if next > 1e200 {
            weight.iter_mut().for_each(|weight| *weight /= 1e200);
        }
    }
    let total: f64 = weight.iter().sum();
    let fits = |class: usize| {
        weight[..(slices + 1).saturating_sub(sizes[class])]
            .iter()
            .sum::<f64>()
            / total
    };
    (0..CLASSES).map(|class| mix.shares[class] * fits(class)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::load::MIXES;
    use crate::pool::need::servers;

    #[test]
    fn one_class_is_erlangs_loss_system() {
        let shapes = Shapes::h100();
        let only = |class: usize| {
            let mut shares = [0.0; CLASSES];
            shares[class] = 1.0;
            Mix { name: "one", shares }
        };
        // seven 1g fill the compute of a GPU, one 7g all of it
        assert_eq!(gpus(&shapes, &only(5), 50.0, 0.99), Some(servers(50.0, 0.99)));
        assert_eq!(
            gpus(&shapes, &only(0), 50.0, 0.99),
            Some(servers(50.0, 0.99).div_ceil(7))
        );
    }

    #[test]
    fn a_heap_needs_more_than_the_load_fills_and_less_than_a_gpu_each() {
        let shapes = Shapes::h100();
        let needs = MIXES.map(|mix| gpus(&shapes, &mix, 680.0 / mix.mean_size(&shapes), 0.99).unwrap());
        assert_eq!(needs, [96, 93, 98, 97]);
    }
}
