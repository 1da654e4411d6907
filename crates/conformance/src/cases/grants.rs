//! Memory that its owner has granted, by name.

use std::sync::Arc;

use engine::{
    AmBody, AmSend, Atomic, Direction, GRANT_BYTES, GrantId, GrantPeerCounters, Granted, Lane, MemId,
    OpError, Place, Rank, Rights,
};

use super::copies::BOTH;
use crate::bench::{Bench, Make, NOTE, pattern, piece, skipped};
use crate::cluster::Cluster;

/// Bytes of each memory: whole buckets, and parts of some; more than bounce buffers take for.
const LEN: usize = 300_000;

fn grant<C: Cluster>(bench: &mut Bench<C>, rank: Rank, place: Place, rights: Rights) -> GrantId {
    let granted = Granted { start: place.offset, len: LEN as u64, rights, to: None };
    bench.node(rank).grant(granted).expect("few are granted here")
}

fn shows_only_what_is_granted<C: Cluster>(bench: &mut Bench<C>, here: Place) {
    for rights in [Rights::Read, Rights::Write, Rights::ReadWrite] {
        let there = bench.filled(1, MemId::Space, &pattern(9, LEN));
        let name = grant(bench, 1, there, rights);
        for direction in BOTH {
            for (at, len) in [(0, LEN), (5, 1), (LEN - 8, 8), (4096, 16_384), (7, LEN - 7)] {
                let remote = Place::granted(name, at as u64);
                let outcome = bench.transfer(0, 1, direction, &[piece(remote, here, len)]);
                match (rights.allow(direction), outcome, direction) {
                    (true, Ok(0), Direction::Put) => {
                        let own = bench.bytes(0, here, len);
                        assert_eq!(bench.bytes(1, there.plus(at as u64), len), own);
                    }
                    (true, Ok(0), Direction::Get) => {
                        let own = bench.bytes(0, here, len);
                        assert_eq!(bench.bytes(1, there.plus(at as u64), len), own);
                    }
                    (false, Err(OpError::NotGranted { peer: 1, grant, rights: told, .. }), _) => {
                        assert_eq!((grant, told), (name, direction.into()));
                    }
                    (_, outcome, _) => panic!("{outcome:?} of a {direction:?} with {rights:?}"),
                }
            }
        }
    }
}

/// Waits until no peer is at memory of rank 1's that a name stands for no more.
fn idle<C: Cluster>(bench: &mut Bench<C>, name: GrantId) {
    bench.until("nobody to be at the memory", |bench| bench.node(1).is_grant_idle(name));
    assert_eq!(bench.node(1).grant_holder(name), None);
}

pub(crate) fn what_is_granted_is_reached_by_name<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(3, LEN));
    shows_only_what_is_granted(&mut bench, here);
    // Whatever is exposed, and from the heap as well.
    bench.node(1).expose_ranges_only();
    let here = bench.filled(0, MemId::Heap, &pattern(4, LEN));
    shows_only_what_is_granted(&mut bench, here);
}

pub(crate) fn a_name_that_is_revoked_reaches_nothing<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(3, LEN));
    let there = bench.filled(1, MemId::Space, &pattern(9, LEN));
    let old = grant(&mut bench, 1, there, Rights::ReadWrite);
    assert!(bench.node(1).revoke(old).is_some() && bench.node(1).revoke(old).is_none());
    let new = grant(&mut bench, 1, there, Rights::ReadWrite);
    assert_eq!((new.line, bench.node(1).grants()), (old.line, 1));
    let forged = GrantId { line: 77_777, generation: 5 };
    for direction in BOTH {
        for stale in [old, forged] {
            for len in [1, LEN] {
                let outcome = bench.transfer(0, 1, direction, &[piece(Place::granted(stale, 0), here, len)]);
                let Err(OpError::Revoked { peer: 1, grant, .. }) = outcome else {
                    panic!("{outcome:?} of a {direction:?} by a stale name");
                };
                assert_eq!(grant, stale);
            }
        }
        for beyond in [LEN as u64, LEN as u64 + (1 << 20), GRANT_BYTES - 1] {
            let remote = Place::granted(new, 0).saturating_plus(beyond);
            let outcome = bench.transfer(0, 1, direction, &[piece(remote, here, 1)]);
            let fault = OpError::Fault { peer: 1, mem: remote.mem, addr: remote.offset, len: 1 };
            assert_eq!(outcome, Err(fault), "{direction:?} of {beyond:#x}");
        }
    }
    assert_eq!(bench.bytes(1, there, LEN), pattern(9, LEN), "nothing was put");
    let (counters, peers) = (bench.node(1).counters().clone(), bench.node(1).grants_by_peer().peers);
    let refused = GrantPeerCounters { denied: counters.denied, ..GrantPeerCounters::default() };
    assert!(counters.denied > 0 && peers == [(0, refused)], "{peers:?}");
    assert_eq!((counters.grants, counters.granted, counters.grants_made), (1, LEN as u64, 2));
}

