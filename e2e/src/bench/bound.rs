//! The names of pods as they are bound. A pod comes into this watch when it is bound and not before, and the API server
//! has written it for kube-scheduler's watch already, so the bench itself costs little.

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Config;
use kube::{Client, Resource as _};
use serve::watch::protobuf::{Protobuf, Versioned};
use serve::watch::{Change, watch};
use tokio_util::sync::CancellationToken;

/// A Pod's name and version; the numbers are those of Kubernetes' `generated.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

impl Versioned for Named {
    const KIND: &'static str = "Pod";

    fn resource_version(&self) -> &str {
        self.metadata.as_ref().map_or("", |meta| &meta.resource_version)
    }
}

/// Names of the pods of this label that have a node, each at least once.
pub fn pods(client: &Client, label: &str) -> impl Stream<Item = String> + use<> {
    let all = Protobuf::<Named>::new(client.clone(), Pod::url_path(&(), None));
    let config = Config::default().labels(label).fields("spec.nodeName!=");
    let watch = watch(all, config, CancellationToken::new());
    let names = |change| match change {
        Change::Reset(all) => all,
        Change::Apply(pod) => vec![pod],
        Change::Delete(_) => Vec::new(),
    };
    watch.stream.flat_map(move |change| {
        let pods = names(change).into_iter().filter_map(|pod| pod.metadata);
        stream::iter(pods.map(|meta| meta.name).collect::<Vec<_>>())
    })
}
