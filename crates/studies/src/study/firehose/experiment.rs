//! The experiment of a live study of puts at random: what is measured in which turn, and what is predicted of
//! it.

use anyhow::{Result, bail};
use serde::Serialize;
use sim::Costs;
use sim::experiments::{Curve, Figures, Shape, ahead};
use standpipe::{Strategy, Transport, network};

use super::advantage as by_how_much;
use super::args::FirehoseArgs;
use super::outcome::{Place, Point, words};
use super::simulated::{FigureResult, SeriesResult};
use crate::study::live::case::{Answer, Case, Puts};
use crate::study::live::costs::Taker;
use crate::study::live::job::{Job, Plan};
use measure::progress::Bar;

/// The figures that go over working sets, and bytes of their puts.
pub(super) const SHAPES: [(Shape, u64); 2] =
    [(Shape::BandwidthByWorkingSet, 64 << 10), (Shape::RoundTripByWorkingSet, 8)];

/// Everything that a network has.
pub(super) const STRATEGIES: [Strategy; 6] = [
    Strategy::PinEverything,
    Strategy::Bounce,
    Strategy::RendezvousUnpin,
    Strategy::RendezvousKeep,
    Strategy::PinDown,
    Strategy::Firehose,
];

/// What a live study measures.
#[derive(Debug, Clone)]
pub(super) struct Experiment {
    pub(super) plan: Plan,
    /// Bytes of the memory that puts go to.
    pub(super) working_sets: Vec<u64>,
    /// How often everything is measured in turn.
    pub(super) rounds: usize,
    /// Puts that are timed for each point in a round.
    pub(super) puts: u64,
    pub(super) seed: u64,
}

/// The result; keys that the simulated study has are the same here.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) machine: String,
    pub(super) transport: String,
    /// None is run: they are the simulated study's.
    pub(super) applications: [(); 0],
    pub(super) figures: Vec<FigureResult>,
    /// The same figures, as the simulator has them with the costs that were measured.
    pub(super) predicted: Vec<FigureResult>,
    /// Bytes that may be registered: M and MAXVICTIM together.
    pub(super) budget_bytes: u64,
    pub(super) rounds: usize,
    pub(super) puts: u64,
    pub(super) points: Vec<Point>,
    pub(super) measured_costs: Costs,
}

impl Experiment {
    /// As these arguments have it.
    pub(super) fn of(args: &FirehoseArgs, transport: &Transport) -> Experiment {
        let budget = args.pin.unwrap_or(if args.small { 256 << 10 } else { 4 << 20 });
        // In quarters of the budget, of which M is three. Puts of 64 KiB want at least one place.
        let quarters: &[u64] = if args.small { &[2, 4, 8] } else { &[1, 2, 3, 4, 6, 8, 16] };
        let place = 64 << 10;
        let mut working_sets: Vec<u64> =
            quarters.iter().map(|quarter| (budget / 4 * quarter / place).max(1) * place).collect();
        working_sets.dedup();
        let bytes = working_sets.last().copied().unwrap_or(place);
        let rounds = if args.small { 2 } else { 5 };
        Experiment {
            plan: Plan { transport: transport.to_string(), budget, bytes, written: 0 },
            working_sets,
            rounds,
            puts: if args.small { args.puts.min(20) } else { (args.puts / rounds as u64).max(1) },
            seed: args.seed,
        }
    }

    /// Everything that is measured, figure by figure; of each, the strategies at one working set are
    /// neighbours.
    pub(super) fn places(&self) -> Vec<Place> {
        let places = |(shape, len): (Shape, u64)| {
            self.working_sets.iter().flat_map(move |working_set| {
                STRATEGIES.map(|strategy| Place { shape, strategy, working_set: *working_set, len })
            })
        };
        SHAPES.into_iter().flat_map(places).collect()
    }

    /// What each place came to in each round. Strategies take turns at each working set, so that what
    /// disturbs the machine disturbs all alike, and so do the costs.
    ///
    /// # Errors
    /// If a job fails.
    pub(super) fn measure(&self, costs: &mut Taker) -> Result<Vec<(Place, Vec<Puts>)>> {
        let places = self.places();
        let bar = Bar::new(places.len() * self.rounds, "points measured");
        let mut measured: Vec<(Place, Vec<Puts>)> =
            places.into_iter().map(|place| (place, Vec::new())).collect();
        // A figure has jobs of its own: in one that has put whole runs before, short puts would find those
        // registered.
        for figure in measured.chunk_by_mut(|(one, _), (other, _)| one.shape == other.shape) {
            let jobs: Result<Vec<Job>> =
                STRATEGIES.into_iter().map(|strategy| Job::start(&self.plan, strategy)).collect();
            let mut jobs = jobs?;
            for round in 0..self.rounds {
                costs.round()?;
                for (place, rounds) in figure.iter_mut() {
                    let job = jobs.iter_mut().find(|job| job.strategy() == place.strategy);
                    rounds.push(self.ask(job.expect("every strategy has its job"), place, round)?);
                    bar.step();
                }
            }
        }
        Ok(measured)
    }

