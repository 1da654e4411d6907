use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

type Shared = Arc<[AtomicU64]>;
type Message = ([u64; 7], Vec<u8>);

/// How often a simple exchange is repeated.
const ROUNDS: u64 = if cfg!(miri) { 15 } else { 100 };

fn words(layout: RingLayout) -> Shared {
    (0..layout.words()).map(|_| AtomicU64::new(0)).collect()
}

fn ring(slots: usize, payload_bytes: usize) -> (Producer<Shared>, Consumer<Shared>, Shared) {
    ring_of(RingLayout { slots, payload_bytes, spill_bytes: 0 })
}

/// A ring whose ends have yet to be given its spill area, and that.
fn spilling(slots: usize, payload: usize, spill: usize) -> (Producer<Shared>, Consumer<Shared>, Shared) {
    let layout = RingLayout { slots, payload_bytes: payload, spill_bytes: spill };
    let (producer, consumer, _) = ring_of(layout);
    (producer, consumer, (0..layout.spill_words()).map(|_| AtomicU64::new(u64::MAX)).collect())
}

fn ring_of(layout: RingLayout) -> (Producer<Shared>, Consumer<Shared>, Shared) {
    let words = words(layout);
    let producer = Producer::new(Arc::clone(&words), layout, FenceMode::Symmetric).expect("a good layout");
    (producer, Consumer::new(Arc::clone(&words), layout).expect("a good layout"), words)
}

fn body(n: u64) -> [u64; 7] {
    std::array::from_fn(|i| n * 10 + i as u64)
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as usize * 31 + i) as u8).collect()
}

fn pop(consumer: &mut Consumer<Shared>) -> Result<Option<Message>, Corrupt> {
    let (mut body, mut payload) = ([0; 7], Vec::new());
    Ok(consumer.pop(&mut body, &mut payload)?.then_some((body, payload)))
}

#[test]
fn messages_come_out_as_they_went_in() {
    let (mut producer, mut consumer, _) = ring(4, 256);
    assert!(!consumer.ready());
    for n in 0..ROUNDS {
        let payload = bytes(n, n as usize * 37 % 257);
        let _ = producer.push(&body(n), &payload).unwrap();
        assert!(consumer.ready());
        assert_eq!(pop(&mut consumer), Ok(Some((body(n), payload))));
        assert_eq!(pop(&mut consumer), Ok(None));
        consumer.flush_credits();
    }
    assert_eq!((producer.pushed(), consumer.taken()), (ROUNDS, ROUNDS));
}

#[test]
fn a_full_ring_says_so_until_credits_are_flushed() {
    let (mut producer, mut consumer, _) = ring(8, 64);
    for n in 0..8 {
        assert!(producer.room(0));
        let _ = producer.push(&body(n), &[]).unwrap();
    }
    assert!(!producer.room(0));
    assert_eq!(producer.push(&body(9), &[]), Err(PushError::Full));
    assert!(pop(&mut consumer).unwrap().is_some());
    assert_eq!(producer.push(&body(9), &[]), Err(PushError::Full), "one of eight is not worth telling");
    assert!(consumer.flush_credits());
    assert!(!consumer.flush_credits());
    assert!(producer.push(&body(9), &[]).is_ok());
    assert!(pop(&mut consumer).unwrap().is_some());
    assert!(pop(&mut consumer).unwrap().is_some());
    assert!(producer.room(0), "a quarter of the ring is told unasked");
}

#[test]
fn an_idle_consumer_tells_unasked() {
    let (mut producer, mut consumer, _) = ring(64, 256);
    for n in 0..3 {
        let _ = producer.push(&body(n), &bytes(n, 64)).unwrap();
    }
    assert!(!producer.room(256));
    assert!(pop(&mut consumer).unwrap().is_some());
    for _ in 0..IDLE_POLLS * 3 {
        let _ = pop(&mut consumer).unwrap();
    }
    assert!(producer.room(256));
}

