//! What a hit costs, in instructions, of the engine that a node has, over all its transports: for callgrind.
//!
//! `cargo xtask hits` runs it, and compares. By hand: `valgrind --tool=callgrind
//! --toggle-collect='*cost::begin' --toggle-collect='*cost::end' TEST-BINARY --ignored --exact
//! transport::ofi::tests::cost::hits`, the binary being built with `cargo test --release --lib --no-run`;
//! `STANDPIPE_COST` may name a provider, `get`, `bare`, and a length. What all took but the provider's calls,
//! by so many hits, is what they cost; what the same two functions take with nothing between them and the
//! provider, `bare`, is what any program pays for it: the rest is what is added.

use std::hint::black_box;
use std::sync::Arc;

use conformance::cluster::HANDLERS;
use engine::{Direction, Inbox, MemId, OpId, Outcome, Piece, Place, Rank};
use fabric::{Access, Desc, Endpoint, Local, Look, Options, Prepared, Provider, Remote};

use vm::fault_safe_copy::CheckedCopy;

use super::cluster::{LIMIT, members, providers};
use super::processes::Side;
use super::suite::firehose;
use crate::api::config::Config;
use crate::api::open::Seat;
use crate::runtime::core::Engine;
use crate::transport::list::of_ofi;
use crate::transport::net_wakeup::NetWakeup;
use crate::transport::ofi::endpoint::NetEndpoint;
use crate::transport::ofi::transport::OfiTransport;
use crate::transport::router::Router;
use crate::transport::shm::{OwnMemory, ShmTransport};

const HITS: u32 = 1000;
/// Before: the first few make connections and buffers.
const WARM_UPS: u32 = 100;

#[inline(never)]
fn begin(node: &mut Engine, peer: Rank, direction: Direction, pieces: &[Piece; 1]) -> OpId {
    node.transfer(peer, direction, pieces, None)
}

#[inline(never)]
fn end(node: &mut Engine, inbox: &mut Inbox, id: OpId) -> Option<Outcome> {
    node.poll(inbox);
    node.outcome(id)
}

/// As [`begin`], of what a bare program does.
#[inline(never)]
fn bare_begin(
    endpoint: &mut Endpoint,
    direction: Direction,
    which: Prepared,
    from: *const u8,
    to: Remote,
) -> bool {
    match direction {
        // SAFETY: there are as many bytes, which only this function's caller knows of.
        Direction::Put => unsafe { endpoint.deliver_prepared(which, from, 8, to) },
        Direction::Get => endpoint.read_prepared(which, 8, to),
    }
}

/// As [`end`].
#[inline(never)]
fn bare_end(endpoint: &mut Endpoint) -> bool {
    matches!(endpoint.look(), Look::Done { .. })
}

/// Hits of a bare program. How often it polled.
fn bare_hits(provider: &Provider, direction: Direction) -> u32 {
    let open = || Endpoint::open(provider, &Options::default()).expect("the provider was offered");
    let (mut own, mut other) = (open(), open());
    // Shared with the provider for as long as this process runs.
    let [near, far] = [0; 2].map(|_| Box::leak(Box::new([0_u8; 4096])).as_mut_ptr());
    // SAFETY: the memory is leaked, and reached by the provider only.
    let region = unsafe { other.register(far, 4096, Access::ALL, 77) }.expect("it is there");
    let peer = own.add_peer(other.address()).expect("it is the same provider's");
    let to = Remote { peer, addr: region.remote_addr, key: region.key };
    // SAFETY: the memory is leaked, and reached by the provider only; those of one machine want none of it
    // registered.
    let which = unsafe { own.prepare(Local { addr: near, len: 4096, desc: Desc::NONE }, 5) };
    let (which, bytes) = (which.expect("it is the first"), [7_u8; 8]);
    let mut polls = 0;
    for hit in 0..HITS + WARM_UPS {
        let counts = hit >= WARM_UPS;
        let mut begun = false;
        while !begun {
            begun = if counts {
                bare_begin(&mut own, direction, which, bytes.as_ptr(), to)
            } else {
                // Out of sight of what counts.
                black_box(match direction {
                    // SAFETY: there are as many bytes, which only this function knows of.
                    Direction::Put => unsafe { own.deliver_prepared(which, bytes.as_ptr(), 8, to) },
                    Direction::Get => own.read_prepared(which, 8, to),
                })
            };
            _ = other.look();
            if !begun {
                _ = own.look();
            }
        }
        loop {
            for _ in 0..4 {
                _ = other.look();
            }
            polls += u32::from(counts);
            if if counts { bare_end(&mut own) } else { matches!(own.look(), Look::Done { .. }) } {
                break;
            }
        }
    }
    polls
}

