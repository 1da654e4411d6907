//! A word of shared memory that the kernel itself marks when this process ends: a robust futex.
//!
//! Cross-memory attach names a process by its number, which the kernel gives to another process once the
//! first has ended and been reaped. News of the end may come later than that: whoever hears it may have been
//! stopped. The mark never does. Each thread may tell the kernel of a list of words in which it has put its
//! own number (`set_robust_list(2)`). The kernel walks that list when the thread ends, before it gives up the
//! thread's memory, and so before the process can be reaped and its number be free. It does so however the
//! thread ends: by `exit`, by a signal, or as the process executes another program, which ends its memory as
//! well.
//!
//! The C library has such a list for each thread, of the robust mutexes that the thread holds. So a thread of
//! our own [holds](Held) the word: it does nothing else, and lives as long as the word is held, whichever
//! thread asked for it. A child made by `fork` has no such thread and no list: its end marks nothing.
//!
//! The list lies beside the word, in memory that is shared and not in this process's own. A process that is
//! killed for want of memory loses its own memory before the kernel looks there. Peers may write both. The
//! kernel then writes to nothing but words of the ending process that hold the number of the holding thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use rustix::thread::gettid;

use crate::shared::{SharedMemory, Words};
use crate::threads::spawn_small;

/// 64-bit words that a held word takes: itself, its entry in the list, and the list's head of three.
pub const WORDS: usize = 5;
/// Where the entry is: the kernel's `struct robust_list`, one pointer.
const ENTRY: usize = 1;
/// Where the head is: the kernel's `struct robust_list_head`: the first entry, how far the words lie from
/// their entries, and an entry that is about to come or go.
const HEAD: usize = 2;
const HEAD_BYTES: usize = 24;

/// The bit that the kernel sets in the word.
const ENDED: u64 = libc::FUTEX_OWNER_DIED as u64;
/// Where the word has the number of the thread that holds it.
const HOLDER: u64 = libc::FUTEX_TID_MASK as u64;

/// The stack of the thread that holds a word, which sleeps.
const STACK_BYTES: usize = 64 << 10;

/// A word that tells of a process's end: this one's, or a peer's.
#[derive(Debug)]
pub struct EndWord(Words);

impl EndWord {
    /// The word at `offset` of `memory`, a multiple of 8.
    ///
    /// # Panics
    /// When it is not inside `memory`.
    pub fn at(memory: &SharedMemory, offset: u64) -> EndWord {
        EndWord(memory.words(offset, 1).expect("the caller has room for the word there"))
    }

    /// Whether the process that held the word has ended, or let go of it.
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.word() & ENDED != 0
    }

    /// Whether the kernel will mark the word, or has done so.
    pub fn is_marked_at_end(&self) -> bool {
        self.word() & (HOLDER | ENDED) != 0
    }

    #[inline(always)]
    fn word(&self) -> u64 {
        // SAFETY: `at` has made it of one word, which is compared with nothing here as this is read before
        // each attach.
        unsafe { self.0.get_unchecked(0) }.load(Ordering::Acquire)
    }
}

/// This process's hold on a word. Dropping it marks the word as the process's end does.
///
/// In a child made by `fork`, dropping it does nothing.
#[derive(Debug)]
pub struct Held {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Held {
    /// Has the kernel mark the word at `offset` of `memory`, a multiple of 8 with room for [`WORDS`] words,
    /// when this process ends. Any thread may call, and may end.
    ///
    /// # Errors
    /// When there is no thread to be had, or the kernel (or a system call filter) has no robust futexes. The
    /// word does not tell of this process then.
    ///
    /// # Panics
    /// When the words are not wholly inside `memory`.
    pub fn new(memory: &SharedMemory, offset: u64) -> io::Result<Held> {
        let words = memory.words(offset, WORDS).expect("the caller has room for the words there");
        let done = Arc::new(AtomicBool::new(false));
        let (tell, told) = sync_channel(1);
        let until = Arc::clone(&done);
        let thread = spawn_small("standpipe-end", STACK_BYTES, move || hold(&words, &until, &tell))?;
        let held = Held { done, thread: Some(thread), pid: std::process::id() };
        told.recv().expect("the thread tells before it does anything else")?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // After a fork the thread is not here, not even to be detached, and the word is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        self.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the thread has nothing to panic about");
        }
    }
}

