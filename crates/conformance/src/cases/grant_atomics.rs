//! Atomics and signals on words of what their owner has granted.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{
    Atomic, AtomicOp, Change, GRANT_BYTES, GrantId, Granted, MemId, OpError, OpId, Outcome, Place, Rank,
    Rights, WordType,
};

use crate::bench::{Bench, Make, pattern, piece};
use crate::cluster::Cluster;

/// Bytes that are granted.
const LEN: usize = 4096;

/// The owner of all that is granted here.
const OWNER: Rank = 1;

/// Private memory of the owner's, at a multiple of eight, with these bytes in it.
fn memory<C: Cluster>(bench: &mut Bench<C>, bytes: &[u8]) -> Place {
    let place = bench.memory(OWNER, MemId::Space, bytes.len() + 8);
    let place = place.plus(place.offset.next_multiple_of(8) - place.offset);
    bench.cluster.poke(OWNER, place, bytes);
    place
}

fn grant<C: Cluster>(bench: &mut Bench<C>, start: Place, rights: Rights) -> GrantId {
    let granted = Granted { start: start.offset, len: LEN as u64, rights, to: None };
    bench.node(OWNER).grant(granted).expect("few are granted here")
}

fn atomic<C: Cluster>(bench: &mut Bench<C>, rank: Rank, word: Place, atomic: Atomic) -> Outcome {
    let id = bench.node(rank).atomic(OWNER, word, atomic, None);
    bench.outcome(rank, id)
}

fn word<C: Cluster>(bench: &mut Bench<C>, place: Place) -> u64 {
    let bytes = bench.bytes(OWNER, place, 8);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes were asked for"))
}

/// Every atomic there is, on words that hold a number and that hold none.
fn changes(word: WordType) -> impl Iterator<Item = Atomic> {
    let values = match word {
        WordType::F32 => [1.5_f32, -0.0, f32::NAN].map(|value| u64::from(value.to_bits())),
        WordType::F64 => [1.5_f64, -0.0, f64::NAN].map(f64::to_bits),
        _ if word.size() == 4 => [3, 1 << 31, u64::from(u32::MAX)],
        _ => [3, 1 << 63, u64::MAX],
    };
    let applied = AtomicOp::ALL.map(|op| values.map(|value| Change::Apply(op, value)));
    let swapped = values.map(|new| values.map(|expected| Change::CompareSwap { expected, new }));
    let changes: Vec<Change> = applied.into_iter().flatten().chain(swapped.into_iter().flatten()).collect();
    let known = move |change| Some(Atomic::new(word, change)).filter(|atomic| atomic.impossible().is_none());
    changes.into_iter().filter_map(known)
}

pub(crate) fn words_of_grants_become_what_their_types_make_of_them<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let there = memory(&mut bench, &pattern(9, LEN));
    let name = grant(&mut bench, there, Rights::ReadWrite);
    for (at, of) in (0..).zip(WordType::ALL) {
        let (offset, size) = (512 + 16 * at, of.size() as usize);
        let place = Place::granted(name, offset);
        for (turn, change) in (0..).zip(changes(of)) {
            // The owner itself, too.
            let rank = turn % 3;
            let mut expected = bench.bytes(OWNER, there.plus(offset), size);
            let old = change.apply_to(&mut expected).expect("as many bytes as the word has");
            let (blind, told) = if turn % 2 == 0 { (change, old) } else { (change.without_old(), 0) };
            assert_eq!(atomic(&mut bench, rank, place, blind), Ok(told), "{blind:?} by {rank}");
            let found = bench.bytes(OWNER, there.plus(offset), size);
            // Which of all that are no numbers a sum is, is the processor's to say.
            let is_sum = matches!(change.change, Change::Apply(AtomicOp::Add, _)) && of.is_float();
            assert!(found == expected || is_sum, "{change:?}: {found:?} and not {expected:?}");
            assert_eq!(atomic(&mut bench, rank, place, Atomic::load(of)).map(|_| ()), Ok(()));
        }
    }
    let mut around = bench.bytes(OWNER, there, LEN);
    let words = 512..512 + 16 * WordType::ALL.len();
    around[words.clone()].copy_from_slice(&pattern(9, LEN)[words]);
    assert_eq!(around, pattern(9, LEN), "nothing else has changed");
}

