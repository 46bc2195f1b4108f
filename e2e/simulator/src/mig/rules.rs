//! The policies compared against, each as a key over (profile, occupancy mask, start): the GPU with the least key
//! takes the request, the lowest index among equals. Everything a rule looks at is in the mask, so a rule is a
//! table of 6 x 256 entries.

use super::shapes::{CLASSES, MASKS, Shapes};

/// What a rule prefers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The emptiest GPU, lowest start: spreading.
    WorstFit,
    /// The next GPU after the last one used that has room, lowest start.
    RoundRobin,
    /// The first GPU that has room, lowest start.
    FirstFit,
    /// The fullest GPU that has room, lowest start.
    BestFit,
    /// The fullest GPU that has room, highest start.
    BestFitBestIndex,
    /// The smallest growth of the MFI-like fragment, windows that are partly taken counting as blocked.
    MfiPartly,
    /// The same with every window that is touched at all counting as blocked.
    MfiTouched,
    /// The most (profile, start) pairs still free afterwards.
    MaxCapability,
    /// The same with pairs weighted by the mix seen.
    MaxExpectedCapability,
    /// The smallest growth of the expected fragment, plus a price for each free slice of the GPU.
    ExpectedFragment {
        /// The price, in slices.
        keep_empty: f64,
    },
}

/// Cost unit: a millionth.
const UNIT: f64 = 1e6;

/// For every profile and mask the best start, with its key; the smaller key wins.
#[derive(Clone, Debug)]
pub struct Table {
    best: Vec<[Option<(i64, u8)>; MASKS]>,
}

impl Rule {
    /// Its table under a mix.
    #[must_use]
    pub fn table(self, shapes: &Shapes, mix: &[f64]) -> Table {
        let measure: Vec<f64> = (0..MASKS)
            .map(|mask| self.measure(shapes, mix, mask as u8))
            .collect();
        let best = |class: usize, mask: u8| {
            let free = shapes
                .shape(class)
                .windows
                .iter()
                .filter(|(_, window)| mask & window == 0);
            let keyed = free.map(|(start, window)| {
                let grows = measure[usize::from(mask | window)] - measure[usize::from(mask)];
                (self.key(grows, mask, *start), *start)
            });
            if self.prefers_high_starts() {
                keyed.min_by_key(|(key, start)| (*key, std::cmp::Reverse(*start)))
            } else {
                keyed.min()
            }
        };
        Table {
            best: (0..CLASSES)
                .map(|class| std::array::from_fn(|mask| best(class, mask as u8)))
                .collect(),
        }
    }

    fn prefers_high_starts(self) -> bool {
        matches!(self, Self::BestFitBestIndex)
            || matches!(self, Self::ExpectedFragment { keep_empty } if keep_empty > 0.0)
    }

    /// What must not grow.
    fn measure(self, shapes: &Shapes, mix: &[f64], mask: u8) -> f64 {
        let free = f64::from(mask.count_zeros());
        let blocked = |touched_is_blocked: bool| {
            let of = |class: usize| {
                let shape = shapes.shape(class);
                let hit = |(_, window): &&(u8, u8)| {
                    mask & window != 0 && (touched_is_blocked || mask & window != *window)
                };
                let lost = shape.windows.iter().filter(hit).count() as f64 * f64::from(shape.size);
                if f64::from(shape.size) <= free { lost } else { 0.0 }
            };
            (0..CLASSES).map(of).sum()
        };
        let weighted = |of: &dyn Fn(usize) -> f64| {
            (0..CLASSES)
                .zip(mix)
                .map(|(class, share)| share * of(class))
                .sum()
        };
        match self {
            Self::WorstFit | Self::RoundRobin | Self::FirstFit | Self::BestFit | Self::BestFitBestIndex => {
                0.0
            }
            Self::MfiPartly => blocked(false),
            Self::MfiTouched => blocked(true),
            Self::MaxCapability => -(0..CLASSES)
                .map(|class| shapes.fit(class, mask) as f64)
                .sum::<f64>(),
            Self::MaxExpectedCapability => weighted(&|class| -(shapes.fit(class, mask) as f64)),
            Self::ExpectedFragment { .. } => {
                let size = |class| f64::from(shapes.shape(class).size);
                weighted(&|class| free - size(class) * shapes.fit(class, mask) as f64)
            }
        }
    }

