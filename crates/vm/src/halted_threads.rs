//! Halting all other threads of this process, while a child copies memory that it cannot share.
//!
//! They are halted by a signal, as collectors of garbage do it. It is the one that glibc keeps to itself for
//! `setuid`, which also has to reach all threads: no program can block it by glibc, wait for it or handle it.
//! So threads that block all signals halt, too. A value that comes along tells ours from glibc's, whose
//! handler gets its own. A thread that blocks it by a bare system call goes on.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

/// `SIGSETXID`, as glibc names it.
const SIGNAL: c_int = 33;

/// Tells our signals from others of that number.
const VALUE: usize = 0x5374_616e_6470_6970;

/// How long threads have to come to a halt: far longer than a busy machine takes to run them.
const ARRIVE_WITHIN: Duration = Duration::from_secs(5);

/// How long a thread stays halted for a caller that does not come on: it may wait for a lock of the system's
/// library that the halted thread has.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a thread is looked at that blocks the signal.
const LOOKS: u32 = 5;

/// More threads than these go on.
const HALTED_MAX: usize = 4096;

/// Odd while threads are to halt.
static GATE: AtomicU32 = AtomicU32::new(0);
/// How many threads have halted at the gate.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
/// The next place of [`HALTED`].
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Which threads have.
static HALTED: [AtomicI32; HALTED_MAX] = [const { AtomicI32::new(0) }; HALTED_MAX];
/// Which threads were asked to; and, as negative numbers, which could not be so far. Only [`halt`] uses it.
static SEEN: [AtomicI32; HALTED_MAX] = [const { AtomicI32::new(0) }; HALTED_MAX];
/// The caller is not in code of the system's library, where it may wait for a halted thread.
static ATTENDED: AtomicBool = AtomicBool::new(false);
/// Threads that lost their patience.
static IMPATIENT: AtomicU32 = AtomicU32::new(0);

/// Whether this process has other threads. Allocates nothing.
pub(crate) fn are_there() -> bool {
    let mut count = 0;
    for_each_other(|_| count += 1);
    count > 0
}

/// Halts all other threads, until [`go_on`], and says how many it could not halt. One thread at a time, which
/// has to call [`attend`] within [`PATIENCE`]. It must not allocate meanwhile: a halted thread may be in the
/// middle of that.
pub(crate) fn halt() -> u32 {
    if !is_handler_ours() {
        let mut count = 0;
        for_each_other(|_| count += 1);
        return count;
    }
    HALTED.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    for count in [&ARRIVED, &NEXT, &IMPATIENT] {
        count.store(0, Ordering::Relaxed);
    }
    ATTENDED.store(true, Ordering::Relaxed);
    GATE.fetch_add(1, Ordering::SeqCst);
    let until = Instant::now() + ARRIVE_WITHIN;
    let mut seen = Seen::default();
    loop {
        let arrived = ARRIVED.load(Ordering::Acquire);
        let awaited = seen.look();
        if awaited == 0 || Instant::now() >= until {
            ATTENDED.store(false, Ordering::SeqCst);
            return seen.left_alone + awaited;
        }
        sleep(&ARRIVED, arrived, Duration::from_millis(2));
    }
}

/// Says that the caller of [`halt`] will see to it that the threads go on: they stay halted till then.
pub(crate) fn attend() {
    ATTENDED.store(true, Ordering::SeqCst);
}

/// Lets the halted threads go on, and says how many had done so before.
pub(crate) fn go_on() -> u32 {
    if GATE.load(Ordering::SeqCst).is_multiple_of(2) {
        return 0;
    }
    GATE.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(&GATE, Flags::PRIVATE, i32::MAX as u32);
    IMPATIENT.load(Ordering::SeqCst)
}

/// The threads that [`halt`] has found so far.
#[derive(Default)]
struct Seen {
    count: usize,
    looks: u32,
    left_alone: u32,
}

