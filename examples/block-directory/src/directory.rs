//! Who holds which block, in words that every worker can reach one-sided: nobody is asked for anything.
//!
//! Each worker keeps one array of words ([`Layout`]). Its first part is the worker's share of the *index*: a
//! hash table of blocks by id, spread over the workers, that says for each block and each worker where that
//! worker keeps it. Its second part is the worker's *records*, one a slot of its store: a state word, then
//! the addresses of the block's pieces.
//!
//! **The state word** is all that protects a block: generation, a bit that says whether the slot holds a
//! block, a bit that says whether it was read lately, and one bit for each reader.
//! - A reader *pins* by setting its bit with a compare-and-swap that expects the generation that the index
//!   named and the slot to hold a block. Only then does it read the addresses, pull, and clear its bit.
//! - The owner *recycles* by a compare-and-swap from "holds a block, no readers" to the next generation,
//!   empty. If a reader was first, it fails and the owner takes another victim; if the owner was first, the
//!   reader's fails and the block counts as gone. The addresses change only in between.
//! - A reader that died leaves its bit; the owner clears it once the death is known.
//!
//! So what was pinned cannot change until it is unpinned, whatever happens in between.

use standpipe::Error;

use crate::store::{Pins, Slot};

/// Words in every worker's shared array, reached one-sided.
pub trait Words {
    /// This worker's number.
    fn rank(&self) -> usize;
    /// Number of workers.
    fn size(&self) -> usize;
    /// Reads words from `at` on: one alone in one order with its changes, and whole. Of several any may be
    /// found half changed.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if that worker is dead.
    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error>;
    /// Writes words from `at` on: one alone arrives whole.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if that worker is dead.
    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error>;
    /// Writes `new` if the word is `expected`; gives what the word was. What the caller wrote before is seen
    /// by whoever sees the new word.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if that worker is dead.
    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error>;
    /// Who keeps the index's share number `share` now: the worker of that number, unless another has taken
    /// its place.
    fn keeper(&self, share: usize) -> usize {
        share
    }
}

/// A word of a worker's array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The worker.
    pub rank: usize,
    /// The word's index in its array.
    pub word: usize,
}

/// Where things are in a worker's array; the same for all workers of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of workers, those included that join later.
    pub workers: usize,
    /// Shares of the index: as many as there are workers in the beginning.
    pub shares: usize,
    /// Entries of the index in each worker's array.
    pub entries: usize,
    /// Blocks that a worker can hold.
    pub slots: usize,
    /// Pieces of a block.
    pub layers: usize,
}

/// One reader bit a worker.
pub const WORKERS_MAX: usize = u32::BITS as usize;

impl Layout {
    /// A layout for `blocks` different blocks in all.
    ///
    /// # Panics
    /// If there are no workers or more than [`WORKERS_MAX`].
    #[must_use]
    pub fn new(workers: usize, blocks: usize, slots: usize, layers: usize) -> Self {
        assert!((1..=WORKERS_MAX).contains(&workers), "{workers} workers");
        // Half empty on average, with room for an uneven spread: searches stay short.
        let entries = (2 * blocks.div_ceil(workers) + SPARE_ENTRIES).next_power_of_two();
        Self { workers, shares: workers, entries, slots, layers }
    }

    /// The same with room for one worker that joins later.
    ///
    /// # Panics
    /// If there are then more than [`WORKERS_MAX`].
    #[must_use]
    pub fn and_one(self) -> Self {
        assert!(self.workers < WORKERS_MAX, "{} workers and one", self.workers);
        Self { workers: self.workers + 1, ..self }
    }

    /// Words in a worker's array.
    #[must_use]
    pub fn words(&self) -> usize {
        self.records_at() + self.slots * self.record_words()
    }

    fn entry_words(&self) -> usize {
        1 + self.workers
    }

    fn record_words(&self) -> usize {
        1 + self.layers
    }

    fn records_at(&self) -> usize {
        INDEX_AT + self.entries * self.entry_words()
    }

    fn state_at(&self, rank: usize, slot: usize) -> Place {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        Place { rank, word: self.records_at() + slot * self.record_words() }
    }
}

const SPARE_ENTRIES: usize = 64;
/// The first word of each array is its worker's status; the index follows.
const INDEX_AT: usize = 1;

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It looks blocks up, pulls them, or waits.
    Moving = 0,
    /// It makes a block, and has no thought for others.
    Computing = 1,
    /// Its requests are all served.
    Done = 2,
}

