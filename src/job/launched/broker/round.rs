//! One round of a job, as those know it who have it served: where its members meet, and what it is told.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::job::launched::wire::How;
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::poll::Waker;

/// A command to the thread that serves a round.
pub(super) enum Command {
    Ended {
        rank: u32,
        pid: u32,
        how: How,
    },
    /// A rank's process has ended without leave, in an earlier round.
    Gone {
        rank: u32,
        how: How,
    },
    /// Drop `left` once all of that round, counted from this one, have left; of these ranks, those that have
    /// not joined by then do not count.
    AwaitLeave {
        round: u32,
        ranks: Vec<u32>,
        joined_by: Instant,
        left: Sender<()>,
    },
    Stop,
}

/// A round that is being served. Dropping it ends it, and those that follow.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) name: JobName,
    pub(super) commands: Sender<Command>,
    pub(super) waker: Arc<Waker>,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Round {
    pub(super) fn tell(&self, command: Command) {
        // Fails only when the thread has died of a panic, which drop() reports.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if !self.waker.wake() {
            // The program has closed the descriptor: to wait for the thread would be for ever.
            return;
        }
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
