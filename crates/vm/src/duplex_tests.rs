use super::*;
use crate::ring::{FenceMode, RingLayout};
use std::sync::Arc;

type Shared = Arc<[AtomicU64]>;
type End = Duplex<Shared>;

fn words(count: usize) -> Shared {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// The two ends, and all the words between them.
fn link(slots: usize, payload_bytes: usize) -> (End, End, [Shared; 3]) {
    let layout = RingLayout { slots, payload_bytes, spill_bytes: 0 };
    let [there, back] = [words(layout.words()), words(layout.words())];
    let baton = words(BATON_WORDS);
    let end = |side, outward: &Shared, inward: &Shared| {
        let outward =
            Producer::new(Arc::clone(outward), layout, FenceMode::Symmetric).expect("a good layout");
        let inward = Consumer::new(Arc::clone(inward), layout).expect("a good layout");
        Duplex::new(side, Arc::clone(&baton), outward, inward).expect("enough words")
    };
    (end(Side::First, &there, &back), end(Side::Second, &back, &there), [there, back, baton])
}

/// How many messages an end has sent and taken out, by both ways.
fn counts(end: &End) -> (u64, u64) {
    ((end.sends >> 32) - 1, (end.expects >> 32) - 1)
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::thread;

    type Message = ([u64; 7], Vec<u8>);

    fn pop(end: &mut End) -> Result<Option<Message>, Corrupt> {
        let (mut body, mut payload) = ([0; 7], vec![1, 2, 3]);
        Ok(end.pop(&mut body, &mut payload)?.then_some((body, payload)))
    }

    fn send(end: &mut End, n: u64) {
        let _ = end.push(&[n; 7], &[]).expect("room");
    }

    fn number(end: &mut End) -> Option<u64> {
        pop(end).expect("an honest peer").map(|(body, _)| body[3])
    }

    /// By its head a message is taken out only where it is the next of all, came through the ring and has no
    /// payload; otherwise it stays.
    #[test]
    fn a_message_is_known_by_its_head() {
        let (mut first, mut second, _) = link(8, 256);
        let body = |n: u64| [1, 2, 3, 4, 5, n, n + 1];
        let head = [1, 2, 3, 4, 5];
        assert_eq!(second.pop_like(&head), None, "there is none");
        for n in 0..3 {
            let _ = first.push(&body(n), &[]).expect("room");
        }
        assert_eq!(second.pop_like(&head), None, "the next one is in the baton");
        assert_eq!(pop(&mut second).expect("an honest peer").map(|(body, _)| body), Some(body(0)));
        assert_eq!(second.pop_like(&[1, 2, 3, 4, 6]), None, "another head");
        assert_eq!(second.pop_like(&head), Some([1, 2]));
        assert_eq!(second.pop_like(&head), Some([2, 3]));
        assert_eq!(second.pop_like(&head), None, "all are taken");
        let _ = first.push(&body(3), &[7; 9]).expect("room");
        assert_eq!(second.pop_like(&head), None, "it has a payload");
        assert_eq!(pop(&mut second), Ok(Some((body(3), vec![7; 9]))));
        // The answer passes the baton on, and what comes next is found whichever way it goes.
        send(&mut second, 4);
        assert_eq!(number(&mut first), Some(4));
        for n in 5..40 {
            let _ = first.push(&body(n), &[]).expect("room");
            let rest = second.pop_like(&head).or_else(|| number(&mut second).map(|_| [n, n + 1]));
            assert_eq!(rest, Some([n, n + 1]));
        }
        assert_eq!(counts(&second).1, counts(&first).0);
    }

    #[test]
    fn asking_and_answering_needs_only_the_baton() {
        let (mut first, mut second, _) = link(2, 0);
        for n in 0..100 {
            send(&mut first, n);
            assert!(second.ready() && !first.ready());
            assert_eq!(number(&mut second), Some(n));
            send(&mut second, n + 1000);
            assert_eq!(number(&mut first), Some(n + 1000));
            assert_eq!((number(&mut first), number(&mut second)), (None, None));
        }
        assert_eq!((first.outward.pushed(), second.outward.pushed()), (0, 0));
        assert_eq!(counts(&first), (100, 100));
    }

    #[test]
    fn messages_by_both_ways_come_in_order() {
        let (mut first, mut second, _) = link(8, 512);
        send(&mut second, 1); // Not its turn: by ring.
        assert_eq!(number(&mut first), Some(1));
        for n in 1..=4 {
            send(&mut first, n); // One by the baton, three by ring.
        }
        assert_eq!((counts(&first).0, first.outward.pushed()), (4, 3));
        assert_eq!(number(&mut second), Some(1));
        send(&mut second, 2); // By the baton, back to the first side,
        assert_eq!(number(&mut first), Some(2));
        send(&mut first, 5); // which now has one in it that comes after three by ring.
        assert_eq!((counts(&first).0, first.outward.pushed()), (5, 3));
        for n in 2..=5 {
            assert_eq!(number(&mut second), Some(n));
        }
        assert!(second.ours);
        for len in [BATON_PAYLOAD_BYTES + 1, BATON_PAYLOAD_BYTES, 9, 0] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let _ = second.push(&[3; 7], &payload).expect("room");
            assert_eq!(second.ours, len > BATON_PAYLOAD_BYTES, "a long payload goes by ring");
            assert_eq!(pop(&mut first), Ok(Some(([3; 7], payload))));
            if first.ours {
                send(&mut first, 6);
                assert_eq!(number(&mut second), Some(6));
            }
        }
    }

    #[test]
    fn the_baton_has_room_when_the_ring_has_none() {
        let (mut first, mut second, _) = link(1, 1024);
        let _ = first.push(&[1; 7], &[0; 500]).expect("room");
        assert!(first.room(BATON_PAYLOAD_BYTES) && !first.room(BATON_PAYLOAD_BYTES + 1));
        send(&mut first, 2);
        assert!(!first.room(0));
        assert_eq!(first.push(&[3; 7], &[]), Err(PushError::Full));
        assert_eq!((number(&mut second), number(&mut second)), (Some(1), Some(2)));
    }

    #[test]
    fn the_doorbell_is_asked_for_by_either_way() {
        let (mut first, mut second, _) = link(4, 0);
        let doorbells = |first: &mut End| [(); 2].map(|()| first.push(&[0; 7], &[]).expect("room").doorbell);
        assert_eq!(doorbells(&mut first), [true, true]);
        second.set_attention(Attention::Polled);
        while number(&mut second).is_some() {}
        send(&mut second, 0);
        assert!(number(&mut first).is_some());
        assert_eq!(doorbells(&mut first), [false, false]);
    }

    #[test]
    fn numbers_wrap_and_marks_do_not() {
        let (mut first, mut second, _) = link(4, 64);
        let before = u64::from(u32::MAX - 2) << 32;
        (first.sends, second.expects) =
            (first.sends.wrapping_add(before), second.expects.wrapping_add(before));
        (second.sends, first.expects) =
            (second.sends.wrapping_add(before), first.expects.wrapping_add(before));
        for n in 0..12 {
            let (one, other) = if n % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            send(one, n); // By the baton, and by ring.
            send(one, n + 1);
            assert_eq!((number(other), number(other), number(other)), (Some(n), Some(n + 1), None));
        }
    }

    /// A peer that writes the baton out of its turn, with just the number that comes next.
    #[test]
    fn what_is_in_the_baton_does_not_count_while_it_is_ours() {
        let (mut first, mut second, [_, _, baton]) = link(4, 0);
        send(&mut first, 1);
        assert_eq!(number(&mut second), Some(1));
        baton[0].store(2 << 32 | 1, Ordering::Relaxed);
        assert_eq!((second.ready(), number(&mut second)), (false, None));
    }

    #[test]
    fn a_number_that_cannot_be_is_corrupt() {
        let (_, mut second, [_, _, baton]) = link(4, 0);
        baton[0].store(7 << 32 | 1, Ordering::Relaxed);
        assert_eq!(pop(&mut second), Err(Corrupt::Order { number: 7, expected: 1 }));
        baton[0].store(1 << 32 | 449 << 2 | 1, Ordering::Relaxed);
        assert_eq!(pop(&mut second), Err(Corrupt::Length { len: 449, max: 448 }));
        assert!(
            Duplex::new(Side::First, words(BATON_WORDS - 1), link(1, 0).0.outward, second.inward).is_none()
        );
    }

    #[test]
    fn two_threads_talk_in_order() {
        let (mut first, mut second, _) = link(4, 128);
        let total: u64 = if cfg!(miri) { 20 } else { 20_000 };
        // Each side sends in bursts of changing size and answers nothing in particular.
        let run = move |end: &mut End| {
            let (mut sent, mut got) = (0, 0);
            while sent < total || got < total {
                for _ in 0..sent % 3 + 1 {
                    let payload = [sent as u8; 100];
                    let payload = &payload[..if sent % 5 == 0 { 100 } else { 0 }];
                    if sent < total && end.push(&[sent; 7], payload).is_ok() {
                        sent += 1;
                    }
                }
                match pop(end).expect("an honest peer") {
                    Some((body, payload)) => {
                        assert_eq!(body, [got; 7]);
                        assert_eq!(payload.len(), if got % 5 == 0 { 100 } else { 0 });
                        got += 1;
                    }
                    None => {
                        end.flush_credits();
                        thread::yield_now();
                    }
                }
            }
        };
        let other = thread::spawn(move || run(&mut second));
        run(&mut first);
        other.join().expect("the other side ends well");
    }

    /// Steps of a random history: few where each takes milliseconds.
    const STEPS: usize = if cfg!(miri) { 30 } else { 150 };

    fn cases() -> ProptestConfig {
        ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn it_behaves_like_two_queues(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)), 1..STEPS)
        ) {
            let (first, second, _) = link(4, 1024);
            let mut ends = [first, second];
            let mut queues = [VecDeque::new(), VecDeque::new()];
            for (n, (second, push, long)) in steps.into_iter().enumerate() {
                let me = usize::from(second);
                let payload = if long { vec![n as u8; n * 37 % 900] } else { vec![] };
                if push {
                    let room = ends[me].room(payload.len());
                    let pushed = ends[me].push(&[n as u64; 7], &payload).is_ok();
                    prop_assert_eq!(room, pushed);
                    if pushed {
                        queues[me].push_back(([n as u64; 7], payload));
                    }
                } else {
                    prop_assert_eq!(ends[me].ready(), !queues[1 - me].is_empty());
                    prop_assert_eq!(pop(&mut ends[me]), Ok(queues[1 - me].pop_front()));
                }
            }
        }

        #[test]
        fn scribbling_never_panics(
            steps in prop::collection::vec(
                (any::<bool>(), any::<bool>(), any::<prop::sample::Index>(), (0..5_u64, prop_oneof![0..5_u64, any::<u32>().prop_map(u64::from)])), 1..STEPS)
        ) {
            let (first, second, all) = link(2, 64);
            let mut ends = [first, second];
            for (second, push, place, (number, mark)) in steps {
                let count = all.iter().map(|words| words.len()).sum();
                let word = all.iter().flat_map(|words| words.iter()).nth(place.index(count)).expect("inside");
                word.store(number << 32 | mark, Ordering::Relaxed);
                all[2][0].store(number << 32 | mark, Ordering::Relaxed);
                let end = &mut ends[usize::from(second)];
                if push {
                    let _ = end.push(&[number; 7], &[]);
                } else if let Ok(Some((_, payload))) = pop(end) {
                    prop_assert!(payload.len() <= BATON_PAYLOAD_BYTES);
                }
            }
        }
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::bell::{Bell, bell_words};
    use crate::membarrier::heavy_fence;
    use loom::thread;

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 10_000;
        builder.check(model);
    }

    fn receive(end: &mut End, wanted: u64) {
        let (mut body, mut payload) = ([0; 7], Vec::new());
        while !end.pop(&mut body, &mut payload).expect("an honest peer") {
            thread::yield_now();
        }
        assert_eq!(body, [wanted; 7]);
    }

    /// Messages by both ways at once, whose order only their numbers tell.
    #[test]
    fn loom_both_ways_come_in_order() {
        check(|| {
            let (mut first, mut second, _) = link(2, 0);
            let other = thread::spawn(move || {
                receive(&mut second, 1);
                let _ = second.push(&[9; 7], &[]).expect("room");
                receive(&mut second, 2);
                receive(&mut second, 3);
            });
            for n in 1..=2 {
                let _ = first.push(&[n; 7], &[]).expect("room");
            }
            receive(&mut first, 9);
            let _ = first.push(&[3; 7], &[]).expect("room");
            assert_eq!(first.outward.pushed(), 1);
            other.join().unwrap();
        });
    }

    /// As for a ring alone: a message by the baton wakes whoever has just turned cold.
    #[test]
    fn loom_no_wake_up_is_lost_by_the_baton() {
        check(|| {
            let (mut first, mut second, _) = link(2, 0);
            second.set_attention(Attention::Polled);
            let bell = words(bell_words(1));
            let mine = Bell::new(Arc::clone(&bell), 1).unwrap();
            let theirs = Bell::new(bell, 1).unwrap();
            let sender = thread::spawn(move || {
                for n in 1..=2 {
                    if first.push(&[n; 7], &[]).unwrap().doorbell {
                        theirs.ring(0);
                    }
                }
            });
            let (mut body, mut payload) = ([0; 7], Vec::new());
            second.set_attention(Attention::Doorbell);
            heavy_fence();
            while counts(&second).1 < 2 {
                if second.pop(&mut body, &mut payload).unwrap() {
                    assert_eq!(body, [counts(&second).1; 7]);
                    continue;
                }
                let ticket = mine.announce();
                if !mine.has_pending() {
                    ticket.sleep(None);
                }
                mine.take_pending(|_| ());
            }
            sender.join().unwrap();
        });
    }
}
