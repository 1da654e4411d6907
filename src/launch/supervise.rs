//! Staying with the ranks: passing on signals, noticing the first failure, ending the rest.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process, waitid};

use super::end::{End, Outcome, RankOutcome};
use super::signals::Signals;
use super::start::{Rank, Started};
use crate::bootstrap::Broker;
use crate::bootstrap::poll::poll_until;

const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// Where to say what happens.
pub(super) type Say = Box<dyn Fn(&str) + Send>;

/// What to do when a rank fails.
pub(super) struct Policy {
    pub(super) keep_going: bool,
    pub(super) grace: Duration,
    pub(super) say: Say,
}

impl Started {
    /// Stays until the last rank has ended and its output has been passed on.
    pub(super) fn supervise(self, policy: Policy) -> Outcome {
        let Self { broker, signals, ranks, pump } = self;
        let supervisor = Supervisor {
            broker,
            signals,
            policy,
            running: ranks,
            ended: Vec::new(),
            first_failed: None,
            ending: Ending::No,
            interrupts: 0,
        };
        let outcome = supervisor.run();
        if let Some(pump) = pump {
            pump.finish();
        }
        outcome
    }
}

struct Supervisor {
    broker: Broker,
    signals: Signals,
    policy: Policy,
    running: Vec<Rank>,
    ended: Vec<RankOutcome>,
    first_failed: Option<u32>,
    ending: Ending,
    interrupts: u32,
}

/// How far the launcher has got with ending the job because a rank failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    Asked { kill_at: Instant },
    Killed,
}

impl Supervisor {
    fn run(mut self) -> Outcome {
        while !self.running.is_empty() {
            let kill_at = match self.ending {
                Ending::Asked { kill_at } => Some(kill_at),
                Ending::No | Ending::Killed => None,
            };
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            fds.extend(self.running.iter().map(|rank| PollFd::new(&rank.handle, PollFlags::IN)));
            if poll_until(&mut fds, kill_at).is_err() {
                // For want of memory, which may be over soon. The ranks must not be left alone for that.
                std::thread::sleep(STARVED_PAUSE);
            }
            for signal in self.signals.take() {
                self.forward(signal);
            }
            self.reap();
            self.press();
        }
        self.ended.sort_by_key(|rank| rank.rank);
        Outcome { ranks: self.ended, first_failed: self.first_failed }
    }

    fn forward(&mut self, signal: Signal) {
        if signal == Signal::INT {
            self.interrupts += 1;
        }
        if self.interrupts > 1 && signal == Signal::INT {
            (self.policy.say)("interrupted again; killing all ranks");
            return self.signal_all(Signal::KILL);
        }
        self.signal_all(signal);
        if signal == Signal::TSTP {
            // Fails for nobody's own process.
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    fn signal_all(&self, signal: Signal) {
        for rank in &self.running {
            rank.signal(signal);
        }
    }

    /// Collects whoever has ended, and decides what that means for the others.
    fn reap(&mut self) {
        let ended_by_launcher = self.ending != Ending::No;
        let mut failed = Vec::new();
        for rank in std::mem::take(&mut self.running) {
            let Some(end) = collect(&rank, ended_by_launcher) else {
                self.running.push(rank);
                continue;
            };
            self.broker.ended(rank.rank, rank.pid(), end.how());
            let outcome = RankOutcome { rank: rank.rank, pid: rank.pid(), end, ended_by_launcher };
            self.ended.push(outcome);
            if end.is_failure() && !ended_by_launcher {
                failed.push(outcome);
            }
        }
        for outcome in failed {
            self.answer_failure(outcome);
        }
    }

    fn answer_failure(&mut self, RankOutcome { rank, pid, end, .. }: RankOutcome) {
        self.first_failed.get_or_insert(rank);
        let consequence = match (self.running.is_empty(), self.policy.keep_going, self.ending) {
            (true, ..) => "",
            (false, true, _) => "; the others go on",
            (false, false, Ending::No) => "; ending the others",
            (false, false, _) => "",
        };
        (self.policy.say)(&format!("rank {rank} (pid {pid}) {end}{consequence}"));
        if !self.policy.keep_going && self.ending == Ending::No {
            self.signal_all(Signal::TERM);
            // One that is stopped would not notice.
            self.signal_all(Signal::CONT);
            let now = Instant::now();
            // A grace beyond what the clock can count is a day.
            let kill_at = now.checked_add(self.policy.grace).unwrap_or(now + Duration::from_secs(86_400));
            self.ending = Ending::Asked { kill_at };
        }
    }

    /// Kills whoever has not ended within the grace period.
    fn press(&mut self) {
        let Ending::Asked { kill_at } = self.ending else { return };
        if self.running.is_empty() || Instant::now() < kill_at {
            return;
        }
        let ranks: Vec<String> = self.running.iter().map(|rank| rank.rank.to_string()).collect();
        let grace = self.policy.grace;
        (self.policy.say)(&format!(
            "still running {grace:?} after SIGTERM: rank {}; killing",
            ranks.join(", ")
        ));
        self.signal_all(Signal::KILL);
        self.ending = Ending::Killed;
    }
}

/// How `rank` ended, if it has. What a failed or ended rank leaves in its process group is killed first, while the
/// unreaped process still keeps the group's number from being used again.
fn collect(rank: &Rank, ended_by_launcher: bool) -> Option<End> {
    let end = look(rank, WaitIdOptions::NOWAIT)?;
    if end.is_failure() || ended_by_launcher {
        rank.signal(Signal::KILL);
    }
    look(rank, WaitIdOptions::empty());
    Some(end)
}

fn look(rank: &Rank, how: WaitIdOptions) -> Option<End> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | how;
    match waitid(WaitId::PidFd(rank.handle.as_fd()), options) {
        Ok(status) => status.map(end_of),
        Err(rustix::io::Errno::INTR) => None,
        // Not our child any more: it has been reaped by somebody else.
        Err(_) => Some(End::Unknown),
    }
}

fn end_of(status: WaitIdStatus) -> End {
    let exited = status.exit_status().map(End::Exited);
    exited.or(status.terminating_signal().map(End::Killed)).unwrap_or(End::Unknown)
}
