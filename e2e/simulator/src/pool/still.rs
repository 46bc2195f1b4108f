//! Static layouts for any pods on any board: slices cut once, by somebody who knew what would come. A pod may take
//! larger slices than it asks for, on whichever nodes they are, so this is static partitioning at its best.

use std::collections::{BTreeMap, BTreeSet};

use shared::mig::layout::{enumerate, plain};
use shared::mig::profile::Media;
use shared::mig::{Board, Profile};
use shared::snapshot::Request;

/// The ways to cut one GPU of a board.
#[derive(Clone, Debug)]
pub struct Still {
    /// Profiles, smallest first; each has at least the memory and compute of those before it.
    classes: Vec<Profile>,
    /// Memory slices of each.
    sizes: Vec<u8>,
    /// Slices by class, for each cut to which nothing can be added.
    cuts: Vec<Vec<u32>>,
}

/// For how long so many slices of each class are wanted at once.
#[derive(Clone, Debug)]
pub struct Levels {
    now: Vec<u32>,
    time: Vec<BTreeMap<u32, f64>>,
}

/// Slices that are cut, and idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    idle: Vec<u32>,
}

/// Slices that a pod has taken, by class.
pub type Taken = Vec<(usize, u32)>;

impl Still {
    /// The cuts of a board, media variants apart.
    #[must_use]
    pub fn new(board: &Board) -> Self {
        let classes: Vec<Profile> = plain(board).map(|row| row.profile).collect();
        let class_of = |profile| classes.iter().position(|class| *class == profile);
        let mut cuts: BTreeSet<Vec<u32>> = BTreeSet::new();
        for layout in enumerate(board, |profile| profile.media == Media::Plain) {
            if classes
                .iter()
                .all(|class| layout.free_places(board, *class).is_empty())
            {
                let mut cut = vec![0; classes.len()];
                for class in layout
                    .slices()
                    .iter()
                    .filter_map(|slice| class_of(slice.place.profile))
                {
                    cut[class] += 1;
                }
                cuts.insert(cut);
            }
        }
        Self {
            sizes: plain(board).map(|row| row.size).collect(),
            classes,
            cuts: cuts.into_iter().collect(),
        }
    }

    /// Slices that a request asks for, by class, largest first; a media variant counts as its plain profile, a whole
    /// GPU as the largest slice. `None` where the board has no such profile.
    #[must_use]
    pub fn asks(&self, request: &Request) -> Option<Taken> {
        let class = |profile: Option<Profile>| match profile {
            None => self.classes.len().checked_sub(1),
            Some(profile) => self
                .classes
                .iter()
                .position(|class| (class.compute, class.memory_gb) == (profile.compute, profile.memory_gb)),
        };
        let asks = request
            .distinct()
            .into_iter()
            .map(|(profile, count)| Some((class(profile)?, count)));
        let mut asks = asks.collect::<Option<Taken>>()?;
        asks.sort_unstable_by(|a, b| b.cmp(a));
        Some(asks)
    }

    /// Nothing wanted yet.
    #[must_use]
    pub fn levels(&self) -> Levels {
        Levels {
            now: vec![0; self.classes.len()],
            time: vec![BTreeMap::new(); self.classes.len()],
        }
    }

