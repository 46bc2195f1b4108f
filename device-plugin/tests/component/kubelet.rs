//! The kubelet as far as a device plugin can tell: registration, lists, admission, its account of who has what.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use device_plugin::kubelet::channel;
use device_plugin::kubelet::proto::v1::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use device_plugin::kubelet::proto::v1::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use device_plugin::kubelet::proto::v1beta1::device_plugin_client::DevicePluginClient;
use device_plugin::kubelet::proto::v1beta1::registration_server::{Registration, RegistrationServer};
use device_plugin::kubelet::proto::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, PreStartContainerRequest, PreferredAllocationRequest,
    RegisterRequest,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

/// What a kubelet knows.
#[derive(Default)]
struct Known {
    /// Endpoint by resource.
    endpoints: BTreeMap<String, String>,
    /// The last list by resource: id -> healthy.
    lists: BTreeMap<String, BTreeMap<String, bool>>,
    /// NUMA nodes by id.
    numa: BTreeMap<String, i64>,
    registrations: usize,
    /// Device ids by (pod, container, resource).
    account: BTreeMap<(String, String, String), BTreeSet<String>>,
}

pub(crate) struct Kubelet {
    folder: PathBuf,
    account: PathBuf,
    known: Arc<Mutex<Known>>,
    servers: Vec<JoinHandle<()>>,
}

#[derive(Clone)]
struct Service {
    folder: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if request.version != "v1beta1" {
            return Err(Status::invalid_argument("version"));
        }
        // as the kubelet does: it calls back before it answers
        let mut client = DevicePluginClient::new(channel(&self.folder.join(&request.endpoint)));
        let options = client.get_device_plugin_options(Empty {}).await?.into_inner();
        assert!(options.pre_start_required && options.get_preferred_allocation_available);
        let mut lists = client.list_and_watch(Empty {}).await?.into_inner();
        let (known, resource) = (Arc::clone(&self.known), request.resource_name.clone());
        {
            let mut known = known.lock().unwrap();
            known.registrations += 1;
            known.endpoints.insert(resource.clone(), request.endpoint.clone());
        }
        tokio::spawn(async move {
            while let Ok(Some(list)) = lists.message().await {
                let mut known = known.lock().unwrap();
                let ids = list
                    .devices
                    .iter()
                    .map(|device| (device.id.clone(), device.health == "Healthy"))
                    .collect();
                known.lists.insert(resource.clone(), ids);
                for device in list.devices {
                    assert!(device.id.len() <= 63, "{}", device.id);
                    if let Some(node) = device
                        .topology
                        .and_then(|topology| topology.nodes.first().map(|node| node.id))
                    {
                        known.numa.insert(device.id, node);
                    }
                }
            }
            // a plugin that hangs up: its devices stay known and are unhealthy
            if let Some(list) = known.lock().unwrap().lists.get_mut(&resource) {
                list.values_mut().for_each(|healthy| *healthy = false);
            }
        });
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let known = self.known.lock().unwrap();
        let resources = known.account.iter().map(|((pod, container, resource), ids)| {
            let (resource_name, device_ids) = (resource.clone(), ids.iter().cloned().collect());
            let devices = vec![ContainerDevices {
                resource_name,
                device_ids,
            }];
            let containers = vec![ContainerResources {
                name: container.clone(),
                devices,
            }];
            PodResources {
                name: pod.clone(),
                namespace: "default".to_owned(),
                containers,
            }
        });
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: resources.collect(),
        }))
    }
}

impl Kubelet {
    pub(crate) async fn start(folder: &Path, account: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let (folder, account) = (folder.to_owned(), account.to_owned());
        let mut kubelet = Self {
            folder,
            account,
            known: Arc::default(),
            servers: Vec::new(),
        };
        kubelet.serve();
        kubelet
    }

    fn serve(&mut self) {
        let service = Service {
            folder: self.folder.clone(),
            known: Arc::clone(&self.known),
        };
        let registration = UnixListener::bind(self.folder.join("kubelet.sock")).unwrap();
        let _ = std::fs::remove_file(&self.account);
        let account = UnixListener::bind(&self.account).unwrap();
        let lister = PodResourcesListerServer::new(service.clone());
        self.servers = vec![
            tokio::spawn(async move {
                let server = Server::builder().add_service(RegistrationServer::new(service));
                server
                    .serve_with_incoming(UnixListenerStream::new(registration))
                    .await
                    .unwrap();
            }),
            tokio::spawn(async move {
                let server = Server::builder().add_service(lister);
                server
                    .serve_with_incoming(UnixListenerStream::new(account))
                    .await
                    .unwrap();
            }),
        ];
    }