#[test]
fn the_whole_area_is_one_payloads_wherever_it_starts() {
    let (mut producer, mut consumer, _) = ring(4, 320);
    for n in 0..ROUNDS / 5 {
        for len in [64, 320] {
            let payload = bytes(n, len);
            let _ = producer.push(&body(n), &payload).expect("an empty ring takes any payload");
            assert_eq!(pop(&mut consumer), Ok(Some((body(n), payload))));
            consumer.flush_credits();
        }
    }
    assert_eq!(producer.push(&body(0), &[0; 321]), Err(PushError::TooLarge { len: 321, max: 320 }));
    assert!(producer.room(321), "waiting would not help");
}

#[test]
fn a_ring_without_payload_area_takes_bodies() {
    let (mut producer, mut consumer, _) = ring(2, 0);
    assert_eq!(producer.push(&body(0), b"x"), Err(PushError::TooLarge { len: 1, max: 0 }));
    let _ = producer.push(&body(1), &[]).unwrap();
    assert_eq!(pop(&mut consumer), Ok(Some((body(1), vec![]))));
}

#[test]
fn a_long_payload_stays_until_its_room_is_given_back() {
    let (mut producer, mut consumer, words) = ring(4, 4 * HELD_MIN);
    let (mut found, mut payload) = ([0; 7], vec![1]);
    // The second begins in the middle, and goes on at the start of the area.
    for (n, len) in [(1, HELD_MIN * 5 / 2), (2, HELD_MIN * 3)] {
        let long = bytes(n, len);
        let _ = producer.push(&body(n), &long).expect("room");
        assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(len)));
        assert!(payload.len() < HELD_MIN, "nothing was copied");
        let mut all = vec![0; len];
        assert!(consumer.read_held(0, &mut all) && all == long);
        for at in [0, 1, 63, len - 1] {
            for part in [0, 1, 9, len - at] {
                let mut read = vec![0; part.min(len - at)];
                assert!(
                    consumer.read_held(at, &mut read) && read == long[at..at + read.len()],
                    "{at} {part}"
                );
            }
        }
        assert!(!consumer.read_held(len, &mut [0]) && !consumer.read_held(usize::MAX, &mut [0; 2]));
        assert!(!consumer.read_held(1, &mut vec![0; len]), "one more than there is");
        // Telling of free slots tells nothing of this one, nor of what was taken out after it.
        let _ = producer.push(&body(9), &[]).expect("room");
        assert_eq!(consumer.pop_like(&body(9)[..HEAD_WORDS].try_into().expect("as many")), Some([95, 96]));
        assert!(!consumer.flush_credits() && !producer.room(HELD_MIN * 4));
        consumer.release();
        consumer.flush_credits();
        assert!(producer.room(HELD_MIN * 4));
        assert!(!consumer.read_held(0, &mut [0]));
        // The next message gives the room back, too.
        let _ = producer.push(&body(3), &bytes(3, HELD_MIN)).expect("room");
        assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(HELD_MIN)));
        let _ = producer.push(&body(4), &bytes(4, HELD_MIN - 1)).expect("room");
        assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(0)));
        assert_eq!((found, &payload), (body(4), &bytes(4, HELD_MIN - 1)));
        assert!(!consumer.read_held(0, &mut [0]));
        consumer.flush_credits();
    }
    // Whatever a hostile producer writes meanwhile is read, and nothing else.
    let _ = producer.push(&body(5), &bytes(5, HELD_MIN)).expect("room");
    assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(HELD_MIN)));
    words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    let mut read = [0; HELD_MIN];
    assert!(consumer.read_held(0, &mut read) && read == [0xff; HELD_MIN]);
    assert!(!consumer.read_held(0, &mut [0; HELD_MIN + 1]));
}

