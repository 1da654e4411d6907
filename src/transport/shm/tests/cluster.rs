//! Whole jobs of engines over shared memory, in one process, driven by one thread.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conformance::Cluster;
use conformance::cluster::HANDLERS;
use engine::{
    Atomic, Counters, Direction, Event, HEAD_WORDS, Header, Inbox, Lane, Mechanism, Nanos, Node, OpError,
    OpId, Operation, PathReason, Piece, Place, Rank, SendError, Submit, Transport,
};
use vm::fault_safe_copy::CheckedCopy;
use vm::{FenceMode, SharedMemory};

use crate::api::config::Config;
use crate::api::open::Seat;
use crate::job::launched::{Broker, Notice};
use crate::transport::peers::Peers;
use crate::transport::shm::control::FENCES_AT;
use crate::transport::shm::{Control, OwnMemory, ShmTransport};
use crate::transport::tests::{Memory, NOWHERE, read_only};

/// How long news of a loss may take.
const NEWS_WITHIN: Duration = Duration::from_secs(20);

/// More than a case allocates, and the heap's own share of the directory.
pub(super) const HEAP_BYTES: u64 = 16 << 20;

/// What the suite runs in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Private memory goes by message.
    pub(super) attach_never: bool,
    /// Nobody counts on the others' heavy fences.
    pub(super) fences_symmetric: bool,
    /// Rings whose sender keeps talking are polled; otherwise everything comes with the doorbell.
    pub(super) polls: bool,
}

/// The transport, and what the library's callers count beside it: copies that are complete at once.
pub(super) struct Counted {
    shm: ShmTransport,
    counters: Counters,
}

impl Counted {
    /// As a thread does that is about to sleep.
    pub(super) fn prepare_sleep(&mut self) {
        self.shm.arm_doorbell();
    }
}

impl Transport for Counted {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.shm.send(peer, lane, header, payload)
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        self.shm.poll(inbox).or_else(|| {
            // As a thread does that waits.
            self.shm.spin(2);
            self.shm.poll(inbox)
        })
    }

    fn read_held(&mut self, at: usize, into: &mut [u8]) {
        self.shm.read_held(at, into);
    }

    fn copy_held(&mut self, at: usize, len: usize, to: Place) -> Result<(), OpError> {
        self.shm.copy_held(at, len, to)
    }

    fn take_like(
        &mut self,
        peer: Rank,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        self.shm.take_like(peer, head)
    }

    fn give_up_offers(&mut self) {
        self.shm.give_up_offers();
    }

    fn offers_given_up(&self, peer: Rank) -> Option<u32> {
        self.shm.offers_given_up(peer)
    }

    fn disconnect(&mut self, peer: Rank) {
        self.shm.disconnect(peer);
    }

    fn suspect(&mut self, peer: Rank) {
        self.shm.suspect(peer);
    }

    fn payload_max(&self) -> usize {
        self.shm.payload_max()
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        self.shm.read(from, into)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        self.shm.write(to, from)
    }

    fn change_own(&mut self, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        self.shm.change_own(word, atomic)
    }

    fn reaches(&mut self, peer: Rank, pieces: &[Piece]) -> Result<(), PathReason> {
        self.shm.reaches(peer, pieces)
    }

    fn copy(&mut self, op: OpId, peer: Rank, direction: Direction, pieces: &[Piece]) -> Submit {
        let submit = self.shm.copy(op, peer, direction, pieces);
        if matches!(submit, Submit::Done(_)) {
            let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
            let bytes = pieces.iter().map(|piece| piece.len).sum();
            self.counters.add(operation, Mechanism::Mapped, bytes);
        }
        submit
    }

    fn abandon(&mut self, op: OpId) -> bool {
        self.shm.abandon(op)
    }

    fn bounce_bytes(&self) -> u64 {
        self.shm.bounce_bytes()
    }

    fn make_bounce_buffer(&mut self) -> Option<u64> {
        self.shm.make_bounce_buffer()
    }

    fn reaches_bounce_buffers(&mut self, peer: Rank) -> bool {
        self.shm.reaches_bounce_buffers(peer)
    }

    fn copy_bounced(&mut self, op: OpId, peer: Rank, direction: Direction, piece: Piece) -> Submit {
        self.shm.copy_bounced(op, peer, direction, piece)
    }

    fn copy_own(&mut self, from: Place, to: Place, len: u64) -> Result<(), OpError> {
        self.shm.copy_own(from, to, len)
    }

    fn atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: engine::Atomic) -> Submit {
        self.shm.atomic(op, peer, word, atomic)
    }
}

/// One process's part, were it a process.
struct Member {
    seat: Seat,
    node: Node<Counted>,
    notices: Receiver<Notice>,
    /// Losses that the engine has not been told.
    losses: Vec<Rank>,
    memory: Memory,
}

/// Nodes over [`ShmTransport`], each with segments and a membership of its own.
pub(super) struct ShmCluster {
    members: Vec<Member>,
    epoch: Instant,
    _broker: Broker,
}

impl ShmCluster {
    pub(super) fn new(size: u32, setting: Setting) -> ShmCluster {
        let broker = Broker::start(size).expect("a broker");
        let members: Vec<Member> = (0..size).map(|rank| Member::join(&broker, rank, setting)).collect();
        for member in &members {
            // The suite counts rounds of polling, and a busy machine may take many of them to introduce two
            // ranks.
            for peer in 0..size {
                member.seat.peers.get(peer, None).expect("all have joined");
            }
        }
        ShmCluster { members, epoch: Instant::now(), _broker: broker }
    }

