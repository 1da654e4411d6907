//! Staying with the ranks: passing on signals, noticing the first failure, ending the rest.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process, waitid};

use super::end::{End, Outcome, RankOutcome};
use super::guard::Guard;
use super::kills::Kills;
use super::output::Pump;
use super::signals::Signals;
use super::start::{Rank, Started};
use crate::job::launched::Broker;
use crate::job::plumbing::poll::poll_until;

const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// An interrupt that comes this soon after the first is the first again: `timeout` sends one to a process,
/// and then to its group.
const SAME: Duration = Duration::from_millis(200);

/// How long ranks may take to end after an interrupt before it is told what comes next: most are gone by
/// then.
const NOTICE: Duration = Duration::from_millis(300);

/// How long the launcher waits for a rank that has left the job to end, before it names one that left later
/// and ended sooner.
const BLAME: Duration = Duration::from_millis(200);

const KILL: i32 = Signal::KILL.as_raw();
const BUS: i32 = Signal::BUS.as_raw();

/// A grace beyond what the clock can count.
const DAY: Duration = Duration::from_secs(86_400);

/// Where to say what happens.
pub(super) type Say = Box<dyn Fn(&str) + Send>;

/// The reaction to a rank that fails.
pub(super) struct Policy {
    pub(super) keep_going: bool,
    pub(super) grace: Duration,
    pub(super) say: Say,
}

impl Started {
    /// Stays until the last rank has ended and its output has been passed on.
    pub(super) fn supervise(self, policy: Policy) -> Outcome {
        let Self { broker, signals, ranks, pump, children_wait, kills, guard } = self;
        if let Err(error) = &guard {
            (policy.say)(&format!(
                "no /bin/sh to guard the job ({error}): what ranks start in turn goes on if this launcher is killed"
            ));
        }
        let supervisor = Supervisor {
            broker,
            signals,
            pump,
            policy,
            running: ranks,
            unreaped: Vec::new(),
            ended: Vec::new(),
            first_failed: None,
            unanswered: Vec::new(),
            answer_by: None,
            ending: Ending::No,
            interrupt: None,
            killed_by_interrupt: false,
            kills,
            guard: guard.ok(),
        };
        let outcome = supervisor.run();
        drop(children_wait);
        outcome
    }
}

struct Supervisor {
    broker: Broker,
    signals: Signals,
    pump: Option<Pump>,
    policy: Policy,
    running: Vec<Rank>,
    /// Ranks that have ended, and that others may still reach by number: as long as they are not reaped,
    /// nobody else gets it.
    unreaped: Vec<Rank>,
    ended: Vec<RankOutcome>,
    first_failed: Option<u32>,
    /// Ranks that have failed and of which nothing has been said yet, and until when that may wait.
    unanswered: Vec<RankOutcome>,
    answer_by: Option<Instant>,
    ending: Ending,
    interrupt: Option<Interrupt>,
    killed_by_interrupt: bool,
    /// How many the kernel had killed for want of memory before the ranks told of so far were.
    kills: Kills,
    guard: Option<Guard>,
}

/// The first `SIGINT`, which went to all ranks.
struct Interrupt {
    at: Instant,
    /// When it is told what comes next, if it has not been.
    tell_at: Option<Instant>,
    kill_at: Instant,
}

/// How far the launcher has got with ending the job because a rank failed, or has not ended by an interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    Asked { kill_at: Instant },
    Killed,
}

