//! Which policy runs the GPUs, by name.

use std::fmt;
use std::str::FromStr;

use super::engine::Fleet;
use super::fixed::{FixedFleet, quarters, tuned, whole};
use super::load::{MIXES, Mix, Pattern};
use super::ours::OurFleet;
use super::rule_fleet::RuleFleet;
use super::rules::Rule;
use super::shapes::{CLASSES, Shapes};

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// migpool's, with or without one-move repair.
    Ours {
        /// Whether a running slice may be moved for one that fits nowhere.
        repairs: bool,
    },
    /// A rule to compare with.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether it repairs as the reference does.
        repairs: bool,
    },
    /// Slices that are cut once.
    Fixed(Fixed),
}

/// How slices are cut once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fixed {
    /// For the load's own mix.
    Tuned,
    /// For this mix, whatever comes.
    TunedFor(Mix),
    /// A quarter of the GPUs each in four usual ways.
    Quarters,
    /// Not at all.
    Whole,
}

const fn rule(rule: Rule) -> Policy {
    Policy::Rule { rule, repairs: false }
}

/// Expected fragment plus 0.2 for each free slice.
const EF: Rule = Rule::ExpectedFragment { keep_empty: 0.2 };

/// All names with their policies, in the order of the tables.
pub const POLICIES: [(&str, Policy); 18] = [
    ("worst-fit", rule(Rule::WorstFit)),
    ("round-robin", rule(Rule::RoundRobin)),
    ("first-fit", rule(Rule::FirstFit)),
    ("best-fit", rule(Rule::BestFit)),
    ("bf-bi", rule(Rule::BestFitBestIndex)),
    ("mfi-a", rule(Rule::MfiPartly)),
    ("mfi-b", rule(Rule::MfiTouched)),
    ("mcc", rule(Rule::MaxCapability)),
    ("mecc", rule(Rule::MaxExpectedCapability)),
    ("efrag", rule(Rule::ExpectedFragment { keep_empty: 0.0 })),
    ("ef", rule(EF)),
    ("ours", Policy::Ours { repairs: false }),
    (
        "first-fit/m",
        Policy::Rule {
            rule: Rule::FirstFit,
            repairs: true,
        },
    ),
    (
        "ef/m",
        Policy::Rule {
            rule: EF,
            repairs: true,
        },
    ),
    ("ours/m", Policy::Ours { repairs: true }),
    ("static", Policy::Fixed(Fixed::Tuned)),
    ("static:quarters", Policy::Fixed(Fixed::Quarters)),
    ("no-mig", Policy::Fixed(Fixed::Whole)),
];

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some((_, policy)) = POLICIES.into_iter().find(|(known, _)| *known == name) {
            return Ok(policy);
        }
        if let Some(mix) = name.strip_prefix("static:").and_then(|mix| mix.parse().ok()) {
            return Ok(Self::Fixed(Fixed::TunedFor(mix)));
        }
        let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        Err(format!(
            "{name:?} is no policy; choose from {}, static:<mix>",
            names.join(", ")
        ))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (POLICIES.into_iter().find(|(_, policy)| policy == self), self) {
            (Some((name, _)), _) => f.pad(name),
            (None, Self::Fixed(Fixed::TunedFor(mix))) => f.pad(&format!("static:{}", mix.name)),
            (None, other) => write!(f, "{other:?}"),
        }
    }
}

impl Policy {
    /// Empty GPUs under the policy, told of the load what the reference's policies are told: the mix, or the mean
    /// of the mixes, and the load. Ours is told nothing.
    #[must_use]
    pub fn fleet<'a>(
        self,
        shapes: &'a Shapes,
        pattern: &Pattern,
        load: f64,
        gpus: usize,
        ours: &shared::policy::Policy,
    ) -> Box<dyn Fleet + 'a> {
        let mix = mean_mix(pattern);
        match self {
            Self::Ours { repairs } => Box::new(OurFleet::new(shapes, ours.clone(), repairs, gpus)),
            Self::Rule { rule, repairs } => {
                Box::new(RuleFleet::new(shapes, rule, repairs, gpus, &mix.shares))
            }
            Self::Fixed(fixed) => Box::new(FixedFleet::new(&match fixed {
                Fixed::Tuned => tuned(shapes, &mix, load, gpus),
                Fixed::TunedFor(mix) => tuned(shapes, &mix, load, gpus),
                Fixed::Quarters => quarters(gpus),
                Fixed::Whole => whole(gpus),
            })),
        }
    }
}

/// The mix of a steady load; of one that switches, the mean, in which each mix counts by how many requests it sends.
#[must_use]
pub fn mean_mix(pattern: &Pattern) -> Mix {
    match pattern {
        Pattern::Steady(mix) => *mix,
        Pattern::Switching { mixes, .. } => {
            let shapes = Shapes::h100();
            let mut shares = [0.0; CLASSES];
            for mix in mixes {
                for (mean, share) in shares.iter_mut().zip(mix.shares) {
                    *mean += share / mix.mean_size(&shapes);
                }
            }
            let total: f64 = shares.iter().sum();
            Mix {
                name: "mean",
                shares: shares.map(|share| share / total),
            }
        }
    }
}

/// The four mixes in turn, each for this many mean lifetimes.
#[must_use]
pub fn switching(every: f64) -> Pattern {
    Pattern::Switching {
        mixes: MIXES.to_vec(),
        every,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in POLICIES.iter().map(|(name, _)| *name).chain(["static:bimodal"]) {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        assert!("best".parse::<Policy>().unwrap_err().contains("best-fit, bf-bi"));
        assert!("static:even".parse::<Policy>().is_err());
    }

    #[test]
    fn the_mean_of_mixes_counts_requests() {
        let mix = mean_mix(&switching(5.0));
        assert!((mix.shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // small requests come more often at the same load
        assert!(mix.shares[0] > 0.24, "{mix:?}");
    }
}
