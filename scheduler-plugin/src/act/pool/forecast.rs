//! How the load of a pool is forecast, in numbers and a sentence.

use shared::api::gpu_pool::ForecastStatus;
use shared::decide::forecast::fleet::Report;
use shared::decide::forecast::gate::Verdict;
use shared::policy::{
    FALLBACK_QUIET_ROUNDS, FORECAST_JUDGED, FORECAST_RIGHT_WITHIN, LOAD_STALE_MINUTES, Policy,
};

/// What a report says of a pool with this policy.
pub(super) fn status(report: &Report, policy: &Policy) -> ForecastStatus {
    let standing = &report.standing;
    ForecastStatus {
        nodes: count(report.nodes),
        acting: count(report.acting),
        // whole numbers: a share in floating point may fall just below what it is
        accuracy_percent: (u64::from(standing.right) * 100)
            .checked_div(standing.judged.into())
            .and_then(|percent| u32::try_from(percent).ok()),
        // rounded down too, so that below 100 is always better
        error_percent: standing.mase().map(|mase| (mase * 100.0) as u32),
        message: message(report, policy),
    }
}

fn message(report: &Report, policy: &Policy) -> String {
    let Report { nodes, acting, .. } = report;
    if *nodes == 0 {
        return format!("no node has told its load for {LOAD_STALE_MINUTES} minutes; no forecast counts");
    }
    // accuracy and skill are each node's own where the pool has not failed as a whole
    let those_that_count = match acting {
        0 => "none counts".to_owned(),
        _ => format!("those of {acting} of {nodes} nodes were good enough and count"),
    };
    match report.verdict {
        Verdict::Act if *acting == 0 => {
            "forecasts of the pool are right, but no node's own have proved so; none counts".to_owned()
        }
        Verdict::Act => format!(
            "forecasts are right and better than \"as it is now\"; those of {acting} of {nodes} nodes count"
        ),
        Verdict::Unproven { judged } => {
            format!("{judged} of {FORECAST_JUDGED} forecasts were judged; until then none counts")
        }
        Verdict::Inaccurate { accuracy } => format!(
            "{:.0} % of forecasts were within {:.0} points, {} % are needed; {those_that_count}",
            (accuracy * 100.0).floor(),
            FORECAST_RIGHT_WITHIN * 100.0,
            policy.accuracy_gate_percent,
        ),
        Verdict::NoSkill { .. } => {
            format!("forecasts are no better than \"as it is now\"; {those_that_count}")
        }
        Verdict::Static { quiet } => format!(
            "more than {} % of forecasts failed; none counts until few have for {FALLBACK_QUIET_ROUNDS} rounds in a \
             row, {quiet} so far",
            policy.fallback_failure_rate_percent,
        ),
    }
}

fn count(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use shared::decide::forecast::gate::Standing;

    use super::*;

    fn report(nodes: usize, acting: usize, verdict: Verdict) -> Report {
        Report {
            nodes,
            acting,
            standing: Standing {
                judged: 200,
                right: 199,
                error: 1.99,
                persistence_error: 2.0,
            },
            verdict,
        }
    }

    #[test]
    fn percents_are_whole_numbers_rounded_down_and_absent_before_the_first_forecast() {
        let said = status(&report(3, 2, Verdict::Act), &Policy::default());
        assert_eq!((said.nodes, said.acting), (3, 2));
        assert_eq!((said.accuracy_percent, said.error_percent), (Some(99), Some(99)));
        let of = |judged: u32, right: u32| {
            let mut report = report(1, 1, Verdict::Act);
            (report.standing.judged, report.standing.right) = (judged, right);
            status(&report, &Policy::default()).accuracy_percent
        };
        assert_eq!(
            (of(100, 29), of(96, 96), of(96, 0)),
            (Some(29), Some(100), Some(0))
        );
        let nothing = Report {
            standing: Standing::default(),
            ..report(1, 0, Verdict::Unproven { judged: 0 })
        };
        let said = status(&nothing, &Policy::default());
        assert_eq!((said.accuracy_percent, said.error_percent), (None, None));
    }

    #[test]
    fn each_verdict_has_its_sentence() {
        for (nodes, acting, verdict, sentence) in [
            (
                0,
                0,
                Verdict::Act,
                "no node has told its load for 3 minutes; no forecast counts",
            ),
            (
                3,
                2,
                Verdict::Act,
                "forecasts are right and better than \"as it is now\"; those of 2 of 3 nodes count",
            ),
            (
                3,
                0,
                Verdict::Act,
                "forecasts of the pool are right, but no node's own have proved so; none counts",
            ),
            (
                3,
                0,
                Verdict::Unproven { judged: 17 },
                "17 of 96 forecasts were judged; until then none counts",
            ),
            (
                3,
                0,
                Verdict::Inaccurate { accuracy: 0.849 },
                "84 % of forecasts were within 10 points, 85 % are needed; none counts",
            ),
            (
                3,
                1,
                Verdict::Inaccurate { accuracy: 0.849 },
                "84 % of forecasts were within 10 points, 85 % are needed; those of 1 of 3 nodes were good enough and count",
            ),
            (
                3,
                0,
                Verdict::NoSkill { mase: None },
                "forecasts are no better than \"as it is now\"; none counts",
            ),
            (
                3,
                0,
                Verdict::Static { quiet: 5 },
                "more than 20 % of forecasts failed; none counts until few have for 24 rounds in a row, 5 so far",
            ),
        ] {
            let said = message(&report(nodes, acting, verdict), &Policy::default());
            assert_eq!(said, sentence);
            assert!(said.len() <= 256, "{said}");
        }
    }
}
