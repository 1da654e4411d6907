//! How long calls took, as `top` shows it: in columns, in JSON, and as histograms for collectors.

use comfy_table::{CellAlignment, ContentArrangement};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use standpipe::{Latencies, Latency, Timed};
use studies::table::{Layout, plain};
use studies::units::nanos;

use super::report::{Labels, Report, labelled};
use crate::latency_figures::{Calls, QUANTILES};

fn timed(latencies: &Latencies) -> Vec<(Timed, &Latency)> {
    let all = Timed::ALL.into_iter().map(|what| (what, latencies.get(what)));
    all.filter(|(_, latency)| latency.sampled() > 0).collect()
}

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

/// The histograms of jobs' ranks.
#[derive(Debug)]
pub(super) struct Histograms(Vec<(Labels, Latencies)>);

impl Histograms {
    pub(super) fn of(reports: &[Report]) -> Histograms {
        Histograms(labelled(reports).map(|(labels, rank)| (labels, rank.figures.latencies.clone())).collect())
    }
}

impl Collector for Histograms {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "How long calls took that wait for others or the kernel, of one in 16, or 64 of requests";
        let mut family =
            encoder.encode_descriptor("latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, latencies) in &self.0 {
            for (what, latency) in timed(latencies) {
                let labels: Labels =
                    labels.iter().cloned().chain([("call", what.name().to_owned())]).collect();
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
    use super::super::report::tests::sample;
    use super::super::{metrics, text};

    #[test]
    fn a_job_whose_calls_took_no_time_shows_none() {
        let report = sample(None);
        assert!(!text::lines(&report).join("\n").contains("p99"));
        let json = serde_json::to_value(&report).expect("numbers, texts and lists");
        assert_eq!(json["totals"]["latencies"], serde_json::json!({}));
        assert!(!metrics::text(&[report]).contains("latency_seconds_bucket"));
    }
}