/// Where a worker keeps a block, as the index says: a slot and the generation it had then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The worker that holds the block.
    pub owner: usize,
    slot: usize,
    generation: u64,
}

/// The directory as one worker uses it.
#[derive(Debug)]
pub struct Directory<W> {
    words: W,
    layout: Layout,
}

impl<W: Words> Directory<W> {
    /// The directory over `words`, whose arrays of `layout.words()` words were all zero at the start.
    ///
    /// # Panics
    /// If the layout is for another number of workers.
    pub fn new(words: W, layout: Layout) -> Self {
        assert_eq!(words.size(), layout.workers, "a layout is made for its job");
        Self { words, layout }
    }

    /// The words beneath.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Tells the others what this worker does.
    pub fn set_status(&self, status: Status) {
        // A worker can always reach its own words.
        let _ = self.words.write(Place { rank: self.words.rank(), word: 0 }, &[status as u64]);
    }

    /// What `rank` said that it does.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if that worker is dead.
    pub fn status(&self, rank: usize) -> Result<Status, Error> {
        Ok(match self.state(Place { rank, word: 0 })? {
            0 => Status::Moving,
            1 => Status::Computing,
            _ => Status::Done,
        })
    }

    /// Which workers say that they hold `id`. The list may be old by the time it is read; pinning tells.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the worker that keeps this part of the index is dead: then nobody can find the
    /// block.
    pub fn look_up(&self, id: u64) -> Result<Vec<Location>, Error> {
        let mut entry = vec![0; self.layout.entry_words()];
        for place in self.probes(id) {
            self.words.read(place, &mut entry)?;
            match entry[0] {
                EMPTY => break,
                key if Some(key) == key_of(id) => return Ok(locations(&entry[1..])),
                _ => {}
            }
        }
        Ok(Vec::new())
    }

