//! The pods of a trace, again, on fewer and fewer GPUs: with a whole GPU each, in the best static layout, and under
//! production's decisions.

use shared::snapshot::Request;

use super::Pod;
use crate::fleet::{Fleet, Make, sliced};
use crate::parallel;
use crate::pool::need::{Share, least};
use crate::pool::still::{Levels, Still, Stock, Taken};

/// Who serves the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// No slices: whole GPUs, as many as the slices of a pod would fill.
    Whole,
    /// Slices cut once by somebody who knew the trace.
    Still,
    /// Slices without geometry: all compute and all memory in one heap. No slices can do better.
    Heap,
    /// Production's decisions, with or without a move for a pod that fits nowhere.
    Dynamic {
        /// Whether a pod may be moved.
        repairs: bool,
    },
}

/// What an arm needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// GPUs.
    pub gpus: usize,
    /// Pods let in on so many.
    pub let_in: usize,
    /// Moves.
    pub moves: usize,
}

/// Mean and peak of something over the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Mean over time.
    pub mean: f64,
    /// Greatest.
    pub peak: f64,
}

/// A trace ready to be replayed.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    pods: &'a [Pod],
    make: Make,
    still: Still,
    /// Time from the first pod on, whether it comes, and which: what leaves at a moment is gone before what comes.
    events: Vec<(f64, bool, usize)>,
    /// The last time in the trace.
    until: f64,
    /// Whole GPUs for each pod.
    wholes: Vec<usize>,
    /// Slices for each pod, by class.
    asks: Vec<Taken>,
    /// What the slices of each pod take of a GPU.
    shares: Vec<Share>,
}

impl<'a> Replay<'a> {
    /// Of these pods on GPUs of this make.
    #[must_use]
    pub fn new(pods: &'a [Pod], make: Make) -> Self {
        let still = Still::new(&make.board);
        let begin = pods.iter().map(|pod| pod.from).fold(f64::INFINITY, f64::min);
        let mut events = Vec::with_capacity(2 * pods.len());
        for (at, pod) in pods.iter().enumerate() {
            events.push((pod.from - begin, true, at));
            if let Some(until) = pod.until {
                events.push((until - begin, false, at));
            }
        }
        // a pod that ends when it begins still comes first: its end is an event of its own after it
        events.sort_by(|a, b| {
            let brief =
                |(_, comes, pod): &(f64, bool, usize)| !comes && pods[*pod].until == Some(pods[*pod].from);
            (a.0.total_cmp(&b.0))
                .then(brief(a).cmp(&brief(b)))
                .then(a.1.cmp(&b.1))
                .then(a.2.cmp(&b.2))
        });
        Self {
            until: events.last().map_or(0.0, |(time, _, _)| *time),
            wholes: pods.iter().map(|pod| wholes(&pod.request, &make)).collect(),
            asks: pods
                .iter()
                .map(|pod| still.asks(&pod.request).unwrap_or_default())
                .collect(),
            shares: pods.iter().map(|pod| share(&pod.request, &make)).collect(),
            pods,
            make,
            still,
            events,
        }
    }

    /// Seconds from the first event to the last.
    #[must_use]
    pub const fn seconds(&self) -> f64 {
        self.until
    }

    /// The least GPUs of each arm that let in such a share of the pods, and the layout of the static one in words.
    #[must_use]
    pub fn needs(&self, arms: &[Arm], accept: f64, threads: usize) -> Vec<Option<Found>> {
        let guess = self.demand(|pod| self.wholes[pod] as f64).peak as usize;
        let most = 2 * guess + self.make.gpus_per_node;
        let cuts = self.still.best(&self.levels(), most);
        parallel::run(arms, threads, "trace", |arm| {
            let mut found = None;
            let packed = self.used().peak.ceil() as usize;
            least(if *arm == Arm::Whole { guess } else { packed }, most, |gpus| {
                let (let_in, moves) = self.run(*arm, gpus, &cuts);
                let enough = let_in as f64 >= accept * self.pods.len() as f64;
                // what is enough gets less from question to question, so the last is the least
                if enough {
                    found = Some(Found { gpus, let_in, moves });
                }
                enough
            })?;
            found
        })
    }

    /// The best static layout on so many GPUs, in words.
    #[must_use]
    pub fn layout(&self, gpus: usize) -> String {
        self.still.in_words(&self.still.best(&self.levels(), gpus))
    }

    /// Pods at a time.
    #[must_use]
    pub fn running(&self) -> Demand {
        self.demand(|_| 1.0)
    }

    /// Whole GPUs wanted at a time, one each.
    #[must_use]
    pub fn whole(&self) -> Demand {
        self.demand(|pod| self.wholes[pod] as f64)
    }

    /// GPUs that the slices wanted at a time would fill without a gap.
    #[must_use]
    pub fn used(&self) -> Demand {
        let (compute, memory) = (
            self.demand(|pod| self.shares[pod].compute),
            self.demand(|pod| self.shares[pod].memory),
        );
        Demand {
            mean: compute.mean.max(memory.mean),
            peak: compute.peak.max(memory.peak),
        }
    }

