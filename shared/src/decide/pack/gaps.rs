//! What a gap on a shared GPU is worth: the most that the shares to come would pay to be in it. The prices are those
//! of the linear program that packs the expected shares into as few GPUs as can be (Gilmore and Gomory's cutting
//! stock, solved by generating patterns), in which a whole GPU costs 1000. A share that goes where the gap loses
//! just its price wastes nothing; the excess is what its place will cost later.

use std::collections::BTreeMap;

use super::WHOLE;

/// Sizes looked at, the commonest first: the program grows with the cube of them, and rare sizes fill what others
/// leave.
const MAX_SIZES: usize = 24;
/// Cells of the table: one for each thousandth, and none.
const CELLS: usize = WHOLE as usize + 1;
/// Patterns generated at most; the workloads known need a few dozen.
const MAX_PATTERNS: usize = 1_000;
/// A pattern is new where it is worth this much more than a GPU, relatively.
const BETTER: f64 = 1e-7;

/// The worth of every gap.
#[derive(Clone, Debug)]
pub struct Gaps {
    worth: Vec<f64>,
    prices: BTreeMap<u32, f64>,
}

impl Default for Gaps {
    /// Without anything known, a gap is worth its size.
    fn default() -> Self {
        Self {
            worth: (0..CELLS).map(|gap| gap as f64).collect(),
            prices: BTreeMap::new(),
        }
    }
}

impl Gaps {
    /// For shares of these sizes that come in these amounts.
    #[must_use]
    pub fn of(shares: impl IntoIterator<Item = (u32, f64)>) -> Self {
        let real = |(size, amount): &(u32, f64)| (1..=WHOLE).contains(size) && *amount > 0.0;
        let mut shares: Vec<(u32, f64)> = shares.into_iter().filter(real).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        shares.truncate(MAX_SIZES);
        if shares.is_empty() {
            return Self::default();
        }
        let sizes: Vec<usize> = shares.iter().map(|(size, _)| *size as usize).collect();
        let amounts: Vec<f64> = shares.iter().map(|(_, amount)| *amount).collect();
        let prices = prices(&sizes, &amounts);
        let (worth, _) = knapsack(&sizes, &prices);
        let milli = |part: f64| part * f64::from(WHOLE);
        Self {
            worth: worth.into_iter().map(milli).collect(),
            prices: shares
                .iter()
                .zip(prices)
                .map(|((size, _), price)| (*size, milli(price)))
                .collect(),
        }
    }

    /// What a gap is worth, in thousandths of a GPU.
    #[must_use]
    pub fn worth(&self, gap: u32) -> f64 {
        self.worth.get(gap as usize).copied().unwrap_or(f64::from(gap))
    }

    /// What is lost when a share of `size` goes into `gap`: how much less the gap is worth, less what the share
    /// pays. Nothing where it goes as planned.
    #[must_use]
    pub fn loss(&self, gap: u32, size: u32) -> f64 {
        // a size that was not looked at pays what it could be filled with
        let pays = self
            .prices
            .get(&size)
            .copied()
            .unwrap_or_else(|| self.worth(size));
        (self.worth(gap) - self.worth(gap - size.min(gap)) - pays).max(0.0)
    }
}

/// Prices of the sizes, as parts of a GPU, under which no pattern is worth more than a GPU and the expected shares
/// pay the most.
fn prices(sizes: &[usize], amounts: &[f64]) -> Vec<f64> {
    // a pattern to start with for each size: as many of it as fit
    let mut patterns: Vec<Vec<f64>> = (0..sizes.len())
        .map(|at| {
            let mut pattern = vec![0.0; sizes.len()];
            pattern[at] = (WHOLE as usize / sizes[at]) as f64;
            pattern
        })
        .collect();
    let mut used: Vec<f64> = patterns
        .iter()
        .zip(amounts)
        .enumerate()
        .map(|(at, (pattern, amount))| amount / pattern[at])
        .collect();
    for _ in 0..MAX_PATTERNS {
        // prices under which every pattern in use is worth a GPU
        let Some(prices) = solve(patterns.clone(), vec![1.0; sizes.len()]) else {
            break;
        };
        let (worth, last) = knapsack(sizes, &prices);
        if worth[CELLS - 1] <= 1.0 + BETTER {
            return prices;
        }
        let mut pattern = vec![0.0; sizes.len()];
        let mut gap = CELLS - 1;
        while gap > 0 {
            // a gap that is worth no more than the next smaller one is filled as that is
            gap -= last[gap].map_or(1, |at: usize| {
                pattern[at] += 1.0;
                sizes[at]
            });
        }
        // what the new pattern takes the place of: as much of each pattern in use
        let columns: Vec<Vec<f64>> = (0..sizes.len())
            .map(|row| patterns.iter().map(|pattern| pattern[row]).collect())
            .collect();
        let Some(replaces) = solve(columns, pattern.clone()) else {
            break;
        };
        let ratio = |at: &usize| used[*at] / replaces[*at];
        let leaving = (0..sizes.len())
            .filter(|at| replaces[*at] > BETTER)
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(a.cmp(b)));
        let Some(leaving) = leaving else { break };
        let amount = ratio(&leaving);
        for (used, replaces) in used.iter_mut().zip(&replaces) {
            *used = (*used - amount * replaces).max(0.0);
        }
        used[leaving] = amount;
        patterns[leaving] = pattern;
    }
    // no solution in time: by size
    sizes.iter().map(|size| *size as f64 / f64::from(WHOLE)).collect()
}

