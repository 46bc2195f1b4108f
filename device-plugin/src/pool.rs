//! The policy that holds on this node: that of the first GpuPool, by name, whose selector the node's labels meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serve::watch::Change;
use shared::api::GpuPool;
use shared::api::gpu_pool::GpuPoolSpec;
use shared::policy::Policy;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long idle slices are kept, while no pool says otherwise.
#[must_use]
pub fn default_keep() -> Duration {
    Duration::from_secs(Policy::default().idle_slice_seconds.into())
}

/// How often load is read, while no pool says otherwise.
#[must_use]
pub fn default_scan() -> Duration {
    Duration::from_secs(Policy::default().scan_interval_seconds.into())
}

/// Follows the pools and tells how long idle slices are kept, where that is asked, and how often load is read.
///
/// # Errors
/// None: a watch that fails is tried again.
pub async fn follow(
    client: Client,
    mut labels: watch::Receiver<Arc<BTreeMap<String, String>>>,
    keep: Option<watch::Sender<Duration>>,
    scan: watch::Sender<Duration>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let mut pools = BTreeMap::new();
    let mut changes = serve::watch::watch(
        Api::<GpuPool>::all(client),
        watcher::Config::default(),
        token.clone(),
    )
    .stream;
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            Ok(()) = labels.changed() => {}
            change = changes.next() => match change {
                Some(Change::Reset(all)) => pools = all.into_iter().map(|pool| (pool.name_any(), pool.spec)).collect(),
                Some(Change::Apply(pool)) => drop(pools.insert(pool.name_any(), pool.spec)),
                Some(Change::Delete(pool)) => drop(pools.remove(&pool.name_any())),
                None => return Ok(()),
            },
        }
        let policy = policy(&pools, &labels.borrow_and_update());
        if let Some(keep) = &keep
            && say(keep, policy.idle_slice_seconds)
        {
            tracing::info!(
                seconds = policy.idle_slice_seconds,
                "idle slices are kept as the pool says"
            );
        }
        if say(&scan, policy.scan_interval_seconds) {
            tracing::info!(
                seconds = policy.scan_interval_seconds,
                "load is read as the pool says"
            );
        }
    }
}

/// Tells a time; whether it is another one than before.
fn say(to: &watch::Sender<Duration>, seconds: u32) -> bool {
    let now = Duration::from_secs(seconds.into());
    to.send_if_modified(|time| std::mem::replace(time, now) != now)
}

/// The policy for a node with these labels.
fn policy(pools: &BTreeMap<String, GpuPoolSpec>, labels: &BTreeMap<String, String>) -> Policy {
    let selects = |pool: &&GpuPoolSpec| {
        pool.node_selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    };
    pools
        .values()
        .find(selects)
        .map(|pool| pool.policy.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pool_that_selects_the_node_counts() {
        let pool = |selector: &[(&str, &str)], seconds| GpuPoolSpec {
            node_selector: selector
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            policy: Policy {
                idle_slice_seconds: seconds,
                ..Policy::default()
            },
            ..GpuPoolSpec::default()
        };
        let pools = BTreeMap::from([
            ("a".to_owned(), pool(&[("zone", "x")], 1)),
            ("b".to_owned(), pool(&[("zone", "y")], 2)),
            ("c".to_owned(), pool(&[], 3)),
        ]);
        let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        assert_eq!(policy(&pools, &zone("y")).idle_slice_seconds, 2);
        assert_eq!(policy(&pools, &BTreeMap::new()).idle_slice_seconds, 3);
        assert_eq!(policy(&BTreeMap::new(), &BTreeMap::new()).idle_slice_seconds, 600);
    }
}
