//! The forecasts of all nodes of one GpuPool. Its nodes are stepped together, a bin at a time, so that what one shows
//! helps the others; a node that comes later is stepped through its own past first.

use std::collections::BTreeMap;

use super::gate::{Standing, Verdict};
use super::minutes::Minutes;
use super::pool::Pool;
use super::series::Series;
use crate::policy::{LOAD_LATE_SECONDS, LOAD_MINUTES, Policy};
use crate::snapshot::Outlook;

/// The forecaster of a pool.
pub struct Fleet {
    policy: Policy,
    pool: Pool,
    series: BTreeMap<String, Series>,
    /// The bin that is taken in next; `None` before the first node.
    next: Option<i64>,
}

/// How a fleet's forecasts stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Nodes that have told their load lately.
    pub nodes: usize,
    /// Nodes whose forecast is acted on.
    pub acting: usize,
    /// How the last forecasts of all nodes were.
    pub standing: Standing,
    /// Whether the pool acts on forecasts.
    pub verdict: Verdict,
}

impl Fleet {
    /// Without nodes.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            pool: Pool::default(),
            series: BTreeMap::new(),
            next: None,
        }
    }

    /// The policy that it was made with.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes in every bin that is over at `now` (seconds since 1970) from what the nodes told. `loads` are the nodes of
    /// the pool: those that are not among them are forgotten. Says how many bins it took in.
    pub fn advance(&mut self, loads: &BTreeMap<&str, &Minutes>, now: i64) -> usize {
        self.series.retain(|node, _| loads.contains_key(node.as_str()));
        let minutes = self.policy.forecast_horizon_minutes.max(1);
        let seconds = i64::from(minutes) * 60;
        let until = (now - LOAD_LATE_SECONDS).div_euclid(seconds);
        let first_of = |minutes_of: &Minutes| Some(minutes_of.first()?.div_euclid(i64::from(minutes)));
        let Some(first) = loads.values().filter_map(|load| first_of(load)).min() else {
            return 0;
        };
        // more than anybody remembers: the clock was set, or all were silent for days
        let most = LOAD_MINUTES as i64 / i64::from(minutes) + 1;
        if self.next.is_some_and(|next| until - next > most) {
            *self = Self::new(self.policy.clone());
        }
        let first = first.max(until - most);
        let next = *self.next.get_or_insert(first);
        for (node, load) in loads {
            if !self.series.contains_key(*node) {
                let past = first_of(load).map_or(next..next, |first| first..next);
                self.series
                    .insert((*node).to_owned(), self.joined(load, past, minutes));
            }
        }
        for bin in next..until {
            for (node, series) in &mut self.series {
                let reading = loads.get(node.as_str()).and_then(|load| load.bin(bin, minutes));
                series.observe(reading, &mut self.pool, &self.policy);
            }
            self.pool.close(&self.policy);
        }
        self.next = Some(next.max(until));
        usize::try_from(until - next).unwrap_or_default()
    }

    /// A node that has seen its own past. The others have seen it already: what it tells of it is not counted twice.
    fn joined(&self, load: &Minutes, past: std::ops::Range<i64>, minutes: u32) -> Series {
        let mut series = Series::new(&self.policy);
        let mut pool = self.pool.clone();
        for bin in past {
            series.observe(load.bin(bin, minutes), &mut pool, &self.policy);
        }
        series
    }

    /// What each node is expected to stay under, where there is a forecast to act on and the node has told its load
    /// lately, and how the forecasts stand.
    #[must_use]
    pub fn forecasts(
        &self,
        loads: &BTreeMap<&str, &Minutes>,
        now: i64,
    ) -> (BTreeMap<String, Outlook>, Report) {
        let fresh = |node: &str| loads.get(node).is_some_and(|load| load.is_fresh(now));
        let told = || self.series.iter().filter(|(node, _)| fresh(node));
        let outlook = |(node, series): (&String, &Series)| {
            let forecast = series.forecast(&self.pool).ok()?;
            let milli = (forecast.upper * f64::from(Outlook::WHOLE)).round() as u16;
            (forecast.verdict == Verdict::Act).then(|| (node.clone(), Outlook::of_milli(milli)))
        };
        let outlooks: BTreeMap<String, Outlook> = told().filter_map(outlook).collect();
        let mut standing = Standing::default();
        for series in self.series.values() {
            standing.add(series.standing());
        }
        let report = Report {
            nodes: told().count(),
            acting: outlooks.len(),
            standing,
            verdict: self.pool.verdict(),
        };
        (outlooks, report)
    }
}

