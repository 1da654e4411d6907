//! A peer that writes anything anywhere it can reach, between any two steps of its victim.
//!
//! Rank 0 is the victim, rank 1 the scribbler, which now and then also behaves, rank 2 an honest bystander
//! whose messages the scribbler forges too. Whatever happens: no panic, no wait without an end, no byte
//! changed that was not offered, and every operation of the victim ends with a value or an error.

use std::sync::atomic::Ordering;

use conformance::Cluster;
use engine::node::{AmBody, Polled};
use engine::{
    AmSend, Atomic, Delivery, Direction, Header, Inbox, Lane, MemId, OpError, OpId, Outcome, Piece, Place,
    Rank, SendError,
};
use proptest::prelude::*;
use vm::SharedMemory;

use super::cluster::{HEAP_BYTES, Setting, ShmCluster};
use crate::transport::shm::control::{BELL_AT, RING};
use crate::transport::tests::NOWHERE;

const VICTIM: Rank = 0;
const SCRIBBLER: Rank = 1;
const RANKS: u32 = 3;

/// Bytes of the victim's buffers, and of what lies around them.
const LEN: u64 = 20_000;
const GUARD: u64 = 256;

/// Events that one poll of the test takes, at most.
const EVENTS: usize = 64;

/// A part of a control segment.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Identity, live bytes, the barrier's counter.
    Head,
    Bell,
    Ring(Rank, Lane),
    Baton(Rank),
    Anywhere,
}

#[derive(Clone, Debug)]
enum Act {
    /// A word of some rank's control segment.
    Control { of: Rank, part: Part, at: usize, value: u64 },
    /// A word of some rank's heap.
    Heap { of: Rank, at: u64, value: u64 },
    /// A whole message where the victim looks for the next ones, and a ring of its bell.
    Forge { from: Rank, lane: Lane, slot: usize, sequence: u32, len: u32, body: [u64; 7] },
    /// The same in the line that changes hands.
    Hand { from: Rank, number: u32, len: u32, mark: u32, body: [u64; 7] },
    /// The victim starts an operation.
    Start { kind: u8, peer: Rank, offset: u64, len: u64, heap: bool },
    /// One rank makes progress.
    Poll { rank: Rank },
}

fn rank() -> impl Strategy<Value = Rank> {
    prop_oneof![2 => Just(VICTIM), 4 => Just(SCRIBBLER), 1 => Just(2)]
}

fn lane() -> impl Strategy<Value = Lane> {
    prop_oneof![Just(Lane::Request), Just(Lane::Reply)]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        2 => Just(Part::Head),
        2 => Just(Part::Bell),
        4 => (rank(), lane()).prop_map(|(rank, lane)| Part::Ring(rank, lane)),
        2 => rank().prop_map(Part::Baton),
        1 => Just(Part::Anywhere),
    ]
}

/// Words that mean something somewhere. No address that a process might have mapped is among them: putting
/// there by message is what every member of a job may do.
fn word() -> impl Strategy<Value = u64> {
    (0u8..6, any::<u64>()).prop_map(|(sort, bits)| match sort {
        0 => bits | 1 << 63,
        1 => bits % 10,
        2 => bits % (1 << 16),
        3 => u64::MAX - bits % 9,
        4 => HEAP_BYTES - bits % 2 * 8,
        _ => ((bits % 4) << 32) | ((bits >> 32) % 10_000),
    })
}

