//! Atomics and signals on words of granted memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use standpipe::{
    AtomicOp, AtomicWord, Audience, Config, Error, Exposure, FetchRoom, Foreign, GlobalPtr, GrantName,
    HandlerId, Mechanism, Memory, Node, Operation, Rank, Remote, Rights, Signal, Until, Word,
};

use super::{LIMIT, Way, alone, ask, config, job, tell};

/// Nodes that let their peers reach all of their memory, that do not, and that nobody can attach.
const KINDS: [fn() -> Config; 3] = [
    || config(),
    || config().exposure(Exposure::Ranges),
    || Way::Message.config().exposure(Exposure::Ranges),
];

/// The name that a rank tells.
fn told(node: &Node, what: &str, rank: Rank) -> Remote {
    Remote::granted(rank, GrantName::from_words(ask(node, what, rank)).expect("a name"))
}

/// The word from before.
#[derive(Default)]
struct Old(u64);

impl FetchRoom for Old {
    fn set_old(&mut self, bits: u64) {
        self.0 = bits;
    }
}

/// By every call that there is: what comes back, and what each makes of the word.
fn by_every_call<T>(node: &Node, word: impl Into<Word<T>>, [zero, one, two, seven]: [T; 4])
where
    T: AtomicWord + PartialEq + std::fmt::Debug,
{
    let word = word.into();
    node.atomic_store(word, one).expect("it is granted");
    assert_eq!(node.fetch_add(word, one), Ok(one));
    assert_eq!(node.fetch(word, AtomicOp::Max, seven), Ok(two));
    assert_eq!(node.fetch(word, AtomicOp::Swap, one), Ok(seven));
    assert_eq!(node.compare_swap(word, two, seven), Ok(one));
    assert_eq!(node.compare_swap(word, one, two), Ok(one));
    assert_eq!(node.atomic_load(word), Ok(two));
    node.update_nbi(word, AtomicOp::Min, one).and_then(|()| node.quiet()).expect("it is granted");
    node.update_nb(word, AtomicOp::Add, one).wait().0.expect("it is granted");
    assert_eq!(node.atomic_load_nb(word).wait(), (Ok(()), Some(two)));
    node.atomic_store_nbi(word, seven).and_then(|()| node.quiet()).expect("it is granted");
    assert_eq!(node.fetch_nb(word, AtomicOp::Swap, one).wait(), (Ok(()), Some(seven)));
    assert_eq!(node.compare_swap_nb(word, one, two).wait(), (Ok(()), Some(one)));
    node.atomic_store_nb(word, seven).wait().0.expect("it is granted");
    let (result, Old(bits)) = node.fetch_nb_into(word, AtomicOp::Min, zero, Old::default()).wait();
    result.expect("it is granted");
    let (result, Old(again)) = node.compare_swap_nb_into(word, zero, seven, Old(1)).wait();
    assert_eq!((result, again), (Ok(()), 0), "the bits of zero");
    let (result, Old(loaded)) = node.atomic_load_nb_into(word, Old::default()).wait();
    assert_eq!((result, loaded), (Ok(()), bits));
    assert_eq!(node.atomic_load(word), Ok(seven));
}

fn on_all_types(node: &Node, there: Remote) {
    by_every_call(node, there.word::<u32>(), [0, 1, 2, 7]);
    by_every_call(node, there.plus(4).word::<i32>(), [0, 1, 2, 7]);
    by_every_call(node, there.plus(8).word::<u64>(), [0, 1, 2, 7]);
    by_every_call(node, there.plus(16).word::<i64>(), [0, 1, 2, 7]);
    by_every_call(node, there.plus(24).word::<f32>(), [0.0, 1.0, 2.0, 7.0]);
    by_every_call(node, there.plus(32).word::<f64>(), [0.0, 1.0, 2.0, 7.0]);
    // Signed as their types are.
    node.atomic_store(there.plus(4).word(), -5_i32).expect("it is granted");
    assert_eq!(node.fetch(there.plus(4).word(), AtomicOp::Max, 3_i32), Ok(-5));
    assert_eq!(node.atomic_load(there.plus(4).word::<i32>()), Ok(3));
    for op in [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor] {
        let refused = node.fetch(there.plus(24).word::<f32>(), op, 1.0);
        assert!(matches!(refused, Err(Error::NoSuchAtomic { .. })), "{refused:?}");
    }
}

