//! Node addresses that anybody may send: whatever they say, reading one ends with a value or an error.
//!
//! The input is read as it is, and once more with a header and a checksum that are right, so that what comes
//! after these is reached.

#![no_main]

use std::hash::Hasher;

use libfuzzer_sys::fuzz_target;
use siphasher::sip::SipHasher13;
use standpipe::bootstrap::check_address;

fuzz_target!(|input: &[u8]| {
    assert!(check_address(input).is_ok() <= input.starts_with(b"SPA\x02"));
    let mut bytes = [b"SPA\x02", input].concat();
    let mut sum = SipHasher13::new();
    sum.write(&bytes);
    bytes.extend(sum.finish().to_le_bytes());
    let _ = check_address(&bytes);
});
