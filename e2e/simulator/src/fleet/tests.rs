use super::*;
use crate::mig::engine::{self, Length, Moved, Outcome};
use crate::mig::load::{Arrivals, MIXES, Pattern};
use crate::mig::ours::LIFETIME_SECONDS;
use crate::mig::shapes::Shapes;
use shared::snapshot::Phase;

fn request(wants: &[(&str, u32)]) -> Request {
    let want = |(name, count): &(&str, u32)| Want {
        container: "main".to_owned(),
        phase: Phase::Main,
        profile: (*name != "gpu").then(|| name.parse().unwrap()),
        count: *count,
    };
    Request {
        wants: wants.iter().map(want).collect(),
        ..Request::default()
    }
}

fn fleet(gpus: usize, repairs: bool) -> Fleet {
    let make = Make {
        board: Arc::new(Board::named("H100-80GB").unwrap().clone()),
        gpus_per_node: 2,
        policy: Policy::default(),
        repairs,
    };
    Fleet::new(make, gpus)
}

#[test]
fn several_slices_and_whole_gpus_come_and_go_on_one_node() {
    let mut fleet = fleet(4, false);
    assert!(fleet.arrive(0.0, 0, &request(&[("gpu", 2)])));
    assert!(fleet.arrive(0.0, 1, &request(&[("1g.10gb", 9)])));
    assert_eq!(fleet.active(), 4);
    // five slices are free, but no GPU is empty
    assert!(!fleet.arrive(1.0, 2, &request(&[("gpu", 1)])));
    fleet.depart(2);
    fleet.depart(0);
    assert!(fleet.arrive(2.0, 3, &request(&[("gpu", 1)])));
    assert_eq!(fleet.active(), 3);
    fleet.depart(1);
    fleet.depart(3);
    assert_eq!(fleet.active(), 0);
}

#[test]
fn a_pod_is_moved_for_one_that_fits_nowhere_else() {
    // both 3g on one GPU, 1g and 4g on the other: once the upper 3g has gone, the lower one is in the way of a 4g
    let fill = |fleet: &mut Fleet| {
        for (pod, name) in ["3g.40gb", "3g.40gb", "1g.10gb", "4g.40gb"].iter().enumerate() {
            assert!(fleet.arrive(0.0, pod, &request(&[(name, 1)])), "{pod}");
        }
        fleet.depart(0);
        fleet.arrive(1.0, 9, &request(&[("4g.40gb", 1)]))
    };
    let (mut without, mut with) = (fleet(2, false), fleet(2, true));
    let (alone, repaired) = (fill(&mut without), fill(&mut with));
    assert!(!alone && repaired);
    assert_eq!((without.moves(), with.moves()), (0, 1));
}

/// The fleet as the engine of MIG-100 drives it; that a request is in is all that counts here.
struct Driven {
    fleet: Fleet,
    shapes: Shapes,
}

impl engine::Fleet for Driven {
    fn arrive(&mut self, now: f64, pod: usize, class: usize) -> Outcome {
        let name = self.shapes.shape(class).profile.to_string();
        let before = self.fleet.moves();
        let is_in = self
            .fleet
            .arrive(now * LIFETIME_SECONDS, pod, &request(&[(&name, 1)]));
        let seat = engine::Seat { gpu: 0, start: 0 };
        Outcome {
            seat: is_in.then_some(seat),
            moved: vec![Moved { pod, to: seat }; self.fleet.moves() - before],
        }
    }

    fn depart(&mut self, _: f64, pod: usize) {
        self.fleet.depart(pod);
    }

    fn active(&self) -> usize {
        self.fleet.active()
    }
}

#[test]
fn it_does_what_the_fleet_of_mig_100_does() {
    let shapes = Shapes::h100();
    let pattern = Pattern::Steady(MIXES[0]);
    let length = Length {
        arrivals: 1_500,
        warm_up: 200,
    };
    let tally = |fleet: &mut dyn engine::Fleet| {
        let arrivals = Arrivals::new(&pattern, &shapes, 1.0, 20, 3);
        engine::run(fleet, 20, &shapes, arrivals, length, &mut ())
    };
    let ours: crate::mig::policy::Policy = "ours/m".parse().unwrap();
    let known = tally(&mut *ours.fleet(&shapes, &pattern, 1.0, 20, &Policy::default()));
    let make = Make {
        board: Arc::clone(&shapes.board),
        gpus_per_node: 4,
        policy: Policy::default(),
        repairs: true,
    };
    let mut driven = Driven {
        fleet: Fleet::new(make, 20),
        shapes: Shapes::h100(),
    };
    assert_eq!(tally(&mut driven), known);
    assert!(known.moves > 0);
}