#[test]
fn atomics_change_words_of_granted_memory() {
    for kind in KINDS {
        job(
            2,
            |_| kind(),
            |node| {
                let other = 1 - node.rank();
                let private = node.grant(vec![0_u64; 64], Rights::ReadWrite, Audience::ALL).expect("granted");
                let heap = node.heap().alloc_zeroed::<u64>(64).expect("room");
                let pointer = heap.ptr(0);
                let heap = node.grant(heap, Rights::ReadWrite, Audience::ALL).expect("granted");
                tell(node, "private", private.name().to_words());
                tell(node, "heap", heap.name().to_words());
                tell(node, "pointer", pointer.to_words());
                // Each has a part of its own at each of the two.
                let part = 256 * u64::from(node.rank());
                for rank in [other, node.rank()] {
                    for what in ["private", "heap"] {
                        on_all_types(node, told(node, what, rank).plus(part));
                    }
                }
                let there = GlobalPtr::<u64>::from_words(ask(node, "pointer", other));
                let name = told(node, "heap", other).plus(part);
                let mine = there.add(part as usize / 8);
                by_every_call(node, mine.add(1), [0, 1, 2, 7]);
                node.fetch_add(name.plus(8).word::<u64>(), 1).expect("it is granted");
                assert_eq!(node.atomic_load(mine.add(1)), Ok(8), "it is the same word");
                let counted = node.stats().get(Operation::Atomic, Mechanism::Message);
                assert!(counted.count >= 4 * 6 * 17, "{counted:?}");
                node.barrier().expect("both are done");
            },
        );
    }
}

