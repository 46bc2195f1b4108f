//! What a placement costs the pool. The measure is the expected fragment (FGD's idea, carried to start indexes):
//! for occupancy `m` with `f` free memory slices, `E(m) = sum over profiles p of mix(p) * (f - size(p) * fit(p, m))`,
//! where `fit` is how many `p` still go in and `mix` is the demand expected. A placement costs `E(after) - E(before)`
//! plus a small price for every free slice of its GPU, which keeps empty GPUs empty.
//!
//! All of it is tabled over the occupancy masks of a board, so a decision is a look-up.
//!
//! * [`board`] - the table of a board
//! * [`demand`] - what is expected to be asked
//! * [`stock`] - racks and models of the pool
//!
//! Where several boards offer a profile, one that other demand cannot do without costs more: each memory slice of it
//! by the share of the demand, in slices, that only this board can take. The tables also carry what
//! [`super::place`] needs for the terms of whole nodes.

pub mod board;
pub mod demand;
pub mod stock;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use board::BoardTable;
pub use demand::Demand;
pub use stock::Stock;

use super::pack::{Ask, WHOLE, Workload};
use crate::mig::{Board, Profile};
use crate::policy::{BOARD_PRESSURE_WEIGHT, FORECAST_MOST_PERCENT, MIX_MOVED, Policy};

/// A cost in millionths of a memory slice: whole numbers, so that the order is exact.
pub type Cost = i64;

/// Costs on every kind of board there is, for the mix that was expected when they were made.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    boards: Vec<(Arc<Board>, Vec<f64>, BoardTable)>,
    /// What pods with whole GPUs are expected to ask, and what follows from it.
    asks: BTreeMap<Ask, f64>,
    workload: Workload,
    /// CPU that goes with a memory slice, thousandths of a core; 0 where it is not known.
    slice_cpu_milli: f64,
    stock: Stock,
    forecast_percent: Cost,
}

impl Tables {
    /// Tables for these boards; equal boards share one. Nothing is known of racks and models.
    #[must_use]
    pub fn new<'a>(
        boards: impl IntoIterator<Item = &'a Arc<Board>>,
        demand: &Demand,
        policy: &Policy,
    ) -> Self {
        Self::of_pool(boards, demand, &Stock::default(), policy)
    }

    /// Tables for the boards of a pool.
    #[must_use]
    pub fn of_pool<'a>(
        boards: impl IntoIterator<Item = &'a Arc<Board>>,
        demand: &Demand,
        stock: &Stock,
        policy: &Policy,
    ) -> Self {
        let asks = demand.asks();
        let mut tables = Self {
            workload: workload(&asks, stock),
            asks,
            stock: stock.clone(),
            forecast_percent: Cost::from(policy.forecast_weight_percent.min(FORECAST_MOST_PERCENT)),
            ..Self::default()
        };
        for board in boards {
            if tables.of(board).is_none() {
                let mix = demand.mix(board);
                let table = BoardTable::new(board, &mix, policy);
                tables.boards.push((Arc::clone(board), mix, table));
            }
        }
        tables.slice_cpu_milli = tables.slice_cpu_milli(demand);
        let pressures: Vec<Vec<Cost>> = tables
            .boards
            .iter()
            .map(|(board, ..)| tables.pressure(board, demand))
            .collect();
        for ((.., table), pressure) in tables.boards.iter_mut().zip(pressures) {
            table.press(pressure);
        }
        tables
    }

    /// The table of a board.
    #[must_use]
    pub fn of(&self, board: &Arc<Board>) -> Option<&BoardTable> {
        let same = self.boards.iter().find(|(known, ..)| Arc::ptr_eq(known, board));
        same.or_else(|| self.boards.iter().find(|(known, ..)| known == board))
            .map(|(.., table)| table)
    }

    /// What pods with whole GPUs are expected to ask.
    #[must_use]
    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// CPU that goes with a memory slice, thousandths of a core, where it is known.
    #[must_use]
    pub fn cpu_of_a_slice(&self) -> Option<u64> {
        (self.slice_cpu_milli >= 1.0).then_some(self.slice_cpu_milli as u64)
    }

    /// Whether pods have nothing in a rack.
    #[must_use]
    pub fn is_free_rack(&self, rack: &str) -> bool {
        self.stock.is_free(rack)
    }

    /// The number by which the workload knows a model.
    #[must_use]
    pub fn model(&self, name: Option<&str>) -> u32 {
        self.stock.model(name)
    }

    /// Share of a node's score that may come from the forecast, percent.
    #[must_use]
    pub const fn forecast_percent(&self) -> Cost {
        self.forecast_percent
    }

    /// Whether the demand has moved so far from the one they were made for that they should be made anew. A question
    /// of what arrived and not of the clock: a run that is played again decides as it did.
    #[must_use]
    pub fn is_behind(&self, demand: &Demand) -> bool {
        let moved = |(board, then, _): &(Arc<Board>, Vec<f64>, BoardTable)| {
            let now = demand.mix(board);
            let apart: f64 = now.iter().zip(then).map(|(now, then)| (now - then).abs()).sum();
            apart / 2.0 > MIX_MOVED
        };
        self.boards.iter().any(moved) || self.asks_moved(demand) || self.slice_cpu_moved(demand)
    }

    fn asks_moved(&self, demand: &Demand) -> bool {
        let now = demand.asks();
        let of = |shares: &BTreeMap<Ask, f64>, ask| shares.get(ask).copied().unwrap_or(0.0);
        let gone = self.asks.keys().filter(|ask| !now.contains_key(ask));
        let asks = now.keys().chain(gone);
        let apart: f64 = asks.map(|ask| (of(&now, ask) - of(&self.asks, ask)).abs()).sum();
        apart / 2.0 > MIX_MOVED
    }

    fn slice_cpu_moved(&self, demand: &Demand) -> bool {
        let now = self.slice_cpu_milli(demand);
        (now - self.slice_cpu_milli).abs() > MIX_MOVED * now.max(self.slice_cpu_milli)
    }

    fn slice_cpu_milli(&self, demand: &Demand) -> f64 {
        let slices: f64 = demand
            .profiles()
            .map(|(profile, count)| count * self.size(profile))
            .sum();
        if slices > 0.0 {
            demand.slices_cpu_milli() / slices
        } else {
            0.0
        }
    }

    /// Memory slices of a profile, on the first board that offers it.
    fn size(&self, profile: Profile) -> f64 {
        let row = self.boards.iter().find_map(|(board, ..)| board.row(profile));
        row.map_or(0.0, |row| f64::from(row.size))
    }

    /// Share of the demand, in slices, that no other board can take.
    fn share_for_it_alone(&self, board: &Board, demand: &Demand) -> f64 {
        let (mut alone, mut all) = (0.0, 0.0);
        for (profile, count) in demand.profiles() {
            let slices = count * self.size(profile);
            all += slices;
            let mut offers = self
                .boards
                .iter()
                .filter(|(other, ..)| other.row(profile).is_some());
            if offers.all(|(other, ..)| **other == *board) {
                alone += slices;
            }
        }
        if all > 0.0 { alone / all } else { 0.0 }
    }

    /// By row: what a slice costs on this board because others would do for it.
    fn pressure(&self, board: &Board, demand: &Demand) -> Vec<Cost> {
        let alone = self.share_for_it_alone(board, demand);
        let elsewhere = |profile| {
            let mut others = self.boards.iter().filter(|(other, ..)| **other != *board);
            others.any(|(other, ..)| other.row(profile).is_some())
        };
        let price = |row: &crate::mig::ProfileRow| {
            let slices = if elsewhere(row.profile) {
                f64::from(row.size)
            } else {
                0.0
            };
            (BOARD_PRESSURE_WEIGHT * slices * alone * 1e6).round() as Cost
        };
        board.profiles.iter().map(price).collect()
    }
}