#[test]
fn what_the_area_has_no_room_for_spills_and_nothing_else_does() {
    let (mut producer, mut consumer, spill) = spilling(8, 1024, 4096);
    let (first, second, third) = (bytes(1, 1000), bytes(2, 4000), bytes(3, 1024));
    let _ = producer.push(&body(1), &first).expect("the area is free");
    assert_eq!(producer.push(&body(2), &second), Err(PushError::NoSpill));
    producer.give_spill(Arc::clone(&spill)).expect("enough words");
    assert!(spill.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX), "nobody has touched it");
    let _ = producer.push(&body(2), &second).expect("the spill area is free");
    assert_eq!(producer.push(&body(3), &third), Err(PushError::Full));
    let (mut found, mut payload) = ([0; 7], Vec::new());
    assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(1000)));
    // Twice: what is not taken out is still there.
    for _ in 0..2 {
        assert_eq!(consumer.pop_held(&mut found, &mut payload), Err(Corrupt::Spilled));
    }
    consumer.give_spill(spill).expect("enough words");
    assert_eq!(consumer.pop_held(&mut found, &mut payload), Ok(Some(4000)));
    let mut read = vec![0; 4000];
    assert!(consumer.read_held(0, &mut read) && read == second);
    let mapped = consumer.held_at(100, 3900).expect("it has so many");
    assert_eq!(mapped.runs().map(|(_, len)| len).sum::<usize>(), 3900);
    assert!(consumer.held_at(100, 3901).is_none());
    // The area's room comes back apart from the spill area's.
    let _ = producer.push(&body(3), &third).expect("the first was given back with the look at the second");
    assert_eq!(producer.push(&body(4), &second), Err(PushError::Full), "it is held");
    assert_eq!(pop(&mut consumer), Ok(Some((body(3), third))));
    let _ = producer.push(&body(4), &second).expect("room");
    assert_eq!(pop(&mut consumer), Ok(Some((body(4), second))));
}

#[test]
fn a_fresh_ring_is_cold_and_attention_moves_the_doorbell() {
    let (mut producer, mut consumer, words) = ring(8, 0);
    assert_eq!(producer.push(&body(0), &[]), Ok(Pushed { doorbell: true }));
    consumer.set_attention(Attention::Polled);
    assert_eq!(producer.push(&body(0), &[]), Ok(Pushed { doorbell: false }));
    consumer.set_attention(Attention::Doorbell);
    assert_eq!(producer.push(&body(0), &[]), Ok(Pushed { doorbell: true }));
    words[ATTENTION].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(producer.push(&body(0), &[]), Ok(Pushed { doorbell: true }), "nonsense means: ring");
}

#[test]
fn turning_cold_tells_what_is_free() {
    let (mut producer, mut consumer, words) = ring(64, 0);
    let _ = producer.push(&body(0), &[]).unwrap();
    assert!(pop(&mut consumer).unwrap().is_some());
    assert_eq!(words[FREED].load(Ordering::Relaxed), 0);
    consumer.set_attention(Attention::Doorbell);
    assert_eq!(words[FREED].load(Ordering::Relaxed), 1);
}

#[test]
fn impossible_lengths_and_counts_are_corrupt() {
    let (mut producer, mut consumer, words) = ring(4, 128);
    words[HEADER_WORDS].store(1 << 32 | 129, Ordering::Relaxed);
    let error = Corrupt::Length { len: 129, max: 128 };
    assert_eq!(pop(&mut consumer), Err(error));
    assert_eq!(pop(&mut consumer), Err(error));

    for n in 0..4 {
        let _ = producer.push(&body(n), &[]).unwrap();
    }
    words[FREED].store(5, Ordering::Relaxed);
    let error = Corrupt::Freed { freed: 5, lowest: 0, highest: 4 };
    assert_eq!(producer.push(&body(5), &[]), Err(error.into()));
    words[FREED].store(1, Ordering::Relaxed);
    let _ = producer.push(&body(5), &[]).unwrap();
    words[FREED].store(0, Ordering::Relaxed);
    let error = Corrupt::Freed { freed: 0, lowest: 1, highest: 5 };
    assert_eq!(producer.push(&body(6), &[]), Err(error.into()));
}