/// A header of a known kind with anything in it; chunks go to heaps or nowhere.
fn body() -> impl Strategy<Value = [u64; 7]> {
    let words = proptest::array::uniform7(word());
    let kind = (0u64..9, prop_oneof![0u64..4, any::<u16>().prop_map(u64::from)], 0u64..9000);
    (words, kind, 0u64..4).prop_map(|(mut words, (kind, handler, len), mem)| {
        words[0] = kind | handler << 16 | len << 32;
        words[2] = if mem == 0 { u64::MAX } else { mem };
        words
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (rank(), part(), 0usize..40, word())
            .prop_map(|(of, part, at, value)| Act::Control { of, part, at, value }),
        1 => (rank(), 0u64..1 << 21, word()).prop_map(|(of, at, value)| Act::Heap { of, at: at & !7, value }),
        4 => (rank(), lane(), 0usize..4, 1u32..5, prop_oneof![Just(0), 0u32..9000, any::<u32>()], body())
            .prop_map(|(from, lane, slot, sequence, len, body)| Act::Forge {
                from, lane, slot, sequence, len, body
            }),
        2 => (rank(), 0u32..5, prop_oneof![Just(0), 0u32..500, 0u32..1 << 30], 0u32..4, body())
            .prop_map(|(from, number, len, mark, body)| Act::Hand { from, number, len, mark, body }),
        5 => (0u8..6, rank(), prop_oneof![0..LEN, word()], 0..LEN, any::<bool>())
            .prop_map(|(kind, peer, offset, len, heap)| Act::Start { kind, peer, offset, len, heap }),
        6 => rank().prop_map(|rank| Act::Poll { rank }),
    ]
}

struct Scene {
    cluster: ShmCluster,
    /// By rank: private memory that the victim's operations may name.
    private: Vec<Place>,
    /// By rank: heap memory, likewise.
    heap: Vec<Place>,
    /// The victim's local buffer, with guards around it.
    local: Place,
    ops: Vec<OpId>,
    in_barrier: Option<OpId>,
}

impl Scene {
    fn new(setting: Setting) -> Scene {
        let mut cluster = ShmCluster::new(RANKS, setting);
        let private = (0..RANKS).map(|rank| cluster.private(rank, LEN as usize)).collect();
        let heap = (0..RANKS).map(|rank| cluster.heap(rank, LEN as usize)).collect();
        let local = cluster.private(VICTIM, (LEN + 2 * GUARD) as usize);
        for at in [0, GUARD + LEN] {
            cluster.poke(VICTIM, local.plus(at), &[0xa5; GUARD as usize]);
        }
        Scene { cluster, private, heap, local: local.plus(GUARD), ops: Vec::new(), in_barrier: None }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Control { of, part, at, value } => self.scribble(of, part, at, value),
            Act::Heap { of, at, value } => {
                self.cluster.heap_memory(of).store(at, value).expect("heaps are larger");
            }
            Act::Forge { from, lane, slot, sequence, len, body } => {
                let word = u64::from(sequence) << 32 | u64::from(len);
                self.write_ring(from, lane, slot, word, &body);
            }
            Act::Hand { from, number, len, mark, body } => {
                let low = len << 2 | mark;
                self.write_baton(from, u64::from(number) << 32 | u64::from(low), &body);
            }
            Act::Start { kind, peer, offset, len, heap } => self.start(kind, peer, offset, len, heap),
            Act::Poll { rank } => self.poll(rank),
        }
    }

    fn scribble(&mut self, of: Rank, part: Part, at: usize, value: u64) {
        let control = self.cluster.control(of);
        let store = |memory: &SharedMemory, offset: u64| {
            memory.store(offset, value).expect("inside the control segment");
        };
        match part {
            Part::Head => store(control.memory(), at as u64 % 20 * 8),
            Part::Bell => store(control.memory(), BELL_AT + at as u64 % 12 * 8),
            Part::Ring(from, lane) => control.ring(from, lane)[at].store(value, Ordering::Release),
            Part::Baton(from) => control.baton(from)[at].store(value, Ordering::Release),
            Part::Anywhere => {
                let words = control.memory().len() / 8;
                store(control.memory(), value.wrapping_mul(0x9e37_79b9) % words * 8);
            }
        }
    }

    fn write_ring(&mut self, from: Rank, lane: Lane, slot: usize, word: u64, body: &[u64; 7]) {
        const HEADER_WORDS: usize = 16;
        let control = self.cluster.control(VICTIM);
        let ring = control.ring(from, lane);
        let line = &ring[HEADER_WORDS + slot * 8..][..8];
        for (word, value) in line[1..].iter().zip(body) {
            word.store(*value, Ordering::Relaxed);
        }
        line[0].store(word, Ordering::Release);
        control.bell().ring(from as usize);
    }

    fn write_baton(&mut self, from: Rank, word: u64, body: &[u64; 7]) {
        let control = self.cluster.control(VICTIM);
        let baton = control.baton(from);
        for (word, value) in baton[1..].iter().zip(body) {
            word.store(*value, Ordering::Relaxed);
        }
        baton[0].store(word, Ordering::Release);
        control.bell().ring(from as usize);
    }

    /// An operation of the victim, on memory that is there, or that is not for any process.
    fn start(&mut self, kind: u8, peer: Rank, offset: u64, len: u64, heap: bool) {
        let base = if heap { self.heap[peer as usize] } else { self.private[peer as usize] };
        let inside = offset < LEN;
        let remote = match (inside, heap) {
            (true, _) => base.plus(offset),
            (false, true) => Place::new(MemId::Heap, offset),
            (false, false) => NOWHERE,
        };
        let len = if inside { len.min(LEN - offset) } else { len };
        let local = self.local;
        let node = self.cluster.node(VICTIM);
        match kind {
            0 | 1 => {
                let Some(piece) = Piece::new(remote, local, len) else { return };
                let direction = if kind == 0 { Direction::Put } else { Direction::Get };
                self.ops.push(node.transfer(peer, direction, &[piece], None));
            }
            2 => self.ops.push(node.atomic(peer, remote, Atomic::fetch_add(offset), None)),
            3 if self.in_barrier.is_none() => self.in_barrier = Some(node.barrier(None)),
            _ => {
                let payload = vec![1; (len % 65_537) as usize];
                let body = if kind == 4 { AmBody::Short } else { AmBody::Medium(&payload) };
                let message = AmSend { peer, lane: Lane::Request, handler: 0, args: [offset; 4], body };
                expect_known(node.send_am(&message));
            }
        }
    }

    fn poll(&mut self, rank: Rank) {
        let mut inbox = Inbox::default();
        for _ in 0..EVENTS {
            match self.cluster.node(rank).poll(&mut inbox) {
                Polled::Idle => break,
                Polled::Progressed | Polled::Local(_) | Polled::Acknowledged(_) | Polled::Refused(_) => {}
                Polled::Deliver(Delivery { peer, lane: Lane::Request, .. }) => {
                    let args = inbox.args();
                    let reply =
                        AmSend { peer, lane: Lane::Reply, handler: 1, args, body: AmBody::Medium(&[7; 100]) };
                    expect_known(self.cluster.node(rank).send_am(&reply));
                }
                Polled::Deliver(_) => {}
            }
        }
        self.cluster.node(rank).transport().prepare_sleep();
        if let Some(id) = self.in_barrier
            && self.cluster.node(VICTIM).outcome(id).is_some()
        {
            self.in_barrier = None;
        }
    }

    /// Ends whatever is left, as deadlines would, and looks at the damage.
    fn finish(mut self) {
        for _ in 0..10 {
            (0..RANKS).for_each(|rank| self.poll(rank));
        }
        let node = self.cluster.node(VICTIM);
        for id in self.ops.drain(..).chain(self.in_barrier.take()) {
            node.cancel(id);
            let outcome: Outcome = node.outcome(id).expect("a cancelled operation has an outcome");
            assert!(!matches!(outcome, Err(OpError::LocalFault { .. })), "{outcome:?}");
        }
        assert_eq!(node.in_flight(), 0);
        node.lose(SCRIBBLER);
        assert!(node.is_lost(SCRIBBLER));
        for at in [0, GUARD + LEN] {
            let mut guard = [0; GUARD as usize];
            let place = Place::new(MemId::Space, self.local.offset - GUARD + at);
            self.cluster.peek(VICTIM, place, &mut guard);
            assert_eq!(guard, [0xa5; GUARD as usize], "bytes beside the victim's buffer have changed");
        }
    }
}

