//! Large copies within a host that threads apart make.

use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Error, Part, ProgressThread, PutPiece, Signal};

use super::*;
use crate::events::block_on;

/// Bytes of a large copy, and of one that the caller makes.
const LARGE: usize = 3 << 20;
const SMALL: usize = 100 << 10;

fn configure(_: u32) -> Config {
    config().copiers(2)
}

/// A place of the right neighbour's in its heap, and one in its private memory, of so many bytes.
fn places(node: &Node, private: &mut [u8], heap: &standpipe::HeapArray<u8>) -> [Remote; 2] {
    let theirs = exchange_private(node, private);
    let words = heap.ptr(0).to_words();
    let name = |rank| format!("copiers {rank}");
    node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&words)).expect("published");
    let found = node.directory().wait(&name(right_of(node)), LIMIT).expect("published");
    let words: [u64; 2] = bytemuck::pod_read_unaligned(&found);
    [theirs, GlobalPtr::<u8>::from_words(words).into()]
}

#[test]
fn all_other_tests_hold_with_copiers() {
    let itself = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(itself);
    command.args(["--skip", "network::", "--skip", "copiers::"]).env(COPIERS, "2");
    if !testbed::has_time_for("but tests of puts and gets") {
        command.args(["rma::", "runs::"]);
    }
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn large_copies_are_made_apart_and_arrive_whole() {
    job(2, configure, |node| {
        let mut private = vec![0u8; LARGE];
        let heap = node.heap().alloc_zeroed::<u8>(LARGE).expect("room");
        for (turn, there) in places(node, &mut private, &heap).into_iter().enumerate() {
            for len in [SMALL, LARGE - 1, LARGE] {
                let bytes = pattern((10 * turn + len) as u64, len);
                let (result, bytes) = block_on(node.put_nb(there, bytes));
                result.expect("put");
                let (result, got) = node.get_nb(there, vec![0u8; len]).wait();
                assert!(result == Ok(()) && got == bytes, "{there:?}, {len}");
            }
            // Many at a time, and lists.
            let queue = node.completions(16).expect("a descriptor");
            for token in 0..8 {
                queue.reserve().expect("room").start(token, node.get_nb(there, vec![0u8; LARGE]));
            }
            let bytes = pattern((10 * turn + LARGE) as u64, LARGE);
            while let Some(done) = queue.wait_any().expect("in time") {
                assert!(done.result == Ok(()) && done.buffer == bytes, "{}", done.token);
            }
            let half = LARGE / 2;
            let pieces = [
                PutPiece { to: there.plus(half as u64), from: &bytes[..half] },
                PutPiece { to: there, from: &bytes[half..] },
            ];
            node.put_list(&pieces).expect("put");
            node.put_list_nbi(&pieces).expect("put");
            node.quiet().expect("quiet");
            let (result, part) = node.get_nb(there, Part::new(vec![0u8; LARGE], half..LARGE)).wait();
            result.expect("got");
            assert!(part.into_inner()[half..] == bytes[half..]);
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn what_follows_a_large_put_is_done_after_it() {
    let configure = |rank| configure(rank).progress(ProgressThread::On);
    job(2, configure, |node| {
        let mut private = vec![0u8; LARGE];
        let heap = node.heap().alloc_zeroed::<u8>(LARGE).expect("room");
        let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
        let words = counter.ptr(0).to_words();
        let name = |rank| format!("counter {rank}");
        node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&words)).expect("published");
        let theirs = node.directory().wait(&name(right_of(node)), LIMIT).expect("published");
        let theirs = GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&theirs));
        let there = places(node, &mut private, &heap);
        for (turn, there) in there.into_iter().enumerate() {
            let bytes = pattern(turn as u64, LARGE);
            node.put_signal(there, &bytes, Signal::add(theirs, 1)).expect("put");
            node.wait_signal(counter.ptr(0), turn as u64 + 1).expect("signalled");
            match turn {
                0 => assert!(private == bytes),
                _ => assert!(heap.to_vec() == bytes),
            }
            node.barrier().expect("barrier");
        }
    });
}

#[test]
fn a_deadline_cuts_a_copy_off_and_the_buffer_is_touched_no_more() {
    if skipped_over_the_network() {
        return;
    }
    job(2, configure, |node| {
        let mut private = vec![1u8; LARGE];
        let heap = node.heap().alloc_from(&vec![1u8; LARGE]).expect("room");
        let hurried = node.within(Duration::from_micros(1));
        for there in places(node, &mut private, &heap) {
            node.barrier().expect("barrier");
            let late = (0..100).find_map(|_| {
                let mut into = vec![0u8; LARGE];
                let result = hurried.get_bytes(there, &mut into);
                let before = into.clone();
                assert!(matches!(result, Ok(()) | Err(Error::Timeout { .. })), "{result:?}");
                std::thread::sleep(Duration::from_millis(1));
                assert!(into == before, "it was touched after the call");
                result.err()
            });
            assert_eq!(late, Some(Error::Timeout { peer: right_of(node), unattended: false }));
            for _ in 0..20 {
                let (result, buffer) = node.get_nb(there, vec![0u8; LARGE]).cancel();
                let before = buffer.clone();
                assert!(matches!(result, Ok(()) | Err(Error::Cancelled { .. })), "{result:?}");
                std::thread::sleep(Duration::from_millis(1));
                assert!(buffer == before, "it was touched after it had been given back");
            }
            assert_eq!(node.get_nb(there, vec![0u8; LARGE]).wait().0, Ok(()));
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn faults_come_with_the_place_that_was_not_there() {
    if skipped_over_the_network() {
        return;
    }
    job(2, configure, |node| {
        let (result, buffer) = node.get_nb(nowhere(right_of(node)), vec![7u8; LARGE]).wait();
        assert!(matches!(result, Err(Error::Fault { len: 1.., .. })), "{result:?}");
        assert_eq!(buffer.len(), LARGE);
        let beyond: Remote = GlobalPtr::<u8>::new(right_of(node), 8 << 20).into();
        let (result, _) = node.put_nb(beyond, vec![7u8; LARGE]).wait();
        assert!(matches!(result, Err(Error::Fault { .. })), "{result:?}");
        node.barrier().expect("barrier");
    });
}

/// Handlers may start large copies, and collectives make some.
#[test]
fn collectives_and_handlers_go_by_them() {
    let seen = Arc::new(AtomicU64::new(0));
    let by = Arc::clone(&seen);
    let configure = move |rank| {
        let by = Arc::clone(&by);
        configure(rank).handler("pull", move |call| {
            // SAFETY: the requester keeps the memory to the barrier, and changes nothing of it.
            let from = unsafe { Remote::raw(call.from(), call.args()[0]) };
            let event = call.node().get_nb(from, vec![0u8; LARGE]);
            by.fetch_add(1, Ordering::SeqCst);
            drop(event);
        })
    };
    job(3, configure, |node| {
        let mut words = vec![u64::from(node.rank()) + 1; LARGE / 8];
        node.world().all_reduce(&mut words, standpipe::Reduction::Sum).expect("summed");
        assert!(words.iter().all(|word| *word == 6));
        let pull = node.handler("pull").expect("registered");
        let from = words.as_ptr().expose_provenance() as u64;
        node.request(right_of(node), pull, [from, 0, 0, 0]).expect("sent");
        node.wait_until(|| seen.load(Ordering::SeqCst) >= 3).expect("pulled");
        node.barrier().expect("barrier");
        assert!(words.iter().all(|word| *word == 6));
    });
}

/// A cancel cuts a copy off in its middle.
#[test]
fn a_cancelled_copy_does_not_go_on() {
    if skipped_over_the_network() {
        return;
    }
    const HUGE: usize = 64 << 20;
    let configure = |_| config().heap_bytes(1 << 20).copiers(1);
    job(2, configure, |node| {
        let mut private = vec![1u8; HUGE];
        let there = exchange_private(node, &mut private);
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            let cut_off = (0..10).find(|_| {
                let (result, buffer) = node.get_nb(there, vec![0u8; HUGE]).cancel();
                let copied = buffer.iter().map(|byte| usize::from(*byte)).sum::<usize>();
                assert!(matches!(result, Err(Error::Cancelled { .. })) || copied == HUGE, "{result:?}");
                copied < HUGE / 2
            });
            assert!(cut_off.is_some(), "each went on to more than half");
        }
        node.barrier().expect("barrier");
    });
}

/// Buffers that the owner lends for copies in steps are given back, however the copies end.
#[test]
fn cancelled_transfers_by_message_leave_nothing_behind() {
    if skipped_over_the_network() {
        return;
    }
    let configure = |_| config().attach_never().copiers(2).progress(ProgressThread::On);
    job(2, configure, |node| {
        let mut private = vec![1u8; LARGE];
        let there = exchange_private(node, &mut private);
        node.barrier().expect("barrier");
        let staged = || node.stats().staged_bytes();
        assert!(node.get_nb(there, vec![0u8; LARGE]).wait().0 == Ok(()) && staged() > 0, "nothing is lent");
        for turn in 0..60 {
            let event = node.get_nb(there, vec![0u8; LARGE]);
            if turn % 3 == 0 {
                std::thread::sleep(Duration::from_micros(50 * turn));
            }
            drop(event.cancel());
        }
        let before = staged();
        // Those that were given up last may still be on their way back.
        let is_lent_again = (0..100).any(|_| {
            let (result, got) = node.get_nb(there, vec![0u8; LARGE]).wait();
            assert!(result == Ok(()) && got == vec![1u8; LARGE]);
            staged() > before
        });
        assert!(is_lent_again, "all that the owner lends is still taken");
        node.barrier().expect("barrier");
    });
}

/// The last handle of a node goes when its copies are made.
#[test]
fn what_has_been_started_is_done_before_the_node_goes() {
    const MUCH: usize = 24 << 20;
    for _ in 0..5 {
        let node = Node::open(Config::new().heap_bytes(32 << 20).copiers(1)).expect("opened");
        let array = node.heap().alloc_zeroed::<u8>(MUCH).expect("room");
        drop(node.put_nb(array.ptr(0), vec![5u8; MUCH]));
        drop(node);
        assert!(array.to_vec().iter().all(|byte| *byte == 5));
    }
}

#[test]
fn copies_apart_are_counted() {
    if skipped_over_the_network() {
        return;
    }
    use standpipe::{Mechanism, Operation};
    job(2, configure, |node| {
        let mut private = vec![0u8; LARGE];
        let heap = node.heap().alloc_zeroed::<u8>(LARGE).expect("room");
        let there = places(node, &mut private, &heap);
        let count = |mechanism| node.stats().get(Operation::Put, mechanism);
        let before = [count(Mechanism::Cma), count(Mechanism::Mapped)];
        for there in there {
            node.put_nb(there, vec![1u8; LARGE]).wait().0.expect("put");
        }
        let after = [count(Mechanism::Cma), count(Mechanism::Mapped)];
        assert_eq!(after[1].bytes - before[1].bytes, LARGE as u64);
        if node.attach(right_of(node)).is_some_and(|attach| attach.is_ok()) {
            assert_eq!(after[0].bytes - before[0].bytes, LARGE as u64);
        }
        node.barrier().expect("barrier");
    });
}