pub(crate) fn each_atomic_on_a_granted_word_is_done_once<C: Cluster>(make: Make<'_, C>) {
    const EACH: u64 = 40;
    let mut bench = Bench::new(make, 4);
    let there = memory(&mut bench, &[0; LEN]);
    let names = [(); 2].map(|()| grant(&mut bench, there, Rights::ReadWrite));
    let mut ops: Vec<(Rank, OpId)> = Vec::new();
    for turn in 0..EACH {
        for rank in 0..4 {
            // By two names, and by one that has begun earlier in the memory.
            let place = Place::granted(names[(turn % 2) as usize], 64);
            ops.push((rank, bench.node(rank).atomic(OWNER, place, Atomic::fetch_add(3), None)));
        }
    }
    let old: BTreeSet<u64> =
        ops.iter().map(|(rank, id)| bench.outcome(*rank, *id).expect("an addition")).collect();
    assert_eq!(word(&mut bench, there.plus(64)), 4 * EACH * 3);
    assert!(old.iter().copied().eq((0..4 * EACH).map(|n| n * 3)), "two additions saw the same word");
    assert!((0..4).all(|rank| bench.node(rank).is_quiet()));
}

pub(crate) fn atomics_need_the_rights_to_what_they_do<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let there = memory(&mut bench, &[0; LEN]);
    for of in WordType::ALL {
        let add = Atomic::new(of, Change::Apply(AtomicOp::Add, 1));
        let swap = Atomic::new(of, Change::CompareSwap { expected: 7, new: 8 });
        for (change, needs) in [
            (Atomic::load(of), Rights::Read),
            (Atomic::store(of, 5).without_old(), Rights::Write),
            (add.without_old(), Rights::Write),
            (add, Rights::ReadWrite),
            (Atomic::store(of, 0), Rights::ReadWrite),
            (swap, Rights::ReadWrite),
        ] {
            for rights in [Rights::Read, Rights::Write, Rights::ReadWrite] {
                let name = grant(&mut bench, there, rights);
                for rank in 0..2 {
                    let before = bench.bytes(OWNER, there, 16);
                    let outcome = atomic(&mut bench, rank, Place::granted(name, 8), change);
                    let (grant, offset, len) = (name, 8, of.size());
                    let refused = OpError::NotGranted { peer: OWNER, grant, rights: needs, offset, len };
                    match rights.include(needs) {
                        true => assert!(outcome.is_ok(), "{change:?} with {rights:?}: {outcome:?}"),
                        false => {
                            assert_eq!(outcome, Err(refused), "{change:?}");
                            assert_eq!(bench.bytes(OWNER, there, 16), before);
                        }
                    }
                }
                bench.node(OWNER).revoke(name).expect("it is granted");
            }
        }
    }
    // Of those who are not named none may.
    let (start, len, to) = (there.offset, LEN as u64, Some(Arc::new(vec![2])));
    let for_one = Granted { start, len, rights: Rights::ReadWrite, to };
    let name = bench.node(OWNER).grant(for_one).expect("it is granted");
    for (rank, is_fine) in [(2, true), (0, false), (1, true)] {
        let outcome = atomic(&mut bench, rank, Place::granted(name, 0), Atomic::fetch_add(1));
        let is_refused = matches!(outcome, Err(OpError::NotGranted { rights: Rights::ReadWrite, .. }));
        assert_eq!((outcome.is_ok(), is_refused), (is_fine, !is_fine), "{outcome:?} of {rank}");
    }
    assert_eq!(word(&mut bench, there), 2);
}

