//! Paths, one span a request, and metrics around the answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use tracing::Instrument as _;

use super::body::{self, BadBody};
use super::node_names::NodeNames;
use super::pace::pace;
use super::wire::{ExtenderArgs, ExtenderBindingArgs};
use super::{bind, filter, prioritize};
use crate::clock::Clock;
use crate::index::Index;
use crate::metrics::{Metrics, Outcome, Verb};
use crate::watch::pods::PodPart;
use crate::writer::Writer;

/// What the answers are made of.
#[derive(Clone)]
pub struct Extender {
    /// The cluster.
    pub index: Arc<Index>,
    /// To the API server.
    pub writer: Writer,
    /// What is counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// Largest body that is read, bytes.
    pub body_limit: usize,
}

/// The extender's paths: `POST /filter`, `/prioritize`, `/bind`.
pub fn router(extender: Extender) -> Router {
    Router::new()
        .route("/filter", post(on_filter))
        .route("/prioritize", post(on_prioritize))
        .route("/bind", post(on_bind))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "the paths here are POST /filter, /prioritize and /bind\n",
            )
        })
        .with_state(extender)
}

async fn on_filter(State(extender): State<Extender>, request: Request<Body>) -> Response {
    let start = extender.clock.steady();
    let (args, part) = match args(&extender, "filter", request).await {
        Ok(read) => read,
        Err(bad) => return extender.bad(Verb::Filter, bad, start),
    };
    let span = tracing::info_span!("filter", pod = %part.pod, node = tracing::field::Empty);
    let answer = span.in_scope(|| filter::filter(&extender.index, &part, args));
    if let Some(node) = answer.result.node_names.as_ref().and_then(NodeNames::only) {
        span.record("node", node);
    }
    let response = Json(&answer.result).into_response();
    extender.count(Verb::Filter, answer.outcome, answer.reason, start);
    if answer.outcome == Outcome::Placed {
        pace(&extender.index).await;
    }
    response
}

async fn on_prioritize(State(extender): State<Extender>, request: Request<Body>) -> Response {
    let start = extender.clock.steady();
    let (args, part) = match args(&extender, "prioritize", request).await {
        Ok(read) => read,
        Err(bad) => return extender.bad(Verb::Prioritize, bad, start),
    };
    let span = tracing::info_span!("prioritize", pod = %part.pod);
    let (scores, outcome) = span.in_scope(|| prioritize::prioritize(&extender.index, &part, args));
    extender.count(Verb::Prioritize, outcome, "", start);
    Json(scores).into_response()
}

async fn on_bind(State(extender): State<Extender>, request: Request<Body>) -> Response {
    let start = extender.clock.steady();
    let args: ExtenderBindingArgs =
        match body::read("bind", "ExtenderBindingArgs", request, extender.body_limit).await {
            Ok(args) => args,
            Err(bad) => return extender.bad(Verb::Bind, bad, start),
        };
    let span = tracing::info_span!(
        "bind",
        pod = %format_args!("{}/{}", args.pod_namespace, args.pod_name),
        node = args.node,
        gpu = tracing::field::Empty,
        place = tracing::field::Empty,
    );
    let answer = bind::bind(&extender.index, &extender.writer, args)
        .instrument(span)
        .await;
    extender.count(Verb::Bind, answer.outcome, answer.reason, start);
    Json(answer.result).into_response()
}

async fn args(
    extender: &Extender,
    word: &'static str,
    request: Request<Body>,
) -> Result<(ExtenderArgs, PodPart), BadBody> {
    let mut args: ExtenderArgs = body::read(word, "ExtenderArgs", request, extender.body_limit).await?;
    let pod = args.pod.take().ok_or(BadBody::Lacks {
        verb: word,
        field: "Pod",
    })?;
    // whole nodes come from a cluster autoscaler, which may send a pod other than it is
    let part = match &args.nodes {
        None => pod.part(&extender.index),
        Some(_) => pod.read(),
    };
    let part = part.map_err(|error| BadBody::NotJson {
        verb: word,
        what: "ExtenderArgs",
        error,
    })?;
    Ok((args, part))
}

impl Extender {
    fn bad(&self, verb: Verb, bad: BadBody, start: Duration) -> Response {
        self.count(verb, Outcome::Error, "BadBody", start);
        bad.into_response()
    }

    fn count(&self, verb: Verb, outcome: Outcome, reason: &'static str, start: Duration) {
        self.metrics
            .answered(verb, outcome, reason, self.clock.steady().saturating_sub(start));
    }
}
