//! The pod in a body, left as it was sent. Kube-scheduler sends all of it with every question, and mostly it is a pod
//! that the watch has told of already: then its UID and version are all that has to be read.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::index::Index;
use crate::watch::pods::PodPart;

/// A Pod in JSON, not read yet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct PodText(Box<RawValue>);

/// Which pod it is, in which version.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta<'a> {
    #[serde(borrow)]
    uid: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    resource_version: std::borrow::Cow<'a, str>,
}

impl PodText {
    /// What it tells: from the index where that knows this very version, else read.
    ///
    /// # Errors
    /// It is not a Pod.
    pub fn part(&self, index: &Index) -> serde_json::Result<PodPart> {
        // what is wrong with it is said where it is read
        let head = serde_json::from_str::<Head<'_>>(self.0.get()).ok();
        let known = head.and_then(|head| index.known(&head.metadata.uid, &head.metadata.resource_version));
        known.map_or_else(|| self.read(), Ok)
    }

    /// What it tells, read.
    ///
    /// # Errors
    /// It is not a Pod.
    pub fn read(&self) -> serde_json::Result<PodPart> {
        let pod: Pod = serde_json::from_str(self.0.get())?;
        Ok(PodPart::of(&pod))
    }
}

impl PartialEq for PodText {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
