//! The node's state: the table of operations under way, and messages that wait for room. Nothing here decides what an
//! operation does next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashSet;
use slotmap::SlotMap;

use super::collective::small::state::Exchange;
use super::collective::state::{Run, Teams};
use super::registration::state::Registrar;
use super::transfer::bounce_pool::{Relay, Stages};
use super::transfer::fast_table::Hits;
use super::transfer::state::{After, HeldStart, Keyed, Part, Transfer};
use super::waiting::Waiting;
use crate::exposure::Ranges;
use crate::op_id::{OpId, OpKey};
use crate::wire::Message;
use crate::{Counters, Lane, Nanos, OpError, Rank, SendError, Transport};

/// The rank that keeps the barrier's counter.
pub const KEEPER: Rank = 0;

/// Pieces in the lists of a transfer whose memory is kept for later ones, at most.
const SPARE_PIECES_MAX: usize = 1024;

/// One process's operations over one transport. Not for sharing: one thread at a time.
pub struct Node<T> {
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) handlers: u16,
    pub(super) transport: T,
    /// Operations under way, but for transfers that hit.
    pub(super) ops: SlotMap<OpKey, Op>,
    /// None of them has a deadline before this: so that whoever goes to sleep need not look at all.
    pub(super) none_due_before: Nanos,
    pub(super) hits: Hits,
    pub(super) pending: usize,
    /// By peer: transfers that found the lane full and go on at a later poll, in turn.
    pub(super) stalled: Waiting<Rank, OpKey>,
    /// Messages without payload that found the lane full.
    pub(super) outbox: VecDeque<(Rank, Lane, Message)>,
    pub(super) unsent: Unsent,
    pub(super) barrier: Barrier,
    pub(super) teams: Teams,
    /// A collective by rounds, for whoever polls for it just now.
    pub(super) exchange: Exchange,
    pub(super) stages: Stages,
    pub(super) lost: BTreeMap<Rank, Lost>,
    /// How many processes of its rank came before a peer's, where any did.
    pub(super) incarnations: BTreeMap<Rank, u32>,
    /// The first failure of an operation that nobody waits for.
    pub(super) detached_error: Option<OpError>,
    /// What is registered, where the transport needs that.
    pub(super) registrar: Option<Box<Registrar>>,
    /// What of its private memory peers may reach by messages and keys; `None`: everything.
    pub(super) exposed: Option<Box<Ranges>>,
    /// Transfers that can go on.
    pub(super) ready: VecDeque<OpKey>,
    /// Puts that wait until nothing is held back any more.
    pub(super) held: Vec<OpKey>,
    /// Puts and atomics without a key likewise, and this rank's arrival at the barrier.
    pub(super) held_starts: Vec<(OpKey, HeldStart)>,
    pub(super) held_arrival: bool,
    /// The registration table may want something done.
    pub(super) actions_due: bool,
    /// Somebody is at it.
    pub(super) acting: bool,
    pub(super) scratch: Vec<u8>,
    /// Transfers by keys and parts of them that are over, for those to come: as many as were ever under way at once, but
    /// those with long lists.
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    pub(super) spare_keyed: Vec<Box<Keyed>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    pub(super) spare_parts: Vec<Box<Part>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    pub(super) spare_transfers: Vec<Box<Transfer>>,
    /// For lanes that are found full while others are tried.
    pub(super) full: HashSet<(Rank, Lane)>,
    /// Polls in turn that brought news.
    pub(super) busy_polls: u32,
    pub(super) counters: Counters,
}

/// What became of a peer that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It is gone: nothing is sent to it.
    Gone,
    /// Another process has its rank, and is answered. The program has not been told: it starts nothing there.
    Replaced,
}

/// How an operation ended: an atomic's old word (0 for everything else), or why it failed.
pub type Outcome = Result<u64, OpError>;

/// One operation.
pub(super) struct Op {
    pub(super) kind: OpKind,
    pub(super) deadline: Option<Nanos>,
    pub(super) outcome: Option<Outcome>,
    /// Nobody will ask for the outcome: `quiet` reports it if it is a failure.
    pub(super) detached: bool,
    /// The transfer that it is part of, which is told how it ended.
    pub(super) parent: Option<OpKey>,
}

