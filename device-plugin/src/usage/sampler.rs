//! Reads the GPUs from time to time, makes minutes of what it read and has them remembered.

use std::time::Duration;

use jiff::Timestamp;
use shared::api::gpu_node::Health;
use shared::policy::LOAD_READ_MOST_SECONDS;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::average::{Average, minute};
use super::file::File;
use super::sample::{self, Unknown};
use super::{Load, Reading};
use crate::carve::Carver;
use crate::gpus::Usage;
use crate::inventory::{Driver, State};

/// How soon is looked again where nothing can be read.
const AWAY: Duration = Duration::from_secs(2);
/// Least time between two readings, whatever a pool says.
const LEAST: Duration = Duration::from_secs(1);

/// Reads, averages, remembers.
pub struct Sampler {
    carver: Carver,
    load: Load,
    file: File,
    average: Average,
    /// Whether the load was known the last time; `None` before the first.
    known: Option<bool>,
}

impl Sampler {
    /// Nothing read yet; `file` is where `load` is written down.
    #[must_use]
    pub fn new(carver: Carver, load: Load, file: File) -> Self {
        let (average, known) = (Average::default(), None);
        Self {
            carver,
            load,
            file,
            average,
            known,
        }
    }

    /// Reads every so often until shutdown. `clock` tells the time of day.
    ///
    /// # Errors
    /// None: what cannot be read is tried again.
    pub async fn run(
        mut self,
        clock: impl Fn() -> Timestamp + Send,
        mut every: watch::Receiver<Duration>,
        token: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut last = Instant::now();
        let mut next = last;
        loop {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = sleep_until(next) => {
                    last = Instant::now();
                    let read = self.read(clock()).await;
                    next = last + if read { interval(*every.borrow_and_update()) } else { AWAY };
                }
                // so that a minute is told when it is over, however long the next reading is off
                () = sleep(until_over(clock())) => self.over(clock()),
                Ok(()) = every.changed() => next = next.min(last + interval(*every.borrow_and_update())),
            }
        }
    }

    /// Reads all GPUs that are well, one call each. False where nothing can be read: the driver is away, or the GPUs
    /// are somebody else's.
    pub async fn read(&mut self, now: Timestamp) -> bool {
        let view = self.carver.inventory.view();
        let away = !readable(&view.state) || self.carver.driver.is_stuck();
        let read = if away {
            Vec::new()
        } else {
            self.usages(&view.state).await
        };
        let (usages, clamped) = sample::settle(read);
        self.carver.metrics.clamped(clamped);
        let load = if away {
            Err(Unknown::Away)
        } else {
            sample::load(&view.state, &usages)
        };
        self.say(&load);
        let load = load.ok();
        self.load.read(Reading { usages, load });
        let over = match load {
            Some(load) => self.average.take(minute(now), load),
            None => self.average.over(minute(now)),
        };
        self.remember(over);
        !away
    }

    /// A minute may be over.
    pub fn over(&mut self, now: Timestamp) {
        let over = self.average.over(minute(now));
        self.remember(over);
    }

    async fn usages(&self, state: &State) -> Vec<Usage> {
        let mut all = Vec::new();
        // what is ill has no load that counts, and a call to it may hang
        for gpu in state.gpus.iter().filter(|gpu| gpu.health == Health::Healthy) {
            let about = gpu.info.clone();
            let work = self
                .carver
                .driver
                .call("reading the load of a GPU", move |gpus| gpus.usage(&about));
            match work.await {
                Ok(usages) => all.extend(usages),
                Err(error) => {
                    tracing::debug!(gpu = gpu.info.uuid, %error, "load not read");
                    self.carver.note(&gpu.info.uuid, &error);
                    if self.carver.driver.is_stuck() {
                        break;
                    }
                }
            }
        }
        all
    }

    fn remember(&mut self, over: Option<(i64, f32)>) {
        let Some((minute, load)) = over else { return };
        if self.load.put(minute, load) {
            let minutes = self.load.minutes();
            let minutes = minutes.borrow().clone();
            serve::tasks::aside(|| self.file.write(&minutes));
        }
    }

    /// Logs that the load is known, or is not, when that changes.
    fn say(&mut self, load: &Result<f64, Unknown>) {
        if self.known.replace(load.is_ok()) == Some(load.is_ok()) {
            return;
        }
        match load {
            Ok(load) => tracing::info!(load, "the load of the GPUs is known"),
            Err(why) => tracing::info!(%why, "the load of the GPUs is not known"),
        }
    }
}

/// Whether the GPUs are there, are ours, and it is known who has what.
fn readable(state: &State) -> bool {
    state.adopted && state.stood_back.is_none() && matches!(state.driver, Driver::Works(_))
}

/// How long until the next reading, as the pool says within what makes minutes.
fn interval(pool: Duration) -> Duration {
    pool.clamp(LEAST, Duration::from_secs(LOAD_READ_MOST_SECONDS))
}

