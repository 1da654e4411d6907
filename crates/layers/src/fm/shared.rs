//! What the layer's calls share with its Active Message handler.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::arrival::{Arrival, Own};
use super::assembly::Assembly;
use super::credits::{Credits, window};
use super::lock::lock;
use super::notices::Notices;
use super::outgoing::Outgoing;
use super::stream::Stream;

/// More than one node.
const SEVERAL: u32 = u32::MAX;

/// All but the node and the handlers: no handle of the node is in here, so that it can close.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) peers: Box<[Peer]>,
    pub(crate) notices: Notices,
    pub(crate) counters: Counters,
    /// Whether what arrives is thrown away.
    pub(crate) is_closing: AtomicBool,
    /// Whom a message with credits is due to: 0 nobody, else a node's number and 1, or [`SEVERAL`].
    credits_due: AtomicU32,
    /// Messages that were given up, and whose receivers have not been told.
    pub(crate) cuts_due: AtomicUsize,
    queue: Mutex<VecDeque<Arrival>>,
    queued: AtomicUsize,
    /// The token of the thread that extracts; 0 where none does.
    turn: AtomicU64,
    runs: AtomicU64,
    /// The messages for whose handlers other threads have found something.
    ready: Mutex<Vec<Arc<Stream>>>,
    has_ready: AtomicBool,
}

/// What this process has to do with one other.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) credits: Credits,
    pub(crate) is_lost: AtomicBool,
    pub(crate) has_contact: AtomicBool,
    /// Handlers whose messages it has cut off.
    pub(crate) cut_off: AtomicU32,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Mutex<FromPeer>,
    /// Whether a message of several packets is open there: the thread that extracts writes it.
    pub(crate) is_within_message: AtomicBool,
}

/// The message that a peer sends to this process.
#[derive(Debug, Default)]
pub(crate) struct FromPeer {
    pub(crate) assembly: Assembly,
    pub(crate) stream: Option<Arc<Stream>>,
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) refused: AtomicU64,
    pub(crate) unhandled: AtomicU64,
    pub(crate) set_aside: AtomicU64,
    pub(crate) stacks: AtomicU64,
    pub(crate) copied_sent: AtomicU64,
    /// In handlers of the program's, which run on the thread that extracts.
    pub(crate) copied_received: AtomicU64,
    /// In the handler of Active Messages.
    pub(crate) copied_arrived: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts what the thread that extracts alone counts: how many that makes.
    #[inline]
    pub(crate) fn bump(counter: &AtomicU64, count: u64) -> u64 {
        let counted = counter.load(Ordering::Relaxed).wrapping_add(count);
        counter.store(counted, Ordering::Relaxed);
        counted
    }
}

impl Shared {
    pub(crate) fn new(nodes: u32) -> Shared {
        let peer = || Peer {
            credits: Credits::new(window(nodes)),
            is_lost: AtomicBool::new(false),
            has_contact: AtomicBool::new(false),
            cut_off: AtomicU32::new(0),
            outgoing: Outgoing::default(),
            incoming: Mutex::default(),
            is_within_message: AtomicBool::new(false),
        };
        Shared {
            peers: (0..nodes).map(|_| peer()).collect(),
            notices: Notices::default(),
            counters: Counters::default(),
            is_closing: AtomicBool::new(false),
            credits_due: AtomicU32::new(0),
            cuts_due: AtomicUsize::new(0),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            ready: Mutex::default(),
            has_ready: AtomicBool::new(false),
        }
    }

    pub(crate) fn peer(&self, rank: u32) -> &Peer {
        &self.peers[rank as usize]
    }

    /// Notes that a packet of a node's was consumed.
    #[inline]
    pub(crate) fn consumed(&self, from: u32) {
        if self.peer(from).credits.consumed() {
            self.add_credits_due(from);
        }
    }

