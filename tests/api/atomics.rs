//! Atomics on heap words.

use std::sync::Mutex;

use standpipe::{AtomicOp, AtomicWord, Error, Event, GlobalPtr, Memory, Operation, ProgressThread, WordType};

use super::*;

#[test]
fn all_ranks_count_in_one_word() {
    job(
        3,
        |_| config(),
        |node| {
            let word = node.heap().alloc_zeroed::<u64>(2).expect("room");
            tell(node, "word", word.ptr(0).to_words());
            let there = GlobalPtr::<u64>::from_words(ask(node, "word", 0));
            for _ in 0..1000 {
                node.fetch_add(there, 1).expect("fetch-add");
                // A counter by compare-swap beside it.
                let mut seen = node.get(there.add(1)).expect("get");
                loop {
                    let old = node.compare_swap(there.add(1), seen, seen + 2).expect("compare-swap");
                    if old == seen {
                        break;
                    }
                    seen = old;
                }
            }
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(word.to_vec(), [3000, 6000]);
            }
            assert!(node.stats().total(Operation::Atomic).count >= 2000);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn words_that_cannot_be_are_refused() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u64>(2).expect("room");
    let odd = GlobalPtr::<u64>::new(0, array.ptr(0).offset() + 4);
    assert_eq!(
        node.fetch_add(odd, 1),
        Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 })
    );
    assert_eq!(
        node.compare_swap(odd, 0, 1),
        Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 })
    );
    for offset in [4 << 20, 1 << 40, u64::MAX - 7] {
        let fault = Error::Fault { peer: 0, memory: Memory::Heap, addr: offset, len: 8 };
        assert_eq!(node.fetch_add(GlobalPtr::<u64>::new(0, offset), 1), Err(fault));
    }
    assert_eq!(array.to_vec(), [0, 0]);
    assert_eq!(node.compare_swap(array.ptr(0), 5, 6), Ok(0), "another word was expected");
    assert_eq!(array.read(0), 0);
    assert_eq!(node.fetch_add(array.ptr(0), u64::MAX), Ok(0));
    assert_eq!(node.fetch_add(array.ptr(0), 2), Ok(u64::MAX), "additions wrap");
    assert_eq!(array.read(0), 1);
}

#[test]
fn words_of_all_types_and_changes_that_nobody_waits_for() {
    job(
        3,
        |_| config(),
        |node| {
            let (wide, narrow) = (node.heap().alloc_zeroed::<i64>(8), node.heap().alloc_zeroed::<u32>(8));
            let (wide, narrow) = (wide.expect("room"), narrow.expect("room"));
            tell(node, "wide", wide.ptr(0).to_words());
            tell(node, "narrow", narrow.ptr(0).to_words());
            node.barrier().expect("barrier");
            let next = (node.rank() + 1) % 3;
            let there: GlobalPtr<i64> = GlobalPtr::from_words(ask(node, "wide", next));
            assert_eq!(node.fetch(there, AtomicOp::Min, -5), Ok(0));
            assert_eq!(node.fetch(there, AtomicOp::Max, -7), Ok(-5));
            assert_eq!(node.fetch(there, AtomicOp::Swap, i64::MIN), Ok(-5));
            assert_eq!(node.fetch_add(there, -1), Ok(i64::MIN));
            assert_eq!(node.compare_swap(there, i64::MAX, 12), Ok(i64::MAX));
            // All at once on the words of rank 0.
            let zero: GlobalPtr<u32> = GlobalPtr::from_words(ask(node, "narrow", 0));
            for n in 0..300 {
                node.update_nbi(zero, AtomicOp::Add, 1).expect("add");
                node.update_nbi(zero.add(1), AtomicOp::Xor, 1 << node.rank()).expect("xor");
                node.update_nbi(zero.add(2), AtomicOp::Or, 1 << (n % 32)).expect("or");
                node.update_nbi(zero.add(3), AtomicOp::Max, 1000 * node.rank() + n).expect("max");
            }
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(narrow.to_vec()[..5], [900, 0, u32::MAX, 2299, 0]);
            }
            assert_eq!(wide.to_vec()[..2], [12, 0]);
            node.barrier().expect("barrier");
        },
    );
}