/// What an operation is doing.
pub(super) enum OpKind {
    /// A one-sided operation that the transport will report, and what comes after it.
    OneSided { peer: Rank, after: Option<Box<After>> },
    /// A transfer by messages.
    Transfer(Box<Transfer>),
    /// What moves pieces of one through the peer's heap.
    Relay(Relay),
    /// A transfer by keys.
    Keyed(Box<Keyed>),
    /// A part of one, that the transport will report.
    Part(Box<Part>),
    /// Counting this process in at the barrier.
    BarrierArrival { epoch: u64 },
    /// Looking how many have arrived at the barrier.
    BarrierCount,
    /// Waiting for the barrier to open.
    BarrierWait,
    /// A collective of a team; `None` while somebody is at it, and once it is over.
    Collective(Option<Box<Run>>),
}

impl OpKind {
    /// The peer that the operation is with; the barrier is with the rank that keeps its counter.
    pub(super) fn peer(&self) -> Rank {
        match self {
            OpKind::OneSided { peer, .. } => *peer,
            OpKind::Transfer(transfer) => transfer.peer,
            OpKind::Relay(relay) => relay.peer,
            OpKind::Keyed(keyed) => keyed.peer,
            OpKind::Part(part) => part.peer,
            OpKind::BarrierArrival { .. } | OpKind::BarrierCount | OpKind::BarrierWait => KEEPER,
            OpKind::Collective(run) => run.as_ref().map_or(KEEPER, |run| run.awaits()),
        }
    }

    /// Whether the operation cannot complete without `peer`.
    pub(super) fn needs(&self, peer: Rank) -> bool {
        match self {
            // Whether it can still open is a matter of who has arrived: see `Node::recount`.
            OpKind::BarrierWait => false,
            // It ends with its team: see `Node::break_teams_of`.
            OpKind::Collective(_) => false,
            // It ends when the transport says so, whatever becomes of its transfer.
            OpKind::Part(_) => false,
            _ => self.peer() == peer,
        }
    }

    fn is_transfer(&self) -> bool {
        matches!(self, OpKind::OneSided { .. } | OpKind::Transfer(_) | OpKind::Keyed(_))
    }
}

/// What is to be told about the barrier and could not be sent, though the peers are not lost: those would wait for ever.
/// One message a peer: that the last barrier is open, as nobody waits for an earlier one any more, or that none will
/// open again, which makes the peer look itself whether the last one is.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) news: BTreeMap<Rank, Message>,
    /// Polls until they are tried again.
    pub(super) polls_left: u32,
    /// What `polls_left` started from: it doubles with each trial in vain.
    pub(super) pause: u32,
}

/// How far this rank has come with barriers.
#[derive(Default)]
pub(super) struct Barrier {
    /// Barriers that this rank has arrived at.
    pub(super) arrived: u64,
    /// The last barrier known to be open.
    pub(super) opened: u64,
    /// Barriers whose opening this rank's caller has been told of. A barrier may open after a wait for it timed out;
    /// the next call is then still about that one.
    pub(super) passed: u64,
    /// Why this rank could not be counted in: no later barrier can work either.
    pub(super) broken: Option<OpError>,
    /// Ranks whose first process is lost. Others may have their ranks by now; the barrier is not theirs.
    pub(super) lost: BTreeSet<Rank>,
}