/// What pods with whole GPUs are expected to ask, as if they filled the pool.
fn workload(asks: &BTreeMap<Ask, f64>, stock: &Stock) -> Workload {
    let capacity: Vec<u64> = stock.gpus().map(|gpus| gpus * u64::from(WHOLE)).collect();
    let there = capacity.iter().sum::<u64>() as f64;
    let asked: f64 = asks
        .iter()
        .map(|(ask, share)| share * ask.gpu_milli() as f64)
        .sum();
    let scale = if there > 0.0 && asked > 0.0 {
        there / asked
    } else {
        1.0
    };
    Workload::of_weighted(asks.iter().map(|(ask, share)| (*ask, share * scale)), &capacity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::asks;

    #[test]
    fn a_board_that_other_demand_cannot_do_without_costs_more_where_another_would_do() {
        let [a100, h100] =
            ["A100-40GB", "H100-80GB"].map(|name| Arc::new(Board::named(name).unwrap().clone()));
        let row = |board: &Board, name: &str| {
            let profile: Profile = name.parse().unwrap();
            board
                .profiles
                .iter()
                .position(|row| row.profile == profile)
                .unwrap()
        };
        let mut demand = Demand::default();
        let pressure = |demand: &Demand, board: &Arc<Board>, name: &str| {
            let tables = Tables::new([&a100, &h100], demand, &Policy::default());
            tables.of(board).unwrap().pressure(row(board, name))
        };
        assert_eq!(pressure(&demand, &h100, "1g.10gb"), 0, "nothing is known");
        // half of the demand in slices is 3g.40gb, which the A100 of 40 GB does not have
        demand.arrive(&asks("3g.40gb".parse().ok(), 1), 0, 0.0, 60.0);
        demand.arrive(&asks("1g.10gb".parse().ok(), 2), 0, 0.0, 60.0);
        assert_eq!(pressure(&demand, &h100, "1g.10gb"), 1_000_000);
        assert_eq!(pressure(&demand, &a100, "1g.10gb"), 0);
        assert_eq!(pressure(&demand, &h100, "3g.40gb"), 0, "nothing else would do");
        let alone = Tables::new([&h100], &demand, &Policy::default());
        assert_eq!(alone.of(&h100).unwrap().pressure(row(&h100, "1g.10gb")), 0);
    }

    #[test]
    fn tables_are_behind_when_the_mix_moved_and_hardly_ever_once_much_was_seen() {
        let board = Arc::new(Board::named("H100-80GB").unwrap().clone());
        let profiles: [Profile; 2] = ["1g.10gb".parse().unwrap(), "3g.40gb".parse().unwrap()];
        let (mut demand, policy) = (Demand::default(), Policy::default());
        let mut tables = Tables::new([&board], &demand, &policy);
        assert!(!tables.is_behind(&demand));
        let mut made = Vec::new();
        for arrival in 0..2_000 {
            demand.arrive(&asks(Some(profiles[arrival % 2]), 1), 0, arrival as f64, 1e9);
            if tables.is_behind(&demand) {
                tables = Tables::new([&board], &demand, &policy);
                made.push(arrival);
            }
        }
        assert_eq!(made[0], 0, "the first arrival tells much");
        assert!(
            made.len() < 60 && made.iter().all(|arrival| *arrival < 1_000),
            "{made:?}"
        );
    }
}
