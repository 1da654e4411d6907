//! Nodes with all their threads and waiting, and a peer that writes into everything they share all the while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{AtomicOp, Lane, Rank};
use vm::SharedMemory;

use crate::job::launched::Broker;
use crate::transport::peers::Near;
use crate::transport::shm::control::BELL_AT;
use crate::{Config, DirectoryError, Error, Exposure, GlobalPtr, Node, Reduction, Remote, Signal};

/// What a call of the victims may wait.
const TIMEOUT: Duration = Duration::from_millis(50);

/// More than this after its time a call has not ended with its deadline, however busy the machine.
const SLACK: Duration = Duration::from_secs(5);

/// Words of pseudo-random numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.roll() >> 16) % bound
    }

    /// A word that may mean something; no address that is mapped.
    fn word(&mut self) -> u64 {
        match self.below(5) {
            0 => self.roll() | 1 << 63,
            1 => self.below(10),
            2 => self.below(1 << 16),
            3 => u64::MAX - self.below(9),
            _ => (self.below(4) << 32) | self.below(10_000),
        }
    }
}

fn config() -> Config {
    Config::new()
        .heap_bytes(4 << 20)
        .timeout(TIMEOUT)
        .handler("echo", |call| {
            if call.is_request() {
                let echo = call.node().handler("echo").expect("this very handler");
                let _ = call.reply_medium(echo, call.args(), &[1; 64]);
            }
        })
        .handler("slow", |_| std::thread::sleep(Duration::from_micros(200)))
}

/// Scribbles over everything that `peer` shares.
fn scribble(peer: &Near, dice: &mut Dice, ranks: u32) {
    let (control, heap) = (peer.control.memory(), peer.heap());
    heap.open_to(heap.len()).expect("it is opened");
    let from = dice.below(u64::from(ranks)) as Rank;
    let lane = if dice.below(2) == 0 { Lane::Request } else { Lane::Reply };
    let value = dice.word();
    let store = |memory: &SharedMemory, words: u64, dice: &mut Dice, base: u64| {
        memory.store(base + dice.below(words) * 8, value).expect("inside the segment");
    };
    match dice.below(8) {
        0 => store(control, 20, dice, 0),
        1 => store(control, 12, dice, BELL_AT),
        2 => peer.control.ring(from, lane)[dice.below(1100) as usize].store(value, Ordering::Release),
        3 => peer.control.baton(from)[dice.below(64) as usize].store(value, Ordering::Release),
        4 => store(heap, 1 << 19, dice, 0),
        5 => wild_entry(heap, peer.directory, dice),
        // What is shown, the names of handlers, the endpoint's address.
        6 => store(control, BELL_AT / 8, dice, 0),
        _ => peer.bell.ring(from as usize),
    }
}

/// An entry of the directory that points anywhere: at nobody's heap, beyond one, into the middle of another
/// block.
fn wild_entry(heap: &SharedMemory, directory: u64, dice: &mut Dice) {
    let rank = [0, 1, 2, 3, 65535][dice.below(5) as usize];
    let line = [0, 1, dice.below(1 << 16), (1 << 40) - 1][dice.below(4) as usize];
    let word = dice.below(256) << 56 | rank << 40 | line;
    // Anyone's share may lie elsewhere by what its control segment says: then nothing is written.
    let _ = heap.store(directory.wrapping_add(dice.below(1024) * 16 + 8), word);
}

/// Calls, and holds the call to its deadline and its error to those that a hostile peer can cause.
fn bounded<R>(what: &str, at_most: Duration, call: impl FnOnce() -> Result<R, Error>) -> Option<R> {
    let started = Instant::now();
    let result = call();
    let took = started.elapsed();
    assert!(took < at_most + SLACK, "{what} took {took:?}");
    match result {
        Ok(value) => Some(value),
        Err(
            Error::PeerLost { .. }
            | Error::Fault { .. }
            | Error::Timeout { .. }
            | Error::WaitTimeout { .. }
            | Error::Protocol { .. }
            | Error::Versions { .. }
            | Error::NoSuchPeer { .. }
            | Error::NotExposed { .. }
            | Error::HandlersDiffer { .. }
            | Error::NoSuchHandler { .. }
            | Error::Team { .. }
            | Error::SignalTimeout { .. },
        ) => None,
        Err(other) => panic!("{what}: {other}"),
    }
}

