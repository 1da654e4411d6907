//! Up to which removal of pages every thread has been seen elsewhere.
//!
//! A thread that removes pages is in one of a few system calls until they are gone. So a thread that is seen
//! to sleep in another call after a removal was announced is not in that removal: it never was, or has
//! returned. When this is so of all threads, the removal is over. Each need be seen but once, in its own
//! time.
//!
//! Nothing else tells the end of a removal. A page that was there and is not was perhaps taken by another
//! thread, or by the kernel. Where nothing is mapped, something else may be mapped before the removal goes
//! on, and be emptied by it.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::host::kernel_release;

/// Bytes for the names of all threads, which must be read by one call: some 2,000 of them.
const NAMES: usize = 64 << 10;

/// From one look to the next passes so many times the processor time of the first: where that showed that all
/// removals are over, and where it was in vain.
const PAUSE: u32 = 5;
const PAUSE_IN_VAIN: u32 = 20;

/// Calls in which threads sleep, and which remove no pages. The numbers are this architecture's own.
const ELSEWHERE: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
];

/// When each thread of this process was last seen elsewhere. A child that inherits this has other threads.
pub(super) struct Threads {
    folder: OwnedFd,
    /// The last removal that had been announced when a thread was last seen elsewhere.
    seen: HashMap<u32, u64>,
    /// When it may be looked again.
    next: Option<Instant>,
    /// Whether they are all that can remove pages for this process.
    are_all: bool,
}

impl Threads {
    /// # Errors
    /// Where there is no `/proc`, or it does not tell what threads are in.
    pub(super) fn open() -> std::io::Result<Threads> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/task", flags, Mode::empty())?;
        let are_all = workers_are_threads(&kernel_release());
        let threads = Threads { folder, seen: HashMap::new(), next: None, are_all };
        // Its absence must not be taken for the end of the thread that it is about.
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        threads.told(this, "syscall", &mut [0; 256])?;
        Ok(threads)
    }

    /// The last removal that is over, as all before it, or 0. `announced`: how many have been; `never`: a
    /// thread that removes nothing. The caller is in no removal either. To look takes some ten microseconds a
    /// thread; who asks again too soon is told 0.
    pub(super) fn over(&mut self, announced: u64, never: u32) -> u64 {
        let now = Instant::now();
        if !self.are_all || self.next.is_some_and(|next| now < next) {
            return 0;
        }
        let start = processor_time();
        let over = self.look(announced, never).unwrap_or(0);
        let pause = if over < announced { PAUSE_IN_VAIN } else { PAUSE };
        self.next = Some(now + pause * processor_time().saturating_sub(start));
        over
    }

    fn look(&mut self, announced: u64, never: u32) -> Option<u64> {
        let threads = self.all()?;
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let before = std::mem::take(&mut self.seen);
        for thread in threads {
            let last = before.get(&thread).copied().unwrap_or(0);
            let is_elsewhere =
                thread == this || thread == never || last >= announced || self.is_elsewhere(thread);
            self.seen.insert(thread, if is_elsewhere { announced } else { last });
        }
        self.seen.values().min().copied()
    }

    /// All threads; `None` where one may be missing.
    fn all(&self) -> Option<Vec<u32>> {
        let links = rustix::fs::stat("/proc/self/task").ok()?.st_nlink as usize;
        let mut buffer = vec![MaybeUninit::uninit(); NAMES];
        rustix::fs::seek(&self.folder, rustix::fs::SeekFrom::Start(0)).ok()?;
        let mut entries = RawDir::new(&self.folder, &mut buffer);
        let mut threads = Vec::with_capacity(links);
        while let Some(entry) = entries.next() {
            threads.extend(entry.ok()?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
            // A second call may leave out a thread that comes after one that has ended.
            if entries.is_buffer_empty() {
                break;
            }
        }
        // The kernel stops listing at a thread that ends meanwhile. It then names fewer threads than it had
        // counted before, as new threads come last. (Two of the links are the folder's own.)
        (threads.len() + 2 >= links).then_some(threads)
    }

    /// Whether the thread sleeps in a call that removes no pages, or has ended.
    fn is_elsewhere(&self, thread: u32) -> bool {
        let (mut text, mut stat) = ([0; 256], [0; 256]);
        match self.told(thread, "syscall", &mut text) {
            // The first thread stays in the list when it has ended before the others.
            Ok(count) if text[..count] == *IN_NO_CALL => {
                self.told(thread, "stat", &mut stat).is_ok_and(|count| has_ended(&stat[..count]))
            }
            Ok(count) => sleeps_elsewhere(&text[..count]),
            Err(error) => error == Errno::NOENT || error == Errno::SRCH,
        }
    }

    /// Reads what the kernel tells of a thread.
    fn told(&self, thread: u32, what: &str, text: &mut [u8]) -> Result<usize, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, format!("{thread}/{what}"), flags, Mode::empty())?;
        rustix::io::read(file, text)
    }
}

/// How long this thread has had a processor. By the C library: rustix looks for the kernel's own page of
/// code, which valgrind hides.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which is borrowed here for as long as the call takes.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(rc, 0, "each thread has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether io_uring's workers are threads of the process that they work for: since Linux 5.12. Before, they
/// are in no list of its threads.
fn workers_are_threads(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (5, 12))
}