fn expect_known(sent: Result<(), SendError>) {
    let known = matches!(
        sent,
        Ok(())
            | Err(SendError::Busy | SendError::Failed(OpError::PeerLost { .. } | OpError::Protocol { .. }))
    );
    assert!(known, "{sent:?}");
}

/// A case without optimisation takes some ten milliseconds, most of them for the job.
const CASES: u32 = if cfg!(debug_assertions) { 200 } else { 2000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]
    #[test]
    fn scribbles_between_any_two_steps_are_survived(
        attach_never: bool, acts in proptest::collection::vec(act(), 1..120),
    ) {
        let mut scene = Scene::new(Setting { attach_never, fences_symmetric: false, polls: true });
        for act in &acts {
            scene.act(act);
        }
        scene.finish();
    }
}

#[test]
fn forged_messages_are_taken_for_what_they_say() {
    let mut scene = Scene::new(Setting { attach_never: true, fences_symmetric: false, polls: true });
    // Without this, the test above could miss the places where the victim looks.
    let header = Header { small: 0, ..Header::new(engine::wire::Kind::AmShort) };
    scene.write_ring(SCRIBBLER, Lane::Request, 0, 1 << 32, &header.encode());
    let mut inbox = Inbox::default();
    let polled = scene.cluster.node(VICTIM).poll(&mut inbox);
    let Polled::Deliver(delivery) = polled else { panic!("{polled:?}") };
    assert_eq!((delivery.peer, delivery.handler), (SCRIBBLER, 0));
    scene.write_baton(2, 1 << 32 | 1, &header.encode());
    let polled = scene.cluster.node(VICTIM).poll(&mut inbox);
    assert!(matches!(polled, Polled::Deliver(Delivery { peer: 2, .. })), "{polled:?}");
    scene.write_ring(SCRIBBLER, Lane::Request, 1, 2 << 32 | 70_000, &header.encode());
    while scene.cluster.node(VICTIM).poll(&mut inbox) != Polled::Idle {}
    assert!(scene.cluster.node(VICTIM).is_lost(SCRIBBLER), "a payload larger than its ring was believed");
    scene.write_ring(2, Lane::Request, 0, 1 << 32 | 1 << 31 | 200_000, &header.encode());
    while scene.cluster.node(VICTIM).poll(&mut inbox) != Polled::Idle {}
    assert!(scene.cluster.node(VICTIM).is_lost(2), "a payload larger than the spill area was believed");
    scene.finish();
}