fn in_directory<R>(what: &str, call: impl FnOnce() -> Result<R, DirectoryError>) -> Option<R> {
    // A lookup follows a chain of entries, and may wait for the heap of each.
    bounded(what, TIMEOUT * 4, || match call() {
        Ok(value) => Ok(Some(value)),
        Err(DirectoryError::Peer(error)) => Err(error),
        Err(_) => Ok(None),
    })
    .flatten()
}

/// One round of everything that a node can do with a peer. Nothing is said about what comes of it.
fn live(node: &Node, peer: Rank, private: Remote, dice: &mut Dice) {
    let array =
        node.heap().alloc::<u64>(dice.below(2000) as usize + 1).expect("the allocator is out of reach");
    array.write(0, 7);
    let there = GlobalPtr::<u64>::new(peer, dice.below(1 << 15) * 8);
    let mut buffer = vec![0; dice.below(20_000) as usize];
    bounded("put", TIMEOUT, || node.put(there, 1));
    bounded("get", TIMEOUT, || node.get(there));
    bounded("fetch-add", TIMEOUT, || node.fetch_add(there, 1));
    bounded("get private", TIMEOUT, || node.get_bytes(private, &mut [0; 100]));
    bounded("get heap", TIMEOUT, || node.get_bytes(there, &mut buffer));
    bounded("put without waiting", TIMEOUT, || node.put_nbi(there, &buffer));
    bounded("an event", TIMEOUT, || node.put_nb(there, buffer).wait().0);
    drop(node.get_nb(private, vec![0u8; 1000]));
    let counter = Signal::add(GlobalPtr::new(peer, dice.below(1 << 15) * 8), 1);
    bounded("a put with a signal", TIMEOUT, || node.put_signal(there, &[3; 300], counter));
    bounded("waiting for a signal", TIMEOUT, || node.wait_signal_from(peer, array.ptr(0), dice.below(9)));
    bounded("an update", TIMEOUT, || node.update_nbi(there, AtomicOp::Xor, 1));
    bounded("a collective", TIMEOUT * 2, || node.world().all_reduce(&mut [1_u64; 3], Reduction::Sum));
    let echo = node.handler("echo").expect("registered");
    bounded("request", TIMEOUT, || node.request_medium(peer, echo, [1; 4], &[2; 600]));
    bounded("long request", TIMEOUT, || node.request_long(echo, [1; 4], there, &[2; 600]));
    bounded("quiet", TIMEOUT, || node.quiet());
    // Quiet, and the barrier itself.
    bounded("barrier", TIMEOUT * 2, || node.barrier());
    let name = format!("name {}", dice.below(4));
    in_directory("publish", || node.directory().publish(&name, &[3; 40]));
    in_directory("lookup", || node.directory().lookup(&name));
    in_directory("wait for a name", || node.directory().wait("of nobody", TIMEOUT));
    in_directory("withdraw", || node.directory().withdraw(&name));
    node.stats();
    let _ = (node.progress(), node.lost_peers(), node.heap().resident_bytes());
}

const RANKS: u32 = 3;

/// The nodes of a job, of which the second is the vandal.
fn of_a_job(broker: &Broker, configure: impl Fn() -> Config) -> [Node; RANKS as usize] {
    let nodes = [0, 1, 2].map(|rank| Node::open_in(configure(), Some(&broker.env(rank))).expect("a node"));
    [0, 2].into_iter().for_each(|rank| nodes[1].within(SLACK).connect(rank).expect("it has joined"));
    nodes
}

