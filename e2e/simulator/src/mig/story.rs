//! What happened to every slice, for pictures and for playing a run again elsewhere.

use std::fmt::Write as _;

use super::engine::{Outcome, Seat, Watch};
use super::shapes::Shapes;

/// A slice at one place for one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Number of the request that had it.
    pub pod: usize,
    /// Its profile.
    pub class: usize,
    /// Where.
    pub seat: Seat,
    /// From when.
    pub from: f64,
    /// Until when; infinite where it never ended.
    pub until: f64,
    /// Whether it came here by a move.
    pub moved: bool,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// Every slice.
    pub stretches: Vec<Stretch>,
    /// Requests that were lost: (when, profile).
    pub lost: Vec<(f64, usize)>,
    /// Index of the last stretch of each request, by number.
    last: Vec<Option<usize>>,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: f64,
    pod: usize,
    what: What,
    class: usize,
    seat: Option<Seat>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Placed,
    Lost,
    Moved,
    Left,
}

impl Story {
    /// One line an event, in order; moves stand before the placement they made room for.
    #[must_use]
    pub fn csv(&self, shapes: &Shapes) -> String {
        let mut text = String::from("time,pod,event,profile,gpu,start\n");
        for event in &self.events {
            let what = match event.what {
                What::Placed => "placed",
                What::Lost => "lost",
                What::Moved => "moved",
                What::Left => "left",
            };
            let seat = event
                .seat
                .map_or_else(|| ",".to_owned(), |seat| format!("{},{}", seat.gpu, seat.start));
            let profile = shapes.shape(event.class).profile;
            let _ = writeln!(text, "{:.6},{},{what},{profile},{seat}", event.at, event.pod);
        }
        text
    }

    fn begin(&mut self, pod: usize, class: usize, seat: Seat, now: f64, moved: bool) {
        if self.last.len() <= pod {
            self.last.resize(pod + 1, None);
        }
        self.last[pod] = Some(self.stretches.len());
        self.stretches.push(Stretch {
            pod,
            class,
            seat,
            from: now,
            until: f64::INFINITY,
            moved,
        });
    }

    fn end(&mut self, pod: usize, now: f64) -> Option<Stretch> {
        let at = self.last.get_mut(pod)?.take()?;
        self.stretches[at].until = now;
        Some(self.stretches[at])
    }
}

impl Watch for Story {
    fn answered(&mut self, now: f64, pod: usize, class: usize, outcome: &Outcome) {
        for moved in &outcome.moved {
            if let Some(before) = self.end(moved.pod, now) {
                self.begin(moved.pod, before.class, moved.to, now, true);
                self.events.push(Event {
                    at: now,
                    pod: moved.pod,
                    what: What::Moved,
                    class: before.class,
                    seat: Some(moved.to),
                });
            }
        }
        match outcome.seat {
            Some(seat) => self.begin(pod, class, seat, now, false),
            None => self.lost.push((now, class)),
        }
        self.events.push(Event {
            at: now,
            pod,
            what: if outcome.seat.is_some() {
                What::Placed
            } else {
                What::Lost
            },
            class,
            seat: outcome.seat,
        });
    }

    fn left(&mut self, now: f64, pod: usize) {
        if let Some(was) = self.end(pod, now) {
            self.events.push(Event {
                at: now,
                pod,
                what: What::Left,
                class: was.class,
                seat: Some(was.seat),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::engine::{Length, run};
    use crate::mig::load::{Arrivals, MIXES, Pattern};
    use crate::mig::policy::Policy;

    #[test]
    fn no_two_slices_are_ever_at_the_same_place_under_any_policy() {
        let shapes = Shapes::h100();
        let pattern = Pattern::Steady(MIXES[0]);
        let length = Length {
            arrivals: 400,
            warm_up: 0,
        };
        for (name, policy) in crate::mig::policy::POLICIES {
            let mut story = Story::default();
            let policy: Policy = policy;
            let mut fleet = policy.fleet(&shapes, &pattern, 1.2, 6, &shared::policy::Policy::default());
            let arrivals = Arrivals::new(&pattern, &shapes, 1.2, 6, 5);
            let tally = run(&mut *fleet, 6, &shapes, arrivals, length, &mut story);
            assert_eq!(story.lost.len(), tally.asked - tally.accepted, "{name}");
            for (at, one) in story.stretches.iter().enumerate() {
                let window = shapes.window(one.class, one.seat.start);
                for other in &story.stretches[at + 1..] {
                    let together =
                        one.seat.gpu == other.seat.gpu && one.from < other.until && other.from < one.until;
                    let overlap = window & shapes.window(other.class, other.seat.start) != 0;
                    assert!(!together || !overlap, "{name}: {one:?} and {other:?}");
                }
            }
            // fixed slices serve smaller requests, whose start then is the larger slice's
            let legal = |stretch: &Stretch| {
                let windows = &shapes.shape(stretch.class).windows;
                windows.iter().any(|(start, _)| *start == stretch.seat.start)
            };
            assert!(
                matches!(policy, Policy::Fixed(_)) || story.stretches.iter().all(legal),
                "{name}"
            );
            assert_eq!(story.csv(&shapes).lines().count(), 1 + story.events.len());
        }
    }
}
