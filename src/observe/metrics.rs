//! Counters of nodes as OpenMetrics text, for those who collect such things: Prometheus and its kin.
//!
//! A program that is scraped serves [`Node::open_metrics`](crate::Node::open_metrics) from its own handler;
//! `standpipe top --openmetrics` shows the same, of jobs that run, from outside.

use std::fmt::Debug;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use engine::counters::{Metric, Scalar};
use engine::node::RegistrationCounters;
use engine::{Mechanism, Operation, Tally};

use crate::counters::latency::{Latencies, Latency, Timed};
use crate::counters::stats::Stats;

/// The labels that tell one node's figures from another's: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// Figures about registration.
const REGISTRATION: usize = RegistrationCounters::FIGURES.len();

/// The figures of one node.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NodeFigures {
    /// Whether it is there: it runs, or computes and says nothing.
    pub up: bool,
    /// Its operations.
    pub operations: Vec<(Operation, Mechanism, Tally)>,
    /// Its plain counters, in the order of [`Stats::scalars`]; those that are missing are 0.
    pub scalars: Vec<u64>,
    /// Its figures of registered memory, in the order of [`RegistrationCounters::FIGURES`]; `None` where it
    /// registers none.
    pub registration: Option<Vec<u64>>,
    /// All that its process has pinned for devices, where the system tells.
    pub process_pinned_bytes: Option<u64>,
    /// How long its calls took.
    pub latencies: Latencies,
}

impl NodeFigures {
    /// Those of a node that is there.
    pub fn of(stats: &Stats, registration: &RegistrationCounters, latencies: Latencies) -> NodeFigures {
        let pairs =
            Operation::ALL.into_iter().flat_map(|op| Mechanism::ALL.into_iter().map(move |by| (op, by)));
        let operations =
            pairs.map(|(op, by)| (op, by, stats.get(op, by))).filter(|(_, _, tally)| tally.count > 0);
        let registers = *registration != RegistrationCounters::default();
        NodeFigures {
            up: true,
            operations: operations.collect(),
            scalars: stats.scalars().map(|(_, value)| value).collect(),
            registration: registers
                .then(|| RegistrationCounters::FIGURES.iter().map(|(_, of)| of(registration)).collect()),
            process_pinned_bytes: None,
            latencies,
        }
    }
}

