//! Jobs' counts as OpenMetrics text, for those who collect such things.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::latency::Histograms;
use super::report::{FIELDS, Labels, Report, labelled};

/// All that is counted of each rank of these jobs since it began, and whether it runs.
pub(super) fn text(reports: &[Report]) -> String {
    let mut registry = Registry::with_prefix("standpipe");
    let up = Family::<Labels, Gauge>::default();
    let operations = Family::<Labels, Counter>::default();
    let bytes = Family::<Labels, Counter>::default();
    let malformed = Family::<Labels, Counter>::default();
    let staged = Family::<Labels, Counter>::default();
    let pinned = Family::<Labels, Gauge>::default();
    let counts: Vec<_> = FIELDS.iter().map(|_| Family::<Labels, Counter>::default()).collect();
    let gauges: Vec<_> = FIELDS.iter().map(|_| Family::<Labels, Gauge>::default()).collect();
    for (labels, rank) in labelled(reports) {
        up.get_or_create(&labels).set(i64::from(matches!(rank.state.as_str(), "running" | "silent")));
        malformed.get_or_create(&labels).inc_by(rank.figures.malformed);
        staged.get_or_create(&labels).inc_by(rank.figures.staged_bytes);
        if let Some(bytes) = rank.process_pinned_bytes {
            pinned.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
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
    registry.register("up", "Whether the rank is there: it runs, or computes and says nothing", up);
    registry.register("operations", "Operations, by kind and by mechanism", operations);
    registry.register_with_unit("moved", "Bytes that operations moved", Unit::Bytes, bytes);
    registry.register("malformed_messages", "Messages that could not be understood", malformed);
    registry.register_with_unit(
        "staged",
        "Bytes by message that went through peers' heaps",
        Unit::Bytes,
        staged,
    );
    registry.register_with_unit(
        "process_pinned",
        "All that the rank's process has pinned for devices, a provider's queues and buffers included",
        Unit::Bytes,
        pinned,
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
    registry.register_collector(Box::new(Histograms::of(reports)));
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
        let mut other = sample(None);
        (other.id, other.program) = ("8".to_owned(), "an \"other\"".to_owned());
        other.ranks[0].state = "silent".to_owned();
        let text = text(&[sample(Some(registration(41, 8192))), other]);
        let rank = |rank: u32| {
            format!("id=\"0123456789abcdef\",launcher=\"99\",program=\"stencil\",rank=\"{rank}\"")
        };
        for line in [
            "# TYPE standpipe_operations counter".to_owned(),
            format!(
                "standpipe_operations_total{{{},operation=\"put\",mechanism=\"mapped\"}} 3000000",
                rank(0)
            ),
            "# UNIT standpipe_moved_bytes bytes".to_owned(),
            format!("standpipe_registration_hits_total{{{}}} 41", rank(0)),
            format!("standpipe_registration_pinned_peak_bytes{{{}}} 8192", rank(0)),
            format!("standpipe_process_pinned_bytes{{{}}} 0", rank(0)),
            format!("standpipe_up{{{}}} 1", rank(0)),
            format!("standpipe_up{{{}}} 0", rank(1)),
            r#"standpipe_up{id="8",launcher="99",program="an \"other\"",rank="0"} 1"#.to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
