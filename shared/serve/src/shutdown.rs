//! The end of the program as one token: cancelled by SIGTERM (the kubelet) or SIGINT (a person). A second signal
//! ends the program at once, for the person who does not want to wait.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status after a second signal.
const IMPATIENT: i32 = 130;

/// The token that ends the program. Must be called inside a runtime.
#[must_use]
pub fn token() -> CancellationToken {
    let token = CancellationToken::new();
    // Both are registered before this returns: a signal that comes right after is not lost.
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut term), Ok(mut interrupt)) => {
            let cancel = token.clone();
            // Lives as long as the process does: it is what ends it.
            tokio::spawn(async move {
                let name = either(&mut term, &mut interrupt).await;
                tracing::info!(signal = name, "shutting down");
                cancel.cancel();
                let name = either(&mut term, &mut interrupt).await;
                tracing::warn!(signal = name, "second signal, ending at once");
                std::process::exit(IMPATIENT);
            });
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(%error, "signals cannot be caught, so they end the program without clean-up");
        }
    }
    token
}

async fn either(
    term: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) -> &'static str {
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