/// In `syscall` the kernel writes this of a thread that has ended.
const IN_NO_CALL: &[u8] = b"-1 0x0 0x0\n";

/// Whether this, which the kernel says of a thread in `stat`, is of one that has ended: after its name, which
/// may have any letters, comes its state.
fn has_ended(stat: &[u8]) -> bool {
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    name_end.and_then(|at| stat.get(at + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// The kernel's words on a thread: `running`, or the number of its call in decimal, six arguments, the stack
/// pointer and the program counter.
fn sleeps_elsewhere(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [call, _, _, _, _, _, _, stack, _] = words[..] else { return false };
    // A thread of the kernel's that works for this process has the call of whoever started it, and no stack.
    let has_stack = stack.trim_start_matches("0x").bytes().any(|digit| digit != b'0');
    has_stack && call.parse::<libc::c_long>().is_ok_and(|call| ELSEWHERE.contains(&call))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// In a process of its own, as the threads of other tests do what they want.
    #[test]
    fn a_removal_is_over_when_each_thread_has_slept_elsewhere_since() {
        const ALONE: &str = "STANDPIPE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name =
                "monitor::threads::tests::a_removal_is_over_when_each_thread_has_slept_elsewhere_since";
            let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
            child.args(["--exact", name, "--test-threads", "1"]).env(ALONE, "");
            let output = child.output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains(" 1 passed"), "{said}");
            return;
        }
        let mut threads = Threads::open().expect("there is a /proc");
        let (stop, is_running) = (AtomicBool::new(false), AtomicBool::new(false));
        let (wake, woken) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || woken.recv());
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    is_running.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_secs(1));
            });
            while !is_running.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let mut look = |announced| {
                threads.next = None;
                threads.over(announced, 0)
            };
            assert!((0..20).all(|_| look(7) == 0), "one of them runs");
            stop.store(true, Ordering::Relaxed);
            let start = Instant::now();
            while look(7) != 7 {
                assert!(start.elapsed() < Duration::from_secs(1), "all sleep");
                std::thread::yield_now();
            }
            drop(wake);
        });
    }

    #[test]
    fn kernels_whose_workers_are_in_no_list_are_known_by_their_release() {
        for (release, are) in [("5.12.0", true), ("6.1.0-18-amd64", true), ("10.0", true), ("5.11.22", false)]
        {
            assert_eq!(workers_are_threads(release), are, "{release}");
        }
        assert!(["5.7", "4.18.0-500.el8", "", "x.y"].iter().all(|release| !workers_are_threads(release)));
    }

    /// In a child, whose first thread ends before the others.
    #[test]
    fn a_first_thread_that_has_ended_ends_no_doubt_for_good_as_the_others_go_on() {
        // SAFETY: the child uses what survives a fork: the C library's allocator, and threads of its own.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a child");
        if child == 0 {
            let look = || {
                let (mut threads, start) = (Threads::open().expect("there is a /proc"), Instant::now());
                let mut is_over = || {
                    threads.next = None;
                    threads.over(7, 0) == 7
                };
                while !is_over() {
                    // SAFETY: ends this process at once, and touches no memory of it.
                    let give_up = || unsafe { libc::_exit(1) };
                    if start.elapsed() > Duration::from_secs(5) {
                        give_up();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // SAFETY: ends this process at once, by a number alone, and touches no memory of it.
                unsafe { libc::_exit(0) }
            };
            std::thread::spawn(look);
            // SAFETY: ends this thread alone, and nobody joins it or uses its stack.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let mut status = 0;
        // SAFETY: our own child, which ends by itself within seconds, and the kernel writes one live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the first thread's end is seen");
    }

    #[test]
    fn a_first_thread_that_has_ended_is_known_by_its_state() {
        assert!(has_ended(b"77 (a) b) Z 1 77 77 0") && has_ended(b"77 (x) X 1"));
        assert!(!has_ended(b"77 (Z) S 1 77") && !has_ended(b"77 (Z)") && !has_ended(b""));
    }

    #[test]
    fn what_the_kernel_says_is_understood() {
        let says = |call: i64, stack: &str| format!("{call} 0x0 0x80 0x0 0x0 0x0 0x0 {stack} 0x7f9f1b0\n");
        let sleeps = |call, stack| sleeps_elsewhere(says(call, stack).as_bytes());
        assert!(sleeps(libc::SYS_futex, "0x7ffc7a913b6f0") && sleeps(libc::SYS_nanosleep, "0x10"));
        for call in
            [libc::SYS_madvise, libc::SYS_process_madvise, libc::SYS_io_uring_enter, libc::SYS_clone, -1]
        {
            assert!(!sleeps(call, "0x7ffc7a913b6f0"), "{call}");
        }
        assert!(!sleeps(libc::SYS_futex, "0x0"), "a thread of the kernel's");
        for text in ["running\n", "-1 0x7ffc7a913b6f0 0x7f9f1b0\n", "", "202\n", "202 0x0 0x80"] {
            assert!(!sleeps_elsewhere(text.as_bytes()), "{text}");
        }
    }
}
