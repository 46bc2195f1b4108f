//! What the agents told: the minutes of every node and how its stream stands. A node is kept while it has a GpuNode,
//! so that a stream that is opened again goes on where the last one ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serve::usage::proto::Minute;
use shared::decide::forecast::minutes::Minutes;
use shared::policy::{LOAD_AHEAD_MINUTES, LOAD_MINUTES, LOAD_STALE_MINUTES};
use tokio::sync::Notify;

/// The minutes of all nodes.
#[derive(Debug, Default)]
pub struct Loads {
    nodes: Mutex<BTreeMap<Arc<str>, Load>>,
    settled: Notify,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// What it told. Shared with whoever looks: it is copied where it changes meanwhile.
    pub minutes: Arc<Minutes>,
    /// How its stream stands.
    pub state: State,
    /// What it remembers has come, or does not come now. Before that it is not forecast: what comes later of the past
    /// would be missing for good.
    pub settled: bool,
    /// Its loss was told, its return not yet.
    missed: bool,
}

/// How the stream of a node stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its agent does not say where.
    #[default]
    None,
    /// Its agent is called.
    Called,
    /// It is open.
    Open,
    /// Its agent did not answer, or not to the end.
    Lost,
}

/// What became of minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Taken in.
    pub taken: usize,
    /// Of no use: no shares, out of order, or of a time that does not count.
    pub useless: usize,
    /// They came after a loss that was told.
    pub returned: bool,
    /// The node has settled.
    pub settled: bool,
}

impl Loads {
    /// Waits until a node settles.
    pub async fn settled(&self) {
        self.settled.notified().await;
    }

    /// The agent of a node is called.
    pub fn called(&self, node: &Arc<str>) {
        self.lock().entry(Arc::clone(node)).or_default().state = State::Called;
    }

    /// The stream of a node is open.
    pub fn opened(&self, node: &str) {
        self.with(node, |load| load.state = State::Open);
    }

    /// A node that has told all it has is not waited for.
    pub fn settle(&self, node: &str) {
        if let Some(true) = self.with(node, Load::settle) {
            self.settled.notify_one();
        }
    }

    /// The stream of a node ended or could not be opened.
    pub fn lost(&self, node: &str) {
        self.settle(node);
        self.with(node, |load| load.state = State::Lost);
    }

    /// A loss is about to be told. False where that was done since the node was last heard.
    pub fn miss(&self, node: &str) -> bool {
        let news = self.with(node, |load| !std::mem::replace(&mut load.missed, true));
        news.unwrap_or_default()
    }

    /// The agent of a node tells no more. What it told stays.
    pub fn closed(&self, node: &str) {
        self.with(node, |load| load.state = State::None);
    }

    /// A node is gone, and what it told with it.
    pub fn forget(&self, node: &str) {
        self.lock().remove(node);
    }

    /// The last minute that a node told; 0 before the first.
    #[must_use]
    pub fn last(&self, node: &str) -> i64 {
        let last = self.with(node, |load| load.minutes.last());
        last.flatten().unwrap_or_default()
    }

    /// Takes what a node told at `now`, minutes since 1970. A minute that is not remembered any more, or that is more
    /// than [`LOAD_AHEAD_MINUTES`] ahead, is not taken. A node settles when it has told what was just now: what an
    /// agent remembers comes in several messages.
    pub fn take(&self, node: &str, told: &[Minute], now: i64) -> Taken {
        let counts = now - LOAD_MINUTES as i64..=now + LOAD_AHEAD_MINUTES;
        let mut nodes = self.lock();
        let Some(load) = nodes.get_mut(node) else {
            return Taken::default();
        };
        let mut result = Taken::default();
        for one in told {
            let minutes = &mut load.minutes;
            if counts.contains(&one.minute) && Arc::make_mut(minutes).put(one.minute, one.load) {
                result.taken += 1;
            } else {
                result.useless += 1;
            }
        }
        result.returned = result.taken > 0 && std::mem::take(&mut load.missed);
        let last = load.minutes.last();
        let settles = last.is_some_and(|last| last >= now - LOAD_STALE_MINUTES) && load.settle();
        result.settled = load.settled;
        drop(nodes);
        if settles {
            self.settled.notify_one();
        }
        result
    }

