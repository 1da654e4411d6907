//! The thread of a process whose libraries come and go: each is a client of the node, with a handler that is
//! there as long as it, and sends to those of others, be they there or not. Its failures are its own: the
//! other threads look at theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::{CloseError, Error, HandlerId, Node};

use crate::process::{Mode, Shared, node_config};
use crate::support::Random;

const GUEST: HandlerId = HandlerId::of("guest", "note");

/// Messages that one of them sends, at most.
const MESSAGES: usize = 30;

/// From one to the next.
const PAUSE: Duration = Duration::from_millis(2);

/// Has them come and go while the storm is rough.
pub(crate) fn come_and_go(shared: &Shared) {
    let mut random = Random::new(shared.seed ^ 0x9e57 ^ (shared.id as u64) << 32);
    let (mut came, mut refused) = (0_u64, 0_u64);
    while shared.mode() == Mode::Rough {
        shared.doing("guest", format!("the one after {came}, of whose messages {refused} were refused"));
        let node = Node::shared(node_config()).expect("a share of the node");
        came += 1;
        refused += visit(shared, &node, &mut random);
        if random.below(2) == 0 {
            // What it has just sent may be refused by now.
            match node.close(crate::supervisor::CALL_MAX) {
                Ok(()) => {}
                Err(CloseError::Undone(error)) => refused += outcome(Err(error)),
                Err(error) => panic!("a guest goes: {error}"),
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// One of them. How many of its messages were refused.
fn visit(shared: &Shared, node: &Node, random: &mut Random) -> u64 {
    let heard = Arc::new(AtomicU64::new(0));
    let hears = Arc::clone(&heard);
    let registered = node.register("guest", "note", move |call| {
        let [number, not, ..] = call.args();
        assert_eq!(number, !not, "a guest's message of {}", call.from());
        hears.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(registered, Ok(GUEST), "the one before has gone");
    let mut refused = 0;
    for _ in 0..random.below(MESSAGES) {
        let peers = shared.met_since(0);
        let Some(peer) = peers.get(random.below(peers.len().max(1))) else { break };
        let number = random.next();
        let args = [number, !number, 0, 0];
        let sent = match random.below(2) {
            0 => node.request(peer.number, GUEST, args),
            _ => node.try_request(peer.number, GUEST, args).map(drop),
        };
        refused += outcome(sent);
    }
    // Its own, by which it hears that it is there.
    let before = heard.load(Ordering::SeqCst);
    node.request(node.rank(), GUEST, [7, !7, 0, 0]).expect("it is there");
    node.wait_until(|| heard.load(Ordering::SeqCst) > before).expect("its own handler runs");
    refused + outcome(node.quiet())
}

/// Whether a message was refused; nothing else may fail but by a loss.
fn outcome(result: Result<(), Error>) -> u64 {
    match result {
        Err(Error::NoSuchHandler { .. }) => 1,
        Ok(()) | Err(Error::PeerLost { .. }) => 0,
        Err(error) => panic!("a guest: {error}"),
    }
}