/// A sender that rewrites a payload while it is read changes what is read, and nothing that was copied.
#[test]
fn a_payload_that_is_rewritten_stays_what_was_copied() {
    [false, true].into_iter().for_each(rewrite);
}

fn rewrite(is_spilled: bool) {
    let mut scene = Scene::new(Setting { attach_never: true, fences_symmetric: false, polls: true });
    let header = Header { len: 8000, ..Header::new(engine::wire::Kind::AmMedium) };
    let area = |scene: &mut Scene, byte: u64| {
        let control = scene.cluster.control(VICTIM);
        let words = match is_spilled {
            false => control.ring(SCRIBBLER, Lane::Request),
            true => control.open_spill(SCRIBBLER, Lane::Request).expect("address space"),
        };
        let from = if is_spilled { 0 } else { 16 + RING.slots * 8 };
        words[from..].iter().for_each(|word| word.store(byte * 0x0101_0101_0101_0101, Ordering::Relaxed));
    };
    area(&mut scene, 1);
    let word = 1 << 32 | u64::from(is_spilled) << 31 | 8000;
    scene.write_ring(SCRIBBLER, Lane::Request, 0, word, &header.encode());
    let mut inbox = Inbox::default();
    let polled = scene.cluster.node(VICTIM).poll(&mut inbox);
    assert!(matches!(polled, Polled::Deliver(Delivery { peer: SCRIBBLER, .. })), "{polled:?}");
    assert_eq!((inbox.held(), inbox.payload_len()), (8000, 8000));
    let mut read = [0; 8];
    scene.cluster.node(VICTIM).read_held(7992, &mut read);
    assert_eq!(read, [1; 8]);
    let copied = inbox.whole(|bytes| scene.cluster.node(VICTIM).read_held(0, bytes)).to_vec();
    area(&mut scene, 2);
    scene.cluster.node(VICTIM).read_held(0, &mut read);
    assert_eq!((read, &copied[..]), ([2; 8], &[1; 8000][..]));
    // The engine copies on what it has copied before.
    let to = scene.heap[VICTIM as usize];
    scene.cluster.node(VICTIM).copy_payload_to(&inbox, to).expect("its own heap");
    scene.cluster.peek(VICTIM, to, &mut read);
    assert_eq!(read, [1; 8]);
    assert_eq!(inbox.whole(|_| panic!("it was copied")), [1; 8000]);
    scene.cluster.node(VICTIM).fetch_payload(&mut inbox);
    assert_eq!((&inbox.payload[..], inbox.held()), (&[1; 8000][..], 0));
    scene.finish();
}
