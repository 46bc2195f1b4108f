//! What a placement costs the pool. The measure is the expected fragment (FGD's idea, carried to start indexes):
//! for occupancy `m` with `f` free memory slices, `E(m) = sum over profiles p of mix(p) * (f - size(p) * fit(p, m))`,
//! where `fit` is how many `p` still go in and `mix` is the demand expected. A placement costs `E(after) - E(before)`
//! plus a small price for every free slice of its GPU, which keeps empty GPUs empty.
//!
//! All of it is tabled over the occupancy masks of a board, so a decision is a look-up.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mig::layout::{plain, window};
use crate::mig::{Board, Profile};
use crate::policy::Policy;

/// A cost in millionths of a memory slice: whole numbers, so that the order is exact.
pub type Cost = i64;

/// The demand expected: arrivals by profile, each worth half as much after a half-life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    arrivals: BTreeMap<Profile, f64>,
    /// Time of the last arrival, seconds; weights are as of then.
    as_of: f64,
}

/// Costs on every kind of board there is.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    boards: Vec<(Arc<Board>, BoardTable)>,
}

/// Costs on one kind of board.
#[derive(Clone, Debug)]
pub struct BoardTable {
    /// By row of the board, then by mask: the best start and its cost, where there is one.
    best: Vec<Vec<Option<(Cost, u8)>>>,
    /// By mask: the expected fragment.
    fragment: Vec<Cost>,
    /// Price of a free slice.
    keep_empty: Cost,
    /// By row: whether a free window is all it takes, so that no limit of the board has to be looked at.
    window_is_all: Vec<bool>,
}

impl Demand {
    /// Counts an arrival at `now` seconds (any epoch, the same for all calls).
    pub fn record(&mut self, profile: Profile, count: u32, now: f64, half_life_seconds: f64) {
        let fade = 0.5_f64.powf((now - self.as_of).max(0.0) / half_life_seconds.max(1.0));
        for weight in self.arrivals.values_mut() {
            *weight *= fade;
        }
        self.as_of = self.as_of.max(now);
        *self.arrivals.entry(profile).or_default() += f64::from(count);
    }

    /// The mix expected on a board: shares of its plain profiles, in the order of [`plain`], with one arrival of
    /// each assumed beforehand, so that what was never seen keeps a little weight.
    #[must_use]
    pub fn mix(&self, board: &Board) -> Vec<f64> {
        let seen = |profile| self.arrivals.get(&profile).copied().unwrap_or(0.0) + 1.0;
        let weights: Vec<f64> = plain(board).map(|row| seen(row.profile)).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }
}

impl Tables {
    /// Tables for these boards; equal boards share one.
    #[must_use]
    pub fn new<'a>(
        boards: impl IntoIterator<Item = &'a Arc<Board>>,
        demand: &Demand,
        policy: &Policy,
    ) -> Self {
        let mut tables = Self::default();
        for board in boards {
            if tables.of(board).is_none() {
                tables.boards.push((
                    Arc::clone(board),
                    BoardTable::new(board, &demand.mix(board), policy),
                ));
            }
        }
        tables
    }

    /// The table of a board.
    #[must_use]
    pub fn of(&self, board: &Arc<Board>) -> Option<&BoardTable> {
        let same = self.boards.iter().find(|(known, _)| Arc::ptr_eq(known, board));
        same.or_else(|| self.boards.iter().find(|(known, _)| known == board))
            .map(|(_, table)| table)
    }
}

impl BoardTable {
    /// The table of a board under a mix of its plain profiles.
    #[must_use]
    pub fn new(board: &Board, mix: &[f64], policy: &Policy) -> Self {
        let masks = 1_u32 << board.memory_slices.min(16);
        let fragment: Vec<Cost> = (0..masks).map(|mask| fragment(board, mix, mask as u16)).collect();
        let keep_empty = Cost::from(policy.best_fit_weight_milli) * 1_000;
        let compute_binds = most_compute(board) > u32::from(board.compute_slices);
        let window_is_all = board.profiles.iter().map(|row| {
            let plain = !row.profile.takes_media_extensions();
            plain && !compute_binds && usize::from(row.max) >= row.starts.len()
        });
        let mut table = Self {
            best: Vec::new(),
            fragment,
            keep_empty,
            window_is_all: window_is_all.collect(),
        };
        let best = |row: &crate::mig::ProfileRow, mask: u16| {
            let free = row
                .starts
                .iter()
                .filter(|start| mask & window(row.size, **start) == 0);
            // of equal costs the highest start: the low half stays open for large slices
            free.map(|start| (table.cost(mask, window(row.size, *start)), *start))
                .min_by_key(|(cost, start)| (*cost, std::cmp::Reverse(*start)))
        };
        let rows = board
            .profiles
            .iter()
            .map(|row| (0..masks).map(|mask| best(row, mask as u16)).collect());
        table.best = rows.collect();
        table
    }

    /// What it costs to cover `window` on a GPU occupied as `mask`.
    #[must_use]
    pub fn cost(&self, mask: u16, window: u16) -> Cost {
        let at = |mask: u16| self.fragment.get(usize::from(mask)).copied().unwrap_or_default();
        let slices = self.fragment.len().trailing_zeros();
        let free = Cost::from(slices) - Cost::from(mask.count_ones());
        at(mask | window) - at(mask) + self.keep_empty * free
    }

