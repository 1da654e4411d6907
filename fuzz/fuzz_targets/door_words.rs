//! What those say at a node's network door, or at a rendezvous, who have its secret: whatever it is, reading
//! it ends with words or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use standpipe::bootstrap::{check_handshake_words, check_rendezvous_words};

fuzz_target!(|input: &[u8]| {
    check_handshake_words(input);
    check_rendezvous_words(input);
});
