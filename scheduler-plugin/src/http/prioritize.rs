//! Scores of the nodes that filter left for a pod with preferences of its own: 10 for the best, then 9, 8, ...: never
//! a tie at the top, which kube-scheduler would break by chance.

use shared::decide::place::rank;

use super::filter::without;
use super::wire::{ExtenderArgs, HostPriority, MAX_PRIORITY};
use crate::index::Index;
use crate::metrics::Outcome;
use crate::watch::pods::PodPart;

/// Answers prioritize for the pod of `part`, which is `args.pod`. Nodes that cannot be ranked get 0.
#[must_use]
pub fn prioritize(index: &Index, part: &PodPart, args: ExtenderArgs) -> (Vec<HostPriority>, Outcome) {
    let whole = args.nodes.and_then(|nodes| nodes.items).unwrap_or_default();
    let whole = whole.into_iter().filter_map(|node| node.metadata.name);
    let names = args.node_names.unwrap_or_default();
    let names: Vec<String> = names.iter().map(str::to_owned).chain(whole).collect();
    let (ranked, outcome) = match &part.request {
        Ok(request) if request.is_empty() => (Vec::new(), Outcome::Passed),
        Ok(request) if index.available().is_ok() => {
            let view = index.view();
            let snapshot = without(index, &view, &part.pod.uid);
            let ranking = rank(&snapshot, request, &names, &view.tables);
            let best_first = ranking.map(|ranking| {
                ranking
                    .within(i64::MAX)
                    .into_iter()
                    .map(|candidate| candidate.node.name.clone())
                    .collect()
            });
            (best_first.unwrap_or_default(), Outcome::Placed)
        }
        Ok(_) | Err(_) => (Vec::new(), Outcome::Error),
    };
    let mut scores = std::collections::BTreeMap::new();
    for (at, name) in ranked.into_iter().enumerate() {
        let score = MAX_PRIORITY
            .saturating_sub(i64::try_from(at).unwrap_or(MAX_PRIORITY))
            .max(0);
        scores.entry(name).or_insert(score);
    }
    let score = |host: String| HostPriority {
        score: scores.get(&host).copied().unwrap_or(0),
        host,
    };
    (names.into_iter().map(score).collect(), outcome)
}
