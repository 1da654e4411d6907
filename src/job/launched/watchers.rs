//! Processes that look at the job from outside: a few, that learn who is in it and may read what the members
//! show.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals};
use rustix::io::Errno;

use super::connection::{Broken, Connection, Handles};
use crate::job::launched::roster::{Roster, Standing};
use crate::job::launched::socket::{Received, receive};
use crate::job::launched::unauthenticated::Applicant;
use crate::job::launched::wire::{Refusal, Reply, Request, decode};

/// No more may watch a job at a time.
const WATCHERS_MAX: usize = 8;
/// The members are told no more often than this that somebody looks, however often that is.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// The size of a job, what has become of one rank, and the answer to one look: more is never on its way at
/// once.
const LETTERS_MAX: usize = 3;

/// The connections of those who watch.
#[derive(Debug, Default)]
pub(in crate::job) struct Watchers {
    watching: BTreeMap<u64, Watcher>,
    next_id: u64,
    /// When the members are to be told that somebody looks, and when they last were.
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
}

#[derive(Debug)]
struct Watcher {
    line: Connection,
    /// Ranks whose standing has changed since this watcher was told.
    untold: BTreeSet<u32>,
    look: Look,
}

/// The fate of a watcher's wish to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    None,
    Wanted,
    /// The members have been told, the watcher has not.
    Passed,
}

impl Watchers {
    /// Lets the applicant, who has shown the secret, watch.
    pub(in crate::job) fn admit(&mut self, applicant: Applicant, roster: &Roster<Handles>) {
        if self.watching.len() >= WATCHERS_MAX {
            return applicant.refuse(Refusal::Watched { watchers: WATCHERS_MAX as u32 });
        }
        tracing::debug!(pid = applicant.pid, "a process watches the job");
        let mut line = Connection::new(applicant.socket, LETTERS_MAX);
        if line.post(&Reply::Watching { size: roster.size() }, None).is_ok() {
            let untold = (0..roster.size()).collect();
            self.watching.insert(self.next_id, Watcher { line, untold, look: Look::None });
            self.next_id += 1;
        }
    }

    pub(in crate::job) fn sockets(&self) -> impl Iterator<Item = (u64, &OwnedFd, PollFlags)> {
        self.watching.iter().map(|(id, watcher)| {
            let room = if watcher.line.wants_room() { PollFlags::OUT } else { PollFlags::empty() };
            (*id, &watcher.line.socket, PollFlags::IN | room)
        })
    }

    /// When there is something to do though nobody says anything.
    pub(in crate::job) fn due_at(&self) -> Option<Instant> {
        self.watching.values().filter_map(|watcher| watcher.line.flush_at()).chain(self.look_at).min()
    }

    /// Reads one message of watcher `id`, which has only one thing to say.
    pub(in crate::job) fn hear(&mut self, id: u64, now: Instant) {
        let Some(watcher) = self.watching.get_mut(&id) else { return };
        let look = match receive(&watcher.line.socket) {
            Received::Nothing => return,
            Received::Datagram { bytes, fds } => {
                fds.is_empty() && matches!(decode(&bytes), Ok(Request::Look))
            }
            Received::TooLong | Received::Closed => false,
        };
        if look {
            watcher.look = Look::Wanted;
            let earliest = self.looked_at.map_or(now, |at| now.max(at + LOOK_PAUSE));
            self.look_at.get_or_insert(earliest);
        } else {
            self.watching.remove(&id);
        }
    }

    /// The standing of `rank` has changed.
    pub(in crate::job) fn note(&mut self, rank: u32) {
        for watcher in self.watching.values_mut() {
            watcher.untold.insert(rank);
        }
    }

    /// Whether the members are to be told now that somebody looks. They then have been.
    pub(in crate::job) fn is_look_due(&mut self, now: Instant) -> bool {
        let due = self.look_at.is_some_and(|at| at <= now);
        if due {
            (self.look_at, self.looked_at) = (None, Some(now));
            for watcher in self.watching.values_mut().filter(|watcher| watcher.look == Look::Wanted) {
                watcher.look = Look::Passed;
            }
        }
        due
    }

    /// Tells every watcher what it does not know yet, as far as it reads.
    pub(in crate::job) fn tell(&mut self, roster: &Roster<Handles>, now: Instant) {
        self.watching.retain(|_, watcher| watcher.tell(roster, now).is_ok());
    }
}

impl Watcher {
    /// One message waits at most, so that what a watcher does not read costs one file descriptor at most.
    fn tell(&mut self, roster: &Roster<Handles>, now: Instant) -> Result<(), Broken> {
        self.line.flush(now)?;
        while self.line.is_empty() {
            let Some(rank) = self.untold.pop_first() else { break };
            match roster.standing(rank) {
                Standing::Open => {}
                Standing::Over(how) => self.line.post(&Reply::Lost { rank, how }, None)?,
                Standing::Joined { pid, handles } => {
                    let page: Option<Handles> = match for_reading(handles) {
                        Ok(page) => Some([page].into()),
                        Err(error) => {
                            tracing::warn!(rank, pid, "a watcher does not see what this rank shows: {error}");
                            None
                        }
                    };
                    self.line.post(&Reply::Peer { rank, pid }, page)?;
                }
            }
        }
        if self.line.is_empty() && self.look == Look::Passed {
            self.look = Look::None;
            self.line.post(&Reply::Look, None)?;
        }
        Ok(())
    }
}

/// Why a watcher gets no page of a rank.
#[derive(Debug, thiserror::Error)]
enum NoPage {
    #[error("it handed over no descriptor")]
    Missing,
    /// Opening something else might wait.
    #[error("what it handed over is no sealed segment")]
    NoSegment,
    /// There are no descriptors, or no `/proc`.
    #[error("its control segment cannot be opened for reading: {0}")]
    Open(#[from] Errno),
}

/// The control segment among `handles` once more, for reading only.
fn for_reading(handles: &Handles) -> Result<OwnedFd, NoPage> {
    let control = handles.first().ok_or(NoPage::Missing)?;
    if !fcntl_get_seals(control).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(NoPage::NoSegment);
    }
    let path = format!("/proc/self/fd/{}", control.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
