//! The virtual clock: requests arrive, stay and leave; one that does not fit is lost. What is counted is counted
//! here, from what was asked, so that no fleet can flatter itself.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::load::Arrival;
use super::shapes::Shapes;

/// Where a slice sits: GPU and first memory slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// Index of the GPU.
    pub gpu: usize,
    /// First memory slice.
    pub start: u8,
}

/// A slice that was moved to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Number of the request that has it.
    pub pod: usize,
    /// Where it is now.
    pub to: Seat,
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Where it went; `None` where it was lost.
    pub seat: Option<Seat>,
    /// What was moved for it, in order.
    pub moved: Vec<Moved>,
}

/// GPUs with a policy.
pub trait Fleet {
    /// Request number `pod` for profile `class` arrives. Numbers rise.
    fn arrive(&mut self, now: f64, pod: usize, class: usize) -> Outcome;
    /// It leaves.
    fn depart(&mut self, now: f64, pod: usize);
    /// GPUs with anything on them.
    fn active(&self) -> usize;
}

/// What happens, for those who want to watch.
pub trait Watch {
    /// A request was answered.
    fn answered(&mut self, now: f64, pod: usize, class: usize, outcome: &Outcome);
    /// A request left.
    fn left(&mut self, now: f64, pod: usize);
}

impl Watch for () {
    fn answered(&mut self, _: f64, _: usize, _: usize, _: &Outcome) {}
    fn left(&mut self, _: f64, _: usize) {}
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Requests.
    pub arrivals: usize,
    /// Of them, how many at the beginning are not counted.
    pub warm_up: usize,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Requests counted.
    pub asked: usize,
    /// Of them let in.
    pub accepted: usize,
    /// Memory slices asked for.
    pub asked_slices: u64,
    /// Memory slices let in.
    pub accepted_slices: u64,
    /// Moves.
    pub moves: usize,
    /// Memory slices asked for at any time, as a share of all: what the load came to in this run.
    pub offered: f64,
    /// Mean share of all memory slices that was used as asked.
    pub utilisation: f64,
    /// Mean number of GPUs with anything on them.
    pub active: f64,
}

impl Tally {
    /// Share of requests let in.
    #[must_use]
    pub fn acceptance(&self) -> f64 {
        self.accepted as f64 / self.asked.max(1) as f64
    }

    /// Share of asked memory slices let in.
    #[must_use]
    pub fn slice_acceptance(&self) -> f64 {
        self.accepted_slices as f64 / self.asked_slices.max(1) as f64
    }

    /// Moves per 100 requests let in.
    #[must_use]
    pub fn moves_per_hundred(&self) -> f64 {
        100.0 * self.moves as f64 / self.accepted.max(1) as f64
    }
}

/// The end of a stay; the earliest is the greatest, for the heap.
#[derive(PartialEq)]
struct End {
    at: f64,
    pod: usize,
    size: u64,
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.pod.cmp(&self.pod))
    }
}

/// Runs `fleet` of `gpus` GPUs through the arrivals.
pub fn run(
    fleet: &mut dyn Fleet,
    gpus: usize,
    shapes: &Shapes,
    arrivals: impl Iterator<Item = Arrival>,
    length: Length,
    watch: &mut dyn Watch,
) -> Tally {
    let mut ends: BinaryHeap<End> = BinaryHeap::new();
    let mut tally = Tally::default();
    let mut clock = Clock::default();
    for (pod, arrival) in arrivals.take(length.arrivals).enumerate() {
        while let Some(end) = ends.peek().filter(|end| end.at <= arrival.at) {
            let End { at, pod, size } = *end;
            ends.pop();
            clock.to(at, fleet.active());
            clock.busy -= size;
            fleet.depart(at, pod);
            watch.left(at, pod);
        }
        clock.to(arrival.at, fleet.active());
        if pod == length.warm_up {
            clock.start();
        }
        let size = u64::from(shapes.shape(arrival.class).size);
        let outcome = fleet.arrive(arrival.at, pod, arrival.class);
        watch.answered(arrival.at, pod, arrival.class, &outcome);
        let counted = pod >= length.warm_up;
        if outcome.seat.is_some() {
            clock.busy += size;
            ends.push(End {
                at: arrival.at + arrival.stays,
                pod,
                size,
            });
        }
        if counted {
            let accepted = outcome.seat.is_some();
            tally.asked += 1;
            tally.asked_slices += size;
            tally.offered += size as f64 * arrival.stays;
            tally.accepted += usize::from(accepted);
            tally.accepted_slices += if accepted { size } else { 0 };
            tally.moves += outcome.moved.len();
        }
    }
    let all = gpus as f64 * f64::from(shapes.slices);
    tally.utilisation = clock.busy_time / (clock.counted() * all).max(f64::MIN_POSITIVE);
    tally.offered /= (clock.counted() * all).max(f64::MIN_POSITIVE);
    tally.active = clock.active_time / clock.counted().max(f64::MIN_POSITIVE);
    tally
}

/// Integrals over time since [`Clock::start`].
#[derive(Default)]
struct Clock {
    now: f64,
    since: f64,
    busy: u64,
    busy_time: f64,
    active_time: f64,
}

impl Clock {
    fn to(&mut self, now: f64, active: usize) {
        let passed = now - self.now;
        self.busy_time += passed * self.busy as f64;
        self.active_time += passed * active as f64;
        self.now = now;
    }

    fn start(&mut self) {
        self.since = self.now;
        self.busy_time = 0.0;
        self.active_time = 0.0;
    }

    fn counted(&self) -> f64 {
        self.now - self.since
    }
}
