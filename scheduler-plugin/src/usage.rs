//! The load of the nodes' GPUs, as their agents tell it, and what is expected from it. Each agent tells a value a
//! minute over a stream of its own; the nodes of a GpuPool are forecast together, and what comes of it goes to the
//! index, where it counts in placement.
//!
//! Every replica follows the streams, not only the leader: kube-scheduler's leader and ours need not be in the same
//! pod, and whoever is asked needs to know what is expected. Losing them costs nothing but the forecasts.
//!
//! * [`token`] - what is shown to agents
//! * [`loads`] - what they told
//! * [`stream`] - the stream of one node
//! * [`streams`] - those of all nodes, as the index has them
//! * [`fleets`] - the forecasts of each pool
//! * [`turns`] - from what was told to what is expected, again and again

pub mod fleets;
pub mod loads;
pub mod stream;
pub mod streams;
pub mod token;
pub mod turns;

use std::path::PathBuf;
use std::sync::Arc;

use serve::tasks::Tasks;
use shared::policy::LOAD_DIALS_AT_ONCE;
use tokio::sync::Semaphore;

use self::loads::Loads;
use self::stream::Shared;
use self::streams::Streams;
use self::token::TokenFile;
use self::turns::Turns;
use crate::clock::Clock;
use crate::index::Index;
use crate::index::expected::Expected;
use crate::metrics::load::LoadMetrics;

/// Starts following the agents with the token in a file; without one no agent is called, and nothing is expected.
pub fn start(
    tasks: &mut Tasks,
    index: &Arc<Index>,
    token_file: Option<PathBuf>,
    metrics: &LoadMetrics,
    clock: &Clock,
) {
    let loads = Arc::new(Loads::default());
    let token = tasks.token();
    let turns = Turns {
        index: Arc::clone(index),
        loads: Arc::clone(&loads),
        followed: token_file.is_some(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        expected: Expected::default(),
    };
    tasks.spawn("forecasts", turns.run(token.clone()));
    if let Some(path) = token_file {
        let shared = Shared {
            loads,
            token: TokenFile::new(path),
            metrics: metrics.clone(),
            clock: clock.clone(),
            dials: Semaphore::new(LOAD_DIALS_AT_ONCE),
        };
        let streams = Streams::new(Arc::clone(index), Arc::new(shared));
        tasks.spawn("load streams", streams.run(token));
    }
}
