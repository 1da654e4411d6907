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
    /// The figure, in the unit of ours; of a range its end that is worse.
    number: f64,
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

/// What the machines of then and of now differ in.
const MACHINE: &str =
    "Then a message crossed a bus of 33 MHz and a network; here it crosses a cache, or loopback.";

/// What was published. The study's own table of figures by system was not found.
const PUBLISHED: &[Published] = &[
    Published {
        layer: "all",
        what: "latency of small messages",
        value: "5 to 17 µs, ordered by functionality",
        source: "the study's abstract and slides",
        ours: Ours::Latencies,
        number: 17.0,
    },
    Published {
        layer: "all",
        what: "bandwidth without copies",
        value: "95 to 125 MB/s",
        source: "the study's abstract and slides",
        ours: Ours::ZeroCopy,
        number: 95.0,
    },
    Published {
        layer: "all",
        what: "bandwidth with copies, or words written by the processor",
        value: "60 to 70 MB/s",
        source: "the study's abstract and slides",
        ours: Ours::Copying,
        number: 60.0,
    },
    Published {
        layer: "bip",
        what: "latency of small messages",
        value: "4.3 µs",
        source: "BIP's own page",
        ours: Ours::Latency,
        number: 4.3,
    },
    Published {
        layer: "bip",
        what: "bandwidth of long messages",
        value: "126 MB/s (1,005 Mb/s)",
        source: "BIP's own page",
        ours: Ours::Bandwidth,
        number: 126.0,
    },
    Published {
        layer: "gam",
        what: "bandwidth of long stores",
        value: "60 to 70 MB/s",
        source: "derived from the study's classes",
        ours: Ours::Bandwidth,
        number: 60.0,
    },
    Published {
        layer: "fm",
        what: "bandwidth of long messages",
        value: "about 70 MB/s",
        source: "abstract of the paper on MPI over FM (HPDC)",
        ours: Ours::Bandwidth,
        number: 70.0,
    },
    Published {
        layer: "pm",
        what: "latency of small messages",
        value: "7.2 µs",
        source: "recalled, not seen",
        ours: Ours::Latency,
        number: 7.2,
    },
    Published {
        layer: "pm",
        what: "bandwidth of long messages, pinned before",
        value: "108.8 MB/s",
        source: "abstract of the pin-down cache's paper",
        ours: Ours::Bandwidth,
        number: 108.8,
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
    /// Why they differ, where this run's own figures show it; `None` otherwise, and on a busy machine.
    pub(super) why: Option<String>,
}

/// All of them beside the rows of one transport. `copying` names the layers of the slower class, and
/// `explains` says whether the run's figures may explain anything.
pub(super) fn beside(rows: &[&Row], copying: &[&str], explains: bool) -> Vec<Beside> {
    let compare = |published: &Published| Beside {
        layer: published.layer,
        what: published.what,
        published: published.value,
        source: published.source,
        ours: ours(published, rows, copying),
        why: explains.then(|| why(published, rows, copying)).flatten(),
    };
    PUBLISHED.iter().map(compare).collect()
}

/// The reason that this run's figures show.
fn why(published: &Published, rows: &[&Row], copying: &[&str]) -> Option<String> {
    let longest = rows.iter().map(|row| row.size).max()?;
    let of = |layer: &str, size: usize| rows.iter().find(|row| row.layer == layer && row.size == size);
    match (published.ours, published.layer) {
        (Ours::Copying, _) => of_copying(rows, copying, longest),
        (Ours::Bandwidth, "gam") => {
            let row = of("gam", longest)?;
            let copies = row.copies_send? + row.copies_receive?;
            Some(format!(
                "The original copied at both sides. Here {copies:.1} copies a byte were counted, at both sides \
                 together; each store has its reply."
            ))
        }
        (Ours::Latency, layer) => {
            let smallest = rows.iter().map(|row| row.size).min()?;
            (of(layer, smallest)?.latency_us? < published.number).then(|| MACHINE.to_owned())
        }
        (Ours::Latencies, _) => {
            let smallest = rows.iter().map(|row| row.size).min()?;
            let slowest = of_layers(rows, smallest).filter_map(|row| row.latency_us).fold(0.0, f64::max);
            (slowest < published.number).then(|| MACHINE.to_owned())
        }
        (Ours::Bandwidth, layer) => {
            (of(layer, longest)?.bandwidth_mbps? > published.number).then(|| MACHINE.to_owned())
        }
        (Ours::ZeroCopy, _) => {
            let rates = of_layers(rows, longest).filter(|row| !copying.contains(&row.layer.as_str()));
            let least = rates.filter_map(|row| row.bandwidth_mbps).fold(f64::INFINITY, f64::min);
            (least.is_finite() && least > published.number).then(|| MACHINE.to_owned())
        }
    }
}

/// How much the class that copies lags behind the other, then and in this run, and what was copied.
fn of_copying(rows: &[&Row], copying: &[&str], longest: usize) -> Option<String> {
    const THEN: &str = "0.48 to 0.74";
    let best = |copies: bool| {
        let of_class = of_layers(rows, longest).filter(|row| copying.contains(&row.layer.as_str()) == copies);
        of_class.filter_map(|row| row.bandwidth_mbps).reduce(f64::max)
    };
    let ratio = best(true)? / best(false)?;
    let copied = |row: &&Row| {
        let copies = row.copies_send? + row.copies_receive?;
        Some(format!("{} {copies:.1}", row.layer))
    };
    let copied: Vec<String> = of_layers(rows, longest).filter_map(|row| copied(&row)).collect();
    Some(format!(
        "The best layer that copies has {ratio:.2} of the bandwidth of the best that does not; then {THEN}. Copies a \
         byte, at both sides together: {}.",
        copied.join(", ")
    ))
}

/// Rows of historic layers with messages of that size.
fn of_layers<'a>(rows: &'a [&'a Row], size: usize) -> impl Iterator<Item = &'a Row> {
    let is_historic = |row: &&Row| layers::ALL.iter().any(|layer| layer.name == row.layer);
    rows.iter().copied().filter(is_historic).filter(move |row| row.size == size)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: &str, size: usize, latency_us: f64, mbps: f64, copies: f64) -> Row {
        Row {
            layer: layer.to_owned(),
            size,
            latency_us: Some(latency_us),
            bandwidth_mbps: Some(mbps),
            copies_send: Some(copies),
            copies_receive: Some(1.0),
            ..Row::default()
        }
    }

    fn whys(rows: &[Row], explains: bool) -> Vec<(&'static str, &'static str, Option<String>)> {
        let rows: Vec<&Row> = rows.iter().collect();
        let all = beside(&rows, &["fm", "gam"], explains);
        all.into_iter().map(|beside| (beside.layer, beside.what, beside.why)).collect()
    }

    #[test]
    fn a_reason_is_the_runs_own_or_none() {
        let fast = [row("bip", 8, 0.3, 900.0, 0.0), row("fm", 8, 0.4, 400.0, 1.0)];
        let why = |rows: &[Row], layer: &str, what: &str| {
            let found = whys(rows, true).into_iter().find(|of| of.0 == layer && of.1.starts_with(what));
            found.expect("it was published").2
        };
        assert_eq!(why(&fast, "bip", "latency").as_deref(), Some(MACHINE));
        let copying = why(&fast, "all", "bandwidth with copies").expect("both classes are there");
        assert!(copying.contains("has 0.44 of") && copying.contains("bip 1.0, fm 2.0"), "{copying}");
        // What is slower here than it was then is not explained by faster machines.
        let slow = [row("bip", 8, 90.0, 3.0, 0.0), row("fm", 8, 95.0, 2.0, 1.0)];
        assert_eq!(why(&slow, "bip", "latency"), None);
        assert_eq!(why(&slow, "all", "latency"), None);
        assert_eq!(why(&slow, "fm", "bandwidth"), None);
        assert!(whys(&fast, false).iter().all(|of| of.2.is_none()), "a busy machine explains nothing");
    }
}