pub(crate) fn no_word_changes_that_is_not_wholly_in_a_grant_that_stands<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    // A word's offset in the grant is one in the heap as well.
    let heap = bench.filled(OWNER, MemId::Heap, &pattern(2, LEN));
    let there = memory(&mut bench, &pattern(9, LEN));
    let old = grant(&mut bench, there, Rights::ReadWrite);
    bench.node(OWNER).revoke(old).expect("it is granted");
    let start = there.offset + 4;
    let granted = Granted { start, len: LEN as u64 - 8, rights: Rights::ReadWrite, to: None };
    let name = bench.node(OWNER).grant(granted).expect("few are granted");
    let denied = bench.node(OWNER).counters().denied;
    let mut refused = 0;
    let peer = OWNER;
    for of in WordType::ALL {
        let (size, len) = (of.size(), of.size());
        for change in [Atomic::new(of, Change::Apply(AtomicOp::Add, 1)), Atomic::load(of)] {
            for stale in [old, GrantId { line: 77_777, generation: 5 }] {
                let revoked = OpError::Revoked { peer, grant: stale, offset: 16, len };
                assert_eq!(atomic(&mut bench, 0, Place::granted(stale, 16), change), Err(revoked));
            }
            for beyond in [LEN as u64 - 8, LEN as u64 - 8 - size + 1, LEN as u64, GRANT_BYTES - 1] {
                let place = Place::granted(name, 0).saturating_plus(beyond);
                let fault = OpError::Fault { peer, mem: place.mem, addr: place.offset, len };
                assert_eq!(atomic(&mut bench, 0, place, change), Err(fault), "{change:?} at {beyond}");
            }
            // Its own address counts: the grant begins four bytes behind a multiple of eight.
            for offset in [1, 2, 3, 5, 7, if size == 8 { 8 } else { 6 }] {
                let unaligned = OpError::Unaligned { peer, grant: name, offset, size };
                assert_eq!(atomic(&mut bench, 0, Place::granted(name, offset), change), Err(unaligned));
            }
            refused += 12;
            assert_eq!(bench.node(OWNER).counters().denied, denied + refused);
            // By address there are none, whatever covers it.
            let fault = OpError::Fault { peer, mem: there.mem, addr: there.offset, len };
            let outcome = atomic(&mut bench, 0, there, change);
            assert!(outcome == Err(fault) || matches!(outcome, Err(OpError::Unsupported { .. })));
        }
    }
    assert_eq!(bench.bytes(OWNER, there, LEN), pattern(9, LEN));
    assert_eq!(bench.bytes(OWNER, heap, LEN), pattern(2, LEN));
    assert_eq!((bench.node(0).in_flight(), bench.node(0).is_lost(1)), (0, false));
    assert_eq!((bench.node(1).grants(), bench.node(1).is_lost(0)), (1, false));
}

pub(crate) fn an_operation_that_a_type_lacks_is_refused_in_grants<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let there = memory(&mut bench, &[0xff; LEN]);
    let name = grant(&mut bench, there, Rights::ReadWrite);
    for (word, op) in [(WordType::F32, AtomicOp::And), (WordType::F64, AtomicOp::Xor)] {
        let change = Atomic::new(word, Change::Apply(op, 0));
        let refused = Err(OpError::NoSuchAtomic { peer: OWNER, op, word });
        assert_eq!(atomic(&mut bench, 0, Place::granted(name, 0), change), refused);
        let here = bench.filled(0, MemId::Space, &[1; 8]);
        let pieces = [piece(Place::granted(name, 64), here, 8)];
        let id = bench.node(0).transfer_then_signal(OWNER, &pieces, Place::granted(name, 0), change, None);
        assert_eq!(bench.outcome(0, id), refused);
    }
    assert_eq!(bench.bytes(OWNER, there, LEN), [0xff; LEN]);
}

/// The owner looks at the grant when it hears of the atomic, and not when that began.
pub(crate) fn an_atomic_changes_what_the_name_stands_for_when_it_is_done<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let [old, new] = [(); 2].map(|()| memory(&mut bench, &[0; LEN]));
    let names = [(); 2].map(|()| grant(&mut bench, old, Rights::ReadWrite));
    assert_eq!(atomic(&mut bench, 0, Place::granted(names[0], 8), Atomic::fetch_add(1)), Ok(0));
    bench.sleep(OWNER);
    let ask = |bench: &mut Bench<C>, name| {
        bench.node(0).atomic(OWNER, Place::granted(name, 8), Atomic::fetch_add(10), None)
    };
    let ids = names.map(|name| ask(&mut bench, name));
    bench.settle();
    assert_eq!(ids.map(|id| bench.node(0).outcome(id)), [None, None], "nobody but the owner does it");
    bench.node(OWNER).repoint(names[0], new.offset).expect("it is granted");
    bench.node(OWNER).revoke(names[1]).expect("it is granted");
    bench.wake(OWNER);
    assert_eq!(bench.outcome(0, ids[0]), Ok(0));
    let revoked = OpError::Revoked { peer: OWNER, grant: names[1], offset: 8, len: 8 };
    assert_eq!(bench.outcome(0, ids[1]), Err(revoked));
    assert_eq!([old, new].map(|place| word(&mut bench, place.plus(8))), [1, 10]);
    // Nobody is at the memory for that.
    bench.until("nobody to be at the memory", |bench| bench.node(OWNER).is_grant_idle(names[1]));
}