    /// Stops, and with it what it knew of plugins; its account stays, as the real one's checkpoint does.
    pub(crate) fn stop(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            // the agent may remove its own at the same moment
            let _ = std::fs::remove_file(entry.unwrap().path());
        }
        let mut known = self.known.lock().unwrap();
        (known.endpoints, known.lists) = (BTreeMap::new(), BTreeMap::new());
    }

    /// Stops and starts.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.serve();
    }

    pub(crate) fn registrations(&self) -> usize {
        self.known.lock().unwrap().registrations
    }

    pub(crate) fn numa(&self, id: &str) -> Option<i64> {
        self.known.lock().unwrap().numa.get(id).copied()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Healthy devices by resource.
    pub(crate) fn allocatable(&self) -> BTreeMap<String, usize> {
        let known = self.known.lock().unwrap();
        let count = |list: &BTreeMap<String, bool>| list.values().filter(|healthy| **healthy).count();
        known
            .lists
            .iter()
            .map(|(resource, list)| (resource.clone(), count(list)))
            .collect()
    }

    /// All devices of a resource.
    pub(crate) fn devices(&self, resource: &str) -> BTreeMap<String, bool> {
        self.known
            .lock()
            .unwrap()
            .lists
            .get(resource)
            .cloned()
            .unwrap_or_default()
    }

    /// Ids in somebody's hands.
    pub(crate) fn held(&self) -> Vec<String> {
        self.known
            .lock()
            .unwrap()
            .account
            .values()
            .flatten()
            .cloned()
            .collect()
    }

    /// A connection of its own to the plugin of a resource.
    pub(crate) fn client(&self, resource: &str) -> DevicePluginClient<Channel> {
        let endpoint = self
            .known
            .lock()
            .unwrap()
            .endpoints
            .get(resource)
            .cloned()
            .unwrap_or_default();
        DevicePluginClient::new(channel(&self.folder.join(endpoint)))
    }

    /// Asks which devices to take, as for a container that needs some.
    pub(crate) async fn prefer(&self, resource: &str, count: usize, must: &[String]) -> Vec<String> {
        let taken = self.held();
        let healthy = self
            .devices(resource)
            .into_iter()
            .filter(|(id, healthy)| *healthy && !taken.contains(id));
        let mut available: Vec<String> = healthy.map(|(id, _)| id).collect();
        available.extend(must.iter().cloned());
        let asked = ContainerPreferredAllocationRequest {
            available_device_i_ds: available,
            must_include_device_i_ds: must.to_vec(),
            allocation_size: i32::try_from(count).unwrap(),
        };
        let request = PreferredAllocationRequest {
            container_requests: vec![asked],
        };
        let answer = self
            .client(resource)
            .get_preferred_allocation(request)
            .await
            .unwrap()
            .into_inner();
        answer.container_responses.into_iter().next().unwrap().device_i_ds
    }

    pub(crate) async fn allocate(
        &self,
        resource: &str,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, Status> {
        let asked = ContainerAllocateRequest {
            devices_ids: ids.to_vec(),
        };
        let answer = self
            .client(resource)
            .allocate(AllocateRequest {
                container_requests: vec![asked],
            })
            .await?;
        Ok(answer
            .into_inner()
            .container_responses
            .into_iter()
            .next()
            .unwrap())
    }

    pub(crate) async fn pre_start(&self, resource: &str, ids: &[String]) -> Result<(), Status> {
        self.client(resource)
            .pre_start_container(PreStartContainerRequest {
                devices_ids: ids.to_vec(),
            })
            .await
            .map(drop)
    }

    /// Admits a pod with one container, as the kubelet does: choose, allocate, account, check.
    pub(crate) async fn admit(&self, pod: &str, resource: &str, count: usize) -> Result<Vec<String>, Status> {
        let ids = self.prefer(resource, count, &[]).await;
        assert_eq!(ids.len(), count, "not enough of {resource}");
        self.allocate(resource, &ids).await?;
        self.note(pod, "main", resource, &ids);
        self.pre_start(resource, &ids).await?;
        Ok(ids)
    }

    /// A container has devices.
    pub(crate) fn note(&self, pod: &str, container: &str, resource: &str, ids: &[String]) {
        let key = (pod.to_owned(), container.to_owned(), resource.to_owned());
        self.known
            .lock()
            .unwrap()
            .account
            .insert(key, ids.iter().cloned().collect());
    }

    /// A pod is gone.
    pub(crate) fn remove(&self, pod: &str) {
        self.known
            .lock()
            .unwrap()
            .account
            .retain(|(name, _, _), _| name != pod);
    }
}