impl<T: Transport> Node<T> {
    /// A node of rank `rank` in a job of `size`, with `handlers` Active-Message handlers. Peers may have numbers from `size`
    /// on: they are no part of the job, and neither meet at its barrier nor break it.
    ///
    /// # Panics
    /// When `rank` is not below `size`.
    pub fn new(rank: Rank, size: u32, handlers: u16, transport: T) -> Node<T> {
        assert!(rank < size, "rank {rank} is not below the job's size {size}");
        let scratch = vec![0; transport.payload_max()];
        Node {
            rank,
            size,
            handlers,
            transport,
            ops: SlotMap::with_key(),
            hits: Hits::default(),
            none_due_before: Nanos::MAX,
            pending: 0,
            stalled: Waiting::default(),
            outbox: VecDeque::new(),
            unsent: Unsent::default(),
            barrier: Barrier::default(),
            teams: Teams::new(size),
            exchange: Exchange::default(),
            stages: Stages::default(),
            lost: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            detached_error: None,
            registrar: None,
            exposed: None,
            ready: VecDeque::new(),
            held: Vec::new(),
            held_starts: Vec::new(),
            held_arrival: false,
            actions_due: false,
            acting: false,
            scratch,
            spare_keyed: Vec::new(),
            spare_parts: Vec::new(),
            spare_transfers: Vec::new(),
            full: HashSet::new(),
            busy_polls: 0,
            counters: Counters::default(),
        }
    }

    /// As it is, for a process that has the rank of one that was lost: there is no barrier for it.
    #[must_use]
    pub fn as_replacement(mut self) -> Node<T> {
        self.barrier.lost.insert(self.rank);
        self.break_teams_of(self.rank);
        self
    }

    /// The transport, for what only its owner knows how to ask of it.
    #[inline]
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// What this node has done so far, except for operations that never entered it.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes an operation's outcome, once it has one; the id means nothing afterwards. An id that means nothing
    /// gives `None`.
    #[inline]
    pub fn outcome(&mut self, id: OpId) -> Option<Outcome> {
        match id.hit() {
            Some(hit) => self.hits.take(hit),
            None => self.other_outcome(id.key()),
        }
    }

    #[inline(never)]
    fn other_outcome(&mut self, key: OpKey) -> Option<Outcome> {
        let outcome = self.ops.get(key)?.outcome?;
        self.discard(key);
        Some(outcome)
    }

    /// Takes an operation that is over out of the table, and keeps its lists for others.
    fn discard(&mut self, key: OpKey) {
        // A list of thousands is one program's one transfer: it need not stay for good.
        match self.ops.remove(key).map(|op| op.kind) {
            Some(OpKind::Keyed(keyed))
                if keyed.todo.capacity().max(keyed.pins.capacity()) <= SPARE_PIECES_MAX =>
            {
                self.spare_keyed.push(keyed);
            }
            Some(OpKind::Transfer(transfer)) if transfer.rest.capacity() <= SPARE_PIECES_MAX => {
                self.spare_transfers.push(transfer);
            }
            _ => {}
        }
    }

    /// Whether the operation's outcome is there to be taken.
    pub fn is_done(&self, id: OpId) -> bool {
        if let Some(hit) = id.hit() {
            return self.hits.is_done(hit);
        }
        self.ops.get(id.key()).is_some_and(|op| op.outcome.is_some())
    }

    /// Whether nothing more comes of the operation: its outcome is there, has been taken, or is nobody's.
    pub fn is_over(&self, id: OpId) -> bool {
        match id.hit() {
            Some(hit) => !self.hits.is_under_way(hit),
            None => self.ops.get(id.key()).is_none_or(|op| op.outcome.is_some()),
        }
    }

    /// Whether the operation no longer needs its local buffers: it is done, or is a put whose bytes have all left.
    pub fn is_locally_done(&self, id: OpId) -> bool {
        if let Some(hit) = id.hit() {
            return !self.hits.is_under_way(hit);
        }
        self.ops.get(id.key()).is_none_or(|op| match &op.kind {
            _ if op.outcome.is_some() => true,
            OpKind::Transfer(transfer) => transfer.is_locally_done(),
            // It was given up, and nobody has it any more.
            OpKind::Part(_) => op.parent.is_none(),
            _ => false,
        })
    }

    /// Gives an operation to nobody: it goes on, and if it fails the next [`Node::take_detached_error`] says so.
    pub fn detach(&mut self, id: OpId) {
        if let Some(hit) = id.hit() {
            return self.detach_hit(hit);
        }
        let Some(op) = self.ops.get_mut(id.key()) else { return };
        op.detached = true;
        if let Some(outcome) = op.outcome {
            self.discard(id.key());
            self.note_detached(outcome);
        }
    }

