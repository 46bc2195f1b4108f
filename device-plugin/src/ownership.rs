//! When to stand back: somebody else owns the GPUs of this node. Then nothing is touched, nothing new is served,
//! and a condition, an event and a metric say whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serve::watch::Change;
use shared::api::conditions::{REASON_DRA_DRIVER, REASON_MIG_MANAGER, REASON_OTHER_PLUGIN};
use shared::names;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carve::Carver;

/// How often it is looked for other owners that nobody tells of.
const LOOK: Duration = Duration::from_secs(10);
/// How long the API server may take at the start; then only what the node itself shows counts.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be seen of other owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Resources of which the Node has some to give, as the kubelet says.
    pub allocatable: BTreeSet<String>,
    /// Names of ResourceSlices of NVIDIA's DRA driver.
    pub dra: Vec<String>,
    /// Sockets of NVIDIA's plugin on which somebody listens.
    pub sockets: Vec<PathBuf>,
}

/// Whether to stand back: (reason, sentence). `ours` are resources that we would serve, `served` those that we have
/// ever served here, so that we do not take our own allocatable for somebody else's.
#[must_use]
pub fn judge(
    evidence: &Evidence,
    ours: &BTreeSet<String>,
    served: &BTreeSet<String>,
) -> Option<(&'static str, String)> {
    if let Some(config) = evidence.labels.get(names::LABEL_MIG_CONFIG)
        && evidence.labels.get(names::LABEL_OWNER).map(String::as_str) != Some(names::OWNER_MIGPOOL)
    {
        let sentence = format!(
            "the node has the label {}={config} of NVIDIA's MIG manager; remove it, or label the node {}={}",
            names::LABEL_MIG_CONFIG,
            names::LABEL_OWNER,
            names::OWNER_MIGPOOL
        );
        return Some((REASON_MIG_MANAGER, sentence));
    }
    if let Some(slice) = evidence.dra.first() {
        let sentence = format!(
            "ResourceSlice {slice} of {} serves the GPUs of this node; uninstall one of the two",
            names::DRA_DRIVER
        );
        return Some((REASON_DRA_DRIVER, sentence));
    }
    if let Some(socket) = evidence.sockets.first() {
        let sentence = format!(
            "another device plugin listens on {}; uninstall one of the two",
            socket.display()
        );
        return Some((REASON_OTHER_PLUGIN, sentence));
    }
    let foreign = evidence
        .allocatable
        .iter()
        .find(|name| ours.contains(*name) && !served.contains(*name));
    foreign.map(|name| {
        let sentence =
            format!("the node already has {name} from another device plugin; uninstall one of the two");
        (REASON_OTHER_PLUGIN, sentence)
    })
}

/// Looks for other owners.
#[derive(Clone)]
pub struct Ownership {
    carver: Carver,
    client: Option<Client>,
    node: String,
    kubelet_dir: PathBuf,
    labels: watch::Sender<Arc<BTreeMap<String, String>>>,
}

impl Ownership {
    /// For a node.
    #[must_use]
    pub fn new(carver: Carver, client: Option<Client>, node: &str, kubelet_dir: &Path) -> Self {
        let labels = watch::Sender::new(Arc::default());
        Self {
            carver,
            client,
            node: node.to_owned(),
            kubelet_dir: kubelet_dir.to_owned(),
            labels,
        }
    }

    /// Labels of the Node, as they change.
    #[must_use]
    pub fn labels(&self) -> watch::Receiver<Arc<BTreeMap<String, String>>> {
        self.labels.subscribe()
    }

    /// One look, before anything is touched.
    pub async fn look(&self) {
        let mut evidence = Evidence {
            sockets: foreign_sockets(&self.kubelet_dir).await,
            ..Evidence::default()
        };
        if let Some(client) = &self.client {
            let node = Api::<Node>::all(client.clone());
            match tokio::time::timeout(PATIENCE, node.get(&self.node)).await {
                Ok(Ok(node)) => evidence.read(&node),
                Ok(Err(error)) => tracing::warn!(%error, "the Node cannot be read"),
                Err(_) => tracing::warn!("the API server does not answer; only the node itself is looked at"),
            }
            evidence.dra = tokio::time::timeout(PATIENCE, self.dra())
                .await
                .unwrap_or_default();
        }
        self.conclude(&evidence);
    }

