//! What the API server keeps: objects by kind and key, one version for all, and the log that watches read.

use std::collections::{BTreeMap, VecDeque};

use axum::Json;
use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Fault;

/// The store.
#[derive(Default)]
pub struct Store {
    pub version: u64,
    pub objects: BTreeMap<(String, String), Value>,
    pub log: Vec<(u64, String, &'static str, Value)>,
    pub faults: VecDeque<Fault>,
    pub requests: Vec<String>,
    pub down: bool,
}

/// A path of the API, taken apart.
#[derive(Debug)]
pub struct Target {
    pub plural: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub sub: Option<String>,
}

impl Store {
    pub fn put(&mut self, plural: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = (plural.to_owned(), key(&object));
        let kind = if self.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.log
            .push((self.version, plural.to_owned(), kind, object.clone()));
        self.objects.insert(key, object);
    }

    pub fn delete(&mut self, plural: &str, key: &str) -> Option<Value> {
        let mut gone = self.objects.remove(&(plural.to_owned(), key.to_owned()))?;
        self.version += 1;
        gone["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log
            .push((self.version, plural.to_owned(), "DELETED", gone.clone()));
        Some(gone)
    }

    pub fn list(&self, plural: &str) -> Vec<Value> {
        self.objects
            .iter()
            .filter(|((kind, _), _)| kind == plural)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Binds as the API server does: one update that checks the UID and that the pod is free.
    pub fn bind(&mut self, key: &str, binding: &Value) -> Result<(), (u16, String)> {
        let Some(pod) = self.objects.get(&("pods".to_owned(), key.to_owned())) else {
            return Err((404, format!("pods {key:?} not found")));
        };
        let mut pod = pod.clone();
        let uid = &binding["metadata"]["uid"];
        if !uid.is_null() && *uid != pod["metadata"]["uid"] {
            return Err((
                409,
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: other"),
            ));
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return Err((
                409,
                format!("pod {key} is being deleted, cannot be assigned to a host"),
            ));
        }
        if pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty())
        {
            return Err((
                409,
                format!(
                    "pod {key} is already assigned to node {}",
                    pod["spec"]["nodeName"]
                ),
            ));
        }
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        for (name, value) in binding["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
        {
            if pod["metadata"]["annotations"].is_null() {
                pod["metadata"]["annotations"] = json!({});
            }
            pod["metadata"]["annotations"][name] = value.clone();
        }
        self.put("pods", pod);
        Ok(())
    }
}

impl Store {
    /// Writes `status.nominatedNodeName` as the API server does: who wrote it is noted, and a pod that is bound
    /// refuses it.
    pub fn nominate(&mut self, key: &str, patch: &Value, manager: &str) -> Response {
        let Some(pod) = self.objects.get(&("pods".to_owned(), key.to_owned())) else {
            return status(404, format!("pods {key:?} not found"));
        };
        let mut pod = pod.clone();
        let uid = &patch["metadata"]["uid"];
        if !uid.is_null() && *uid != pod["metadata"]["uid"] {
            return status(409, format!("Precondition failed: UID in precondition: {uid}"));
        }
        if pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty())
        {
            return status(
                422,
                format!("pods {key:?} is invalid: nominatedNodeName cannot be set on a bound pod"),
            );
        }
        pod["status"]["nominatedNodeName"] = patch["status"]["nominatedNodeName"].clone();
        pod["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update", "subresource": "status",
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}]);
        self.put("pods", pod.clone());
        Json(pod).into_response()
    }
}

fn key(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    meta["namespace"]
        .as_str()
        .map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

impl Target {
    pub fn of(path: &str) -> Option<Self> {
        let mut parts = path.split('/').skip(1);
        match parts.next()? {
            "api" => drop(parts.next()?),
            "apis" => drop((parts.next()?, parts.next()?)),
            _ => return None,
        }
        let mut parts = parts.peekable();
        let namespace = (parts.peek() == Some(&"namespaces")).then(|| {
            parts.next();
            parts.next().map(str::to_owned)
        });
        Some(Self {
            namespace: namespace.flatten(),
            plural: parts.next()?.to_owned(),
            name: parts.next().map(str::to_owned),
            sub: parts.next().map(str::to_owned),
        })
    }

    pub fn key(&self) -> String {
        let name = self.name.clone().unwrap_or_default();
        self.namespace
            .as_ref()
            .map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
    }
}

impl Store {
    pub fn answer(&mut self, method: &Method, target: &Target, body: &Bytes) -> Response {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let full = (target.plural.clone(), target.key());
        let current = self.objects.get(&full).cloned();
        let missing = || status(404, format!("{} {:?} not found", target.plural, target.key()));
        match *method {
            Method::GET if target.name.is_none() => {
                let version = self.version.to_string();
                Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": self.list(&target.plural)})).into_response()
            }
            Method::GET => current.map_or_else(missing, |object| Json(object).into_response()),
            Method::POST => {
                let mut object = sent;
                if let Some(namespace) = &target.namespace {
                    object["metadata"]["namespace"] = json!(namespace);
                }
                let full = (target.plural.clone(), key(&object));
                if self.objects.contains_key(&full) {
                    return status(409, format!("{} {:?} already exists", full.0, full.1));
                }
                self.put(&target.plural, object);
                (StatusCode::CREATED, Json(self.objects[&full].clone())).into_response()
            }
            Method::PUT => {
                let Some(mut object) = current else {
                    return missing();
                };
                let version = &sent["metadata"]["resourceVersion"];
                if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                    return status(409, "the object has been modified".to_owned());
                }
                match target.sub.as_deref() {
                    Some("status") => object["status"] = sent["status"].clone(),
                    _ => object = sent,
                }
                self.put(&target.plural, object);
                Json(self.objects[&full].clone()).into_response()
            }
            Method::DELETE => {
                let Some(object) = current else { return missing() };
                for precondition in ["uid", "resourceVersion"] {
                    let wanted = &sent["preconditions"][precondition];
                    if !wanted.is_null() && *wanted != object["metadata"][precondition] {
                        return status(409, format!("Precondition failed: {precondition}"));
                    }
                }
                self.delete(&full.0, &full.1);
                Json(object).into_response()
            }
            _ => status(405, "no such verb".to_owned()),
        }
    }
}

impl Store {
    pub fn events(
        &self,
        plural: &str,
        after: u64,
        write: fn(&str, &Value) -> Vec<u8>,
    ) -> (bool, Vec<u8>, u64) {
        let from = self.log.partition_point(|(version, ..)| *version <= after);
        let events = self.log[from..].iter().filter(|(_, kind, ..)| kind == plural);
        let written = events
            .flat_map(|(_, _, kind, object)| write(kind, object))
            .collect();
        (self.down, written, self.version)
    }
}

/// An event of a watch in JSON.
pub fn line(kind: &str, object: &Value) -> Vec<u8> {
    format!("{}\n", json!({"type": kind, "object": object})).into_bytes()
}

/// A refusal as the API server words it.
pub fn status(code: u16, message: String) -> Response {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Failure",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code});
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}
