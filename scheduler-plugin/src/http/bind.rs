//! Binds a pod: the place is picked and held under the index lock, then one Binding writes node and placement
//! together. A bind that is asked for again is answered by what is true, not done twice.

use crate::index::Index;
use crate::index::binding::{Sending, Step};
use crate::metrics::Outcome;
use crate::watch::pods::PodPart;
use crate::writer::{PodRef, WriteError, Writer};

use super::wire::{ExtenderBindingArgs, ExtenderBindingResult};

/// An answer, and how it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What is sent.
    pub result: ExtenderBindingResult,
    /// How it ended.
    pub outcome: Outcome,
    /// Code of the reason, where there is one.
    pub reason: &'static str,
}

/// Where a pod is by the API server's account.
enum Found {
    OnNode(String),
    Unbound,
    /// Deleted, or another pod of that name.
    Gone,
}

/// Binds a pod to the node that kube-scheduler chose.
pub async fn bind(index: &Index, writer: &Writer, args: ExtenderBindingArgs) -> Answer {
    let pod = PodRef {
        namespace: args.pod_namespace,
        name: args.pod_name,
        uid: args.pod_uid,
    };
    if let Err(unavailable) = index.available() {
        return Answer::error(unavailable.to_string(), unavailable.code());
    }
    if let Some(pause) = index.pause(&args.node) {
        tracing::info!(?pause, "its kubelet has just refused a pod");
        tokio::time::sleep(pause).await;
    }
    // a look-up makes the pod known, so the second turn decides
    for _ in 0..2 {
        match index.begin_bind(&pod, &args.node) {
            Ok(Step::Done) => return Answer::placed(),
            Ok(Step::Send(sending)) => return send(writer, sending, &args.node).await,
            Ok(Step::LookUp) => match writer.look_up(&pod.namespace, &pod.name).await {
                Ok(Some(found)) if found.metadata.uid.as_deref() == Some(&pod.uid) => {
                    index.learn(PodPart::of(&found));
                }
                Ok(_) => {
                    return Answer::error(format!("pod {pod} with UID {} does not exist", pod.uid), "Gone");
                }
                Err(error) => {
                    return Answer::error(format!("pod {pod} cannot be looked up: {error}"), "LookUp");
                }
            },
            Err(refusal) => return Answer::error(refusal.to_string(), refusal.code()),
        }
    }
    // known, not waiting and asking nothing: it has a node already, so it left the books at once
    match find(writer, &pod).await {
        Ok(Found::OnNode(node)) if node == args.node => Answer::placed(),
        Ok(Found::OnNode(node)) => Answer::error(format!("pod {pod} is already on node {node}"), "Elsewhere"),
        Ok(Found::Unbound | Found::Gone) => Answer::error(format!("pod {pod} is being deleted"), "Gone"),
        Err(error) => Answer::error(format!("pod {pod} cannot be looked up: {error}"), "LookUp"),
    }
}

async fn send(writer: &Writer, sending: Sending<'_>, node: &str) -> Answer {
    let placement = (!sending.placements.0.is_empty()).then(|| sending.placements.to_string());
    let span = tracing::Span::current();
    if let Some(device) = sending.placements.places().first() {
        span.record("gpu", &device.gpu)
            .record("place", tracing::field::display(device.place));
    }
    let error = match writer.bind(&sending.pod, node, placement).await {
        Ok(()) => {
            sending.bound();
            tracing::info!("bound");
            return Answer::placed();
        }
        Err(error) => error,
    };
    // the answer may be lost though the write was done, or this may be the second try of one that was
    let pod = sending.pod.clone();
    match (find(writer, &pod).await, &error) {
        (Ok(Found::OnNode(on)), _) if on == node => {
            sending.bound();
            tracing::info!(%error, "bound by an earlier try");
            Answer::placed()
        }
        (Ok(Found::OnNode(on)), _) => {
            sending.failed();
            Answer::error(format!("pod {pod} is already on node {on}"), "Elsewhere")
        }
        (Ok(Found::Gone), _) => {
            sending.failed();
            Answer::error(
                format!("pod {pod} with UID {} does not exist any more", pod.uid),
                "Gone",
            )
        }
        // a conflict that cannot be looked into may be an earlier try of ours that succeeded
        (Ok(Found::Unbound), WriteError::Refused { .. })
        | (
            Err(_),
            WriteError::Refused {
                code: ..=408 | 410.., ..
            },
        ) => {
            sending.failed();
            Answer::error(format!("pod {pod} was not bound: {error}"), "BindingRefused")
        }
        (Ok(Found::Unbound) | Err(_), _) => {
            sending.unknown();
            Answer::error(
                format!("pod {pod} may or may not be bound: {error}; it will be tried again"),
                "BindingUnknown",
            )
        }
    }
}

async fn find(writer: &Writer, pod: &PodRef) -> Result<Found, WriteError> {
    let found = writer.look_up(&pod.namespace, &pod.name).await?;
    let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&pod.uid));
    Ok(match found.map(|found| PodPart::of(&found).node) {
        None => Found::Gone,
        Some(None) => Found::Unbound,
        Some(Some(node)) => Found::OnNode(node),
    })
}

impl Answer {
    fn placed() -> Self {
        Self {
            result: ExtenderBindingResult::default(),
            outcome: Outcome::Placed,
            reason: "",
        }
    }

    fn error(sentence: String, reason: &'static str) -> Self {
        tracing::warn!(error = sentence, "not bound");
        Self {
            result: ExtenderBindingResult { error: sentence },
            outcome: Outcome::Error,
            reason,
        }
    }
}
