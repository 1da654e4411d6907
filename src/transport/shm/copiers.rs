//! Threads that make large copies within a host, so that whoever starts one need not.
//!
//! A copier makes a step of one copy, and then of the next, so that a long one keeps no short one waiting,
//! and looks before each step whether the copy has been given up. Whoever gives one up waits for the step
//! that is being made, and knows then that the memory is touched no more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use engine::{Direction, Event, OpError, OpId, Piece, Rank};
use vm::{Bell, Words};

use super::copy::CopyError;
use crate::base::lock::lock;
use crate::transport::net_wakeup::NetWakeup;

/// Bytes of a transfer from which on a copier makes it: what a processor copies in the time that it takes to
/// wake another thread, several times over.
pub(crate) const COPIED_APART_MIN: u64 = 256 << 10;

/// Bytes that one step copies, at most: some 50 µs.
const STEP: u64 = 512 << 10;

/// Pieces that one step copies, at most: as many as go by one system call.
const STEP_PIECES: usize = 1024;

/// The copiers of a node, and what they are at.
pub(super) struct Copiers {
    /// How many there are to be, once there is a copy to make.
    wanted: usize,
    threads: Vec<JoinHandle<()>>,
    pool: Arc<Pool>,
    under_way: hashbrown::HashMap<OpId, Arc<Copy>>,
}

/// What the copiers and their node share.
struct Pool {
    /// Copies of which a step is to be made next, in turn.
    turns: Mutex<VecDeque<Arc<Copy>>>,
    comes: Condvar,
    /// The copies that have ended, for whoever polls.
    ended: Mutex<VecDeque<(OpId, Result<(), OpError>)>>,
    any_ended: AtomicBool,
    closing: AtomicBool,
    /// Who sleeps until something ends, on the doorbell and on the network.
    bell: Bell<Words>,
    net_wakeup: OnceLock<Arc<NetWakeup>>,
}

/// Copies some pieces of a transfer now.
pub(super) type CopyNow = Box<dyn Fn(&[Piece]) -> Result<(), CopyError> + Send + Sync>;

/// One copy.
struct Copy {
    op: OpId,
    peer: Rank,
    direction: Direction,
    now: CopyNow,
    /// What is left. `None` once it has ended or was given up: from then on nothing touches the memory. Held
    /// while a step is made.
    rest: Mutex<Option<VecDeque<Piece>>>,
}

/// How a copy goes on after a step.
enum Step {
    More,
    Ended(Result<(), OpError>),
    GivenUp,
}

impl Copiers {
    /// So many, which start when there is a copy to make.
    pub(super) fn new(wanted: usize, bell: Bell<Words>) -> Copiers {
        let pool = Pool {
            turns: Mutex::default(),
            comes: Condvar::new(),
            ended: Mutex::default(),
            any_ended: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            bell,
            net_wakeup: OnceLock::new(),
        };
        Copiers { wanted, threads: Vec::new(), pool: Arc::new(pool), under_way: hashbrown::HashMap::new() }
    }

    /// Also wakes whoever sleeps on the network.
    pub(super) fn set_net_wakeup(&self, net_wakeup: Arc<NetWakeup>) {
        let _ = self.pool.net_wakeup.set(net_wakeup);
    }

    /// Has a copier make a copy with a peer, by `now`, until [`Copiers::take_ended`] tells of its end or it
    /// is [given up](Copiers::abandon). `false`: there is no copier, and the caller must make it.
    pub(super) fn start(
        &mut self,
        op: OpId,
        (peer, direction): (Rank, Direction),
        pieces: &[Piece],
        now: CopyNow,
    ) -> bool {
        if !self.are_there() {
            return false;
        }
        let rest = Mutex::new(Some(pieces.iter().copied().collect()));
        let copy = Arc::new(Copy { op, peer, direction, now, rest });
        self.under_way.insert(op, Arc::clone(&copy));
        lock(&self.pool.turns).push_back(copy);
        self.pool.comes.notify_one();
        true
    }

