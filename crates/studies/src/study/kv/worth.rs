//! Whether pulling is worth it: a pull beside its alternatives, what its owner loses, and the same requests
//! with pulling and without.

use serde::Serialize;

use super::worker_lines::Yardsticks;

/// Of a trace's requests, the first part that is served again, with pulling and without: an eighth, so that
/// four passes over it take half as long as the replay.
#[must_use]
pub(crate) fn compared(requests: usize) -> usize {
    requests / 8
}

/// Whether each pass pulls, in order. What changes slowly disturbs both kinds alike in this order.
pub(crate) const PASSES: [bool; 4] = [false, true, true, false];

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

/// One pass over the first requests, by workers that were started for it; `--json` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Pass {
    /// Whether its workers pulled.
    pub pulling: bool,
    /// Until all requests were served.
    pub seconds: f64,
    /// Blocks that were made.
    pub made: u64,
    /// Blocks that were pulled.
    pub pulls: u64,
    /// The pullers' processor time in pulls.
    pub pull_processor_seconds: f64,
}

/// The first requests of a trace, served with pulling and without; `--json` prints it. Each number is the
/// mean over the passes of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WithoutPulling {
    /// How many they were.
    pub requests: u64,
    /// Until all were served without pulling.
    pub seconds: f64,
    /// Blocks that were made without pulling.
    pub made: u64,
    /// Until all were served with pulling.
    pub seconds_pulling: f64,
    /// Blocks that were made with pulling.
    pub made_pulling: u64,
    /// Blocks that were pulled.
    pub pulls: u64,
    /// The pullers' processor time in these pulls.
    pub pull_processor_seconds: f64,
    /// How far passes of the same kind lie apart, as a share of the faster one; of the two kinds the greater.
    pub spread: f64,
    /// Each pass, in the order in which they ran.
    pub passes: Vec<Pass>,
}

impl WithoutPulling {
    /// Of passes over so many requests; `None` without a pass of each kind.
    pub(crate) fn of(requests: u64, passes: Vec<Pass>) -> Option<WithoutPulling> {
        let kind = |pulling| passes.iter().filter(move |pass| pass.pulling == pulling);
        let mean = |pulling, of: fn(&Pass) -> f64| {
            kind(pulling).map(of).sum::<f64>() / kind(pulling).count().max(1) as f64
        };
        let spread = |pulling| {
            let seconds = || kind(pulling).map(|pass| pass.seconds);
            let (least, most) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
            if least > 0.0 { most / least - 1.0 } else { 0.0 }
        };
        let is_whole = [false, true].iter().all(|pulling| kind(*pulling).next().is_some());
        is_whole.then(|| WithoutPulling {
            requests,
            seconds: mean(false, |pass| pass.seconds),
            made: mean(false, |pass| pass.made as f64).round() as u64,
            seconds_pulling: mean(true, |pass| pass.seconds),
            made_pulling: mean(true, |pass| pass.made as f64).round() as u64,
            pulls: mean(true, |pass| pass.pulls as f64).round() as u64,
            pull_processor_seconds: mean(true, |pass| pass.pull_processor_seconds),
            spread: spread(false).max(spread(true)),
            passes: passes.clone(),
        })
    }

    /// How much longer the requests took with pulling, as a share; below 0 where they took less.
    #[must_use]
    pub(crate) fn longer(&self) -> f64 {
        if self.seconds > 0.0 { self.seconds_pulling / self.seconds - 1.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(pulling: bool, seconds: f64, made: u64) -> Pass {
        let pulls = if pulling { 6 } else { 0 };
        Pass { pulling, seconds, made, pulls, pull_processor_seconds: 0.5 }
    }

    #[test]
    fn passes_of_a_kind_are_put_together() {
        let passes =
            vec![pass(false, 2.0, 90), pass(true, 3.0, 60), pass(true, 3.3, 62), pass(false, 2.1, 90)];
        let found = WithoutPulling::of(10, passes).expect("both kinds");
        assert_eq!((found.seconds, found.made, found.made_pulling), (2.05, 90, 61));
        assert_eq!((found.pulls, found.pull_processor_seconds, found.passes.len()), (6, 0.5, 4));
        assert!((found.seconds_pulling - 3.15).abs() < 1e-9 && (found.spread - 0.1).abs() < 1e-9);
        assert!((found.longer() - 0.5366).abs() < 1e-3);
        assert_eq!(WithoutPulling::of(10, vec![pass(true, 3.0, 60)]), None, "nothing to compare with");
    }

    #[test]
    fn passes_take_turns() {
        let at =
            |pulling| (1..).zip(PASSES).filter(|(_, kind)| *kind == pulling).map(|(at, _)| at).sum::<i32>();
        assert_eq!(at(true), at(false), "neither kind comes later");
    }
}
