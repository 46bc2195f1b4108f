//! The client of the API server: TLS by `ring`, connection attempts that give up early, and a variant that reports
//! the first failure instead of trying again by itself.

use std::time::Duration;

use anyhow::Context as _;

/// A connection that takes longer than this will not come: the API server is one hop away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes `ring` the process's TLS provider; must come before the first TLS connection. Later calls do nothing.
pub fn install_tls_provider() {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::trace!("a TLS provider was installed before");
    }
}

/// A client from the environment: `KUBECONFIG`, else the pod's ServiceAccount. Requests answered with 429, 503 or
/// 504 are tried again.
///
/// # Errors
/// There is neither, or it cannot be read.
pub async fn client() -> anyhow::Result<kube::Client> {
    from_environment(true).await
}

/// As [`client`], but every failure is the caller's to see: for paths with a deadline of their own.
///
/// # Errors
/// As [`client`].
pub async fn client_without_retry() -> anyhow::Result<kube::Client> {
    from_environment(false).await
}

async fn from_environment(retry: bool) -> anyhow::Result<kube::Client> {
    install_tls_provider();
    let mut config = kube::Config::infer()
        .await
        .context("no API server to talk to: set KUBECONFIG or run in a pod with a ServiceAccount")?;
    config.default_retry = retry;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    tracing::debug!(server = %config.cluster_url, retry, "API server");
    kube::Client::try_from(config).context("the client of the API server cannot be made")
}
