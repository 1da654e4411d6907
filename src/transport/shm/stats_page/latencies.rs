//! The times of its calls that a process shows.

use std::os::fd::OwnedFd;

use engine::Nanos;

use super::read_settled;
use crate::counters::latency::{Latencies, WORDS};
use crate::transport::shm::control::{Control, LATENCIES_AT, LATENCIES_BYTES};

const _: () =
    assert!((2 + WORDS) as u64 * 8 <= LATENCIES_BYTES, "the latencies lie below the endpoint's address");

impl Control {
    /// Shows how long calls of this process took. One thread at a time.
    pub(crate) fn publish_latencies(&self, at: Nanos, words: &[u64; WORDS]) {
        self.publish_words(LATENCIES_AT, at, words);
    }
}

/// How long calls of the process behind a control segment took. `None` where it has shown nothing yet, or
/// nothing that can be.
pub(crate) fn read_latencies(page: &OwnedFd) -> Option<Latencies> {
    let words: [u64; 1 + WORDS] = read_settled(page, LATENCIES_AT)?;
    Some(Latencies::from_words(words[1..].try_into().expect("all but the time")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::latency::Timed;
    use crate::transport::shm::control::{Identity, Mapping};

    #[test]
    fn what_is_shown_is_read() {
        let identity = Identity {
            rank: 0,
            size: 1,
            nonce: 0,
            nonce_addr: 0,
            fences_asymmetric: false,
            ranges_only: false,
            unattended: false,
            directory: 0,
            allocated: Mapping::default(),
            heap: Mapping::default(),
        };
        let (control, segment) = Control::create(1, &identity).expect("memory for one page");
        let page = segment.fd().try_clone_to_owned().expect("a descriptor");
        assert_eq!(read_latencies(&page), None);
        let mut words = [0; WORDS];
        words[WORDS - 3] = 3;
        control.publish_latencies(1, &words);
        let read = read_latencies(&page).expect("shown");
        assert_eq!((read.get(Timed::Request).sampled(), read.get(Timed::Put).sampled()), (3, 0));
        // A watcher of one that is hostile gets numbers.
        control.publish_latencies(2, &[u64::MAX; WORDS]);
        assert!(read_latencies(&page).expect("shown").get(Timed::Put).sampled() > 1 << 40);
    }
}
