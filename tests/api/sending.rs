//! Requests that never wait, and payloads that outlive their handlers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Call, Error, MEDIUM_MAX, Memory, Payload, ProgressThread, Room};

use super::*;

/// What a full lane does not take a peer takes as soon as it makes progress, in order.
#[test]
fn tries_end_at_once_where_the_lane_is_full() {
    if skipped_over_the_network() {
        return;
    }
    let seen: [Arc<Mutex<Vec<u64>>>; 2] = Default::default();
    let configure = |rank: u32| {
        let seen = Arc::clone(&seen[rank as usize]);
        config().progress(ProgressThread::Off).handler("note", move |call| {
            assert!(call.payload().iter().all(|byte| u64::from(*byte) == call.args()[0] % 256));
            seen.lock().expect("no panic").push(call.args()[0]);
        })
    };
    job(2, configure, |node| {
        let note = node.handler("note").expect("registered");
        node.connect(right_of(node)).expect("it is there");
        node.barrier().expect("barrier");
        if node.rank() == 1 {
            await_idly(node, "it is full");
            node.wait_until(|| seen[1].lock().expect("no panic").len() >= 2000).expect("in time");
            node.barrier().expect("barrier");
            return;
        }
        // Rank 1 makes no progress for now.
        let mut sent = 0;
        let payload = |number: u64| vec![number as u8; (number % 3 * 1000) as usize];
        while node.try_request_medium(1, note, [sent, 0, 0, 0], &payload(sent)).expect("it is there") {
            sent += 1;
            assert!(sent < 1_000_000, "the lane is never full");
        }
        // A short one may still have had room.
        while node.try_request(1, note, [sent, 0, 0, 0]).expect("it is there") {
            sent += 1;
        }
        let full = node.prepare_medium(1, 1, 10).expect("room").try_commit(note, [0; 4], 10);
        let mut full = full.expect("it is there").expect("it is given back");
        full.fill(208); // 2000 % 256
        node.directory().publish("it is full", &[]).expect("published");
        while sent < 2000 {
            if node.try_request_medium(1, note, [sent, 0, 0, 0], &payload(sent)).expect("it is there") {
                sent += 1;
            } else {
                node.progress();
            }
        }
        full.commit(note, [2000, 0, 0, 0], 3).expect("sent");
        node.barrier().expect("barrier");
        let seen = seen[1].lock().expect("no panic");
        assert!(seen.iter().copied().eq(0..seen.len() as u64), "{} came out of order", seen.len());
    });
}

/// A token that handlers pass on: those of requests, and those of replies.
#[test]
fn handlers_send_requests_that_they_try() {
    for way in WAYS {
        let [hops, replies] = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let configure = |_| {
            let (hops, replies) = (Arc::clone(&hops), Arc::clone(&replies));
            let pass = |call: &mut standpipe::Call<'_>, by: &str| {
                let [left, ..] = call.args();
                let node = call.node();
                let id = node.handler(by).expect("registered");
                let to = (node.rank() + 1) % node.size();
                if left > 0 {
                    assert_eq!(node.try_request(to, id, [left - 1, 0, 0, 0]), Ok(true));
                }
            };
            way.config()
                .progress(ProgressThread::On)
                .handler("pass", move |call| {
                    hops.fetch_add(1, Ordering::SeqCst);
                    pass(call, "pass");
                })
                .handler("ask", |call| {
                    let id = call.node().handler("answer").expect("registered");
                    call.reply(id, call.args()).expect("the first reply");
                })
                .handler("answer", move |call| {
                    replies.fetch_add(1, Ordering::SeqCst);
                    pass(call, "ask");
                })
        };
        job(3, configure, |node| {
            node.connect(right_of(node)).expect("it is there");
            node.barrier().expect("barrier");
            if node.rank() == 0 {
                let id = |name| node.handler(name).expect("registered");
                node.request(1, id("pass"), [299, 0, 0, 0]).expect("sent");
                node.request(1, id("ask"), [99, 0, 0, 0]).expect("sent");
                let all = || hops.load(Ordering::SeqCst) == 300 && replies.load(Ordering::SeqCst) == 100;
                node.wait_until(all).expect("all hops");
            }
            node.barrier().expect("barrier");
        });
    }
}

