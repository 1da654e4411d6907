//! What was measured, as the costs of the simulator's model, each with how it was got.

use measure::bare;
use standpipe::{MEDIUM_MAX, host};

use super::fit::Line;
use super::pinning::{self, Pinning};
use measure::perf::row::Row;

/// What `perf` and the locking of pages came to.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) round_trip: Row,
    /// Ours is the sender's part of a message, the limit's the receiver's.
    pub(super) overhead: Row,
    pub(super) put: Row,
    /// Puts of two lengths, far apart.
    pub(super) bulk: [Row; 2],
    pub(super) pinning: Pinning,
}

/// One cost.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Its name in the file.
    pub(crate) field: &'static str,
    /// Its value as TOML has it.
    pub(crate) value: String,
    /// How it was got.
    pub(crate) how: String,
}

/// Whole nanoseconds, of which everything that was measured takes one at least.
pub(crate) fn nanos(ns: f64) -> u64 {
    (ns.round() as u64).max(1)
}

/// A cost in whole numbers.
pub(crate) fn whole(field: &'static str, value: u64, how: impl Into<String>) -> Figure {
    Figure { field, value: value.to_string(), how: how.into() }
}

/// Whether the machine does something.
pub(crate) fn flag(field: &'static str, value: bool, how: impl Into<String>) -> Figure {
    Figure { field, value: value.to_string(), how: how.into() }
}

/// Times for a byte, which are far below a nanosecond.
pub(crate) fn real(field: &'static str, value: f64, how: String) -> Figure {
    Figure { field, value: format!("{:.4}", value.max(1e-4)), how }
}

/// Every cost that a file must have.
pub(super) fn figures(measured: &Measured) -> Vec<Figure> {
    let mut figures = messages(measured).to_vec();
    figures.extend(bytes(measured));
    figures.extend(registering(&measured.pinning));
    figures.extend(settings());
    figures
}

fn messages(Measured { round_trip, overhead, put, .. }: &Measured) -> [Figure; 6] {
    let (half, latency) = (round_trip.median_ns / 2.0, round_trip.limit_ns / 2.0);
    let (sender, receiver) = (overhead.median_ns, overhead.limit_ns);
    let processors = (half - latency).max(0.0);
    let share = |part: f64| nanos(processors * part / (sender + receiver));
    let shared_out = format!(
        "of {processors:.0} ns, which are half of a round trip of Active Messages, {half:.0} ns (`standpipe perf am`), less \
         the latency; bursts of {} that nobody waits for took {sender:.0} ns of their sender and {receiver:.0} ns of their \
         receiver for each message",
        overhead.batch
    );
    [
        whole(
            "latency_ns",
            nanos(latency),
            "[measured] half of what a cache line takes there and back between two processes",
        ),
        whole("send_overhead_ns", share(sender), format!("[derived] the sender's share {shared_out}")),
        whole(
            "receive_overhead_ns",
            share(receiver),
            "[derived] the receiver's share of the same, its handler included",
        ),
        whole(
            "completion_overhead_ns",
            nanos(put.median_ns),
            "[measured] a whole put of 8 bytes into a heap (`standpipe perf put`): it is complete when the call returns",
        ),
        whole("message_ns", 0, "[none] there is no card: the processors do it all"),
        whole("header_bytes", 0, "[none] a short message is one cache line, which the figures above contain"),
    ]
}

fn bytes(Measured { bulk, .. }: &Measured) -> [Figure; 2] {
    let slope = |time: fn(&Row) -> f64| {
        let line = Line::through(&[0, 1].map(|index| (bulk[index].size as f64, time(&bulk[index]))));
        // Where the longer one took no longer, caches were at work: then as fast as the longer one was.
        if line.each > 0.0 { line.each } else { time(&bulk[1]) / bulk[1].size as f64 }
    };
    let sizes = format!("from {} to {} bytes", bulk[0].size, bulk[1].size);
    [
        real(
            "gap_ns_per_byte",
            slope(|row| row.median_ns),
            format!("[measured] what each byte adds to a put into a heap, {sizes} (`standpipe perf put`)"),
        ),
        real(
            "copy_ns_per_byte",
            slope(|row| row.limit_ns),
            format!("[measured] what each byte adds to a memcpy between the same buffers, {sizes}"),
        ),
    ]
}

fn registering(Pinning { pages: [few, some, many], lock, unlock }: &Pinning) -> [Figure; 4] {
    let fixed = |call: &str, costs: &pinning::Costs| {
        let medians: Vec<String> = costs.medians.iter().map(|ns| format!("{ns:.0}")).collect();
        format!(
            "[stand-in] the fixed part of a line through the medians of {call} on {few}, {some} and {many} pages that are \
             there, {} ns, which it misses by {:.0} % at worst; no adapter is told, as libibverbs is not linked here",
            medians.join(", "),
            100.0 * costs.worst_miss
        )
    };
    let each = |call: &str| format!("[stand-in] what the line through {call} adds for each page");
    [
        whole("register_fixed_ns", nanos(lock.line.fixed), fixed("mlock", lock)),
        whole("register_page_ns", nanos(lock.line.each), each("mlock")),
        whole("deregister_fixed_ns", nanos(unlock.line.fixed), fixed("munlock", unlock)),
        whole("deregister_page_ns", nanos(unlock.line.each), each("munlock")),
    ]
}

