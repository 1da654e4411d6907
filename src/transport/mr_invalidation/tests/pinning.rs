//! A transport of two ranks in one process, whose registrations are real pins.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::registration::{Keep, Order, Quota, RegisterError, Settings};
use engine::span::BucketSize;
use engine::{
    Deregistering, Direction, Event, Header, Inbox, Key, KeyedPiece, Lane, MemId, Node, OpError, OpId, Piece,
    Place, Rank, RegId, Registering, SendError, Submit, Transport,
};
use io_uring::opcode;
use io_uring::types::Fd;
use vm::fault_safe_copy::CheckedCopy;

use super::area::Area;
use super::pins::Pins;
use super::rows::Ends;
use crate::transport::mr_invalidation::{CachesRegistrations, ChangeSource, apply_changes};

/// How long a transfer may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(100);

type Message = ([u64; Header::WORDS], Vec<u8>);

/// What lies between the two.
struct Wire {
    pins: Pins,
    /// Copies pass through it.
    into_staging: UnixStream,
    staging: UnixStream,
    /// By receiver and lane.
    queues: HashMap<(Rank, Lane), VecDeque<Message>>,
}

pub(super) struct Pinning {
    rank: Rank,
    wire: Rc<RefCell<Wire>>,
    slots: HashMap<RegId, u16>,
    memory: ChangeSource,
    checked: CheckedCopy,
}

impl Transport for Pinning {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut wire = self.wire.borrow_mut();
        wire.queues.entry((peer, lane)).or_default().push_back((*header, payload.to_vec()));
        Ok(())
    }

    fn poll(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let mut wire = self.wire.borrow_mut();
        for lane in [Lane::Reply, Lane::Request] {
            let next = wire.queues.get_mut(&(self.rank, lane)).and_then(VecDeque::pop_front);
            if let Some((header, payload)) = next {
                *inbox = Inbox::new(header, payload);
                return Some(Event::Message { peer: 1 - self.rank, lane });
            }
        }
        None
    }

    fn payload_max(&self) -> usize {
        4096
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), OpError> {
        let fault = |_| OpError::Protocol { peer: self.rank, what: "unreadable" };
        self.checked.read(from.offset, into).map_err(fault)
    }

    fn write(&mut self, to: Place, from: &[u8]) -> Result<(), OpError> {
        let fault = |_| OpError::Protocol { peer: self.rank, what: "unwritable" };
        // SAFETY: the tests transfer to areas of their own only, in which nothing is borrowed meanwhile.
        unsafe { self.checked.write(to.offset, from) }.map_err(fault)
    }

    fn register(&mut self, reg: RegId, offset: u64, len: u64) -> Registering {
        let pinned = self
            .memory
            .may_keep(offset, len)
            .and_then(|_| self.wire.borrow_mut().pins.pin(offset, len).ok_or(RegisterError::Fault));
        match pinned {
            Ok(slot) => {
                self.slots.insert(reg, slot);
                Registering::Done(Key(slot.into()))
            }
            Err(error) => Registering::Failed(error),
        }
    }

    fn deregister(&mut self, reg: RegId) -> Deregistering {
        if let Some(slot) = self.slots.remove(&reg) {
            self.wire.borrow_mut().pins.unpin(slot);
        }
        Deregistering::Done
    }

    fn unregistered_max(&self, _direction: Direction) -> u64 {
        0
    }

    fn copy_keyed(&mut self, _op: OpId, _peer: Rank, direction: Direction, pieces: &[KeyedPiece]) -> Submit {
        let mut wire = self.wire.borrow_mut();
        for keyed in pieces {
            let Piece { remote, local, len } = keyed.piece;
            let own = self.slots[&keyed.local.expect("all local memory is registered")];
            let (own, peers) = ((own, local.offset), (keyed.key.0 as u16, remote.offset));
            match direction {
                Direction::Put => wire.copy(own, peers, len as u32),
                Direction::Get => wire.copy(peers, own, len as u32),
            }
        }
        Submit::Done(0)
    }
}

impl CachesRegistrations for Pinning {
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        Some(&mut self.memory)
    }
}

