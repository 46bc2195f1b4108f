//! The order in which pods arrive: the paper's "tuned" workload. The list is shuffled and stretched, or cut, until
//! it asks for 1.3 times the GPUs there are.

use shared::decide::pack::Ask;

use crate::random::Random;

/// GPUs asked for in the end, as a share of those there are.
pub const STRETCH: f64 = 1.3;

/// The pods of a list in the order of their arrival.
#[must_use]
pub fn arrivals(list: &[Ask], capacity_milli: u64, seed: u64) -> Vec<Ask> {
    let mut random = Random::new(seed);
    let mut pods = list.to_vec();
    random.shuffle(&mut pods);
    let target = (capacity_milli as f64 * STRETCH) as u64;
    let mut total: u64 = pods.iter().map(Ask::gpu_milli).sum();
    while total > target && !pods.is_empty() {
        let gone = pods.swap_remove(random.below(pods.len()));
        total -= gone.gpu_milli();
    }
    // a list that asks for no GPU can be stretched for ever
    while !list.is_empty() && list.iter().any(|ask| ask.gpus > 0) {
        let copy = list[random.below(list.len())];
        // the authors look at the share of one GPU here, which overshoots by a few GPUs at most
        if total + u64::from(copy.share_milli) > target {
            break;
        }
        total += copy.gpu_milli();
        pods.push(copy);
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u32) -> Ask {
        Ask {
            cpu_milli: 1_000,
            gpus,
            share_milli: if gpus == 0 { 0 } else { 1_000 },
            ..Ask::default()
        }
    }

    #[test]
    fn a_list_is_stretched_or_cut_to_the_target() {
        let short: Vec<Ask> = [0, 1, 1, 1, 8].map(ask).to_vec();
        let long = vec![ask(8); 400];
        for list in [short, long] {
            let pods = arrivals(&list, 1_000_000, 7);
            let total: u64 = pods.iter().map(Ask::gpu_milli).sum();
            assert!((1_290_000..=1_307_000).contains(&total), "{total}");
            assert_eq!(pods, arrivals(&list, 1_000_000, 7));
            assert_ne!(pods.len(), list.len());
        }
        assert_eq!(arrivals(&[ask(0)], 1_000_000, 7).len(), 1);
    }
}
