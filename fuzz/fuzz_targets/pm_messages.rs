//! Any words and payload as a message of PM: it is refused, or says again what was read.
#![no_main]

use layers::pm::wire::{Message, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u64; 4], Vec<u8>)| {
    let (args, payload) = input;
    if let Ok(message) = parse(args, payload.len()) {
        assert_eq!(message.words(), args);
        assert_eq!(matches!(message, Message::Data { .. }), !payload.is_empty());
    }
});