    /// Cuts for one GPU after the other, each that which serves most of what is wanted beyond those before it.
    #[must_use]
    pub fn best(&self, levels: &Levels, gpus: usize) -> Vec<usize> {
        let most: Vec<u32> = self.most(gpus);
        let busy: Vec<Vec<f64>> = (0..self.classes.len())
            .map(|class| {
                levels
                    .busy(class, most[class])
                    .iter()
                    .map(|busy| busy * f64::from(self.sizes[class]))
                    .collect()
            })
            .collect();
        let mut have = vec![0_u32; self.classes.len()];
        let mut chosen = Vec::with_capacity(gpus);
        for _ in 0..gpus {
            let gain = |cut: &Vec<u32>| -> f64 {
                (0..self.classes.len())
                    .map(|class| {
                        let at = |count: u32| busy[class][count as usize];
                        at(have[class] + cut[class]) - at(have[class])
                    })
                    .sum()
            };
            let best = self.cuts.iter().enumerate().map(|(at, cut)| (gain(cut), at));
            let Some((_, at)) = best.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) else {
                return chosen;
            };
            for (have, more) in have.iter_mut().zip(&self.cuts[at]) {
                *have += more;
            }
            chosen.push(at);
        }
        chosen
    }

    /// The slices of the first `gpus` of these cuts.
    #[must_use]
    pub fn stock(&self, cuts: &[usize], gpus: usize) -> Stock {
        let mut idle = vec![0; self.classes.len()];
        for cut in cuts.iter().take(gpus).filter_map(|at| self.cuts.get(*at)) {
            for (idle, more) in idle.iter_mut().zip(cut) {
                *idle += more;
            }
        }
        Stock { idle }
    }

    /// Cuts in words: `3 x (7 x 1g.10gb), 1 x (4g.40gb + 3g.40gb)`.
    #[must_use]
    pub fn in_words(&self, cuts: &[usize]) -> String {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for at in cuts {
            *counts.entry(*at).or_default() += 1;
        }
        let cut = |at: usize| {
            let slices = self.cuts[at]
                .iter()
                .zip(&self.classes)
                .rev()
                .filter(|(count, _)| **count > 0);
            let word = |(count, class): (&u32, &Profile)| match count {
                1 => class.to_string(),
                count => format!("{count} x {class}"),
            };
            slices.map(word).collect::<Vec<_>>().join(" + ")
        };
        let mut counts: Vec<(usize, usize)> = counts.into_iter().map(|(at, count)| (count, at)).collect();
        counts.sort_by(|a, b| b.cmp(a));
        let words = counts
            .iter()
            .map(|(count, at)| format!("{count} x ({})", cut(*at)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The most slices of each class that so many GPUs have.
    fn most(&self, gpus: usize) -> Vec<u32> {
        let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
        (0..self.classes.len())
            .map(|class| gpus.saturating_mul(self.cuts.iter().map(|cut| cut[class]).max().unwrap_or(0)))
            .collect()
    }
}

impl Levels {
    /// Time passes.
    pub fn pass(&mut self, time: f64) {
        for (levels, now) in self.time.iter_mut().zip(&self.now) {
            *levels.entry(*now).or_default() += time;
        }
    }

    /// A pod comes or goes.
    pub fn change(&mut self, asks: &Taken, comes: bool) {
        for (class, count) in asks {
            let now = &mut self.now[*class];
            *now = if comes {
                now.saturating_add(*count)
            } else {
                now.saturating_sub(*count)
            };
        }
    }

    /// How many of 0, 1, 2, ... slices are busy on average, times the time that passed.
    fn busy(&self, class: usize, most: u32) -> Vec<f64> {
        // one more slice is busy for as long as more than it are wanted
        let mut wanted_more = vec![0.0; most as usize + 1];
        let mut later = 0.0;
        let mut levels = self.time[class].iter().rev().peekable();
        for slices in (0..=most).rev() {
            while let Some((_, time)) = levels.next_if(|(level, _)| **level > slices) {
                later += time;
            }
            wanted_more[slices as usize] = later;
        }
        let mut busy = Vec::with_capacity(wanted_more.len());
        let mut sum = 0.0;
        for more in wanted_more {
            busy.push(sum);
            sum += more;
        }
        busy
    }
}

impl Stock {
    /// Takes slices for a pod, each of its class or the next larger one there is; all of them or none.
    pub fn take(&mut self, asks: &Taken) -> Option<Taken> {
        let before = self.idle.clone();
        let mut taken = Taken::new();
        for (class, count) in asks {
            let mut left = *count;
            for from in *class..self.idle.len() {
                let here = left.min(self.idle[from]);
                if here > 0 {
                    self.idle[from] -= here;
                    taken.push((from, here));
                    left -= here;
                }
            }
            if left > 0 {
                self.idle = before;
                return None;
            }
        }
        Some(taken)
    }

    /// Gives them back.
    pub fn give(&mut self, taken: &Taken) {
        for (class, count) in taken {
            self.idle[*class] += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn still() -> Still {
        Still::new(Board::named("H100-80GB").unwrap())
    }

    fn asks(still: &Still, name: Option<&str>, count: u32) -> Option<Taken> {
        still.asks(&Request::of_one(
            "main",
            name.map(|name| name.parse().unwrap()),
            count,
        ))
    }

    #[test]
    fn cuts_are_those_to_which_nothing_can_be_added() {
        let still = still();
        let words: Vec<String> = (0..still.cuts.len()).map(|at| still.in_words(&[at])).collect();
        for cut in [
            "1 x (7 x 1g.10gb)",
            "1 x (7g.80gb)",
            "1 x (4g.40gb + 3g.40gb)",
            "1 x (4 x 1g.20gb)",
        ] {
            assert!(words.iter().any(|word| word == cut), "{cut} is not in {words:?}");
        }
        assert!(!words.iter().any(|word| word == "1 x (3g.40gb)"), "{words:?}");
    }

    #[test]
    fn the_layout_has_what_was_wanted_for_longest() {
        let still = still();
        let mut levels = still.levels();
        let (small, large) = (
            asks(&still, Some("1g.10gb"), 7).unwrap(),
            asks(&still, None, 1).unwrap(),
        );
        levels.change(&small, true);
        levels.change(&large, true);
        levels.pass(10.0);
        levels.change(&large, true);
        levels.pass(1.0);
        let cuts = still.best(&levels, 3);
        assert_eq!(still.in_words(&cuts), "2 x (7g.80gb), 1 x (7 x 1g.10gb)");
        assert_eq!(still.in_words(&cuts[..1]), "1 x (7g.80gb)");
    }

    #[test]
    fn a_pod_takes_larger_slices_where_its_own_are_gone_and_all_or_nothing() {
        let still = still();
        let at = still.cuts.iter().position(|cut| cut[0] == 7).unwrap();
        let whole = still.cuts.iter().position(|cut| cut.last() == Some(&1)).unwrap();
        let mut stock = still.stock(&[at, whole], 2);
        let full = stock.clone();
        assert_eq!(stock.take(&asks(&still, Some("1g.10gb"), 9).unwrap()), None);
        assert_eq!(stock, full);
        let taken = stock.take(&asks(&still, Some("1g.10gb+me"), 8).unwrap()).unwrap();
        assert_eq!(stock.take(&asks(&still, None, 1).unwrap()), None);
        stock.give(&taken);
        assert_eq!(stock, full);
        assert_eq!(asks(&still, Some("1g.5gb"), 1), None);
    }
}