    /// Ends an operation now, as if its deadline had passed: its buffers are touched no more.
    pub fn cancel(&mut self, id: OpId) {
        if let Some(hit) = id.hit() {
            return self.cancel_hit(hit);
        }
        let Some(op) = self.ops.get(id.key()).filter(|op| op.outcome.is_none()) else { return };
        if let OpKind::Part(_) = op.kind {
            // It was given up before.
            return;
        }
        let peer = op.kind.peer();
        self.give_up(id.key(), OpError::Timeout { peer });
    }

    /// Operations under way, barriers and collectives not counted.
    pub fn in_flight(&self) -> usize {
        self.pending
    }

    /// A peer that some operation under way is with; `None` where only barriers and collectives are, or nothing.
    pub fn awaited(&self) -> Option<Rank> {
        let mut ops = self.ops.values().filter(|op| op.outcome.is_none() && op.kind.is_transfer());
        let hit = || self.hits.under_way().next().map(|(_, peer, _)| peer);
        ops.next().map(|op| op.kind.peer()).or_else(hit)
    }

    /// The first failure among detached operations since the last call.
    pub fn take_detached_error(&mut self) -> Option<OpError> {
        self.detached_error.take()
    }

    #[inline]
    pub(super) fn insert(&mut self, kind: OpKind, deadline: Option<Nanos>) -> OpKey {
        self.pending += usize::from(kind.is_transfer());
        self.none_due_before = self.none_due_before.min(deadline.unwrap_or(Nanos::MAX));
        self.ops.insert(Op { kind, deadline, outcome: None, detached: false, parent: None })
    }

    /// As [`Node::insert`], for what is only part of a transfer.
    pub(super) fn insert_child(&mut self, kind: OpKind, parent: OpKey) -> OpKey {
        self.ops.insert(Op { kind, deadline: None, outcome: None, detached: false, parent: Some(parent) })
    }

    /// Records an operation's outcome; later news of it is ignored.
    #[inline]
    pub(super) fn finish(&mut self, key: OpKey, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(key).filter(|op| op.outcome.is_none()) else { return };
        op.outcome = Some(outcome);
        let (parent, detached) = (op.parent, op.detached);
        self.pending -= usize::from(parent.is_none() && op.kind.is_transfer());
        if parent.is_some() || detached {
            self.pass_on(key, parent, outcome);
        }
    }

    /// Tells the transfer that an operation was part of how it ended, or notes it, where nobody else asks.
    #[inline(never)]
    fn pass_on(&mut self, key: OpKey, parent: Option<OpKey>, outcome: Outcome) {
        self.discard(key);
        match parent {
            Some(parent) if self.on_read(parent, key, outcome.map(drop)) => {}
            Some(parent) => self.on_child(parent, outcome),
            None => self.note_detached(outcome),
        }
    }

    /// Ends an operation that the transport or the peer may still be at.
    pub(super) fn give_up(&mut self, key: OpKey, error: OpError) {
        match self.ops.get(key).map(|op| &op.kind) {
            Some(OpKind::OneSided { .. }) => self.transport.abandon(OpId::of(key)),
            // Nobody asks for its outcome, and it would lie in the table for ever.
            Some(OpKind::BarrierArrival { .. } | OpKind::BarrierCount) => drop(self.ops.remove(key)),
            Some(OpKind::Keyed(_)) => self.abandon_keyed(key),
            Some(OpKind::Collective(_)) => return self.give_up_collective(key, error),
            Some(OpKind::Transfer(_)) => self.orphan_relays(key),
            Some(OpKind::Relay(_)) => return self.drop_relay(key, error),
            Some(OpKind::Part(_) | OpKind::BarrierWait) | None => {}
        }
        self.finish(key, Err(error));
    }

    pub(super) fn note_detached(&mut self, outcome: Outcome) {
        if let (Err(error), None) = (outcome, self.detached_error) {
            self.detached_error = Some(error);
        }
    }

