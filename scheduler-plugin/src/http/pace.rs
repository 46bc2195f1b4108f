//! Kube-scheduler is held back for a moment when it is about to overtake the planner: the next pod would cost it a
//! look at every node, and the nomination that saves this is on its way. The pod that is answered has its place
//! already, so nothing can be lost by waiting but the time, and that is bounded.

use crate::index::Index;

/// Waits until the planner is ahead again, or for as long as the policy allows.
pub async fn pace(index: &Index) {
    let Some(longest) = index.close_to_the_planner() else {
        return;
    };
    let mut changes = index.changes();
    let ahead = async { while index.close_to_the_planner().is_some() && changes.changed().await.is_ok() {} };
    // either way kube-scheduler goes on
    let _ = tokio::time::timeout(longest, ahead).await;
}
