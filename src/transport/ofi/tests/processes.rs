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
use rustix::process::{Pid, Signal, kill_process};
use vm::checked::CheckedCopy;

use super::cluster::{LIMIT, SECRET, providers};
use super::suite::firehose;
use crate::config::Config;
use crate::open::Seat;
use crate::transport::ofi::port::Port;
use crate::transport::ofi::token::Party;
use crate::transport::ofi::transport::{Members, OfiTransport};
use crate::transport::shm::OwnMemory;

/// Names the provider, in the process that is the other one.
const ROLE: &str = "STANDPIPE_OFI_TEST_ROLE";

const LEN: usize = 300_000;

/// One process: its node, which goes first, and what its peers reach.
struct Side {
    node: Node<OfiTransport>,
    memory: Box<[AtomicU8]>,
    seat: Seat,
}

impl Side {
    fn new(rank: Rank, port: Port, peer: &[u8]) -> Side {
        let own = (Box::<[u8]>::from(port.address()), 0);
        let mut all = vec![own, (Box::from(peer), 0)];
        all.rotate_left(rank as usize);
        let seat =
            Seat::take(&Config::new().heap_bytes(1 << 20), None, Box::new(|_| {})).expect("a job of one");
        let members = Members { secret: SECRET.into(), own: Party { rank, incarnation: 0 }, all };
        let checked = CheckedCopy::new().expect("a scratch file");
        let own = OwnMemory::new(Arc::clone(seat.peers.itself()), checked);
        let transport = OfiTransport::new(port, members, own, LIMIT);
        let node = Node::with_registration(rank, 2, HANDLERS, transport, firehose(1024, 1024));
        let memory = (0..LEN).map(|_| AtomicU8::new(0)).collect();
        Side { node, memory, seat }
    }

    fn place(&self) -> Place {
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
}

/// Both sides: this one's, the other one, and where that one's private memory and its word of the heap lie.
fn meet(provider: &Provider) -> (Side, Other, Place, Place) {
    let port = Port::open(provider, false).expect("the provider was offered");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "transport::ofi::tests::processes::the_other_process", "--nocapture"]);
    command.env(ROLE, &provider.description().provider).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Other(command.spawn().expect("this binary starts"));
    writeln!(other.0.stdin.as_mut().expect("piped"), "{}", hex(port.address())).expect("it listens");
    let mut lines = BufReader::new(other.0.stdout.take().expect("piped")).lines();
    let said = lines.find_map(|line| Some(line.expect("text").split_once("role: ")?.1.to_owned()));
    let said = said.expect("it says where it is");
    let words: Vec<&str> = said.split(' ').collect();
    let number = |word: &str| word.parse().expect("a number");
    let side = Side::new(0, port, &unhex(words[0]));
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
    let port = Port::open(&provider, false).expect("the provider was offered");
    let (address, mut line) = (hex(port.address()), String::new());
    std::io::stdin().read_line(&mut line).expect("the other side's address");
    let mut side = Side::new(1, port, &unhex(line.trim()));
    let word = side.seat.heap.alloc(8).expect("it is larger");
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
            let id = side.node.atomic(1, word, Atomic::FetchAdd(1), None);
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
        other.signal(Signal::STOP);
        let mut ids: Vec<OpId> = (0..10).map(|_| side.start(Direction::Get, there)).collect();
        ids.extend((0..20).map(|_| side.node.atomic(1, word, Atomic::FetchAdd(1), None)));
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