/// The figures of these nodes, as OpenMetrics text. Any thread; it reads nothing but what it is given.
pub fn text(nodes: impl IntoIterator<Item = (Labels, NodeFigures)>) -> String {
    let scalars = Scalar::shown().map(|(_, metric)| Scalars::of(metric)).collect();
    let all = Families { scalars, ..Families::default() };
    let mut latencies = Vec::new();
    for (labels, figures) in nodes {
        all.add(&labels, &figures);
        latencies.push((labels, figures.latencies));
    }
    let mut registry = Registry::with_prefix("standpipe");
    all.register(&mut registry);
    registry.register_collector(Box::new(Histograms(latencies)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}

#[derive(Default)]
struct Families {
    up: Family<Labels, Gauge>,
    operations: Family<Labels, Counter>,
    bytes: Family<Labels, Counter>,
    /// By plain counter.
    scalars: Vec<Scalars>,
    pinned: Family<Labels, Gauge>,
    /// Of registration, by figure: numbers of times, and amounts of memory.
    counts: [Family<Labels, Counter>; REGISTRATION],
    amounts: [Family<Labels, Gauge>; REGISTRATION],
}

/// A plain counter of all nodes.
#[derive(Debug)]
enum Scalars {
    /// It only rises.
    Counter(Family<Labels, Counter>),
    /// It says how much there is now.
    Gauge(Family<Labels, Gauge>),
}

impl Scalars {
    fn of(metric: &Metric) -> Scalars {
        match metric.is_gauge {
            true => Scalars::Gauge(Family::default()),
            false => Scalars::Counter(Family::default()),
        }
    }

    fn add(&self, labels: &Labels, value: u64) {
        match self {
            Scalars::Counter(family) => _ = family.get_or_create(labels).inc_by(value),
            Scalars::Gauge(family) => {
                family.get_or_create(labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
    }

    fn register(self, registry: &mut Registry, metric: &Metric) {
        match self {
            Scalars::Counter(family) => register_figure(registry, metric.name, metric.help, family),
            Scalars::Gauge(family) => register_figure(registry, metric.name, metric.help, family),
        }
    }
}

/// How the name of an amount of memory ends.
const BYTES: &str = "_bytes";

fn is_amount(name: &str) -> bool {
    name.ends_with(BYTES)
}

/// Registers a metric, which has a unit if its name says so.
fn register_figure(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: impl EncodeMetric + Debug + Send + Sync + 'static,
) {
    match name.strip_suffix(BYTES) {
        Some(short) => registry.register_with_unit(short, help, Unit::Bytes, metric),
        None => registry.register(name, help, metric),
    }
}

impl Families {
    fn add(&self, labels: &Labels, figures: &NodeFigures) {
        self.up.get_or_create(labels).set(i64::from(figures.up));
        let values = figures.scalars.iter().copied().chain(std::iter::repeat(0));
        for (family, value) in self.scalars.iter().zip(values) {
            family.add(labels, value);
        }
        if let Some(bytes) = figures.process_pinned_bytes {
            self.pinned.get_or_create(labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        for (operation, mechanism, tally) in &figures.operations {
            let mut labels = labels.clone();
            labels.push(("operation", operation.name().to_owned()));
            labels.push(("mechanism", mechanism.name().to_owned()));
            self.operations.get_or_create(&labels).inc_by(tally.count);
            self.bytes.get_or_create(&labels).inc_by(tally.bytes);
        }
        for (at, value) in figures.registration.iter().flatten().enumerate().take(REGISTRATION) {
            if is_amount(RegistrationCounters::FIGURES[at].0) {
                self.amounts[at].get_or_create(labels).set(i64::try_from(*value).unwrap_or(i64::MAX));
            } else {
                self.counts[at].get_or_create(labels).inc_by(*value);
            }
        }
    }

    fn register(self, registry: &mut Registry) {
        registry.register("up", "Whether the rank is there: it runs, or computes and says nothing", self.up);
        registry.register("operations", "Operations, by kind and by mechanism", self.operations);
        registry.register_with_unit("moved", "Bytes that operations moved", Unit::Bytes, self.bytes);
        for ((_, metric), family) in Scalar::shown().zip(self.scalars) {
            family.register(registry, metric);
        }
        registry.register_with_unit(
            "process_pinned",
            "All that the rank's process has pinned for devices, a provider's queues and buffers included",
            Unit::Bytes,
            self.pinned,
        );
        for (((name, _), count), amount) in
            RegistrationCounters::FIGURES.iter().zip(self.counts).zip(self.amounts)
        {
            let help = format!("Memory registration: {}", name.replace('_', " "));
            let name = format!("registration_{name}");
            if is_amount(&name) {
                register_figure(registry, &name, &help, amount);
            } else {
                register_figure(registry, &name, &help, count);
            }
        }
    }
}

/// The buckets of a histogram up to each power of two of nanoseconds, in seconds: collectors keep a series
/// for each.
fn by_powers(latency: &Latency) -> Vec<(f64, u64)> {
    let (mut buckets, mut sum) = (Vec::new(), 0);
    for (end, count) in latency.buckets() {
        sum += count;
        if end.is_none_or(|end| end.as_nanos().is_power_of_two()) {
            buckets.push((end.map_or(f64::INFINITY, |end| end.as_secs_f64()), std::mem::take(&mut sum)));
        }
    }
    buckets
}

/// How long calls took, by node.
#[derive(Debug)]
struct Histograms(Vec<(Labels, Latencies)>);

impl Collector for Histograms {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "How long calls took that wait for others or the kernel, of one in 16, or 64 of requests";
        let mut family =
            encoder.encode_descriptor("latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, latencies) in &self.0 {
            let timed = Timed::ALL.into_iter().map(|what| (what, latencies.get(what)));
            for (what, latency) in timed.filter(|(_, latency)| latency.sampled() > 0) {
                let call = ("call", what.name().to_owned());
                let labels: Labels = labels.iter().cloned().chain([call]).collect();
                let buckets = by_powers(latency);
                let mut metric = family.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(
                    latency.total().as_secs_f64(),
                    latency.sampled(),
                    &buckets,
                    None,
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_name_a_type_and_its_nodes_labels() {
        let labels = |rank: &str| vec![("rank", rank.to_owned()), ("program", "an \"other\"".to_owned())];
        let mut registration = [0; REGISTRATION];
        (registration[0], registration[11]) = (41, 8192);
        let busy = NodeFigures {
            up: true,
            operations: vec![(Operation::Put, Mechanism::Mapped, Tally { count: 3, bytes: 24 })],
            registration: Some(registration.to_vec()),
            process_pinned_bytes: Some(0),
            ..NodeFigures::default()
        };
        let text = text([(labels("0"), busy), (labels("1"), NodeFigures::default())]);
        let of = |rank: u32| format!("rank=\"{rank}\",program=\"an \\\"other\\\"\"");
        for line in [
            "# TYPE standpipe_operations counter".to_owned(),
            format!("standpipe_operations_total{{{},operation=\"put\",mechanism=\"mapped\"}} 3", of(0)),
            "# UNIT standpipe_moved_bytes bytes".to_owned(),
            format!("standpipe_registration_hits_total{{{}}} 41", of(0)),
            format!("standpipe_registration_pinned_peak_bytes{{{}}} 8192", of(0)),
            format!("standpipe_process_pinned_bytes{{{}}} 0", of(0)),
            format!("standpipe_up{{{}}} 1", of(0)),
            format!("standpipe_up{{{}}} 0", of(1)),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("latency_seconds_bucket"), "{text}");
    }
}
