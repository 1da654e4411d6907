//! How a near peer's private memory is reached without the peer: by its process's number, for as long as that
//! is its own.
//!
//! The kernel gives a number away once its process has ended and been reaped. Before that it marks a word of
//! the peer's control segment (`vm::robust`), at which whoever uses the number looks first. Between that look
//! and the copy the number may still be given away, while this process is stopped. So whoever uses it says
//! so, and a launcher of ours reaps nobody whom a member is about to reach ([`Reach::when_unreached`]). Where
//! others reap, a descriptor of the peer's memory serves for puts (`STANDPIPE_ATTACH=strict`), and a look
//! after the copy tells of what a get has read.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use engine::{MemId, PathReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vm::cma::{self, CmaError};
use vm::proc_mem::ProcMem;
use vm::robust::EndWord;

use super::control::Identity;
use crate::base::lock::lock;

/// How private memory of near peers may be reached without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attach {
    /// By cross-memory attach, which names a peer by its process's number.
    #[default]
    Auto,
    /// Likewise, but puts by a descriptor.
    Strict,
    /// Not at all.
    Never,
}

/// How one peer's private memory is reached.
pub(crate) struct Reach {
    pub(crate) pid: u32,
    /// Whether cross-memory attach reached it at first contact, and if not, why.
    attach: Result<(), PathReason>,
    /// Whether it lets peers attach all of its memory, and not what it grants alone.
    exposes_all: bool,
    /// Why it does not any more: either process may have given up its rights since.
    attach_lost: OnceLock<PathReason>,
    /// The memory by a descriptor, where puts are to go by that.
    memory: Option<ProcMem>,
    /// Where the process was found when it was met: its nonce, and when it started, if the system said so.
    nonce: (u64, u64),
    started: Option<u64>,
    /// The word that the kernel marks when the process ends.
    end: EndWord,
    lost: AtomicBool,
    /// Threads of this process that are using the number.
    users: AtomicU32,
    /// To be called once the peer is lost and no thread uses its number any more.
    when_unused: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Reach {
    /// Of a peer that is not reached so, as `why` says.
    pub(crate) fn none(pid: u32, end: EndWord, why: PathReason) -> Reach {
        Reach {
            pid,
            attach: Err(why),
            exposes_all: true,
            attach_lost: OnceLock::new(),
            memory: None,
            nonce: (0, 0),
            started: started_at(pid).map(|(started, _)| started),
            end,
            lost: AtomicBool::new(false),
            users: AtomicU32::new(0),
            when_unused: Mutex::default(),
        }
    }

    /// Of this process itself, whose number is its own.
    pub(crate) fn of_oneself(identity: &Identity, end: EndWord, by: Attach) -> Reach {
        let pid = std::process::id();
        Reach { attach: probe(pid, identity, by), ..Reach::none(pid, end, PathReason::Configured) }
    }

    /// Of the near process `pid`, which says this of itself, and whose end that word tells of.
    pub(crate) fn of(pid: u32, identity: &Identity, end: EndWord, by: Attach) -> Reach {
        // Nobody could tell when its number is another's.
        if !end.is_marked_at_end() {
            return Reach::none(pid, end, PathReason::CallForbidden);
        }
        let memory = |()| match by {
            Attach::Strict => memory_of(pid, identity).map(Some),
            Attach::Auto | Attach::Never => Ok(None),
        };
        match probe(pid, identity, by).and_then(memory) {
            Ok(memory) => {
                let exposes_all = !identity.ranges_only;
                let nonce = (identity.nonce_addr, identity.nonce);
                Reach {
                    attach: Ok(()),
                    exposes_all,
                    nonce,
                    memory,
                    ..Reach::none(pid, end, PathReason::Configured)
                }
            }
            Err(why) => Reach::none(pid, end, why),
        }
    }

    /// Whether cross-memory attach reaches the memory, and if not, why.
    #[inline]
    pub(crate) fn attach(&self) -> Result<(), PathReason> {
        // It looks at what peers may reach, which it cannot where they attach.
        if self.exposes_all { self.attach_granted() } else { Err(PathReason::Configured) }
    }

    /// The same of memory that it has granted.
    #[inline]
    fn attach_granted(&self) -> Result<(), PathReason> {
        self.attach.and_then(|()| self.attach_lost.get().map_or(Ok(()), |why| Err(*why)))
    }

    /// Whether cross-memory attach reaches that memory, and if not, why.
    #[inline]
    pub(crate) fn attach_to(&self, memory: MemId) -> Result<(), PathReason> {
        match memory {
            MemId::Grant(_) => self.attach_granted(),
            MemId::Space | MemId::Heap | MemId::Control => self.attach(),
        }
    }

    /// Takes note that the kernel does not let us attach any more, saying `errno`. Returns why.
    #[cold]
    pub(crate) fn lose_attach(&self, errno: Errno) -> PathReason {
        *self.attach_lost.get_or_init(|| why_denied(errno))
    }

    /// The memory by a descriptor, if puts are to go by that.
    #[inline(always)]
    pub(crate) fn memory(&self) -> Option<&ProcMem> {
        self.memory.as_ref()
    }

    /// Whether the process has ended, or its node is closed: its number may be another process's then. One
    /// load of memory.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.end.has_ended()
    }