    /// Whole GPUs and slices wanted over time, as points (hours, GPUs) for a picture.
    #[must_use]
    pub fn series(&self) -> [Vec<(f64, f64)>; 2] {
        let series = |of: &dyn Fn(usize) -> f64| {
            let mut now = 0.0;
            let mut points = vec![(0.0, 0.0)];
            for (time, comes, pod) in &self.events {
                points.push((time / 3_600.0, now));
                now += if *comes { of(*pod) } else { -of(*pod) };
                points.push((time / 3_600.0, now));
            }
            points
        };
        [
            series(&|pod| self.wholes[pod] as f64),
            series(&|pod| self.shares[pod].gpus()),
        ]
    }

    /// Mean and peak of what the pods of a time add up to.
    fn demand(&self, of: impl Fn(usize) -> f64) -> Demand {
        let (mut now, mut last, mut sum, mut peak) = (0.0_f64, 0.0, 0.0, 0.0_f64);
        for (time, comes, pod) in &self.events {
            sum += now * (time - last);
            last = *time;
            now += if *comes { of(*pod) } else { -of(*pod) };
            peak = peak.max(now);
        }
        Demand {
            mean: if self.until > 0.0 { sum / self.until } else { peak },
            // sums of fractions that come and go leave a trace of rounding
            peak: (peak * 1e9).round() / 1e9,
        }
    }

    fn levels(&self) -> Levels {
        let mut levels = self.still.levels();
        let mut last = 0.0;
        for (time, comes, pod) in &self.events {
            levels.pass(time - last);
            last = *time;
            levels.change(&self.asks[*pod], *comes);
        }
        levels
    }

    /// How many pods an arm of so many GPUs lets in, and its moves.
    fn run(&self, arm: Arm, gpus: usize, cuts: &[usize]) -> (usize, usize) {
        let mut server = match arm {
            Arm::Whole => Server::Whole {
                free: gpus,
                have: vec![0; self.pods.len()],
            },
            Arm::Still => Server::Still {
                stock: self.still.stock(cuts, gpus),
                have: vec![None; self.pods.len()],
            },
            Arm::Heap => Server::Heap {
                gpus: gpus as f64 + 1e-6,
                used: Share::default(),
                have: vec![false; self.pods.len()],
            },
            Arm::Dynamic { repairs } => {
                let make = Make {
                    repairs,
                    ..self.make.clone()
                };
                Server::Dynamic(Box::new(Fleet::new(make, gpus)))
            }
        };
        let mut let_in = 0;
        for (time, comes, pod) in &self.events {
            if *comes {
                let_in += usize::from(server.arrive(self, *time, *pod));
            } else {
                server.depart(self, *pod);
            }
        }
        let moves = match &server {
            Server::Dynamic(fleet) => fleet.moves(),
            _ => 0,
        };
        (let_in, moves)
    }
}

/// An arm at work.
enum Server {
    Whole { free: usize, have: Vec<usize> },
    Still { stock: Stock, have: Vec<Option<Taken>> },
    Heap { gpus: f64, used: Share, have: Vec<bool> },
    Dynamic(Box<Fleet>),
}

impl Server {
    fn arrive(&mut self, replay: &Replay<'_>, time: f64, pod: usize) -> bool {
        match self {
            Self::Whole { free, have } => {
                let fits = *free >= replay.wholes[pod];
                if fits {
                    have[pod] = replay.wholes[pod];
                    *free -= have[pod];
                }
                fits
            }
            Self::Still { stock, have } => {
                have[pod] = stock.take(&replay.asks[pod]);
                have[pod].is_some()
            }
            Self::Heap { gpus, used, have } => {
                let mut with = *used;
                with.add(replay.shares[pod], 1.0);
                have[pod] = with.gpus() <= *gpus;
                if have[pod] {
                    *used = with;
                }
                have[pod]
            }
            Self::Dynamic(fleet) => fleet.arrive(time, pod, &replay.pods[pod].request).is_some(),
        }
    }

    fn depart(&mut self, replay: &Replay<'_>, pod: usize) {
        match self {
            Self::Whole { free, have } => *free += std::mem::take(&mut have[pod]),
            Self::Still { stock, have } => {
                if let Some(taken) = have[pod].take() {
                    stock.give(&taken);
                }
            }
            Self::Heap { used, have, .. } => {
                if std::mem::take(&mut have[pod]) {
                    used.add(replay.shares[pod], -1.0);
                }
            }
            Self::Dynamic(fleet) => fleet.depart(pod),
        }
    }
}

/// Whole GPUs in place of a request: those it asks for, and as many as its slices would fill.
fn wholes(request: &Request, make: &Make) -> usize {
    let mut slices = Share::default();
    let mut gpus = 0;
    for (profile, count) in request.distinct() {
        match profile {
            Some(profile) => slices.add(Share::of(&make.board, profile), f64::from(count)),
            None => gpus += count as usize,
        }
    }
    // seven sevenths are one GPU, whatever they add up to
    gpus + (slices.gpus() - 1e-9).ceil().max(0.0) as usize
}

/// What the slices of a request take of a GPU, a whole GPU being the largest slice.
fn share(request: &Request, make: &Make) -> Share {
    let mut share = Share::default();
    for (profile, count) in sliced(request, &make.board).distinct() {
        if let Some(profile) = profile {
            share.add(Share::of(&make.board, profile), f64::from(count));
        }
    }
    share
}

#[cfg(test)]
mod tests;
