//! Threads that make large copies within a host, so that whoever starts one need not.
//!
//! A copier makes a step of one copy, and then of the next, so that a long one keeps no short one waiting.
//! Before each step it looks whether the copy has been given up. A thread that gives one up says so first,
//! and then waits for the step that is being made: after it the memory is touched no more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use engine::{Counters, Direction, Event, Mechanism, MemId, OpId, Operation, Piece};

use super::copy::CopyError;
use crate::base::lock::lock;

/// Bytes of a transfer from which on a copier makes it: what a processor copies in the time that it takes to
/// wake another thread, several times over.
pub(crate) const COPIED_APART_MIN: u64 = 256 << 10;

/// Bytes that one step copies, at most: some 50 µs.
const STEP: u64 = 512 << 10;

/// Pieces that one step copies, at most: as many as go by one system call.
const STEP_PIECES: usize = 1024;

/// The copiers of a node, and what they are at.
pub(super) struct Copiers {
    threads: Vec<JoinHandle<()>>,
    pool: Arc<Pool>,
    under_way: hashbrown::HashMap<OpId, Arc<Copy>>,
    /// The copied bytes.
    counters: Counters,
}

/// The state that the copiers and their node share.
struct Pool {
    /// Copies of which a step is to be made next, in turn.
    turns: Mutex<VecDeque<Arc<Copy>>>,
    comes: Condvar,
    /// The copies that have ended, for whoever polls.
    ended: Mutex<VecDeque<(OpId, Result<(), CopyError>)>>,
    any_ended: AtomicBool,
    closing: AtomicBool,
    /// Wakes whoever sleeps until something ends.
    wake: Wake,
}

/// Wakes whoever sleeps until something ends.
pub(super) type Wake = Box<dyn Fn() + Send + Sync>;

/// Copies some pieces of a transfer now.
pub(super) type CopyNow = Box<dyn Fn(&[Piece]) -> Result<(), CopyError> + Send + Sync>;

/// One copy.
struct Copy {
    op: OpId,
    direction: Direction,
    now: CopyNow,
    /// By which mechanism, and how many bytes it has.
    counted: (Mechanism, u64),
    /// No step is to begin any more.
    is_given_up: AtomicBool,
    /// The pieces that are left. Held while a step is made.
    rest: Mutex<VecDeque<Piece>>,
}

/// How a copy goes on after a step.
enum Step {
    More,
    Ended(Result<(), CopyError>),
    GivenUp,
}

impl Copiers {
    /// So many, or as many as the system lets start: `None` where that is none.
    pub(super) fn start(count: usize, wake: Wake) -> Option<Copiers> {
        let pool = Arc::new(Pool {
            turns: Mutex::default(),
            comes: Condvar::new(),
            ended: Mutex::default(),
            any_ended: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            wake,
        });
        let start = |_| {
            let pool = Arc::clone(&pool);
            vm::threads::spawn("standpipe-copier", move || pool.work())
        };
        let mut started = (0..count).map(start);
        let threads: Vec<JoinHandle<()>> = started.by_ref().map_while(Result::ok).collect();
        if threads.len() < count {
            tracing::warn!(copiers = threads.len(), "the system lets no more copiers start");
        }
        let (under_way, counters) = (hashbrown::HashMap::new(), Counters::default());
        (!threads.is_empty()).then_some(Copiers { threads, pool, under_way, counters })
    }

    /// Has a copier make a copy by `now`, until [`Copiers::take_ended`] tells of its end or it is
    /// [given up](Copiers::abandon).
    pub(super) fn copy(&mut self, op: OpId, direction: Direction, pieces: &[Piece], now: CopyNow) {
        let is_private = |piece: &Piece| piece.remote.mem != MemId::Heap;
        let mechanism = if pieces.iter().any(is_private) { Mechanism::Cma } else { Mechanism::Mapped };
        let bytes = pieces.iter().map(|piece| piece.len).fold(0, u64::saturating_add);
        let (rest, is_given_up) = (Mutex::new(pieces.iter().copied().collect()), AtomicBool::new(false));
        let copy = Arc::new(Copy { op, direction, now, counted: (mechanism, bytes), is_given_up, rest });
        self.under_way.insert(op, Arc::clone(&copy));
        lock(&self.pool.turns).push_back(copy);
        self.pool.comes.notify_one();
    }

