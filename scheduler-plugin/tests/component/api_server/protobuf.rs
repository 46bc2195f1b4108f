//! Writes pods as the API server does for those who ask for protobuf, from the same JSON that it keeps. The numbers
//! stand here a second time, so that a wrong one in the product is noticed.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

/// How a field is written.
enum Kind {
    Text,
    Number,
    /// Seconds since 1970 in a message.
    Time,
    Object(&'static [Field]),
    Objects(&'static [Field]),
    Texts,
    /// Texts by name.
    Map,
    /// Quantities by name.
    Quantities,
    /// JSON in a message.
    Json,
}

/// Name in JSON, number, how it is written.
type Field = (&'static str, u32, Kind);

const RESOURCES: &[Field] = &[("limits", 1, Kind::Quantities), ("requests", 2, Kind::Quantities)];
const CONTAINER: &[Field] = &[
    ("name", 1, Kind::Text),
    ("image", 2, Kind::Text),
    ("ports", 6, Kind::Objects(&[("hostPort", 2, Kind::Number)])),
    ("resources", 8, Kind::Object(RESOURCES)),
    ("restartPolicy", 24, Kind::Text),
];
const STATUS: &[Field] = &[("name", 1, Kind::Text), ("containerID", 8, Kind::Text)];
const REQUIREMENT: &[Field] = &[
    ("key", 1, Kind::Text),
    ("operator", 2, Kind::Text),
    ("values", 3, Kind::Texts),
];
const TERM: &[Field] = &[
    ("matchExpressions", 1, Kind::Objects(REQUIREMENT)),
    ("matchFields", 2, Kind::Objects(REQUIREMENT)),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NEIGHBOURS: &[Field] = &[
    (REQUIRED, 1, Kind::Objects(&[])),
    (PREFERRED, 2, Kind::Objects(&[])),
];
const NODE_AFFINITY: &[Field] = &[
    (
        REQUIRED,
        1,
        Kind::Object(&[("nodeSelectorTerms", 1, Kind::Objects(TERM))]),
    ),
    (PREFERRED, 2, Kind::Objects(&[])),
];
const AFFINITY: &[Field] = &[
    ("nodeAffinity", 1, Kind::Object(NODE_AFFINITY)),
    ("podAffinity", 2, Kind::Object(NEIGHBOURS)),
    ("podAntiAffinity", 3, Kind::Object(NEIGHBOURS)),
];
const TOLERATION: &[Field] = &[
    ("key", 1, Kind::Text),
    ("operator", 2, Kind::Text),
    ("value", 3, Kind::Text),
    ("effect", 4, Kind::Text),
    ("tolerationSeconds", 5, Kind::Number),
];
const MANAGED: &[Field] = &[
    ("manager", 1, Kind::Text),
    ("operation", 2, Kind::Text),
    ("apiVersion", 3, Kind::Text),
    ("fieldsType", 6, Kind::Text),
    ("fieldsV1", 7, Kind::Json),
    ("subresource", 8, Kind::Text),
];
const OWNER: &[Field] = &[
    ("kind", 1, Kind::Text),
    ("name", 3, Kind::Text),
    ("uid", 4, Kind::Text),
    ("apiVersion", 5, Kind::Text),
    ("controller", 6, Kind::Number),
];
const POD: &[Field] = &[
    (
        "metadata",
        1,
        Kind::Object(&[
            ("name", 1, Kind::Text),
            ("namespace", 3, Kind::Text),
            ("uid", 5, Kind::Text),
            ("resourceVersion", 6, Kind::Text),
            ("creationTimestamp", 8, Kind::Time),
            ("deletionTimestamp", 9, Kind::Time),
            ("labels", 11, Kind::Map),
            ("annotations", 12, Kind::Map),
            ("ownerReferences", 13, Kind::Objects(OWNER)),
            ("managedFields", 17, Kind::Objects(MANAGED)),
        ]),
    ),
    (
        "spec",
        2,
        Kind::Object(&[
            ("volumes", 1, Kind::Objects(VOLUME)),
            ("containers", 2, Kind::Objects(CONTAINER)),
            ("nodeSelector", 7, Kind::Map),
            ("nodeName", 10, Kind::Text),
            ("affinity", 18, Kind::Object(AFFINITY)),
            ("schedulerName", 19, Kind::Text),
            ("initContainers", 20, Kind::Objects(CONTAINER)),
            ("tolerations", 22, Kind::Objects(TOLERATION)),
            ("priority", 25, Kind::Number),
            ("overhead", 32, Kind::Quantities),
            (
                "topologySpreadConstraints",
                33,
                Kind::Objects(&[
                    ("maxSkew", 1, Kind::Number),
                    ("topologyKey", 2, Kind::Text),
                    ("whenUnsatisfiable", 3, Kind::Text),
                ]),
            ),
            ("schedulingGates", 38, Kind::Objects(&[("name", 1, Kind::Text)])),
            ("resourceClaims", 39, Kind::Objects(&[("name", 1, Kind::Text)])),
            ("resources", 40, Kind::Object(RESOURCES)),
        ]),
    ),
    (
        "status",
        3,
        Kind::Object(&[
            ("phase", 1, Kind::Text),
            (
                "conditions",
                2,
                Kind::Objects(&[
                    ("type", 1, Kind::Text),
                    ("status", 2, Kind::Text),
                    ("reason", 5, Kind::Text),
                ]),
            ),
            ("message", 3, Kind::Text),
            ("reason", 4, Kind::Text),
            ("containerStatuses", 8, Kind::Objects(STATUS)),
            ("initContainerStatuses", 10, Kind::Objects(STATUS)),
            ("nominatedNodeName", 11, Kind::Text),
        ]),
    ),
];
// what a volume is stands inside of it in JSON and beside its name in protobuf
const VOLUME: &[Field] = &[
    ("name", 1, Kind::Text),
    (
        "",
        2,
        Kind::Object(&[
            ("persistentVolumeClaim", 10, Kind::Object(&[])),
            ("csi", 28, Kind::Object(&[])),
            ("ephemeral", 29, Kind::Object(&[])),
        ]),
    ),
];

/// A pod.
pub fn pod(pod: &Value) -> Vec<u8> {
    message(POD, pod)
}

/// A page of a list of pods, whole.
pub fn list(version: u64, pods: &[Value]) -> Vec<u8> {
    let mut list = Vec::new();
    let mut meta = Vec::new();
    bytes(2, version.to_string().as_bytes(), &mut meta);
    bytes(1, &meta, &mut list);
    for pod in pods {
        bytes(2, &message(POD, pod), &mut list);
    }
    envelope(&list)
}

/// An event of a watch of pods, with its length before it.
pub fn event(kind: &str, pod: &Value) -> Vec<u8> {
    let mut object = Vec::new();
    bytes(1, &envelope(&message(POD, pod)), &mut object);
    let mut event = Vec::new();
    bytes(1, kind.as_bytes(), &mut event);
    bytes(2, &object, &mut event);
    let length = u32::try_from(event.len()).unwrap();
    [length.to_be_bytes().to_vec(), event].concat()
}

fn envelope(raw: &[u8]) -> Vec<u8> {
    let mut unknown = b"k8s\0".to_vec();
    bytes(2, raw, &mut unknown);
    unknown
}

fn message(fields: &[Field], from: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    for (name, number, kind) in fields {
        let value = if name.is_empty() { from } else { &from[*name] };
        if !value.is_null() {
            field(*number, kind, value, &mut to);
        }
    }
    to
}

fn field(number: u32, kind: &Kind, value: &Value, to: &mut Vec<u8>) {
    let list = value.as_array().into_iter().flatten();
    let entries = value.as_object().into_iter().flatten();
    match kind {
        Kind::Text => bytes(number, value.as_str().unwrap().as_bytes(), to),
        Kind::Texts => list.for_each(|text| bytes(number, text.as_str().unwrap().as_bytes(), to)),
        Kind::Number => {
            let value = value.as_i64().unwrap_or_else(|| value.as_bool().unwrap().into());
            varint(number, value, to);
        }
        Kind::Time => {
            let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
            let mut seconds = Vec::new();
            varint(1, time.as_second(), &mut seconds);
            bytes(number, &seconds, to);
        }
        Kind::Object(fields) => bytes(number, &message(fields, value), to),
        Kind::Objects(fields) => list.for_each(|one| bytes(number, &message(fields, one), to)),
        Kind::Json => {
            let mut raw = Vec::new();
            bytes(1, value.to_string().as_bytes(), &mut raw);
            bytes(number, &raw, to);
        }
        Kind::Map | Kind::Quantities => entries.for_each(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut entry = Vec::new();
            bytes(1, name.as_bytes(), &mut entry);
            let mut quantity = Vec::new();
            match kind {
                Kind::Map => quantity.extend(text.as_bytes()),
                _ => bytes(1, text.as_bytes(), &mut quantity),
            }
            bytes(2, &quantity, &mut entry);
            bytes(number, &entry, to);
        }),
    }
}

fn bytes(number: u32, value: &[u8], to: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(value.len() as u64, to);
    to.extend(value);
}

fn varint(number: u32, value: i64, to: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, to);
    // a negative number takes ten bytes, as its bits say
    encode_varint(value.cast_unsigned(), to);
}