/// How long the minute still lasts.
fn until_over(now: Timestamp) -> Duration {
    let into = now.as_millisecond().rem_euclid(60_000);
    Duration::from_millis(60_000 - into.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use shared::mig::Place;

    use super::*;
    use crate::carve::tests::{Bench, bench};

    /// A second of minute 1000.
    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(60_000 + second).unwrap()
    }

    struct Node {
        bench: Bench,
        sampler: Sampler,
    }

    async fn node() -> Node {
        let bench = bench();
        bench.carver.adopt().await.unwrap();
        let sampler = sampler(&bench, at(0));
        Node { bench, sampler }
    }

    fn sampler(bench: &Bench, now: Timestamp) -> Sampler {
        let (file, minutes) = File::open(bench.folder.path(), now);
        Sampler::new(bench.carver.clone(), Load::new(minutes), file)
    }

    impl Node {
        /// From now on what stands at a place is that busy.
        fn busy(&self, place: &str, activity: f64) {
            let mut world = self.bench.fake.0.lock().unwrap();
            let place: Place = place.parse().unwrap();
            let uuid = world.instances.values().find(|one| one.place == place);
            let uuid = uuid.unwrap().uuid.clone();
            world.activity.insert(uuid, activity);
        }

        fn told(&self) -> Vec<(i64, f32)> {
            let minutes = self.sampler.load.minutes();
            let minutes = minutes.borrow();
            minutes.after(0).collect()
        }
    }

    #[tokio::test]
    async fn samples_become_minutes_and_what_nobody_could_read_is_left_out() {
        let mut node = node().await;
        assert!(node.sampler.read(at(0)).await);
        assert_eq!(node.sampler.load.reading().load, Some(0.0), "nobody is there");
        node.bench.give("7g.80gb:0").await.unwrap();
        assert!(node.sampler.read(at(30)).await);
        assert_eq!(node.sampler.load.reading().load, None, "held, and not read yet");
        node.busy("7g.80gb:0", 0.5);
        node.sampler.read(at(60)).await;
        node.busy("7g.80gb:0", 1.0);
        node.sampler.read(at(90)).await;
        assert_eq!(node.told(), [(1000, 0.0)]);
        node.sampler.over(at(119));
        assert_eq!(node.told(), [(1000, 0.0)], "not over yet");
        node.sampler.over(at(120));
        assert_eq!(node.told(), [(1000, 0.0), (1001, 0.75)]);
        assert_eq!(node.sampler.load.reading().usages.len(), 1);
    }

    #[tokio::test]
    async fn what_is_somebody_elses_or_away_is_not_read() {
        let mut node = node().await;
        let inventory = node.bench.carver.inventory.clone();
        node.sampler.read(at(0)).await;
        inventory.change(|state| state.stood_back = Some(("MigManager", "the label".into())));
        assert!(!node.sampler.read(at(30)).await);
        assert_eq!(*node.sampler.load.reading(), Reading::default());
        inventory.change(|state| {
            state.stood_back = None;
            state.driver = Driver::Absent("gone".into());
        });
        assert!(!node.sampler.read(at(60)).await);
        assert_eq!(
            node.told(),
            [(1000, 0.0)],
            "what was read before is told all the same"
        );
    }

    #[tokio::test]
    async fn activity_beyond_a_whole_is_clamped_and_counted() {
        let mut node = node().await;
        node.bench.give("7g.80gb:0").await.unwrap();
        node.busy("7g.80gb:0", 1.5);
        node.sampler.read(at(0)).await;
        assert_eq!(node.sampler.load.reading().load, Some(1.0));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &node.bench.registry).unwrap();
        assert!(page.contains("migpool_usage_samples_clamped_total 1"), "{page}");
    }

    #[tokio::test]
    async fn the_next_agent_knows_what_this_one_told() {
        let mut node = node().await;
        node.sampler.read(at(0)).await;
        node.sampler.over(at(60));
        node.sampler = sampler(&node.bench, at(61));
        assert_eq!(node.told(), [(1000, 0.0)]);
        node.sampler.read(at(61)).await;
        node.sampler.over(at(120));
        assert_eq!(node.told(), [(1000, 0.0), (1001, 0.0)]);
    }

    #[test]
    fn however_seldom_a_pool_wants_it_every_minute_is_read() {
        for (pool, expected) in [(0, 1), (5, 5), (30, 30), (300, 50)] {
            assert_eq!(interval(Duration::from_secs(pool)), Duration::from_secs(expected));
        }
        assert_eq!(until_over(at(0)), Duration::from_secs(60));
        assert_eq!(until_over(at(59)), Duration::from_secs(1));
        assert_eq!(
            until_over(Timestamp::from_millisecond(59_999).unwrap()),
            Duration::from_millis(1)
        );
    }
}