fn settings() -> [Figure; 8] {
    let (pinnable, how) = match (host::memlock().soft, host::memory_bytes()) {
        (Some(bytes), _) => (bytes, "[read] the limit on locked memory (ulimit -l)"),
        (None, Some(bytes)) => (bytes / 2, "[assumed] half of the memory: locking is not limited here"),
        (None, None) => {
            (1 << 32, "[assumed] locking is not limited here, and how much memory there is, is not told")
        }
    };
    let none = "[none] there is no card whose table could miss a translation";
    [
        whole("pinnable_bytes", pinnable, how),
        whole("table_entries", 0, none),
        whole("table_miss_ns", 0, none),
        whole("payload_max_bytes", MEDIUM_MAX as u64, "[read] the transport's"),
        whole("lane_messages", bare::LANE_MESSAGES as u64, "[read] the transport's"),
        flag("gathers", false, "[read] the transport's: shared memory has no frames"),
        whole(
            "unregistered_max_bytes",
            0,
            "[assumed] a card would want every local end registered; shared memory wants none",
        ),
        whole("page_bytes", rustix::param::page_size() as u64, "[read] of the system"),
    ]
}

/// Letters of a line of comment.
const WIDTH: usize = 118;

/// What a file of [`figures`] begins with.
pub(super) const HEAD: &str = "Costs of one machine, measured on it by `standpipe-study sim --measure`.\n\
                    \n\
                    Where a number comes from: [measured] here, between processes that share memory; [derived] \
                    arithmetic on that; [stand-in] measured on what comes nearest; [read] from the system or the \
                    library; [assumed] chosen, with the reason; [none] this machine has no such thing.";

/// The text of a file that begins with `head`; `load` is what the machine did besides when it was measured.
pub(crate) fn text(head: &str, name: &str, load: Option<f64>, figures: &[Figure]) -> String {
    // A string of JSON is one of TOML.
    let name = serde_json::Value::from(name);
    let busy = load
        .map(|load| format!("The load average was {load:.1} on {} cores when this began.", host::cores()));
    let head = head.lines().chain(busy.as_deref()).map(comment).collect::<String>();
    let figures =
        figures.iter().map(|Figure { field, value, how }| format!("{}{field} = {value}\n", comment(how)));
    format!("{head}\nname = {name}\n\n{}", figures.collect::<String>())
}

/// Text as lines of comment.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one above");
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("# {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use ::sim::Costs;

    use super::*;
    use measure::perf::case::{Op, PROMISED, Samples};

    fn row(op: Op, size: usize, ours: f64, limit: f64) -> Row {
        let case = measure::perf::case::Case { op, size, ..PROMISED[0] };
        Row::new(&case, &Samples::new("limit", 16, vec![ours], vec![limit]))
    }

    fn measured(round_trip_ns: f64) -> Measured {
        let line = Line { fixed: 400.0, each: 25.0 };
        let costs = || pinning::Costs { medians: [425.0, 800.0, 6800.0], line, worst_miss: 0.02 };
        Measured {
            round_trip: row(Op::Am, 0, round_trip_ns, 90.0),
            overhead: row(Op::Overhead, 0, 20.0, 30.0),
            put: row(Op::Put, 8, 2.4, 2.0),
            bulk: [row(Op::Put, 65_536, 6_553.6, 3_276.8), row(Op::Put, 1_048_576, 104_857.6, 52_428.8)],
            pinning: Pinning { pages: [1, 16, 256], lock: costs(), unlock: costs() },
        }
    }

    #[test]
    fn figures_make_a_file_that_the_simulator_takes() {
        let name = "Processor \"9\" \\ 2";
        let figures = figures(&measured(200.0));
        let text = text(HEAD, name, Some(1.25), &figures);
        let costs = Costs::parse(&text).expect("all costs are in it");
        assert_eq!(costs.name, name);
        let times = (costs.latency_ns, costs.send_overhead_ns, costs.receive_overhead_ns);
        assert_eq!(times, (45, 22, 33));
        assert_eq!((costs.gap_ns_per_byte, costs.copy_ns_per_byte), (0.1, 0.05));
        assert_eq!((costs.register_fixed_ns, costs.deregister_page_ns), (400, 25));
        for line in text.lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
        for Figure { field, value, how } in &figures {
            let said = format!("{}{field} = {value}\n", comment(how));
            assert!(how.starts_with('[') && text.contains(&said), "each says where it comes from: {said}");
        }
    }

    #[test]
    fn a_round_trip_takes_in_the_model_what_it_took_here() {
        for (round_trip, sum) in [(200.0, 100), (904.0, 452), (60.0, 47)] {
            let costs = Costs::parse(&text(HEAD, "here", None, &figures(&measured(round_trip))))
                .expect("all costs are in it");
            let times = [costs.latency_ns, costs.send_overhead_ns, costs.receive_overhead_ns];
            assert_eq!(times.iter().sum::<u64>(), sum, "{times:?}");
            assert!(times.iter().all(|ns| *ns > 0), "{times:?}");
        }
    }

    #[test]
    fn bytes_cost_something_even_where_more_took_no_longer() {
        let mut odd = measured(200.0);
        odd.bulk[1] = row(Op::Put, 1_048_576, 1.0, 1.0);
        assert!(bytes(&odd).iter().all(|figure| figure.value.parse::<f64>().expect("a number") > 0.0));
    }
}
