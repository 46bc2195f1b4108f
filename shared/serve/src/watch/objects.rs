//! Where a watch gets its objects from, page by page and then event by event. [`Api`] asks for JSON; see
//! [`super::protobuf`] for objects of which there are many.

use std::fmt::Debug;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Status;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Objects of one kind on an API server.
pub trait Objects: Send + Sync + 'static {
    /// One of them.
    type Object: Send + 'static;

    /// The kind, for logs.
    fn kind(&self) -> String;

    /// One page of a list.
    fn list(&self, params: &ListParams) -> impl Future<Output = kube::Result<Page<Self::Object>>> + Send;

    /// What happens after a version.
    fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> impl Future<Output = kube::Result<Events<Self::Object>>> + Send;
}

/// What happens, as it happens.
pub type Events<K> = BoxStream<'static, kube::Result<Event<K>>>;

/// A part of a list.
#[derive(Debug)]
pub struct Page<K> {
    /// The objects.
    pub items: Vec<K>,
    /// Version of the whole list; empty where the server did not say.
    pub version: String,
    /// Gives the next page; empty on the last.
    pub next: String,
}

/// Something that happened, with the version after it; empty where the object does not say.
#[derive(Debug)]
pub enum Event<K> {
    /// This one is new or changed.
    Apply(K, String),
    /// This one is gone.
    Delete(K, String),
    /// Nothing happened up to this version.
    Bookmark(String),
    /// The watch cannot go on.
    Error(Box<Status>),
}

impl<K> Objects for Api<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    type Object = K;

    fn kind(&self) -> String {
        K::kind(&K::DynamicType::default()).into_owned()
    }

    async fn list(&self, params: &ListParams) -> kube::Result<Page<K>> {
        let page = Self::list(self, params).await?;
        Ok(Page {
            items: page.items,
            version: page.metadata.resource_version.unwrap_or_default(),
            next: page.metadata.continue_.unwrap_or_default(),
        })
    }

    async fn watch(&self, params: &WatchParams, version: &str) -> kube::Result<Events<K>> {
        let events = Self::watch(self, params, version).await?;
        Ok(read(events).boxed())
    }
}

fn read<K: Resource + Clone + Send>(
    events: impl Stream<Item = kube::Result<WatchEvent<K>>> + Send,
) -> impl Stream<Item = kube::Result<Event<K>>> + Send {
    let version = |object: &K| object.resource_version().unwrap_or_default();
    events.map(move |event| {
        Ok(match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = version(&object);
                Event::Apply(object, version)
            }
            WatchEvent::Deleted(object) => {
                let version = version(&object);
                Event::Delete(object, version)
            }
            WatchEvent::Bookmark(bookmark) => Event::Bookmark(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => Event::Error(status),
        })
    })
}