    /// How `rank` keeps its messages to `peer` in order with its look at the attention that `peer` pays.
    pub(super) fn fence(&self, rank: Rank, peer: Rank) -> FenceMode {
        let peer = self.members[rank as usize].seat.peers.get(peer, None).expect("it has joined");
        peer.near().expect("all are on one host").fence
    }

    pub(super) fn peers(&self, rank: Rank) -> &Peers {
        &self.members[rank as usize].seat.peers
    }

    /// A control segment, all of it open.
    /// As if the system had refused a rank the spill areas of its rings with a peer.
    pub(super) fn refuse_spills(&mut self, rank: Rank, peer: Rank) {
        let pair = &mut self.node(rank).transport().shm.pairs[peer as usize];
        pair.as_mut().expect("they have talked").is_spill_refused = true;
    }

    pub(super) fn control(&self, rank: Rank) -> Control {
        let control = self.members[rank as usize].seat.peers.own().control.clone();
        control.memory();
        control
    }

    pub(super) fn heap_memory(&self, rank: Rank) -> &SharedMemory {
        self.members[rank as usize].seat.heap.segment().memory()
    }

    fn member(&mut self, rank: Rank) -> &mut Member {
        &mut self.members[rank as usize]
    }
}

impl Member {
    fn join(broker: &Broker, rank: Rank, setting: Setting) -> Member {
        let config = Config::new().heap_bytes(HEAP_BYTES);
        let config = if setting.attach_never { config.attach_never() } else { config };
        let (tell, notices) = channel();
        let env = broker.env(rank);
        let on_notice = Box::new(move |notice| {
            let _ = tell.send(notice);
        });
        let seat = Seat::take(&config, Some(&env), None, on_notice).expect("a place in the job");
        if setting.fences_symmetric {
            let control = seat.peers.own().control.memory();
            control.store(FENCES_AT, 0_u64).expect("a word of the first page");
        }
        let sleepers = Arc::new(AtomicU32::new(0));
        let checked = CheckedCopy::new().expect("a scratch file");
        let own = OwnMemory::new(Arc::clone(seat.peers.itself()), checked)
            .with_bounce_buffers(Arc::clone(&seat.heap));
        let shm = ShmTransport::new(Arc::clone(&seat.peers), sleepers, setting.polls, own);
        let transport = Counted { shm, counters: Counters::default() };
        let node = Node::new(rank, env.size(), HANDLERS, transport);
        let memory = Memory::new(Arc::clone(&seat.heap));
        Member { seat, node, notices, losses: Vec::new(), memory }
    }

    /// Takes a notice, and keeps the loss for the engine, if it tells of one.
    fn note(&mut self, notice: &Notice) -> Option<Rank> {
        let rank = match notice {
            Notice::Lost { rank, .. } => *rank,
            // All nodes make progress when the suite says so.
            Notice::Serve | Notice::Look => return None,
            Notice::BrokerGone => panic!("the broker is here"),
        };
        if self.seat.peers.lose(rank) {
            self.losses.push(rank);
        }
        Some(rank)
    }
}

impl Cluster for ShmCluster {
    type Transport = Counted;

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn node(&mut self, rank: Rank) -> &mut Node<Counted> {
        &mut self.member(rank).node
    }

    fn private(&mut self, rank: Rank, len: usize) -> Place {
        self.member(rank).memory.private(len)
    }

    fn heap(&mut self, rank: Rank, len: usize) -> Place {
        self.member(rank).memory.heap(len)
    }

    /// Only at targets: the library hands the transport local memory that is borrowed, and hence there. Rank
    /// 0 is whose transfers the suite looks at.
    fn inaccessible(&mut self, rank: Rank) -> Option<Place> {
        (rank != 0).then_some(NOWHERE)
    }

    fn read_only(&mut self, _rank: Rank) -> Option<Place> {
        Some(read_only())
    }

    fn peek(&mut self, rank: Rank, from: Place, into: &mut [u8]) {
        self.member(rank).memory.peek(from, into);
    }

    fn poke(&mut self, rank: Rank, to: Place, from: &[u8]) {
        self.member(rank).memory.poke(to, from);
    }

    fn step(&mut self) {
        for member in &mut self.members {
            for lost in std::mem::take(&mut member.losses) {
                member.node.lose(lost);
            }
        }
    }

    /// Takes leave without a word to the peers, and waits until the broker has told them.
    fn kill(&mut self, rank: Rank) {
        self.member(rank).seat.peers.leave();
        let gone: Vec<Rank> = self.member(rank).seat.peers.lost_ranks();
        for (other, member) in self.members.iter_mut().enumerate() {
            if other as Rank == rank || gone.contains(&(other as Rank)) {
                continue;
            }
            while {
                let notice = member.notices.recv_timeout(NEWS_WITHIN).expect("news of the loss");
                member.note(&notice) != Some(rank)
            } {}
        }
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    fn counters(&mut self, rank: Rank) -> Counters {
        let node = self.node(rank);
        let mut counters = node.counters().clone();
        counters.merge(&node.transport().counters);
        counters
    }
}
