//! A fleet under one of the rules, with or without the reference's one-move repair: when nothing fits, the smallest
//! running slice whose move makes room is moved, to where the rule likes it best.

use super::engine::{Fleet, Moved, Outcome, Seat};
use super::rules::{Rule, Table};
use super::shapes::{CLASSES, Shapes};

/// GPUs under a rule.
#[derive(Clone, Debug)]
pub struct RuleFleet<'a> {
    shapes: &'a Shapes,
    rule: Rule,
    repairs: bool,
    masks: Vec<u8>,
    /// Slices by GPU: (request, profile, start).
    slices: Vec<Vec<(usize, usize, u8)>>,
    /// Where each request sits, by number.
    seats: Vec<Option<Seat>>,
    /// Round robin looks from here on.
    from: usize,
    table: Table,
}

impl<'a> RuleFleet<'a> {
    /// Empty GPUs. The rules that look at the mix are told the true one, as in the reference.
    #[must_use]
    pub fn new(shapes: &'a Shapes, rule: Rule, repairs: bool, gpus: usize, mix: &[f64]) -> Self {
        Self {
            shapes,
            rule,
            repairs,
            masks: vec![0; gpus],
            slices: vec![Vec::new(); gpus],
            seats: Vec::new(),
            from: 0,
            table: rule.table(shapes, mix),
        }
    }

    /// The occupancy masks.
    #[must_use]
    pub fn masks(&self) -> &[u8] {
        &self.masks
    }

    fn put(&mut self, pod: usize, class: usize, seat: Seat) {
        self.masks[seat.gpu] |= self.shapes.window(class, seat.start);
        self.slices[seat.gpu].push((pod, class, seat.start));
        if self.seats.len() <= pod {
            self.seats.resize(pod + 1, None);
        }
        self.seats[pod] = Some(seat);
    }

    fn take(&mut self, pod: usize) -> Option<usize> {
        let seat = self.seats.get_mut(pod)?.take()?;
        let at = self.slices[seat.gpu]
            .iter()
            .position(|(other, _, _)| *other == pod)?;
        let (_, class, start) = self.slices[seat.gpu].swap_remove(at);
        self.masks[seat.gpu] &= !self.shapes.window(class, start);
        Some(class)
    }

    /// The move that makes room for `class`: (size, key of both places, GPU, request) least of all.
    fn repair(&self, class: usize) -> Option<Repair> {
        let mut best: Option<(u8, i64, Repair)> = None;
        // where a slice of each profile would go on any GPU, and on any but that one
        let elsewhere: Vec<_> = (0..CLASSES).map(|class| self.two_best(class)).collect();
        for (gpu, slices) in self.slices.iter().enumerate() {
            for (pod, moved, start) in slices {
                let size = self.shapes.shape(*moved).size;
                let left = self.masks[gpu] & !self.shapes.window(*moved, *start);
                let Some((opens, at)) = self.table.best(class, left) else {
                    continue;
                };
                let taken = left | self.shapes.window(class, at);
                let inside = self
                    .table
                    .best(*moved, taken)
                    .map(|(key, start)| (key, Seat { gpu, start }));
                let outside = elsewhere[*moved]
                    .iter()
                    .flatten()
                    .find(|(_, seat)| seat.gpu != gpu)
                    .copied();
                let Some((key, to)) = inside.into_iter().chain(outside).min() else {
                    continue;
                };
                let repair = Repair {
                    pod: *pod,
                    to,
                    opens: Seat { gpu, start: at },
                };
                let rank = (size, opens + key);
                if best.as_ref().is_none_or(|(size, cost, _)| rank < (*size, *cost)) {
                    best = Some((rank.0, rank.1, repair));
                }
            }
        }
        best.map(|(_, _, repair)| repair)
    }

    fn two_best(&self, class: usize) -> [Option<(i64, Seat)>; 2] {
        let mut two = [None, None];
        for (gpu, mask) in self.masks.iter().enumerate() {
            let Some((key, start)) = self.table.best(class, *mask) else {
                continue;
            };
            let here = Some((key, Seat { gpu, start }));
            let better = |than: Option<(i64, Seat)>| than.is_none_or(|(least, _)| key < least);
            if better(two[0]) {
                two = [here, two[0]];
            } else if better(two[1]) {
                two[1] = here;
            }
        }
        two
    }
}

struct Repair {
    pod: usize,
    to: Seat,
    opens: Seat,
}

impl Fleet for RuleFleet<'_> {
    fn arrive(&mut self, _: f64, pod: usize, class: usize) -> Outcome {
        if let Some((gpu, start)) = self.table.choose(class, &self.masks, self.from) {
            if self.rule == Rule::RoundRobin {
                self.from = (gpu + 1) % self.masks.len();
            }
            let seat = Seat { gpu, start };
            self.put(pod, class, seat);
            return Outcome {
                seat: Some(seat),
                moved: Vec::new(),
            };
        }
        let repair = if self.repairs { self.repair(class) } else { None };
        let Some(repair) = repair else {
            return Outcome::default();
        };
        if let Some(moved) = self.take(repair.pod) {
            self.put(repair.pod, moved, repair.to);
        }
        self.put(pod, class, repair.opens);
        Outcome {
            seat: Some(repair.opens),
            moved: vec![Moved {
                pod: repair.pod,
                to: repair.to,
            }],
        }
    }

    fn depart(&mut self, _: f64, pod: usize) {
        self.take(pod);
    }

    fn active(&self) -> usize {
        self.masks.iter().filter(|mask| **mask != 0).count()
    }
}
