//! Memory that a program keeps registered.

use engine::node::{PinError, PinId, Pinning, RegistrationCounters};
use engine::registration::TableCounters;
use engine::{Direction, MemId, Place, Transport as _};

use super::copies::BOTH;
use crate::bench::{Bench, Make, pattern, piece};
use crate::cluster::Cluster;

/// Bytes of each memory.
const LEN: usize = 10_000;

/// Pins are tried until there is no room, so many times at most.
const MOST: usize = 64;

/// Pins memory of rank 0's, and waits until it is there. `None`: registering has failed, as it may in some
/// simulations, and nothing is kept.
fn pin<C: Cluster>(bench: &mut Bench<C>, place: Place, len: usize) -> Result<Option<PinId>, PinError> {
    let before = references(bench);
    let pin = bench.node(0).pin(place.offset, len as u64)?;
    bench.until("a pin", |bench| bench.node(0).pinning(pin) != Pinning::Pending);
    if matches!(bench.node(0).pinning(pin), Pinning::Failed(_)) {
        bench.node(0).unpin(pin);
        assert_eq!(references(bench), before);
        let table = bench.node(0).registration_counters().table;
        assert!(table.failures + table.refusals > 0, "nothing was refused here: {table:?}");
        return Ok(None);
    }
    assert_eq!(bench.node(0).pinning(pin), Pinning::Held);
    Ok(Some(pin))
}

/// A bench of two, where rank 0 pins a byte. `None`: nothing is registered here, which is what it says.
fn bench<C: Cluster>(make: Make<'_, C>) -> Option<Bench<C>> {
    let mut bench = Bench::new(make, 2);
    let first = bench.memory(0, MemId::Space, 1);
    match pin(&mut bench, first, 1) {
        Ok(Some(pin)) => bench.node(0).unpin(pin),
        Ok(None) => return None,
        Err(error) => {
            assert_eq!(error, PinError::NotOffered);
            assert_eq!(bench.node(0).registration_counters(), RegistrationCounters::default());
            return None;
        }
    }
    Some(bench)
}

fn references<C: Cluster>(bench: &mut Bench<C>) -> u64 {
    bench.settle();
    bench.node(0).audit().expect("it adds up");
    bench.node(0).references().0
}

/// Rank 0 puts and gets all of its memory.
fn moves<C: Cluster>(bench: &mut Bench<C>, here: Place, there: Place) {
    for direction in BOTH {
        assert_eq!(bench.transfer(0, 1, direction, &[piece(there, here, LEN)]), Ok(0));
    }
}

pub(crate) fn what_is_pinned_stays_registered_until_it_is_not_pinned<C: Cluster>(make: Make<'_, C>) {
    let Some(mut bench) = bench(make) else { return };
    let here = bench.filled(0, MemId::Space, &pattern(1, LEN));
    let there = bench.memory(1, MemId::Space, LEN);
    let first = match pin(&mut bench, here, LEN) {
        Ok(Some(first)) => first,
        Ok(None) => return,
        // Budgets of few buckets are tested, too.
        Err(PinError::NoRoom { wanted, budget }) => {
            assert!(wanted > budget && wanted >= LEN as u64, "{wanted} of {budget}");
            assert_eq!(references(&mut bench), 0, "all or nothing");
            return;
        }
        Err(error) => panic!("{error:?}"),
    };
    let once = references(&mut bench);
    assert!(once > 0);
    // Pins of the same memory, and of parts of it, take no room.
    let Some(again) = pin(&mut bench, here, LEN).expect("it is there") else { return };
    let Some(part) = pin(&mut bench, here.plus(1), 1).expect("it is there") else { return };
    assert!(references(&mut bench) > 2 * once);
    moves(&mut bench, here, there);
    let registered = |bench: &mut Bench<C>| bench.node(0).registration_counters().table.registrations;
    let before = registered(&mut bench);
    moves(&mut bench, here, there);
    assert_eq!(bench.bytes(1, there, LEN), pattern(1, LEN));
    assert_eq!(registered(&mut bench), before, "it is registered already");
    bench.node(0).unpin(first);
    bench.node(0).unpin(part);
    assert_eq!(bench.node(0).pinning(again), Pinning::Held);
    assert_eq!(references(&mut bench), once);
    bench.node(0).unpin(again);
    assert_eq!(references(&mut bench), 0);
    // It is let go of when there is need, and until then found again.
    let Some(again) = pin(&mut bench, here, LEN).expect("room") else { return };
    assert_eq!(registered(&mut bench), before);
    bench.node(0).unpin(again);
    let Some(nothing) = pin(&mut bench, here, 0).expect("it takes no room") else { return };
    assert_eq!(references(&mut bench), 0);
    bench.node(0).unpin(nothing);
}