    /// The key of a start that makes the measure grow by `grows` on a GPU occupied as `mask`: what the rule is
    /// about, then how it breaks ties. The note names the ties of few rules; the others were found by trying which
    /// give its figures.
    fn key(self, grows: f64, mask: u8, start: u8) -> i64 {
        let free = i64::from(mask.count_zeros());
        let start = i64::from(start);
        let growth = (grows * UNIT).round() as i64;
        let (first, tie) = match self {
            Self::WorstFit => (-free, start),
            Self::RoundRobin | Self::FirstFit => (0, 0),
            Self::BestFit => (free, start),
            Self::BestFitBestIndex => (free, -start),
            Self::MfiPartly | Self::MfiTouched | Self::MaxCapability | Self::MaxExpectedCapability => {
                (growth, free)
            }
            // without a price nothing else would tell full GPUs from empty ones
            Self::ExpectedFragment { keep_empty: 0.0 } => (growth, free),
            Self::ExpectedFragment { keep_empty } => {
                (growth + (keep_empty * UNIT).round() as i64 * free, -start)
            }
        };
        first * 32 + tie
    }
}

impl Table {
    /// The best start for a profile on a GPU occupied as `mask`, with its key.
    #[must_use]
    pub fn best(&self, class: usize, mask: u8) -> Option<(i64, u8)> {
        self.best[class][usize::from(mask)]
    }

    /// The GPU and start that the rule chooses among `masks`, looking from GPU `from` on.
    #[must_use]
    pub fn choose(&self, class: usize, masks: &[u8], from: usize) -> Option<(usize, u8)> {
        let row = &self.best[class];
        let mut found: Option<(i64, usize, u8)> = None;
        for step in 0..masks.len() {
            let gpu = if from + step < masks.len() {
                from + step
            } else {
                from + step - masks.len()
            };
            if let Some((key, start)) = row[usize::from(masks[gpu])]
                && found.is_none_or(|(least, _, _)| key < least)
            {
                found = Some((key, gpu, start));
            }
        }
        found.map(|(_, gpu, start)| (gpu, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(rule: Rule, class: usize, mask: u8) -> Option<u8> {
        let table = rule.table(&Shapes::h100(), &[1.0 / 6.0; CLASSES]);
        table.best(class, mask).map(|(_, start)| start)
    }

    #[test]
    fn starts_are_the_ones_each_rule_is_named_for() {
        assert_eq!(start(Rule::BestFit, 0, 0), Some(0));
        assert_eq!(start(Rule::BestFitBestIndex, 0, 0), Some(6));
        assert_eq!(start(Rule::BestFitBestIndex, 1, 0), Some(6));
        assert_eq!(start(Rule::BestFit, 3, 0b0000_0001), Some(4));
        assert_eq!(start(Rule::BestFit, 5, 0b0000_0001), None);
        // beside a 1g at 6, a 1g at 4 and one at 5 block the same windows, fewer than lower ones: the lower start
        assert_eq!(start(Rule::MfiTouched, 0, 0b0100_0000), Some(4));
    }

    #[test]
    fn the_mfi_fragment_is_the_formula_worked_by_hand() {
        let shapes = Shapes::h100();
        // slice 0 taken, 7 free. Touched windows of profiles of at most 7 slices: 1g@0 (1), 1g.20gb@0 (2), 2g@0 (2),
        // 3g@0 (4), 4g@0 (4). Partly: without 1g@0, which is taken whole.
        assert_eq!(Rule::MfiTouched.measure(&shapes, &[], 1), 13.0);
        assert_eq!(Rule::MfiPartly.measure(&shapes, &[], 1), 12.0);
        // free pairs: 6 + 3 + 2 + 1 + 0 + 0
        assert_eq!(Rule::MaxCapability.measure(&shapes, &[], 1), -12.0);
    }

    #[test]
    fn fullest_and_emptiest_are_chosen_lowest_index_first() {
        let shapes = Shapes::h100();
        let masks = [0b1, 0b11, 0b11, 0];
        let choose = |rule: Rule, from| {
            rule.table(&shapes, &[0.0; CLASSES])
                .choose(0, &masks, from)
                .map(|(gpu, _)| gpu)
        };
        assert_eq!(choose(Rule::FirstFit, 0), Some(0));
        assert_eq!(choose(Rule::BestFit, 0), Some(1));
        assert_eq!(choose(Rule::WorstFit, 0), Some(3));
        assert_eq!(choose(Rule::RoundRobin, 3), Some(3));
    }
}