    /// All nodes as they are now.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Arc<str>, Load> {
        self.lock().clone()
    }

    fn with<T>(&self, node: &str, change: impl FnOnce(&mut Load) -> T) -> Option<T> {
        self.lock().get_mut(node).map(change)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Load>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// True where that is new.
    fn settle(&mut self) -> bool {
        !std::mem::replace(&mut self.settled, true)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const NOW: i64 = 29_000_000;

    fn told(minutes: &[(i64, f32)]) -> Vec<Minute> {
        let of = |(minute, load): &(i64, f32)| Minute {
            minute: *minute,
            load: *load,
        };
        minutes.iter().map(of).collect()
    }

    fn with_node() -> (Loads, Arc<str>) {
        let (loads, node) = (Loads::default(), Arc::from("a"));
        loads.called(&node);
        (loads, node)
    }

    #[test]
    fn a_minute_counts_that_is_of_the_last_day_new_and_a_share() {
        let remembered = LOAD_MINUTES as i64;
        for (minute, load, is_taken) in [
            (NOW - 1, 0.5, true),
            (NOW - 1, 0.0, true),
            (NOW + LOAD_AHEAD_MINUTES, 0.5, true),
            (NOW + LOAD_AHEAD_MINUTES + 1, 0.5, false),
            (i64::MAX, 0.5, false),
            (NOW - remembered, 0.5, true),
            (NOW - remembered - 1, 0.5, false),
            (i64::MIN, 0.5, false),
            (NOW - 1, 1.5, false),
            (NOW - 1, f32::NAN, false),
        ] {
            let (loads, _) = with_node();
            let taken = loads.take("a", &told(&[(minute, load)]), NOW);
            assert_eq!(
                (taken.taken, taken.useless),
                (usize::from(is_taken), usize::from(!is_taken)),
                "{minute} {load}"
            );
        }
    }

    #[test]
    fn a_stream_that_is_opened_again_goes_on_after_the_last_minute() {
        let (loads, node) = with_node();
        assert_eq!(loads.last("a"), 0);
        loads.take("a", &told(&[(NOW - 3, 0.1), (NOW - 2, 0.2)]), NOW);
        loads.lost("a");
        // told once
        assert!(loads.miss("a") && !loads.miss("a"));
        loads.closed("a");
        loads.called(&node);
        loads.opened("a");
        assert_eq!(loads.last("a"), NOW - 2);
        // what says nothing new is no return
        let again = loads.take("a", &told(&[(NOW - 2, 0.2)]), NOW);
        assert_eq!((again.useless, again.returned), (1, false));
        assert!(loads.take("a", &told(&[(NOW - 1, 0.3)]), NOW).returned);
        assert!(!loads.take("a", &told(&[(NOW, 0.3)]), NOW).returned);
        assert!(loads.miss("a"));
    }

    #[test]
    fn of_a_node_that_is_gone_nothing_is_taken() {
        let (loads, _) = with_node();
        loads.forget("a");
        assert_eq!(loads.take("a", &told(&[(NOW, 0.5)]), NOW), Taken::default());
        assert!(!loads.miss("a"));
        assert!(loads.all().is_empty());
    }

    #[test]
    fn who_looks_keeps_what_was_there() {
        let (loads, _) = with_node();
        loads.take("a", &told(&[(NOW - 1, 0.5)]), NOW);
        let seen = loads.all();
        loads.take("a", &told(&[(NOW, 0.5)]), NOW);
        assert_eq!(seen["a"].minutes.last(), Some(NOW - 1));
        assert_eq!(loads.last("a"), NOW);
    }

    #[test]
    fn a_node_settles_once_when_it_has_told_what_was_just_now_or_failed() {
        for settles in [
            |loads: &Loads| {
                loads.take("a", &told(&[(NOW, 0.5)]), NOW);
            },
            |loads: &Loads| loads.lost("a"),
            |loads: &Loads| loads.settle("a"),
        ] {
            let (loads, _) = with_node();
            loads.opened("a");
            // there is more to come
            let part = loads.take(
                "a",
                &told(&[(NOW - 900, 0.5), (NOW - LOAD_STALE_MINUTES - 1, 0.5)]),
                NOW,
            );
            assert_eq!((part.taken, part.settled), (2, false));
            assert!(!loads.all()["a"].settled && loads.settled().now_or_never().is_none());
            settles(&loads);
            assert!(loads.all()["a"].settled);
            assert!(loads.settled().now_or_never().is_some());
            settles(&loads);
            assert!(loads.settled().now_or_never().is_none());
        }
    }
}
