//! What a live study of puts at random came to, point by point, beside what was predicted.

use serde::Serialize;
use sim::experiments::{Figures, Shape};
use standpipe::Strategy;

use crate::study::live::case::Puts;

/// What a figure is called, and how it is read.
pub(super) struct Words {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
}

/// A figure's.
pub(super) fn words(shape: Shape) -> Words {
    let x = "memory that is put to (MiB, logarithmic)";
    match shape {
        Shape::RoundTripByWorkingSet => Words {
            name: "round-trip-by-working-set",
            title: "Round trip of 8-byte puts at random",
            x,
            y: "µs (logarithmic)",
        },
        _ => Words {
            name: "bandwidth-by-working-set",
            title: "Bandwidth of 64-KiB puts at random",
            x,
            y: "MB/s",
        },
    }
}

/// One strategy at one size of the working set.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    /// Which figure it is of, by the name that this has among the figures.
    pub(super) figure: &'static str,
    pub(super) strategy: &'static str,
    pub(super) working_set_bytes: u64,
    pub(super) put_bytes: u64,
    /// The median over rounds of what a put took on average, and the least and the most that it was.
    pub(super) put_ns: f64,
    pub(super) put_ns_spread: [f64; 2],
    /// Puts whose memory was held, in percent; `None` where nothing is ever held or asked for.
    pub(super) hit_percent: Option<f64>,
    /// What the owner did in all rounds.
    pub(super) registrations: u64,
    pub(super) evictions: u64,
    /// The most bytes that the owner had registered after a round, and that the kernel counted as pinned
    /// (`VmPin`).
    pub(super) registered_bytes: u64,
    pub(super) pinned_bytes: u64,
    /// What the simulator says.
    pub(super) predicted_put_ns: f64,
    pub(super) predicted_hit_percent: Option<f64>,
    /// By how much the measured time of a put is above what was predicted, in percent of that.
    pub(super) deviation_percent: f64,
}

impl Point {
    /// Puts together what the rounds said.
    ///
    /// # Errors
    /// If a simulated put fails.
    pub(super) fn of(
        at: &Place,
        figure: &'static str,
        rounds: &[Puts],
        predict: &Figures,
    ) -> Result<Point, anyhow::Error> {
        let mut times: Vec<f64> = rounds.iter().map(|puts| puts.mean_ns).collect();
        times.sort_by(f64::total_cmp);
        let put_ns = times[times.len() / 2];
        let sum = |what: fn(&Puts) -> u64| rounds.iter().map(what).sum::<u64>();
        let most = |what: fn(&Puts) -> u64| rounds.iter().map(what).max().unwrap_or(0);
        let misses = sum(|puts| puts.misses) as f64 / sum(|puts| puts.puts) as f64;
        let registers = at.strategy != Strategy::Bounce;
        let predicted = predict.random(at.strategy, at.working_set, at.len)?;
        let predicted_put_ns = predicted.transfers().mean_ns();
        Ok(Point {
            figure,
            strategy: at.strategy.name(),
            working_set_bytes: at.working_set,
            put_bytes: at.len,
            put_ns,
            put_ns_spread: [times[0], times[times.len() - 1]],
            hit_percent: registers.then_some(100.0 * (1.0 - misses)),
            registrations: sum(|puts| puts.owner.registrations),
            evictions: sum(|puts| puts.owner.evictions),
            registered_bytes: most(|puts| puts.owner.registered_bytes),
            pinned_bytes: most(|puts| puts.owner.pinned_bytes),
            predicted_put_ns,
            predicted_hit_percent: registers.then(|| predicted.hit_percent()),
            deviation_percent: 100.0 * (put_ns / predicted_put_ns - 1.0),
        })
    }

    /// As the figure of its shape has it, what was measured and what was predicted: in MB/s or µs.
    pub(super) fn heights(&self, shape: Shape) -> (f64, f64) {
        let height = |ns: f64| if shape.is_bandwidth() { self.put_bytes as f64 * 1e3 / ns } else { ns / 1e3 };
        (height(self.put_ns), height(self.predicted_put_ns))
    }

    /// Where it stands along the bottom, in MiB.
    pub(super) fn bottom(&self) -> f64 {
        self.working_set_bytes as f64 / (1 << 20) as f64
    }
}

/// What is measured at one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shape: Shape,
    pub(super) strategy: Strategy,
    pub(super) working_set: u64,
    pub(super) len: u64,
}

/// A deviation that a sentence tells of, in percent.
const FAR: f64 = 20.0;

/// For each strategy of a figure, by how much and where prediction and measurement are far apart, if
/// anywhere.
pub(super) fn deviations(title: &str, points: &[&Point]) -> Vec<String> {
    let mut strategies: Vec<&str> = points.iter().map(|point| point.strategy).collect();
    strategies.dedup();
    let sentence = |strategy: &&str| {
        let own: Vec<f64> = points
            .iter()
            .filter(|point| point.strategy == *strategy)
            .map(|point| point.deviation_percent)
            .collect();
        let far: Vec<f64> = own.iter().copied().filter(|deviation| deviation.abs() > FAR).collect();
        let (least, most) =
            far.iter().fold((f64::MAX, f64::MIN), |(least, most), far| (least.min(*far), most.max(*far)));
        let range = match most - least {
            one if one < 0.5 => format!("by {most:+.0} %"),
            _ => format!("by {least:+.0} to {most:+.0} %"),
        };
        (!far.is_empty()).then(|| {
            format!(
                "{title}, {strategy}: puts took other times than predicted, {range}, at {} of {} points.",
                far.len(),
                own.len()
            )
        })
    };
    strategies.iter().filter_map(sentence).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn point(strategy: &'static str, put_ns: f64, predicted_put_ns: f64) -> Point {
        Point {
            figure: "round-trip-by-working-set",
            strategy,
            working_set_bytes: 1 << 20,
            put_bytes: 8,
            put_ns,
            put_ns_spread: [put_ns, put_ns],
            hit_percent: None,
            registrations: 0,
            evictions: 0,
            registered_bytes: 0,
            pinned_bytes: 0,
            predicted_put_ns,
            predicted_hit_percent: None,
            deviation_percent: 100.0 * (put_ns / predicted_put_ns - 1.0),
        }
    }

    #[test]
    fn only_what_is_far_apart_is_told() {
        let points =
            [point("bounce", 119.0, 100.0), point("firehose", 70.0, 100.0), point("firehose", 150.0, 100.0)];
        let points: Vec<&Point> = points.iter().collect();
        assert_eq!(
            deviations("Puts", &points),
            ["Puts, firehose: puts took other times than predicted, by -30 to +50 %, at 2 of 2 points."]
        );
        assert!(deviations("Puts", &points[..1]).is_empty());
    }

    #[test]
    fn the_median_round_counts_and_the_others_are_its_spread() {
        let round = |mean_ns, misses| Puts { mean_ns, puts: 10, misses, ..Puts::default() };
        let place = Place {
            shape: Shape::RoundTripByWorkingSet,
            strategy: Strategy::Firehose,
            working_set: 64 << 10,
            len: 8,
        };
        let predict = Figures { puts: 10, ..Figures::paper() };
        let point = Point::of(&place, "f", &[round(9.0, 9), round(5.0, 0), round(7.0, 0)], &predict)
            .expect("simulated");
        assert_eq!((point.put_ns, point.put_ns_spread, point.hit_percent), (7.0, [5.0, 9.0], Some(70.0)));
        assert_eq!(point.heights(Shape::RoundTripByWorkingSet).0, 0.007);
    }
}