    fn ask(&self, job: &mut Job, place: &Place, round: usize) -> Result<Puts> {
        let case = Case::Random {
            len: place.len,
            working_set: place.working_set,
            puts: self.puts,
            seed: self.seed.wrapping_add(round as u64),
        };
        match job.ask(&case)? {
            Answer::Puts(puts) => Ok(puts),
            other => bail!("puts were answered by {other:?}"),
        }
    }

    /// The same experiment in virtual time.
    fn predict(&self, costs: &Costs) -> Figures {
        Figures {
            costs: costs.clone(),
            settings: network::settings(self.plan.budget),
            sizes: Vec::new(),
            working_sets: self.working_sets.clone(),
            puts: self.puts * self.rounds as u64,
            seed: self.seed,
        }
    }

    /// What was measured beside what the simulator says.
    ///
    /// # Errors
    /// If a simulated put fails.
    pub(super) fn outcome(&self, measured: &[(Place, Vec<Puts>)], costs: Costs) -> Result<Outcome> {
        let predict = self.predict(&costs);
        let point = |(place, rounds): &(Place, Vec<Puts>)| {
            Point::of(place, words(place.shape).name, rounds, &predict)
        };
        let points: Vec<Point> = measured.iter().map(point).collect::<Result<_>>()?;
        let figures = |predicted| {
            let figure = |(shape, _): (Shape, u64)| figure(shape, &points, predict.knee(), predicted);
            SHAPES.into_iter().map(figure).collect()
        };
        Ok(Outcome {
            machine: costs.name.clone(),
            transport: self.plan.transport.clone(),
            applications: [],
            figures: figures(false),
            predicted: figures(true),
            budget_bytes: self.plan.budget,
            rounds: self.rounds,
            puts: self.puts,
            measured_costs: costs,
            points,
        })
    }
}

/// One figure, of what was measured or of what was predicted.
fn figure(shape: Shape, points: &[Point], knee: u64, predicted: bool) -> FigureResult {
    let words = words(shape);
    let curve = |strategy: Strategy| {
        let own =
            points.iter().filter(|point| point.figure == words.name && point.strategy == strategy.name());
        let height = |point: &Point| {
            let (measured, prediction) = point.heights(shape);
            (point.bottom(), if predicted { prediction } else { measured })
        };
        Curve { strategy, points: own.map(height).collect() }
    };
    let (firehose, keep) = (curve(Strategy::Firehose), curve(Strategy::RendezvousKeep));
    let (firehose_ahead_at, firehose_behind_at) = ahead(shape, &firehose, &keep);
    let series = |strategy: Strategy| SeriesResult { name: strategy.name(), points: curve(strategy).points };
    FigureResult {
        name: words.name,
        x: words.x,
        y: words.y,
        knee: Some(knee as f64 / (1 << 20) as f64),
        series: STRATEGIES.map(series).into(),
        firehose_ahead_at,
        firehose_behind_at,
        firehose_ahead_percent: by_how_much::percents(shape, &firehose, &keep),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::point;
    use super::*;

    #[test]
    fn a_figure_has_each_strategys_line_once() {
        let points = [point("firehose", 9_000.0, 8_000.0), point("rendezvous-no-unpin", 18_000.0, 16_000.0)];
        let measured = figure(Shape::RoundTripByWorkingSet, &points, 3 << 20, false);
        let firehose = measured.series.iter().find(|series| series.name == "firehose").expect("its line");
        assert_eq!((firehose.points.clone(), measured.knee), (vec![(1.0, 9.0)], Some(3.0)));
        assert_eq!((measured.firehose_ahead_at.len(), measured.series.len()), (1, STRATEGIES.len()));
        let predicted = figure(Shape::RoundTripByWorkingSet, &points, 3 << 20, true);
        assert!(predicted.series.iter().any(|series| series.points == [(1.0, 16.0)]));
    }
}