impl Seen {
    /// Asks all threads to halt that were not asked before, and says for how many it is to wait.
    fn look(&mut self) -> u32 {
        let mut awaited = 0;
        self.looks += 1;
        self.left_alone = 0;
        for_each_other(|tid| {
            let arrived = NEXT.load(Ordering::Acquire) as usize;
            let halted = &HALTED[..arrived.min(HALTED_MAX)];
            if !halted.iter().any(|place| place.load(Ordering::Acquire) == tid) {
                awaited += u32::from(self.ask(tid));
            }
        });
        awaited
    }

    /// Asks a thread to halt if it was not asked before, and says whether to wait for it.
    fn ask(&mut self, tid: i32) -> bool {
        let of_thread = |place: &&AtomicI32| place.load(Ordering::Relaxed).abs() == tid;
        let place = SEEN[..self.count].iter().find(of_thread).or_else(|| {
            let place = SEEN.get(self.count)?;
            self.count += 1;
            place.store(-tid, Ordering::Relaxed);
            Some(place)
        });
        let Some(place) = place else {
            self.left_alone += 1;
            return false;
        };
        if place.load(Ordering::Relaxed) == tid {
            return true;
        }
        match Thread::of(tid) {
            Thread::Gone => return false,
            Thread::Takes if tell(tid) => place.store(tid, Ordering::Relaxed),
            // One that has just begun, or makes another one, takes signals again soon.
            Thread::Takes | Thread::Blocks if self.looks < LOOKS => {}
            Thread::Takes | Thread::Blocks => {
                self.left_alone += 1;
                return false;
            }
        }
        true
    }
}

/// A signal's particulars, as the kernel takes them from a process for a thread of its own.
#[repr(C)]
struct Particulars {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: c_int,
    uid: c_int,
    value: usize,
    rest: [u64; 12],
}

/// Sends a thread of this process the signal.
fn tell(tid: i32) -> bool {
    let code = libc::SI_QUEUE;
    // SAFETY: it asks for this process's own number, and cannot fail.
    let pid = unsafe { libc::getpid() };
    let particulars =
        Particulars { signal: SIGNAL, errno: 0, code, padding: 0, pid, uid: 0, value: VALUE, rest: [0; 12] };
    // SAFETY: the numbers are this process's and a thread's of it, the kernel reads the 128 bytes that it has
    // for this, and the handler is ours.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, SIGNAL, &raw const particulars) == 0 }
}

/// How a thread takes the signal.
enum Thread {
    /// It has ended, or is just about to.
    Gone,
    /// It runs our handler.
    Takes,
    /// It blocks the signal.
    Blocks,
}

impl Thread {
    fn of(tid: i32) -> Thread {
        let mut room = [0; 4096];
        let Some(status) = read_status(tid, &mut room) else { return Thread::Gone };
        let line = |name: &[u8]| status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
        if line(b"State:\t").is_none_or(|state| matches!(state.first(), Some(b'Z' | b'X'))) {
            return Thread::Gone;
        }
        let blocked = line(b"SigBlk:\t").and_then(|mask| std::str::from_utf8(mask).ok());
        let blocked = blocked.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        if (blocked >> (SIGNAL - 1)) & 1 == 1 { Thread::Blocks } else { Thread::Takes }
    }
}

/// The beginning of what the kernel says of a thread.
fn read_status(tid: i32, room: &mut [u8; 4096]) -> Option<&[u8]> {
    use std::io::Write;
    let mut path = [0; 64];
    // The last byte stays zero, as the kernel wants it.
    write!(&mut path[..63], "/proc/self/task/{tid}/status").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let fd = open(path, OFlags::RDONLY)?;
    let len = rustix::io::read(&fd, &mut room[..]).ok()?;
    Some(&room[..len])
}

fn open(path: &std::ffi::CStr, flags: OFlags) -> Option<OwnedFd> {
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())).ok()
}

/// Calls `f` with the number of each other thread of this process.
fn for_each_other(mut f: impl FnMut(i32)) {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let Some(folder) = open(c"/proc/self/task", OFlags::RDONLY | OFlags::DIRECTORY) else { return };
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder.as_fd(), &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if let Some(tid) = number.filter(|tid| *tid != own) {
            f(tid);
        }
    }
}

/// The kernel's record of what a signal does.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

type Handler = extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void);

/// The handler that was there before ours: glibc's, from its first thread on.
static GLIBCS: AtomicUsize = AtomicUsize::new(0);

