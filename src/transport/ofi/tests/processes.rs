//! Two processes: this test binary, and the same again in a role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use conformance::cluster::HANDLERS;
use engine::{Atomic, Direction, Inbox, MemId, Node, OpError, OpId, Outcome, Piece, Place, Rank};
use fabric::Provider;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use vm::fault_safe_copy::CheckedCopy;

use super::cluster::{LIMIT, members, providers};
use super::suite::firehose;
use crate::api::config::Config;
use crate::api::open::Seat;
use crate::transport::contract::NodeTransport as _;
use crate::transport::ofi::endpoint::NetEndpoint;
use crate::transport::ofi::transport::OfiTransport;
use crate::transport::shm::OwnMemory;

/// Names the provider, in the process that is the other one.
const ROLE: &str = "STANDPIPE_OFI_TEST_ROLE";

const LEN: usize = 300_000;

/// One process: its node, which goes first, and what its peers reach.
pub(super) struct Side {
    pub(super) node: Node<OfiTransport>,
    memory: Box<[AtomicU8]>,
    seat: Seat,
}

impl Side {
    pub(super) fn new(rank: Rank, endpoint: NetEndpoint, peer: &[u8]) -> Side {
        let mut all: Vec<Box<[u8]>> = vec![endpoint.address().into(), peer.into()];
        all.rotate_left(rank as usize);
        let seat = Seat::take(&Config::new().heap_bytes(1 << 20), None, None, Box::new(|_| {}))
            .expect("a job of one");
        let members = members(rank, all);
        let checked = CheckedCopy::new().expect("a scratch file");
        let own = OwnMemory::new(Arc::clone(seat.peers.itself()), checked)
            .with_bounce_buffers(Arc::clone(&seat.heap));
        let transport = OfiTransport::new(endpoint, members, own, LIMIT);
        let node = Node::with_registration(rank, 2, HANDLERS, transport, firehose(1024, 1024));
        let memory = (0..LEN).map(|_| AtomicU8::new(0)).collect();
        Side { node, memory, seat }
    }

    pub(super) fn place(&self) -> Place {
        Place::new(MemId::Space, self.memory.as_ptr().expose_provenance() as u64)
    }

    fn poll(&mut self) {
        self.node.poll(&mut Inbox::default());
        for lost in self.node.transport().take_lost() {
            self.node.lose(lost);
        }
    }

    fn ends(&mut self, id: OpId) -> Outcome {
        let start = Instant::now();
        loop {
            if let Some(outcome) = self.node.outcome(id) {
                return outcome;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            self.poll();
        }
    }

    fn start(&mut self, direction: Direction, there: Place) -> OpId {
        let piece = Piece::new(there, self.place(), LEN as u64).expect("it does not wrap");
        self.node.transfer(1, direction, &[piece], None)
    }
}

/// The other process; killed when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Other {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our child");
    }

    /// Stops it, and waits until all of its threads have.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.0)), WaitOptions::UNTRACED).expect("our child");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "it has ended");
    }
}

/// Both sides: this one's, the other one, and where that one's private memory and its word of the heap lie.
fn meet(provider: &Provider) -> (Side, Other, Place, Place) {
    let endpoint = NetEndpoint::open(provider, false).expect("the provider was offered");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "transport::ofi::tests::processes::the_other_process", "--nocapture"]);
    command.env(ROLE, &provider.description().provider).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Other(command.spawn().expect("this binary starts"));
    writeln!(other.0.stdin.as_mut().expect("piped"), "{}", hex(endpoint.address())).expect("it listens");
    let mut lines = BufReader::new(other.0.stdout.take().expect("piped")).lines();
    let said = lines.find_map(|line| Some(line.expect("text").split_once("role: ")?.1.to_owned()));
    let said = said.expect("it says where it is");
    let words: Vec<&str> = said.split(' ').collect();
    let number = |word: &str| word.parse().expect("a number");
    let side = Side::new(0, endpoint, &unhex(words[0]));
    (side, other, Place::new(MemId::Space, number(words[1])), Place::new(MemId::Heap, number(words[2])))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

#[test]
fn the_other_process() {
    let Ok(name) = std::env::var(ROLE) else { return };
    let is_it = |provider: &Provider| provider.description().provider == name;
    let provider = providers().into_iter().find(is_it).expect("the other side has it");
    let endpoint = NetEndpoint::open(&provider, false).expect("the provider was offered");
    let (address, mut line) = (hex(endpoint.address()), String::new());
    std::io::stdin().read_line(&mut line).expect("the other side's address");
    let mut side = Side::new(1, endpoint, &unhex(line.trim()));
    let word = side.seat.heap.alloc(8, 64).expect("it is larger");
    println!("role: {address} {} {}", side.place().offset, word.offset);
    let (to, from) = channel::<()>();
    std::thread::spawn(move || {
        // Nothing more is said: this ends when the other process does, however that happens.
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(to);
    });
    while from.try_recv() != Err(TryRecvError::Disconnected) {
        side.poll();
    }
}

