//! The load of this node's GPUs: read from time to time, averaged to minutes, remembered for a day, and told to the
//! scheduler, which forecasts it. Nothing of it names a pod. Where it is lost nothing but forecasts is lost: whatever
//! goes wrong here, the kubelet is served.
//!
//! * [`sample`] - the load of the node from what was read of its slices
//! * [`average`] - samples to minutes
//! * [`mod@file`] - what survives a restart of the agent
//! * [`sampler`] - reads, averages, remembers
//! * [`server`] - tells, to whom [`callers`] lets in; [`connection`] - and for how long others may knock

pub mod average;
pub mod callers;
pub mod connection;
pub mod file;
pub mod sample;
pub mod sampler;
pub mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::decide::forecast::minutes::Minutes;
use tokio::sync::watch;

use crate::gpus::Usage;

/// What is known of the load here. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Load {
    minutes: watch::Sender<Minutes>,
    reading: watch::Sender<Arc<Reading>>,
}

/// What was read last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// By UUID of the MIG device, or of the GPU without MIG. Activity is within 0 to 1.
    pub usages: BTreeMap<String, Usage>,
    /// Load of the node, 0 to 1; `None` where it is not known.
    pub load: Option<f64>,
}

impl Load {
    /// With what the last agent remembered.
    #[must_use]
    pub fn new(minutes: Minutes) -> Self {
        Self {
            minutes: watch::Sender::new(minutes),
            reading: watch::Sender::default(),
        }
    }

    /// Remembers the load of a minute, and tells whoever listens. False where it says nothing new.
    pub fn put(&self, minute: i64, load: f32) -> bool {
        self.minutes.send_if_modified(|minutes| minutes.put(minute, load))
    }

    /// What is remembered, and when there is more.
    #[must_use]
    pub fn minutes(&self) -> watch::Receiver<Minutes> {
        self.minutes.subscribe()
    }

    /// Takes down what was read now.
    pub fn read(&self, reading: Reading) {
        self.reading.send_replace(Arc::new(reading));
    }

    /// What was read last.
    #[must_use]
    pub fn reading(&self) -> Arc<Reading> {
        Arc::clone(&self.reading.borrow())
    }
}
