//! The fleet under migpool's own decisions, as MIG-100 drives it: one slice a request.

use std::sync::Arc;

use shared::names::DeviceId;
use shared::policy::Policy;
use shared::snapshot::Request;

use super::engine::{Fleet, Moved, Outcome, Seat};
use super::shapes::Shapes;
use crate::fleet::{self, Make};

/// What one mean lifetime is on the virtual clock, seconds. The half-life of the demand mix is counted against it:
/// an hour makes the default of six hours six lifetimes.
pub const LIFETIME_SECONDS: f64 = 3_600.0;
/// GPUs in a node.
const GPUS_PER_NODE: usize = 4;

/// GPUs under our decisions.
#[derive(Clone, Debug)]
pub struct OurFleet {
    fleet: fleet::Fleet,
    /// One request for each profile.
    requests: Vec<Request>,
}

impl OurFleet {
    /// Empty GPUs.
    #[must_use]
    pub fn new(shapes: &Shapes, policy: Policy, repairs: bool, gpus: usize) -> Self {
        let make = Make {
            board: Arc::clone(&shapes.board),
            gpus_per_node: GPUS_PER_NODE,
            policy,
            repairs,
        };
        let request =
            |shape: &super::shapes::Shape| Request::of_one(fleet::CONTAINER, Some(shape.profile), 1);
        Self {
            fleet: fleet::Fleet::new(make, gpus),
            requests: shapes.each().map(request).collect(),
        }
    }

    /// Where a request is.
    fn seat(&self, pod: usize) -> Option<Seat> {
        self.fleet.devices(pod).first().map(seat)
    }
}

impl Fleet for OurFleet {
    fn arrive(&mut self, now: f64, pod: usize, class: usize) -> Outcome {
        let moved = match self
            .fleet
            .arrive(now * LIFETIME_SECONDS, pod, &self.requests[class])
        {
            Some(arrived) => arrived.moved,
            None => return Outcome::default(),
        };
        let moved = moved.and_then(|pod| {
            Some(Moved {
                pod,
                to: self.seat(pod)?,
            })
        });
        Outcome {
            seat: self.seat(pod),
            moved: moved.into_iter().collect(),
        }
    }

    fn depart(&mut self, _: f64, pod: usize) {
        self.fleet.depart(pod);
    }

    fn active(&self) -> usize {
        self.fleet.active()
    }
}

fn seat(device: &DeviceId) -> Seat {
    Seat {
        gpu: fleet::gpu_of(device),
        start: device.place.start,
    }
}
