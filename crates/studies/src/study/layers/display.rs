//! What the study shows.

use super::benches::BARE;
use super::figures::Row;
use super::originals::{Original, VMMC_2, original};
use super::outcome::Outcome;
use measure::report::page::{Figure, Grid};
use measure::report::plots::{Chart, Series, short};
use measure::report::show::{Show, row};
use measure::units::bytes;

/// All that there is to show of a run, which this command line repeats.
pub(super) fn show(command: &str, outcome: &Outcome) -> Show {
    let numbers = outcome.transports().into_iter().flat_map(|transport| numbers(outcome, transport));
    let emulated = if outcome.emulated { " All times are of an emulated machine." } else { "" };
    Show {
        heading: "Historic communication layers on one testbed",
        lead: format!(
            "Two processes exchange messages by each layer in turn, round by round, beside the bare library: Active Messages, and puts \
             to private memory that tell. Every layer is faithful to its interface of the 1990s, and all run on one engine. Each byte \
             of a message of every size was looked at before anything was timed.{emulated}"
        ),
        summary: summary(outcome),
        figures: figures(outcome),
        grids: vec![features(outcome), paper(outcome)],
        numbers: numbers.collect(),
        findings: findings(outcome),
        explanations: explanations(),
        costs: None,
        seed: None,
        setup: vec![
            row("build", outcome.build),
            row("rounds, of which the one in the middle counts", outcome.rounds),
            row("senders to one receiver", outcome.senders),
            row(
                "processes that wanted a core, last minute",
                outcome.load_average.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}")),
            ),
        ],
        command: command.to_owned(),
        beside: Vec::new(),
    }
}

/// The smallest and the longest messages over a transport.
fn ends(outcome: &Outcome, transport: &str) -> Option<(usize, usize)> {
    let sizes = || outcome.rows.iter().filter(|row| row.transport == transport).map(|row| row.size);
    Some((sizes().min()?, sizes().max()?))
}

/// Layers that were measured, without what they were measured beside.
fn layers_of(outcome: &Outcome) -> Vec<&str> {
    let mut names: Vec<&str> = outcome.rows.iter().map(|row| row.layer.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !BARE.contains(name));
    names
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let Some(transport) = outcome.transports().first().copied() else { return Vec::new() };
    let Some((smallest, longest)) = ends(outcome, transport) else { return Vec::new() };
    let latency = |layer: &str| outcome.row(layer, transport, smallest)?.latency_us;
    let bandwidth = |layer: &str| outcome.row(layer, transport, longest)?.bandwidth_mbps;
    let ratios = |of: &dyn Fn(&str) -> Option<f64>, bare: Option<f64>| -> String {
        let ratio = |layer: &&str| Some(format!("{layer} {:.2}", of(layer)? / bare?));
        layers_of(outcome).iter().filter_map(ratio).collect::<Vec<_>>().join(", ")
    };
    let mut said = vec![
        format!(
            "Latency of {} over {transport}, as a multiple of a bare message's: {}.",
            bytes(smallest as u64),
            ratios(&latency, latency(BARE[0]))
        ),
        format!(
            "Bandwidth of {} over {transport}, as a multiple of a bare put's: {}.",
            bytes(longest as u64),
            ratios(&bandwidth, bandwidth(BARE[1]))
        ),
    ];
    said.extend(impossible(outcome, transport));
    said
}

/// How far a layer's figures may seem better than those of the library that it runs on.
const AHEAD_MAX: f64 = 1.1;

/// The layers whose figures over a transport cannot be, as they run on what they seem to beat.
fn impossible(outcome: &Outcome, transport: &str) -> Option<String> {
    let (smallest, longest) = ends(outcome, transport)?;
    let latency = |layer: &str| outcome.row(layer, transport, smallest)?.latency_us;
    let bandwidth = |layer: &str| outcome.row(layer, transport, longest)?.bandwidth_mbps;
    let (bare_latency, bare_bandwidth) = (latency(BARE[0])?, bandwidth(BARE[1])?);
    let is_ahead = |layer: &&str| {
        latency(layer).is_some_and(|us| us * AHEAD_MAX < bare_latency)
            || bandwidth(layer).is_some_and(|mbps| mbps > bare_bandwidth * AHEAD_MAX)
    };
    let ahead: Vec<&str> = layers_of(outcome).into_iter().filter(is_ahead).collect();
    (!ahead.is_empty()).then(|| {
        format!(
            "No layer can beat the library that it runs on. Here {} did: the machine was disturbed, so take none of \
             these figures.",
            ahead.join(" and ")
        )
    })
}

fn findings(outcome: &Outcome) -> Vec<String> {
    let deviating = |beside: &super::paper::Beside| {
        let ours = beside.ours.as_ref()?;
        let who = if beside.layer == "all" { "The study" } else { beside.layer };
        let why = beside.why.as_ref().map_or_else(String::new, |why| format!(" {why}"));
        Some(format!("{who}, {}: {} published, {ours} here.{why}", beside.what, beside.published))
    };
    outcome.paper.iter().filter_map(deviating).collect()
}

