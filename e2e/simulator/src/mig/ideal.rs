//! What the same load would use if slices had no geometry: all memory slices in one heap, a request let in while
//! enough of them are free. Exact (Kaufman and Roberts' recursion for complete sharing), so the gap of a policy to
//! it is what geometry costs.

use super::load::Mix;
use super::shapes::Shapes;

/// Share of all memory slices used.
#[must_use]
pub fn utilisation(shapes: &Shapes, mix: &Mix, load: f64, gpus: usize) -> f64 {
    let slices = gpus * usize::from(shapes.slices);
    let requests = load * slices as f64 / mix.mean_size(shapes);
    let classes: Vec<(usize, f64)> = shapes
        .each()
        .zip(mix.shares)
        .map(|(shape, share)| (usize::from(shape.size), share * requests))
        .collect();
    // unnormalised probability that so many are busy; scaled down on the way, since it grows like e^requests
    let mut weight = vec![1.0];
    for busy in 1..=slices {
        let term = |(size, offered): &(usize, f64)| {
            let before = busy.checked_sub(*size).map_or(0.0, |before| weight[before]);
            offered * *size as f64 * before
        };
        let next = classes.iter().map(term).sum::<f64>() / busy as f64;
        weight.push(next);
        if next > 1e200 {
            weight.iter_mut().for_each(|weight| *weight /= 1e200);
        }
    }
    let total: f64 = weight.iter().sum();
    let mean = weight
        .iter()
        .enumerate()
        .map(|(busy, weight)| busy as f64 * weight)
        .sum::<f64>()
        / total;
    mean / slices as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::load::MIXES;

    #[test]
    fn one_class_is_erlangs_loss_system() {
        // 7g alone on 10 GPUs at load 1: 10 erlangs on 10 servers block 21.46 %
        let whole = Mix {
            name: "whole",
            shares: [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        };
        let used = utilisation(&Shapes::h100(), &whole, 1.0, 10);
        assert!((used - (1.0 - 0.2146)).abs() < 1e-4, "{used}");
    }

    #[test]
    fn what_is_used_is_below_what_is_offered_and_rises_with_it() {
        let shapes = Shapes::h100();
        for mix in MIXES {
            let used: Vec<f64> = [0.7, 0.85, 1.0, 1.2]
                .map(|load| utilisation(&shapes, &mix, load, 100))
                .to_vec();
            assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "{used:?}");
            assert!(used[0] > 0.699 && used[3] < 1.0, "{used:?}");
        }
    }
}