#[test]
fn another_process_is_put_to_and_got_from() {
    for provider in providers() {
        let (mut side, _other, there, word) = meet(&provider);
        side.memory.iter().for_each(|byte| byte.store(7, Ordering::Relaxed));
        let put = side.start(Direction::Put, there);
        assert_eq!(side.ends(put), Ok(0));
        side.memory.iter().for_each(|byte| byte.store(0, Ordering::Relaxed));
        let get = side.start(Direction::Get, there);
        assert_eq!(side.ends(get), Ok(0));
        assert!(side.memory.iter().all(|byte| byte.load(Ordering::Relaxed) == 7));
        for sum in 0..50 {
            let id = side.node.atomic(1, word, Atomic::fetch_add(1), None);
            assert_eq!(side.ends(id), Ok(sum));
        }
    }
}

#[test]
fn a_process_that_stops_is_waited_for_and_one_that_is_killed_is_lost() {
    for provider in providers() {
        let (mut side, other, there, word) = meet(&provider);
        let first = side.start(Direction::Put, there);
        assert_eq!(side.ends(first), Ok(0));
        other.stop();
        let mut ids: Vec<OpId> = (0..10).map(|_| side.start(Direction::Get, there)).collect();
        ids.extend((0..20).map(|_| side.node.atomic(1, word, Atomic::fetch_add(1), None)));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            side.poll();
        }
        assert!(!side.node.is_lost(1), "who stops is not dead");
        other.signal(Signal::CONT);
        for id in ids {
            assert!(side.ends(id).is_ok());
        }
        let ids: Vec<OpId> = (0..10).map(|_| side.start(Direction::Get, there)).collect();
        other.signal(Signal::KILL);
        let start = Instant::now();
        for id in ids {
            let outcome = side.ends(id);
            assert!(matches!(outcome, Ok(0) | Err(OpError::PeerLost { peer: 1 })), "{outcome:?}");
        }
        let id = side.start(Direction::Get, there);
        assert_eq!(side.ends(id), Err(OpError::PeerLost { peer: 1 }));
        eprintln!("{}: found after {:?}", provider.description().provider, start.elapsed());
    }
}

#[test]
fn memory_lent_to_copies_with_a_process_that_stops_comes_back() {
    for provider in providers() {
        let (mut side, other, there, _) = meet(&provider);
        let first = side.start(Direction::Put, there);
        assert_eq!(side.ends(first), Ok(0));
        other.stop();
        // More than the connection takes, so that the provider still has most of it.
        let source = vm::Segment::create("standpipe-test", LEN as u64).expect("memory");
        source.memory().copy_in(0, &vec![1; LEN]).expect("its size");
        let local = Place::new(MemId::Space, source.memory().base_addr());
        let piece = Piece::new(there, local, LEN as u64).expect("it does not wrap");
        let mut ids: Vec<OpId> =
            (0..60).map(|_| side.node.transfer(1, Direction::Put, &[piece], None)).collect();
        ids.extend((0..4).map(|_| side.start(Direction::Get, there)));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            side.poll();
        }
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(side.node.outcome(*id), None, "nobody answers, and transfer {at} has ended");
        }
        for id in ids {
            side.node.cancel(id);
            assert_eq!(side.ends(id), Err(OpError::Timeout { peer: 1 }));
        }
        // Whoever reads it now dies.
        drop(source);
        side.memory.iter().for_each(|byte| byte.store(9, Ordering::Relaxed));
        other.signal(Signal::CONT);
        let start = Instant::now();
        while side.node.references() != (0, 0) {
            assert!(start.elapsed() < LIMIT, "copies that were given up never end");
            side.poll();
        }
        assert!(!side.node.is_lost(1), "who stops is not dead");
        assert!(
            side.memory.iter().all(|byte| byte.load(Ordering::Relaxed) == 9),
            "a buffer given back is written"
        );
        let get = side.start(Direction::Get, there);
        assert_eq!(side.ends(get), Ok(0));
        let only_before = |byte: &AtomicU8| [0, 1].contains(&byte.load(Ordering::Relaxed));
        assert!(side.memory.iter().all(only_before), "bytes that were never put");
    }
}
