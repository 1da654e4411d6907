//! The meaning of the times of running nodes' calls, and where to look when some take far longer than others.

use measure::units::nanos;
use standpipe::Timed;

use super::check::{Check, Status};
use super::nodes::{Node, Signs};
use crate::latency_figures::{Calls, Times};

/// The 99th percentile is remarkable from so many medians on, where so many calls were timed and it is so
/// long: shorter ones are a matter of where the processor was.
const FAR_OFF: u64 = 100;
const SAMPLED_MIN: u64 = 100;
const LONG_NS: u64 = 100_000;

/// One in so many pieces of transfers not found registered is many.
const MISSES_MANY: u64 = 10;

/// A check of each node.
pub(super) fn checks(nodes: Vec<Node>) -> impl Iterator<Item = Check> {
    nodes.into_iter().map(check)
}

/// Remarks on a node.
fn check(node: Node) -> Check {
    let Calls(calls) = &node.calls;
    let off: Vec<&(Timed, Times)> = calls.iter().filter(|(_, times)| is_off(times)).collect();
    let told: Vec<String> = off.iter().map(|(what, times)| told(*what, times)).collect();
    let told = match (calls.len(), told.is_empty()) {
        (0, _) => "no call timed that waited".to_owned(),
        (_, true) => "no kind of call has some that take far longer than the others".to_owned(),
        (_, false) => told.join("; "),
    };
    let value = format!("{} (rank {} of {}): {told}", node.pid, node.rank, node.program);
    let remarks: Vec<String> = off.iter().map(|call| remark(&node, call)).collect();
    let status = if remarks.is_empty() { Status::Info } else { Status::Warn };
    Check { check: "running node", status, value, remedy: remarks.join("; "), node: Some(node) }
}

/// What is off with one kind of call, and what to look at.
fn remark(node: &Node, (what, times): &(Timed, Times)) -> String {
    let ratio = times.p99_ns / times.p50_ns.max(1);
    let cause = cause(node, *what);
    format!("process {}: one {} in a hundred takes {ratio} times the median: {cause}", node.pid, what.name())
}

fn cause(node: &Node, what: Timed) -> String {
    let Signs { absent, hits, misses, by_message } = node.signs;
    match what {
        Timed::Barrier | Timed::Collective => {
            "some come late: see in `standpipe top` which rank does more than the others, or is away"
                .to_owned()
        }
        Timed::Request => {
            "the peer handles requests only when it makes progress: let it call progress more often, \
                           or start a thread for that (STANDPIPE_PROGRESS=on); or a handler takes long"
                .to_owned()
        }
        _ if misses > 0 && misses.saturating_mul(MISSES_MANY) >= hits.saturating_add(misses) => format!(
            "{misses} of {} pieces were not found registered: allow more (STANDPIPE_PIN), or say before what is going \
             to be used (prefetch); `standpipe top --peers {}` shows with whom",
            hits.saturating_add(misses),
            node.rank,
        ),
        _ if by_message > 0 => format!(
            "{by_message} puts and gets went by message, which the owner answers when it makes progress: \
             STANDPIPE_PROGRESS=on there; that program's `Node::attach` says what keeps it from cross-memory attach"
        ),
        _ if absent => {
            "this process has not made progress for a while: it is stopped, or computes".to_owned()
        }
        _ => "more threads want to run than there are cores, as a rule: `uptime` shows the load".to_owned(),
    }
}

fn told(what: Timed, times: &Times) -> String {
    let [median, slow, max] = times.quantiles_ns().map(|ns| nanos(ns as f64));
    format!("{} median {median}, 99 % {slow}, max {max}", what.name())
}

/// Whether the slowest hundredth takes so much longer than the median that something else than the call must
/// take it.
fn is_off(times: &Times) -> bool {
    let far_off = times.p99_ns >= times.p50_ns.saturating_mul(FAR_OFF);
    far_off && times.sampled >= SAMPLED_MIN && times.p99_ns >= LONG_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Times = Times { sampled: 1000, p50_ns: 2_000, p99_ns: 300_000, max_ns: 900_000 };

    fn check_of(what: Timed, times: Times, signs: Signs) -> Check {
        let calls = Calls(vec![(what, times)]);
        check(Node { pid: 7, rank: 2, program: "solver".to_owned(), calls, signs })
    }

    #[test]
    fn a_node_that_is_well_is_told_of_and_no_more() {
        let times = Times { p99_ns: 5_000, ..OFF };
        let check = check_of(Timed::Get, times, Signs::default());
        let value = "7 (rank 2 of solver): no kind of call has some that take far longer than the others";
        assert_eq!((check.status, check.value.as_str(), check.remedy.as_str()), (Status::Info, value, ""));
        for few_or_short in [Times { sampled: 99, ..OFF }, Times { p50_ns: 100, p99_ns: 99_000, ..OFF }] {
            assert_eq!(check_of(Timed::Get, few_or_short, Signs::default()).status, Status::Info);
        }
    }

    #[test]
    fn a_remark_names_what_is_off_and_what_to_look_at() {
        let remark = |what, signs: Signs| {
            let check = check_of(what, OFF, signs);
            assert_eq!(check.status, Status::Warn);
            assert!(check.value.contains("median 2000 ns, 99 % 300.0 µs, max 900.0 µs"), "{}", check.value);
            assert!(check.remedy.contains(&format!("one {} in a hundred takes 150 times", what.name())));
            check.remedy
        };
        let misses = Signs { hits: 90, misses: 10, by_message: 5, ..Signs::default() };
        assert!(remark(Timed::Get, misses.clone()).contains("10 of 100 pieces were not found registered"));
        let by_message = Signs { hits: 101, ..misses };
        assert!(remark(Timed::Put, by_message.clone()).contains("5 puts and gets went by message"));
        assert!(
            !remark(Timed::Put, by_message.clone()).contains("above"),
            "this host's checks are of others"
        );
        let absent = Signs { absent: true, by_message: 0, ..by_message };
        assert!(remark(Timed::Put, absent.clone()).contains("has not made progress"));
        assert!(remark(Timed::Put, Signs { absent: false, ..absent }).contains("cores"));
        assert!(remark(Timed::Barrier, Signs::default()).contains("come late"));
        assert!(remark(Timed::Request, Signs::default()).contains("STANDPIPE_PROGRESS"));
    }

    #[test]
    fn figures_are_numbers_in_json() {
        let json = serde_json::to_value(check_of(Timed::Get, OFF, Signs::default())).expect("plain data");
        let get = serde_json::json!({"sampled": 1000, "p50_ns": 2000, "p99_ns": 300_000, "max_ns": 900_000});
        let node = serde_json::json!({"pid": 7, "rank": 2, "program": "solver", "calls": {"get": get}});
        assert_eq!(json["node"], node);
    }
}
