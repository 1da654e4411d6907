//! The public API within one process: whole jobs of several nodes, each on threads of this test.

mod am;
mod atomics;
mod buffers;
mod completions;
mod copiers;
mod directory;
mod events;
mod exposure;
mod grant_atomics;
mod grants;
mod grants_seen;
mod groups;
mod handlers;
mod heap;
mod latencies;
mod losses;
mod mediums;
mod model;
mod near;
mod network;
mod pins;
mod quiet;
mod reductions;
mod rma;
mod runs;
mod sending;
mod signals;
mod spans;
mod spans_seen;
mod teams;
mod threads;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use standpipe::bootstrap::Broker;
use standpipe::{Config, GlobalPtr, Node, Remote, Transport};

const LIMIT: Duration = Duration::from_secs(20);

/// What the tests run over, where that is not shared memory: see [`network`].
const TRANSPORT: &str = "STANDPIPE_TRANSPORT";

/// How many copiers the tests' nodes have, where they are to have any: see [`copiers`].
const COPIERS: &str = "STANDPIPE_COPIERS";

fn config() -> Config {
    let mut config = Config::new().heap_bytes(8 << 20).timeout(LIMIT);
    if let Ok(copiers) = std::env::var(COPIERS) {
        config.set(COPIERS, &copiers).expect("a number");
    }
    match std::env::var(TRANSPORT) {
        Ok(name) => config.transport(Transport::parse(&name).expect("a transport")),
        Err(_) => config,
    }
}

/// Whether ranks reach each other over the network, and a test makes no sense there.
fn skipped_over_the_network() -> bool {
    let skipped = std::env::var(TRANSPORT).is_ok_and(|name| name != "shm");
    if skipped {
        testbed::skip("over the network the rank that is to idle makes progress");
    }
    skipped
}

/// Both ways to reach private memory: by attach, and by message.
const WAYS: [Way; 2] = [Way::Attach, Way::Message];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Attach,
    Message,
}

impl Way {
    fn config(self) -> Config {
        match self {
            Way::Attach => config(),
            Way::Message => config().attach_never(),
        }
    }
}

/// Runs `body` at every rank of a job of `size`, one thread each. Every node stays until all bodies are done.
fn job(size: u32, config: impl Fn(u32) -> Config + Sync, body: impl Fn(&Node) + Sync) {
    let broker = Broker::start(size).expect("a broker");
    let done = Arc::new(Barrier::new(size as usize));
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (env, config, body, done) = (broker.env(rank), &config, &body, Arc::clone(&done));
            scope.spawn(move || {
                let node = Node::open_in(config(rank), Some(&env));
                let run = || body(node.as_ref().expect("a node"));
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                done.wait();
                if let Err(panic) = outcome {
                    std::panic::resume_unwind(panic);
                }
            });
        }
    });
}

/// A job of one.
fn alone(config: Config) -> Node {
    Node::open_in(config, None).expect("a node")
}

fn right_of(node: &Node) -> u32 {
    (node.rank() + 1) % node.size()
}

/// Tells the others two words under a name of this rank's own.
fn tell(node: &Node, what: &str, words: [u64; 2]) {
    let name = format!("{what} of {}", node.rank());
    node.directory().publish(&name, bytemuck::bytes_of(&words)).expect("published");
}

/// What `rank` tells.
fn ask(node: &Node, what: &str, rank: u32) -> [u64; 2] {
    let bytes = node.directory().wait(&format!("{what} of {rank}"), LIMIT).expect("told by every rank");
    bytemuck::pod_read_unaligned(&bytes)
}

/// Waits for a name without making progress, as a rank does that computes. Not over the network: there a look
/// is a question, and who waits for the answer makes progress.
fn await_idly(node: &Node, name: &str) {
    let started = Instant::now();
    while node.directory().lookup(name).expect("the directory").is_none() {
        assert!(started.elapsed() < LIMIT, "nobody published {name:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells the place of an array and asks for the right neighbour's.
fn exchange(node: &Node, mine: GlobalPtr<u64>) -> GlobalPtr<u64> {
    tell(node, "array", mine.to_words());
    GlobalPtr::from_words(ask(node, "array", right_of(node)))
}

/// Tells the address of private memory and asks for the right neighbour's, to be used until the next barrier.
fn exchange_private(node: &Node, mine: &mut [u8]) -> Remote {
    tell(node, "memory", [mine.as_mut_ptr().expose_provenance() as u64, 0]);
    let [addr, _] = ask(node, "memory", right_of(node));
    // SAFETY: every rank of these tests leaves the bytes that it tells alone, neither reading nor writing
    // them, until a barrier has passed after the last access.
    unsafe { Remote::raw(right_of(node), addr) }
}

/// A place below all that a process may map.
fn nowhere(peer: u32) -> Remote {
    // SAFETY: operations with it touch no memory, neither now nor when something is mapped later.
    unsafe { Remote::raw(peer, 4096) }
}

/// Bytes that depend on `seed`.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed * 77) >> 7) as u8).collect()
}
