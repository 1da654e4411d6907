//! Jobs' counts as OpenMetrics text, for those who collect such things.

use standpipe::metrics::{self, NodeFigures};

use super::report::{RankReport, Report, labelled};

/// All that is counted of each rank of these jobs since it began, and whether it runs.
pub(super) fn text(reports: &[Report]) -> String {
    metrics::text(labelled(reports).map(|(labels, rank)| (labels, figures(rank))))
}

fn figures(rank: &RankReport) -> NodeFigures {
    let operations = rank.figures.operations.iter();
    let tally = |count, bytes| standpipe::Tally { count, bytes };
    let mut figures = NodeFigures::default();
    figures.up = matches!(rank.state.as_str(), "running" | "silent");
    figures.operations =
        operations.map(|line| (line.operation, line.mechanism, tally(line.count, line.bytes))).collect();
    figures.scalars = rank.figures.scalars.values();
    figures.registration = rank.figures.registration.map(|registration| registration.0.to_vec());
    figures.process_pinned_bytes = rank.process_pinned_bytes;
    figures.latencies = rank.figures.latencies.clone();
    figures
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{counted, registration, sample};
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

    /// The families as they come, and the samples of each in order: the encoder's differs from run to run.
    fn in_order(text: &str) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.chunk_by_mut(|one, next| one.starts_with('#') == next.starts_with('#')).for_each(|family| {
            if !family[0].starts_with('#') {
                family.sort_unstable();
            }
        });
        lines.join("\n") + "\n"
    }

    /// Whether these lines are among those, unchanged and in their order.
    fn assert_kept(before: &str, now: &str) {
        let mut lines = now.lines();
        for line in before.lines() {
            assert!(lines.any(|found| found == line), "{line} is missing, or has moved, in\n{now}");
        }
    }

    /// Collectors and scripts know these names: figures may be added, and none changes.
    #[test]
    fn the_figures_of_a_job_look_as_they_always_did() {
        let report = counted();
        let json = serde_json::to_string_pretty(&report).expect("numbers, texts and lists");
        assert_kept(include_str!("golden/report.json"), &json);
        assert_kept(include_str!("golden/metrics.txt"), &in_order(&text(&[report])));
    }
}
