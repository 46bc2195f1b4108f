//! Which nodes can take a pod. Where something fits the answer is the one best node and no word about the others:
//! kube-scheduler then skips scoring. Where nothing fits every node gets the same sentence.
//!
//! Whole nodes (a cluster autoscaler that simulates) are answered with all that fit, and nothing is held.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serve::tasks::aside;
use shared::decide::place::{Ranking, explain, rank};
use shared::decide::reason::Refusal;
use shared::names;
use shared::policy::HAIR_COST;
use shared::snapshot::{Request, Snapshot};

use super::node_names::NodeNames;
use super::wire::{ExtenderArgs, ExtenderFilterResult, Nodes};
use crate::index::holding::Earlier;
use crate::index::{Index, View};
use crate::metrics::Outcome;
use crate::watch::pods::PodPart;

/// An answer, and how it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What is sent.
    pub result: ExtenderFilterResult,
    /// How it ended.
    pub outcome: Outcome,
    /// Code of the reason, where there is one.
    pub reason: &'static str,
}

/// The nodes that kube-scheduler leaves to choose from.
enum Asked {
    Names(NodeNames),
    Whole(Vec<Node>),
}

/// Answers filter for the pod of `part`, which is `args.pod`.
#[must_use]
pub fn filter(index: &Index, part: &PodPart, args: ExtenderArgs) -> Answer {
    let asked = match args.nodes {
        Some(nodes) => Asked::Whole(nodes.items.unwrap_or_default()),
        None => Asked::Names(args.node_names.unwrap_or_default()),
    };
    let request = match &part.request {
        Ok(request) if request.is_empty() => return Answer::all(asked),
        Ok(request) => request,
        Err(bad) => return Answer::never(&asked, &bad.to_string(), "BadRequest"),
    };
    if let Some(Err(bad)) = &part.placement {
        let sentence = format!("annotation {}: {bad}, or remove it", names::ANNOTATION_PLACEMENT);
        return Answer::never(&asked, &sentence, "BadPlacement");
    }
    if let Err(unavailable) = index.available() {
        return Answer::error(unavailable.to_string(), unavailable.code());
    }
    match asked {
        Asked::Names(names) => place(index, part, request, names),
        Asked::Whole(nodes) => aside(|| simulate(index, part, request, nodes)),
    }
}

fn place(index: &Index, part: &PodPart, request: &Request, names: NodeNames) -> Answer {
    match index.begin_filter(&part.pod, request, &names) {
        Earlier::Nothing => {}
        Earlier::Planned(node) => return Answer::one(&node),
        Earlier::On(node) if names.contains(&node) => return Answer::one(&node),
        Earlier::On(node) => {
            let sentence =
                format!("an earlier bind to node {node} is not settled yet; it will be tried again");
            return Answer::failed(&names, &sentence, true, "UnderWay");
        }
    }
    if let Some(node) = index.inherit(part, request, &names) {
        return Answer::one(&node);
    }
    if part.rules.soft {
        let view = index.view();
        if let Ok(ranking) = rank(&view.snapshot, request, names.iter(), &view.tables) {
            return Answer::names(names_of(&ranking, HAIR_COST).iter().collect());
        }
    }
    if let Some(held) = index.hold_best(&part.pod, request, &names) {
        tracing::debug!(pod = %part.pod, node = held.node, place = %held.placements, "held");
        return Answer::one(&held.node);
    }
    // no node that was offered has room, so that is not asked of each of them again
    let offered: HashSet<&str> = names.iter().collect();
    let refusal = aside(|| explain(&index.view().snapshot, request, |node| offered.contains(node)));
    Answer::refused(&names, &refusal)
}

fn names_of(ranking: &Ranking<'_>, hair: i64) -> Vec<String> {
    ranking
        .within(hair)
        .into_iter()
        .map(|near| near.node.name.clone())
        .collect()
}

