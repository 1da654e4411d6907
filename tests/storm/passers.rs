//! The thread of a process that nobody launched whose other node is closed and opened again, over and over:
//! each time it meets some of the others anew, under another number, counts in a word of theirs that is its
//! own, and goes. To them it is one more peer that comes and leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use standpipe::{CloseError, Error, Node, Rank};

use crate::memory::{PASSED, slot};
use crate::process::{Known, Mode, Shared, node_config};
use crate::support::Random;

/// From one to the next: a node has places for 1,024 who ever come.
const PAUSE: Duration = Duration::from_millis(50);

/// Others that each meets, at most.
const MET: usize = 3;

/// Has them come and go while the storm is rough.
pub(crate) fn come_and_go(shared: &Shared) {
    let mut random = Random::new(shared.seed ^ 0x9a55 ^ (shared.id as u64) << 32);
    // The value of the word at each other process, by that process's number in the storm.
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    let mut came = 0_u64;
    while shared.mode() == Mode::Rough {
        came += 1;
        shared.doing("passer", format!("visit {came}"));
        let node = Node::open(node_config()).expect("a node of its own");
        let peers = shared.met_since(0);
        for _ in 0..random.below(MET + 1) {
            let Some(peer) = peers.get(random.below(peers.len().max(1))) else { break };
            // A peer may be killed before this one meets it, or after.
            let Ok(number) = node.connect_to(crate::verdict::unhex(&peer.address)) else { continue };
            match count(shared, &node, peer, number, counts.get(&peer.id).copied().unwrap_or_default()) {
                Ok(count) => _ = counts.insert(peer.id, count),
                Err(Error::PeerLost { peer: lost }) => assert_eq!(lost, number, "nobody else was asked"),
                Err(error) => panic!("a passer at {}: {error}", peer.id),
            }
        }
        if random.below(2) == 0 {
            match node.close(crate::supervisor::CALL_MAX) {
                Ok(()) | Err(CloseError::Undone(Error::PeerLost { .. })) => {}
                Err(error) => panic!("a passer goes: {error}"),
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Counts on in the word at a peer that is this thread's own. The word from then on.
fn count(shared: &Shared, node: &Node, peer: &Known, number: Rank, known: u64) -> Result<u64, Error> {
    let word = peer.places.word::<u64>(number, slot(shared.id, 0), PASSED);
    assert_eq!(node.get(word)?, known, "what a passer before has left at {}", peer.id);
    assert_eq!(node.fetch_add(word, 1)?, known);
    node.put(word, known + 2)?;
    node.quiet()?;
    Ok(known + 2)
}
