//! Whether pulling is worth it: a pull beside what would be done instead, what its owner loses, and the same
//! requests without pulling.

use serde::Serialize;

use super::worker_lines::{Tick, Yardsticks};
use measure::report::page::Grid;
use measure::units::{grouped, micros};

/// Of a trace's requests, the first part that is served once more without pulling: a sixth, so that the run
/// takes little longer.
#[must_use]
pub(crate) fn compared(requests: usize) -> usize {
    requests / 6
}

/// One block by each way to have it, and what its owner loses; `--json` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Beside {
    /// A pull, measured in turn with the next two.
    pub pull_us: f64,
    /// One memcpy of the same bytes.
    pub memcpy_us: f64,
    /// The same bytes by a TCP connection over loopback.
    pub socket_us: f64,
    /// Making it: the set processor time.
    pub make_us: f64,
    /// Share of its rate of filling blocks that the owner keeps while a peer pulls from it without a pause.
    pub owner_keeps: f64,
}

impl Beside {
    /// What was measured, and the time that making a block takes.
    pub(crate) fn of(measured: &Yardsticks, make_us: f64) -> Beside {
        Beside {
            pull_us: measured.pull_ns / 1e3,
            memcpy_us: measured.memcpy_ns / 1e3,
            socket_us: measured.socket_ns / 1e3,
            make_us,
            owner_keeps: if measured.made_alone > 0.0 {
                measured.made_pulled / measured.made_alone
            } else {
                1.0
            },
        }
    }
}

/// The first requests of a trace, served with pulling and without; `--json` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct WithoutPulling {
    /// How many they were.
    pub requests: u64,
    /// Until all were served without pulling, and the blocks that were made for them.
    pub seconds: f64,
    /// See `seconds`.
    pub made: u64,
    /// The same in the run that pulls.
    pub seconds_pulling: f64,
    /// See `seconds_pulling`.
    pub made_pulling: u64,
}

impl WithoutPulling {
    /// From the ticks of each worker in both runs; `None` where a worker did not come so far.
    pub(crate) fn of(
        requests: usize,
        pulling: &[Vec<Tick>],
        without: &[Vec<Tick>],
    ) -> Option<WithoutPulling> {
        let (seconds_pulling, made_pulling) = until(requests, pulling)?;
        let (seconds, made) = until(requests, without)?;
        Some(WithoutPulling { requests: requests as u64, seconds, made, seconds_pulling, made_pulling })
    }
}

/// When so many requests, dealt to the workers in turn, were served, and the blocks made for them.
fn until(requests: usize, ticks: &[Vec<Tick>]) -> Option<(f64, u64)> {
    let (mut last_ms, mut made) = (0, 0);
    for (rank, ticks_of) in ticks.iter().enumerate() {
        let share = requests.saturating_sub(rank).div_ceil(ticks.len()) as u64;
        let mut served = 0;
        for tick in ticks_of {
            if served >= share {
                break;
            }
            served += tick.requests;
            made += tick.made;
            last_ms = last_ms.max(tick.at_ms);
        }
        if served < share {
            return None;
        }
    }
    Some((last_ms as f64 / 1e3, made))
}

/// The ways to have a block beside each other, for people.
#[must_use]
pub(crate) fn grid(beside: &Beside, without: Option<&WithoutPulling>) -> Grid {
    let row = |what: &str, us: f64| vec![what.to_owned(), micros(us), times(us / beside.pull_us)];
    Grid {
        title: "A block, by each way to have it".to_owned(),
        note: said(beside, without).join(" "),
        header: ["way", "median", "by a pull's time"].map(str::to_owned).to_vec(),
        rows: vec![
            row("one memcpy of the same bytes", beside.memcpy_us),
            row("a pull", beside.pull_us),
            row("a TCP socket on this host", beside.socket_us),
            row("making it (as set)", beside.make_us),
        ],
    }
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() }
}

/// What the figures say, in sentences.
#[must_use]
pub(crate) fn said(beside: &Beside, without: Option<&WithoutPulling>) -> Vec<String> {
    let mut said = vec![format!(
        "The owner keeps {:.0} % of its rate of filling blocks while a peer pulls from it without a pause.",
        100.0 * beside.owner_keeps
    )];
    if beside.pull_us < beside.make_us {
        said.push(format!("A pull takes {:.3} of making the block.", beside.pull_us / beside.make_us));
    } else {
        said.push(
            "Making a block takes less than a pull: with such blocks pulling is not worth it.".to_owned(),
        );
    }
    said.extend(without.map(|without| {
        format!(
            "The first {} requests took {:.2} s with pulling and {:.2} s without; {} and {} blocks were made for them.",
            grouped(without.requests),
            without.seconds_pulling,
            without.seconds,
            grouped(without.made_pulling),
            grouped(without.made),
        )
    }));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(at_ms: u64, requests: u64, made: u64) -> Tick {
        Tick { at_ms, requests, made, ..Tick::default() }
    }

    #[test]
    fn the_same_requests_are_compared_in_both_runs() {
        // Of 5 requests worker 0 serves three, and worker 1 two.
        let pulling = [vec![tick(100, 3, 4), tick(900, 9, 9)], vec![tick(50, 1, 1), tick(150, 1, 2)]];
        let without = [vec![tick(200, 3, 8)], vec![tick(400, 2, 9)]];
        let found = WithoutPulling::of(5, &pulling, &without).expect("all came so far");
        assert_eq!((found.seconds_pulling, found.made_pulling), (0.15, 7));
        assert_eq!((found.seconds, found.made, found.requests), (0.4, 17, 5));
        let cut_off = [vec![tick(200, 2, 8)], vec![tick(400, 2, 9)]];
        assert_eq!(WithoutPulling::of(5, &pulling, &cut_off), None, "worker 0 died");
    }

    #[test]
    fn the_words_follow_the_figures() {
        let measured = Yardsticks {
            pull_ns: 300_000.0,
            memcpy_ns: 100_000.0,
            socket_ns: 900_000.0,
            made_alone: 200.0,
            made_pulled: 190.0,
        };
        let beside = Beside::of(&measured, 3000.0);
        let text = said(&beside, None).join(" ");
        assert!(text.contains("keeps 95 %") && text.contains("0.100 of making"), "{text}");
        let text = said(&Beside::of(&measured, 200.0), None).join(" ");
        assert!(text.contains("not worth it"), "{text}");
        let rows = grid(&beside, None).rows;
        let ratios: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(ratios, ["0.33", "1.00", "3.00", "10.00"]);
    }
}
