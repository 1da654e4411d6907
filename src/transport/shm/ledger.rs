//! A process's ledger: a segment that it alone can write, and its near peers read. There they find what it
//! has granted, and what it is using of other processes' grants.
//!
//! ```text
//! line 0        the mark
//! line 1        the epoch: each revocation begins a new one
//! line 2        lines of the table that have ever had a grant, and grants that were ever made
//! line 3        words that have ever been announced in
//! line 4 ...    announcements, one word a line: a thread's
//! line 256 ...  the peers whose ledgers this process looks at, a bit for each number
//! line 384 ...  the table, a line for each line of the engine's
//! ```
//!
//! A line is 64 bytes. A process that reaches granted memory without its owner *announces* that first: it
//! writes the owner's number and epoch in its thread's word. Then it looks at the grant's line, copies, looks
//! again before each further part, and clears the word. The owner bars the line, begins a new epoch, and
//! looks at the words: nobody reaches the memory that it barred once no word names it with an older epoch.
//! [`vm::announcements`] has these steps, which are model-checked there. Only peers use a table whose owner
//! has said that it looks at their words: others ask it by message.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use engine::{Direction, GRANTS_MAX, GrantId, Granted, Place, Rank};
use rustix::io::Errno;
use vm::announcements::{self, Announcement, Announcements};
use vm::{ReadOnly, Segment, SegmentError, Words};

use crate::base::lock::lock;

const MARK: u64 = u64::from_le_bytes(*b"standpg1");
const LINE: u64 = 64;
const EPOCH_AT: u64 = LINE;
const LINES_AT: u64 = 2 * LINE;
const MADE_AT: u64 = LINES_AT + 8;
const WORDS_AT: u64 = 3 * LINE;
const FIRST_WORD: u64 = 4;
const WATCHED: u64 = 256;
const TABLE: u64 = 384;
/// Threads of a process that may be at other processes' grants at a time.
const WORDS: u64 = WATCHED - FIRST_WORD;
const BYTES: u64 = (TABLE + GRANTS_MAX as u64) * LINE;

/// Numbers that peers may have.
const NUMBERS: u64 = 1 << announcements::NUMBER_BITS;

/// A process's announcements.
const ANNOUNCED: Announcements =
    Announcements { used: WORDS_AT, first: FIRST_WORD * LINE, stride: LINE, most: WORDS };

/// The second half of a line: the peers that it is for. Up to so many are listed.
const LISTED: usize = 8;

const fn table_at(line: u32) -> u64 {
    (TABLE + line as u64) * LINE
}

/// Bytes of a ledger in a process whose files may be so long: whole lines, and one of the table at least.
const fn bytes_within(longest: u64) -> u64 {
    let (fits, least) = (longest / LINE * LINE, (TABLE + 1) * LINE);
    if fits < least {
        least
    } else if fits < BYTES {
        fits
    } else {
        BYTES
    }
}

/// The word and the bit of a peer's number.
const fn watched_at(peer: Rank) -> (u64, u64) {
    (WATCHED * LINE + (peer as u64 % NUMBERS) / 64 * 8, 1 << (peer % 64))
}

/// The third word of a line: what may be done with the grant, and by whom.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms(u64);

impl Terms {
    const LIVE: u64 = 1 << 32;
    const READ: u64 = 1 << 33;
    const WRITE: u64 = 1 << 34;
    const ALL: u64 = 1 << 35;
    /// There are more peers than a line can list: the owner must be asked.
    const MANY: u64 = 1 << 36;
    const LISTED_AT: u32 = 40;

    fn of(generation: u32, granted: &Granted) -> Terms {
        let may = |direction, bit| if granted.rights.allow(direction) { bit } else { 0 };
        let to = match &granted.to {
            None => Terms::ALL,
            Some(ranks) if ranks.len() > LISTED => Terms::MANY,
            Some(ranks) => (ranks.len() as u64) << Terms::LISTED_AT,
        };
        let rights = may(Direction::Get, Terms::READ) | may(Direction::Put, Terms::WRITE);
        Terms(u64::from(generation) | Terms::LIVE | rights | to)
    }

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    fn is_live(self, generation: u32) -> bool {
        self.has(Terms::LIVE) && self.0 as u32 == generation
    }

