//! The signals that a launcher passes on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

pub(super) const FORWARDED: [i32; 9] =
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// This process's dispositions of signals before it first launched a job, and whether a job is running now.
/// Once a handler is installed it stays, so it is the handler that must do the default thing between jobs.
struct Habits {
    forwarded: Vec<i32>,
    idle: Arc<AtomicBool>,
    running: Mutex<u32>,
}

static HABITS: OnceLock<Habits> = OnceLock::new();

/// Collects signals while it lives.
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    habits: &'static Habits,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let habits = HABITS.get_or_init(Habits::new);
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, &habits.forwarded)?;
        habits.count(|running| running + 1);
        Ok(Self { delivery, habits })
    }

    /// Signals that came since the last call, each once.
    pub(super) fn take(&mut self) -> Vec<Signal> {
        self.delivery.pending().filter_map(Signal::from_named_raw).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.habits.count(|running| running - 1);
    }
}

impl Habits {
    fn new() -> Self {
        let dispositions = Dispositions::of_this_process();
        let forwarded: Vec<i32> =
            FORWARDED.into_iter().filter(|signal| !dispositions.ignores(*signal)).collect();
        let idle = Arc::new(AtomicBool::new(true));
        for signal in &forwarded {
            if !dispositions.catches(*signal) {
                // Fails for signals without a name only, and these have one.
                let _ = register_conditional_default(*signal, Arc::clone(&idle));
            }
        }
        Self { forwarded, idle, running: Mutex::new(0) }
    }

    fn count(&self, change: impl Fn(u32) -> u32) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = change(*running);
        self.idle.store(*running == 0, Ordering::SeqCst);
    }
}

/// Which signals are ignored and which have a handler, as bit masks with signal 1 lowest. Both are empty
/// where `/proc` cannot be read.
#[derive(Default)]
struct Dispositions {
    ignored: u64,
    caught: u64,
}

impl Dispositions {
    fn of_this_process() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Self { ignored: mask("SigIgn:").unwrap_or(0), caught: mask("SigCgt:").unwrap_or(0) }
    }

    fn ignores(&self, signal: i32) -> bool {
        self.ignored & bit(signal) != 0
    }

    fn catches(&self, signal: i32) -> bool {
        self.caught & bit(signal) != 0
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispositions_are_read_from_the_kernels_masks() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        let dispositions = Dispositions::parse(status);
        assert!(dispositions.ignores(SIGHUP) && !dispositions.ignores(SIGINT));
        assert!(dispositions.catches(SIGINT) && dispositions.catches(SIGTERM));
        assert!(!dispositions.catches(SIGHUP));
    }

    #[test]
    fn what_cannot_be_read_ignores_nothing() {
        assert!(FORWARDED.iter().all(|signal| !Dispositions::parse("").ignores(*signal)));
    }
}
