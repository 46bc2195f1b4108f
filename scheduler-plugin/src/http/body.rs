//! Reading a request's body: bounded, and refused with one sentence that says what is wrong with it.

use axum::Json;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

/// A body that is not answered.
#[derive(Debug, thiserror::Error)]
pub enum BadBody {
    /// Larger than allowed.
    #[error(
        "the {verb} body is larger than {limit} bytes; set nodeCacheCapable: true in the extender's entry so that names are sent, or raise --body-limit"
    )]
    TooLarge {
        /// filter, prioritize or bind.
        verb: &'static str,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not JSON, or not the type that the verb takes.
    #[error("the {verb} body is not {what}: {error}; send what kube-scheduler sends")]
    NotJson {
        /// filter, prioritize or bind.
        verb: &'static str,
        /// Name of the type in Go.
        what: &'static str,
        /// What the reader found, and where.
        error: serde_json::Error,
    },
    /// The connection broke.
    #[error("the {verb} body ended early: {error}; send it again")]
    Broken {
        /// filter, prioritize or bind.
        verb: &'static str,
        /// What happened.
        error: axum::Error,
    },
    /// A part is missing that no answer can do without.
    #[error("the {verb} body lacks {field}; send what kube-scheduler sends")]
    Lacks {
        /// filter, prioritize or bind.
        verb: &'static str,
        /// The field on the wire.
        field: &'static str,
    },
}

impl IntoResponse for BadBody {
    fn into_response(self) -> Response {
        let status = match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotJson { .. } | Self::Broken { .. } | Self::Lacks { .. } => StatusCode::BAD_REQUEST,
        };
        let sentence = self.to_string();
        tracing::warn!(status = status.as_u16(), error = %sentence, "request refused");
        (status, Json(serde_json::json!({ "Error": sentence }))).into_response()
    }
}

/// Reads a whole body of at most `limit` bytes as JSON.
///
/// # Errors
/// [`BadBody`] says what is wrong with it.
pub async fn read<T: DeserializeOwned>(
    verb: &'static str,
    what: &'static str,
    request: Request<Body>,
    limit: usize,
) -> Result<T, BadBody> {
    let told = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > limit as u64) {
        return Err(BadBody::TooLarge { verb, limit });
    }
    let bytes = axum::body::to_bytes(request.into_body(), limit)
        .await
        .map_err(|error| {
            let large = std::error::Error::source(&error)
                .and_then(|source| source.downcast_ref::<LengthLimitError>())
                .is_some();
            if large {
                BadBody::TooLarge { verb, limit }
            } else {
                BadBody::Broken { verb, error }
            }
        })?;
    serde_json::from_slice(&bytes).map_err(|error| BadBody::NotJson { verb, what, error })
}
