use super::*;
use crate::bell::{Bell, bell_words};
use crate::membarrier::heavy_fence;
use loom::thread;
use std::sync::Arc;

type Shared = Arc<[AtomicU64]>;

fn words(count: usize) -> Shared {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Three messages with payloads through two slots: what comes out is whole and in order, and a slot or a
/// payload line is never written again before it was read.
#[test]
fn loom_messages_are_whole() {
    messages_are_whole(0);
}

/// The same with every second payload in the spill area, as the first fills the other one.
#[test]
fn loom_spilled_messages_are_whole() {
    messages_are_whole(64);
}

fn messages_are_whole(spill_bytes: usize) {
    check(2, move || {
        let layout = RingLayout { slots: 2, payload_bytes: 64, spill_bytes };
        let (ring, spill) = (words(layout.words()), words(layout.spill_words()));
        let mut producer = Producer::new(Arc::clone(&ring), layout, FenceMode::Symmetric).unwrap();
        let mut consumer = Consumer::new(ring, layout).unwrap();
        if spill_bytes > 0 {
            producer.give_spill(Arc::clone(&spill)).unwrap();
            consumer.give_spill(spill).unwrap();
        }
        let sender = thread::spawn(move || {
            for n in 1..=3_u64 {
                while producer.push(&[n; 7], &[n as u8; 3]).is_err() {
                    thread::yield_now();
                }
            }
        });
        let (mut body, mut payload) = ([0; 7], Vec::new());
        for n in 1..=3_u64 {
            while !consumer.pop(&mut body, &mut payload).unwrap() {
                thread::yield_now();
            }
            assert_eq!(body, [n; 7]);
            assert_eq!(payload, [n as u8; 3]);
            consumer.flush_credits();
        }
        sender.join().unwrap();
    });
}

/// A consumer that polls, turns cold and sleeps without a limit: a message that comes without a doorbell
/// after its last look would leave it asleep, and loom calls that a deadlock.
fn hot_to_cold(fence: FenceMode) {
    check(3, move || {
        let layout = RingLayout { slots: 4, payload_bytes: 0, spill_bytes: 0 };
        let ring = words(layout.words());
        let bell = words(bell_words(1));
        let mut producer = Producer::new(Arc::clone(&ring), layout, fence).unwrap();
        let mut consumer = Consumer::new(ring, layout).unwrap();
        consumer.set_attention(Attention::Polled);
        let mine = Bell::new(Arc::clone(&bell), 1).unwrap();
        let theirs = Bell::new(bell, 1).unwrap();
        let sender = thread::spawn(move || {
            for n in 1..=2 {
                if producer.push(&[n; 7], &[]).unwrap().doorbell {
                    theirs.ring(0);
                }
            }
        });
        let (mut body, mut payload) = ([0; 7], Vec::new());
        let mut cold = false;
        while consumer.taken() < 2 {
            if consumer.pop(&mut body, &mut payload).unwrap() {
                assert_eq!(body, [consumer.taken(); 7]);
                continue;
            }
            if !cold {
                cold = true;
                consumer.set_attention(Attention::Doorbell);
                heavy_fence();
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

#[test]
fn loom_no_wake_up_is_lost_with_full_fences() {
    hot_to_cold(FenceMode::Symmetric);
}

#[test]
fn loom_no_wake_up_is_lost_with_one_sided_fences() {
    hot_to_cold(FenceMode::Asymmetric);
}