#[test]
fn bad_layouts_are_refused() {
    let words: Shared = (0..1000).map(|_| AtomicU64::new(0)).collect();
    for (slots, payload_bytes) in [(0, 0), (3, 0), (1 << 25, 0), (2, usize::MAX), (128, 0)] {
        let layout = RingLayout { slots, payload_bytes, spill_bytes: 0 };
        assert!(Producer::new(Arc::clone(&words), layout, FenceMode::Symmetric).is_err(), "{layout:?}");
        assert!(Consumer::new(Arc::clone(&words), layout).is_err(), "{layout:?}");
    }
}

#[test]
fn sequence_numbers_wrap() {
    let (mut producer, mut consumer, words) = ring(4, 0);
    let near = u64::from(u32::MAX) - 5;
    // As after so many messages: every slot holds the sequence of its last lap.
    (producer.pushed, producer.pushed_max) = (near, near + 4);
    (consumer.taken, consumer.published) = (near, near);
    words[FREED].store(near, Ordering::Relaxed);
    for position in near - 4..near {
        let word = u64::from((position + 1) as u32) << 32;
        words[HEADER_WORDS + (position % 4) as usize * LINE_WORDS].store(word, Ordering::Relaxed);
    }
    for n in 0..20 {
        assert_eq!(pop(&mut consumer), Ok(None));
        let _ = producer.push(&body(n), &[]).unwrap();
        assert_eq!(pop(&mut consumer), Ok(Some((body(n), vec![]))));
    }
}

#[test]
fn two_threads_exchange_everything_in_order() {
    let (mut producer, mut consumer, _) = ring(8, 640);
    let total: u64 = if cfg!(miri) { 30 } else { 100_000 };
    let sender = thread::spawn(move || {
        for n in 0..total {
            let payload = bytes(n, n as usize % 200);
            while let Err(error) = producer.push(&body(n), &payload) {
                assert_eq!(error, PushError::Full);
                thread::yield_now();
            }
        }
    });
    let (mut found, mut payload) = ([0; 7], Vec::new());
    for n in 0..total {
        while !consumer.pop(&mut found, &mut payload).unwrap() {
            consumer.flush_credits();
            thread::yield_now();
        }
        assert_eq!(found, body(n));
        assert_eq!(payload, bytes(n, n as usize % 200));
    }
    sender.join().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => (0..300_usize).prop_map(Step::Push), 3 => Just(Step::Pop), 1 => Just(Step::Flush)]
}

/// Steps of a random history: few where each takes milliseconds.
const STEPS: usize = if cfg!(miri) { 30 } else { 200 };

