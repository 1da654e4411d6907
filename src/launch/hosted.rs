//! A job whose processes the program makes itself.

use std::mem;
use std::sync::Arc;

use super::start::LaunchError;
use crate::job::launched::Broker;

/// A job that one of its own processes hosts, whose processes somebody else makes: children made by `fork`, a
/// pool of another language's.
///
/// Each process is to have the [variables](HostedJob::variables) of its rank in its environment before it
/// opens its node. The job ends for all when this value is dropped: keep it until the host's own node has
/// closed. Nobody watches or ends the processes but those who made them; members learn of each other's end.
///
/// A child that the host makes by `fork` later has a copy of this value, which is not the job: to drop it
/// ends nothing.
#[derive(Debug)]
pub struct HostedJob {
    broker: Arc<Broker>,
    /// The [generation](vm::forks::generation) of the process that serves the job.
    generation: u32,
}

impl HostedJob {
    /// Begins a job of 1 to [`RANKS_MAX`](super::RANKS_MAX) ranks. It has a thread in this process from now
    /// on, so that children that are to be made by `fork` alone are made before.
    ///
    /// # Errors
    /// [`LaunchError::Broker`] where the number is out of bounds, or the system refuses a socket or a thread.
    pub fn start(ranks: u32) -> Result<HostedJob, LaunchError> {
        let generation = vm::forks::generation();
        Ok(HostedJob { broker: Arc::new(Broker::start(ranks)?), generation })
    }

    /// The variables of the environment that make a process this rank.
    ///
    /// # Panics
    /// Where the job has no such rank.
    pub fn variables(&self, rank: u32) -> [(&'static str, String); 4] {
        self.broker.env(rank).vars()
    }
}

impl Drop for HostedJob {
    fn drop(&mut self) {
        if self.generation != vm::forks::generation() {
            // A forked child has not the thread that the broker's end waits for, and would wake its parent's:
            // with one more holder, for good, that end never comes.
            mem::forget(Arc::clone(&self.broker));
        }
    }
}