fn simulate(index: &Index, part: &PodPart, request: &Request, nodes: Vec<Node>) -> Answer {
    let view = index.view();
    let snapshot = without(index, &view, &part.pod.uid);
    let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
    let ranked = rank(&snapshot, request, nodes.iter().map(name), &view.tables);
    let known: BTreeSet<String> = ranked
        .as_ref()
        .map(|ranking| names_of(ranking, i64::MAX).into_iter().collect())
        .unwrap_or_default();
    // a node that does not exist yet has no GpuNode; what its template promises is all there is to go by
    let fits = |node: &Node| match snapshot.nodes.contains_key(name(node).as_str()) {
        true => known.contains(&name(node)),
        false => promises(node, request),
    };
    let (fit, not): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(fits);
    let refusal = match ranked {
        Err(refusal) => refusal,
        Ok(_) => explain(&snapshot, request, |node| !known.contains(node)),
    };
    let outcome = if fit.is_empty() {
        Outcome::Refused
    } else {
        Outcome::Placed
    };
    let sentence = refusal.to_string();
    Answer {
        result: ExtenderFilterResult {
            nodes: Some(Nodes { items: Some(fit) }),
            failed_nodes: not.iter().map(|node| (name(node), sentence.clone())).collect(),
            ..ExtenderFilterResult::default()
        },
        outcome,
        reason: if outcome == Outcome::Refused {
            refusal.code()
        } else {
            ""
        },
    }
}

/// The cluster without what is held for a pod: that is free for it.
#[must_use]
pub fn without<'a>(index: &Index, view: &'a View, uid: &str) -> Cow<'a, Snapshot> {
    let mut snapshot = Cow::Borrowed(&view.snapshot);
    if let Some(node) = index.without(uid) {
        snapshot
            .to_mut()
            .nodes
            .insert(node.name.as_str().into(), Arc::new(node));
    }
    snapshot
}

/// Whether a node's allocatable resources cover a request.
fn promises(node: &Node, request: &Request) -> bool {
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    request.distinct().into_iter().all(|(profile, count)| {
        let resource = profile.map_or_else(|| names::RESOURCE_GPU.to_owned(), names::resource);
        let there = allocatable.and_then(|all| all.get(&resource)?.0.parse::<u32>().ok());
        there.is_some_and(|there| there >= count)
    })
}

impl Asked {
    fn names(&self) -> NodeNames {
        match self {
            Self::Names(names) => names.clone(),
            Self::Whole(nodes) => nodes
                .iter()
                .filter_map(|node| node.metadata.name.clone())
                .collect(),
        }
    }
}

impl Answer {
    /// Every node passes.
    fn all(asked: Asked) -> Self {
        let result = match asked {
            Asked::Names(names) => ExtenderFilterResult {
                node_names: Some(names),
                ..ExtenderFilterResult::default()
            },
            Asked::Whole(nodes) => ExtenderFilterResult {
                nodes: Some(Nodes { items: Some(nodes) }),
                ..ExtenderFilterResult::default()
            },
        };
        Self {
            result,
            outcome: Outcome::Passed,
            reason: "",
        }
    }

    fn one(node: &str) -> Self {
        Self::names([node].into_iter().collect())
    }

    fn names(names: NodeNames) -> Self {
        let result = ExtenderFilterResult {
            node_names: Some(names),
            ..ExtenderFilterResult::default()
        };
        Self {
            result,
            outcome: Outcome::Placed,
            reason: "",
        }
    }

    fn refused(names: &NodeNames, refusal: &Refusal) -> Self {
        Self::failed(names, &refusal.to_string(), refusal.may_pass(), refusal.code())
    }

    /// No node will ever do.
    fn never(asked: &Asked, sentence: &str, reason: &'static str) -> Self {
        let mut answer = Self::failed(&asked.names(), sentence, false, reason);
        if let Asked::Whole(_) = asked {
            answer.result.node_names = None;
            answer.result.nodes = Some(Nodes {
                items: Some(Vec::new()),
            });
        }
        answer
    }

    fn failed(names: &NodeNames, sentence: &str, may_pass: bool, reason: &'static str) -> Self {
        let each: BTreeMap<String, String> = names
            .iter()
            .map(|name| (name.to_owned(), sentence.to_owned()))
            .collect();
        let mut result = ExtenderFilterResult {
            node_names: Some(NodeNames::default()),
            ..ExtenderFilterResult::default()
        };
        if may_pass {
            result.failed_nodes = each;
        } else {
            result.failed_and_unresolvable_nodes = each;
        }
        Self {
            result,
            outcome: Outcome::Refused,
            reason,
        }
    }

    fn error(sentence: String, reason: &'static str) -> Self {
        let result = ExtenderFilterResult {
            error: sentence,
            ..ExtenderFilterResult::default()
        };
        Self {
            result,
            outcome: Outcome::Error,
            reason,
        }
    }
}