#[test]
fn what_the_grant_does_not_allow_is_refused_with_its_values() {
    for kind in KINDS {
        job(
            2,
            |_| kind(),
            |node| {
                let other = 1 - node.rank();
                let grant = |rights, to| node.grant(vec![5_u64; 4], rights, to).expect("granted");
                let all = [Rights::Read, Rights::Write].map(|rights| grant(rights, Audience::ALL));
                let mine = grant(Rights::ReadWrite, Audience::from([node.rank()]));
                let gone = grant(Rights::ReadWrite, Audience::ALL);
                for (what, name) in ["read", "write", "mine", "gone"].into_iter().zip([
                    all[0].name(),
                    all[1].name(),
                    mine.name(),
                    gone.name(),
                ]) {
                    tell(node, what, name.to_words());
                }
                drop(gone);
                node.barrier().expect("both have granted");
                let [read, write, not_mine, gone] =
                    ["read", "write", "mine", "gone"].map(|what| told(node, what, other));
                let refused = |result: Result<(), Error>, needs| match result {
                    Err(Error::NotGranted { peer, rights, offset, len, .. }) => {
                        assert_eq!((peer, rights, offset, len), (other, needs, 8, 8));
                    }
                    other => panic!("{other:?}"),
                };
                let (read, write) = (read.plus(8).word::<u64>(), write.plus(8).word::<u64>());
                assert_eq!(node.atomic_load(read), Ok(5));
                refused(node.atomic_store(read, 1), Rights::Write);
                refused(node.update_nb(read, AtomicOp::Add, 1).wait().0, Rights::Write);
                refused(node.fetch_add(read, 1).map(drop), Rights::ReadWrite);
                refused(node.compare_swap(read, 5, 6).map(drop), Rights::ReadWrite);
                refused(node.atomic_load(write).map(drop), Rights::Read);
                refused(node.fetch_add(write, 1).map(drop), Rights::ReadWrite);
                let (result, old) = node.fetch_nb(write, AtomicOp::Add, 1).wait();
                assert_eq!(old, None);
                refused(result, Rights::ReadWrite);
                refused(node.fetch_add(not_mine.plus(8).word::<u64>(), 1).map(drop), Rights::ReadWrite);
                node.update_nbi(read, AtomicOp::Add, 1).expect("nothing shows yet");
                refused(node.quiet(), Rights::Write);
                node.atomic_store(write, 6).expect("it is granted");
                node.update_nbi(write, AtomicOp::Add, 1).and_then(|()| node.quiet()).expect("it is granted");
                let revoked = node.fetch_add(gone.plus(8).word::<u64>(), 1);
                let Err(Error::Revoked { peer, offset, len, .. }) = revoked else { panic!("{revoked:?}") };
                assert_eq!((peer, offset, len), (other, 8, 8));
                for (at, size) in [(28, 8), (32, 4), (1 << 30, 8), (u64::MAX, 4)] {
                    let there = told(node, "read", other).plus(at);
                    let fault = match size {
                        8 => node.atomic_load(there.word::<u64>()).map(drop),
                        _ => node.atomic_load(there.word::<f32>()).map(drop),
                    };
                    let addr = at.min((1 << 40) - 1);
                    let expected = Error::Fault { peer: other, memory: Memory::Granted, addr, len: size };
                    assert_eq!(fault, Err(expected));
                }
                for (at, size) in [(1, 4), (2, 4), (4, 8), (7, 8)] {
                    let there = told(node, "read", other).plus(at);
                    let unaligned = match size {
                        8 => node.atomic_load(there.word::<i64>()).map(drop),
                        _ => node.atomic_load(there.word::<i32>()).map(drop),
                    };
                    assert_eq!(unaligned, Err(Error::Unaligned { peer: other, offset: at, size }));
                }
                // Nine that the rights forbid, one by a name that is gone, four beyond, four that lie askew.
                let barred = node.stats().barred();
                node.barrier().expect("both have tried");
                assert_eq!((barred, node.stats().denied()), (18, 18));
                let given = |mut grant: standpipe::Grant<Vec<u64>>| {
                    grant.revoke().expect("it is granted");
                    grant.wait_idle(LIMIT).expect("nobody is at it")
                };
                let [read, write] = all.map(given);
                assert_eq!((read, write, given(mine)), (vec![5; 4], vec![5, 7, 5, 5], vec![5; 4]));
                node.barrier().expect("before the other one ends");
            },
        );
    }
}

#[test]
fn a_word_has_one_order_of_changes_by_pointer_and_by_name() {
    const EACH: u64 = 300;
    job(
        3,
        |_| config(),
        |node| {
            if node.rank() == 0 {
                let heap = node.heap().alloc_zeroed::<u64>(2).expect("room");
                tell(node, "pointer", heap.ptr(0).to_words());
                let grant = node.grant(heap, Rights::ReadWrite, Audience::ALL).expect("granted");
                tell(node, "name", grant.name().to_words());
                node.barrier().expect("all have added");
                let mut grant = grant;
                grant.revoke().expect("it is granted");
                let heap = grant.wait_idle(LIMIT).expect("nobody is at it");
                assert_eq!(heap.to_vec(), [2 * 2 * EACH, 0]);
                return;
            }
            let pointer = GlobalPtr::<u64>::from_words(ask(node, "pointer", 0));
            let name = told(node, "name", 0).word::<u64>();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        node.fetch_add(pointer, 1).expect("it is the heap");
                    }
                });
                for _ in 0..EACH / 2 {
                    node.fetch_add(name, 1).expect("it is granted");
                    // A change between the two makes it fail.
                    let mut old = node.atomic_load(name).expect("it is granted");
                    while let found = node.compare_swap(name, old, old + 1).expect("it is granted")
                        && found != old
                    {
                        old = found;
                    }
                }
            });
            node.barrier().expect("all have added");
        },
    );
}