#[test]
fn long_requests_are_started_and_tried() {
    const LEN: usize = 50_000;
    for way in WAYS {
        let landed = Arc::new(AtomicU64::new(0));
        let configure = |_| {
            let landed = Arc::clone(&landed);
            way.config()
                .progress(ProgressThread::On)
                .handler("landed", move |call| {
                    assert_eq!(call.landed().expect("long").1, LEN as u64);
                    landed.fetch_add(1, Ordering::SeqCst);
                })
                .handler("pull", |call| {
                    // SAFETY: the requester keeps the memory to the barrier, and looks only after that.
                    let to = unsafe { standpipe::Remote::raw(call.from(), call.args()[0]) };
                    let landed = call.node().handler("landed").expect("registered");
                    let sent = call.node().try_request_long(landed, [0; 4], to, &[9; LEN]);
                    assert_eq!(sent, Ok(true));
                    let event = call.node().request_long_nb(landed, [0; 4], to, vec![9u8; LEN]);
                    drop(event);
                })
        };
        job(2, configure, |node| {
            let heap = node.heap().alloc_zeroed::<u64>(LEN / 8).expect("room");
            let mut private = vec![0u8; LEN];
            let id = |name| node.handler(name).expect("registered");
            let heap_there = exchange(node, heap.ptr(0));
            let there = exchange_private(node, &mut private);
            let queue = node.completions(4).expect("a descriptor");
            for token in 0..4 {
                let bytes = pattern(5, LEN);
                let event = match token % 2 {
                    0 => node.request_long_nb(id("landed"), [0; 4], there, bytes),
                    _ => node.request_long_nb(id("landed"), [0; 4], heap_there, bytes),
                };
                queue.reserve().expect("room").start(token, event);
            }
            while let Some(done) = queue.wait_any().expect("in time") {
                assert!(done.result == Ok(()) && done.buffer == pattern(5, LEN), "{way:?} {}", done.token);
            }
            node.wait_until(|| landed.load(Ordering::SeqCst) == 8).expect("all");
            node.barrier().expect("barrier");
            assert!(private == pattern(5, LEN) && bytemuck::cast_slice::<u64, u8>(&heap.to_vec()) == private);
            node.barrier().expect("barrier");
            let own = private.as_ptr().expose_provenance() as u64;
            node.request(right_of(node), id("pull"), [own, 0, 0, 0]).expect("sent");
            node.wait_until(|| landed.load(Ordering::SeqCst) == 12).expect("all");
            node.barrier().expect("barrier");
            assert!(private.iter().all(|byte| *byte == 9));
            let nowhere = node.request_long_nb(id("landed"), [0; 4], nowhere(right_of(node)), vec![0u8; 8]);
            assert!(matches!(nowhere.wait().0, Err(Error::Fault { .. })));
            assert_eq!(landed.load(Ordering::SeqCst), 12, "its handler did not run");
            node.barrier().expect("barrier");
        });
    }
}

#[test]
fn what_cannot_be_sent_is_told_at_once() {
    let configure = |_| config().handler("h", |_| {});
    job(2, configure, |node| {
        let h = node.handler("h").expect("registered");
        let peer = right_of(node);
        assert_eq!(node.try_request(peer, h, [0; 4]), Err(Error::NotConnected { peer }));
        let event = node.request_long_nb(h, [0; 4], GlobalPtr::<u8>::new(peer, 0), vec![0u8; 8]);
        assert_eq!(event.wait().0, Err(Error::NotConnected { peer }));
        assert_eq!(node.try_request(9, h, [0; 4]), Err(Error::NoSuchPeer { peer: 9, size: 2 }));
        node.connect(peer).expect("it is there");
        assert_eq!(node.try_request(peer, h, [0; 4]), Ok(true));
        assert_eq!(node.try_request(node.rank(), h, [0; 4]), Ok(true));
        let longest = node.medium_max(peer);
        let (given, most) = (longest as u64 + 1, longest as u64);
        let long = vec![0; longest + 1];
        let refused = Err(Error::PayloadTooLong { given, most });
        assert_eq!(node.try_request_medium(peer, h, [0; 4], &long), refused);
        let refused = node.prepare_medium(peer, longest + 1, usize::MAX).map(|_| ());
        assert_eq!(refused, Err(Error::PayloadTooLong { given, most }));
        let refused = node.prepare_medium(peer, 2, 1).map(|_| ());
        assert_eq!(refused, Err(Error::PayloadTooLong { given: 2, most: 1 }));
        let prepared = node.prepare_medium(peer, 0, usize::MAX).expect("room");
        assert!(prepared.len() == MEDIUM_MAX && prepared.iter().all(|byte| *byte == 0));
        let prepared = node.prepare_medium(peer, longest, usize::MAX).expect("room");
        assert!(prepared.len() == longest && prepared.iter().all(|byte| *byte == 0));
        let refused = node.prepare_medium(peer, 0, 5).expect("room").commit(h, [0; 4], 6);
        assert_eq!(refused, Err(Error::PayloadTooLong { given: 6, most: 5 }));
        node.barrier().expect("barrier");
    });
}