/// Whether the signal leads to our handler: it is installed before glibc's. It stays, as a signal may still
/// be on its way to a thread that was slow to take it.
fn is_handler_ours() -> bool {
    let ours = on_signal as Handler as usize;
    let mut before = Action::default();
    let swap = |new: *const Action, old: *mut Action| {
        // SAFETY: the kernel reads and writes values of its own form, and the mask has 8 bytes. A handler of
        // ours is a function for the program's whole life, and does only what a handler may.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGNAL, new, old, 8) == 0 }
    };
    if !swap(std::ptr::null(), &raw mut before) || before.handler == ours {
        return before.handler == ours;
    }
    if before.handler <= libc::SIG_IGN || before.flags & libc::SA_SIGINFO as u64 == 0 {
        // Threads that glibc knows nothing of. Only its own action says how handlers return.
        return false;
    }
    GLIBCS.store(before.handler, Ordering::SeqCst);
    let new = Action { handler: ours, mask: u64::MAX, ..before };
    swap(&raw const new, std::ptr::null_mut())
}

/// Waits at the gate while it is closed, or hands a signal on that is none of ours.
extern "C" fn on_signal(signal: c_int, info: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives each handler of this kind the signal's particulars. Of every signal that a
    // process has sent they have a value, or other bytes in its place.
    let is_ours =
        unsafe { (*info).si_code == libc::SI_QUEUE && (*info).si_value().sival_ptr.addr() == VALUE };
    if !is_ours {
        // SAFETY: it was in the kernel's action of this signal, as a handler of this kind.
        let glibcs = unsafe { std::mem::transmute::<usize, Handler>(GLIBCS.load(Ordering::SeqCst)) };
        return glibcs(signal, info, context);
    }
    let gate = GATE.load(Ordering::SeqCst);
    if gate.is_multiple_of(2) {
        // The caller has given this thread up.
        return;
    }
    // SAFETY: it gives the address of this thread's own number of its last error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: that address is valid for as long as the thread lives.
    let before = unsafe { errno.read() };
    wait_at(gate);
    // SAFETY: as above; what was interrupted finds its own number.
    unsafe { errno.write(before) };
}

fn wait_at(gate: u32) {
    let place = NEXT.fetch_add(1, Ordering::AcqRel) as usize;
    if let Some(place) = HALTED.get(place) {
        place.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }
    ARRIVED.fetch_add(1, Ordering::AcqRel);
    let _ = futex::wake(&ARRIVED, Flags::PRIVATE, 1);
    let mut unattended_since = None;
    while GATE.load(Ordering::SeqCst) == gate {
        sleep(&GATE, gate, Duration::from_secs(1));
        if ATTENDED.load(Ordering::SeqCst) {
            unattended_since = None;
        } else if unattended_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            IMPATIENT.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

/// Sleeps while a word has this value, for so long at most.
fn sleep(word: &AtomicU32, value: u32, within: Duration) {
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    match futex::wait(word, Flags::PRIVATE, value, Some(&within)) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        Err(errno) => unreachable!("a word of ours is one to sleep on: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_other_thread_does_anything_between_halt_and_go_on() {
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let work = |at: usize| {
            let (counts, stopped) = (Arc::clone(&counts), Arc::clone(&stopped));
            let count = move || {
                while !stopped.load(Ordering::Relaxed) {
                    counts[at].fetch_add(1, Ordering::Relaxed);
                }
            };
            // Also threads of ours, which take no signals.
            if at == 0 {
                std::thread::spawn(count)
            } else {
                crate::threads::spawn("test", count).expect("a thread")
            }
        };
        let threads: Vec<_> = (0..3).map(work).collect();
        let seen = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let all_go_on_from = |before: [u64; 3]| {
            while seen().iter().zip(before).any(|(now, before)| *now <= before) {
                std::thread::yield_now();
            }
        };
        for _ in 0..20 {
            all_go_on_from(seen());
            let left = halt();
            let before = seen();
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            let after = seen();
            let impatient = go_on();
            assert_eq!((left, impatient, before), (0, 0, after));
        }
        all_go_on_from(seen());
        stopped.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