    /// Whether no thread of the process can be in a copy any more that it began. A mark of its end says less:
    /// another of its threads than the one that holds the word may still be inside the kernel's copy. So its
    /// number must be nobody's or another's, or all of its threads gone, or another program in its place, for
    /// which the kernel ends all other threads first.
    #[cold]
    pub(crate) fn is_gone(&self) -> bool {
        // The peer itself can write the mark; that it is lost this process was told otherwise. A number that
        // was never its own here says nothing.
        if !self.has_ended() && !self.is_lost() || self.attach == Err(PathReason::PidMismatch) {
            return false;
        }
        let Some((started, state)) = started_at(self.pid) else { return has_no_process(self.pid) };
        if self.started.is_some_and(|first| first != started) || have_all_threads_ended(self.pid) {
            return true;
        }
        let (addr, nonce) = self.nonce;
        let probe = || cma::probe(self.pid, addr, nonce);
        let is_elsewhere = || matches!(probe(), Err(CmaError::Stranger | CmaError::Fault { .. }));
        state != b'Z' && addr != 0 && is_elsewhere()
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// From now on nobody begins to use the number.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Begins to use the number, unless the process has ended or is lost. The number may become another
    /// process's after this: so what was read since is its own only if it [has not ended](Reach::has_ended)
    /// by then.
    #[inline]
    pub(crate) fn by_number(&self) -> Option<ByNumber<'_>> {
        self.users.fetch_add(1, Ordering::SeqCst);
        let use_of = ByNumber(self);
        (!self.is_lost() && !self.has_ended()).then_some(use_of)
    }

    /// Calls `tell` once nobody uses the number of this peer, which is lost, any more. Either this thread
    /// finds that nobody does, or the last one that does finds the peer lost: each does its own part first.
    pub(crate) fn when_unreached(&self, tell: impl FnOnce() + Send + 'static) {
        *lock(&self.when_unused) = Some(Box::new(tell));
        if self.users.load(Ordering::SeqCst) == 0 {
            self.tell_unused();
        }
    }

    #[cold]
    fn tell_unused(&self) {
        let tell = lock(&self.when_unused).take();
        if let Some(tell) = tell {
            tell();
        }
    }
}

/// A peer's number that this thread uses, until this is dropped.
pub(crate) struct ByNumber<'a>(&'a Reach);

impl Drop for ByNumber<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_lost() {
            self.0.tell_unused();
        }
    }
}