/// The work of the thread that holds the word.
fn hold(words: &Words, done: &AtomicBool, tell: &SyncSender<io::Result<()>>) {
    let before = match list(words) {
        Ok(before) => before,
        Err(error) => {
            words[0].store(0, Ordering::Release);
            // The maker of this thread waits for it.
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    while !done.load(Ordering::Acquire) {
        std::thread::park();
    }
    words[0].store(ENDED, Ordering::Release);
    // The list may be unmapped before this thread has ended. It can be set back, as it could be set.
    let _ = set_list(before);
}

/// Makes this thread the word's holder, as far as the kernel is concerned. Gives the list that the thread had
/// before.
fn list(words: &Words) -> io::Result<usize> {
    let before = own_list()?;
    let addr = |word: usize| (&raw const words[word]).expose_provenance() as u64;
    let thread = gettid().as_raw_nonzero().get().unsigned_abs();
    words[0].store(thread.into(), Ordering::Release);
    words[ENTRY].store(addr(HEAD), Ordering::Relaxed);
    words[HEAD].store(addr(ENTRY), Ordering::Relaxed);
    words[HEAD + 1].store(addr(0).wrapping_sub(addr(ENTRY)), Ordering::Relaxed);
    words[HEAD + 2].store(0, Ordering::Relaxed);
    set_list(addr(HEAD) as usize)?;
    Ok(before)
}

/// The address of the head of this thread's list.
fn own_list() -> io::Result<usize> {
    let (mut head, mut bytes) = (0_usize, 0_usize);
    // SAFETY: thread 0 is the caller, and the kernel writes two words, which are live locals meanwhile.
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes) };
    if rc == 0 { Ok(head) } else { Err(io::Error::last_os_error()) }
}

/// Tells the kernel the address of the head of this thread's list.
fn set_list(head: usize) -> io::Result<()> {
    // SAFETY: the kernel takes the address as a number, and looks there when this thread ends, expecting
    // nothing: it checks each address that it follows. The words that it then changes hold this very thread's
    // number.
    let rc = unsafe { libc::syscall(libc::SYS_set_robust_list, head, HEAD_BYTES) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::segment::Segment;

    const AT: u64 = 128;

    fn memory() -> SharedMemory {
        Segment::create("robust-test", 4096).expect("a memfd").memory().clone()
    }

    /// Does something in a child made by `fork`, which ends by that, and waits for it.
    fn in_child(act: impl FnOnce()) -> i32 {
        // SAFETY: the child calls only what the tests below give it, and leaves without running any other
        // code of this process; of what other threads may have locked it uses the C library's allocator
        // alone, which survives forks.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a child");
        if child == 0 {
            act();
            // SAFETY: ends this process at once, and touches no memory of it.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our own child, which nobody else waits for, and the kernel writes one live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    #[test]
    fn a_word_is_marked_when_its_hold_is_dropped_and_not_when_the_thread_ends_that_took_it() {
        let memory = memory();
        let word = EndWord::at(&memory, AT);
        assert!(!word.is_marked_at_end() && !word.has_ended(), "nobody has held it");
        let of_other_thread = memory.clone();
        let taken = std::thread::spawn(move || Held::new(&of_other_thread, AT).expect("a thread"));
        let held = taken.join().expect("no panic");
        std::thread::sleep(Duration::from_millis(20));
        assert!(word.is_marked_at_end() && !word.has_ended());
        drop(held);
        assert!(word.has_ended());
        let _again = Held::new(&memory, AT).expect("a thread");
        assert!(!word.has_ended(), "it is held anew");
    }

    #[test]
    fn the_kernel_marks_it_however_the_process_ends() {
        // Each with the status that tells that the process ended so, and not otherwise.
        let ends: [(fn(), i32); 3] = [
            // SAFETY: a signal to this very process, and an end of it, touch no memory.
            (|| _ = unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }, libc::SIGKILL),
            // SAFETY: as above: all threads end by it, without any code of this process.
            (|| unsafe { libc::_exit(3) }, 3 << 8),
            (
                || {
                    let words = [c"/bin/true".as_ptr(), std::ptr::null()];
                    // SAFETY: a path and a list of arguments that end as they must, of constants.
                    _ = unsafe { libc::execv(words[0], words.as_ptr()) };
                    // SAFETY: ends this process at once, by a number alone, and touches no memory of it.
                    unsafe { libc::_exit(9) };
                },
                0,
            ),
        ];
        for (end, wanted) in ends {
            let memory = memory();
            let word = EndWord::at(&memory, AT);
            let status = in_child(|| {
                let held = Held::new(&memory, AT);
                assert!(held.is_ok() && !word.has_ended());
                end();
            });
            assert_eq!(status, wanted, "it ended as it was to");
            assert!(word.has_ended(), "the word is {:#x}", word.word());
        }
    }

    #[test]
    fn the_end_of_a_child_without_exec_marks_nothing_and_the_child_outlives_the_mark() {
        let memory = memory();
        let word = EndWord::at(&memory, AT);
        let mut held = Some(Held::new(&memory, AT).expect("a thread"));
        in_child(|| drop(held.take()));
        assert!(!word.has_ended(), "a child's end is not its parent's");
        drop(held);
        // A holder that ends while its own child lives on, which has all of its memory and descriptors.
        let (memory, begun) = (self::memory(), Instant::now());
        let word = EndWord::at(&memory, AT);
        in_child(|| {
            std::mem::forget(Held::new(&memory, AT));
            // SAFETY: as in `in_child`; the grandchild only sleeps, and is not waited for: it ends by itself.
            if unsafe { libc::fork() } == 0 {
                std::thread::sleep(Duration::from_secs(2));
            }
        });
        assert!(word.has_ended() && begun.elapsed() < Duration::from_secs(1));
    }
}