fn cases(usual: u32) -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 2 } else { usual }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn it_behaves_like_a_queue(
        slots in 0..4_u32, lines in 0..5_usize, steps in prop::collection::vec(step(), 1..STEPS)
    ) {
        let (slots, area) = (1 << slots, lines * 64);
        let (mut producer, mut consumer, _) = ring(slots, area);
        let mut model = VecDeque::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(len) => {
                    let payload = bytes(n as u64, len);
                    match producer.push(&body(n as u64), &payload) {
                        Ok(_) => model.push_back((body(n as u64), payload)),
                        Err(PushError::TooLarge { .. }) => prop_assert!(len > area),
                        Err(PushError::Full) => {
                            // It speaks the truth once it knows all.
                            consumer.flush_credits();
                            let used: usize = model.iter().map(|(_, p)| p.len().next_multiple_of(64)).sum();
                            let full = model.len() == slots || used + len.next_multiple_of(64) > area;
                            prop_assert_eq!(producer.room(len), !full);
                        }
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Pop => prop_assert_eq!(pop(&mut consumer), Ok(model.pop_front())),
                Step::Flush => { consumer.flush_credits(); }
            }
            prop_assert!(model.len() <= slots);
        }
    }

    /// Neither end has the spill area before it is needed, and messages come out in order whichever area has
    /// their payloads.
    #[test]
    fn it_behaves_like_a_queue_with_a_spill_area(
        lines in 0..5_usize, spill_lines in 1..8_usize, steps in prop::collection::vec(step(), 1..STEPS)
    ) {
        let (mut producer, mut consumer, spill) = spilling(8, lines * 64, spill_lines * 64);
        let (area, longest) = (lines * 64, lines.max(spill_lines) * 64);
        let mut model = VecDeque::new();
        for (n, step) in steps.into_iter().enumerate() {
            let n = n as u64;
            match step {
                Step::Push(len) => {
                    let payload = bytes(n, len);
                    let mut pushed = producer.push(&body(n), &payload);
                    if pushed == Err(PushError::NoSpill) {
                        prop_assert!(!producer.has_spill() && !producer.room(len));
                        producer.give_spill(Arc::clone(&spill)).expect("as many words as it takes");
                        pushed = producer.push(&body(n), &payload);
                        prop_assert_eq!(pushed.is_ok(), len <= spill_lines * 64, "it was empty");
                    }
                    match pushed {
                        Ok(_) => model.push_back((body(n), payload)),
                        Err(PushError::TooLarge { max, .. }) => prop_assert!(len > max && max == longest),
                        Err(error) => prop_assert_eq!(error, PushError::Full),
                    }
                }
                Step::Pop => {
                    let mut popped = pop(&mut consumer);
                    if popped == Err(Corrupt::Spilled) {
                        prop_assert!(producer.has_spill());
                        consumer.give_spill(Arc::clone(&spill)).expect("as many words as it takes");
                        popped = pop(&mut consumer);
                    }
                    prop_assert_eq!(popped, Ok(model.pop_front()));
                }
                Step::Flush => { consumer.flush_credits(); }
            }
            if model.is_empty() && producer.has_spill() {
                consumer.flush_credits();
                prop_assert!(producer.room(area) && producer.room(longest), "nothing is there");
            }
        }
    }

    /// A peer that scribbles anywhere: whatever we then do ends, in an error or in a message of possible
    /// size.
    #[test]
    fn scribbling_never_panics(
        slots in 0..4_u32,
        lines in 0..5_usize,
        steps in prop::collection::vec((step(), any::<prop::sample::Index>(), scribble()), 1..STEPS)
    ) {
        let (slots, area) = (1 << slots, lines * 64);
        let layout = RingLayout { slots, payload_bytes: area, spill_bytes: 2 * area };
        let (mut producer, mut consumer, words) = ring_of(layout);
        let spill: Shared = (0..layout.spill_words()).map(|_| AtomicU64::new(0)).collect();
        consumer.give_spill(Arc::clone(&spill)).expect("as many words as it takes");
        producer.give_spill(spill).expect("as many words as it takes");
        for (n, (step, place, value)) in steps.into_iter().enumerate() {
            words[place.index(words.len())].store(value, Ordering::Relaxed);
            match step {
                Step::Push(len) => {
                    producer.room(len);
                    let _ = producer.push(&body(n as u64), &bytes(n as u64, len));
                    prop_assert!(producer.pushed <= producer.pushed_max);
                    prop_assert!(producer.pushed_max <= producer.pushed + slots as u64);
                }
                Step::Pop => {
                    if let Ok(Some((_, payload))) = pop(&mut consumer) {
                        prop_assert!(payload.len() <= 2 * area);
                    }
                }
                Step::Flush => { consumer.flush_credits(); }
            }
        }
    }
}

/// Words that get past the first check more often than random ones would.
fn scribble() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..16_u64,
        (0..64_u64, 0..512_u64).prop_map(|(sequence, len)| sequence << 32 | len),
        (0..64_u64, any::<u32>()).prop_map(|(sequence, len)| sequence << 32 | u64::from(len)),
    ]
}
