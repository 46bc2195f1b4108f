//! The kubelet's account of which container has which device (PodResources v1).

use std::path::Path;
use std::time::Duration;

use shared::names;
use tonic::transport::Channel;

use super::proto::v1::ListPodResourcesRequest;
use super::proto::v1::pod_resources_lister_client::PodResourcesListerClient;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer that is read: a node with 1000 pods stays far below it.
const LARGEST: usize = 64 << 20;

/// The kubelet's account. Clones share one connection.
#[derive(Clone)]
pub struct Account {
    client: PodResourcesListerClient<Channel>,
}

/// A device in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The device id.
    pub id: String,
    /// Under which resource.
    pub resource: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

impl Account {
    /// The account behind a socket, which need not be there yet.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        let client = PodResourcesListerClient::new(super::channel(socket));
        Self {
            client: client.max_decoding_message_size(LARGEST),
        }
    }

    /// Every device of ours that a container has.
    ///
    /// # Errors
    /// What the kubelet says, or that it says nothing.
    pub async fn list(&self) -> Result<Vec<Shown>, tonic::Status> {
        let mut client = self.client.clone();
        let list = tokio::time::timeout(TIMEOUT, client.list(ListPodResourcesRequest {})).await;
        let list = list
            .map_err(|_| tonic::Status::deadline_exceeded("no answer in time"))??
            .into_inner();
        let mut shown = Vec::new();
        for pod in list.pod_resources {
            for container in pod.containers {
                for devices in container.devices {
                    if names::parse_resource(&devices.resource_name).is_none() {
                        continue;
                    }
                    shown.extend(devices.device_ids.into_iter().map(|id| Shown {
                        id,
                        resource: devices.resource_name.clone(),
                        namespace: pod.namespace.clone(),
                        pod: pod.name.clone(),
                        container: container.name.clone(),
                    }));
                }
            }
        }
        Ok(shown)
    }
}