/// Gives the nodes of a pool that have no outlook the middle one of those that have: a node of which nothing is known
/// must not look idle and draw pods. Where no node has one, none gets one.
pub fn fill<'a>(outlooks: &mut BTreeMap<String, Outlook>, nodes: impl IntoIterator<Item = &'a str>) {
    let mut known: Vec<Outlook> = outlooks.values().copied().collect();
    known.sort_unstable();
    // of two in the middle the busier
    let Some(middle) = known.get(known.len() / 2) else {
        return;
    };
    for node in nodes {
        if !outlooks.contains_key(node) {
            outlooks.insert(node.to_owned(), *middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    /// A load that swings around `middle` in six hours, from minute 1 to `until`.
    fn wave(middle: f32, until: i64) -> Minutes {
        let mut minutes = Minutes::default();
        for minute in 1..until {
            let angle = minute as f32 * std::f32::consts::TAU / 360.0;
            minutes.put(minute, middle + 0.2 * angle.sin());
        }
        minutes
    }

    fn loads<'a>(all: &'a [(&'a str, Minutes)]) -> BTreeMap<&'a str, &'a Minutes> {
        all.iter().map(|(node, minutes)| (*node, minutes)).collect()
    }

    #[test]
    fn a_scheduler_that_starts_anew_acts_at_once_on_what_the_agents_remember() {
        let until = LAST / 60;
        let all = [("calm", wave(0.25, until)), ("busy", wave(0.75, until))];
        let mut fleet = Fleet::new(Policy::default());
        assert!(fleet.advance(&loads(&all), LAST) >= 100);
        let (outlooks, report) = fleet.forecasts(&loads(&all), LAST);
        assert!(outlooks["busy"] > outlooks["calm"], "{outlooks:?}");
        assert_eq!((report.nodes, report.acting), (2, 2), "{report:?}");
        assert!(report.standing.accuracy() > 0.95 && report.standing.skill());
        // nothing is over until the next bin is
        assert_eq!(fleet.advance(&loads(&all), LAST + LOAD_LATE_SECONDS - 1), 0);
    }

    const LAST: i64 = 26 * HOUR;

    #[test]
    fn a_node_is_forecast_from_half_a_minute_after_each_bin() {
        let minutes = [("a", wave(0.5, 200))];
        let mut fleet = Fleet::new(Policy::default());
        assert_eq!(fleet.advance(&loads(&minutes), HOUR + LOAD_LATE_SECONDS - 1), 3);
        assert_eq!(fleet.advance(&loads(&minutes), HOUR + LOAD_LATE_SECONDS), 1);
    }

    #[test]
    fn who_tells_nothing_for_three_minutes_is_neutral_and_who_comes_back_is_not() {
        let all = [("a", wave(0.5, LAST / 60)), ("b", wave(0.4, LAST / 60 - 4))];
        let mut fleet = Fleet::new(Policy::default());
        fleet.advance(&loads(&all), LAST);
        let known = |fleet: &Fleet, all: &[(&str, Minutes)]| {
            fleet
                .forecasts(&loads(all), LAST)
                .0
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(known(&fleet, &all), ["a"]);
        let all = [("a", wave(0.5, LAST / 60)), ("b", wave(0.4, LAST / 60))];
        assert_eq!(known(&fleet, &all), ["a", "b"]);
    }

    #[test]
    fn a_node_that_comes_later_has_its_own_past_and_does_not_change_that_of_others() {
        let (early, late) = (("a", wave(0.5, LAST / 60)), ("b", wave(0.3, LAST / 60)));
        let mut alone = Fleet::new(Policy::default());
        alone.advance(&loads(std::slice::from_ref(&early)), LAST);
        let (before, _) = alone.forecasts(&loads(std::slice::from_ref(&early)), LAST);
        let both = [early, late];
        alone.advance(&loads(&both), LAST);
        let (after, _) = alone.forecasts(&loads(&both), LAST);
        assert_eq!(after["a"], before["a"]);
        assert!(after["b"] < after["a"], "{after:?}");
        // and one that leaves is forgotten
        alone.advance(&loads(&both[1..]), LAST);
        assert_eq!(alone.forecasts(&loads(&both[1..]), LAST).1.nodes, 1);
    }

    #[test]
    fn a_load_that_nobody_can_foresee_is_not_acted_on() {
        let mut minutes = Minutes::default();
        for minute in 1..LAST / 60 {
            // a new level each bin
            let level = (minute / 15 * 7_919 % 101) as f32 / 101.0;
            minutes.put(minute, level);
        }
        let all = [("wild", minutes)];
        let mut fleet = Fleet::new(Policy::default());
        fleet.advance(&loads(&all), LAST);
        let (outlooks, report) = fleet.forecasts(&loads(&all), LAST);
        assert_eq!(outlooks, BTreeMap::new());
        assert!(matches!(report.verdict, Verdict::Static { .. }), "{report:?}");
    }

    #[test]
    fn a_clock_that_is_set_costs_a_day_of_bins_and_no_more() {
        let all = [("a", wave(0.5, LAST / 60))];
        let mut fleet = Fleet::new(Policy::default());
        fleet.advance(&loads(&all), LAST);
        let years_later = LAST + 20 * 365 * 24 * HOUR;
        assert_eq!(fleet.advance(&loads(&all), years_later), 26 * 4 + 1);
        assert_eq!(fleet.forecasts(&loads(&all), years_later).0, BTreeMap::new());
        // set back again: nothing is over that was not
        assert_eq!(fleet.advance(&loads(&all), LAST), 0);
    }

    #[test]
    fn without_nodes_there_is_nothing_to_forecast() {
        let mut fleet = Fleet::new(Policy::default());
        assert_eq!(fleet.advance(&BTreeMap::new(), LAST), 0);
        let empty = [("new", Minutes::default())];
        assert_eq!(fleet.advance(&loads(&empty), LAST), 0);
        assert_eq!(fleet.series.len(), 0);
    }

    #[test]
    fn a_node_without_an_outlook_gets_the_middle_one_of_its_pool_where_there_is_any() {
        for (known, expected) in [
            (&[][..], None),
            (&[("a", 300)], Some(300)),
            (&[("a", 900), ("b", 100)], Some(900)),
            (&[("a", 900), ("b", 100), ("c", 200)], Some(200)),
        ] {
            let outlook = |(node, milli): &(&str, u16)| ((*node).to_owned(), Outlook::of_milli(*milli));
            let mut filled: BTreeMap<String, Outlook> = known.iter().map(outlook).collect();
            fill(&mut filled, ["a", "b", "c", "x", "y"]);
            let milli = |node: &str| filled.get(node).map(|outlook| outlook.milli());
            assert_eq!((milli("x"), milli("y")), (expected, expected), "{known:?}");
            for (node, outlook) in known {
                assert_eq!(milli(node), Some(*outlook));
            }
        }
    }
}
