//! A child made by `fork` has all memory and all descriptors of its parent, and none of its threads.
//!
//! None of it is the child's to use: rings and locks know one process, and descriptors that stay open in the
//! child keep a dead parent's ports taken and its connections up. So each child is told apart by its
//! [`generation`], finds its parent's [tables](OnceTable) empty, and [`Alone`] keeps descriptors from it. The
//! kernel itself sees to the first two. The system's library sees to the third, so that a child of a raw
//! `clone` shares descriptors.

mod once_table;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

pub use once_table::OnceTable;

/// The kernel wipes this in each child, also of a raw `clone`: it is alone on its page, whatever their size.
#[repr(C, align(65536))]
struct Wiped {
    /// The generation of this process; 0 before it is asked for.
    generation: AtomicU32,
}

static WIPED: Wiped = Wiped { generation: AtomicU32::new(0) };

/// The last generation that was given in this line of processes.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Descriptors that children do not share; [`NOBODYS`] where a place is free.
static ALONE: [AtomicI32; ALONE_MAX] = [const { AtomicI32::new(NOBODYS) }; ALONE_MAX];

/// Beyond these, children share descriptors as they ever did.
const ALONE_MAX: usize = 4096;
const NOBODYS: i32 = -1;

/// Which process this is in its line of forks: more than 0, and more for a child than for its parent. Memory
/// that was made in another generation is a copy of the parent's. Any thread.
#[inline]
pub fn generation() -> u32 {
    match WIPED.generation.load(Ordering::Relaxed) {
        0 => begin(),
        generation => generation,
    }
}

/// The [generation], for whoever has asked for it before: 0 in a child that has not.
#[inline]
pub fn known_generation() -> u32 {
    WIPED.generation.load(Ordering::Relaxed)
}

#[cold]
fn begin() -> u32 {
    watch();
    // Where the kernel is too old to wipe pages (before 4.14), what it tells of forks does: `in_child`.
    #[cfg(not(any(loom, miri)))]
    wipe_in_children((&raw const WIPED).cast(), size_of::<Wiped>());
    let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Another thread may have begun meanwhile.
    match WIPED.generation.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(others) => others,
    }
}

/// Has the kernel give children zeroes in place of these pages. Whether it does.
#[cfg(not(any(loom, miri)))]
fn wipe_in_children(start: *const u8, len: usize) -> bool {
    // SAFETY: the advice changes nothing in this process, and what children find there is valid: whole words
    // of zeroes for atomics.
    unsafe { libc::madvise(start.cast_mut().cast(), len, libc::MADV_WIPEONFORK) == 0 }
}

/// Has the system's library tell of forks from now on.
fn watch() {
    #[cfg(not(any(loom, miri)))]
    {
        // No `Once`: a child that is forked while one runs would wait for it for ever.
        use std::sync::atomic::AtomicBool;
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler is a function for the program's whole life, and calls only what a forked
            // child may.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0;
            // For want of memory: perhaps the next call finds some.
            WATCHED.store(!refused, Ordering::Relaxed);
        }
    }
}

/// # Safety
/// Only the system's library calls it, in a child that has just been forked.
#[cfg(not(any(loom, miri)))]
unsafe extern "C" fn in_child() {
    use rustix::fs::{Mode, OFlags};
    WIPED.generation.store(0, Ordering::Relaxed);
    crate::sync::forget_token();
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    // A bare chroot has none. Without any descriptor left, the child shares them all.
    let Ok(null) = null.or_else(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)) else {
        return;
    };
    for fd in ALONE.iter().map(|place| place.swap(NOBODYS, Ordering::Relaxed)).filter(|fd| *fd != NOBODYS) {
        // The number stays taken: whoever believes to own it closes no stranger's. SAFETY: dup3 makes an open
        // descriptor mean another file; it is the parent's, which nothing in this child may use.
        unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}

/// A descriptor that children made by `fork` do not share: in them it is `/dev/null`.
#[derive(Debug)]
pub struct Alone<F: AsFd> {
    // Before the descriptor, whose number may be another's as soon as it is closed.
    _place: Place,
    fd: F,
}

