//! The job's meeting point: one thread that lets members in, introduces them to each other and tells all when
//! one is gone.

mod forgotten;
mod round;
mod service;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub(crate) use self::forgotten::Forgotten;
use self::round::{Command, Round};
use self::service::{Departed, Terms, serve};
use super::wire::How;
use crate::base::debug_is_display::debug_is_display;
use crate::base::lock::lock;
use crate::job::plumbing::env::{JobEnv, RANKS_MAX};
use crate::job::plumbing::secret::Secret;

/// A running broker. Dropping it ends the job: every member is told that the broker is gone.
///
/// Any thread may call its methods.
#[derive(Debug)]
pub struct Broker {
    /// The first one.
    round: Round,
    secret: Secret,
    size: u32,
    forgotten: Arc<Forgotten>,
    departed: Arc<Departed>,
}

debug_is_display!(BrokerError);

/// Why a broker could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// A job has at least one rank and at most [`RANKS_MAX`].
    #[error("a job of {size}: the size must be 1 to {RANKS_MAX}")]
    Size {
        /// The size asked for.
        size: u32,
    },
    /// The operating system refused a socket, random bytes or a thread.
    #[error("cannot start the job's broker: {0}")]
    Io(#[from] std::io::Error),
}

impl From<Errno> for BrokerError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Broker {
    /// Starts the broker of a job of `size` ranks whose processes it did not start: the threads of one test
    /// process, say. It needs about three file descriptors a rank.
    ///
    /// # Errors
    /// When the size is out of bounds or the operating system refuses.
    pub fn start(size: u32) -> Result<Self, BrokerError> {
        Self::start_with(size, false, std::process::id())
    }

    /// As [`start`](Self::start), in one of the job's own processes. `launcher_pid` is the process that they
    /// all descend from, which under a restricted ptrace is to be named as permitted tracer.
    pub(crate) fn start_among(size: u32, launcher_pid: u32) -> Result<Self, BrokerError> {
        Self::start_with(size, false, launcher_pid)
    }

    /// As [`start`](Self::start), for a launcher that tells how each process [`ended`](Self::ended). A member
    /// whose connection goes is then given a moment for the launcher's account before it counts as vanished.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_supervised(size: u32) -> Result<Self, BrokerError> {
        Self::start_with(size, true, std::process::id())
    }

    fn start_with(size: u32, supervised: bool, launcher_pid: u32) -> Result<Self, BrokerError> {
        if size == 0 || size > RANKS_MAX {
            return Err(BrokerError::Size { size });
        }
        let secret = Secret::random()?;
        let terms = Terms { size, secret: secret.clone(), supervised, launcher_pid, round: 0 };
        let (forgotten, departed) = (Arc::new(Forgotten::new()?), Arc::<Departed>::default());
        let round = serve(terms, Arc::clone(&forgotten), Arc::clone(&departed))?;
        Ok(Self { round, secret, size, forgotten, departed })
    }

    /// The invitation for `rank`.
    ///
    /// # Panics
    /// When the job has no such rank.
    pub fn env(&self, rank: u32) -> JobEnv {
        assert!(rank < self.size, "rank {rank} of a job of {}", self.size);
        JobEnv { name: self.round.name.clone(), secret: self.secret.clone(), rank, size: self.size }
    }

    /// The process `pid`, started as `rank`, has ended: tells the members, unless another process has joined
    /// in its stead.
    pub fn ended(&self, rank: u32, pid: u32, how: How) {
        self.round.tell(Command::Ended { rank, pid, how });
    }

    /// Tells which of the [`ended`](Self::ended) processes no member reaches by number any more. Until then
    /// they should not be reaped: another process could get the number.
    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// The ranks that have left the job or have gone without a word, first to last. The broker tells no
    /// member of one that is not yet here; the kernel or a network may be sooner.
    pub(crate) fn departed(&self) -> Vec<u32> {
        lock(&self.departed).clone()
    }

    /// Waits until all members of that round have left or vanished. Of these `ranks`, those that have not
    /// joined are waited for `within` the time.
    pub(crate) fn await_leave(&self, round: u32, ranks: Vec<u32>, within: Duration) {
        let (left, when_left) = channel();
        self.round.tell(Command::AwaitLeave { round, ranks, joined_by: Instant::now() + within, left });
        // It is dropped then, or with the thread.
        let _ = when_left.recv();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::thread::{sleep, spawn};

    use super::*;
    use crate::job::launched::Membership;

    fn join(env: &JobEnv) -> Membership {
        let segment = File::open("/dev/null").expect("every system has it");
        let deadline = Instant::now() + Duration::from_secs(10);
        Membership::join(env, [segment.as_fd(); 3], deadline, Box::new(|_| {})).expect("let in")
    }

    #[test]
    fn who_awaits_leave_waits_for_members_and_latecomers() {
        let broker = Broker::start_among(2, 1).expect("a broker");
        let (zero, late) = (join(&broker.env(0)), broker.env(1));
        assert_eq!(zero.launcher_pid(), 1);
        drop(zero);
        let broker = Arc::new(broker);
        let stays = Arc::clone(&broker);
        let awaits = spawn(move || broker.await_leave(0, vec![0, 1], Duration::from_secs(60)));
        sleep(Duration::from_millis(50));
        let one = join(&late);
        sleep(Duration::from_millis(50));
        assert!(!awaits.is_finished());
        drop(one);
        awaits.join().expect("no panic");
        // Its next round is another one.
        let again = join(&stays.env(0));
        stays.await_leave(0, vec![0, 1], Duration::from_secs(60));
        let next = spawn(move || stays.await_leave(1, vec![0], Duration::from_secs(60)));
        sleep(Duration::from_millis(50));
        assert!(!next.is_finished());
        drop(again);
        next.join().expect("no panic");
    }

    #[test]
    fn it_does_not_wait_for_those_of_other_hosts_nor_for_ever() {
        let broker = Broker::start_among(3, 1).expect("a broker");
        drop(join(&broker.env(1)));
        let begun = Instant::now();
        broker.await_leave(0, vec![1], Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));

        let broker = Broker::start_among(2, 1).expect("a broker");
        drop(join(&broker.env(1)));
        broker.await_leave(0, vec![0, 1], Duration::from_millis(50));
    }
}