    /// Notes that a node is to be told of the credits that it is owed.
    pub(crate) fn add_credits_due(&self, to: u32) {
        let its = to + 1;
        let before = self.credits_due.compare_exchange(0, its, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err_and(|other| other != its) {
            self.credits_due.store(SEVERAL, Ordering::Release);
        }
    }

    /// The nodes among which are all that are to be told, which is left to the caller.
    #[inline]
    pub(crate) fn take_credits_due(&self) -> Range<u32> {
        if self.credits_due.load(Ordering::Acquire) == 0 {
            return 0..0;
        }
        match self.credits_due.swap(0, Ordering::AcqRel) {
            0 => 0..0,
            SEVERAL => 0..self.peers.len() as u32,
            its => its - 1..its,
        }
    }

    /// Queues something: among the calling thread's [`Own`] if that thread extracts, and nothing that came
    /// before waits.
    #[inline]
    pub(crate) fn push(&self, arrival: Arrival) {
        let turn = self.turn.load(Ordering::Relaxed);
        let arrival = if turn == 0 || self.queued.load(Ordering::Relaxed) > 0 {
            Some(arrival)
        } else {
            Own::push(self.place(), turn, arrival)
        };
        let Some(arrival) = arrival else { return };
        let mut queue = lock(&self.queue);
        queue.push_back(arrival);
        self.queued.store(queue.len(), Ordering::Release);
    }

    /// Takes what has waited for longest, on the thread that extracts.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Arrival> {
        Own::pop(self.place()).or_else(|| self.pop_shared())
    }

    /// Where it lies, which tells instances of the layer apart.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes what has waited for longest, where nobody extracts.
    #[inline]
    pub(crate) fn pop_shared(&self) -> Option<Arrival> {
        if !self.has_queued() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let arrival = queue.pop_front();
        self.queued.store(queue.len(), Ordering::Release);
        arrival
    }

    /// Puts back what was taken last, before what else the calling thread has queued.
    #[cold]
    pub(crate) fn put_back(&self, arrival: Arrival) {
        self.share_own();
        self.push_front(std::iter::once(arrival));
    }

    /// Lets all threads take what the calling one has queued.
    #[inline]
    fn share_own(&self) {
        let own = Own::take_all(self.place());
        if !own.is_empty() {
            self.push_front(own.into_iter());
        }
    }

    #[cold]
    fn push_front(&self, arrivals: impl DoubleEndedIterator<Item = Arrival>) {
        let mut queue = lock(&self.queue);
        arrivals.rev().for_each(|arrival| queue.push_front(arrival));
        self.queued.store(queue.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire) > 0
    }

    /// Gives up all messages that a handler's run began and has not ended. Their receivers are told later.
    #[cold]
    pub(crate) fn give_up_of(&self, run: u64) {
        for peer in &self.peers {
            if peer.outgoing.is_open_by(run) {
                self.give_up(peer);
            }
        }
    }

    /// Gives up the message that is open. Where its receiver knows of it, telling that is left to be done.
    pub(crate) fn give_up(&self, peer: &Peer) {
        if peer.outgoing.is_half_sent() && !peer.is_lost.load(Ordering::Relaxed) {
            self.cuts_due.fetch_add(1, Ordering::Relaxed);
            peer.outgoing.give_up(&peer.credits);
        } else {
            peer.outgoing.close(&peer.credits);
        }
    }

    /// Numbers a handler's run, on the thread that extracts.
    #[inline]
    pub(crate) fn next_run(&self) -> u64 {
        Counters::bump(&self.runs, 1)
    }