impl Supervisor {
    fn run(mut self) -> Outcome {
        while !self.running.is_empty() {
            let forgotten = PollFd::new(self.broker.forgotten(), PollFlags::IN);
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN), forgotten];
            fds.extend(self.running.iter().map(|rank| PollFd::new(&rank.handle, PollFlags::IN)));
            if poll_until(&mut fds, self.next_deadline()).is_err() {
                // For want of memory, which may be over soon. The ranks must not be left alone for that.
                std::thread::sleep(STARVED_PAUSE);
            }
            for signal in self.signals.take() {
                self.forward(signal);
            }
            self.note_ended();
            self.answer_failures();
            self.reap_forgotten();
            self.press();
            self.press_after_interrupt();
        }
        self.unreaped.iter().for_each(reap);
        self.ended.sort_by_key(|rank| rank.rank);
        let interrupted = self.killed_by_interrupt;
        // From here on an interrupt ends the launcher: whoever takes the output may have stopped doing so.
        drop((self.signals, self.broker, self.guard));
        let lost = self.pump.take().and_then(Pump::finish);
        if let Some(error) = &lost {
            (self.policy.say)(&format!("not all that the ranks wrote could be passed on: {error}"));
        }
        let output_lost = lost.is_some();
        Outcome { ranks: self.ended, first_failed: self.first_failed, interrupted, output_lost }
    }

    /// When to look again, if nothing happens before.
    fn next_deadline(&self) -> Option<Instant> {
        let asked = match self.ending {
            Ending::Asked { kill_at } => Some(kill_at),
            Ending::No => None,
            Ending::Killed => return self.answer_by,
        };
        let interrupt =
            self.interrupt.as_ref().map(|interrupt| interrupt.tell_at.unwrap_or(interrupt.kill_at));
        asked.into_iter().chain(interrupt).chain(self.answer_by).min()
    }

    fn forward(&mut self, signal: Signal) {
        if signal == Signal::INT {
            if let Some(Interrupt { at, .. }) = self.interrupt {
                if at.elapsed() < SAME {
                    return;
                }
                return self.kill_by_interrupt("interrupted again; killing all ranks");
            }
            let (at, kill_at) = (Instant::now(), self.after_grace());
            let tell_at = kill_at.min(at + NOTICE);
            self.interrupt = Some(Interrupt { at, tell_at: Some(tell_at), kill_at });
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

    /// Takes note of whoever has ended.
    fn note_ended(&mut self) {
        let ended_by_launcher = self.ending != Ending::No;
        for rank in std::mem::take(&mut self.running) {
            let Some(end) = end_of(&rank) else {
                self.running.push(rank);
                continue;
            };
            if let Some(guard) = &mut self.guard {
                // The group is dead by now, and its number may be another's as soon as the rank is reaped.
                guard.forget(rank.process);
            }
            self.broker.ended(rank.rank, rank.pid(), end.how());
            let outcome = RankOutcome { rank: rank.rank, pid: rank.pid(), end, ended_by_launcher };
            self.ended.push(outcome);
            self.unreaped.push(rank);
            if end.is_failure() && !ended_by_launcher {
                self.unanswered.push(outcome);
            }
        }
    }

    /// Says who has failed, in the order in which they left the job, and decides what that means for the
    /// others.
    ///
    /// A rank that fails leaves the job before its process ends, and peers that hear of it may end sooner. So
    /// the launcher waits a moment for one that has left before them and has not ended.
    fn answer_failures(&mut self) {
        if self.unanswered.is_empty() {
            return;
        }
        let departed = self.broker.departed();
        let place = |rank: u32| departed.iter().position(|gone| *gone == rank).unwrap_or(departed.len());
        let first = self.unanswered.iter().map(|failed| place(failed.rank)).min().unwrap_or(0);
        let is_awaited = self.running.iter().any(|rank| place(rank.rank) < first);
        let now = Instant::now();
        if is_awaited && now < *self.answer_by.get_or_insert(now + BLAME) {
            return;
        }
        self.answer_by = None;
        let mut failed = std::mem::take(&mut self.unanswered);
        // Among ranks that went without leave at one time, one that a signal killed is likelier to be why the
        // others did.
        failed.sort_by_key(|failed| (place(failed.rank), !matches!(failed.end, End::Killed(_))));
        failed.into_iter().for_each(|failed| self.answer_failure(failed));
    }

    /// Reaps those that no other rank reaches by number any more. One that is stopped may be about to, for as
    /// long as it is.
    fn reap_forgotten(&mut self) {
        let forgotten = self.broker.forgotten().take();
        for rank in self.unreaped.extract_if(.., |rank| forgotten.contains(&rank.rank)) {
            reap(&rank);
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
        let why = self.why(end).map_or_else(String::new, |why| format!(" ({why})"));
        (self.policy.say)(&format!("rank {rank} (pid {pid}) {end}{why}{consequence}"));
        if !self.policy.keep_going && self.ending == Ending::No {
            self.signal_all(Signal::TERM);
            // One that is stopped would not notice.
            self.signal_all(Signal::CONT);
            self.ending = Ending::Asked { kill_at: self.after_grace() };
        }
    }

    /// The likely meaning of a signal that no program sends itself.
    fn why(&mut self, end: End) -> Option<&'static str> {
        match end {
            End::Killed(KILL) => self.kills.blame(Kills::now()),
            End::Killed(BUS) => Some(
                "it used memory of a file that is shorter by now, or for which there is no room: a file system's, huge \
                 pages', or its control group's",
            ),
            _ => None,
        }
    }

    /// Kills whoever has not ended within the grace period.
    fn press(&mut self) {
        let Ending::Asked { kill_at } = self.ending else { return };
        if self.running.is_empty() || Instant::now() < kill_at {
            return;
        }
        let text = self.still_running_after("SIGTERM");
        (self.policy.say)(&text);
        self.signal_all(Signal::KILL);
        self.ending = Ending::Killed;
    }

    /// Says what comes when an interrupt does not end the ranks, and then kills whoever it has not ended.
    fn press_after_interrupt(&mut self) {
        let Some(interrupt) = &mut self.interrupt else { return };
        let now = Instant::now();
        if self.running.is_empty() || self.ending == Ending::Killed {
            return;
        }
        if now >= interrupt.kill_at {
            let text = self.still_running_after("SIGINT");
            return self.kill_by_interrupt(&text);
        }
        // Where ranks are being ended already, that has been told.
        if interrupt.tell_at.take_if(|at| now >= *at).is_some() && self.ending == Ending::No {
            let grace = self.policy.grace;
            (self.policy.say)(&format!(
                "SIGINT was passed on to the ranks; those that still run {grace:?} after it are killed, all of them at \
                 once by another"
            ));
        }
    }

    fn kill_by_interrupt(&mut self, text: &str) {
        (self.policy.say)(text);
        self.signal_all(Signal::KILL);
        self.ending = Ending::Killed;
        self.killed_by_interrupt = true;
    }

    fn still_running_after(&self, signal: &str) -> String {
        let ranks: Vec<String> = self.running.iter().map(|rank| rank.rank.to_string()).collect();
        format!("still running {:?} after {signal}: rank {}; killing", self.policy.grace, ranks.join(", "))
    }

    fn after_grace(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.policy.grace).unwrap_or(now + DAY)
    }
}

/// How `rank` ended, if it has. Processes that it leaves in its process group are killed, while the unreaped
/// process still keeps the group's number from being used again.
fn end_of(rank: &Rank) -> Option<End> {
    let end = look(rank, WaitIdOptions::NOWAIT)?;
    // Where somebody else has reaped it, the number may be another group's by now.
    if end != End::Unknown {
        rank.signal(Signal::KILL);
    }
    Some(end)
}

/// Lets the kernel use the number of `rank`, which has ended, again.
fn reap(rank: &Rank) {
    look(rank, WaitIdOptions::empty());
}

fn look(rank: &Rank, how: WaitIdOptions) -> Option<End> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | how;
    match waitid(WaitId::PidFd(rank.handle.as_fd()), options) {
        Ok(status) => status.map(told_by),
        Err(rustix::io::Errno::INTR) => None,
        // Not our child any more: it has been reaped by somebody else.
        Err(_) => Some(End::Unknown),
    }
}

fn told_by(status: WaitIdStatus) -> End {
    let exited = status.exit_status().map(End::Exited);
    exited.or(status.terminating_signal().map(End::Killed)).unwrap_or(End::Unknown)
}