impl<F: AsFd> Alone<F> {
    /// Keeps a descriptor from children that are made from now on. Where thousands are kept already, this one
    /// is shared.
    pub fn new(fd: F) -> Alone<F> {
        watch();
        let number = fd.as_fd().as_raw_fd();
        let take = |place: &&AtomicI32| {
            place.compare_exchange(NOBODYS, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        Alone { _place: Place(ALONE.iter().find(take), number), fd }
    }
}

impl<F: AsFd> Alone<F> {
    /// The same descriptor as something else: a socket as a stream, say.
    pub fn map<G: AsFd>(self, change: impl FnOnce(F) -> G) -> Alone<G> {
        let Alone { _place, fd } = self;
        Alone { _place, fd: change(fd) }
    }
}

impl<F: AsFd> Deref for Alone<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fd
    }
}

impl<F: AsFd> DerefMut for Alone<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.fd
    }
}

impl<F: AsFd> AsFd for Alone<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where a descriptor is noted.
#[derive(Debug)]
struct Place(Option<&'static AtomicI32>, i32);

impl Drop for Place {
    fn drop(&mut self) {
        let Place(place, number) = self;
        if let Some(place) = place {
            // In a child it may be another's by now.
            let _ = place.compare_exchange(*number, NOBODYS, Ordering::Release, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::io::Read;

    use super::*;

    /// Forks a child that looks, and tells whether it found things so.
    fn in_a_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes no call that another thread's locks could hold up, and ends at once.
        match unsafe { libc::fork() } {
            0 => {
                let status = if look() { 0 } else { 1 };
                // SAFETY: it ends the child and runs nothing of it.
                unsafe { libc::_exit(status) }
            }
            child => {
                let mut status = 0;
                // SAFETY: it waits for our own child and writes to a word of this frame.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                status == 0
            }
        }
    }

    #[test]
    fn each_child_is_of_another_generation() {
        let own = generation();
        assert!(in_a_child(|| known_generation() == 0 && generation() > own));
        assert_eq!(generation(), own);
    }

    #[test]
    fn a_child_that_the_system_library_knows_nothing_of_is_of_another_generation_too() {
        let own = generation();
        // SAFETY: as `fork`; the child looks at words alone, and ends at once.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let status = if generation() == own { 1 } else { 0 };
            // SAFETY: it ends the child and runs nothing of it.
            unsafe { libc::_exit(status) }
        }
        let mut status = 0;
        // SAFETY: it waits for our own child and writes to a word of this frame.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &mut status, 0) }), child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_table_is_empty_in_a_child() {
        let table = OnceTable::new(1000).expect("memory");
        assert!(table.set(7, std::sync::Arc::new(70)).is_ok());
        assert!(in_a_child(|| table.get(7).is_none()));
        assert_eq!(table.get(7), Some(&70));
    }

    #[test]
    fn a_lock_of_the_parents_is_nobodys_in_the_child() {
        let lock = crate::biased::BiasedLock::new(7);
        drop(lock.lock());
        assert!(in_a_child(|| lock.try_lock().is_none()));
        assert!(in_a_child(|| crate::biased::BiasedLock::new(8).try_lock().is_some_and(|guard| *guard == 8)));
        assert!(lock.try_lock().is_some_and(|guard| *guard == 7), "the parent's is as it was");
    }

    #[test]
    fn what_is_kept_from_children_ends_with_the_parents_end_of_it() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let writer = Alone::new(writer);
        let number = writer.as_fd().as_raw_fd();
        assert!(in_a_child(|| {
            // SAFETY: it only asks what a number stands for.
            let mut status: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: it writes to a value of this frame.
            unsafe { libc::fstat(number, &mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFCHR }
        }));
        drop(writer);
        assert_eq!(reader.read(&mut [0]).expect("a pipe"), 0, "nobody else has the other end");
        assert!(ALONE.iter().all(|place| place.load(Ordering::Relaxed) != number), "its number is free");
    }
}
