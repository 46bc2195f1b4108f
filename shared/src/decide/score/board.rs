//! Costs on one kind of board, for every occupancy.

use super::Cost;
use crate::mig::Board;
use crate::mig::layout::{plain, window};
use crate::policy::Policy;

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
    /// By row: how far apart the costs of a slice can be.
    span: Vec<Cost>,
    /// By row: what it costs to take this board where others would do.
    pressure: Vec<Cost>,
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
            span: Vec::new(),
            pressure: vec![0; board.profiles.len()],
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
        table.span = table.best.iter().map(|costs| span(costs)).collect();
        table
    }

    /// Says what a slice costs, by row, because this board is one that others would do for.
    pub(super) fn press(&mut self, pressure: Vec<Cost>) {
        self.pressure = pressure;
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

    /// What a slice of row `row` costs beyond its window, because this board is one that others would do for.
    #[must_use]
    pub fn pressure(&self, row: usize) -> Cost {
        self.pressure.get(row).copied().unwrap_or_default()
    }

    /// How far apart the costs of a slice of row `row` can be, over all that may be on a GPU.
    #[must_use]
    pub fn span(&self, row: usize) -> Cost {
        self.span.get(row).copied().unwrap_or_default()
    }

    /// The expected fragment of a GPU occupied as `mask`.
    #[must_use]
    pub fn fragment(&self, mask: u16) -> Cost {
        self.fragment.get(usize::from(mask)).copied().unwrap_or_default()
    }
}

/// From the least to the greatest of these costs.
fn span(costs: &[Option<(Cost, u8)>]) -> Cost {
    let costs = || costs.iter().flatten().map(|(cost, _)| *cost);
    costs().max().unwrap_or_default() - costs().min().unwrap_or_default()
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
    use crate::decide::score::Demand;

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
}
