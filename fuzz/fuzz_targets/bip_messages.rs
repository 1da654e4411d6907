//! What a peer of a BIP job sends: it is parsed or refused, and what is parsed is what would be sent.
#![no_main]

use layers::bip::wire::{Message, SMALL_WORDS, WORD};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: ([u64; 4], &[u8])| {
    let (args, payload) = message;
    let Ok(parsed) = Message::parse(args, payload.len()) else { return };
    assert_eq!(parsed.args(), args);
    match parsed {
        Message::Short { words, .. } => assert_eq!(words as usize * WORD, payload.len()),
        Message::Long { words, addr, .. } => {
            assert!(words > SMALL_WORDS && addr.checked_add(u64::from(words) * WORD as u64).is_some());
        }
        Message::Done { .. }
        | Message::NoRoom { .. }
        | Message::NoSource { .. }
        | Message::Taken { .. }
        | Message::Leaving => assert!(payload.is_empty()),
    }
});
