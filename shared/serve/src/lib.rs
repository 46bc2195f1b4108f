//! What both programs need around their work, and nothing of what they do: no word here knows what a GPU is.
//!
//! A program's `main` puts them together in this order:
//!
//! ```no_run
//! # async fn run() -> anyhow::Result<()> {
//! use std::sync::Arc;
//!
//! serve::logs::init(serve::logs::Format::Text);
//! let mut tasks = serve::tasks::Tasks::new(serve::shutdown::token());
//! let ready = serve::admin::Readiness::new();
//! let listener = tokio::net::TcpListener::bind("0.0.0.0:9402").await?;
//! let registry = Arc::new(prometheus_client::registry::Registry::default());
//! let token = tasks.token();
//! tasks.spawn("admin", serve::admin::serve(listener, registry, ready.clone(), axum::Router::new(), token));
//! tasks.join().await
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod admin;
pub mod client;
pub mod http;
pub mod lease;
pub mod logs;
pub mod shutdown;
pub mod tasks;
pub mod usage;
pub mod watch;
