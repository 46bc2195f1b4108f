//! Tells the owner of a pod that waits why no GPU takes it. kube-scheduler's own fit check may turn every node down
//! before it asks us, and then says only "Insufficient nvidia.com/mig-2g.20gb"; this says what the GPUs hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serve::tasks::aside;
use shared::decide::place::rank;
use shared::decide::reason::Refusal;
use shared::policy::EVENT_SPACING_SECONDS;
use shared::snapshot::Request;
use shared::snapshot::request::BadRequest;

use crate::clock::Clock;
use crate::index::{Index, View};
use crate::watch::pods::PodPart;
use crate::writer::{PodRef, WriteError, Writer};

/// What was told to whom.
#[derive(Debug, Default)]
pub struct Explain {
    /// By UID: the last sentence, and when it was written.
    told: BTreeMap<String, (String, Duration)>,
}

impl Explain {
    /// Writes the events that are due.
    pub async fn turn(&mut self, index: &Index, writer: &Writer, clock: &Clock) {
        let view = index.view();
        let sentences = aside(|| waiting(index, &view));
        let waits: BTreeSet<&str> = sentences.iter().map(|(pod, _)| pod.uid.as_str()).collect();
        self.told.retain(|uid, _| waits.contains(uid.as_str()));
        for (pod, sentence) in sentences {
            let now = clock.steady();
            if !self.is_due(&pod, &sentence, now) {
                continue;
            }
            match writer.failed_placement(&pod, &sentence, clock.calendar()).await {
                Ok(()) => tracing::info!(%pod, reason = sentence, "cannot be placed"),
                // its namespace may be going away; asking again each second would not help
                Err(error @ WriteError::Refused { .. }) => tracing::warn!(%pod, %error, "event refused"),
                Err(error @ WriteError::Unknown(_)) => {
                    tracing::warn!(%pod, %error, "event not written");
                    return;
                }
            }
            self.told.insert(pod.uid, (sentence, now));
        }
    }

    /// One event a pod for each new sentence, and not more often than the policy allows: numbers of a busy pool
    /// change by the second.
    fn is_due(&self, pod: &PodRef, sentence: &str, now: Duration) -> bool {
        self.told.get(&pod.uid).is_none_or(|(before, at)| {
            before != sentence && now.saturating_sub(*at) >= Duration::from_secs(EVENT_SPACING_SECONDS)
        })
    }
}

/// What a waiting pod asks for; pods that ask for the same get the same sentence.
type Ask = (Result<Request, BadRequest>, BTreeMap<String, String>);

/// Pods of ours that kube-scheduler found no node for and that really fit nowhere, with the reason.
fn waiting(index: &Index, view: &View) -> Vec<(PodRef, String)> {
    let mut sentences: Vec<(Ask, Option<String>)> = Vec::new();
    let mut told = Vec::new();
    for (pod, ask) in asks(index) {
        let known = sentences.iter().position(|(other, _)| *other == ask);
        let at = known.unwrap_or_else(|| {
            let sentence = why(index, view, &ask).map(|refusal| refusal.to_string());
            sentences.push((ask, sentence));
            sentences.len() - 1
        });
        told.extend(sentences[at].1.clone().map(|sentence| (pod, sentence)));
    }
    told
}

fn asks(index: &Index) -> Vec<(PodRef, Ask)> {
    let waits = |pod: &&PodPart| pod.unschedulable && pod.node.is_none() && !pod.deleting && pod.asks();
    index.read(|books| {
        let pods = books.pods.values().filter(waits);
        pods.map(|pod| (pod.pod.clone(), (pod.request.clone(), pod.rules.selector.clone())))
            .collect()
    })
}

fn why(index: &Index, view: &View, (request, selector): &Ask) -> Option<Refusal> {
    let request = match request {
        Ok(request) => request,
        Err(bad) => return Some(Refusal::Bad(bad.clone())),
    };
    let names = view.snapshot.nodes.keys();
    let offered: Vec<_> = index.read(|books| {
        let selects =
            |name: &&std::sync::Arc<str>| books.node(name).is_some_and(|node| node.has_labels(selector));
        names.filter(selects).cloned().collect()
    });
    rank(&view.snapshot, request, offered, &view.tables).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_hears_a_new_reason_once_and_not_too_often() {
        let pod = PodRef {
            namespace: "ns".into(),
            name: "p".into(),
            uid: "u".into(),
        };
        let mut explain = Explain::default();
        let at = Duration::from_secs;
        assert!(explain.is_due(&pod, "a", at(0)));
        explain.told.insert("u".into(), ("a".into(), at(0)));
        for (sentence, seconds, due) in [
            ("a", 1, false),
            ("b", 1, false),
            ("a", 100, false),
            ("b", 59, false),
            ("b", 60, true),
        ] {
            assert_eq!(
                explain.is_due(&pod, sentence, at(seconds)),
                due,
                "{sentence} at {seconds}"
            );
        }
    }
}
