//! A process's part in its job: joined once, asked for peers as they are first talked to, told of every loss.

mod connection_thread;
mod join;
mod notice;
mod pending_connects;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use self::connection_thread::Shared;
pub use self::join::JoinError;
use self::join::Welcomed;
pub(in crate::job) use self::join::{ask, greet_round, hear_answer};
pub use self::notice::{Notice, OnNotice};
pub use self::pending_connects::{PeerHandles, PeerHandlesError};
use super::socket::HANDLES;
use super::wire::Request;
use crate::job::plumbing::env::JobEnv;

/// This process's place in a job. Dropping it takes leave: the others are told that this rank left.
///
/// Any thread may call its methods. A child made by `fork` must not use it, and dropping it there does
/// nothing to the parent's membership.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
    rank: u32,
    size: u32,
    launcher_pid: u32,
    round: u32,
    pid: u32,
}

impl Membership {
    /// Joins the job that `env` invites to, handing over this process's control segment, heap and ledger.
    /// Starts the thread that reads what the broker says.
    ///
    /// # Errors
    /// When there is no broker, it refuses, or it has not answered by `deadline`.
    pub fn join(
        env: &JobEnv,
        segments: [BorrowedFd<'_>; HANDLES],
        deadline: Instant,
        on_notice: OnNotice,
    ) -> Result<Self, JoinError> {
        let Welcomed { socket, launcher_pid, round } = join::shake_hands(env, &segments, deadline)?;
        let shared = Arc::new(Shared::new(socket).map_err(JoinError::Io)?);
        let watch = connection_thread::start(Arc::clone(&shared), on_notice).map_err(JoinError::Io)?;
        let pid = std::process::id();
        let (rank, size) = (env.rank(), env.size());
        Ok(Self { shared, watch: Some(watch), rank, size, launcher_pid, round, pid })
    }

    /// This process's number in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks the job has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// How often this rank has been in the job before.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The process that runs the broker: the launcher, which under a restricted ptrace is the ancestor to
    /// name as permitted tracer.
    pub fn launcher_pid(&self) -> u32 {
        self.launcher_pid
    }

    /// Gets `peer`'s process and segments, waiting until it has joined. `peer` may be this rank.
    ///
    /// # Errors
    /// When there is no such rank, it is gone or goes before it joins, the broker is gone, or `deadline`
    /// comes.
    pub fn connect(&self, peer: u32, deadline: Instant) -> Result<PeerHandles, PeerHandlesError> {
        if peer >= self.size {
            return Err(PeerHandlesError::NoSuchRank { peer, size: self.size });
        }
        self.shared.connect(peer, deadline)
    }

    /// Lets `peer`, whose segments this process has got, know that its private memory cannot be attached to
    /// from here. Does not wait.
    pub fn request_progress(&self, peer: u32) {
        self.shared.say(Request::Serve { peer });
    }

    /// Lets the launcher know that this process, which has been told that `rank` is gone, reaches that
    /// process by its number no more. Does not wait.
    pub(crate) fn acknowledge(&self, rank: u32) {
        self.shared.say(Request::Heard { rank });
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // After a fork the thread is not here, and the place in the job is the parent's.
            return;
        }
        if !self.shared.leave() {
            // Nor could anything else wake the thread: to wait for it would be for ever.
            tracing::warn!(
                "the program has closed descriptors of this library's: its leave is not announced"
            );
            return;
        }
        if let Some(watch) = self.watch.take()
            && watch.thread().id() != std::thread::current().id()
        {
            // A panic of the owner's callback has been printed by the thread it happened on.
            let _ = watch.join();
        }
    }
}