    /// Whether copies are under way.
    pub(super) fn is_copying(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The copied bytes, and to where.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Ends a copy wherever it is. Waits for the step that is being made of it.
    pub(super) fn abandon(&mut self, op: OpId) {
        if let Some(copy) = self.under_way.remove(&op) {
            copy.is_given_up.store(true, Ordering::SeqCst);
            drop(lock(&copy.rest));
        }
    }

    /// The rest of a copy of which it was told that it cannot go on.
    pub(super) fn take_unreached(&mut self, op: OpId) -> Option<(Direction, Vec<Piece>)> {
        let copy = self.under_way.remove(&op)?;
        let rest = std::mem::take(&mut *lock(&copy.rest));
        Some((copy.direction, rest.into()))
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
            let Some((op, result)) = next else { continue };
            match result {
                _ if !self.under_way.contains_key(&op) => {}
                Err(CopyError::Unreachable(why)) => return Some(Event::Unreachable { op, why }),
                Err(CopyError::Failed(error)) => {
                    self.under_way.remove(&op);
                    return Some(Event::Completed { op, result: Err(error) });
                }
                Ok(()) => {
                    let copied = self.under_way.remove(&op).map(|copy| (copy.direction, copy.counted));
                    if let Some((direction, (mechanism, bytes))) = copied {
                        let operation = match direction {
                            Direction::Put => Operation::Put,
                            Direction::Get => Operation::Get,
                        };
                        self.counters.add(operation, mechanism, bytes);
                    }
                    return Some(Event::Completed { op, result: Ok(0) });
                }
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

    fn end(&self, op: OpId, result: Result<(), CopyError>) {
        {
            let mut ended = lock(&self.ended);
            ended.push_back((op, result));
            self.any_ended.store(true, Ordering::SeqCst);
        }
        (self.wake)();
    }
}

impl Copy {
    fn step(&self) -> Step {
        let mut rest = lock(&self.rest);
        if self.is_given_up.load(Ordering::SeqCst) {
            return Step::GivenUp;
        }
        let step = cut(&mut rest);
        match (self.now)(&step) {
            Ok(()) if rest.is_empty() => Step::Ended(Ok(())),
            Ok(()) => Step::More,
            Err(error) => {
                // The thread that goes on with it begins with these.
                step.into_iter().rev().for_each(|piece| rest.push_front(piece));
                Step::Ended(Err(error))
            }
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
    use std::sync::mpsc;

    use engine::{PathReason, Place};

    use super::*;

    /// A copier, and the sender's end of what it copies, a step at a time.
    fn one_copier() -> (Copiers, mpsc::Sender<Result<(), CopyError>>, CopyNow) {
        let copiers = Copiers::start(1, Box::new(|| ())).expect("a thread");
        let (send, steps) = mpsc::channel();
        let steps = Mutex::new(steps);
        let now = move |_: &[Piece]| lock(&steps).recv().expect("a step's end");
        (copiers, send, Box::new(now))
    }

    fn pieces(count: u64) -> Vec<Piece> {
        let at = |index: u64| Place::new(MemId::Space, index * STEP);
        (0..count).map(|index| Piece::new(at(index), at(index), STEP).expect("it wraps nowhere")).collect()
    }

    fn end_of(copiers: &mut Copiers) -> Event {
        let begun = std::time::Instant::now();
        loop {
            if let Some(event) = copiers.take_ended() {
                return event;
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(20), "nothing ends");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_cannot_be_reached_any_more_is_given_back() {
        let (mut copiers, step, now) = one_copier();
        let (op, all) = (OpId::NONE, pieces(4));
        copiers.copy(op, Direction::Get, &all, now);
        step.send(Ok(())).expect("it copies");
        step.send(Err(CopyError::Unreachable(PathReason::NotOffered))).expect("it copies");
        assert_eq!(end_of(&mut copiers), Event::Unreachable { op, why: PathReason::NotOffered });
        assert_eq!(copiers.take_unreached(op), Some((Direction::Get, all[1..].to_vec())));
        assert!(!copiers.is_copying() && copiers.take_unreached(op).is_none());
    }

    #[test]
    fn who_gives_a_copy_up_waits_for_its_step_alone() {
        let (mut copiers, step, now) = one_copier();
        let op = OpId::NONE;
        copiers.copy(op, Direction::Put, &pieces(4), now);
        // While it is given up the first step goes on, and no other begins.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                step.send(Ok(())).expect("it copies");
            });
            while lock(&copiers.pool.turns).len() == 1 {
                std::thread::yield_now();
            }
            copiers.abandon(op);
        });
        assert!(!copiers.is_copying());
        copiers.end();
        assert!(copiers.take_ended().is_none() && copiers.counters() == &Counters::default());
    }

    #[test]
    fn what_is_copied_is_counted_once() {
        let (mut copiers, step, now) = one_copier();
        let op = OpId::NONE;
        copiers.copy(op, Direction::Put, &pieces(2), now);
        (0..2).for_each(|_| step.send(Ok(())).expect("it copies"));
        assert_eq!(end_of(&mut copiers), Event::Completed { op, result: Ok(0) });
        let put = copiers.counters().get(Operation::Put, Mechanism::Cma);
        assert_eq!((put.count, put.bytes), (1, 2 * STEP));
    }

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
