//! The bare machine with nothing of ours in between: the limits that benchmarks measure against.
//!
//! Every function does its operation a number of times and returns how long that took, so that what surrounds
//! it is measured like what surrounds ours.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::cma::Iov;
use crate::futex;
use crate::shared::{Blocks, Outside, SharedMemory};

/// A run of bytes of a mapping, to be copied to and from by memcpy alone.
#[derive(Debug)]
pub struct Mapped {
    memory: SharedMemory,
    offset: u64,
    len: usize,
}

impl Mapped {
    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`Outside`] if they are not inside the mapping.
    pub fn new(memory: &SharedMemory, offset: u64, len: usize) -> Result<Mapped, Outside> {
        memory.copy_out(offset, &mut vec![0; len])?;
        Ok(Mapped { memory: memory.clone(), offset, len })
    }

    /// Calls memcpy, as a function that the compiler cannot see through, from `from` to the mapping.
    pub fn put(&self, from: &[u8], times: u32) -> Duration {
        assert_eq!(from.len(), self.len, "the buffer is as long as the run");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            // SAFETY: the target's `len` bytes were found inside the mapping, which the handle keeps alive;
            // the source is a slice of as many, which cannot lie in a mapping.
            unsafe { memcpy(black_box(self.at()), black_box(from.as_ptr()).cast(), black_box(self.len)) };
        }
        start.elapsed()
    }

    /// Calls memcpy from the mapping to `into`, as [`Mapped::put`] does.
    pub fn get(&self, into: &mut [u8], times: u32) -> Duration {
        assert_eq!(into.len(), self.len, "the buffer is as long as the run");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            // SAFETY: as in `put`, with source and target exchanged. Where the slice lies in a mapping,
            // whoever made it of a pointer has promised that it is borrowed alone, and so apart from the run.
            unsafe { memcpy(black_box(into.as_mut_ptr()).cast(), black_box(self.at()), black_box(self.len)) };
        }
        start.elapsed()
    }

    /// Copies blocks of `from` to the mapping, as a program does that knows where both lie. That is a loop,
    /// with a length that the compiler knows where that is 64 bytes, and else with calls of memcpy.
    ///
    /// # Panics
    /// Where the blocks do not lie inside both.
    pub fn put_blocks(&self, from: &[u8], blocks: Blocks, times: u32) -> Duration {
        let Blocks { block, count, there, here } = blocks;
        let (there, steps) = (there as usize, count.saturating_sub(1));
        let fits =
            |stride: usize, len| stride.checked_mul(steps).and_then(|at| at.checked_add(block)) <= Some(len);
        assert!(fits(there, self.len) && fits(here, from.len()), "the blocks lie inside both");
        let memcpy: unsafe extern "C" fn(*mut _, *const _, usize) -> *mut _ = black_box(libc::memcpy);
        let start = Instant::now();
        for _ in 0..times {
            let (to, from) = (black_box(self.at()).cast::<u8>(), black_box(from.as_ptr()));
            for i in 0..black_box(count) {
                // SAFETY: block `i` lies within both ends (checked above), which are a mapping that the
                // handle keeps alive and a slice, and so apart.
                unsafe {
                    let (to, from) = (to.add(i * there), from.add(i * here));
                    match block {
                        64 => to.copy_from_nonoverlapping(from, 64),
                        _ => drop(memcpy(to.cast(), from.cast(), block)),
                    }
                }
            }
        }
        start.elapsed()
    }

    fn at(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut((self.memory.base_addr() + self.offset) as usize)
    }
}

/// Pages of this process that are there, to be locked and unlocked: what comes nearest to pinning them for a
/// card where there is no card.
#[derive(Debug)]
pub struct LockablePages {
    /// Of the mapping, whose first and last page nobody may touch: so it is never one with its neighbours,
    /// and locking splits nothing.
    base: *mut libc::c_void,
    /// Of the pages between those two.
    bytes: usize,
}

impl LockablePages {
    /// So many fresh pages.
    ///
    /// # Errors
    /// If the kernel has no memory for them.
    pub fn new(count: usize) -> Result<LockablePages, Errno> {
        let page = crate::host::page_bytes();
        let whole = count.checked_add(2).and_then(|count| count.checked_mul(page)).ok_or(Errno::NOMEM)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a fresh mapping wherever the kernel likes, which replaces nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, access, flags) }?;
        let pages = LockablePages { base, bytes: count * page };
        for fence in [base, base.wrapping_byte_add(whole - page)] {
            // SAFETY: the first or last page of the mapping made above, which nothing refers to.
            unsafe { rustix::mm::mprotect(fence, page, MprotectFlags::empty()) }?;
        }
        Ok(pages)
    }

    /// Locks them and unlocks them again. Returns how long each took.
    ///
    /// # Errors
    /// If the kernel refuses: `RLIMIT_MEMLOCK` is too low, most likely.
    pub fn lock_and_unlock(&self) -> Result<(Duration, Duration), Errno> {
        let start = self.base.wrapping_byte_add(crate::host::page_bytes());
        let begun = Instant::now();
        // SAFETY: the pages lie inside the mapping, which lives as long as the handle; locking changes no
        // byte.
        unsafe { rustix::mm::mlock(start, self.bytes) }?;
        let locked = Instant::now();
        // SAFETY: as for locking; nobody else knows these pages, and so nobody wants them locked.
        unsafe { rustix::mm::munlock(start, self.bytes) }?;
        Ok((locked - begun, locked.elapsed()))
    }
}

