//! Fast Messages that a peer may send: whatever they say, parsing one ends with a message or an error, and a
//! packet that is taken fits its announced length.
#![no_main]

use layers::fm::wire::{INLINE_MAX, PACKET_MAX, What, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u64; 4], &[u8])| {
    let (args, payload) = input;
    let Ok(message) = parse(args, payload.len()) else { return };
    let What::Packet(packet) = message.what else {
        assert!(payload.is_empty());
        return;
    };
    let len = packet.inline.map_or(payload.len(), |(_, len)| usize::from(len));
    assert!(len <= PACKET_MAX && (packet.inline.is_none() || len <= INLINE_MAX));
    assert!(packet.is_last || len > 0);
    assert!(packet.first.is_none() || len as u64 <= packet.position);
});
