//! What those say at a node's network door who have its secret: whatever it is, reading it ends with words or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use standpipe::bootstrap::check_door_words;

fuzz_target!(|input: &[u8]| {
    check_door_words(input);
});