impl Drop for LockablePages {
    fn drop(&mut self) {
        let whole = self.bytes + 2 * crate::host::page_bytes();
        // SAFETY: the whole mapping, which was made in `new` and which nothing refers to any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base, whole) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// Calls process_vm_writev with one list from `local` to `remote` of process `pid`. `None` if a call fails or
/// falls short.
///
/// # Safety
/// The local pieces must be readable memory of this process; the remote ones, memory of the other process
/// that its program lets us change.
pub unsafe fn attach_write(pid: u32, remote: &[Iov], local: &[Iov], times: u32) -> Option<Duration> {
    let wanted: u64 = local.iter().map(|iov| iov.len).sum();
    let (there, here) = (remote.as_ptr().cast(), local.as_ptr().cast());
    let (pid, there_len, here_len) = (pid as i32, remote.len() as u64, local.len() as u64);
    let start = Instant::now();
    for _ in 0..times {
        // SAFETY: `Iov` has the layout of iovec, which `cma` asserts; the caller promises what the lists
        // name.
        let done = unsafe { libc::process_vm_writev(pid, here, here_len, there, there_len, 0) };
        if done != wanted as isize {
            return None;
        }
    }
    Some(start.elapsed())
}

/// Calls process_vm_readv with one list from `remote` of process `pid` to `local`. `None` if a call fails or
/// falls short.
///
/// # Safety
/// The local pieces must be memory of this process that may be written and that nothing refers to meanwhile.
pub unsafe fn attach_read(pid: u32, remote: &[Iov], local: &[Iov], times: u32) -> Option<Duration> {
    let wanted: u64 = local.iter().map(|iov| iov.len).sum();
    let (there, here) = (remote.as_ptr().cast(), local.as_ptr().cast());
    let (pid, there_len, here_len) = (pid as i32, remote.len() as u64, local.len() as u64);
    let start = Instant::now();
    for _ in 0..times {
        // SAFETY: `Iov` has the layout of iovec, which `cma` asserts; the caller promises what the lists
        // name.
        let done = unsafe { libc::process_vm_readv(pid, here, here_len, there, there_len, 0) };
        if done != wanted as isize {
            return None;
        }
    }
    Some(start.elapsed())
}

/// Arithmetic that takes a processor about so long, as software takes on its way from one cache line to the
/// next. How long a line takes depends on what its holder does in between.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    rounds: u32,
}

impl Work {
    /// None at all.
    pub const NONE: Work = Work { rounds: 0 };

    /// Of about so many nanoseconds, as this processor does it now.
    pub fn of_ns(ns: u32) -> Work {
        const ROUNDS: u32 = 20_000;
        let took = || {
            let begun = Instant::now();
            Work { rounds: ROUNDS }.run();
            begun.elapsed().as_nanos() as u64
        };
        // All that disturbs a try makes it longer.
        let least = (0..9).map(|_| took()).min().unwrap_or(1).max(1);
        let rounds = u64::from(ns) * u64::from(ROUNDS) / least;
        Work { rounds: u32::try_from(rounds).unwrap_or(u32::MAX).max(u32::from(ns > 0)) }
    }

    /// Does it.
    #[inline]
    pub fn run(self) {
        let mut value = u64::from(self.rounds);
        for _ in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        }
    }
}

/// Adds to a word of another process's and waits until that has added to one of this one's, `times` times
/// there and back, each `work` before it adds. Both call it with the same two words (`mine` of one is
/// `theirs` of the other), which both must hold `start`. Returns at once with the time so far if `stop` says
/// so.
pub fn signals(
    [mine, theirs]: [&AtomicU64; 2],
    first: bool,
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    for wanted in start + 1..=start + u64::from(times) {
        if !first && !await_at_least(mine, wanted, &stop) {
            break;
        }
        work.run();
        theirs.fetch_add(1, Ordering::AcqRel);
        if first && !await_at_least(mine, wanted, &stop) {
            break;
        }
    }
    begun.elapsed()
}

/// Tells another process of a round and waits until that has told of it, too, `times` times, both at once,
/// each `work` before it tells. Words and `stop` are as for [`signals`].
pub fn crossing(
    [mine, theirs]: [&AtomicU64; 2],
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    for wanted in start + 1..=start + u64::from(times) {
        work.run();
        theirs.store(wanted, Ordering::Release);
        if !await_at_least(mine, wanted, &stop) {
            break;
        }
    }
    begun.elapsed()
}