/// Of each type: bits come and go as they are, also those of negative zeros and of what is no number.
#[test]
fn words_are_loaded_and_stored() {
    fn turn<T: AtomicWord>(node: &Node, name: &str, values: &[T]) {
        let words = node.heap().alloc_zeroed::<T>(1).expect("room");
        tell(node, name, words.ptr(0).to_words());
        let word: GlobalPtr<T> = GlobalPtr::from_words(ask(node, name, right_of(node)));
        let bits = |word: T| bytemuck::bytes_of(&word).to_vec();
        for value in values {
            let is_it = |found: T| assert_eq!(bits(found), bits(*value));
            node.atomic_store(word, *value).expect("stored");
            is_it(node.atomic_load(word).expect("loaded"));
            node.atomic_store(word, T::zeroed()).expect("stored");
            node.atomic_store_nb(word, *value).wait().0.expect("stored");
            is_it(node.atomic_load_nb(word).wait().1.expect("loaded"));
            node.atomic_store(word, T::zeroed()).expect("stored");
            node.atomic_store_nbi(word, *value).expect("begun");
            node.quiet().expect("stored");
            is_it(node.fetch(word, AtomicOp::Swap, *value).expect("swapped"));
        }
        node.barrier().expect("barrier");
    }
    job(
        2,
        |_| config(),
        |node| {
            turn(node, "u32", &[7_u32, u32::MAX]);
            turn(node, "i32", &[7_i32, i32::MIN, -1]);
            turn(node, "u64", &[7_u64, u64::MAX]);
            turn(node, "i64", &[7_i64, i64::MIN, -1]);
            turn(node, "f32", &[1.5_f32, -0.0, f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)]);
            turn(node, "f64", &[1.5_f64, -0.0, f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)]);
        },
    );
}

