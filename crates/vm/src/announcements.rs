//! How an owner takes memory back that others reach without asking it: the words, and their fences.
//!
//! The owner has a *table* of lines, which say what may be reached, and an *epoch*. Each thread that reaches
//! what a line shows has an *announcement*: a word that only its own process writes. All of them lie in
//! memory that the other side only reads ([`ReadOnly`]).
//!
//! | who reaches | the owner |
//! |---|---|
//! | reads the epoch: [`epoch_at`] | bars the line: [`show_line`] |
//! | [announces](Announcement::announce) it | begins an epoch: [`begin_epoch`] |
//! | a full fence, and a look at the line: [`line_at`] | a full fence, and a look at the announcements: [`oldest_use`] |
//! | reaches what it shows; before more it announces and looks again | has the memory back once no announcement names an older epoch |
//! | [withdraws](Announcement::withdraw) the announcement | |
//!
//! One of the two fences comes first. So either the line is seen to be barred, or the announcement is seen.
//!
//! A look ends after a bounded number of steps, whatever lies in these words. An owner may be stopped in the
//! midst of a change, and a peer may write anything about itself.

use crate::segment::ReadOnly;
use crate::sync::{AtomicU64, Ordering, fence};

/// Words of a line. The models have shorter ones: each word more is read at any of several times.
pub const LINE_WORDS: usize = if cfg!(loom) { 3 } else { 8 };

/// Looks at a line that is being changed, at most: its owner may have been stopped just then.
const LOOKS: u32 = if cfg!(loom) { 2 } else { 64 };

/// Bits of an announcement that have the owner's number; its epoch lies above.
pub const NUMBER_BITS: u32 = 16;

/// A line's first word is read before the others.
const ORDERINGS: [Ordering; LINE_WORDS] = {
    let mut all = [Ordering::Relaxed; LINE_WORDS];
    all[0] = Ordering::Acquire;
    all
};

/// Memory of another process's, which is only read: it may change at any time.
pub trait Theirs {
    /// As many words from that byte on, a multiple of 8: one after the other, each in its own ordering.
    /// `None`: they are not all there.
    fn load_all<const N: usize>(&self, at: u64, orderings: [Ordering; N]) -> Option<[u64; N]>;
}

impl Theirs for ReadOnly {
    #[inline]
    fn load_all<const N: usize>(&self, at: u64, orderings: [Ordering; N]) -> Option<[u64; N]> {
        ReadOnly::load_all(self, at, orderings)
    }
}

/// Has a line show these words. For one thread at a time, and the line's owner.
///
/// Panics where the line has not [`LINE_WORDS`] words.
pub fn show_line(line: &[AtomicU64], words: [u64; LINE_WORDS - 1]) {
    // The first says whether it is being changed: it is odd meanwhile.
    let before = line[0].load(Ordering::Relaxed);
    line[0].store(before.wrapping_add(1), Ordering::Relaxed);
    fence(Ordering::Release);
    line[1..LINE_WORDS].iter().zip(words).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
    line[0].store(before.wrapping_add(2), Ordering::Release);
}

/// The words that a line at that byte shows, as they were together at some time. `None`: there is none, or
/// its owner is changing it for so long that it must have been stopped.
#[inline]
pub fn line_at(table: &impl Theirs, at: u64) -> Option<[u64; LINE_WORDS - 1]> {
    for _ in 0..LOOKS {
        let [before, words @ ..] = table.load_all(at, ORDERINGS)?;
        fence(Ordering::Acquire);
        if before & 1 == 0 && table.load_all(at, [Ordering::Relaxed])? == [before] {
            return Some(words);
        }
        std::hint::spin_loop();
    }
    None
}

/// Begins a new epoch, once lines are barred, and returns it. By the owner.
pub fn begin_epoch(epoch: &AtomicU64) -> u64 {
    epoch.fetch_add(1, Ordering::SeqCst) + 1
}

/// To be called by the owner between what bars new use, a line or another mark, and [`oldest_use`].
pub fn before_looking_for_users() {
    fence(Ordering::SeqCst);
}

/// The epoch that an owner is in, to be announced.
#[inline]
pub fn epoch_at(table: &impl Theirs, at: u64) -> u64 {
    table.load_all(at, [Ordering::Acquire]).map_or(0, |[epoch]| epoch)
}

/// Where the announcements of a process lie.
#[derive(Clone, Copy, Debug)]
pub struct Announcements {
    /// The byte of the word that says how many words have ever been announced in.
    pub used: u64,
    /// The byte of the first word.
    pub first: u64,
    /// Bytes from one word to the next.
    pub stride: u64,
    /// Words, at most, whatever the count says.
    pub most: u64,
}

/// Since which epoch of the owner of that number the process is at what it may reach of it, if it is.
pub fn oldest_use(theirs: &impl Theirs, all: Announcements, owner: u32) -> Option<u64> {
    let word = |at| theirs.load_all(at, [Ordering::Acquire]).map_or(0, |[word]| word);
    let used = word(all.used).min(all.most);
    (0..used).filter_map(|index| named(word(all.first + index * all.stride), owner)).min()
}

/// The epoch that a word names, if it announces a use of what is that owner's.
fn named(word: u64, owner: u32) -> Option<u64> {
    (word & ((1 << NUMBER_BITS) - 1) == u64::from(owner) && word != 0).then_some(word >> NUMBER_BITS)
}

/// A thread's word.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a>(&'a AtomicU64);

impl<'a> Announcement<'a> {
    /// By the word of this thread, which the process's [`Announcements`] count by now.
    #[inline]
    pub fn in_word(word: &'a AtomicU64) -> Announcement<'a> {
        Announcement(word)
    }

    /// Announces that this thread is about to reach what is that owner's, in its epoch: also in place of what
    /// it announced before, between two accesses. The thread must look at its line again.
    #[inline]
    pub fn announce(self, owner: u32, epoch: u64) {
        // An owner that sees this knows that accesses under an older epoch are done.
        self.0.store(epoch << NUMBER_BITS | u64::from(owner), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Says that this thread has done what it announced.
    #[inline]
    pub fn withdraw(self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Counts a word that will be announced in. By the process whose word it is, before it announces.
pub fn count_word(used: &AtomicU64, index: u64) {
    used.fetch_max(index + 1, Ordering::SeqCst);
}

#[cfg(all(test, loom))]
#[path = "announcements_loom.rs"]
mod loom_tests;