/// The most that fits into each gap under these prices, and the last share of it.
fn knapsack(sizes: &[usize], prices: &[f64]) -> (Vec<f64>, Vec<Option<usize>>) {
    let mut worth = vec![0.0; CELLS];
    let mut last = vec![None; CELLS];
    for gap in 1..CELLS {
        worth[gap] = worth[gap - 1];
        for (at, (size, price)) in sizes.iter().zip(prices).enumerate() {
            if *size <= gap && worth[gap - size] + price > worth[gap] + 1e-12 {
                worth[gap] = worth[gap - size] + price;
                last[gap] = Some(at);
            }
        }
    }
    (worth, last)
}

/// Solves `rows * x = right` by elimination with pivots; `None` where there is no one solution.
fn solve(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        if rows[pivot][column].abs() < 1e-12 {
            return None;
        }
        rows.swap(column, pivot);
        right.swap(column, pivot);
        let (from, known) = (rows[column].clone(), right[column]);
        for (row, right) in rows
            .iter_mut()
            .zip(&mut right)
            .enumerate()
            .filter(|(row, _)| *row != column)
            .map(|(_, both)| both)
        {
            let factor = row[column] / from[column];
            for (cell, from) in row.iter_mut().zip(&from) {
                *cell -= factor * from;
            }
            *right -= factor * known;
        }
    }
    Some((0..n).map(|at| right[at] / rows[at][at]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(gaps: &Gaps, size: u32) -> f64 {
        gaps.prices[&size]
    }

    #[test]
    fn halves_and_thirds_pay_their_part_of_a_gpu() {
        let gaps = Gaps::of([(470, 3.0), (330, 3.0)]);
        assert!((price(&gaps, 470) - 500.0).abs() < 1e-6, "{gaps:?}");
        assert!((price(&gaps, 330) - 1_000.0 / 3.0).abs() < 1e-6, "{gaps:?}");
        // 530 holds one of either: worth the dearer; 60 holds none
        assert!((gaps.worth(530) - 500.0).abs() < 1e-6);
        assert_eq!(gaps.worth(60), 0.0);
        // a half beside a half is as planned, a third beside a half leaves a sixth of a GPU
        assert_eq!(gaps.loss(530, 470), 0.0);
        assert!((gaps.loss(530, 330) - (500.0 - 1_000.0 / 3.0)).abs() < 1e-6);
    }

    #[test]
    fn scarce_fillers_pay_and_plentiful_ones_do_not() {
        // a 650 takes a 320 with it. With few 320s a gap of 350 is mostly left empty, with many it is sought after
        let few = Gaps::of([(650, 10.0), (320, 1.0)]);
        let many = Gaps::of([(650, 1.0), (320, 10.0)]);
        assert!(few.worth(350) < 1e-6, "{few:?}");
        assert!((many.worth(350) - 1_000.0 / 3.0).abs() < 1e-6, "{many:?}");
    }

    #[test]
    fn prices_add_up_to_the_fewest_gpus_that_hold_the_openb_shares() {
        let shares = [
            (810, 2436.0),
            (470, 1723.0),
            (320, 800.0),
            (650, 572.0),
            (230, 337.0),
            (460, 304.0),
            (590, 180.0),
            (160, 154.0),
            (550, 143.0),
            (220, 141.0),
            (370, 111.0),
            (110, 58.0),
        ];
        let gaps = Gaps::of(shares);
        let paid: f64 = shares
            .iter()
            .map(|(size, amount)| price(&gaps, *size) * amount)
            .sum();
        // strong duality: no packing needs less, and first fit by decreasing size needs hardly more
        let bins = first_fit_decreasing(&shares);
        assert!(
            paid / 1e3 <= f64::from(bins) && paid / 1e3 > f64::from(bins) - 30.0,
            "{paid} against {bins}"
        );
    }

    fn first_fit_decreasing(shares: &[(u32, f64)]) -> u32 {
        let mut sizes: Vec<u32> = shares
            .iter()
            .flat_map(|(size, amount)| vec![*size; *amount as usize])
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut free: Vec<u32> = Vec::new();
        for size in sizes {
            match free.iter_mut().find(|free| **free >= size) {
                Some(free) => *free -= size,
                None => free.push(WHOLE - size),
            }
        }
        free.len() as u32
    }

    #[test]
    fn nothing_loses_less_than_nothing_and_gaps_rise_with_their_size() {
        let gaps = Gaps::of([(810, 5.0), (470, 9.0), (320, 4.0), (230, 3.0)]);
        for gap in 0..=WHOLE {
            assert!(gap == 0 || gaps.worth(gap) >= gaps.worth(gap - 1) - 1e-9);
            for size in [810, 470, 320, 230, 333] {
                assert!(size > gap || gaps.loss(gap, size) >= 0.0);
            }
        }
        assert!((gaps.worth(WHOLE) - f64::from(WHOLE)).abs() < 1e-3);
    }

    #[test]
    fn with_nothing_known_nothing_is_lost() {
        let gaps = Gaps::of([]);
        assert_eq!(gaps.loss(700, 300), 0.0);
        assert_eq!(Gaps::of([(0, 1.0), (2_000, 1.0), (500, 0.0)]).loss(700, 300), 0.0);
    }
}
