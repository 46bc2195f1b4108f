//! Carries the watches to the index: one loop a kind, which also tells when a watch is lost and when it is back.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource as _};
use serve::tasks::Tasks;
use serve::watch::protobuf::Protobuf;
use serve::watch::{Change, Freshness, Watch, watch};
use shared::api::{GpuNode, GpuPool};

use super::gpu_nodes::GpuNodePart;
use super::gpu_pools::PoolPart;
use super::nodes::NodePart;
use super::pods::PodPart;
use super::pods::message::PodMessage;
use crate::index::Index;
use crate::index::sources::Source;

/// Objects in one answer of a list.
const PAGE: u32 = 500;

/// Starts the four watches.
pub fn start(tasks: &mut Tasks, client: &Client, index: &Arc<Index>) {
    let token = tasks.token();
    let config = || Config::default().page_size(PAGE);
    // of all that is watched pods are the most, and they change the most
    let all_pods = Protobuf::<PodMessage>::new(client.clone(), Pod::url_path(&(), None));
    let pods = watch(all_pods, config(), token.clone());
    tasks.spawn(
        "pods",
        feed(
            pods,
            Arc::clone(index),
            Source::Pods,
            |pod| PodPart::of(&pod.into()),
            Index::pods,
        ),
    );
    let nodes = watch(Api::<Node>::all(client.clone()), config(), token.clone());
    tasks.spawn(
        "nodes",
        feed(
            nodes,
            Arc::clone(index),
            Source::Nodes,
            |node| NodePart::of(&node),
            Index::nodes,
        ),
    );
    let gpu_nodes = watch(Api::<GpuNode>::all(client.clone()), config(), token.clone());
    tasks.spawn(
        "gpunodes",
        feed(
            gpu_nodes,
            Arc::clone(index),
            Source::GpuNodes,
            GpuNodePart::of,
            Index::gpu_nodes,
        ),
    );
    let pools = watch(Api::<GpuPool>::all(client.clone()), config(), token);
    tasks.spawn(
        "gpupools",
        feed(
            pools,
            Arc::clone(index),
            Source::GpuPools,
            PoolPart::of,
            Index::gpu_pools,
        ),
    );
}

async fn feed<K, P>(
    watch: Watch<K>,
    index: Arc<Index>,
    source: Source,
    read: impl Fn(K) -> P,
    take_in: impl Fn(&Index, Change<P>),
) -> anyhow::Result<()> {
    let Watch {
        mut stream,
        mut freshness,
    } = watch;
    loop {
        let change = tokio::select! {
            change = stream.next() => change,
            moved = freshness.changed() => {
                // the sender lives in the stream, whose end is handled below
                if moved.is_ok() {
                    told(&index, source, &freshness.borrow_and_update());
                }
                continue;
            }
        };
        let (change, whole) = match change {
            None => return Ok(()),
            Some(Change::Reset(all)) => (Change::Reset(all.into_iter().map(&read).collect()), true),
            Some(Change::Apply(object)) => (Change::Apply(read(object)), false),
            Some(Change::Delete(object)) => (Change::Delete(read(object)), false),
        };
        take_in(&index, change);
        if whole {
            index.loaded(source);
        }
    }
}

fn told(index: &Index, source: Source, freshness: &Freshness) {
    match freshness {
        Freshness::Starting => {}
        Freshness::Live => index.live(source),
        Freshness::Lost { why, .. } => index.lost(source, why),
    }
}
