//! The stream of one node: its agent is called, what it tells is taken in, and when it ends it is called again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder as _;
use serve::usage::connect::connect;
use serve::usage::proto::usage_client::UsageClient;
use serve::usage::proto::{WatchRequest, WatchResponse};
use shared::policy::{LOAD_DIAL_SECONDS, LOAD_MESSAGE_BYTES, LOAD_REDIAL_SECONDS, LOAD_USELESS_MINUTES};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use super::loads::Loads;
use super::token::TokenFile;
use crate::clock::Clock;
use crate::metrics::load::LoadMetrics;
use crate::watch::endpoint::Endpoint;

/// Longest that an agent may take to answer a call, and to begin to tell.
const DIAL: Duration = Duration::from_secs(LOAD_DIAL_SECONDS);
/// How much of what an agent says about a failure is repeated, characters.
const MOST_SAID: usize = 200;

/// What all streams share.
#[derive(Debug)]
pub struct Shared {
    /// Where minutes go.
    pub loads: Arc<Loads>,
    /// What is shown to agents.
    pub token: TokenFile,
    /// What is counted.
    pub metrics: LoadMetrics,
    /// The time.
    pub clock: Clock,
    /// How many agents are called at once.
    pub dials: Semaphore,
}

/// The stream of a node.
#[derive(Debug)]
pub struct Stream {
    /// Name of the node.
    pub node: Arc<str>,
    /// Where its agent is.
    pub endpoint: Endpoint,
    /// What it has in common with the others.
    pub shared: Arc<Shared>,
}

/// A stream that is open.
struct Open {
    responses: Streaming<WatchResponse>,
    /// Holds the connection.
    _client: UsageClient<Channel>,
}

/// Why a stream is not open.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// Said by the token file.
    #[error("there is no token")]
    NoToken,
    #[error("the agent cannot be reached: {0}")]
    Unreachable(String),
    #[error("the agent refused: {0}")]
    Refused(String),
    #[error("the agent ended the stream")]
    ByAgent,
    #[error("the stream broke: {0}")]
    Broken(String),
    #[error("the agent told {LOAD_USELESS_MINUTES} minutes of no use")]
    Flood,
}

impl Stream {
    /// Follows the node until this is dropped.
    pub async fn follow(self) -> Infallible {
        let mut rests = rests();
        loop {
            let ended = match self.open().await {
                Ok(open) => self.take_in(open, &mut rests).await,
                Err(ended) => ended,
            };
            self.tell(&ended);
            let rest = rests.next().unwrap_or(Duration::from_secs(LOAD_REDIAL_SECONDS.1));
            tokio::time::sleep(rest).await;
        }
    }

    /// Calls the agent. The token is sent to whoever has shown the certificate that its GpuNode names, nobody else.
    async fn open(&self) -> Result<Open, Ended> {
        // closed it never is; without a permit nobody is called
        let Ok(_permit) = self.shared.dials.acquire().await else {
            std::future::pending().await
        };
        let token = self.shared.token.bearer().await.ok_or(Ended::NoToken)?;
        let Endpoint { address, fingerprint } = self.endpoint;
        let channel = connect(address, fingerprint, DIAL).await;
        let channel = channel.map_err(|error| Ended::Unreachable(short(&format!("{error:#}"))))?;
        let mut client = UsageClient::new(channel).max_decoding_message_size(LOAD_MESSAGE_BYTES);
        let mut request = Request::new(WatchRequest {
            after: self.shared.loads.last(&self.node),
        });
        request.metadata_mut().insert("authorization", token);
        let answer = timeout(DIAL, client.watch(request)).await;
        let answer = answer.map_err(|_| Ended::Unreachable("it does not answer in time".to_owned()))?;
        let responses = answer
            .map_err(|status| Ended::Refused(said(&status)))?
            .into_inner();
        self.shared.loads.opened(&self.node);
        tracing::debug!(node = &*self.node, %address, "load stream open");
        Ok(Open {
            responses,
            _client: client,
        })
    }

    /// Takes in what comes until nothing comes any more.
    async fn take_in(&self, mut open: Open, rests: &mut backon::ExponentialBackoff) -> Ended {
        let mut settled = false;
        let mut useless = 0;
        loop {
            let message = open.responses.message();
            // whether the other side still lives the connection finds out; here it may be silent for a minute
            let response = if settled {
                message.await
            } else if let Ok(response) = timeout(DIAL, message).await {
                response
            } else {
                // it remembers no more than this
                self.shared.loads.settle(&self.node);
                settled = true;
                continue;
            };
            let minutes = match response {
                Ok(Some(response)) => response.minutes,
                Ok(None) => return Ended::ByAgent,
                Err(status) => return Ended::Broken(said(&status)),
            };
            let now = self.shared.clock.calendar().as_second().div_euclid(60);
            let result = self.shared.loads.take(&self.node, &minutes, now);
            self.shared.metrics.minutes(result.taken, result.useless);
            settled |= result.settled;
            if result.returned {
                tracing::info!(node = &*self.node, "load stream is back");
            }
            if result.taken > 0 {
                *rests = self::rests();
            }
            // an empty message is no more use than a useless minute
            useless += result.useless + usize::from(minutes.is_empty());
            if useless > LOAD_USELESS_MINUTES {
                return Ended::Flood;
            }
        }
    }

    /// Counts an end, and logs the first since the node was last heard.
    fn tell(&self, ended: &Ended) {
        if let Some(reason) = ended.code() {
            self.shared.metrics.dial_failed(reason);
        }
        self.shared.loads.lost(&self.node);
        let address = self.endpoint.address;
        // that there is no token is said once for all
        if !matches!(ended, Ended::NoToken) && self.shared.loads.miss(&self.node) {
            tracing::warn!(node = &*self.node, %address, error = %ended, "load stream lost");
        } else {
            tracing::debug!(node = &*self.node, %address, error = %ended, "load stream still lost");
        }
    }
}

impl Ended {
    /// Why a call failed, for metrics; `None` for a stream that was open.
    const fn code(&self) -> Option<&'static str> {
        match self {
            Self::NoToken => Some("NoToken"),
            Self::Unreachable(_) => Some("Unreachable"),
            Self::Refused(_) => Some("Refused"),
            Self::ByAgent | Self::Broken(_) | Self::Flood => None,
        }
    }
}

/// Rests between calls that fail.
fn rests() -> backon::ExponentialBackoff {
    let (first, longest) = LOAD_REDIAL_SECONDS;
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(first))
        .with_max_delay(Duration::from_secs(longest))
        .with_jitter()
        .without_max_times()
        .build()
}

/// What an agent said about a failure.
fn said(status: &tonic::Status) -> String {
    short(&format!("{}: {}", status.code(), status.message()))
}

fn short(text: &str) -> String {
    text.chars().take(MOST_SAID).collect()
}