    /// Fills the record of this worker's `slot`, which holds no block, and tells the index. Gives false if
    /// the index has no room for the block; then only this worker knows of it.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the worker that keeps this part of the index is dead; the block is then this
    /// worker's alone.
    pub fn publish(&self, id: u64, slot: usize, addresses: &[u64]) -> Result<bool, Error> {
        assert_eq!(addresses.len(), self.layout.layers, "one address a layer");
        let state = self.layout.state_at(self.words.rank(), slot);
        self.words.write(Place { word: state.word + 1, ..state }, addresses)?;
        let empty = self.state(state)?;
        assert!(empty & VALID == 0 && empty & READERS == 0, "slot {slot} is in use: {empty:#x}");
        let found = self.words.compare_swap(state, empty, empty | VALID)?;
        assert_eq!(found, empty, "nobody else changes an empty slot");
        let location = encode(slot, generation(empty));
        match self.claim_entry(id)? {
            Some(entry) => self.words.write(self.own_word(entry), &[location]).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes this worker's `slot` back from block `id`, unless a peer reads it or read it since the last time
    /// asked.
    pub fn recycle(&self, id: u64, slot: usize) -> bool {
        let state = self.layout.state_at(self.words.rank(), slot);
        let Ok(now) = self.state(state) else { return false };
        assert!(now & VALID != 0, "slot {slot} holds no block: {now:#x}");
        if now & READERS != 0 {
            return false;
        }
        if now & WANTED != 0 {
            // If this fails somebody pins it right now, which is one more reason to keep it.
            let _ = self.words.compare_swap(state, now, now & !WANTED);
            return false;
        }
        let emptied = next_generation(now);
        if self.words.compare_swap(state, now, emptied) != Ok(now) {
            return false;
        }
        // From here no pin can succeed. A stale entry would only cost its readers a failed pin.
        if let Ok(Some(entry)) = self.find_entry(id) {
            let _ = self.words.write(self.own_word(entry), &[NOWHERE]);
        }
        true
    }

    /// Pins a block that a peer holds, and gives the addresses of its pieces; `None` if it is gone. What was
    /// pinned must be unpinned.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the owner is dead.
    pub fn pin(&self, location: Location) -> Result<Option<Vec<u64>>, Error> {
        // An entry is read in one run, and a word of it may have been found half changed.
        if location.slot >= self.layout.slots {
            return Ok(None);
        }
        let state = self.layout.state_at(location.owner, location.slot);
        let mut now = self.state(state)?;
        loop {
            if generation(now) != location.generation || now & VALID == 0 {
                return Ok(None);
            }
            match self.words.compare_swap(state, now, now | WANTED | self.reader())? {
                found if found == now => break,
                found => now = found,
            }
        }
        let mut addresses = vec![0; self.layout.layers];
        self.words.read(Place { word: state.word + 1, ..state }, &mut addresses)?;
        Ok(Some(addresses))
    }

    /// Gives back a pin.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the owner is dead; there is nothing to give back then.
    pub fn unpin(&self, location: Location) -> Result<(), Error> {
        self.clear_readers(self.layout.state_at(location.owner, location.slot), self.reader())
    }

    /// Gives back, in this worker's own `slots`, every pin of a worker that died.
    pub fn release(&self, slots: impl Iterator<Item = usize>, dead: usize) {
        for slot in slots {
            // A worker can always reach its own words.
            let _ = self.clear_readers(self.layout.state_at(self.words.rank(), slot), 1 << dead);
        }
    }

    fn clear_readers(&self, state: Place, readers: u64) -> Result<(), Error> {
        let mut now = self.state(state)?;
        while now & readers != 0 {
            match self.words.compare_swap(state, now, now & !readers)? {
                found if found == now => break,
                found => now = found,
            }
        }
        Ok(())
    }

    fn state(&self, at: Place) -> Result<u64, Error> {
        let mut word = [0];
        self.words.read(at, &mut word)?;
        Ok(word[0])
    }

    fn reader(&self) -> u64 {
        1 << self.words.rank()
    }

    fn own_word(&self, entry: Place) -> Place {
        Place { word: entry.word + 1 + self.words.rank(), ..entry }
    }

    /// The entries that may hold `id`, in the order in which they are tried.
    fn probes(&self, id: u64) -> impl Iterator<Item = Place> + use<W> {
        let Layout { shares, entries, .. } = self.layout;
        let entry_words = self.layout.entry_words();
        let hash = mix(id) as usize;
        let (rank, first) = (self.words.keeper(hash % shares), hash / shares);
        (0..entries).map(move |step| Place {
            rank,
            word: INDEX_AT + (first.wrapping_add(step) % entries) * entry_words,
        })
    }

    fn find_entry(&self, id: u64) -> Result<Option<Place>, Error> {
        for place in self.probes(id) {
            match self.state(place)? {
                EMPTY => break,
                key if Some(key) == key_of(id) => return Ok(Some(place)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Finds the entry of `id` or makes one. Entries are never taken away, so that searches need no marks for
    /// gaps.
    fn claim_entry(&self, id: u64) -> Result<Option<Place>, Error> {
        let Some(key) = key_of(id) else { return Ok(None) };
        for place in self.probes(id) {
            let found = self.words.compare_swap(place, EMPTY, key)?;
            if found == EMPTY || found == key {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

/// The store's question goes to the directory.
impl<W: Words> Pins for &Directory<W> {
    fn recycle(&mut self, slot: Slot, id: u64) -> bool {
        Directory::recycle(self, id, slot)
    }
}

/// splitmix64's finaliser: each bit of an id moves half of its hash's.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

const EMPTY: u64 = 0;
const NOWHERE: u64 = 0;
const READERS: u64 = u32::MAX as u64;
const VALID: u64 = 1 << 32;
const WANTED: u64 = 1 << 33;
const GENERATION_SHIFT: u32 = 34;
/// A location is a generation above a slot; the slot's bits hold one more than the slot, so that none is 0.
const SLOT_BITS: u32 = GENERATION_SHIFT;

fn generation(state: u64) -> u64 {
    state >> GENERATION_SHIFT
}

/// The empty state after `state`. Generations wrap after 2^30 blocks in one slot; a reader would have to
/// sleep that long between look-up and pin to take one block for another.
fn next_generation(state: u64) -> u64 {
    generation(state).wrapping_add(1) << GENERATION_SHIFT
}

fn encode(slot: usize, generation: u64) -> u64 {
    generation << SLOT_BITS | (slot as u64 + 1)
}

fn locations(words: &[u64]) -> Vec<Location> {
    let decode = |(owner, &word): (usize, &u64)| {
        let slot = (word & ((1 << SLOT_BITS) - 1)).checked_sub(1)? as usize;
        Some(Location { owner, slot, generation: word >> SLOT_BITS })
    };
    words.iter().enumerate().filter_map(decode).collect()
}

/// The index's key for a block: never [`EMPTY`]. The one id without a key is never published.
fn key_of(id: u64) -> Option<u64> {
    id.checked_add(1)
}
