//! What the study came to, in numbers.

use serde::Serialize;

use super::figures::{Row, rows};
use super::originals::{MISSING, Missing, Original, original};
use super::paper::{self, Beside};
use super::plan::{Figure, Plan};
use measure::machine;

/// The run in numbers; `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    /// Rounds, of which the one in the middle counts, for each figure by itself.
    pub(super) rounds: u32,
    /// Processes that sent to one, where many did.
    pub(super) senders: u32,
    pub(super) rows: Vec<Row>,
    pub(super) features: Vec<Feature>,
    /// Layers of the time that are missing here.
    pub(super) missing: [Missing; 2],
    pub(super) paper: Vec<Beside>,
    /// Each message of the first round was looked at, byte by byte: else there is no outcome.
    pub(super) verified: bool,
    /// Whether times are of a machine that was emulated.
    pub(super) emulated: bool,
    /// How the program was built: `debug`, `quick` or `release`.
    pub(super) build: &'static str,
    /// Processes that wanted a processor on average over the last minute, at the end.
    pub(super) load_average: Option<f64>,
    /// Whether other programs kept the machine busy when it began: then no figure is explained.
    pub(super) busy: bool,
}

/// A cell of the table of features.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Feature {
    pub(super) layer: &'static str,
    pub(super) feature: &'static str,
    pub(super) holds: &'static str,
    pub(super) test: &'static str,
    /// What the layer of the 1990s did, where it is known, and how surely.
    pub(super) original: Option<Original>,
}

/// What the jobs over one transport told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) transport: String,
    pub(super) figures: Vec<Figure>,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, senders: u32, emulated: bool, told: &[Told]) -> Outcome {
        let rows: Vec<Row> =
            told.iter().flat_map(|told| rows(plan, &told.transport, &told.figures)).collect();
        let first: Vec<&Row> = match rows.first() {
            Some(first) => rows.iter().filter(|row| row.transport == first.transport).collect(),
            None => Vec::new(),
        };
        let features =
            layers::ALL.iter().flat_map(|layer| layers::features_of(layer.id)).map(|feature| Feature {
                layer: feature.layer,
                feature: feature.feature,
                holds: feature.holds,
                test: feature.test,
                original: original(feature.layer, feature.feature),
            });
        let busy = machine::is_busy();
        Outcome {
            rounds: plan.rounds,
            senders,
            features: features.collect(),
            missing: MISSING,
            // A disturbed run, or one of unoptimised code, explains nothing.
            paper: paper::beside(&first, &COPYING, !busy && machine::UNOPTIMISED.is_none()),
            verified: true,
            emulated,
            build: machine::BUILD,
            load_average: machine::load_average(),
            busy,
            rows,
        }
    }

    /// The row of that layer, transport and size.
    pub(super) fn row(&self, layer: &str, transport: &str, size: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.layer == layer && row.transport == transport && row.size == size)
    }

    /// Transports, in the order in which they were measured.
    pub(super) fn transports(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.transport.as_str()).collect();
        names.dedup();
        names
    }
}

/// Layers of the paper's slower class: they copy, or move a packet a call.
pub(super) const COPYING: [&str; 2] = ["fm", "gam"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::layers::plan::Measure;

    fn plan() -> Plan {
        Plan {
            layers: vec!["gam".into()],
            sizes: vec![8, 1000],
            rounds: 3,
            turns: 1,
            burst: 1,
            burst_bytes: 1,
        }
    }

    #[test]
    fn the_round_in_the_middle_counts_for_each_figure() {
        let figure = |size, measure, value| Figure { layer: "gam".into(), size, measure, value };
        let figures = vec![
            figure(8, Measure::Latency, 300.0),
            figure(8, Measure::Latency, 100.0),
            figure(8, Measure::Latency, 200.0),
            figure(1000, Measure::Gap, 500.0),
        ];
        let outcome = Outcome::of(&plan(), 3, false, &[Told { transport: "shm".into(), figures }]);
        let short = outcome.row("gam", "shm", 8).expect("it was measured");
        assert_eq!((short.latency_us, short.gap_us, short.copies_send), (Some(0.2), None, None));
        let long = outcome.row("gam", "shm", 1000).expect("it was measured");
        assert_eq!((long.bandwidth_mbps, long.gap_us, long.latency_us), (Some(2000.0), Some(0.5), None));
        assert_eq!(outcome.transports(), ["shm"]);
    }
}