pub(crate) fn an_atomic_in_a_grant_that_is_given_up_settles<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let there = memory(&mut bench, &[0; LEN]);
    let name = grant(&mut bench, there, Rights::ReadWrite);
    let place = Place::granted(name, 0);
    assert_eq!(atomic(&mut bench, 0, place, Atomic::fetch_add(1)), Ok(0));
    bench.sleep(OWNER);
    let now = bench.cluster.now();
    let late = bench.node(0).atomic(OWNER, place, Atomic::fetch_add(10), Some(now + 1));
    let cancelled = bench.node(0).atomic(OWNER, place, Atomic::fetch_add(100), None);
    bench.settle();
    bench.node(0).expire(now + 1);
    bench.node(0).cancel(cancelled);
    let timeout = Some(Err(OpError::Timeout { peer: OWNER }));
    assert_eq!([late, cancelled].map(|id| bench.node(0).outcome(id)), [timeout; 2]);
    assert_eq!((bench.node(0).in_flight(), bench.node(0).is_quiet()), (0, false), "they may be done yet");
    // In a narrow lane the second found no room, and was taken back.
    let expected = if bench.node(0).settling() == 2 { 111 } else { 11 };
    bench.wake(OWNER);
    bench.until("what was given up to settle", |bench| bench.node(0).is_quiet());
    assert_eq!(word(&mut bench, there), expected, "each that was sent was done, once, before that");
    // One that is lost answers nothing.
    bench.sleep(OWNER);
    let ids = [0, 2].map(|rank| (rank, bench.node(rank).atomic(OWNER, place, Atomic::fetch_add(1), None)));
    bench.kill(OWNER);
    for (rank, id) in ids {
        assert_eq!(bench.outcome(rank, id), Err(OpError::PeerLost { peer: OWNER }));
        assert!(bench.node(rank).is_quiet());
    }
}

pub(crate) fn signals_in_grants_follow_the_bytes<C: Cluster>(make: Make<'_, C>) {
    const BYTES: usize = 300_000;
    let mut bench = Bench::new(make, 3);
    let counters = memory(&mut bench, &[0; LEN]);
    let (write, read) =
        (grant(&mut bench, counters, Rights::Write), grant(&mut bench, counters, Rights::Read));
    let signal = Atomic::fetch_add(1).without_old();
    for mem in [MemId::Space, MemId::Heap] {
        let there = bench.memory(OWNER, mem, BYTES);
        for (turn, (rank, len)) in (0..).zip([(0, 8), (2, BYTES), (0, 0), (1, 5000)]) {
            let data = pattern(40 + turn, BYTES);
            let here = bench.filled(rank, MemId::Space, &data);
            let before = word(&mut bench, counters.plus(24));
            let pieces = [piece(there, here, len)];
            let counter = Place::granted(write, 24);
            let id = bench.node(rank).transfer_then_signal(OWNER, &pieces, counter, signal, None);
            bench.until("the signal", |bench| word(bench, counters.plus(24)) != before);
            assert_eq!(bench.bytes(OWNER, there, len), data[..len], "the counter was first");
            assert_eq!(bench.outcome(rank, id), Ok(0));
            assert_eq!(word(&mut bench, counters.plus(24)), before + 1);
            // A counter that may not change: the bytes have been put by then.
            let refused = Place::granted(read, 24);
            let id = bench.node(rank).transfer_then_signal(OWNER, &pieces, refused, signal, None);
            let (grant, offset, rights) = (read, 24, Rights::Write);
            let error = OpError::NotGranted { peer: OWNER, grant, rights, offset, len: 8 };
            assert_eq!(bench.outcome(rank, id), Err(error));
            assert_eq!(word(&mut bench, counters.plus(24)), before + 1);
        }
    }
    // Where the bytes cannot be put, nothing is signalled.
    let here = bench.filled(0, MemId::Space, &[1; 8]);
    let pieces = [piece(Place::granted(read, 0), here, 8)];
    let id = bench.node(0).transfer_then_signal(OWNER, &pieces, Place::granted(write, 24), signal, None);
    assert!(matches!(bench.outcome(0, id), Err(OpError::NotGranted { peer: OWNER, .. })));
    assert_eq!(word(&mut bench, counters.plus(24)), 8);
}

pub(crate) fn a_granted_word_that_is_not_there_is_a_fault_of_its_owners<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    // The last page of all that there could be.
    let nowhere = Place::new(MemId::Space, u64::MAX - (1 << 21) + 1);
    let name = grant(&mut bench, nowhere, Rights::ReadWrite);
    for of in WordType::ALL {
        let store = Atomic::store(of, 1);
        for change in [store, store.without_old(), Atomic::load(of)] {
            let place = Place::granted(name, 64);
            let fault = OpError::Fault { peer: OWNER, mem: place.mem, addr: place.offset, len: of.size() };
            assert_eq!(atomic(&mut bench, 0, place, change), Err(fault), "{change:?}");
        }
    }
    assert_eq!((bench.node(0).is_lost(OWNER), bench.node(OWNER).counters().denied), (false, 0));
}
