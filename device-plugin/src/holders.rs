//! Who still holds what. The kubelet's account and the API server's pods must agree before a device is released:
//! a kubelet that has just started shows nobody, and an API server that is away proves nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::inventory::{Held, PodRef, Seen};
use crate::kubelet::account::Shown;
use crate::pods::{Facts, Standing};

/// A device that was handed out and that the kubelet never showed is released after this long: its pod failed
/// admission for another reason.
const NEVER_SHOWN: Duration = Duration::from_secs(60);
/// Without an API server to ask, a device that the kubelet no longer shows is released after this long.
const MISSING: Duration = Duration::from_secs(5);

/// What becomes of a held device.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is held, and more is known now.
    Changed(Held),
    /// Nobody has it.
    Released,
}

/// Judges every held device whose allocation is not younger than `sequence`, the moment at which the account was
/// asked for. Devices without news are left out.
#[must_use]
pub fn judge(
    held: &BTreeMap<String, Held>,
    sequence: u64,
    shown: &[Shown],
    pods: &Facts,
    now: Instant,
) -> Vec<(String, Verdict)> {
    let old_enough = held.iter().filter(|(_, held)| held.sequence <= sequence);
    let mut verdicts: Vec<(String, Verdict)> = old_enough
        .filter_map(|(id, held)| Some((id.clone(), one(id, held, shown, pods, now)?)))
        .collect();
    // what the kubelet shows and we do not know was handed out by somebody before us: its journal is lost
    for shown in shown.iter().filter(|shown| !held.contains_key(&shown.id)) {
        let fresh = Held::new(&shown.resource, sequence, now);
        verdicts.push((shown.id.clone(), Verdict::Changed(seen(&fresh, shown, pods))));
    }
    verdicts
}

fn one(id: &str, held: &Held, shown: &[Shown], pods: &Facts, now: Instant) -> Option<Verdict> {
    if let Some(by) = shown.iter().find(|shown| shown.id == id) {
        let next = seen(held, by, pods);
        return (next != *held).then_some(Verdict::Changed(next));
    }
    let age = now.saturating_duration_since(held.since);
    let released = match &held.pod {
        None => held.seen != Seen::Now && age >= NEVER_SHOWN,
        Some(pod) => match pods.standing(pod) {
            // an init container's devices are not shown while its pod lives
            Standing::Lives | Standing::Unknown => false,
            Standing::Gone => true,
            Standing::NobodyToAsk => match held.seen {
                Seen::Never => age >= NEVER_SHOWN,
                Seen::Now => false,
                Seen::Missing => age >= MISSING,
            },
        },
    };
    if released {
        return Some(Verdict::Released);
    }
    let missing = Held {
        seen: Seen::Missing,
        since: now,
        ..held.clone()
    };
    (held.seen == Seen::Now).then_some(Verdict::Changed(missing))
}

fn seen(held: &Held, by: &Shown, pods: &Facts) -> Held {
    let same = held
        .pod
        .as_ref()
        .filter(|pod| pod.matches(&by.namespace, &by.pod));
    let uid = same
        .and_then(|pod| pod.uid.clone())
        .or_else(|| pods.uid(&by.namespace, &by.pod));
    let pod = PodRef {
        namespace: by.namespace.clone(),
        name: by.pod.clone(),
        uid,
    };
    Held {
        pod: Some(pod),
        container: Some(by.container.clone()),
        seen: Seen::Now,
        ..held.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::Fact;

    const ID: &str = "GPU-1:1g.10gb:6";

    fn shown(id: &str) -> Shown {
        let (namespace, pod, container) = ("n".to_owned(), "p".to_owned(), "c".to_owned());
        Shown {
            id: id.to_owned(),
            resource: "r".to_owned(),
            namespace,
            pod,
            container,
        }
    }

    fn pod(uid: &str, terminal: bool) -> Facts {
        let fact = Fact {
            uid: uid.to_owned(),
            terminal,
            ..Fact::default()
        };
        Facts::fresh([(("n".to_owned(), "p".to_owned()), fact)])
    }

    /// The one device after each reading of the account, `None` once it is released.
    fn after(start: Held, readings: &[(bool, &Facts, u64)]) -> Option<Held> {
        let began = Instant::now();
        let mut held = BTreeMap::from([(ID.to_owned(), start)]);
        for (is_shown, pods, seconds) in readings {
            let account = if *is_shown { vec![shown(ID)] } else { Vec::new() };
            for (id, verdict) in judge(&held, 5, &account, pods, began + Duration::from_secs(*seconds)) {
                match verdict {
                    Verdict::Changed(next) => drop(held.insert(id, next)),
                    Verdict::Released => drop(held.remove(&id)),
                }
            }
        }
        held.remove(ID)
    }

    fn fresh() -> Held {
        Held::new("r", 1, Instant::now())
    }

    #[test]
    fn a_device_becomes_known_and_goes_with_its_pod() {
        let lives = pod("u1", false);
        let held = after(fresh(), &[(true, &lives, 1)]).unwrap();
        assert_eq!(held.pod.unwrap().uid.as_deref(), Some("u1"));
        assert_eq!(held.container.as_deref(), Some("c"));
        for gone in [Facts::fresh([]), pod("u1", true), pod("u2", false)] {
            assert_eq!(after(fresh(), &[(true, &lives, 1), (false, &gone, 2)]), None);
        }
    }

    #[test]
    fn an_empty_account_of_a_kubelet_that_just_started_releases_nothing() {
        let lives = pod("u1", false);
        assert!(
            after(
                fresh(),
                &[(true, &lives, 1), (false, &lives, 2), (false, &lives, 999)]
            )
            .is_some()
        );
        let away = Facts::stale();
        assert!(
            after(
                fresh(),
                &[(true, &lives, 1), (false, &away, 2), (false, &away, 999)]
            )
            .is_some()
        );
    }

    #[test]
    fn without_an_api_server_the_account_decides_after_a_while() {
        let nobody = Facts::default();
        assert!(
            after(
                fresh(),
                &[(true, &nobody, 1), (false, &nobody, 2), (false, &nobody, 6)]
            )
            .is_some()
        );
        assert_eq!(
            after(
                fresh(),
                &[(true, &nobody, 1), (false, &nobody, 2), (false, &nobody, 7)]
            ),
            None
        );
        assert!(
            after(
                fresh(),
                &[
                    (true, &nobody, 1),
                    (false, &nobody, 2),
                    (true, &nobody, 3),
                    (false, &nobody, 7)
                ]
            )
            .is_some()
        );
    }

    #[test]
    fn what_nobody_ever_showed_is_released_after_a_minute() {
        let pods = Facts::fresh([]);
        assert!(after(fresh(), &[(false, &pods, 59)]).is_some());
        assert_eq!(after(fresh(), &[(false, &pods, 61)]), None);
    }

    #[test]
    fn an_account_older_than_the_allocation_says_nothing_about_it() {
        let young = Held {
            sequence: 6,
            ..fresh()
        };
        assert!(after(young, &[(false, &Facts::fresh([]), 999)]).is_some());
    }

    #[test]
    fn a_device_that_only_the_kubelet_knows_is_held() {
        let verdicts = judge(
            &BTreeMap::new(),
            0,
            &[shown(ID)],
            &Facts::default(),
            Instant::now(),
        );
        assert!(
            matches!(&verdicts[..], [(id, Verdict::Changed(held))] if id == ID && held.seen == Seen::Now)
        );
    }
}