#[test]
fn signals_change_granted_counters_and_wake_who_waits() {
    for kind in KINDS {
        job(
            2,
            |_| kind(),
            |node| {
                let other = 1 - node.rank();
                let heap = node.heap().alloc_zeroed::<u64>(2).expect("room");
                let counter = heap.ptr(0);
                let heap = node.grant(heap, Rights::Write, Audience::ALL).expect("granted");
                let private =
                    node.grant(vec![0_u8; 4096], Rights::ReadWrite, Audience::ALL).expect("granted");
                tell(node, "counters", heap.name().to_words());
                tell(node, "bytes", private.name().to_words());
                let (there, bytes) = (told(node, "counters", other), told(node, "bytes", other));
                let own = told(node, "bytes", node.rank());
                for turn in 1..=5_u8 {
                    let word = there.word::<u64>();
                    let signal = Signal::add(word, 1);
                    match turn {
                        1 | 2 => node.put_signal(bytes, &[turn; 4000], signal).expect("it is granted"),
                        3 => node.put_signal_nbi(bytes, &[turn; 4000], signal).expect("it is granted"),
                        4 => {
                            let event = node.put_signal_nb(bytes, vec![turn; 4000], signal);
                            event.wait().0.expect("it is granted");
                        }
                        _ => {
                            node.put_signal(bytes, &[turn; 4000], Signal::set(word, 5))
                                .expect("it is granted");
                        }
                    }
                    assert_eq!(node.wait_signal(counter, Until::Ge(u64::from(turn))), Ok(turn.into()));
                    let mut found = [0; 4000];
                    node.get_bytes(own, &mut found).expect("it is granted");
                    assert!(found.iter().all(|byte| *byte == turn), "the counter was first");
                    node.barrier().expect("both have looked");
                }
                // To itself.
                let itself = told(node, "counters", node.rank());
                std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| node.wait_signal(counter, 6_u64));
                    node.put_signal(own, &[9_u8; 8], Signal::add(itself.word(), 1)).expect("it is granted");
                    assert_eq!(waiter.join().expect("it does not panic"), Ok(6));
                });
                node.barrier().expect("both have put to themselves");
                // A counter that is refused, after the bytes; of another rank, before them.
                let odd = Signal::add(there.plus(4).word(), 1);
                let unaligned = Error::Unaligned { peer: other, offset: 4, size: 8 };
                assert_eq!(node.put_signal(bytes, &[10_u8; 8], odd), Err(unaligned));
                let elsewhere = Error::Elsewhere { peer: node.rank(), expected: other };
                let signal = Signal::add(itself.word(), 1);
                assert_eq!(node.put_signal(bytes.plus(100), &[10_u8; 8], signal), Err(elsewhere));
                node.barrier().expect("both have tried");
                let mut found = [0; 108];
                node.get_bytes(own, &mut found).expect("it is granted");
                assert_eq!((found[0], found[107]), (10, 5));
                assert_eq!(node.atomic_load(counter), Ok(6));
                node.barrier().expect("before the other one ends");
            },
        );
    }
}

#[test]
fn handlers_and_queues_start_atomics_on_granted_words() {
    let done = Arc::new(AtomicBool::new(false));
    let handled = Arc::clone(&done);
    job(
        2,
        move |_| {
            let handled = Arc::clone(&handled);
            config().handler("add", move |call| {
                let [line, len, ..] = call.args();
                let name = GrantName::from_words([line, len]).expect("a name");
                let word = Remote::granted(call.from(), name).word::<u64>();
                call.node().update_nbi(word, AtomicOp::Add, 100).expect("nothing shows yet");
                let refused = call.node().fetch_add(word, 1);
                assert!(matches!(refused, Err(Error::InHandler { .. })), "{refused:?}");
                handled.store(true, Ordering::Release);
            })
        },
        |node| {
            if node.rank() == 1 {
                node.wait_until(|| done.load(Ordering::Acquire)).expect("a message");
                node.quiet().expect("it is granted");
                let there = told(node, "name", 0);
                let queue = node.completions::<Old>(50).expect("room");
                for token in 0..50 {
                    let event = node.fetch_nb_into(there.word::<u64>(), AtomicOp::Add, 1, Old::default());
                    queue.reserve().expect("room").start(token, event);
                }
                let mut olds: Vec<u64> = Vec::new();
                while let Some(one) = queue.wait_any().expect("it is open") {
                    one.result.expect("it is granted");
                    olds.push(one.buffer.0);
                }
                olds.sort_unstable();
                assert!(olds.iter().copied().eq(100..150), "{olds:?}");
                node.barrier().expect("both are done");
                return;
            }
            let grant = node.grant(vec![0_u64; 2], Rights::ReadWrite, Audience::ALL).expect("granted");
            tell(node, "name", grant.name().to_words());
            let [line, len] = grant.name().to_words();
            node.request(1, HandlerId::of("", "add"), [line, len, 0, 0]).expect("it is there");
            node.barrier().expect("both are done");
        },
    );
}