    /// Goes on looking. Where another owner leaves, everything is taken over.
    ///
    /// # Errors
    /// None: a watch that fails is tried again.
    pub async fn follow(self, token: CancellationToken) -> anyhow::Result<()> {
        let mut evidence = Evidence::default();
        let mut changes = self.client.as_ref().map(|client| {
            let config = watcher::Config::default().fields(&format!("metadata.name={}", self.node));
            serve::watch::watch(Api::<Node>::all(client.clone()), config, token.clone()).stream
        });
        let mut look = tokio::time::interval(LOOK);
        loop {
            let change = async {
                match &mut changes {
                    Some(stream) => stream.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                change = change => match change {
                    Some(Change::Apply(node)) => evidence.read(&node),
                    Some(Change::Reset(nodes)) => nodes.iter().for_each(|node| evidence.read(node)),
                    Some(Change::Delete(_)) => {}
                    None => return Ok(()),
                },
                _ = look.tick() => {
                    evidence.sockets = foreign_sockets(&self.kubelet_dir).await;
                    evidence.dra = self.dra().await;
                }
            }
            if self.labels.borrow().as_ref() != &evidence.labels {
                self.labels.send_replace(Arc::new(evidence.labels.clone()));
            }
            if self.carver.inventory.view().state.adopted
                && self.conclude(&evidence)
                && let Err(error) = self.carver.adopt().await
            {
                tracing::warn!(%error, "the GPUs cannot be taken over yet");
            }
        }
    }

    /// Stands back or takes over. Says whether there is something to take over now.
    fn conclude(&self, evidence: &Evidence) -> bool {
        let view = self.carver.inventory.view();
        let ours = view.resources.keys().cloned().collect();
        let now = judge(evidence, &ours, &self.carver.journal.record().served);
        let before = &view.state.stood_back;
        if *before == now {
            return false;
        }
        match &now {
            Some((reason, why)) => tracing::warn!(reason, why, "standing back"),
            None => tracing::info!("sole owner of the GPUs"),
        }
        let over = now.is_none();
        self.carver.inventory.change(|state| state.stood_back = now);
        over
    }

    /// ResourceSlices of NVIDIA's DRA driver for this node. A cluster without them has none.
    async fn dra(&self) -> Vec<String> {
        let Some(client) = &self.client else {
            return Vec::new();
        };
        let params = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        for version in ["v1", "v1beta1"] {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
                "resource.k8s.io",
                version,
                "ResourceSlice",
            ));
            match Api::<DynamicObject>::all_with(client.clone(), &kind)
                .list(&params)
                .await
            {
                Ok(list) => {
                    let foreign = list
                        .into_iter()
                        .filter(|slice| slice.data["spec"]["driver"] == names::DRA_DRIVER);
                    return foreign.map(|slice| slice.name_any()).collect();
                }
                // this version of the API is not served
                Err(kube::Error::Api(refused)) if refused.code == 404 => {}
                Err(error) => {
                    tracing::debug!(%error, "ResourceSlices not listed");
                    break;
                }
            }
        }
        Vec::new()
    }
}

impl Evidence {
    fn read(&mut self, node: &Node) {
        self.labels = node.labels().clone();
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        let some = allocatable
            .into_iter()
            .flatten()
            .filter(|(_, quantity)| quantity.0 != "0");
        self.allocatable = some
            .map(|(name, _)| name.clone())
            .filter(|name| names::parse_resource(name).is_some())
            .collect();
    }
}

/// Sockets of NVIDIA's plugin on which somebody listens; a dead one's file may be left.
async fn foreign_sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut found = Vec::new();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("nvidia-") && name.ends_with(".sock") && UnixStream::connect(&path).await.is_ok()
        {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_kind_of_owner_is_seen_and_named_with_the_fix() {
        let ours = set(&["nvidia.com/mig-1g.10gb"]);
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let manager = Evidence {
            labels: [label("nvidia.com/mig.config", "all-1g.10gb")].into(),
            ..Evidence::default()
        };
        let dra = Evidence {
            dra: vec!["node-a-gpu".to_owned()],
            ..Evidence::default()
        };
        let socket = Evidence {
            sockets: vec!["/k/nvidia-gpu.sock".into()],
            ..Evidence::default()
        };
        let plugin = Evidence {
            allocatable: ours.clone(),
            ..Evidence::default()
        };
        for (evidence, reason, names) in [
            (&manager, REASON_MIG_MANAGER, "migpool.dev/owner=migpool"),
            (&dra, REASON_DRA_DRIVER, "node-a-gpu"),
            (&socket, REASON_OTHER_PLUGIN, "/k/nvidia-gpu.sock"),
            (&plugin, REASON_OTHER_PLUGIN, "nvidia.com/mig-1g.10gb"),
        ] {
            let (found, sentence) = judge(evidence, &ours, &BTreeSet::new()).unwrap();
            assert_eq!(found, reason);
            assert!(sentence.contains(names), "{sentence}");
        }
    }

    #[test]
    fn an_opted_in_node_and_our_own_resources_are_ours() {
        let ours = set(&["nvidia.com/mig-1g.10gb"]);
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let opted = Evidence {
            labels: [
                label("nvidia.com/mig.config", "x"),
                label("migpool.dev/owner", "migpool"),
            ]
            .into(),
            allocatable: ours.clone(),
            ..Evidence::default()
        };
        assert_eq!(judge(&opted, &ours, &ours), None);
        assert_eq!(
            judge(
                &Evidence {
                    allocatable: set(&["nvidia.com/gpu"]),
                    ..Evidence::default()
                },
                &ours,
                &BTreeSet::new()
            ),
            None
        );
    }
}