impl Wire {
    /// From pinned pages to pinned pages, whatever is mapped where they were.
    fn copy(&mut self, (from, source): (u16, u64), (to, target): (u16, u64), len: u32) {
        let fd = Fd(self.staging.as_raw_fd());
        let mut bytes = vec![0; len as usize];
        self.pins.read(from, source, &mut bytes);
        self.into_staging.write_all(&bytes).expect("there is room for it");
        let back = opcode::ReadFixed::new(fd, target as *mut u8, len, to).offset(0).build();
        assert_eq!(self.pins.run(&back), len as i32);
    }
}

/// A job of two ranks that share one process, and so one memory.
pub(super) struct Pair {
    nodes: [Node<Pinning>; 2],
}

impl Pair {
    /// `None` where nothing can be watched or pinned, after saying so.
    pub(super) fn new() -> Option<Pair> {
        if let Err(error) = vm::Monitor::of_process() {
            testbed::skip(&error);
            return None;
        }
        let (into_staging, staging) = UnixStream::pair().expect("two descriptors");
        let wire = Wire { pins: Pins::new()?, into_staging, staging, queues: HashMap::new() };
        let wire = Rc::new(RefCell::new(wire));
        let node = |rank| {
            let transport = Pinning {
                rank,
                wire: Rc::clone(&wire),
                slots: HashMap::new(),
                memory: ChangeSource::watched(),
                checked: CheckedCopy::new().expect("a scratch file"),
            };
            Node::with_registration(rank, 2, 0, transport, settings())
        };
        Some(Pair { nodes: [node(0), node(1)] })
    }

    /// No engine is told of anything from now on.
    pub(super) fn be_deaf(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.transport().memory = ChangeSource::NotNeeded);
    }

    /// Puts, and lets nobody know of anything before.
    pub(super) fn put_unasked(&mut self, here: &Area, there: &Area) {
        assert_eq!(self.run(0, Direction::Put, [here.addr, there.addr], here.len), Ok(0));
    }

    /// Lets rank 1 wait until nobody uses what is not its memory any more.
    pub(super) fn sync(&mut self) {
        let (start, mut inbox) = (Instant::now(), Inbox::default());
        apply_changes(&mut self.nodes[1]);
        let revocations = self.nodes[1].revocations();
        while !self.nodes[1].are_given_back(revocations) {
            assert!(start.elapsed() < LIMIT, "it does not end");
            for node in &mut self.nodes {
                node.poll(&mut inbox);
            }
        }
    }

    fn run(
        &mut self,
        rank: Rank,
        direction: Direction,
        [here, there]: [u64; 2],
        len: u64,
    ) -> Result<u64, OpError> {
        let place = |addr| Place::new(MemId::Space, addr);
        let piece = Piece::new(place(there), place(here), len).expect("it does not wrap");
        let node = &mut self.nodes[rank as usize];
        apply_changes(node);
        let op = node.transfer(1 - rank, direction, &[piece], None);
        let (start, mut inbox) = (Instant::now(), Inbox::default());
        loop {
            if let Some(outcome) = self.nodes[rank as usize].outcome(op) {
                return outcome;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            for node in &mut self.nodes {
                apply_changes(node);
                node.poll(&mut inbox);
            }
        }
    }
}

impl Ends for Pair {
    fn transfer(&mut self, direction: Direction, here: &Area, there: &Area) {
        let flags = FLAGS.each_ref().map(|flag| flag as *const _ as u64);
        assert_eq!(self.run(1, Direction::Put, flags, 8), Ok(0));
        assert_eq!(self.run(0, direction, [here.addr, there.addr], here.len), Ok(0));
    }

    fn try_to_transfer(&mut self, direction: Direction, here: &Area, there: &Area) {
        // Nothing may be mapped there now.
        let _ = self.run(0, direction, [here.addr, there.addr], here.len);
    }

    fn counts(&mut self) -> (u64, u64) {
        let counters = self.nodes.each_ref().map(|node| node.registration_counters());
        (counters[0].hits, counters.iter().map(|counters| counters.table.invalidations).sum())
    }
}

/// Where one rank writes what it tells the other.
static FLAGS: [std::sync::atomic::AtomicU64; 2] = [const { std::sync::atomic::AtomicU64::new(0) }; 2];

fn settings() -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: 64 << 12,
        victims_bytes: 64 << 12,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Sieve,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: u64::MAX / 2,
    }
}
