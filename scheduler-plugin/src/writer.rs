//! The only file that writes to the API server. Every write has a deadline, is tried once, and carries a UID or a
//! resource version, so that a write which comes too late fails instead of hitting something else.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::ACCEPT;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, Request, ValidationDirective};
use kube::{Api, Client, Resource as _};
use shared::api::GpuPool;
use shared::names;
use shared::policy::BINDINGS_AT_ONCE;
use shared::snapshot::Owner;
use tokio::sync::Semaphore;

use crate::metrics::Metrics;

/// Asks the API server to answer with the metadata of an object only.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Reason of the event on a pod that cannot be placed as things are.
const FAILED_PLACEMENT: &str = "FailedPlacement";
/// Longest note that the API server takes in an event.
const NOTE_BYTES: usize = 1024;

/// Writes to the API server.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    timeout: Duration,
    identity: String,
    metrics: Metrics,
    bindings: Arc<Semaphore>,
}

/// Which pod is meant: the one of this name *and* this UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A write that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server said no: nothing was written.
    #[error("{message} ({code})")]
    Refused {
        /// Its HTTP status.
        code: u16,
        /// What it said.
        message: String,
    },
    /// No answer, or none that tells: it may have been written.
    #[error("it is not known whether it was written: {0}")]
    Unknown(String),
}

impl PodRef {
    /// The pod as the owner of what it has.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            namespace: self.namespace.clone(),
            pod: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            // a server error may come from a proxy after the server behind it did its work
            kube::Error::Api(status) if status.code < 500 => Self::Refused {
                code: status.code,
                message: status.message,
            },
            other => Self::Unknown(other.to_string()),
        }
    }
}

impl Writer {
    /// A writer; `client` must not retry by itself.
    #[must_use]
    pub fn new(client: Client, timeout: Duration, identity: String, metrics: Metrics) -> Self {
        Self {
            client,
            timeout,
            identity,
            metrics,
            bindings: Arc::new(Semaphore::new(BINDINGS_AT_ONCE)),
        }
    }

    /// Binds a pod to a node and writes its placement in the same update. Takes three quarters of the time allowed:
    /// the rest is for a look at what became of it, before kube-scheduler stops waiting. Bindings beyond
    /// [`BINDINGS_AT_ONCE`] wait for their turn first: kube-scheduler sends as many as it has decided on.
    ///
    /// # Errors
    /// [`WriteError`]; only `Refused` means that the pod is not bound by this call.
    pub async fn bind(&self, pod: &PodRef, node: &str, placement: Option<String>) -> Result<(), WriteError> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                annotations: placement
                    .map(|placement| [(names::ANNOTATION_PLACEMENT.to_owned(), placement)].into()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        let params = PostParams::default();
        // never closed, so there is always a turn to come
        let _turn = self.bindings.acquire().await.ok();
        let write =
            api.create_subresource::<Binding, serde_json::Value>("binding", &pod.name, &params, &binding);
        self.in_time("binding", self.timeout * 3 / 4, write)
            .await
            .map(drop)
    }

    /// Nominates a pod to a node, or takes our nomination back.
    ///
    /// # Errors
    /// [`WriteError`]; a pod that is bound by now is refused with 422, another pod of that name with 409.
    pub async fn nominate(&self, pod: &PodRef, node: Option<&str>) -> Result<(), WriteError> {
        let patch = serde_json::json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}});
        let params = PatchParams {
            field_manager: Some(names::MANAGER_SCHEDULER.to_owned()),
            // both fields are known; else the server decodes the whole pod twice
            field_validation: Some(ValidationDirective::Ignore),
            ..PatchParams::default()
        };
        let pods = Request::new(Pod::url_path(&(), Some(&pod.namespace)));
        // of the patches that a server can apply this costs it least: it need not write the pod as JSON and read it again
        let request = pods.patch_subresource("status", &pod.name, &params, &Patch::Strategic(&patch));
        let write = async {
            let mut request = request.map_err(kube::Error::BuildRequest)?;
            // the answer is of no use here: its head will do
            request
                .headers_mut()
                .insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
            self.client.request_text(request).await
        };
        self.in_time("nomination", self.timeout, write).await.map(drop)
    }

    /// A pod as the API server has it now; `None` where there is none of this name. Reads, so that a bind whose
    /// answer was lost can be told from one that failed.
    ///
    /// # Errors
    /// [`WriteError`] where the API server does not say.
    pub async fn look_up(&self, namespace: &str, name: &str) -> Result<Option<Pod>, WriteError> {
        let limit = self.timeout / 4;
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(limit, api.get_opt(name)).await {
            Ok(found) => Ok(found?),
            Err(_) => Err(WriteError::Unknown(format!("no answer for {limit:?}"))),
        }
    }

    /// Tells a pod's owner why it is not placed.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn failed_placement(&self, pod: &PodRef, note: &str, now: Timestamp) -> Result<(), WriteError> {
        let mut end = note.len().min(NOTE_BYTES);
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", pod.name, now.as_nanosecond())),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some("Placing".into()),
            event_time: Some(MicroTime(now)),
            note: Some(note[..end].to_owned()),
            reason: Some(FAILED_PLACEMENT.into()),
            regarding: Some(ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(format!("{}/{}", names::GROUP, names::MANAGER_SCHEDULER)),
            reporting_instance: Some(self.identity.clone()),
            type_: Some("Warning".into()),
            ..Event::default()
        };
        let api = Api::<Event>::namespaced(self.client.clone(), &pod.namespace);
        let params = self.params();
        self.in_time("event", self.timeout, api.create(&params, &event))
            .await
            .map(drop)
    }

    /// Deletes a pod that the kubelet refused, if it is still that pod at that version.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn delete_refused(&self, pod: &PodRef, resource_version: &str) -> Result<(), WriteError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: Some(resource_version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        self.in_time("pod", self.timeout, api.delete(&pod.name, &params))
            .await
            .map(drop)
    }

    /// Writes a pool's status over the version that it was computed from.
    ///
    /// # Errors
    /// [`WriteError`]; a conflict means that somebody else wrote, and the next turn computes anew.
    pub async fn pool_status(&self, pool: &GpuPool) -> Result<(), WriteError> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let api = Api::<GpuPool>::all(self.client.clone());
        let params = self.params();
        self.in_time("gpupool", self.timeout, api.replace_status(&name, &params, pool))
            .await
            .map(drop)
    }

    fn params(&self) -> PostParams {
        PostParams {
            field_manager: Some(names::MANAGER_SCHEDULER.to_owned()),
            ..PostParams::default()
        }
    }

    async fn in_time<T>(
        &self,
        object: &'static str,
        limit: Duration,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let written = match tokio::time::timeout(limit, write).await {
            Ok(written) => written.map_err(WriteError::from),
            Err(_) => Err(WriteError::Unknown(format!("no answer for {limit:?}"))),
        };
        let outcome = match &written {
            Ok(_) => "ok",
            Err(WriteError::Refused { .. }) => "refused",
            Err(WriteError::Unknown(_)) => "unknown",
        };
        self.metrics.wrote(object, outcome);
        written
    }
}