fn explanations() -> Vec<(&'static str, Vec<String>)> {
    vec![
        (
            "What is measured, and how?",
            vec![
                "Latency is half of a message there and back. Overheads are LogP's o: a sender's call while there is room, and a \
                 receiver's call when the message is there already. The gap is LogP's g: the time from one message of many to the \
                 next. Bandwidth is a message's bytes by its gap."
                    .to_owned(),
                "Both ways at once: each side sends eight short messages and then receives eight, or sends and receives long ones one by \
                 one. PM’s messages are made and read in its own buffers, and a bare message’s payload is read where it came: nothing \
                 is copied there. Over a network a call may wait for the other process, which moves bytes in its own calls only."
                    .to_owned(),
                "This set of measures is ours: the paper's own list of parameters was not found.".to_owned(),
            ],
        ),
        (
            "What is a copy?",
            vec![
                "Each byte that a processor has copied, in the layer or in the library below it, at the process that made the copy, \
                 by bytes that were sent. On one host the transfer itself is a copy: a layer without copies of its own has one, at the \
                 side that moves the data. Words of a message's head are not counted, nor copies in the kernel's network."
                    .to_owned(),
            ],
        ),
    ]
}

fn chart(y_label: &'static str, series: Vec<Series>) -> Chart {
    Chart {
        x_label: "bytes of a message (logarithmic)",
        y_label,
        x_log: true,
        y_log: true,
        y_text: short,
        y_max: None,
        marks: Vec::new(),
        series,
    }
}

fn figures(outcome: &Outcome) -> Vec<Figure> {
    let mut figures = Vec::new();
    for transport in outcome.transports() {
        let lines = |of: fn(&Row) -> Option<f64>| {
            let names = BARE.into_iter().chain(layers_of(outcome));
            let line = |name: &str| {
                let rows = outcome.rows.iter().filter(|row| row.transport == transport && row.layer == name);
                let points = rows.filter_map(|row| Some((row.size as f64, of(row)?))).collect();
                Series { name: name.to_owned(), points }
            };
            names.map(line).collect::<Vec<Series>>()
        };
        figures.push(Figure {
            title: format!("Latency by size over {transport}").into(),
            note: "One way: half of there and back.".into(),
            chart: chart("µs (logarithmic)", lines(|row| row.latency_us)),
        });
        figures.push(Figure {
            title: format!("Bandwidth by size over {transport}").into(),
            note: "Many messages in a row, one way.".into(),
            chart: chart("MB/s (logarithmic)", lines(|row| row.bandwidth_mbps)),
        });
    }
    figures
}

/// The tables of one transport: small messages, and bandwidths.
fn numbers(outcome: &Outcome, transport: &str) -> [Grid; 2] {
    let rows = || outcome.rows.iter().filter(|row| row.transport == transport);
    let us = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.2}"));
    let mbps = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.0}"));
    let copies = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.2}"));
    let times = Grid {
        title: format!("Times over {transport}, in µs"),
        note: "o: what a call takes at the sender and at the receiver. g: from one message to the next."
            .to_owned(),
        header: ["layer", "bytes", "latency", "o send", "o receive", "g"].map(str::to_owned).to_vec(),
        rows: rows()
            .map(|row| {
                vec![
                    row.layer.clone(),
                    row.size.to_string(),
                    us(row.latency_us),
                    us(row.overhead_send_us),
                    us(row.overhead_receive_us),
                    us(row.gap_us),
                ]
            })
            .collect(),
    };
    let rates = Grid {
        title: format!("Bandwidth over {transport}, in MB/s, and copies"),
        note: format!(
            "Both: two processes send to each other. Many: {} send to one. Copies: bytes copied at the sender and at the receiver for each \
             byte sent.",
            outcome.senders
        ),
        header: ["layer", "bytes", "one way", "both", "many", "copies out", "copies in"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows()
            .map(|row| {
                vec![
                    row.layer.clone(),
                    row.size.to_string(),
                    mbps(row.bandwidth_mbps),
                    mbps(row.bandwidth_both_mbps),
                    mbps(row.bandwidth_many_mbps),
                    copies(row.copies_send),
                    copies(row.copies_receive),
                ]
            })
            .collect(),
    };
    [times, rates]
}

fn dash() -> String {
    "–".to_owned()
}

fn features(outcome: &Outcome) -> Grid {
    let names: Vec<&str> = layers::ALL.iter().map(|layer| layer.name).collect();
    let then = |original: Option<Original>| {
        original.map_or_else(|| "then: unknown".to_owned(), |original| format!("then: {}", original.said()))
    };
    let cell = |feature: &str, layer: &str| {
        let found = outcome.features.iter().find(|cell| cell.feature == feature && cell.layer == layer);
        found.map_or_else(dash, |cell| format!("{}; {}", cell.holds, then(cell.original)))
    };
    let line = |feature: &&str| {
        let cells = names.iter().map(|layer| cell(feature, layer));
        let missing = then(original(VMMC_2, feature));
        std::iter::once((*feature).to_owned()).chain(cells).chain([missing]).collect::<Vec<String>>()
    };
    let missing = format!("{VMMC_2} (missing here)");
    let header = std::iter::once("").chain(names.iter().copied()).map(str::to_owned).chain([missing]);
    let missing = outcome.missing.map(|missing| format!("{}, {}.", missing.layer, missing.why));
    Grid {
        title: "Features, as in the paper's comparison".to_owned(),
        note: format!(
            "There is a test behind each cell: `--json` names it. After it stands what the original did. Missing here: {}",
            missing.join(" ")
        ),
        header: header.collect(),
        rows: layers::features::NAMES.iter().map(line).collect(),
    }
}

fn paper(outcome: &Outcome) -> Grid {
    let rows = outcome.paper.iter().map(|beside| {
        let ours = beside.ours.clone().unwrap_or_else(dash);
        let [layer, what, published] = [beside.layer, beside.what, beside.published].map(str::to_owned);
        vec![layer, what, published, ours, beside.source.to_owned()]
    });
    Grid {
        title: "What was published, beside ours".to_owned(),
        note: "The paper's own table by system was not found.".to_owned(),
        header: ["layer", "figure", "published", "here", "source"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