    /// The right to extract, for the calling thread, which has that token: `None` while another one has it.
    #[inline]
    pub(crate) fn turn(&self, thread: u64) -> Option<Turn<'_>> {
        if thread == 0 {
            // It ends, and has no token any more.
            return None;
        }
        match self.turn.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Turn { of: Some(self) }),
            Err(holder) if holder == thread => Some(Turn { of: None }),
            Err(_) => None,
        }
    }

    /// Tells a message's thread that its handler can go on.
    pub(crate) fn add_ready(&self, stream: &Arc<Stream>) {
        let mut ready = lock(&self.ready);
        if !ready.iter().any(|it| it.run == stream.run) {
            ready.push(Arc::clone(stream));
        }
        self.has_ready.store(true, Ordering::Release);
    }

    /// Takes the first message of a thread's whose handler can go on.
    #[inline]
    pub(crate) fn take_ready(&self, thread: u64) -> Option<Arc<Stream>> {
        if !self.has_ready.load(Ordering::Acquire) {
            return None;
        }
        let mut ready = lock(&self.ready);
        let at = ready.iter().position(|it| it.thread == thread)?;
        let stream = ready.remove(at);
        self.has_ready.store(!ready.is_empty(), Ordering::Release);
        Some(stream)
    }

    /// Throws away what handlers that wait have of messages, and what comes for them.
    #[cold]
    pub(crate) fn discard_streams(&self) {
        let ready = std::mem::take(&mut *lock(&self.ready));
        let open = self.peers.iter().filter_map(|peer| lock(&peer.incoming).stream.clone());
        ready.into_iter().chain(open).for_each(|stream| {
            (0..stream.discard()).for_each(|_| self.consumed(stream.from));
        });
    }
}

/// While it lives, no other thread extracts.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    /// `None` of one within another of the same thread.
    of: Option<&'a Shared>,
}

/// Gives all threads what this one has queued and not taken.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.of {
            shared.share_own();
            shared.turn.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrival::Arrived;
    use super::*;

    #[test]
    fn one_thread_has_the_turn_and_may_nest() {
        let shared = Shared::new(2);
        let outer = shared.turn(7).expect("nobody has it");
        drop(shared.turn(7).expect("it is the same thread's"));
        assert!(shared.turn(8).is_none());
        drop(outer);
        assert!(shared.turn(8).is_some());
    }

    #[test]
    fn what_waits_keeps_its_order_when_the_turn_ends() {
        let (shared, arrival) = (Shared::new(9), |from| Arrival { from, what: Arrived::Cut });
        let turn = shared.turn(Own::token()).expect("nobody has it");
        (1..3).for_each(|from| shared.push(arrival(from)));
        assert!(!shared.has_queued(), "they are this thread's own");
        std::thread::scope(|scope| _ = scope.spawn(|| shared.push(arrival(3))));
        shared.push(arrival(4));
        let first = shared.pop().expect("four wait");
        shared.put_back(first);
        drop(turn);
        let order: Vec<_> = std::iter::from_fn(|| shared.pop_shared()).map(|it| it.from).collect();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    #[test]
    fn a_turn_that_ends_leaves_all_to_everybody() {
        let (shared, arrival) = (Shared::new(9), |from| Arrival { from, what: Arrived::Cut });
        let turn = shared.turn(Own::token()).expect("nobody has it");
        (1..3).for_each(|from| shared.push(arrival(from)));
        drop(turn);
        assert!(shared.has_queued() && shared.turn(0).is_none());
        let order: Vec<_> = std::iter::from_fn(|| shared.pop_shared()).map(|it| it.from).collect();
        assert_eq!(order, [1, 2]);
    }

    #[test]
    fn each_thread_is_told_of_its_own() {
        let shared = Shared::new(2);
        for (run, thread) in [(10, 1), (20, 2), (11, 1), (10, 1)] {
            shared.add_ready(&Arc::new(Stream::new(run, thread, 0)));
        }
        let take = |thread| shared.take_ready(thread).map(|stream| stream.run);
        assert_eq!([1, 1, 1, 2, 2].map(take), [Some(10), Some(11), None, Some(20), None]);
    }

    #[test]
    fn all_that_are_to_be_told_of_credits_are_among_those() {
        let shared = Shared::new(5);
        assert_eq!(shared.take_credits_due(), 0..0);
        (0..2).for_each(|_| shared.add_credits_due(3));
        assert_eq!((shared.take_credits_due(), shared.take_credits_due()), (3..4, 0..0));
        [4, 0, 4].into_iter().for_each(|node| shared.add_credits_due(node));
        assert_eq!((shared.take_credits_due(), shared.take_credits_due()), (0..5, 0..0));
    }
}
