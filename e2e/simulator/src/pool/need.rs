//! The least number of GPUs that gives a service, what a slice takes of a GPU, and what is saved.

use shared::mig::board::ProfileRow;
use shared::mig::{Board, Profile};

/// The least number from 1 to `most` for which `enough` says yes, if it does for any. `enough` is taken to say yes
/// to everything above a number it says yes to; looking starts at `guess`.
pub fn least(guess: usize, most: usize, mut enough: impl FnMut(usize) -> bool) -> Option<usize> {
    let most = most.max(1);
    let guess = guess.clamp(1, most);
    // (refused, enough]: steps double away from the guess until both ends are known
    let (mut low, mut high) = (0, most + 1);
    let mut step = 1;
    if enough(guess) {
        high = guess;
        while high > low + 1 {
            let next = high.saturating_sub(step).max(low + 1);
            if !enough(next) {
                low = next;
                break;
            }
            high = next;
            step *= 2;
        }
    } else {
        low = guess;
        while low < most {
            let next = (low + step).min(most);
            if enough(next) {
                high = next;
                break;
            }
            low = next;
            step *= 2;
        }
    }
    while high > low + 1 {
        let middle = low.midpoint(high);
        if high <= most && enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (high <= most).then_some(high)
}

/// How much of a GPU something takes, counted both ways: a GPU is full when either is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Of its compute slices.
    pub compute: f64,
    /// Of its memory slices.
    pub memory: f64,
}

impl Share {
    /// What one slice takes; nothing where the board has no such profile.
    #[must_use]
    pub fn of(board: &Board, profile: Profile) -> Self {
        board
            .row(profile)
            .map_or_else(Self::default, |row| Self::of_row(board, row))
    }

    /// What a slice of this row takes.
    #[must_use]
    pub fn of_row(board: &Board, row: &ProfileRow) -> Self {
        Self {
            compute: f64::from(row.profile.compute) / f64::from(board.compute_slices.max(1)),
            memory: f64::from(row.size) / f64::from(board.memory_slices.max(1)),
        }
    }

    /// Adds `weight` times another.
    pub fn add(&mut self, other: Self, weight: f64) {
        self.compute += weight * other.compute;
        self.memory += weight * other.memory;
    }

    /// GPUs that it fills at least.
    #[must_use]
    pub const fn gpus(self) -> f64 {
        self.compute.max(self.memory)
    }
}

/// What is saved by `now` against `before`, as a share.
#[must_use]
pub fn saving(now: f64, before: f64) -> f64 {
    if before > 0.0 { 1.0 - now / before } else { 0.0 }
}

/// Erlang's loss formula: the least number of servers that lets in so large a share of `offered` erlangs.
#[must_use]
pub fn servers(offered: f64, accept: f64) -> usize {
    let mut blocked = 1.0;
    let mut servers = 0;
    while 1.0 - blocked < accept {
        servers += 1;
        blocked = offered * blocked / (f64::from(servers) + offered * blocked);
    }
    servers as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_from_any_guess_with_few_questions() {
        for least_that_is_enough in 1..=60 {
            for guess in [1, 7, 30, 60, 500] {
                let mut asked = Vec::new();
                let found = least(guess, 60, |gpus| {
                    assert!(
                        (1..=60).contains(&gpus) && !asked.contains(&gpus),
                        "{gpus} of {asked:?}"
                    );
                    asked.push(gpus);
                    gpus >= least_that_is_enough
                });
                assert_eq!(found, Some(least_that_is_enough), "{guess}");
                assert!(asked.len() <= 13, "{asked:?}");
            }
        }
        assert_eq!(least(10, 20, |_| false), None);
        assert_eq!(least(10, 20, |_| true), Some(1));
    }

    #[test]
    fn the_formula_of_loss_gives_the_published_figures() {
        // 680 memory slices in requests of 3.5, 2.2, 5.2 and 3.9 on average
        let needed = [3.5, 2.2, 5.15, 3.9].map(|size| servers(680.0 / size, 0.99));
        assert_eq!(needed, [216, 333, 151, 195]);
        // 10 erlangs on 10 servers block 21.46 %
        assert_eq!((servers(10.0, 0.785), servers(10.0, 0.786)), (10, 11));
    }

    #[test]
    fn ceilings_are_the_known_ones() {
        let board = Board::named("H100-80GB").unwrap();
        let of = |name: &str| saving(Share::of(board, name.parse().unwrap()).gpus(), 1.0);
        assert!((of("1g.10gb") - 6.0 / 7.0).abs() < 1e-12);
        assert!((of("3g.40gb") - 0.5).abs() < 1e-12);
        assert_eq!(of("7g.80gb"), 0.0);
        // compute of one and memory of the other: both together fill more than either alone
        let mut both = Share::default();
        both.add(Share::of(board, "1g.20gb".parse().unwrap()), 2.0);
        both.add(Share::of(board, "4g.40gb".parse().unwrap()), 1.0);
        assert!((both.gpus() - 1.0).abs() < 1e-12);
    }
}