/// When a process started, in the kernel's ticks, and its state's letter; `None` where the system does not
/// say so.
fn started_at(pid: u32) -> Option<(u64, u8)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets, and may have any letters.
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&[u8]> = stat[behind..].split(|byte| *byte == b' ').skip(1).collect();
    let started = std::str::from_utf8(fields.get(19)?).ok()?.parse().ok()?;
    Some((started, *fields.first()?.first()?))
}

/// Whether the number is no process's at all.
fn has_no_process(pid: u32) -> bool {
    let number = Pid::from_raw(pid as i32);
    number.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

/// Whether all threads of a process have ended, which nobody has reaped.
fn have_all_threads_ended(pid: u32) -> bool {
    let Some(pid) = Pid::from_raw(pid as i32) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let mut fds = [PollFd::new(&process, PollFlags::IN)];
            matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
        }
        Err(error) => error == Errno::SRCH,
    }
}

/// Whether cross-memory attach reaches the process that says this of itself: reads its nonce.
fn probe(pid: u32, identity: &Identity, by: Attach) -> Result<(), PathReason> {
    if by == Attach::Never {
        return Err(PathReason::Configured);
    }
    cma::probe(pid, identity.nonce_addr, identity.nonce).map_err(why_not)
}

/// The memory of the process that says this of itself, by a descriptor.
fn memory_of(pid: u32, identity: &Identity) -> Result<ProcMem, PathReason> {
    ProcMem::open(pid, identity.nonce_addr, identity.nonce).map_err(why_not)
}

/// Why a process's memory is not reached, as the first try has ended with `error`.
fn why_not(error: CmaError) -> PathReason {
    match error {
        CmaError::Denied { errno } => why_denied(errno),
        // There are no file descriptors for it.
        CmaError::Os { errno } => {
            tracing::warn!(%errno, "a peer's memory cannot be opened: its private memory is reached by messages");
            PathReason::NoRoom
        }
        _ => PathReason::PidMismatch,
    }
}

/// Why the kernel refuses with `errno`.
#[cold]
fn why_denied(errno: Errno) -> PathReason {
    if errno != Errno::PERM {
        return PathReason::CallForbidden;
    }
    // One's own memory needs no rights: where even that is refused, a filter forbids the call itself.
    let own = Box::new(u64::from(std::process::id()));
    match cma::probe(std::process::id(), std::ptr::from_ref(&*own).expose_provenance() as u64, *own) {
        Ok(()) => PathReason::PtraceDenied,
        Err(_) => PathReason::CallForbidden,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use vm::{Segment, Words};

    fn reach() -> (Reach, Words) {
        let segment = Segment::create("reach-test", 4096).expect("a page");
        let end = EndWord::at(segment.memory(), 0);
        (Reach::none(1, end, PathReason::Configured), segment.memory().words(0, 1).expect("inside"))
    }

    #[test]
    fn a_number_is_not_used_once_its_process_has_ended_or_is_lost() {
        let (reach, end) = reach();
        assert!(reach.by_number().is_some());
        end[0].store(1 << 30, Ordering::Relaxed);
        assert!(reach.by_number().is_none() && reach.has_ended());
        end[0].store(7, Ordering::Relaxed);
        reach.lose();
        assert!(reach.by_number().is_none());
        assert_eq!(reach.users.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn that_nobody_uses_it_is_told_once_by_the_last_who_did() {
        let ((reach, _), told) = (reach(), Arc::new(AtomicU32::new(0)));
        let (first, second) = (reach.by_number(), reach.by_number());
        assert!(first.is_some() && second.is_some());
        reach.lose();
        let tell = Arc::clone(&told);
        reach.when_unreached(move || _ = tell.fetch_add(1, Ordering::Relaxed));
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let tell = Arc::clone(&told);
        reach.when_unreached(move || _ = tell.fetch_add(10, Ordering::Relaxed));
        assert_eq!(told.load(Ordering::Relaxed), 11, "nobody does: at once");
    }
}