    /// The best start for the board's profile in row `row` on a GPU occupied as `mask`, by windows alone: limits
    /// that a mask does not show (compute slices, maxima) are the caller's to check.
    #[must_use]
    pub fn best(&self, row: usize, mask: u16) -> Option<(Cost, u8)> {
        *self.best.get(row)?.get(usize::from(mask))?
    }

    /// Whether a free window is all that a slice of row `row` needs on any legal layout.
    #[must_use]
    pub fn window_is_all(&self, row: usize) -> bool {
        self.window_is_all.get(row).copied().unwrap_or(false)
    }

    /// The expected fragment of a GPU occupied as `mask`.
    #[must_use]
    pub fn fragment(&self, mask: u16) -> Cost {
        self.fragment.get(usize::from(mask)).copied().unwrap_or_default()
    }
}

/// The most compute slices that slices without overlap can take together.
fn most_compute(board: &Board) -> u32 {
    let places: Vec<(usize, u32)> = board
        .profiles
        .iter()
        .flat_map(|row| {
            let compute = u32::from(row.profile.compute);
            row.starts
                .iter()
                .map(move |start| (usize::from(window(row.size, *start)), compute))
        })
        .collect();
    let mut most = vec![0_u32; 1 << board.memory_slices.min(16)];
    for mask in 1..most.len() {
        let inside = places.iter().filter(|(bits, _)| mask & bits == *bits);
        most[mask] = inside
            .map(|(bits, compute)| most[mask ^ bits] + compute)
            .max()
            .unwrap_or(0);
    }
    most.into_iter().max().unwrap_or(0)
}

/// `E(m)`, in millionths of a slice.
fn fragment(board: &Board, mix: &[f64], mask: u16) -> Cost {
    let free = f64::from(u32::from(board.memory_slices).saturating_sub(mask.count_ones()));
    let expected: f64 = plain(board)
        .zip(mix)
        .map(|(row, share)| {
            // windows of one profile never overlap, so free starts are slices that still go in
            let fit = row
                .starts
                .iter()
                .filter(|start| mask & window(row.size, **start) == 0)
                .count();
            share * (free - f64::from(row.size) * fit.min(usize::from(row.max)) as f64)
        })
        .sum();
    (expected * 1e6).round() as Cost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(demand: &Demand) -> (Board, BoardTable) {
        let board = Board::named("H100-80GB").unwrap().clone();
        let table = BoardTable::new(&board, &demand.mix(&board), &Policy::default());
        (board, table)
    }

    fn best(board: &Board, table: &BoardTable, profile: &str, mask: u16) -> Option<u8> {
        let row = board
            .profiles
            .iter()
            .position(|row| row.profile.to_string() == profile)
            .unwrap();
        table.best(row, mask).map(|(_, start)| start)
    }

    #[test]
    fn an_empty_gpu_is_filled_from_the_top() {
        let (board, table) = table(&Demand::default());
        assert_eq!(best(&board, &table, "1g.10gb", 0), Some(6));
        assert_eq!(best(&board, &table, "1g.20gb", 0), Some(6));
        assert_eq!(best(&board, &table, "2g.20gb", 0), Some(4));
        assert_eq!(best(&board, &table, "3g.40gb", 0), Some(4));
        assert_eq!(best(&board, &table, "7g.80gb", 1), None);
    }

    #[test]
    fn a_gpu_that_is_partly_used_costs_less_than_an_empty_one() {
        let (_, table) = table(&Demand::default());
        // 1g at 5 beside one at 6, against 1g at 6 on an empty GPU
        assert!(table.cost(0b0100_0000, 0b0010_0000) < table.cost(0, 0b0100_0000));
    }

    #[test]
    fn a_free_window_is_all_that_plain_profiles_need_on_the_boards_we_know() {
        for board in crate::mig::board::catalogue() {
            assert_eq!(
                most_compute(board),
                u32::from(board.compute_slices),
                "{}",
                board.name
            );
            let table = BoardTable::new(board, &Demand::default().mix(board), &Policy::default());
            for (at, row) in board.profiles.iter().enumerate() {
                assert_eq!(
                    table.window_is_all(at),
                    !row.profile.takes_media_extensions(),
                    "{}",
                    row.profile
                );
            }
        }
    }

    #[test]
    fn demand_fades_by_half_in_a_half_life() {
        let (small, large): (Profile, Profile) = ("1g.10gb".parse().unwrap(), "7g.80gb".parse().unwrap());
        let mut demand = Demand::default();
        demand.record(small, 8, 0.0, 60.0);
        demand.record(large, 4, 60.0, 60.0);
        let board = Board::named("H100-80GB").unwrap();
        let mix = demand.mix(board);
        let share = |profile| mix[plain(board).position(|row| row.profile == profile).unwrap()];
        assert!((share(small) - share(large)).abs() < 1e-12);
        assert!((mix.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn time_that_runs_backwards_fades_nothing() {
        let profile: Profile = "1g.10gb".parse().unwrap();
        let mut demand = Demand::default();
        demand.record(profile, 1, 100.0, 60.0);
        demand.record(profile, 1, 50.0, 60.0);
        assert_eq!(demand.arrivals[&profile].to_bits(), 2.0_f64.to_bits());
    }
}
