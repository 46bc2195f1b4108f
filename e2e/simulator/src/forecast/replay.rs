//! A set round by round: every series takes its bin, the round is closed, every series forecasts the next one. Each
//! member alone is scored too, with an upper quantile made the same way as the ensemble's.

use std::time::{Duration, Instant};

use shared::decide::forecast::Label;
use shared::decide::forecast::pool::Pool;
use shared::decide::forecast::series::Series;
use shared::decide::forecast::upper::Upper;

use super::score::{Point, Score};
use super::trace::Set;
use super::training::{Heard, Said};

/// Name of the weighed members in tables.
pub const ENSEMBLE: &str = "ensemble";
/// Name of what is published: the ensemble where it has skill, else persistence.
pub const PUBLISHED: &str = "published";
/// Bins of one series that are kept for the picture.
const PICTURED: usize = 192;

/// What came of one set.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The set's name.
    pub set: &'static str,
    /// What it is.
    pub title: &'static str,
    /// The methods: each member, then the ensemble, then what is published.
    pub methods: Vec<&'static str>,
    /// Series with their scores, by method.
    pub series: Vec<(String, Vec<Score>)>,
    /// The last bins of the series that moves most: what is published, and what came.
    pub picture: (String, Vec<Point>),
    /// Share of scored forecasts that were labelled persistence, and that could be acted on.
    pub shares: (f64, f64),
    /// What it cost.
    pub cost: Cost,
}

/// Time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Time of all steps and forecasts, without the LSTM.
    pub stepping: Duration,
    /// How many.
    pub steps: u32,
    /// Memory of a series without its LSTM, bytes.
    pub bytes: usize,
    /// Time of all forecasts of the LSTM.
    pub lstm: Duration,
    /// Time of its trainings.
    pub training: Duration,
    /// How many trainings.
    pub trainings: u32,
    /// Memory of an LSTM, bytes.
    pub lstm_bytes: usize,
}

impl Outcome {
    /// A method's score over all series.
    #[must_use]
    pub fn total(&self, method: usize) -> Score {
        let mut total = Score::default();
        for (_, scores) in &self.series {
            total.merge(&scores[method]);
        }
        total
    }

    /// Where a method stands in the lists.
    #[must_use]
    pub fn method(&self, name: &str) -> Option<usize> {
        self.methods.iter().position(|method| *method == name)
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> std::ops::Range<usize> {
        0..self.method(ENSEMBLE).unwrap_or_default()
    }
}

/// One series being replayed.
struct Run {
    series: Series,
    uppers: Vec<Upper>,
    scores: Vec<Score>,
    /// Median and upper quantile of each method for the next bin.
    said: Vec<Option<(f64, f64)>>,
    published: Vec<Point>,
    before: Option<f64>,
}

/// Replays a set. Without anything said there is no LSTM.
#[must_use]
pub fn run(set: &Set, said: Option<&[Said]>) -> Outcome {
    let mut pool = Pool::default();
    let mut runs: Vec<Run> = (0..set.tracks.len())
        .map(|at| Run::new(set, said.map(|said| &said[at])))
        .collect();
    let mut methods: Vec<&'static str> = runs
        .first()
        .map(|run| run.series.members(&pool).map(|(name, _, _)| name).collect())
        .unwrap_or_default();
    methods.extend([ENSEMBLE, PUBLISHED]);
    let mut cost = Cost::default();
    let (mut scored, mut persistence, mut acted) = (0_usize, 0_usize, 0_usize);
    let rounds = set.tracks.iter().map(|track| track.bins.len()).max();
    for round in 0..rounds.unwrap_or_default() {
        for (run, track) in runs.iter_mut().zip(&set.tracks) {
            let Some(bin) = track.bins.get(round) else {
                continue;
            };
            if let Some(truth) = bin.map(|bin| bin.mean) {
                run.score(truth, round >= track.test_from);
            }
            let began = Instant::now();
            run.series.observe(*bin, &mut pool, &set.policy);
            cost.stepping += began.elapsed();
            cost.steps += 1;
        }
        pool.close(&set.policy);
        for (run, track) in runs.iter_mut().zip(&set.tracks) {
            let began = Instant::now();
            let forecast = run.series.forecast(&pool);
            cost.stepping += began.elapsed();
            run.hear(&pool, methods.len());
            if let (Ok(forecast), true) = (forecast, round + 1 >= track.test_from) {
                scored += 1;
                persistence += usize::from(forecast.label == Label::Persistence);
                acted += usize::from(forecast.verdict == shared::decide::forecast::gate::Verdict::Act);
            }
        }
    }
    if let Some(run) = runs.first() {
        cost.lstm_bytes = said.and_then(|said| said.first()).map_or(0, |said| said.bytes);
        cost.bytes = run.series.bytes() - cost.lstm_bytes;
    }
    for said in said.into_iter().flatten() {
        cost.lstm += said.forecasting;
        cost.training += said.training;
        cost.trainings += said.trainings;
    }
    let moved = |points: &[Point]| -> f64 {
        let steps = points.iter().map(|point| (point.truth - point.before).abs());
        steps.sum()
    };
    let named = || set.tracks.iter().map(|track| track.name.clone());
    let busiest = runs
        .iter()
        .zip(named())
        .max_by(|a, b| moved(&a.0.published).total_cmp(&moved(&b.0.published)));
    let share = |part: usize| part as f64 / scored.max(1) as f64;
    Outcome {
        set: set.name,
        title: set.title,
        methods,
        picture: busiest.map_or_else(Default::default, |(run, name)| (name, run.published.clone())),
        shares: (share(persistence), share(acted)),
        cost,
        series: named().zip(runs.into_iter().map(|run| run.scores)).collect(),
    }
}

impl Run {
    fn new(set: &Set, said: Option<&Said>) -> Self {
        let mut series = Series::new(&set.policy);
        if let Some(said) = said {
            series = series.with(Box::new(Heard {
                bins: said.bins.clone(),
                bytes: said.bytes,
            }));
        }
        Self {
            series,
            uppers: Vec::new(),
            scores: Vec::new(),
            said: Vec::new(),
            published: Vec::new(),
            before: None,
        }
    }

    /// Holds what was said against what came.
    fn score(&mut self, truth: f64, counts: bool) {
        if let Some(before) = self.before {
            for (at, said) in self.said.iter().enumerate() {
                let Some((median, upper)) = *said else { continue };
                if let Some(tracker) = self.uppers.get_mut(at) {
                    tracker.learn(median, upper, truth);
                }
                let point = Point {
                    median,
                    upper,
                    truth,
                    before,
                };
                if counts {
                    self.scores[at].add(&point);
                }
                if at + 1 == self.said.len() {
                    self.published.push(point);
                }
            }
            let more = self.published.len().saturating_sub(PICTURED);
            self.published.drain(..more);
        }
        self.before = Some(truth);
    }

    /// Notes what each method says of the next bin.
    fn hear(&mut self, pool: &Pool, methods: usize) {
        self.uppers.resize(methods - 2, Upper::default());
        self.scores.resize(methods, Score::default());
        let alone = self.series.members(pool).zip(&self.uppers);
        let mut said: Vec<Option<(f64, f64)>> = alone
            .map(|((_, median, _), upper)| median.map(|median| (median, upper.above(median, 0.0))))
            .collect();
        said.push(self.series.ensemble(pool));
        said.push(
            self.series
                .forecast(pool)
                .ok()
                .map(|forecast| (forecast.median, forecast.upper)),
        );
        self.said = said;
    }
}
