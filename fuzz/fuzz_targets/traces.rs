//! Files that may be recorded runs of a kernel: reading one ends with steps that fit together, or an error.

#![no_main]

use std::os::fd::AsRawFd;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use sim::recording::{MAGIC, Trace, VERSION};

fuzz_target!(|input: &[u8]| {
    // As it is, and once more behind the first bytes that every trace has, so that what comes after these is
    // reached.
    let version = VERSION.to_le_bytes();
    for bytes in [input.to_vec(), [&MAGIC[..], &version, input].concat()] {
        let file = memfd_create("trace", MemfdFlags::CLOEXEC).expect("the machine has memory left");
        rustix::io::write(&file, &bytes).expect("there is room");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(trace) = Trace::open(Path::new(&path)) {
            let _ = trace.check();
        }
    }
});
