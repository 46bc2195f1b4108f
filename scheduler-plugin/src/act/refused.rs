//! A pod that its kubelet refused (UnexpectedAdmissionError: it asked for a device before the agent had registered,
//! after a reboot for example) stays Failed for ever, beside the replacement that its controller makes. Such pods
//! are deleted, each over the version that was read; a bare pod is its owner's to look at.

use std::collections::BTreeSet;

use crate::index::Index;
use crate::writer::{PodRef, WriteError, Writer};

/// What was deleted and may still show for a moment.
#[derive(Debug, Default)]
pub struct Refused {
    done: BTreeSet<(String, String)>,
}

impl Refused {
    /// Deletes the refused pods that are there.
    pub async fn turn(&mut self, index: &Index, writer: &Writer) {
        let refused = there(index);
        self.done.retain(|done| {
            refused
                .iter()
                .any(|(pod, version)| (&pod.uid, version) == (&done.0, &done.1))
        });
        for (pod, version) in refused {
            let key = (pod.uid.clone(), version.clone());
            if self.done.contains(&key) {
                continue;
            }
            match writer.delete_refused(&pod, &version).await {
                Ok(()) => {
                    tracing::info!(%pod, "deleted: its kubelet refused it and its controller made another");
                }
                // it is gone, or has changed and shows again with its new version
                Err(WriteError::Refused { code: 404 | 409, .. }) => {}
                Err(error) => {
                    tracing::warn!(%pod, %error, "refused pod not deleted");
                    return;
                }
            }
            self.done.insert(key);
        }
    }
}

fn there(index: &Index) -> Vec<(PodRef, String)> {
    index.read(|books| {
        let refused = books
            .pods
            .values()
            .filter(|pod| pod.refused_and_replaceable && pod.asks() && !pod.deleting);
        refused
            .map(|pod| (pod.pod.clone(), pod.resource_version.clone()))
            .collect()
    })
}
