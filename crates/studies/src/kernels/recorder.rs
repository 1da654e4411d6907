//! Recording what a rank does while it does it, straight to disk.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    time::Duration,
};

use sim::recording::{Action, SectionWriter, Step};

use crate::processor;

/// Writes a rank's section of a trace. Time is counted as this thread's time on a core, so that a machine
/// with fewer cores than ranks records the same as one with enough; so all steps must come from one thread.
#[derive(Debug)]
pub(super) struct Recorder {
    section: SectionWriter<BufWriter<File>>,
    /// When the last step ended.
    ended: Duration,
    /// What looking at the clock itself takes.
    looking: Duration,
}

impl Recorder {
    /// Starts the section of `rank` in a new file of `directory`.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub(super) fn create(directory: &Path, rank: usize) -> io::Result<Self> {
        let section = SectionWriter::new(BufWriter::new(File::create(part_file(directory, rank))?));
        let looks = (0..LOOKS).map(|_| {
            let start = processor::time();
            processor::time().saturating_sub(start)
        });
        let looking = looks.min().unwrap_or_default();
        Ok(Self { section, ended: processor::time(), looking })
    }

    /// Takes the time from here on for computing.
    pub(super) fn restart(&mut self) {
        self.ended = processor::time();
    }

    /// How long this thread has computed since the last step, in nanoseconds. Called before the next one.
    #[must_use]
    pub(super) fn computed_ns(&self) -> u64 {
        let computed = processor::time().saturating_sub(self.ended).saturating_sub(self.looking);
        u64::try_from(computed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Writes a step down that is complete by now, before which the rank computed for `compute_ns`.
    ///
    /// # Errors
    /// What writing ends with.
    pub(super) fn write(&mut self, compute_ns: u64, action: Action) -> io::Result<()> {
        self.section.push(&Step { compute_ns, action })?;
        self.restart();
        Ok(())
    }

    /// Ends the section; gives its number of steps.
    ///
    /// # Errors
    /// What writing ends with.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.section.finish()
    }
}

/// The file with the section of `rank`.
#[must_use]
pub(super) fn part_file(directory: &Path, rank: usize) -> PathBuf {
    directory.join(format!("rank-{rank}"))
}

/// Enough for one look at the clock to be undisturbed.
const LOOKS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_counts_and_sleeping_and_writing_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut recorder = Recorder::create(directory.path(), 3).expect("a file");
        processor::burn(Duration::from_millis(5));
        std::thread::sleep(Duration::from_millis(30));
        let computed = recorder.computed_ns();
        assert!((5_000_000..25_000_000).contains(&computed), "{computed}");
        recorder.write(computed, Action::Barrier).expect("room on disk");
        assert!(recorder.computed_ns() < 4_000_000);
        assert_eq!(recorder.finish().expect("room on disk"), 1);
        assert!(part_file(directory.path(), 3).exists());
    }
}
