//! Any words and payload as a message of VIA: it is refused, or says again what was read.
#![no_main]

use layers::via::wire::{Greeting, Message, Range, parse, piece_words, to_piece};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u64; 4], Vec<u8>)| {
    let (args, payload) = input;
    let Ok(message) = parse(args, payload.len()) else { return };
    assert_eq!(message.words(), args);
    match message {
        Message::Connect { .. } | Message::Accept { .. } | Message::PeerConnect { .. } => {
            if let Ok(greeting) = Greeting::from_bytes(&payload) {
                assert_eq!(greeting.to_bytes(), payload);
            }
        }
        Message::Find { .. } => {
            if let Ok(range) = Range::from_bytes(&payload) {
                assert_eq!(range.to_bytes()[..], payload);
            }
        }
        Message::Offer { .. } | Message::Found { is_there: true, .. } => {
            let again: Vec<u8> = piece_words(&payload).flat_map(to_piece).collect();
            assert_eq!(again, payload);
        }
        _ => {}
    }
});