/// The engine as a node has it that nobody launched (valgrind knows no `pidfd_open`, which launchers need)
/// and that has met peer 1 over the network, and memory of its own. What keeps it comes last.
fn shipped(endpoint: NetEndpoint, peer: &[u8]) -> (Engine, Box<[u8]>, Seat) {
    let all = vec![Box::from(endpoint.address()), Box::from(peer)];
    let config = Config::new().heap_bytes(1 << 20);
    let seat = Seat::take(&config, None, None, Box::new(|_| {})).expect("a job of one");
    let peers = &seat.peers;
    let far = peers.far_by_card(1, &peers.card(0, true)).expect("a fair card");
    peers.admit_far(1, far).expect("the first");
    let own = || {
        let checked = CheckedCopy::new().expect("a scratch file");
        OwnMemory::new(Arc::clone(peers.itself()), checked).with_bounce_buffers(Arc::clone(&seat.heap))
    };
    let shm = ShmTransport::new(Arc::clone(peers), Arc::default(), true, own());
    let mut engine = Engine::new(0, 2, HANDLERS, Router::near(shm));
    let ofi = OfiTransport::new(endpoint, members(0, all), own(), LIMIT);
    let net_wakeup = Arc::new(NetWakeup::new(None).expect("a descriptor"));
    engine.transport().set_network(of_ofi(ofi), Arc::clone(peers), net_wakeup);
    engine.register_by(firehose(1024, 1024), peers.own().places);
    (engine, vec![0; 2 << 12].into_boxed_slice(), seat)
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
    if words.contains(&"bare") {
        let polls = bare_hits(&provider, direction);
        let name = &provider.description().provider;
        println!("{name}: {direction:?} of 8 bytes, bare, {polls} polls, counted hits: {HITS}");
        return;
    }
    let [own, other] = [0; 2].map(|_| NetEndpoint::open(&provider, false).expect("the provider was offered"));
    let addresses = [own.address(), other.address()].map(Box::<[u8]>::from);
    let (mut node, memory, _seat) = shipped(own, &addresses[1]);
    let mut other = Side::new(1, other, &addresses[0]);
    let here = Place::new(MemId::Space, memory.as_ptr().expose_provenance() as u64);
    let there = other.place();
    // It lies in one run.
    let [here, there] = [here, there].map(|place| place.plus(4096 - place.offset % 4096));
    let piece = Piece::new(there, here, len).expect("it does not wrap");
    let mut inbox = Inbox::default();
    let mut polls = 0;
    for hit in 0..HITS + WARM_UPS {
        let counts = hit >= WARM_UPS;
        let id = if counts {
            begin(&mut node, 1, direction, &[piece])
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
            let outcome = if counts { end(&mut node, &mut inbox, id) } else { node.outcome(id) };
            if let Some(outcome) = outcome {
                break outcome;
            }
        };
        assert_eq!(outcome, Ok(0));
    }
    // All but the first, which asked for what it then held.
    assert!(node.registration_counters().hits >= u64::from(HITS));
    let provider = &provider.description().provider;
    println!("{provider}: {direction:?} of {len} bytes, {polls} polls, counted hits: {HITS}");
}