    /// Starts the threads, unless they run. Whether any does.
    fn are_there(&mut self) -> bool {
        while self.threads.len() < self.wanted && !self.pool.closing.load(Ordering::SeqCst) {
            let pool = Arc::clone(&self.pool);
            match vm::threads::spawn("standpipe-copier", move || pool.work()) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, copiers = self.threads.len(), "not all copiers could be started");
                    self.wanted = self.threads.len();
                }
            }
        }
        !self.threads.is_empty()
    }

    /// Ends a copy wherever it is. Waits for the step that is being made of it.
    pub(super) fn abandon(&mut self, op: OpId) {
        if let Some(copy) = self.under_way.remove(&op) {
            lock(&copy.rest).take();
        }
    }

    /// Whether copies have ended that nobody has been told of.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.pool.any_ended.load(Ordering::SeqCst)
    }

    /// The end of a copy that was not given up.
    pub(super) fn take_ended(&mut self) -> Option<Event> {
        while self.has_ended() {
            let next = {
                let mut ended = lock(&self.pool.ended);
                let next = ended.pop_front();
                self.pool.any_ended.store(!ended.is_empty(), Ordering::SeqCst);
                next
            };
            if let Some((op, result)) = next
                && self.under_way.remove(&op).is_some()
            {
                return Some(Event::Completed { op, result: result.map(|()| 0) });
            }
        }
        None
    }

    /// Ends the threads, each after the step that it makes. No copy goes on after this.
    pub(super) fn end(&mut self) {
        self.pool.closing.store(true, Ordering::SeqCst);
        // Against a copier that has just looked, and is about to sleep.
        drop(lock(&self.pool.turns));
        self.pool.comes.notify_all();
        let own = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

impl Drop for Copiers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Pool {
    fn work(&self) {
        while let Some(copy) = self.next() {
            match copy.step() {
                Step::More => lock(&self.turns).push_back(copy),
                Step::Ended(result) => self.end(copy.op, result),
                Step::GivenUp => {}
            }
        }
    }

    /// The copy of which a step is to be made next; waits for one. `None` once the node closes.
    fn next(&self) -> Option<Arc<Copy>> {
        let mut turns = lock(&self.turns);
        loop {
            if self.closing.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(copy) = turns.pop_front() {
                return Some(copy);
            }
            turns = self.comes.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, op: OpId, result: Result<(), OpError>) {
        {
            let mut ended = lock(&self.ended);
            ended.push_back((op, result));
            self.any_ended.store(true, Ordering::SeqCst);
        }
        self.bell.poke();
        if let Some(net_wakeup) = self.net_wakeup.get() {
            net_wakeup.ring_all();
        }
    }
}

impl Copy {
    fn step(&self) -> Step {
        let mut rest = lock(&self.rest);
        let Some(left) = &mut *rest else { return Step::GivenUp };
        let step = cut(left);
        match (self.now)(&step) {
            Ok(()) if !left.is_empty() => return Step::More,
            Ok(()) => {}
            Err(error) => {
                rest.take();
                return Step::Ended(Err(self.failed(error, &step)));
            }
        }
        rest.take();
        Step::Ended(Ok(()))
    }

    /// What a copy ends with. The peer's memory could be reached when it began.
    fn failed(&self, error: CopyError, step: &[Piece]) -> OpError {
        match (error, step.first()) {
            (CopyError::Failed(error), _) => error,
            (CopyError::Unreachable(_), Some(piece)) => OpError::NotExposed {
                peer: self.peer,
                direction: self.direction,
                addr: piece.remote.offset,
                len: piece.len,
            },
            (CopyError::Unreachable(_), None) => OpError::PeerLost { peer: self.peer },
        }
    }
}

/// Takes what one step copies off the front.
fn cut(left: &mut VecDeque<Piece>) -> Vec<Piece> {
    let (mut step, mut bytes) = (Vec::new(), 0);
    while bytes < STEP
        && step.len() < STEP_PIECES
        && let Some(piece) = left.pop_front()
    {
        let len = piece.len.min(STEP - bytes);
        if len < piece.len {
            let (remote, local) = (piece.remote.plus(len), piece.local.plus(len));
            left.push_front(Piece { remote, local, len: piece.len - len });
        }
        step.push(Piece { len, ..piece });
        bytes += len;
    }
    step
}

#[cfg(test)]
mod tests {
    use engine::{MemId, Place};

    use super::*;

    #[test]
    fn steps_are_of_bounded_size_and_leave_nothing_out() {
        let piece = |at: u64, len| {
            let (there, here) = (Place::new(MemId::Heap, at), Place::new(MemId::Space, 10 * at));
            Piece::new(there, here, len).expect("it wraps nowhere")
        };
        let small = (0..3000).map(|at| piece(at, 1));
        let mut left: VecDeque<Piece> =
            [piece(0, 3 * STEP + 7), piece(5000, 0)].into_iter().chain(small).collect();
        let whole: Vec<Piece> = left.iter().copied().collect();
        let mut seen: Vec<Piece> = Vec::new();
        while !left.is_empty() {
            let step = cut(&mut left);
            assert!(step.iter().map(|piece| piece.len).sum::<u64>() <= STEP && step.len() <= STEP_PIECES);
            assert!(!step.is_empty());
            for part in step {
                match seen.last_mut() {
                    Some(last) if last.remote.offset + last.len == part.remote.offset && last.len >= STEP => {
                        last.len += part.len;
                    }
                    _ => seen.push(part),
                }
            }
        }
        assert!(seen == whole);
    }
}
