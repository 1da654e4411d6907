//! The common parts of all exchanges: what they do, how they fail, how they read the environment.

use std::net::SocketAddr;
use std::time::Instant;

use crate::base::debug_is_display::debug_is_display;
use crate::job::plumbing::env::RANKS_MAX;

/// Reads a variable of the environment.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A way for all processes of a job to tell all others something.
pub(crate) trait Exchange: Send + Sync {
    /// This process's number in the job.
    fn rank(&self) -> u32;

    /// Processes in the job.
    fn size(&self) -> u32;

    /// This process's own address in the connection by which it has met that one, if it has, and still has
    /// one.
    fn met_at(&self, _rank: u32) -> Option<SocketAddr> {
        None
    }

    /// Whether this process may take leave of the launcher when all has been told, long before it ends.
    fn may_leave_early(&self) -> bool {
        false
    }

    /// The texts that each process has given, by rank. All must call it, the same number of times.
    ///
    /// # Errors
    /// [`ExchangeError`], when `deadline` has come too; then the exchange is of no more use.
    fn all_gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeError>;
}

debug_is_display!(ExchangeError);

/// Why the processes of a job could not tell each other what they must know.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// A variable of the environment is missing, or holds something that no launcher writes.
    #[error("{variable} is not {expected}")]
    Environment {
        /// The variable at fault.
        variable: String,
        /// A description of right values.
        expected: &'static str,
    },
    /// A job that began by variables such as torchrun's needs a secret, and there is none.
    #[error(
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name a job, but its secret is not known: set STANDPIPE_SECRET \
         to the same 64 hexadecimal digits for all its processes (`openssl rand -hex 32` makes some), or \
         STANDPIPE_LAUNCHER=none for a job of one"
    )]
    NoSecret,
    /// Variables such as torchrun's name a job of several, and one of them is missing.
    #[error(
        "RANK and WORLD_SIZE={size} name a job of several processes, but {missing} is not set, so that they cannot meet: \
         set it, or STANDPIPE_LAUNCHER=none for a job of one"
    )]
    Incomplete {
        /// The job's size by `WORLD_SIZE`.
        size: u32,
        /// The first variable that is missing.
        missing: &'static str,
    },
    /// Slurm's `srun` started several tasks, and left this one nothing by which they could meet.
    #[error(
        "srun started this process as one of {size} tasks, but offers no PMI by which they could meet: start them with \
         --mpi=pmix or --mpi=pmi2, or set STANDPIPE_LAUNCHER=none for jobs of one"
    )]
    NoPmi {
        /// The tasks of the step.
        size: u32,
    },
    /// The job is larger than this library can serve, or has no process.
    #[error("a job of {size}: the size must be 1 to {RANKS_MAX}")]
    Size {
        /// Processes, as the launcher says.
        size: u32,
    },
    /// The launcher's connection, or that to rank 0, failed.
    #[error("{with}: {source}")]
    Io {
        /// The other end.
        with: String,
        /// The error.
        source: std::io::Error,
    },
    /// The launcher refused something, or answered what nobody could.
    #[error("{launcher} answered {answer:?} to {command:?}")]
    Answer {
        /// The launcher.
        launcher: &'static str,
        /// The request.
        command: String,
        /// The answer.
        answer: String,
    },
    /// PMIx failed.
    #[error(transparent)]
    Pmix(#[from] ::pmix::PmixError),
    /// Somebody did not come in time.
    #[error("{waited_for} did not come in time")]
    Timeout {
        /// The one that was waited for.
        waited_for: String,
    },
    /// Another process has come to rank 0 by this process's rank: one of another job, as a rule.
    #[error(
        "{with}: rank {rank} of that job has come already: is another job behind the same MASTER_PORT? STANDPIPE_PORT names \
         another port"
    )]
    RankTaken {
        /// Where rank 0 is.
        with: String,
        /// This process's rank.
        rank: u32,
    },
    /// All ranks of the job at rank 0 have come without this process.
    #[error(
        "{with}: all ranks of that job have come without this process: is another job behind the same MASTER_PORT? \
         STANDPIPE_PORT names another port"
    )]
    Late {
        /// Where rank 0 is.
        with: String,
    },
    /// Rank 0's job has another size.
    #[error(
        "{with} is of a job of {theirs}, this process of one of {ours}: is another job behind the same MASTER_PORT? \
         STANDPIPE_PORT names another port"
    )]
    OtherSize {
        /// Where rank 0 is.
        with: String,
        /// The ranks of this process's job.
        ours: u32,
        /// The ranks of its job.
        theirs: u32,
    },
    /// The launcher says that rank 0 is of another job.
    #[error(
        "{with} is of another job: its {variable} is {theirs:?}, and this process's is {ours:?}: STANDPIPE_PORT names another port; \
         where they are one job, unset the variable at all ranks"
    )]
    OtherJob {
        /// Where rank 0 is.
        with: String,
        /// The variable of the environment that tells.
        variable: String,
        /// Its value here.
        ours: String,
        /// Its value at rank 0.
        theirs: String,
    },
    /// Rank 0 cannot listen, as another process does at its port.
    #[error(
        "listening at {at}: another process listens there already: is it rank 0 of another job behind the same MASTER_PORT? \
         STANDPIPE_PORT names another port"
    )]
    PortTaken {
        /// The host and port.
        at: String,
    },
    /// The process at rank 0's port has not the job's secret, or is no process of the job.
    #[error(
        "{with} does not have this job's secret, is not of this job, or is of another version of Standpipe: {why}"
    )]
    Stranger {
        /// Where it is.
        with: String,
        /// Its fault.
        why: String,
    },
}

/// A variable's value, read by `read`.
pub(super) fn variable<T>(
    lookup: Lookup<'_>,
    name: &str,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, ExchangeError> {
    lookup(name)
        .and_then(|value| read(value.trim()))
        .ok_or_else(|| ExchangeError::Environment { variable: name.to_owned(), expected })
}

/// Refuses a job that this library cannot serve.
pub(super) fn check_size(size: u32) -> Result<(), ExchangeError> {
    if (1..=RANKS_MAX).contains(&size) { Ok(()) } else { Err(ExchangeError::Size { size }) }
}

/// A rank and a size that go together.
pub(super) fn place(lookup: Lookup<'_>, rank: &str, size: &str) -> Result<(u32, u32), ExchangeError> {
    let is_size = |text: &str| text.parse().ok().filter(|size| *size > 0);
    let count = variable(lookup, size, "a number from 1", is_size)?;
    // Before anything is made for each of them.
    check_size(count)?;
    let below = |text: &str| text.parse().ok().filter(|rank| *rank < count);
    Ok((variable(lookup, rank, "a number below the job's size", below)?, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_lies_below_its_size() {
        let at = |rank: &str, size: &str| {
            let (rank, size) = (rank.to_owned(), size.to_owned());
            place(&move |name| Some(if name == "R" { rank.clone() } else { size.clone() }), "R", "S")
        };
        assert_eq!(at("1", "2").expect("good"), (1, 2));
        for (rank, size) in [("2", "2"), ("-1", "2"), ("0", "0"), ("x", "2"), ("0", "")] {
            assert!(matches!(at(rank, size), Err(ExchangeError::Environment { .. })), "{rank} of {size}");
        }
        assert_eq!(at("1023", "1024").expect("the largest"), (1023, 1024));
        for size in [1025, u32::MAX] {
            let error = at("0", &size.to_string()).expect_err("more than can be served");
            assert!(matches!(error, ExchangeError::Size { size: named } if named == size), "{error}");
        }
    }
}