pub(crate) fn memory_that_is_idle_is_reached_by_newer_names_alone<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let there = bench.memory(1, MemId::Space, LEN);
    let here = [0, 2].map(|rank| (rank, bench.filled(rank, MemId::Space, &pattern(3, LEN))));
    let mut old = Vec::new();
    for round in 0..4 {
        bench.cluster.poke(1, there, &pattern(20 + round, LEN));
        // Two names for the same bytes, of which peers use one.
        let names = [(); 2].map(|()| grant(&mut bench, 1, there, Rights::ReadWrite));
        for (rank, here) in here {
            let get =
                bench.transfer(rank, 1, Direction::Get, &[piece(Place::granted(names[0], 0), here, LEN)]);
            assert_eq!((get, bench.bytes(rank, here, LEN)), (Ok(0), pattern(20 + round, LEN)));
            for stale in &old {
                for direction in BOTH {
                    let pieces = [piece(Place::granted(*stale, 8), here, 4096)];
                    let outcome = bench.transfer(rank, 1, direction, &pieces);
                    assert!(matches!(outcome, Err(OpError::Revoked { peer: 1, .. })), "{outcome:?}");
                }
            }
        }
        assert_eq!(bench.bytes(1, there, LEN), pattern(20 + round, LEN), "nothing was put");
        for name in names {
            assert!(bench.node(1).revoke(name).is_some());
            idle(&mut bench, name);
        }
        old = names.to_vec();
    }
}

pub(crate) fn grants_are_for_those_who_are_named<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let there = bench.filled(1, MemId::Space, &pattern(9, LEN));
    let (start, len, to) = (there.offset, LEN as u64, Some(Arc::new(vec![2])));
    let name = bench.node(1).grant(Granted { start, len, rights: Rights::Read, to }).expect("it is granted");
    for (rank, is_fine) in [(2, true), (0, false), (1, true)] {
        let here = bench.memory(rank, MemId::Space, LEN);
        let outcome = bench.transfer(rank, 1, Direction::Get, &[piece(Place::granted(name, 0), here, LEN)]);
        match is_fine {
            true => assert_eq!((outcome, bench.bytes(rank, here, LEN)), (Ok(0), pattern(9, LEN))),
            false => assert!(matches!(outcome, Err(OpError::NotGranted { peer: 1, .. })), "{outcome:?}"),
        }
    }
}

pub(crate) fn lists_mix_grants_with_other_memory<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let data = pattern(5, 40_000);
    let here = bench.filled(0, MemId::Space, &data);
    let [first, second, space] = [(); 3].map(|()| bench.memory(1, MemId::Space, LEN));
    let heap = bench.memory(1, MemId::Heap, LEN);
    let names = [first, second].map(|place| grant(&mut bench, 1, place, Rights::Write));
    let targets = [Place::granted(names[0], 100), heap, Place::granted(names[1], 0), space];
    let pieces: Vec<_> = (0..4).map(|at| piece(targets[at], here.plus(10_000 * at as u64), 10_000)).collect();
    assert_eq!(bench.transfer(0, 1, Direction::Put, &pieces), Ok(0));
    for (at, place) in [first.plus(100), heap, second, space].into_iter().enumerate() {
        assert_eq!(bench.bytes(1, place, 10_000), data[10_000 * at..][..10_000], "piece {at}");
    }
    // One of them is revoked: the others may have been done.
    bench.node(1).revoke(names[1]);
    let outcome = bench.transfer(0, 1, Direction::Put, &pieces);
    assert!(
        matches!(outcome, Err(OpError::Revoked { peer: 1, grant, .. }) if grant == names[1]),
        "{outcome:?}"
    );
}