/// Stores of three ranks, of which each sets both halves of a word, beside additions to another that each
/// rank's loads never see go back.
#[test]
fn loads_are_whole_and_in_one_order_with_all_changes() {
    const TURNS: u64 = 300;
    job(
        3,
        |_| config(),
        |node| {
            let words = node.heap().alloc_zeroed::<u64>(2).expect("room");
            tell(node, "words", words.ptr(0).to_words());
            let there: GlobalPtr<u64> = GlobalPtr::from_words(ask(node, "words", 0));
            let mut floor = 0;
            for turn in 1..=TURNS {
                let mark = 3 * turn + u64::from(node.rank());
                node.atomic_store_nbi(there, mark << 32 | mark).expect("stored");
                let seen = node.atomic_load(there).expect("loaded");
                assert_eq!(seen >> 32, seen & u64::from(u32::MAX), "{seen:#x} is torn");
                let old = node.fetch_add(there.add(1), 1).expect("added");
                let seen = node.atomic_load(there.add(1)).expect("loaded");
                assert!(floor <= old && old < seen, "{floor}, then {old}, then {seen}");
                floor = seen;
            }
            node.barrier().expect("barrier");
            assert_eq!(node.atomic_load(there.add(1)), Ok(3 * TURNS));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn loads_and_stores_fail_as_all_atomics_do() {
    job(
        2,
        |_| config(),
        |node| {
            let words = node.heap().alloc_zeroed::<u64>(2).expect("room");
            tell(node, "words", words.ptr(0).to_words());
            let peer = right_of(node);
            let odd: GlobalPtr<u64> = GlobalPtr::<u32>::from_words(ask(node, "words", peer)).add(1).cast();
            let unaligned = Error::Unaligned { peer, offset: odd.offset(), size: 8 };
            assert_eq!(node.atomic_load(odd), Err(unaligned.clone()));
            assert_eq!(node.atomic_store(odd, 1), Err(unaligned.clone()));
            assert_eq!(node.atomic_store_nbi(odd, 1), Err(unaligned.clone()));
            assert_eq!(node.atomic_store_nb(odd, 1).wait().0, Err(unaligned.clone()));
            assert_eq!(node.atomic_load_nb(odd).wait(), (Err(unaligned), None));
            let beyond: GlobalPtr<u64> = GlobalPtr::new(peer, 1 << 40);
            let fault = Error::Fault { peer, memory: Memory::Heap, addr: 1 << 40, len: 8 };
            assert_eq!(node.atomic_load(beyond), Err(fault.clone()));
            assert_eq!(node.atomic_store(beyond, 1), Err(fault));
            let nobody: GlobalPtr<u64> = GlobalPtr::new(2, 0);
            assert_eq!(node.atomic_load(nobody), Err(Error::NoSuchPeer { peer: 2, size: 2 }));
            node.barrier().expect("barrier");
            assert_eq!(words.to_vec(), [0, 0]);
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn narrow_words_are_aligned_to_themselves() {
    let node = alone(config());
    let array = node.heap().alloc_zeroed::<u32>(4).expect("room");
    let second = array.ptr(1);
    assert_eq!(node.fetch(second, AtomicOp::Or, 6), Ok(0), "4 bytes at a multiple of 4");
    let odd: GlobalPtr<i32> = GlobalPtr::new(0, second.offset() + 2);
    let unaligned = Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 4 };
    assert_eq!(node.fetch_add(odd, 1), Err(unaligned.clone()));
    assert_eq!(node.update_nbi(odd, AtomicOp::Add, 1), Err(unaligned));
    let fault = Error::Fault { peer: 0, memory: Memory::Heap, addr: u64::MAX - 3, len: 4 };
    assert_eq!(node.fetch_add(GlobalPtr::<u32>::new(0, u64::MAX - 3), 1), Err(fault));
    assert_eq!(array.to_vec(), [0, 6, 0, 0]);
}

#[test]
fn the_failure_of_a_change_that_nobody_waits_for_is_told_by_quiet() {
    job(
        2,
        |_| config(),
        |node| {
            node.barrier().expect("barrier");
            let beyond: GlobalPtr<u64> = GlobalPtr::new(1 - node.rank(), 1 << 40);
            let fault = Error::Fault { peer: beyond.peer(), memory: Memory::Heap, addr: 1 << 40, len: 8 };
            let told = node.update_nbi(beyond, AtomicOp::Add, 1).and_then(|()| node.quiet());
            assert_eq!(told, Err(fault));
            assert_eq!(node.quiet(), Ok(()), "it is told once");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn floats_of_all_ranks_add_up_and_have_an_order() {
    job(
        3,
        |_| config(),
        |node| {
            let (wide, narrow) = (node.heap().alloc_zeroed::<f64>(4), node.heap().alloc_zeroed::<f32>(4));
            let (wide, narrow) = (wide.expect("room"), narrow.expect("room"));
            tell(node, "wide", wide.ptr(0).to_words());
            tell(node, "narrow", narrow.ptr(0).to_words());
            let there: GlobalPtr<f64> = GlobalPtr::from_words(ask(node, "wide", 0));
            let slim: GlobalPtr<f32> = GlobalPtr::from_words(ask(node, "narrow", 0));
            let rank = f32::from(node.rank() as u8);
            // Sums that no rounding changes, whatever their order.
            for n in 0..100_u8 {
                let n = f32::from(n);
                node.fetch_add(there, 0.25).expect("add");
                node.update_nbi(slim, AtomicOp::Add, 0.5).expect("add");
                node.update_nbi(there.add(1), AtomicOp::Min, f64::from(-n - 0.25 * rank)).expect("min");
                node.update_nb(slim.add(1), AtomicOp::Max, n + 0.25 * rank).wait().0.expect("max");
            }
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                assert_eq!(
                    (wide.to_vec(), narrow.to_vec()),
                    (vec![75.0, -99.5, 0.0, 0.0], vec![150.0, 99.5, 0.0, 0.0])
                );
            }
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn floats_are_compared_by_bits_and_numbers_go_before_what_is_none() {
    job(
        2,
        |_| config(),
        |node| {
            let words = node.heap().alloc_zeroed::<f64>(1).expect("room");
            tell(node, "words", words.ptr(0).to_words());
            let there: GlobalPtr<f64> = GlobalPtr::from_words(ask(node, "words", right_of(node)));
            let bits = |word: Result<f64, Error>| word.expect("an atomic").to_bits();
            assert_eq!(bits(node.compare_swap(there, -0.0, 1.0)), 0.0_f64.to_bits(), "another zero is there");
            assert_eq!(bits(node.compare_swap(there, 0.0, -0.0)), 0.0_f64.to_bits());
            assert_eq!(bits(node.fetch(there, AtomicOp::Max, 0.0)), (-0.0_f64).to_bits());
            assert_eq!(bits(node.fetch(there, AtomicOp::Min, -0.0)), 0.0_f64.to_bits(), "the greater zero");
            assert_eq!(bits(node.fetch(there, AtomicOp::Swap, f64::NAN)), (-0.0_f64).to_bits());
            assert_eq!(bits(node.compare_swap(there, f64::NAN, f64::NAN)), f64::NAN.to_bits(), "itself");
            assert!(node.fetch_add(there, 1.0).expect("add").is_nan());
            assert!(node.fetch(there, AtomicOp::Min, 3.0).expect("min").is_nan(), "a sum with it is none");
            assert_eq!(node.fetch(there, AtomicOp::Max, f64::NAN), Ok(3.0), "a number goes before");
            assert_eq!(node.fetch(there, AtomicOp::Swap, f64::MAX), Ok(3.0));
            assert_eq!(node.fetch_add(there, f64::MAX), Ok(f64::MAX));
            assert_eq!(node.fetch_add(there, f64::NEG_INFINITY), Ok(f64::INFINITY));
            assert!(node.fetch_add(there, 0.0).expect("add").is_nan());
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn floats_have_no_operations_on_bits() {
    job(
        2,
        |_| config(),
        |node| {
            let words = node.heap().alloc_from(&[1.5_f32; 2]).expect("room");
            tell(node, "words", words.ptr(0).to_words());
            let there: GlobalPtr<f32> = GlobalPtr::from_words(ask(node, "words", right_of(node)));
            for op in [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor] {
                let none = Error::NoSuchAtomic { op, word: WordType::F32 };
                assert_eq!(node.fetch(there, op, 2.0), Err(none.clone()));
                assert_eq!(node.update_nbi(there, op, 2.0), Err(none.clone()));
                assert_eq!(node.update_nb(there, op, 2.0).wait().0, Err(none.clone()));
                assert_eq!(node.fetch_nb(there, op, 2.0).wait(), (Err(none.clone()), None));
                assert!(none.to_string().contains("f32") && none.to_string().contains(&format!("{op:?}")));
                assert_eq!(none.code(), standpipe::Code::NoSuchOperation);
            }
            node.barrier().expect("barrier");
            assert_eq!((node.quiet(), words.to_vec()), (Ok(()), vec![1.5; 2]));
            node.barrier().expect("barrier");
        },
    );
}

/// Events give the word from before, alone, in groups, in queues and to tasks.
#[test]
fn words_from_before_come_with_events() {
    fn turn<T: AtomicWord + PartialEq + std::fmt::Debug>(node: &Node, name: &str, [zero, a, b, c]: [T; 4]) {
        let words = node.heap().alloc_zeroed::<T>(1).expect("room");
        tell(node, name, words.ptr(0).to_words());
        let word: GlobalPtr<T> = GlobalPtr::from_words(ask(node, name, right_of(node)));
        assert_eq!(node.fetch_nb(word, AtomicOp::Add, a).wait(), (Ok(()), Some(zero)));
        assert_eq!(node.compare_swap_nb(word, b, c).wait(), (Ok(()), Some(a)), "not swapped");
        let (old, rest) = node.compare_swap_nb(word, a, b).wait_local();
        assert_eq!((old, rest.wait().0), (Some(a), Ok(())));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(node.fetch_nb(word, AtomicOp::Max, c)), (Ok(()), Some(b)));
        let mut group = node.group();
        group.add(node.fetch_nb(word, AtomicOp::Swap, a));
        assert_eq!(group.wait(), (Ok(()), vec![Some(c)]));
        let queue = node.completions(2).expect("a descriptor");
        queue.reserve().expect("room").start(7, node.fetch_nb(word, AtomicOp::Min, zero));
        let done = queue.wait_any().expect("it ends").expect("there is one");
        assert_eq!((done.token, done.peer, done.result, done.buffer), (7, word.peer(), Ok(()), Some(a)));
        queue.reserve().expect("room").start(8, node.compare_swap_nb(word, zero, c));
        let done = queue.wait_any().expect("it ends").expect("there is one");
        assert_eq!((done.token, done.result, done.buffer), (8, Ok(()), Some(zero)));
        // Nobody waits for this one: it goes on.
        drop(node.fetch_nb(word, AtomicOp::Swap, b));
        node.quiet().expect("it has not failed");
        assert_eq!(node.fetch(word, AtomicOp::Swap, zero), Ok(b));
        node.barrier().expect("barrier");
    }
    job(
        2,
        |_| config(),
        |node| {
            turn(node, "u32", [0_u32, 1, 2, u32::MAX]);
            turn(node, "i32", [0_i32, 1, 2, i32::MAX]);
            turn(node, "u64", [0_u64, 1, 2, u64::MAX]);
            turn(node, "i64", [0_i64, 1, 2, i64::MAX]);
            turn(node, "f32", [0_f32, 1.0, 2.5, 1e30]);
            turn(node, "f64", [0_f64, 1.0, 2.5, 1e300]);
        },
    );
}

#[test]
fn a_fetch_that_fails_or_is_given_up_gives_no_word() {
    job(
        2,
        |_| config(),
        |node| {
            node.barrier().expect("barrier");
            let peer = right_of(node);
            let beyond: GlobalPtr<u64> = GlobalPtr::new(peer, 1 << 40);
            let fault = Error::Fault { peer, memory: Memory::Heap, addr: 1 << 40, len: 8 };
            assert_eq!(node.fetch_nb(beyond, AtomicOp::Add, 1).wait(), (Err(fault.clone()), None));
            drop(node.compare_swap_nb(beyond, 0, 1));
            assert_eq!((node.quiet(), node.quiet()), (Err(fault), Ok(())), "told once");
            let odd: GlobalPtr<i64> = GlobalPtr::new(peer, 12);
            let unaligned = Error::Unaligned { peer, offset: 12, size: 8 };
            assert_eq!(node.compare_swap_nb(odd, 0, 1).wait(), (Err(unaligned), None));
            node.barrier().expect("barrier");
        },
    );
    if std::env::var(TRANSPORT).is_err() {
        return;
    }
    // The owner makes no progress, so that it is under way.
    let broker = Broker::start(2).expect("a broker");
    let configure = || config().progress(ProgressThread::Off);
    let zero = Node::open_in(configure(), Some(&broker.env(0))).expect("a node");
    let one = Node::open_in(configure(), Some(&broker.env(1))).expect("a node");
    let word = one.heap().alloc_zeroed::<u64>(1).expect("room");
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| zero.connect(1));
        while !connects.is_finished() {
            one.progress();
        }
        connects.join().expect("no panic").expect("connected");
    });
    let (result, old) = zero.fetch_nb(word.ptr(0), AtomicOp::Add, 1).cancel();
    assert!(matches!(result, Err(Error::Cancelled { peer: 1 })) && old.is_none(), "{result:?}");
    let (result, old) = zero.within(Duration::from_millis(20)).fetch_nb(word.ptr(0), AtomicOp::Add, 1).wait();
    assert_eq!((result, old), (Err(Error::Timeout { peer: 1, unattended: true }), None));
    let mut event = zero.fetch_nb(word.ptr(0), AtomicOp::Or, 0);
    assert!(!event.is_complete(), "its owner has made no progress");
    drop(one);
    let (result, old) = event.wait();
    assert!(old.is_some() == result.is_ok() && matches!(result, Ok(()) | Err(Error::PeerLost { peer: 1 })));
}

#[test]
fn handlers_fetch_without_waiting() {
    type Begun = Mutex<Option<Event<Option<u64>>>>;
    let begun: [Arc<Begun>; 2] = Default::default();
    let configure = |rank: u32| {
        let begun = Arc::clone(&begun[rank as usize]);
        config().handler("fetch", move |call| {
            let word = GlobalPtr::from_words([call.args()[0], call.args()[1]]);
            let event = call.node().fetch_nb(word, AtomicOp::Add, 1);
            *begun.lock().expect("nobody panicked") = Some(event);
        })
    };
    job(2, configure, |node| {
        let words = node.heap().alloc_from(&[5_u64]).expect("room");
        node.barrier().expect("barrier");
        let [peer, place] = words.ptr(0).to_words();
        let fetch = node.handler("fetch").expect("registered");
        node.request(right_of(node), fetch, [peer, place, 0, 0]).expect("sent");
        let begun = &begun[node.rank() as usize];
        let has_begun = || begun.lock().expect("nobody panicked").is_some();
        node.wait_until(has_begun).expect("the other asks");
        let event = begun.lock().expect("nobody panicked").take().expect("just seen");
        assert_eq!(event.wait(), (Ok(()), Some(5)));
        node.barrier().expect("barrier");
        assert_eq!(words.read(0), 6);
        node.barrier().expect("barrier");
    });
}
