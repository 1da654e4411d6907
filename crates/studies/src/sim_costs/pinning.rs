//! What it takes to lock pages and to unlock them.

use std::time::{Duration, Instant};

use measure::bare::LockablePages;
use rustix::io::Errno;
use standpipe::host;

use super::fit::Line;

/// The numbers of pages that are tried, the largest that may be locked being taken.
const SIZES: [[usize; 3]; 4] = [[1, 16, 256], [1, 8, 64], [1, 4, 16], [1, 2, 4]];
/// How long each number of pages is locked and unlocked again and again.
const MEASURE: Duration = Duration::from_millis(200);
const SAMPLES_MAX: usize = 5000;
const SAMPLES_MIN: usize = 15;

/// Why pinning cannot be measured.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process may not lock even {pages} pages: {source}; the limit on locked memory is {} (ulimit -l)",
    limit(*.limit_bytes)
)]
pub(super) struct LockError {
    /// Pages that it tried to lock last.
    pub pages: usize,
    /// `RLIMIT_MEMLOCK`.
    pub limit_bytes: Option<u64>,
    /// What the kernel said.
    pub source: Errno,
}

fn limit(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "not set".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// What locking and unlocking take, for each number of pages that was measured.
#[derive(Debug)]
pub(super) struct Pinning {
    pub(super) pages: [usize; 3],
    pub(super) lock: Costs,
    pub(super) unlock: Costs,
}

/// What one of the two takes, in ns.
#[derive(Debug)]
pub(super) struct Costs {
    pub(super) medians: [f64; 3],
    pub(super) line: Line,
    /// By how much of a median the line misses it at worst.
    pub(super) worst_miss: f64,
}

/// Measures as many pages as may be locked.
pub(super) fn measure() -> Result<Pinning, LockError> {
    let mut refused = None;
    for pages in SIZES {
        match measure_sizes(pages) {
            Ok(pinning) => return Ok(pinning),
            Err(errno) => refused = Some((pages[2], errno)),
        }
    }
    let (pages, source) = refused.expect("there are sizes, and all were refused");
    Err(LockError { pages, limit_bytes: host::memlock().soft, source })
}

fn measure_sizes(pages: [usize; 3]) -> Result<Pinning, Errno> {
    let (mut lock, mut unlock) = ([0.0; 3], [0.0; 3]);
    // The largest first: it is what may be refused.
    for index in (0..pages.len()).rev() {
        (lock[index], unlock[index]) = medians(pages[index])?;
    }
    Ok(Pinning { pages, lock: Costs::of(pages, lock), unlock: Costs::of(pages, unlock) })
}

impl Costs {
    fn of(pages: [usize; 3], medians: [f64; 3]) -> Costs {
        let points = std::array::from_fn::<_, 3, _>(|index| (pages[index] as f64, medians[index]));
        let line = Line::through(&points);
        Costs { medians, line, worst_miss: line.worst_miss(&points) }
    }
}

/// The medians of locking and of unlocking so many pages, in ns.
fn medians(count: usize) -> Result<(f64, f64), Errno> {
    let pages = LockablePages::new(count)?;
    pages.lock_and_unlock()?;
    let (mut locks, mut unlocks, begun) = (Vec::new(), Vec::new(), Instant::now());
    while locks.len() < SAMPLES_MIN || begun.elapsed() < MEASURE && locks.len() < SAMPLES_MAX {
        let (lock, unlock) = pages.lock_and_unlock()?;
        locks.push(lock);
        unlocks.push(unlock);
    }
    Ok((median(locks), median(unlocks)))
}

fn median(mut times: Vec<Duration>) -> f64 {
    let middle = times.len() / 2;
    // No clock of ours tells less than a nanosecond.
    times.select_nth_unstable(middle).1.as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pages_take_longer_to_lock_and_figures_are_positive() {
        // A limit that lets nothing be locked is an answer too.
        let pinning = match measure() {
            Ok(pinning) => pinning,
            Err(error) => return testbed::skip(&error),
        };
        for costs in [pinning.lock, pinning.unlock] {
            assert!(costs.medians.iter().all(|ns| *ns >= 1.0), "{costs:?}");
            assert!(costs.medians[2] > costs.medians[0], "{:?}: {costs:?}", pinning.pages);
        }
    }

    #[test]
    fn a_refusal_says_what_the_limit_is() {
        let error = LockError { pages: 4, limit_bytes: Some(0), source: Errno::NOMEM };
        assert!(error.to_string().contains("4 pages") && error.to_string().contains("0 bytes"), "{error}");
    }
}
