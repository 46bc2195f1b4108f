//! Objects read as protobuf, for kinds of which there are many. The API server writes an object once for all
//! watchers that read it so, kube-scheduler among them, and a reader skips the fields that it does not know, so a
//! message need only have those that are of use.
//!
//! What is on the wire (`k8s.io/apimachinery`: `pkg/runtime/serializer/protobuf`, `pkg/util/framer` and the
//! `generated.proto` files, which give the numbers of the fields):
//!
//! ```text
//! object   "k8s\0" Unknown { raw: the message }
//! list     "k8s\0" Unknown { raw: { metadata, items } }
//! watch    length, 4 bytes, big-endian; WatchEvent { type, object: { raw: an object as above } }; and so on
//! ```

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::header::{ACCEPT, HeaderValue};
use http_body_util::BodyExt as _;
use kube::api::{ListParams, Request, WatchParams};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Error};
use prost::Message;
use tokio_util::codec::LengthDelimitedCodec;
use tokio_util::io::StreamReader;

use super::objects::{Event, Events, Objects, Page};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
/// What every object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Largest event that is read, bytes: several times what etcd lets an object be.
const LARGEST_EVENT: usize = 16 << 20;

/// A message that stands for an object.
pub trait Versioned: Message + Default + 'static {
    /// The kind, for logs.
    const KIND: &'static str;

    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;
}

/// All objects of a kind that the API server itself has, read as protobuf.
pub struct Protobuf<M> {
    client: Client,
    path: String,
    message: std::marker::PhantomData<fn() -> M>,
}

impl<M> Protobuf<M> {
    /// The objects under a path, like `/api/v1/pods`.
    #[must_use]
    pub fn new(client: Client, path: impl Into<String>) -> Self {
        Self {
            client,
            path: path.into(),
            message: std::marker::PhantomData,
        }
    }

    async fn ask(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<Body> {
        let mut request = request.map_err(Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, MEDIA_TYPE);
        let answer = self.client.send(request.map(Body::from)).await?;
        let code = answer.status();
        if code.is_success() {
            return Ok(answer.into_body());
        }
        let text = answer.into_body().collect().await?.to_bytes();
        Err(Error::Api(Box::new(refusal(&text, code.as_u16()))))
    }
}

impl<M: Versioned> Objects for Protobuf<M> {
    type Object = M;

    fn kind(&self) -> String {
        M::KIND.to_owned()
    }

    async fn list(&self, params: &ListParams) -> kube::Result<Page<M>> {
        let body = self.ask(Request::new(self.path.as_str()).list(params)).await?;
        let list: wire::List = object(body.collect().await?.to_bytes())?;
        let meta = list.metadata.unwrap_or_default();
        let items: Result<Vec<M>, _> = list.items.into_iter().map(M::decode).collect();
        Ok(Page {
            items: items.map_err(malformed)?,
            version: meta.resource_version,
            next: meta.next,
        })
    }

    async fn watch(&self, params: &WatchParams, version: &str) -> kube::Result<Events<M>> {
        let body = self
            .ask(Request::new(self.path.as_str()).watch(params, version))
            .await?;
        let bytes = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
        let frames = LengthDelimitedCodec::builder()
            .max_frame_length(LARGEST_EVENT)
            .new_read(bytes);
        Ok(frames
            .map(|frame| event(frame.map_err(Error::ReadEvents)?.freeze()))
            .boxed())
    }
}

fn event<M: Versioned>(frame: Bytes) -> kube::Result<Event<M>> {
    let event = wire::Event::decode(frame).map_err(malformed)?;
    let raw = event.object.unwrap_or_default().raw;
    if event.r#type == "ERROR" {
        let status: wire::Status = object(raw)?;
        return Ok(Event::Error(Box::new(status.into())));
    }
    let object: M = object(raw)?;
    let version = object.resource_version().to_owned();
    match event.r#type.as_str() {
        "ADDED" | "MODIFIED" => Ok(Event::Apply(object, version)),
        "DELETED" => Ok(Event::Delete(object, version)),
        "BOOKMARK" => Ok(Event::Bookmark(version)),
        other => Err(malformed(format!("an event of type {other:?}"))),
    }
}

/// Reads what stands behind the magic.
fn object<M: Message + Default>(bytes: Bytes) -> kube::Result<M> {
    if !bytes.starts_with(MAGIC) {
        return Err(malformed("it does not begin with \"k8s\\0\""));
    }
    let unknown = wire::Unknown::decode(bytes.slice(MAGIC.len()..)).map_err(malformed)?;
    M::decode(unknown.raw).map_err(malformed)
}

/// What the server says when it refuses; something before it may refuse in another language.
fn refusal(bytes: &Bytes, code: u16) -> Status {
    if let Ok(status) = object::<wire::Status>(bytes.clone()) {
        return status.into();
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(bytes).trim(), "Unreadable").with_code(code)
    })
}

fn malformed(why: impl Into<tower::BoxError>) -> Error {
    let why = why.into();
    Error::Service(format!("the answer is not the protobuf that Kubernetes writes: {why}").into())
}

/// The messages around an object.
mod wire {
    use bytes::Bytes;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Unknown {
        #[prost(bytes = "bytes", tag = "2")]
        pub(super) raw: Bytes,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct List {
        #[prost(message, optional, tag = "1")]
        pub(super) metadata: Option<ListMeta>,
        /// Each a message of its own, which is not read before its kind is known.
        #[prost(bytes = "bytes", repeated, tag = "2")]
        pub(super) items: Vec<Bytes>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ListMeta {
        #[prost(string, tag = "2")]
        pub(super) resource_version: String,
        /// `continue`.
        #[prost(string, tag = "3")]
        pub(super) next: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Event {
        #[prost(string, tag = "1")]
        pub(super) r#type: String,
        #[prost(message, optional, tag = "2")]
        pub(super) object: Option<RawExtension>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct RawExtension {
        #[prost(bytes = "bytes", tag = "1")]
        pub(super) raw: Bytes,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Status {
        #[prost(string, tag = "3")]
        pub(super) message: String,
        #[prost(string, tag = "4")]
        pub(super) reason: String,
        #[prost(int32, tag = "6")]
        pub(super) code: i32,
    }

    impl From<Status> for kube::core::Status {
        fn from(status: Status) -> Self {
            let code = u16::try_from(status.code).unwrap_or_default();
            Self::failure(&status.message, &status.reason).with_code(code)
        }
    }
}