/// Whether the word has come to `wanted`, before `stop` said so.
#[inline]
fn await_at_least(word: &AtomicU64, wanted: u64, stop: &impl Fn() -> bool) -> bool {
    let mut spins = 0u32;
    while word.load(Ordering::Acquire) < wanted {
        spin_loop();
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(1 << 16) && stop() {
            return false;
        }
    }
    true
}

/// Bounces a cache line with another process `times` times there and back; both call it with the same word,
/// which must hold `start`, and exactly one of them is `first`. Returns at once with the time so far if
/// `stop` says so.
pub fn bounce(word: &AtomicU64, first: bool, start: u64, times: u32, stop: impl Fn() -> bool) -> Duration {
    bounce_after(word, first, start, times, Work::NONE, stop)
}

/// The same, each `work` before it passes the line on.
pub fn bounce_after(
    word: &AtomicU64,
    first: bool,
    start: u64,
    times: u32,
    work: Work,
    stop: impl Fn() -> bool,
) -> Duration {
    let begun = Instant::now();
    let parity = u64::from(!first);
    for turn in 0..u64::from(times) {
        let mine = start + 2 * turn + parity;
        let mut spins = 0u32;
        while word.load(Ordering::Acquire) != mine {
            spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(1 << 16) && stop() {
                return begun.elapsed();
            }
        }
        work.run();
        word.store(mine + 1, Ordering::Release);
    }
    while first && word.load(Ordering::Acquire) != start + 2 * u64::from(times) {
        spin_loop();
        if stop() {
            break;
        }
    }
    begun.elapsed()
}

/// Passes a turn with another process `times` times there and back, each sleeping on a futex while it is not
/// its turn. Both call it with the same two words (`mine` of one is `theirs` of the other), which both must
/// hold `start`.
pub fn futex_ping_pong(
    mine: &AtomicU64,
    theirs: &AtomicU64,
    first: bool,
    start: u64,
    times: u32,
) -> Duration {
    let begun = Instant::now();
    for turn in 1..=u64::from(times) {
        if first {
            pass(theirs, start + turn);
        }
        await_turn(mine, start + turn);
        if !first {
            pass(theirs, start + turn);
        }
    }
    begun.elapsed()
}

fn pass(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
    futex::wake_all(word);
}

fn await_turn(word: &AtomicU64, value: u64) {
    const LOST: Duration = Duration::from_secs(2);
    loop {
        let now = word.load(Ordering::Acquire);
        if now == value || futex::wait(word, now as u32, Some(LOST)) == futex::Wake::TimedOut {
            return;
        }
    }
}

/// A barrier of nothing but a counter and a futex: `arrived` counts, `round` holds the number of rounds done.
/// Every one of `size` processes calls it as often.
pub fn futex_barrier(arrived: &AtomicU64, round: &AtomicU64, size: u64, times: u32) -> Duration {
    let begun = Instant::now();
    for _ in 0..times {
        let before = round.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == size {
            arrived.store(0, Ordering::Relaxed);
            pass(round, before + 1);
        } else {
            while round.load(Ordering::Acquire) == before {
                if futex::wait(round, before as u32, Some(Duration::from_secs(2))) == futex::Wake::TimedOut {
                    return begun.elapsed();
                }
            }
        }
    }
    begun.elapsed()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_locked_and_unlocked_as_often_as_wanted() {
        let pages = LockablePages::new(4).expect("room for four pages");
        for _ in 0..3 {
            match pages.lock_and_unlock() {
                Ok((lock, unlock)) => assert!(lock > Duration::ZERO && unlock > Duration::ZERO),
                Err(refused) => return testbed::skip(format_args!("no page may be locked here: {refused}")),
            }
        }
    }

    #[test]
    fn words_that_go_both_ways_come_to_their_last_value() {
        let words: [AtomicU64; 2] = Default::default();
        let give_up = Instant::now() + Duration::from_secs(20);
        let stop = || Instant::now() > give_up;
        let (near, far) = ([&words[0], &words[1]], [&words[1], &words[0]]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                signals(far, false, 0, 50, Work::of_ns(25), stop);
                crossing(far, 50, 50, Work::NONE, stop);
            });
            assert!(signals(near, true, 0, 50, Work::of_ns(25), stop) > Duration::ZERO);
            assert!(crossing(near, 50, 50, Work::NONE, stop) > Duration::ZERO);
        });
        assert_eq!(words.map(AtomicU64::into_inner), [100, 100]);
        assert!(Work::of_ns(25).rounds > 0 && Work::of_ns(0).rounds == 0);
    }

    #[test]
    fn more_pages_than_there_are_addresses_are_an_error() {
        for count in [usize::MAX, usize::MAX / 4096, usize::MAX / 8192] {
            assert!(LockablePages::new(count).is_err(), "{count}");
        }
    }
}
