//! A job's counts as OpenMetrics text, for those who collect such things.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::latency::Histograms;
use super::report::{FIELDS, Report};

type Labels = Vec<(&'static str, String)>;

/// All that is counted of each rank since it began, and whether it runs. A rank's label is its number; nothing else names the job,
/// as who collects this names where it comes from.
pub(super) fn text(report: &Report) -> String {
    let mut registry = Registry::with_prefix("standpipe");
    let up = Family::<Labels, Gauge>::default();
    let operations = Family::<Labels, Counter>::default();
    let bytes = Family::<Labels, Counter>::default();
    let malformed = Family::<Labels, Counter>::default();
    let staged = Family::<Labels, Counter>::default();
    let counts: Vec<_> = FIELDS.iter().map(|_| Family::<Labels, Counter>::default()).collect();
    let gauges: Vec<_> = FIELDS.iter().map(|_| Family::<Labels, Gauge>::default()).collect();
    for rank in &report.ranks {
        let labels = vec![("rank", rank.rank.to_string())];
        up.get_or_create(&labels).set(i64::from(rank.state == "running"));
        malformed.get_or_create(&labels).inc_by(rank.figures.malformed);
        staged.get_or_create(&labels).inc_by(rank.figures.staged_bytes);
        for line in &rank.figures.operations {
            let mut labels = labels.clone();
            labels.push(("operation", line.operation.name().to_owned()));
            labels.push(("mechanism", line.mechanism.name().to_owned()));
            operations.get_or_create(&labels).inc_by(line.count);
            bytes.get_or_create(&labels).inc_by(line.bytes);
        }
        for (at, value) in
            rank.figures.registration.iter().flat_map(|registration| registration.0).enumerate()
        {
            if FIELDS[at].is_bytes() {
                gauges[at].get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            } else {
                counts[at].get_or_create(&labels).inc_by(value);
            }
        }
    }
    registry.register("up", "Whether the rank runs", up);
    registry.register("operations", "Operations, by kind and by mechanism", operations);
    registry.register_with_unit("moved", "Bytes that operations moved", Unit::Bytes, bytes);
    registry.register("malformed_messages", "Messages that could not be understood", malformed);
    registry.register_with_unit(
        "staged",
        "Bytes by message that went through peers' heaps",
        Unit::Bytes,
        staged,
    );
    for ((field, count), bytes) in FIELDS.iter().zip(counts).zip(gauges) {
        let name = format!("registration_{}", field.name.trim_end_matches("_bytes"));
        let help = format!("Memory registration: {}", field.name.replace('_', " "));
        if field.is_bytes() {
            registry.register_with_unit(name, help, Unit::Bytes, bytes);
        } else {
            registry.register(name, help, count);
        }
    }
    registry.register_collector(Box::new(Histograms::of(report)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{registration, sample};
    use super::*;

    #[test]
    fn every_figure_has_a_name_a_type_and_a_rank() {
        let text = text(&sample(Some(registration(41, 8192))));
        for line in [
            "# TYPE standpipe_operations counter",
            "standpipe_operations_total{rank=\"0\",operation=\"put\",mechanism=\"mapped\"} 3000000",
            "# UNIT standpipe_moved_bytes bytes",
            "standpipe_registration_hits_total{rank=\"0\"} 41",
            "standpipe_registration_pinned_peak_bytes{rank=\"0\"} 8192",
            "standpipe_up{rank=\"0\"} 1",
            "standpipe_up{rank=\"1\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
