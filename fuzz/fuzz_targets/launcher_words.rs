//! What a launcher answers that speaks PMI 1 or 2: whatever it is, talking with it ends with words or an
//! error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use standpipe::bootstrap::check_launcher_words;

fuzz_target!(|input: &[u8]| {
    check_launcher_words(input);
});
