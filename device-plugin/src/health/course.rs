//! How a GPU gets well: it must look well for a while before it takes work, and the longer the more often it fell
//! ill lately.

use std::time::Duration;

use shared::api::gpu_node::Health;
use tokio::time::Instant;

/// How long a GPU must look well at first.
const FIRST: Duration = Duration::from_secs(3);
/// How long at most.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a relapse is remembered.
const MEMORY: Duration = Duration::from_secs(3600);

/// The course of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Since when it has looked well.
    well_since: Option<Instant>,
    /// When it began to recover, each time within [`MEMORY`].
    recoveries: Vec<Instant>,
}

impl Course {
    /// What a GPU that is not healthy is after a look at it.
    pub fn probed(&mut self, now_is: Health, well: bool, now: Instant) -> Health {
        if !well {
            self.well_since = None;
            return if now_is == Health::Suspect {
                Health::Suspect
            } else {
                Health::Unhealthy
            };
        }
        let relapsed = now_is != Health::Recovering;
        if relapsed {
            self.recoveries
                .retain(|then| now.saturating_duration_since(*then) < MEMORY);
            self.recoveries.push(now);
            self.well_since = None;
        }
        let since = *self.well_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.trial() {
            self.well_since = None;
            Health::Healthy
        } else {
            Health::Recovering
        }
    }

    /// How long it must look well: twice as long with each relapse.
    fn trial(&self) -> Duration {
        let relapses = u32::try_from(self.recoveries.len().saturating_sub(1))
            .unwrap_or(u32::MAX)
            .min(16);
        FIRST.saturating_mul(1 << relapses).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until a GPU that looks well from now on is healthy.
    fn until_healthy(course: &mut Course, from: Instant) -> u64 {
        let mut health = Health::Unhealthy;
        for second in 0..10_000 {
            health = course.probed(health, true, from + Duration::from_secs(second));
            if health == Health::Healthy {
                return second;
            }
        }
        unreachable!("never healthy again")
    }

    #[test]
    fn a_gpu_is_on_trial_and_longer_with_each_relapse() {
        let (mut course, start) = (Course::default(), Instant::now());
        assert_eq!(until_healthy(&mut course, start), 3);
        assert_eq!(until_healthy(&mut course, start + Duration::from_secs(60)), 6);
        assert_eq!(until_healthy(&mut course, start + Duration::from_secs(120)), 12);
        assert_eq!(until_healthy(&mut course, start + Duration::from_secs(9_000)), 3);
    }

    #[test]
    fn a_look_that_goes_wrong_ends_the_trial() {
        let (mut course, start) = (Course::default(), Instant::now());
        assert_eq!(course.probed(Health::Unhealthy, true, start), Health::Recovering);
        assert_eq!(
            course.probed(Health::Recovering, false, start + Duration::from_secs(1)),
            Health::Unhealthy
        );
        assert_eq!(course.probed(Health::Suspect, false, start), Health::Suspect);
    }
}