pub(crate) fn puts_into_grants_signal_and_tell<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let data = pattern(5, LEN);
    let here = bench.filled(0, MemId::Space, &data);
    let there = bench.memory(1, MemId::Space, LEN);
    let counter = bench.memory(1, MemId::Heap, 8);
    let name = grant(&mut bench, 1, there, Rights::Write);
    for (sent, len) in [(1, 8), (2, LEN)] {
        let pieces = [piece(Place::granted(name, 0), here, len)];
        let id = bench.node(0).transfer_then_signal(1, &pieces, counter, Atomic::fetch_add(1), None);
        let outcome = bench.outcome(0, id);
        if skipped("a put into a grant that signals", outcome) {
            return;
        }
        assert_eq!(outcome, Ok(sent - 1));
        assert_eq!(bench.bytes(1, there, len), data[..len]);
    }
    let place = Place::granted(name, 16);
    let body = AmBody::Long(place, 64);
    bench.send(0, &AmSend { peer: 1, lane: Lane::Request, handler: NOTE, args: [7; 4], body });
    bench.until("the message", |bench| !bench.got[1].is_empty());
    let (told, 64) = bench.got[1][0].landed.expect("it is a long one") else { panic!("it has 64 bytes") };
    assert_eq!(bench.node(1).landed(0, (told, 64)), Some((name, 16, LEN as u64)));
    assert_eq!(bench.node(1).landed(0, (told, LEN as u64)), None, "it says more than there is");
    bench.node(1).revoke(name);
    assert_eq!(bench.node(1).landed(0, (told, 64)), None);
    let id = bench.node(0).transfer_then_signal(
        1,
        &[piece(place, here, LEN - 16)],
        counter,
        Atomic::fetch_add(1),
        None,
    );
    assert!(matches!(bench.outcome(0, id), Err(OpError::Revoked { peer: 1, .. })));
    assert_eq!(bench.bytes(1, counter, 1), [2], "it signals nothing");
}

pub(crate) fn a_grant_that_is_repointed_names_other_memory<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let [old, new] = [8, 9].map(|seed| bench.filled(1, MemId::Space, &pattern(seed, LEN)));
    let here = bench.memory(0, MemId::Space, LEN);
    let name = grant(&mut bench, 1, old, Rights::ReadWrite);
    for (place, seed) in [(old, 8), (new, 9), (old, 8)] {
        bench.node(1).repoint(name, place.offset).expect("it is granted");
        idle(&mut bench, name);
        let get = bench.transfer(0, 1, Direction::Get, &[piece(Place::granted(name, 0), here, LEN)]);
        assert_eq!((get, bench.bytes(0, here, LEN)), (Ok(0), pattern(seed, LEN)));
    }
    bench.node(1).revoke(name);
    assert_eq!(bench.node(1).repoint(name, new.offset), None);
}

pub(crate) fn granted_memory_that_is_not_there_is_a_fault_of_its_owners<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.filled(0, MemId::Space, &pattern(3, LEN));
    // The last page of all that there could be.
    let nowhere = Place::new(MemId::Space, u64::MAX - (1 << 21));
    let name = grant(&mut bench, 1, nowhere, Rights::ReadWrite);
    for direction in BOTH {
        for len in [8, LEN] {
            let outcome = bench.transfer(0, 1, direction, &[piece(Place::granted(name, 0), here, len)]);
            let Err(OpError::Fault { peer: 1, mem: MemId::Grant(_), addr, .. }) = outcome else {
                panic!("{outcome:?} of a {direction:?} where the owner has no memory");
            };
            assert!(addr < Place::granted(name, LEN as u64).offset);
        }
    }
}
