//! What a hit costs, in instructions: for callgrind.
//!
//! `cargo xtask hits` runs it, and compares. By hand: `valgrind --tool=callgrind --toggle-collect='*cost::begin'
//! --toggle-collect='*cost::end' TEST-BINARY --ignored --exact transport::ofi::tests::cost::hits`, the binary being built
//! with `cargo test --release --lib --no-run`; `STANDPIPE_COST` may name a provider, `get`, and a length. What all took
//! but the provider's calls is what is added, by so many hits.

use engine::{Direction, Inbox, Node, OpId, Outcome, Piece, Rank};

use super::cluster::providers;
use super::processes::Side;
use crate::transport::ofi::port::Port;
use crate::transport::ofi::transport::OfiTransport;

const HITS: u32 = 1000;
/// Before: the first few make connections and buffers.
const WARM_UPS: u32 = 100;

#[inline(never)]
fn begin(node: &mut Node<OfiTransport>, peer: Rank, direction: Direction, piece: Piece) -> OpId {
    node.transfer(peer, direction, &[piece], None)
}

#[inline(never)]
fn end(node: &mut Node<OfiTransport>, inbox: &mut Inbox, id: OpId) -> Option<Outcome> {
    node.poll(inbox);
    node.outcome(id)
}

#[test]
#[ignore = "for callgrind: see above"]
fn hits() {
    let wanted = std::env::var("STANDPIPE_COST").unwrap_or_default();
    let words: Vec<&str> = wanted.split(' ').collect();
    let direction = if words.contains(&"get") { Direction::Get } else { Direction::Put };
    let len = words.iter().find_map(|word| word.parse().ok()).unwrap_or(8);
    let provider =
        providers().into_iter().find(|provider| words.contains(&&*provider.description().provider));
    let Some(provider) = provider.or_else(|| providers().pop()) else { return };
    let [own, other] = [0; 2].map(|_| Port::open(&provider, false).expect("the provider was offered"));
    let addresses = [own.address(), other.address()].map(Box::<[u8]>::from);
    let (mut own, mut other) = (Side::new(0, own, &addresses[1]), Side::new(1, other, &addresses[0]));
    let (here, there) = (own.place(), other.place());
    // It lies in one run.
    let (here, there) = (here.plus(4096 - here.offset % 4096), there.plus(4096 - there.offset % 4096));
    let piece = Piece::new(there, here, len).expect("it does not wrap");
    let mut inbox = Inbox::default();
    let mut polls = 0;
    for hit in 0..HITS + WARM_UPS {
        let counts = hit >= WARM_UPS;
        let node = &mut own.node;
        let id = if counts {
            begin(node, 1, direction, piece)
        } else {
            node.transfer(1, direction, &[piece], None)
        };
        let outcome = loop {
            for _ in 0..4 {
                other.node.poll(&mut inbox);
            }
            if !counts {
                node.poll(&mut inbox);
            }
            polls += u32::from(counts);
            let outcome = if counts { end(node, &mut inbox, id) } else { node.outcome(id) };
            if let Some(outcome) = outcome {
                break outcome;
            }
        };
        assert_eq!(outcome, Ok(0));
    }
    // All but the first, which asked for what it then held.
    assert!(own.node.registration_counters().hits >= u64::from(HITS));
    let provider = &provider.description().provider;
    println!("{provider}: {direction:?} of {len} bytes, {polls} polls, counted hits: {HITS}");
}