    /// Whether the peer is known to be gone. Should another process have its rank, so it is until
    /// [`Node::take_replaced`] has told of that.
    pub fn is_lost(&self, peer: Rank) -> bool {
        self.lost.contains_key(&peer)
    }

    /// The peers of which [`Node::is_lost`] says so, in order.
    pub fn lost_peers(&self) -> impl Iterator<Item = Rank> {
        self.lost.keys().copied()
    }

    /// Whether the process that the peer was is gone, and none has taken its place.
    pub(super) fn is_gone(&self, peer: Rank) -> bool {
        self.lost.get(&peer) == Some(&Lost::Gone)
    }

    /// How many processes had the peer's rank before the one that has it, as far as this node has heard.
    pub fn incarnation_of(&self, peer: Rank) -> u32 {
        self.incarnations.get(&peer).copied().unwrap_or(0)
    }

    /// Tells of a peer whose rank is another process's now, each time that happens once. The process that it was is
    /// lost; what is started with the peer from here on reaches the new one, where no address means what it did.
    /// Until this has told of it, operations with the peer end with [`OpError::PeerLost`]: nobody puts into the new
    /// process what was meant for the old. Active Messages of the new one are delivered nonetheless; who asks after
    /// each poll hears of it first.
    #[inline]
    pub fn take_replaced(&mut self) -> Option<Rank> {
        if self.lost.is_empty() { None } else { self.next_replaced() }
    }

    fn next_replaced(&mut self) -> Option<Rank> {
        let (&peer, _) = self.lost.iter().find(|(_, lost)| **lost == Lost::Replaced)?;
        self.lost.remove(&peer);
        Some(peer)
    }

    /// Sends what waits in the outbox, in order within each (peer, lane). Returns whether anything moved. What fails is
    /// an announcement of an operation that has ended: `quiet` reports it.
    pub(super) fn drain_outbox(&mut self) -> bool {
        if self.holds_back() {
            return false;
        }
        let before = self.outbox.len();
        let transport = &mut self.transport;
        let (unsent, detached_error) = (&mut self.unsent, &mut self.detached_error);
        let full = &mut self.full;
        full.clear();
        let mut failed = Vec::new();
        self.outbox.retain(|(peer, lane, message)| {
            // A lane that was full may have room again by now; what comes later must still not overtake.
            if full.contains(&(*peer, *lane)) {
                return true;
            }
            let error = match transport.send(*peer, *lane, &message.encode(0), &[]) {
                Err(SendError::Busy) => return full.insert((*peer, *lane)),
                Err(SendError::Failed(error)) => error,
                Ok(()) => return false,
            };
            match message {
                Message::BarrierOpen { .. } | Message::BarrierBroken { .. } => unsent.keep(*peer, *message),
                Message::Stage(ask) => failed.push((ask.op, error)),
                // Whoever is gone has its stage back.
                Message::StageGive { .. } => {}
                _ => _ = detached_error.get_or_insert(error),
            }
            false
        });
        let moved = self.outbox.len() < before;
        failed.into_iter().for_each(|(op, error)| self.on_unsent_request(op, error));
        moved
    }

    pub(super) fn waits_in_outbox(&self, peer: Rank, lane: Lane) -> bool {
        self.outbox.iter().any(|(to, by, _)| (*to, *by) == (peer, lane))
    }

    /// Sends a message without payload now, or as soon as the lane has room.
    pub(super) fn send_soon(&mut self, peer: Rank, lane: Lane, message: Message) -> Result<(), OpError> {
        if self.is_gone(peer) {
            return Err(OpError::PeerLost { peer });
        }
        let sent = if self.waits_in_outbox(peer, lane) || self.must_wait(peer, lane) {
            Err(SendError::Busy)
        } else {
            self.transport.send(peer, lane, &message.encode(0), &[])
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Busy) => self.outbox.push_back((peer, lane, message)),
            Err(SendError::Failed(error)) => return Err(error),
        }
        Ok(())
    }
}