pub(crate) fn what_finds_no_room_beside_pins_goes_by_message<C: Cluster>(make: Make<'_, C>) {
    let Some(mut bench) = bench(make) else { return };
    let mut pins = Vec::new();
    let mut refused = None;
    while refused.is_none() && pins.len() < MOST {
        let more = bench.memory(0, MemId::Space, LEN);
        match pin(&mut bench, more, LEN) {
            Ok(Some(pin)) => pins.push(pin),
            Ok(None) => break,
            Err(error) => refused = Some(error),
        }
    }
    let pinned = bench.node(0).registration_counters().table;
    assert!(pinned.pinned <= pinned.budget, "{pinned:?}");
    if let Some(error) = refused {
        assert!(matches!(error, PinError::NoRoom { .. }), "{error:?}");
        let more = bench.memory(0, MemId::Space, 1 << 20);
        let before = bench.node(0).registration_counters().table;
        assert!(matches!(pin(&mut bench, more, 1 << 20), Err(PinError::NoRoom { .. })));
        let table = TableCounters { refusals: before.refusals + 1, ..before };
        assert_eq!(bench.node(0).registration_counters().table, table, "nothing is touched");
        // No bucket has room any more.
        for _ in 0..MOST {
            let more = bench.memory(0, MemId::Space, 1 << 14);
            match pin(&mut bench, more.plus(1 << 13), 1) {
                Ok(Some(pin)) => pins.push(pin),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
    // Whatever is pinned, transfers go on: by what is not pinned, or by messages.
    let here = bench.filled(0, MemId::Space, &pattern(2, LEN));
    let there = bench.memory(1, MemId::Space, LEN);
    let bounced = |bench: &mut Bench<C>| bench.node(0).registration_counters().bounced;
    let before = bounced(&mut bench);
    moves(&mut bench, here, there);
    assert_eq!(bench.bytes(1, there, LEN), pattern(2, LEN));
    // Some transports need no key for memory of the node's own.
    let needs_key = BOTH.iter().any(|way| bench.node(0).transport().unregistered_max(*way) < LEN as u64);
    assert!(refused.is_none() || !needs_key || bounced(&mut bench) > before, "by message, and counted");
    // And so do those of peers.
    assert_eq!(bench.transfer(1, 0, Direction::Get, &[piece(here, there, LEN)]), Ok(0));
    pins.into_iter().for_each(|pin| bench.node(0).unpin(pin));
    assert_eq!(references(&mut bench), 0);
}

pub(crate) fn changed_memory_is_pinned_no_more<C: Cluster>(make: Make<'_, C>) {
    let Some(mut bench) = bench(make) else { return };
    let here = bench.filled(0, MemId::Space, &pattern(3, LEN));
    let there = bench.memory(1, MemId::Space, LEN);
    let Some(byte) = pin(&mut bench, here, 1).expect("room for a byte") else { return };
    let before = references(&mut bench);
    bench.node(0).invalidate(here.offset + LEN as u64 + (1 << 20), 1);
    assert_eq!((references(&mut bench), bench.node(0).pinning(byte)), (before, Pinning::Held));
    bench.node(0).invalidate(here.offset, 1);
    assert_eq!(bench.node(0).pinning(byte), Pinning::Gone);
    assert_eq!(references(&mut bench), 0, "freed memory does not stay in memory");
    moves(&mut bench, here, there);
    let Some(anew) = pin(&mut bench, here, 1).expect("room for a byte") else { return };
    bench.node(0).unpin(byte);
    assert_eq!(bench.node(0).pinning(anew), Pinning::Held, "that was of the memory before");
    bench.node(0).unpin(anew);
    assert_eq!(references(&mut bench), 0);
}