#[test]
fn payloads_outlive_their_handlers() {
    const KEPT_MAX: usize = 1024;
    let kept: Arc<Mutex<Vec<Payload>>> = Arc::default();
    let refused = Arc::new(AtomicU64::new(0));
    let configure = |_| {
        let (kept, refused) = (Arc::clone(&kept), Arc::clone(&refused));
        config().handler("keep", move |call| {
            let expected = pattern(call.args()[0], call.args()[1] as usize);
            assert!(call.payload() == expected);
            match call.take_payload() {
                Ok(payload) => {
                    assert!(call.payload().is_empty() && *payload == *expected);
                    kept.lock().expect("no panic").push(payload);
                }
                Err(error) => {
                    assert_eq!(error, Error::PayloadsKept { most: KEPT_MAX as u64 });
                    assert!(call.payload() == expected, "it stays where it was");
                    refused.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    };
    job(2, configure, |node| {
        let keep = node.handler("keep").expect("registered");
        let len = |seed: u64| (seed * 37 % (MEDIUM_MAX as u64 + 1)) as usize;
        let send = |seed: u64| {
            let bytes = pattern(seed, len(seed));
            node.request_medium(0, keep, [seed, len(seed) as u64, 0, 0], &bytes).expect("sent");
        };
        if node.rank() == 1 {
            (0..KEPT_MAX as u64 + 10).for_each(send);
        }
        let refused_so_far = || refused.load(Ordering::SeqCst);
        node.wait_until(|| refused_so_far() == 10).expect("all");
        node.barrier().expect("barrier");
        if node.rank() == 0 {
            let mut kept = std::mem::take(&mut *kept.lock().expect("no panic"));
            for (seed, payload) in kept.iter().enumerate() {
                assert!(**payload == *pattern(seed as u64, len(seed as u64)), "{seed}");
            }
            let last = kept.pop().expect("many");
            let bytes = last.to_vec();
            assert_eq!(last.into_vec(), bytes);
            // A payload can be put from.
            let array = node.heap().alloc_zeroed::<u8>(MEDIUM_MAX).expect("room");
            let (result, payload) = node.put_nb(array.ptr(0), kept.swap_remove(100)).wait();
            assert!(result == Ok(()) && array.to_vec()[..payload.len()] == *payload);
        }
        node.barrier().expect("barrier");
        if node.rank() == 1 {
            (0..KEPT_MAX as u64).for_each(send);
        }
        let kept_now = || kept.lock().expect("no panic").len() as u64 + refused_so_far();
        node.wait_until(|| kept_now() == KEPT_MAX as u64 + 10).expect("all");
        node.barrier().expect("barrier");
        assert_eq!(refused_so_far(), 10, "what was dropped is there again");
    });
}

/// Each way to read a payload gives the same bytes, in any order and of every length.
#[test]
fn payloads_are_read_where_they_belong() {
    let seen: [Arc<AtomicU64>; 2] = Default::default();
    let configure = |rank: u32| {
        let seen = Arc::clone(&seen[rank as usize]);
        config().handler("read", move |call| {
            let [seed, len, way, _] = call.args();
            let (expected, len) = (pattern(seed, len as usize), len as usize);
            assert_eq!(call.payload_len(), len);
            let mut read = vec![0; len];
            let parts = |read: &mut [u8]| {
                for (part, into) in read.chunks_mut(1000).enumerate() {
                    call.read_payload(part * 1000, into).expect("it has them");
                }
            };
            match way {
                0 => call.read_payload(0, &mut read).expect("it has them"),
                1 => parts(&mut read),
                2 => read.copy_from_slice(call.payload()),
                3 => {
                    read.copy_from_slice(call.payload());
                    parts(&mut read);
                    assert!(call.payload() == expected, "it stays as it was");
                }
                _ => {
                    read = call.take_payload().expect("few are kept").to_vec();
                    assert_eq!((call.payload(), call.payload_len()), (&[][..], 0));
                }
            }
            assert!(read == expected, "{len} bytes, way {way}");
            let left = call.payload_len() as u64;
            for (at, given) in [(0, left + 1), (left, 1), (u64::MAX, 1)] {
                let refused = call.read_payload(at as usize, &mut vec![0; given as usize]);
                let expected = left.saturating_sub(at);
                assert!(
                    matches!(refused, Err(Error::Length { given: g, expected: e, .. }) if (g, e) == (given, expected)),
                    "{refused:?}"
                );
            }
            call.read_payload(left as usize, &mut []).expect("nothing is always there");
            seen.fetch_add(1, Ordering::SeqCst);
        })
    };
    let lens = [0, 1, 448, 449, 511, 512, 513, 4095, 8191, MEDIUM_MAX];
    job(2, configure, |node| {
        let read = node.handler("read").expect("registered");
        for (seed, len) in (0..).zip(lens) {
            for way in 0..5 {
                let args = [seed, len as u64, way, 0];
                node.request_medium(right_of(node), read, args, &pattern(seed, len)).expect("sent");
            }
        }
        let mine = &seen[node.rank() as usize];
        node.wait_until(|| mine.load(Ordering::SeqCst) == 5 * lens.len() as u64).expect("all");
        node.barrier().expect("barrier");
    });
}

/// A payload goes to each place of the rank that has room for it, and nowhere else.
#[test]
fn payloads_are_copied_to_places_of_the_rank() {
    let seen: [Arc<AtomicU64>; 3] = Default::default();
    let configure = |rank: u32| {
        let seen = Arc::clone(&seen[rank as usize]);
        let config = if rank == 2 { config().attach_never() } else { config() };
        config.handler("copy", move |call| {
            copy_everywhere(call, &pattern(call.args()[0], call.args()[1] as usize));
            seen.fetch_add(1, Ordering::SeqCst);
        })
    };
    let lens = [0, 1, 8, 448, 449, 511, 512, 4095, MEDIUM_MAX];
    job(3, configure, |node| {
        let copy = node.handler("copy").expect("registered");
        for (seed, len) in (0..).zip(lens.iter().cycle()).take(4 * lens.len()) {
            let payload = pattern(seed, *len);
            node.request_medium(right_of(node), copy, [seed, *len as u64, 0, 0], &payload).expect("sent");
        }
        let mine = &seen[node.rank() as usize];
        node.wait_until(|| mine.load(Ordering::SeqCst) == 4 * lens.len() as u64).expect("all");
        node.barrier().expect("barrier");
    });
}

fn copy_everywhere(call: &Call<'_>, expected: &[u8]) {
    let (node, len) = (call.node(), expected.len());
    let array = node.heap().alloc_from(&vec![0x55_u8; len + 16]).expect("room");
    let whole = |before: usize| {
        let bytes = array.to_vec();
        assert!(bytes[before..before + len] == *expected, "{len} bytes");
        assert!(bytes[..before].iter().chain(&bytes[before + len..]).all(|byte| *byte == 0x55));
    };
    call.copy_payload_to(array.ptr(8)).expect("it is its own");
    whole(8);
    if call.args()[0] % 2 == 1 {
        // From a copy as well.
        assert!(call.payload() == expected);
    }
    array.write_slice(0, &vec![0x55; len + 16]);
    call.copy_payload_to(&array).expect("it is long enough");
    whole(0);
    let mut private = vec![0_u8; len];
    // SAFETY: the bytes live until this returns, and nothing else uses them meanwhile.
    let there = unsafe { Remote::raw(node.rank(), private.as_mut_ptr().expose_provenance() as u64) };
    call.copy_payload_to(Room::new(there, len as u64)).expect("it is there");
    assert!(private == expected, "{len} bytes at an address");
    let (given, expected) = (len as u64, node.rank());
    let other = GlobalPtr::<u8>::new(right_of(&node), 0);
    assert_eq!(call.copy_payload_to(other), Err(Error::Elsewhere { peer: other.peer(), expected }));
    if given > 0 {
        let short = call.copy_payload_to(Room::new(array.ptr(0), given - 1));
        assert_eq!(short, Err(Error::PayloadTooLong { given, most: given - 1 }));
        let addr = u64::MAX - 4096;
        let beyond = call.copy_payload_to(GlobalPtr::<u8>::new(expected, addr));
        let is_fault = |error: &Error, place: u64, in_memory: Memory| {
            let Error::Fault { peer, memory, addr, .. } = *error else { return false };
            (peer, memory, addr) == (expected, in_memory, place)
        };
        assert!(is_fault(&beyond.expect_err("no heap has so many"), addr, Memory::Heap));
        // SAFETY: no process has anything mapped there, so that no byte changes, and there is no object.
        let nowhere = unsafe { Remote::raw(expected, 8) };
        assert!(is_fault(&call.copy_payload_to(nowhere).expect_err("nothing is there"), 8, Memory::Private));
    }
}
