//! What a hit costs, in instructions: for callgrind.
//!
//! `valgrind --tool=callgrind --toggle-collect='*cost::begin' --toggle-collect='*cost::end' TEST-BINARY --ignored
//! --exact transport::ofi::tests::cost::hits`, the binary being built with `cargo test --release --lib --no-run`. What
//! its own object took, the provider's and the C library's left out, is what is added, by so many hits.

use engine::{Direction, Inbox, Node, OpId, Outcome, Piece, Rank};

use super::cluster::providers;
use super::processes::Side;
use crate::transport::ofi::port::Port;
use crate::transport::ofi::transport::OfiTransport;

const HITS: u32 = 1000;

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
    for hit in 0..HITS + 100 {
        let id = begin(&mut own.node, 1, direction, piece);
        let outcome = loop {
            for _ in 0..4 {
                other.node.poll(&mut inbox);
            }
            polls += u32::from(hit >= 100);
            if let Some(outcome) = end(&mut own.node, &mut inbox, id) {
                break outcome;
            }
        };
        assert_eq!(outcome, Ok(0));
    }
    let hits = own.node.registration_counters().hits;
    println!(
        "{}: {HITS} {direction:?} of {len} bytes, {polls} polls, {hits} hits",
        provider.description().provider
    );
}
