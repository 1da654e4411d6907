//! A ring whose words the other side overwrites at will: every step ends, in an error or in a message of
//! possible size; and as long as nobody interferes, what comes out is what went in.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vm::{Attention, Consumer, FenceMode, Producer, PushError, RingLayout};

#[derive(Arbitrary, Debug)]
enum Step {
    Push {
        body: [u64; 7],
        len: u16,
    },
    Room {
        len: u16,
    },
    Pop,
    Flush,
    Attention {
        polled: bool,
    },
    /// Writes any word.
    Scribble {
        word: u16,
        value: u64,
    },
    /// Writes the word that the consumer will look at next, with a plausible sequence number.
    Announce {
        ahead: u8,
        len: u32,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    slots_log2: u8,
    payload_bytes: u16,
    spill_bytes: u16,
    asymmetric: bool,
    steps: Vec<Step>,
}

/// Words before the first slot, and of a slot: the layout that the ring's module describes.
const HEADER_WORDS: usize = 16;
const SLOT_WORDS: usize = 8;

type Memory = Arc<[AtomicU64]>;

fuzz_target!(|input: Input| {
    let layout = RingLayout {
        slots: 1 << (input.slots_log2 % 6),
        payload_bytes: usize::from(input.payload_bytes),
        spill_bytes: usize::from(input.spill_bytes),
    };
    let words: Memory = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let fence = if input.asymmetric { FenceMode::Asymmetric } else { FenceMode::Symmetric };
    let mut producer =
        Producer::new(Arc::clone(&words), layout, fence).expect("the words are as many as it says");
    let mut consumer = Consumer::new(Arc::clone(&words), layout).expect("the words are as many as it says");
    let spill: Memory = (0..layout.spill_words()).map(|_| AtomicU64::new(0)).collect();
    producer.give_spill(Arc::clone(&spill)).expect("the words are as many as it says");
    consumer.give_spill(spill).expect("the words are as many as it says");
    let mut ring = Ring { words, layout, producer, consumer, honest: true, inside: VecDeque::new() };
    input.steps.iter().for_each(|step| ring.step(step));
});

struct Ring {
    words: Memory,
    layout: RingLayout,
    producer: Producer<Memory>,
    consumer: Consumer<Memory>,
    /// Nobody has interfered so far.
    honest: bool,
    /// What must come out, while honest.
    inside: VecDeque<([u64; 7], Vec<u8>)>,
}

impl Ring {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push { body, len } => self.push(body, usize::from(len)),
            Step::Room { len } => drop(self.producer.room(usize::from(len))),
            Step::Pop => self.pop(),
            Step::Flush => drop(self.consumer.flush_credits()),
            Step::Attention { polled: true } => self.consumer.set_attention(Attention::Polled),
            Step::Attention { polled: false } => self.consumer.set_attention(Attention::Doorbell),
            Step::Scribble { word, value } => self.write(usize::from(word) % self.words.len(), value),
            Step::Announce { ahead, len } => {
                let sequence = self.consumer.taken() + 1 + u64::from(ahead % 2);
                let slot = (sequence - 1) as usize % self.layout.slots;
                self.write(HEADER_WORDS + slot * SLOT_WORDS, sequence << 32 | u64::from(len));
            }
        }
    }

    fn write(&mut self, word: usize, value: u64) {
        self.honest = false;
        self.words[word].store(value, Ordering::Relaxed);
    }

    fn push(&mut self, body: [u64; 7], len: usize) {
        let payload: Vec<u8> = (0..len).map(|at| at as u8 ^ body[0] as u8).collect();
        let room = self.producer.room(len);
        match self.producer.push(&body, &payload) {
            Ok(_) => self.inside.push_back((body, payload)),
            Err(PushError::Full) => assert!(!self.honest || !room, "there was room, and it is full"),
            Err(PushError::NoSpill) => panic!("it was given"),
            Err(PushError::TooLarge { max, .. }) => assert!(len > max),
            Err(PushError::Corrupt(_)) => assert!(!self.honest, "nobody broke the protocol"),
        }
    }

    fn pop(&mut self) {
        let (mut body, mut payload) = ([0; 7], Vec::new());
        let got = self.consumer.pop(&mut body, &mut payload);
        assert!(payload.len() <= self.layout.payload_bytes_max());
        if self.honest {
            let expected = self.inside.pop_front();
            assert_eq!(got.map(|came| came.then_some((body, payload))), Ok(expected));
        }
    }
}
