//! What people should hear of, as events of the GpuNode: another owner, a blocked slice, an ill GPU.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use shared::api::GpuNode;
use shared::api::gpu_node::{GpuNodeSpec, Health};
use shared::names;
use tokio_util::sync::CancellationToken;

use crate::inventory::{Inventory, State};
use crate::metrics::Metrics;

/// Longest note, by the API.
const NOTE: usize = 1024;

/// Tells of troubles that begin, and of their end.
///
/// # Errors
/// None: an event that cannot be written is logged.
pub async fn tell(
    client: Client,
    node: String,
    inventory: Inventory,
    metrics: Metrics,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let reporter = Reporter {
        controller: names::MANAGER_AGENT.to_owned(),
        instance: Some(node.clone()),
    };
    let recorder = Recorder::new(client, reporter);
    let about: ObjectReference = GpuNode::new(&node, GpuNodeSpec::default()).object_ref(&());
    let mut views = inventory.subscribe();
    let mut before = BTreeMap::new();
    loop {
        let now = troubles(&views.borrow_and_update().state);
        for event in events(&before, &now) {
            let written = recorder.publish(&event, &about).await;
            metrics.wrote("event", written.is_ok());
            if let Err(error) = written {
                tracing::warn!(%error, note = event.note, "event not written");
            }
        }
        before = now;
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            Ok(()) = views.changed() => {}
        }
    }
}

/// A trouble by what it is about: its reason and a sentence.
type Troubles = BTreeMap<String, (&'static str, String)>;

fn troubles(state: &State) -> Troubles {
    let mut found = Troubles::new();
    if let Some((_, why)) = &state.stood_back {
        found.insert(
            "node".to_owned(),
            ("StoodBack", format!("nothing is cut here: {why}")),
        );
    }
    for gpu in &state.gpus {
        let index = gpu.info.index;
        if gpu.health != Health::Healthy {
            let note = format!("GPU {index} is {:?}: {}", gpu.health, gpu.message);
            found.insert(gpu.info.uuid.clone(), ("GpuNotHealthy", note));
        }
        for (place, slice) in &gpu.slices {
            if let Some(why) = &slice.blocked {
                let note = format!("slice {place} of GPU {index} may not be touched: {why}");
                found.insert(format!("{}:{place}", gpu.info.uuid), ("SliceBlocked", note));
            }
        }
    }
    found
}

fn events(before: &Troubles, now: &Troubles) -> Vec<Event> {
    let event = |type_, reason: &str, note: &str| Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.chars().take(NOTE).collect()),
        action: "Watch".to_owned(),
        secondary: None,
    };
    let begun = now
        .iter()
        .filter(|(about, trouble)| before.get(*about) != Some(trouble));
    let ended = before.iter().filter(|(about, _)| !now.contains_key(*about));
    let begun = begun.map(|(_, (reason, note))| event(EventType::Warning, reason, note));
    begun
        .chain(ended.map(|(_, (reason, note))| event(EventType::Normal, reason, &format!("over: {note}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_when_it_begins_and_once_when_it_ends() {
        let mut state = State {
            stood_back: Some(("MigManager", "the label".into())),
            ..State::default()
        };
        let first = troubles(&state);
        let begun = events(&Troubles::new(), &first);
        assert_eq!((begun.len(), begun[0].reason.as_str()), (1, "StoodBack"));
        assert!(events(&first, &first).is_empty());
        state.stood_back = None;
        let over = events(&first, &troubles(&state));
        assert!(
            over[0]
                .note
                .as_ref()
                .unwrap()
                .starts_with("over: nothing is cut here")
        );
    }
}
