//! This thread's time on a core.

use std::{hint::black_box, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::pattern;

/// Keeps a core busy for `duration` of this thread's processor time, however many others want the core.
pub(crate) fn burn(duration: Duration) {
    let end = time() + duration;
    let mut value = 1;
    while time() < end {
        for _ in 0..4096 {
            value = black_box(pattern::mix(value));
        }
    }
}

/// The time that this thread has had a core.
#[must_use]
pub(crate) fn time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_takes_processor_time_and_sleeping_does_not() {
        let start = time();
        burn(Duration::from_millis(5));
        let burnt = time() - start;
        assert!(burnt >= Duration::from_millis(5));
        std::thread::sleep(Duration::from_millis(30));
        assert!(time() - start - burnt < Duration::from_millis(20));
    }
}
