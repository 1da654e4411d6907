//! How ranks end, and what that makes of the job.

use std::fmt;

use signal_hook::low_level::signal_name;

use crate::job::launched::How;

/// How a rank's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// Somebody else in the launching process collected its status, or `SIGCHLD` is ignored there.
    Unknown,
}

impl End {
    /// The exit status in the shell's terms: the code; 128 and the signal's number; 255 where it is unknown.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Killed(signal) => u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX),
            Self::Unknown => u8::MAX,
        }
    }

    /// Whether the rank failed: anything but an exit with code zero.
    pub fn is_failure(self) -> bool {
        self != Self::Exited(0)
    }

    /// As the other members are told.
    pub(super) fn how(self) -> How {
        match self {
            Self::Exited(code) => How::Exited(code),
            Self::Killed(signal) => How::Killed(signal),
            Self::Unknown => How::Vanished,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Killed(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended, nobody knows how"),
        }
    }
}

/// How one rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankOutcome {
    /// The rank.
    pub rank: u32,
    /// Its process.
    pub pid: u32,
    /// How that ended.
    pub end: End,
    /// Whether it ended after the launcher had begun to end the job, because another rank had failed or an
    /// interrupt had not ended it. How it ended then says nothing about the program.
    pub ended_by_launcher: bool,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Every rank, in order.
    pub ranks: Vec<RankOutcome>,
    /// Of the ranks that failed, the one that left the job first, as far as the launcher can tell. It waits a
    /// fifth of a second for the process of one that has left.
    pub first_failed: Option<u32>,
    /// Whether ranks were killed because an interrupt had not ended them, or had come twice.
    pub interrupted: bool,
    /// Whether something that ranks wrote could not be passed on, as where the disk is full. Where nobody
    /// reads it any more, this is false: then ranks that go on writing are told so by `SIGPIPE`, as they are
    /// without a launcher.
    pub output_lost: bool,
}

/// The exit status of what `SIGINT` has ended, in the shell's terms.
const INTERRUPTED: u8 = 130;
/// The exit status where all ranks are well and their output is not.
const OUTPUT_LOST: u8 = 1;

impl Outcome {
    /// The job's exit status: the greatest [`status`](End::status) of the ranks that ended by themselves.
    /// Ranks that the launcher ended do not count, or every failure would look like `SIGTERM`; 130 does where
    /// an interrupt was why, and 1 where output was lost.
    pub fn status(&self) -> u8 {
        let own = self.ranks.iter().filter(|rank| !rank.ended_by_launcher);
        let own = own.map(|rank| rank.end.status());
        let others = [self.interrupted.then_some(INTERRUPTED), self.output_lost.then_some(OUTPUT_LOST)];
        own.chain(others.into_iter().flatten()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ends: &[(End, bool)]) -> Outcome {
        let rank = |(rank, (end, ended_by_launcher)): (u32, &(End, bool))| RankOutcome {
            rank,
            pid: 1,
            end: *end,
            ended_by_launcher: *ended_by_launcher,
        };
        let ranks = (0..).zip(ends).map(rank).collect();
        Outcome { ranks, first_failed: None, interrupted: false, output_lost: false }
    }

    #[test]
    fn statuses_are_the_shells() {
        assert_eq!(End::Exited(3).status(), 3);
        assert_eq!(End::Killed(9).status(), 137);
        assert_eq!(End::Killed(i32::MAX).status(), 255);
        assert_eq!(End::Unknown.status(), 255);
    }

    #[test]
    fn the_greatest_status_counts() {
        let ends = [(End::Exited(0), false), (End::Exited(7), false), (End::Exited(2), false)];
        assert_eq!(outcome(&ends).status(), 7);
        assert_eq!(outcome(&[(End::Exited(0), false)]).status(), 0);
    }

    #[test]
    fn ranks_that_the_launcher_ended_do_not_count() {
        let ends = [(End::Exited(7), false), (End::Killed(15), true)];
        assert_eq!(outcome(&ends).status(), 7);
    }

    #[test]
    fn an_interrupt_that_killed_counts_as_one_that_ended() {
        let killed = outcome(&[(End::Exited(0), false), (End::Killed(9), true)]);
        assert_eq!(Outcome { interrupted: true, ..killed }.status(), 130);
    }

    #[test]
    fn lost_output_is_a_failure() {
        let well = outcome(&[(End::Exited(0), false)]);
        assert_eq!(Outcome { output_lost: true, ..well }.status(), 1);
    }

    #[test]
    fn ends_are_named() {
        assert_eq!(End::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(End::Killed(60).to_string(), "was killed by signal 60");
        assert_eq!(End::Exited(2).to_string(), "exited with status 2");
    }
}