/// Nodes that nobody launched, each a peer of each other.
fn that_meet(configure: impl Fn() -> Config) -> [Node; RANKS as usize] {
    let nodes = [0, 1, 2].map(|_| Node::open_in(configure(), None).expect("a node"));
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        nodes[one]
            .within(SLACK)
            .connect_to(nodes[other].address().expect("a node that listens"))
            .expect("let in");
    }
    nodes
}

/// Says that it is over when it is dropped, also by a panic: else the vandal would go on for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn vandalise(seed: u64, [one, vandal, other]: [Node; RANKS as usize], time: Duration) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, node) in [(0, one), (2, other)] {
            let over = &over;
            scope.spawn(move || {
                let _over = Over(over);
                let mut dice = Dice(seed ^ number << 40 | 1);
                let started = Instant::now();
                while started.elapsed() < time {
                    let peer = dice.below(u64::from(RANKS)) as Rank;
                    // SAFETY: a place below all that a process may map; operations with it touch no memory.
                    let nowhere = unsafe { Remote::raw(peer, 4096) };
                    live(&node, peer, nowhere, &mut dice);
                }
            });
        }
        let over = &over;
        scope.spawn(move || {
            let mut dice = Dice(seed | 1);
            while !over.load(Ordering::SeqCst) {
                for _ in 0..200 {
                    let target = vandal.core.near.get(dice.below(3) as Rank).expect("connected above");
                    scribble(target, &mut dice, RANKS);
                }
                vandal.progress();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
    });
}

/// How long each vandal goes on: `STANDPIPE_TEST_VANDAL_MS`, or a moment.
fn time() -> Duration {
    let set = std::env::var("STANDPIPE_TEST_VANDAL_MS").ok().map(|text| text.parse().expect("milliseconds"));
    Duration::from_millis(set.unwrap_or(400))
}

#[test]
fn scribbles_under_way_are_survived() {
    for seed in 1..=6u64 {
        let broker = Broker::start(RANKS).expect("a broker");
        let nodes = of_a_job(&broker, || if seed % 2 == 0 { config().attach_never() } else { config() });
        vandalise(seed * 0x9e37_79b9, nodes, time());
    }
}

#[test]
fn so_are_those_of_who_came_from_outside() {
    for seed in 1..=4u64 {
        // What nobody launched shows its heap alone: the private words of two nodes are reached all the same.
        let shown = || if seed < 3 { config().exposure(Exposure::Everything) } else { config() };
        let nodes = that_meet(|| if seed % 2 == 0 { shown().attach_never() } else { shown() });
        vandalise(seed * 0x9e37_79b9, nodes, time());
    }
}

#[test]
fn a_flood_does_not_outlast_a_deadline() {
    let broker = Broker::start(2).expect("a broker");
    let over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let victim = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
        let flooder = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
        let (over, sent) = (&over, &sent);
        scope.spawn(move || {
            let slow = flooder.handler("slow").expect("registered");
            while !over.load(Ordering::SeqCst) {
                if flooder.request(0, slow, [0; 4]).is_ok() {
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let ended = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&ended);
        scope.spawn(move || {
            // Ends the flood if the deadline does not end the wait.
            let started = Instant::now();
            while !watch.load(Ordering::SeqCst) && started.elapsed() < SLACK {
                std::thread::sleep(Duration::from_millis(5));
            }
            over.store(true, Ordering::SeqCst);
        });
        while sent.load(Ordering::SeqCst) < 100 {
            std::thread::yield_now();
        }
        let started = Instant::now();
        let waited = victim.wait_until(|| false);
        let took = started.elapsed();
        ended.store(true, Ordering::SeqCst);
        assert_eq!(waited, Err(Error::WaitTimeout { waited_for: "a condition" }));
        assert!(took < SLACK, "a wait of {TIMEOUT:?} took {took:?} because messages kept coming");
    });
}