    fn allow(self, direction: Direction) -> bool {
        self.has(match direction {
            Direction::Get => Terms::READ,
            Direction::Put => Terms::WRITE,
        })
    }

    /// Whether the grant is for this peer, by the list in the line's second half.
    fn is_for(self, listed: &[u64], peer: Rank) -> bool {
        let count = ((self.0 >> Terms::LISTED_AT) as usize).min(LISTED);
        let all = listed.iter().flat_map(|pair| [*pair as u32, (*pair >> 32) as u32]);
        self.has(Terms::ALL) || all.take(count).any(|listed| listed == peer)
    }
}

/// This process's own ledger.
pub(crate) struct Ledger {
    segment: Segment,
    epoch: Words,
    lines: Words,
    words_used: Words,
    words: Words,
    /// The words that no thread has.
    free: Mutex<Vec<u32>>,
    /// Which ledger of this process it is.
    id: u64,
    /// Whether nobody else can write it.
    is_sealed: bool,
    /// Whether it takes memory before it touches any.
    reserves: bool,
    /// The process's, by forks: a child's is another.
    generation: u32,
}

impl Ledger {
    /// An empty one. `reserves`: it takes memory before it touches any, where the system would end the
    /// process otherwise. Where this process's files must be shorter, it has fewer lines: for grants of the
    /// others peers ask by message.
    ///
    /// # Errors
    /// As for [`Segment::create_own`].
    pub(crate) fn create(reserves: bool) -> Result<Ledger, SegmentError> {
        let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        Ledger::create_of(bytes_within(longest.unwrap_or(u64::MAX)), reserves)
    }

