//! Halting all other threads of this process, while a child copies memory that it cannot share.
//!
//! They are halted by a signal, as collectors of garbage do it. A thread that blocks the signal cannot be
//! halted, and one that waits for signals by `sigwait` would take it for one of its own: both go on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

use crate::threads::halting_signal;

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
/// Which threads were asked to; and, as negative numbers, which could not be so far. Only the caller of [`halt`] uses it.
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
    if GATE.load(Ordering::SeqCst) % 2 == 0 {
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
            Thread::Takes | Thread::Refuses if self.looks < LOOKS => {}
            Thread::Takes | Thread::Refuses => {
                self.left_alone += 1;
                return false;
            }
        }
        true
    }
}

/// Sends a thread of this process the signal.
fn tell(tid: i32) -> bool {
    // SAFETY: the numbers are this process's own and a thread's of it, and the signal's handler is ours.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, halting_signal()) == 0 }
}

/// What a thread makes of the signal.
enum Thread {
    /// It has ended, or is just about to.
    Gone,
    /// It runs our handler.
    Takes,
    /// It blocks the signal, or waits for signals and would take this one for the program's.
    Refuses,
}

impl Thread {
    fn of(tid: i32) -> Thread {
        // While a thread waits for signals it seems to block none of them: so it is looked at before and after.
        let waits = waits_for_signals(tid);
        let mut room = [0; 4096];
        let Some(status) = read_of_thread(tid, "status", &mut room) else { return Thread::Gone };
        let line = |name: &[u8]| status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
        if line(b"State:\t").is_none_or(|state| matches!(state.first(), Some(b'Z' | b'X'))) {
            return Thread::Gone;
        }
        let blocked = line(b"SigBlk:\t").and_then(|mask| std::str::from_utf8(mask).ok());
        let blocked = blocked.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
        let blocks = (blocked >> (halting_signal() - 1)) & 1 == 1;
        if waits || blocks || waits_for_signals(tid) { Thread::Refuses } else { Thread::Takes }
    }
}

/// Whether a thread is in a call that takes signals without running handlers.
fn waits_for_signals(tid: i32) -> bool {
    let mut room = [0; 4096];
    let call = read_of_thread(tid, "syscall", &mut room).unwrap_or_default();
    let number = call.split(|byte| *byte == b' ').next().and_then(|word| std::str::from_utf8(word).ok());
    number.and_then(|word| word.parse().ok()) == Some(libc::SYS_rt_sigtimedwait)
}

/// The beginning of a file that the kernel has of a thread.
fn read_of_thread<'a>(tid: i32, name: &str, room: &'a mut [u8; 4096]) -> Option<&'a [u8]> {
    use std::io::Write;
    let mut path = [0; 64];
    // The last byte stays zero, as the kernel wants it.
    write!(&mut path[..63], "/proc/self/task/{tid}/{name}").ok()?;
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

/// Whether the signal leads to our handler: it is installed if nobody has another. It stays, as a signal may
/// still be on its way to a thread that was slow to take it.
fn is_handler_ours() -> bool {
    // SAFETY: the values are of this frame, zeroes are valid for them, and the handler is a function for the
    // program's whole life that does only what a handler may.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(halting_signal(), std::ptr::null(), &raw mut before);
        let ours = on_signal as extern "C" fn(c_int) as usize;
        if before.sa_sigaction == ours {
            return true;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ours;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        let is_free = before.sa_sigaction == libc::SIG_DFL;
        is_free && libc::sigaction(halting_signal(), &raw const action, std::ptr::null_mut()) == 0
    }
}

/// Waits at the gate while it is closed.
extern "C" fn on_signal(_: c_int) {
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
