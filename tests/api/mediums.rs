//! Medium messages that are as long as the peer takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Call, Error, MEDIUM_MAX, ProgressThread};

use super::*;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(0x9e37_79b9).wrapping_add(at * 7) >> 3) as u8).collect()
}

/// A length of a message: most are short of the least that everybody has, many are not.
fn len(seed: u64, most: usize) -> usize {
    let mixed = (seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    match seed % 4 {
        0 => mixed % 600,
        1 => mixed % (MEDIUM_MAX + 1),
        2 => mixed % (most + 1),
        _ => most - mixed % 3 * 64,
    }
}

/// Looks at a payload in one of the ways that there are.
fn look(call: &mut Call<'_>) {
    let [seed, len, ..] = call.args();
    let expected = bytes(seed, len as usize);
    assert_eq!(call.payload_len(), expected.len());
    match seed % 3 {
        0 => assert!(call.payload() == expected),
        1 => assert!(*call.take_payload().expect("none is kept for long") == *expected),
        _ => {
            let mut read = vec![0; expected.len()];
            for (part, into) in read.chunks_mut(5000).enumerate() {
                call.read_payload(part * 5000, into).expect("it has them");
            }
            assert!(read == expected);
        }
    }
}

#[test]
fn messages_as_long_as_a_peer_takes_come_whole_both_ways() {
    const EACH: u64 = 400;
    let answers: [Arc<AtomicU64>; 3] = Default::default();
    let configure = |rank: u32| {
        let answers = Arc::clone(&answers[rank as usize]);
        config()
            .handler("ask", |call| {
                let ([seed, ..], node) = (call.args(), call.node());
                look(call);
                let len = len(seed + 1000, node.medium_max(call.from()));
                let answer = node.handler("answer").expect("registered below");
                let args = [seed + 1000, len as u64, 0, 0];
                call.reply_medium(answer, args, &bytes(seed + 1000, len)).expect("replied");
            })
            .handler("answer", move |call| {
                look(call);
                answers.fetch_add(1, Ordering::SeqCst);
            })
    };
    job(3, configure, |node| {
        let (me, ask) = (node.rank(), node.handler("ask").expect("registered"));
        for seed in 0..EACH {
            let peer = (seed % 3) as u32;
            let most = node.medium_max(peer);
            assert!(most >= MEDIUM_MAX && (most == 64 << 10 || !node.is_near(peer)), "{most} bytes");
            let (seed, len) = (seed + u64::from(me) * 10_000, len(seed, most));
            node.request_medium(peer, ask, [seed, len as u64, 0, 0], &bytes(seed, len)).expect("sent");
        }
        let mine = &answers[me as usize];
        node.wait_until(|| mine.load(Ordering::SeqCst) == EACH).expect("all answers");
        let most = node.medium_max(right_of(node));
        let (given, long) = (most as u64 + 1, vec![0; most + 1]);
        let refused = Err(Error::PayloadTooLong { given, most: most as u64 });
        assert_eq!(node.request_medium(right_of(node), ask, [0; 4], &long), refused);
        // Of one that is not there, nothing is known but what everybody takes.
        assert_eq!(node.medium_max(9), MEDIUM_MAX);
        node.barrier().expect("barrier");
    });
}

/// A receiver that does not take its messages holds their sender up, and gets all of them in order.
#[test]
fn long_messages_wait_where_the_lane_is_full() {
    if skipped_over_the_network() {
        return;
    }
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let configure = |_| {
        let seen = Arc::clone(&seen);
        config().progress(ProgressThread::Off).handler("note", move |call| {
            look(call);
            seen.lock().expect("no panic").push(call.args()[0]);
        })
    };
    job(2, configure, |node| {
        let note = node.handler("note").expect("registered");
        let most = node.medium_max(1);
        node.connect(right_of(node)).expect("it is there");
        node.barrier().expect("barrier");
        let attempt = |seed: u64| {
            let len = len(seed, most);
            let payload = bytes(seed, len);
            node.try_request_medium(1, note, [seed, len as u64, 0, 0], &payload).expect("it is there")
        };
        if node.rank() == 1 {
            await_idly(node, "it is full");
            node.wait_until(|| seen.lock().expect("no panic").len() == 300).expect("in time");
        } else {
            let mut sent = 0;
            while attempt(sent) {
                sent += 1;
            }
            assert!((3..=128).contains(&sent), "{sent} messages had room");
            node.directory().publish("it is full", &[]).expect("published");
            while sent < 300 {
                if attempt(sent) {
                    sent += 1;
                } else {
                    node.progress();
                }
            }
        }
        node.barrier().expect("barrier");
        assert!(seen.lock().expect("no panic").iter().copied().eq(0..300), "some came out of order");
    });
}
