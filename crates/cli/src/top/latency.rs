//! How long calls took, as `top` shows it: in columns and in JSON.

use comfy_table::{CellAlignment, ContentArrangement};
use measure::table::{Layout, plain};
use measure::units::nanos;

use super::report::Report;
use crate::latency_figures::{Calls, QUANTILES};

/// A table of what the whole job's calls took; nothing where none was timed.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let Calls(calls) = Calls::of(&report.totals.latencies);
    if calls.is_empty() {
        return Vec::new();
    }
    let header: Vec<&str> =
        ["call", "timed"].into_iter().chain(QUANTILES.iter().map(|(name, _)| *name)).collect();
    let mut table = plain(&header);
    table.set_content_arrangement(ContentArrangement::Disabled);
    for (what, times) in calls {
        let names = [what.name().to_owned(), times.sampled.to_string()];
        table.add_row(names.into_iter().chain(times.quantiles_ns().map(|ns| nanos(ns as f64))));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    std::iter::once(String::new()).chain(table.lines(Layout::FILE)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::super::{metrics, text};

    #[test]
    fn a_job_whose_calls_took_no_time_shows_none() {
        let report = sample(None);
        assert!(!text::lines(&report, measure::table::Layout::FILE).join("\n").contains("p99"));
        let json = serde_json::to_value(&report).expect("numbers, texts and lists");
        assert_eq!(json["totals"]["latencies"], serde_json::json!({}));
        assert!(!metrics::text(&[report]).contains("latency_seconds_bucket"));
    }
}
