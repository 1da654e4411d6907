//! Puts that signal, and waiting for them.

use standpipe::{Error, GlobalPtr, HeapArray, Signal};

use super::*;

/// A way to put with a signal.
type Put<'a> = &'a dyn Fn(&[u8], Signal) -> Result<(), Error>;

/// Bytes, and a counter, of the next rank.
fn next_ranks(
    node: &Node,
    bytes: &HeapArray<u8>,
    counter: &HeapArray<u64>,
) -> (GlobalPtr<u8>, GlobalPtr<u64>) {
    tell(node, "bytes", bytes.ptr(0).to_words());
    tell(node, "counter", counter.ptr(0).to_words());
    let next = (node.rank() + 1) % node.size();
    (GlobalPtr::from_words(ask(node, "bytes", next)), GlobalPtr::from_words(ask(node, "counter", next)))
}

#[test]
fn bytes_are_there_when_the_counter_says_so() {
    const SIZES: [usize; 5] = [0, 8, 1000, 30_000, 300_000];
    job(
        2,
        |_| config(),
        |node| {
            let bytes = node.heap().alloc_zeroed::<u8>(300_000).expect("room");
            let counter = node.heap().alloc_zeroed::<u64>(2).expect("room");
            let mut private = vec![0_u8; 300_000];
            let (there, count) = next_ranks(node, &bytes, &counter);
            let raw = exchange_private(node, &mut private);
            let (mine, mut told) = (counter.ptr(0), 0);
            let mut turn = |len: usize, put: Put<'_>| {
                let fill = told as u8 + 1;
                put(&vec![fill; len], Signal::add(count, 1)).expect("put with a signal");
                assert_eq!(node.wait_signal(mine, told + 1), Ok(told + 1));
                told += 1;
                assert!(bytes.to_vec()[..len].iter().all(|byte| *byte == fill), "{len} bytes");
                // Each writes again only once the other has looked.
                node.barrier().expect("barrier");
            };
            for len in SIZES {
                turn(len, &|from, signal| node.put_signal(there, from, signal));
                turn(len, &|from, signal| node.put_signal_nb(there, from.to_vec(), signal).wait().0);
                turn(len, &|from, signal| node.put_signal_nbi(there, from, signal));
            }
            // Nothing but the signal, and so to nowhere.
            for offset in [0, 1 << 40, u64::MAX] {
                let nowhere = GlobalPtr::<u8>::new(there.peer(), offset);
                turn(0, &|from, signal| node.put_signal(nowhere, from, signal));
                turn(0, &|from, signal| node.put_signal_nb(nowhere, from.to_vec(), signal).wait().0);
                turn(0, &|from, signal| node.put_signal_nbi(nowhere, from, signal));
            }
            for (at, len) in (1..).zip(SIZES) {
                let from = vec![at as u8; len];
                node.put_signal(raw, &from, Signal::set(count.add(1), at)).expect("put with a signal");
                assert_eq!(node.wait_signal(counter.ptr(1), at), Ok(at));
                let mut found = vec![0; len];
                // SAFETY: the bytes stay until the job ends, and nobody writes them until the next barrier.
                let own =
                    unsafe { Remote::raw(node.rank(), private.as_mut_ptr().expose_provenance() as u64) };
                node.get_bytes(own, &mut found).expect("get");
                assert_eq!(found, from);
                node.barrier().expect("barrier");
            }
            node.quiet().expect("nothing failed");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_signal_wakes_who_sleeps() {
    // Without polling, only the doorbell wakes in time.
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        job(
            2,
            |_| config().spin(spin),
            |node| {
                let bytes = node.heap().alloc_zeroed::<u8>(64).expect("room");
                let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
                let (there, count) = next_ranks(node, &bytes, &counter);
                node.barrier().expect("barrier");
                let begun = Instant::now();
                let rounds = 100;
                for round in 1..=rounds {
                    let signal = || node.put_signal(there, &[7_u8; 8], Signal::add(count, 1)).expect("put");
                    if node.rank() == 0 {
                        std::thread::sleep(Duration::from_millis(2));
                        signal();
                    }
                    node.wait_signal(counter.ptr(0), round).expect("a signal");
                    if node.rank() == 1 {
                        signal();
                    }
                }
                // A sleep that nothing ends takes 100 ms.
                let took = begun.elapsed();
                assert!(
                    took < Duration::from_secs(4),
                    "{took:?} for {rounds} round trips, each begun after 2 ms"
                );
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn counters_that_cannot_be_are_refused_and_waits_end() {
    job(
        2,
        |_| config(),
        |node| {
            let bytes = node.heap().alloc_zeroed::<u8>(64).expect("room");
            let counter = node.heap().alloc_zeroed::<u64>(2).expect("room");
            let (there, count) = next_ranks(node, &bytes, &counter);
            let (own, other) = (node.rank(), 1 - node.rank());
            let elsewhere = Err(Error::Elsewhere { peer: own, expected: other });
            assert_eq!(node.put_signal(there, &[1_u8], Signal::add(counter.ptr(0), 1)), elsewhere);
            assert_eq!(node.wait_signal(count, 1), Err(Error::Elsewhere { peer: other, expected: own }));
            let odd = GlobalPtr::new(other, count.offset() + 4);
            let unaligned = Err(Error::Unaligned { peer: odd.peer(), offset: odd.offset(), size: 8 });
            assert_eq!(node.put_signal(there, &[1_u8], Signal::set(odd, 1)), unaligned);
            let beyond = node.wait_signal(GlobalPtr::new(own, 1 << 40), 1);
            assert!(matches!(beyond, Err(Error::Fault { len: 8, .. })), "{beyond:?}");
            let late = Error::SignalTimeout { offset: counter.ptr(0).offset(), at_least: 1, seen: 0 };
            let hurried = node.within(Duration::from_millis(20));
            assert_eq!(hurried.wait_signal(counter.ptr(0), 1), Err(late));
            assert_eq!(node.wait_signal(counter.ptr(0), 0), Ok(0), "that is so already");
            node.barrier().expect("barrier");
            assert_eq!(bytes.to_vec(), [0; 64]);
            node.barrier().expect("barrier");
        },
    );
}
