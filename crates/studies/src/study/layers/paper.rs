//! What was published of the layers, and what this run says beside it.

use serde::Serialize;

use super::figures::Row;

/// A published figure.
#[derive(Debug, Clone, Copy)]
struct Published {
    /// `gam`, `bip`, `fm`, `pm`; of the whole study, `all`.
    layer: &'static str,
    what: &'static str,
    /// As it was published.
    value: &'static str,
    /// How sure it is, and where it stands.
    source: &'static str,
    ours: Ours,
    /// Why ours is another, in a sentence.
    why: &'static str,
}

/// Which of our figures stands beside one.
#[derive(Debug, Clone, Copy)]
enum Ours {
    /// The latency of the smallest messages.
    Latency,
    /// The bandwidth of the longest.
    Bandwidth,
    /// From the lowest latency of a layer to the highest.
    Latencies,
    /// Bandwidths of the longest messages of the layers that copy nothing, lowest and highest.
    ZeroCopy,
    /// The same of those that copy.
    Copying,
}

const MACHINE: &str =
    "Then a message crossed a bus of 33 MHz and a network; here it crosses a cache, or loopback.";
const COPYING: &str = "The processors then copied at little more than the network's rate, so that a copy halved the bandwidth; here a copy costs as much as the transfer itself, which between two processes of one host is a copy, too.";

/// What was published. The study's own table of figures by system was not found.
const PUBLISHED: &[Published] = &[
    Published {
        layer: "all",
        what: "latency of small messages",
        value: "5 to 17 µs, ordered by functionality",
        source: "the study's abstract and slides",
        ours: Ours::Latencies,
        why: MACHINE,
    },
    Published {
        layer: "all",
        what: "bandwidth without copies",
        value: "95 to 125 MB/s",
        source: "the study's abstract and slides",
        ours: Ours::ZeroCopy,
        why: MACHINE,
    },
    Published {
        layer: "all",
        what: "bandwidth with copies, or words written by the processor",
        value: "60 to 70 MB/s",
        source: "the study's abstract and slides",
        ours: Ours::Copying,
        why: COPYING,
    },
    Published {
        layer: "bip",
        what: "latency of small messages",
        value: "4.3 µs",
        source: "BIP's own page",
        ours: Ours::Latency,
        why: MACHINE,
    },
    Published {
        layer: "bip",
        what: "bandwidth of long messages",
        value: "126 MB/s (1,005 Mb/s)",
        source: "BIP's own page",
        ours: Ours::Bandwidth,
        why: MACHINE,
    },
    Published {
        layer: "gam",
        what: "bandwidth of long stores",
        value: "60 to 70 MB/s",
        source: "derived from the study's classes",
        ours: Ours::Bandwidth,
        why: "The original copied at both sides. Here a store moves its bytes directly, but a packet a call, and each has its reply.",
    },
    Published {
        layer: "fm",
        what: "bandwidth of long messages",
        value: "about 70 MB/s",
        source: "abstract of the paper on MPI over FM (HPDC)",
        ours: Ours::Bandwidth,
        why: MACHINE,
    },
    Published {
        layer: "pm",
        what: "latency of small messages",
        value: "7.2 µs",
        source: "recalled, not seen",
        ours: Ours::Latency,
        why: MACHINE,
    },
    Published {
        layer: "pm",
        what: "bandwidth of long messages, pinned before",
        value: "108.8 MB/s",
        source: "abstract of the pin-down cache's paper",
        ours: Ours::Bandwidth,
        why: "Shared memory pins nothing; `study pindown` has the cache's own curve.",
    },
];

/// A published figure beside ours.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Beside {
    pub(super) layer: &'static str,
    pub(super) what: &'static str,
    pub(super) published: &'static str,
    pub(super) source: &'static str,
    /// Ours on shared memory, or on the first transport that was measured; `None` where it was not measured.
    pub(super) ours: Option<String>,
    /// Why they differ.
    pub(super) why: &'static str,
}

/// All of them beside the rows of one transport. `copying` names the layers of the slower class.
pub(super) fn beside(rows: &[&Row], copying: &[&str]) -> Vec<Beside> {
    let compare = |published: &Published| Beside {
        layer: published.layer,
        what: published.what,
        published: published.value,
        source: published.source,
        ours: ours(published, rows, copying),
        why: published.why,
    };
    PUBLISHED.iter().map(compare).collect()
}

fn ours(published: &Published, rows: &[&Row], copying: &[&str]) -> Option<String> {
    let layers = || rows.iter().filter(|row| layers::ALL.iter().any(|layer| layer.name == row.layer));
    let smallest = layers().map(|row| row.size).min()?;
    let longest = layers().map(|row| row.size).max()?;
    let of_layer = |size: usize| layers().find(|row| row.layer == published.layer && row.size == size);
    let range = |mut values: Vec<f64>, unit: &str, digits: usize| {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let [first, last] = [first, last].map(|value| format!("{value:.digits$}"));
        let range = if first == last { first } else { format!("{first} to {last}") };
        Some(format!("{range} {unit}"))
    };
    let bandwidths = |wanted: bool| {
        let rows =
            layers().filter(|row| row.size == longest && copying.contains(&row.layer.as_str()) == wanted);
        range(rows.filter_map(|row| row.bandwidth_mbps).collect(), "MB/s", 0)
    };
    match published.ours {
        Ours::Latency => Some(format!("{:.2} µs", of_layer(smallest)?.latency_us?)),
        Ours::Bandwidth => Some(format!("{:.0} MB/s", of_layer(longest)?.bandwidth_mbps?)),
        Ours::Latencies => {
            let rows = layers().filter(|row| row.size == smallest);
            range(rows.filter_map(|row| row.latency_us).collect(), "µs", 2)
        }
        Ours::ZeroCopy => bandwidths(false),
        Ours::Copying => bandwidths(true),
    }
}