    fn create_of(bytes: u64, reserves: bool) -> Result<Ledger, SegmentError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let own = Segment::create_own("standpipe-ledger", bytes);
        let is_sealed = own.is_ok();
        let segment = match own {
            // A kernel before 5.1 lets peers write it: they use no table of this process's.
            Err(SegmentError::Os { errno: Errno::INVAL, .. }) => {
                Segment::create_closed("standpipe-ledger", bytes)
            }
            own => own,
        }?;
        if reserves {
            segment.reserve(0, TABLE * LINE)?;
        }
        segment.open_to(TABLE * LINE)?;
        let words = |at, count| segment.memory().words(at, count).expect("inside the segment");
        words(0, 1)[0].store(MARK, Ordering::Relaxed);
        let epoch = words(EPOCH_AT, 1);
        epoch[0].store(1, Ordering::Release);
        let (lines, words_used) = (words(LINES_AT, 2), words(WORDS_AT, 1));
        let all = words(ANNOUNCED.first, (WORDS * LINE / 8) as usize);
        let free = Mutex::new((0..WORDS as u32).rev().collect());
        Ok(Ledger {
            epoch,
            lines,
            words_used,
            words: all,
            free,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            is_sealed,
            reserves,
            generation: vm::forks::generation(),
            segment,
        })
    }

    /// The descriptor to send to peers.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.segment.fd()
    }

    /// Says that this process looks at the announcements of the peer of that number from now on.
    pub(crate) fn watch(&self, peer: Rank) {
        if !self.is_sealed {
            return;
        }
        let (at, bit) = watched_at(peer);
        let word = self.segment.memory().atomic_u64(at).expect("there is a bit for each number");
        word.fetch_or(bit, Ordering::SeqCst);
    }

    /// Shows a grant to near peers. `false`: there is no memory for its line, and peers ask for it by
    /// message. For one thread at a time, as [`Ledger::bar`].
    pub(crate) fn show(&self, grant: GrantId, granted: &Granted) -> bool {
        let end = table_at(grant.line + 1);
        if self.reserves && self.segment.reserve(table_at(grant.line), LINE).is_err() {
            return false;
        }
        let Ok(line) = self.segment.open_to(end).map(|()| self.line(grant.line)) else { return false };
        let mut words = [0; 7];
        [words[0], words[1]] = [granted.start, granted.len];
        words[2] = Terms::of(grant.generation, granted).0;
        if let Some(ranks) = granted.to.as_ref().filter(|ranks| ranks.len() <= LISTED) {
            for (pair, word) in ranks.chunks(2).zip(&mut words[3..]) {
                *word = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or_default()) << 32;
            }
        }
        announcements::show_line(&line, words);
        if self.lines[0].load(Ordering::Relaxed) <= grant.line.into() {
            self.lines[0].store(u64::from(grant.line) + 1, Ordering::Release);
        }
        let made = self.lines[1].load(Ordering::Relaxed) + 1;
        self.lines[1].store(made, Ordering::Release);
        true
    }

    /// Has a line show this, or nothing, and begins a new epoch, which it returns. Nobody reaches the memory
    /// that the line showed before once no announcement names an older one.
    pub(crate) fn bar(&self, line: u32, shows_now: Option<(GrantId, &Granted)>) -> u64 {
        match shows_now {
            Some((grant, granted)) => _ = self.show(grant, granted),
            None if u64::from(line) < self.lines[0].load(Ordering::Relaxed) => {
                announcements::show_line(&self.line(line), [0; 7])
            }
            None => {}
        }
        announcements::begin_epoch(&self.epoch[0])
    }

    /// Announces that this thread is about to reach what the owner of that number grants. `None`: other
    /// threads have all words.
    #[inline]
    pub(crate) fn announce(self: &Arc<Ledger>, owner: Rank, epoch: u64) -> Option<Announced<'_>> {
        let index = match LAST.get() {
            (id, index) if id == self.id => index,
            _ => self.word_of_thread()?,
        };
        let word = Announcement::in_word(&self.words[index as usize * (LINE / 8) as usize]);
        word.announce(owner, epoch);
        Some(Announced(word))
    }

    #[cold]
    fn word_of_thread(self: &Arc<Ledger>) -> Option<u32> {
        let known = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            held.retain(|held| held.ledger.strong_count() > 0);
            if let Some(held) = held.iter().find(|held| held.id == self.id) {
                return Some(held.index);
            }
            let index = lock(&self.free).pop()?;
            announcements::count_word(&self.words_used[0], index.into());
            held.push(HeldWord { ledger: Arc::downgrade(self), id: self.id, index });
            Some(index)
        });
        // A thread that is ending has none any more.
        let index = known.ok().flatten()?;
        LAST.set((self.id, index));
        Some(index)
    }

    /// All of it, as its process writes it.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> &vm::SharedMemory {
        self.segment.memory()
    }

    fn line(&self, line: u32) -> Words {
        self.segment.memory().words(table_at(line), 8).expect("the engine has no more lines than the table")
    }
}

/// That this thread is at what another process grants, until this is dropped.
pub(crate) struct Announced<'a>(Announcement<'a>);

impl Announced<'_> {
    /// Announces the same anew, between two parts: no copy is under way, and what was looked at before must
    /// be looked at again. So whoever takes other memory back waits for no more than one part.
    pub(crate) fn renew(&self, owner: Rank, epoch: u64) {
        self.0.announce(owner, epoch);
    }
}

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// A word that a thread has until it ends.
struct HeldWord {
    ledger: Weak<Ledger>,
    id: u64,
    index: u32,
}

