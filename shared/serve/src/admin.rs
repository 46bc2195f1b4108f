//! `/metrics` for Prometheus, `/livez` and `/readyz` for the kubelet. Readiness is kept part by part, so that a
//! person who asks `/readyz` reads which part is not ready and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Limits};

/// Content type of OpenMetrics text, as Prometheus asks for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Which parts of a program are ready. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    parts: Arc<Mutex<BTreeMap<&'static str, Result<(), String>>>>,
}

impl Readiness {
    /// No parts: ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says of a part that it is ready, or why it is not.
    pub fn set(&self, part: &'static str, state: Result<(), String>) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = parts.insert(part, state.clone());
        if before.as_ref() != Some(&state) {
            match state {
                Ok(()) => tracing::info!(part, "ready"),
                Err(reason) => tracing::info!(part, reason, "not ready"),
            }
        }
    }

    /// Whether every part is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .all(Result::is_ok)
    }

    /// One line a part.
    #[must_use]
    pub fn report(&self) -> String {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (part, state) in parts.iter() {
            // writing to a String cannot fail
            let _ = match state {
                Ok(()) => writeln!(text, "{part}: ready"),
                Err(reason) => writeln!(text, "{part}: not ready: {reason}"),
            };
        }
        if text.is_empty() {
            "ready\n".to_owned()
        } else {
            text
        }
    }
}

/// The three endpoints, for a server that has others too.
pub fn router(registry: Arc<Registry>, readiness: Readiness) -> Router {
    Router::new()
        .route("/metrics", get(move || async move { metrics(&registry) }))
        .route("/livez", get(|| async { "live\n" }))
        .route("/readyz", get(move || async move { readyz(&readiness) }))
}

/// Serves the three endpoints, and `extra`, until the token is cancelled.
///
/// # Errors
/// As [`http::serve`].
pub async fn serve(
    listener: TcpListener,
    registry: Arc<Registry>,
    readiness: Readiness,
    extra: Router,
    token: CancellationToken,
) -> anyhow::Result<()> {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "admin endpoints: /metrics /livez /readyz");
    }
    http::serve(
        listener,
        router(registry, readiness).merge(extra),
        Limits::ADMIN,
        token,
    )
    .await
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics cannot be written: {error}\n"),
        )
            .into_response(),
    }
}

fn readyz(readiness: &Readiness) -> (StatusCode, String) {
    let status = if readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, readiness.report())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    use super::*;

    async fn got(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_names_each_part_and_why_it_is_not_ready() {
        let ready = Readiness::new();
        let router = router(Arc::new(Registry::default()), ready.clone());
        assert_eq!(got(&router, "/readyz").await, (StatusCode::OK, "ready\n".into()));
        ready.set("watch", Ok(()));
        ready.set("nvml", Err("no driver yet".into()));
        let expected = "nvml: not ready: no driver yet\nwatch: ready\n";
        assert_eq!(
            got(&router, "/readyz").await,
            (StatusCode::SERVICE_UNAVAILABLE, expected.into())
        );
        assert_eq!(got(&router, "/livez").await, (StatusCode::OK, "live\n".into()));
        ready.set("nvml", Ok(()));
        assert_eq!(
            got(&router, "/readyz").await,
            (StatusCode::OK, "nvml: ready\nwatch: ready\n".into())
        );
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text() {
        let mut registry = Registry::with_prefix("migpool");
        let cut = Counter::<u64>::default();
        registry.register("slices_cut", "Slices cut", cut.clone());
        cut.inc();
        let (status, text) = got(&router(Arc::new(registry), Readiness::new()), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            text,
            "# HELP migpool_slices_cut Slices cut.\n# TYPE migpool_slices_cut counter\nmigpool_slices_cut_total 1\n# EOF\n"
        );
    }
}
