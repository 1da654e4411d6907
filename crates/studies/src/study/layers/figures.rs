//! The figures of one layer, with messages of one size over one transport.

use serde::Serialize;

use super::plan::{Figure, Measure, Plan};

/// One layer with messages of one size over one transport. `None`: not measured for messages of that size.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Row {
    pub(super) layer: String,
    pub(super) transport: String,
    pub(super) size: usize,
    /// One way: half of there and back.
    pub(super) latency_us: Option<f64>,
    /// Of many messages one way, in 10^6 bytes a second.
    pub(super) bandwidth_mbps: Option<f64>,
    /// The same of messages both ways at once, together.
    pub(super) bandwidth_both_mbps: Option<f64>,
    /// The same at one receiver of several senders.
    pub(super) bandwidth_many_mbps: Option<f64>,
    /// LogP's o at the sender and at the receiver: what a call takes that has nothing to wait for.
    pub(super) overhead_send_us: Option<f64>,
    pub(super) overhead_receive_us: Option<f64>,
    /// LogP's g: from one message of many to the next.
    pub(super) gap_us: Option<f64>,
    /// Bytes copied for a byte that was sent, at each side.
    pub(super) copies_send: Option<f64>,
    pub(super) copies_receive: Option<f64>,
}

/// What a job told, by layer and size.
pub(super) fn rows(plan: &Plan, transport: &str, figures: &[Figure]) -> Vec<Row> {
    let of_layer = |layer: &String| {
        let row = |size: &usize| row(layer, transport, *size, figures);
        plan.sizes.iter().map(row).collect::<Vec<Row>>()
    };
    plan.layers.iter().flat_map(of_layer).collect()
}

fn row(layer: &str, transport: &str, size: usize, figures: &[Figure]) -> Row {
    let middle = |measure: Measure| {
        let of_it = figures
            .iter()
            .filter(|figure| figure.layer == layer && figure.size == size && figure.measure == measure);
        let mut values: Vec<f64> = of_it.map(|figure| figure.value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied()
    };
    let us = |measure| middle(measure).map(|ns| ns / 1e3);
    // Bytes a nanosecond are 10^9 a second.
    let mbps = |measure| middle(measure).map(|ns| 1e3 * size as f64 / ns);
    Row {
        layer: layer.to_owned(),
        transport: transport.to_owned(),
        size,
        latency_us: us(Measure::Latency),
        bandwidth_mbps: mbps(Measure::Gap),
        bandwidth_both_mbps: mbps(Measure::GapBoth),
        bandwidth_many_mbps: mbps(Measure::GapMany),
        overhead_send_us: us(Measure::OverheadSend),
        overhead_receive_us: us(Measure::OverheadReceive),
        gap_us: us(Measure::Gap),
        copies_send: middle(Measure::CopiesSend),
        copies_receive: middle(Measure::CopiesReceive),
    }
}