impl Drop for HeldWord {
    fn drop(&mut self) {
        // The word is another's from now on: this thread, which ends, goes by message.
        let _ = LAST.try_with(|last| last.set((0, 0)));
        // In a child that was forked another thread may have held the lock.
        let is_its = |ledger: &Arc<Ledger>| ledger.generation == vm::forks::known_generation();
        if let Some(ledger) = self.ledger.upgrade().filter(is_its) {
            lock(&ledger.free).push(self.index);
        }
    }
}

thread_local! {
    /// This thread's words, and the one that it used last: of which ledger, and which.
    static HELD: RefCell<Vec<HeldWord>> = const { RefCell::new(Vec::new()) };
    static LAST: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// A near peer's ledger.
#[derive(Debug)]
pub(crate) struct PeerLedger(ReadOnly);

/// The word of a peer's ledger on a part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It lies at this address there.
    At(u64),
    /// There is no such grant any more.
    Revoked,
    /// It is not for this process, or not for that.
    NotGranted,
    /// It ends before.
    Beyond,
    /// Only the owner knows.
    Unknown,
}

impl PeerLedger {
    /// # Errors
    /// As for [`ReadOnly::open`]; [`SegmentError::NotMemfd`] of one that is no ledger.
    pub(crate) fn open(fd: impl AsFd) -> Result<PeerLedger, SegmentError> {
        let memory = ReadOnly::open(fd.as_fd())?;
        memory.open_to(TABLE * LINE)?;
        match memory.load(0, Ordering::Acquire) {
            Some(MARK) => Ok(PeerLedger(memory)),
            _ => Err(SegmentError::NotMemfd),
        }
    }

    /// The epoch, as [`Ledger::announce`] takes it.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        announcements::epoch_at(&self.0, EPOCH_AT)
    }

    /// Grants that the peer has made in its life, or re-pointed.
    pub(crate) fn made(&self) -> u64 {
        self.0.load(MADE_AT, Ordering::Acquire).unwrap_or(0)
    }

    /// Whether the peer looks at the announcements of the process with that number there.
    #[inline]
    pub(crate) fn watches(&self, me: Rank) -> bool {
        let (at, bit) = watched_at(me);
        self.0.load(at, Ordering::Acquire).is_some_and(|word| word & bit != 0)
    }

    /// Since which epoch the peer is at a grant of the node with this number there, if it is.
    pub(crate) fn oldest_use(&self, owner: Rank) -> Option<u64> {
        announcements::oldest_use(&self.0, ANNOUNCED, owner)
    }

    #[cfg(test)]
    fn uses(&self, owner: Rank, before: u64) -> bool {
        self.oldest_use(owner).is_some_and(|since| since < before)
    }

    /// Where `len` bytes from a place in a grant on lie at the peer, for an access of this process, which has
    /// that number there.
    #[inline]
    pub(crate) fn look(&self, place: Place, len: u64, direction: Direction, me: Rank) -> Look {
        let Some((grant, offset)) = place.in_grant() else { return Look::Unknown };
        let Some([start, granted, terms, listed @ ..]) = self.line(grant.line) else { return Look::Unknown };
        let terms = Terms(terms);
        if !terms.is_live(grant.generation) {
            return Look::Revoked;
        }
        if terms.has(Terms::MANY) {
            return Look::Unknown;
        }
        if !terms.allow(direction) || !terms.is_for(&listed, me) {
            return Look::NotGranted;
        }
        match offset.checked_add(len) {
            Some(end) if end <= granted => Look::At(start.wrapping_add(offset)),
            _ => Look::Beyond,
        }
    }

    /// A line's words behind its first, as they were together at some time. `None`: there is no such line, or
    /// its owner is changing it for so long that it must have been stopped.
    #[inline]
    fn line(&self, line: u32) -> Option<[u64; 7]> {
        let at = table_at(line);
        if line >= GRANTS_MAX || self.0.load(LINES_AT, Ordering::Acquire)? <= line.into() {
            return None;
        }
        self.0.open_to(at + LINE).ok()?;
        announcements::line_at(&self.0, at)
    }
}

#[cfg(test)]
mod tests;
