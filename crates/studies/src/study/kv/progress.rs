//! What the workers say, gathered while they run, and shown as a bar.

use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;

use super::{outcome::Record, worker_lines::Line};
use measure::units::{bytes, grouped};
use measure::{json_lines, progress, signals};

/// Gathers the workers' lines, from any thread.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    gathered: Mutex<Gathered>,
}

#[derive(Debug)]
struct Gathered {
    record: Record,
    blocks: u64,
    hits: u64,
    pulled_bytes: u64,
}

impl Progress {
    /// Nothing heard yet from `workers`, which have `requests` to serve together. The bar is on standard
    /// error, and only where that is a terminal.
    #[must_use]
    pub(crate) fn new(workers: usize, requests: u64) -> Self {
        let bar = progress::bar(requests, "{pos}/{len} requests · {msg}");
        let gathered = Gathered { record: Record::new(workers), blocks: 0, hits: 0, pulled_bytes: 0 };
        Self { bar, gathered: Mutex::new(gathered) }
    }

    /// Takes in one line of worker `rank`. Gives false if it is none of the study's: the caller may show it.
    pub(crate) fn hear(&self, rank: usize, line: &str) -> bool {
        let mut gathered = self.gathered();
        if rank >= gathered.record.ticks.len() {
            return false;
        }
        match json_lines::decode(line) {
            Some(Line::Tick(tick)) => {
                let pulls = tick.pulls.len() as u64;
                gathered.hits += tick.local_hits + pulls;
                gathered.blocks += tick.local_hits + pulls + tick.made;
                gathered.pulled_bytes += tick.verified_bytes;
                self.bar.inc(tick.requests);
                self.bar.set_message(gathered.message());
                gathered.record.seconds = gathered.record.seconds.max(tick.at_ms as f64 / 1e3);
                gathered.record.ticks[rank].push(tick);
            }
            Some(Line::Sweep(sweep)) => gathered.record.sweep = sweep,
            Some(Line::Yardsticks(yardsticks)) => gathered.record.yardsticks = Some(yardsticks),
            Some(Line::Done(done)) => gathered.record.done[rank] = Some(done),
            None => return false,
        }
        true
    }

    /// Requests served so far.
    pub(crate) fn served(&self) -> u64 {
        self.bar.position()
    }

    /// Shows a line above the bar, unless a signal ends all of this.
    pub(crate) fn show(&self, line: &str) {
        if !signals::ending() {
            self.bar.suspend(|| signals::complain(line));
        }
    }

    /// Takes the bar away and gives what was heard.
    pub(crate) fn finish(&self) -> Record {
        self.bar.finish_and_clear();
        self.gathered().record.clone()
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        // A panic while adding numbers up leaves numbers.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathered {
    fn message(&self) -> String {
        let hit_rate = 100.0 * self.hits as f64 / self.blocks.max(1) as f64;
        format!("{} blocks, {hit_rate:.0} % held, {} pulled", grouped(self.blocks), bytes(self.pulled_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::worker_lines::{Done, Tick};

    #[test]
    fn lines_of_the_study_are_kept_and_others_given_back() {
        let progress = Progress::new(2, 10);
        let tick = Tick { at_ms: 1500, requests: 3, local_hits: 1, made: 1, ..Tick::default() };
        assert!(progress.hear(1, &json_lines::encode(&Line::Tick(tick))));
        assert!(progress.hear(1, &json_lines::encode(&Line::Done(Done::default()))));
        assert!(!progress.hear(0, "a stray line"));
        assert!(!progress.hear(2, &json_lines::encode(&Line::Done(Done::default()))), "there is no worker 2");
        assert_eq!(progress.gathered().message(), "2 blocks, 50 % held, 0 B pulled");
        let record = progress.finish();
        assert_eq!((record.seconds, record.ticks[1][0].requests), (1.5, 3));
        assert!(record.done[0].is_none() && record.done[1].is_some());
    }
}