/// As memory that a program has granted and unmapped all the same.
#[test]
fn granted_words_that_are_not_there_are_their_owners_fault() {
    job(
        2,
        |_| config(),
        |node| {
            let other = 1 - node.rank();
            // SAFETY: nothing is there that anybody could harm: it is the last page below the kernel's half.
            let nowhere = unsafe { Foreign::new(std::ptr::without_provenance_mut(1 << 62), 64, ()) };
            let grant = node.grant(nowhere, Rights::ReadWrite, Audience::ALL).expect("granted");
            tell(node, "nowhere", grant.name().to_words());
            for rank in [other, node.rank()] {
                let word = told(node, "nowhere", rank).plus(8).word::<u64>();
                let fault = Error::Fault { peer: rank, memory: Memory::Granted, addr: 8, len: 8 };
                assert_eq!(node.fetch_add(word, 1), Err(fault.clone()));
                assert_eq!(node.atomic_load(word), Err(fault.clone()));
                assert_eq!(node.atomic_store(word, 1), Err(fault));
            }
            node.barrier().expect("both live");
        },
    );
}

#[test]
fn nothing_has_words_by_address() {
    let node = alone(config());
    let words: Vec<AtomicU64> = (0..4).map(AtomicU64::new).collect();
    let addr = words.as_ptr().expose_provenance() as u64;
    let grant = node.share(vec![1_u8; 8], Audience::ALL).expect("granted");
    // SAFETY: these are atomics, which take writes at any time, and live to the test's end.
    let there = unsafe { Remote::raw(0, addr) };
    let fault = Error::Fault { peer: 0, memory: Memory::Private, addr, len: 8 };
    assert_eq!(node.fetch_add(there.word::<u64>(), 1), Err(fault.clone()));
    let from = node.heap().alloc_zeroed::<u64>(1).expect("room");
    assert_eq!(node.put_signal(from.ptr(0), &[1_u64], Signal::add(there.word(), 1)), Err(fault));
    assert_eq!((from.read(0), words[0].load(Ordering::Relaxed)), (0, 0), "nothing was put");
    assert_eq!(Word::from(from.ptr(0)), Remote::from(from.ptr(0)).word(), "a pointer is a word");
    drop(grant);
}

/// Far more than any lane has room for.
#[test]
fn a_flood_of_updates_is_counted_once_each() {
    const EACH: u64 = 30_000;
    job(
        2,
        |_| config(),
        |node| {
            let other = 1 - node.rank();
            let grant = node.grant(vec![0_u64; 2], Rights::Write, Audience::ALL).expect("granted");
            tell(node, "name", grant.name().to_words());
            let word = told(node, "name", other).word::<u64>();
            for _ in 0..EACH {
                node.update_nbi(word, AtomicOp::Add, 1).expect("nothing shows yet");
            }
            node.quiet().expect("it is granted");
            node.barrier().expect("both have counted");
            let mut grant = grant;
            grant.revoke().expect("it is granted");
            assert_eq!(grant.wait_idle(LIMIT).expect("nobody is at it"), [EACH, 0]);
            node.barrier().expect("before the other one ends");
        },
    );
}
