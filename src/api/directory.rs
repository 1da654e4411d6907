//! The directory: named values that any rank can look up, without the help of any other.
//!
//! It is a hash table spread over all heaps. A name's hash says which rank's share has its entry, and the
//! entry points to a block with name and value in the publisher's heap. Entries are loaded and swapped by
//! atomics, and blocks are got: no handler runs for it anywhere.
//!
//! ```text
//! entry   word 0: the name's hash, never 0      word 1: tag (14 bits) | rank (10) | block offset / 64 (40), 0 for none
//! block   name length (4 bytes), value length (4 bytes), name, value
//! ```
//! An entry once taken stays with its hash. A block is freed when it is replaced; a reader that saw its
//! pointer finds that the entry changed, by the tag if by nothing else, and reads again.

use std::hash::Hasher;
use std::time::{Duration, Instant};

use engine::Rank;
use vm::heap::HeapAllocator;

use crate::api::heap::HeapError;
use crate::api::node::Node;
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::base::limits::ENTRIES;
use crate::base::lock::lock;
use crate::base::pointers::GlobalPtr;
use crate::job::bootstrap::RANKS_MAX;
use crate::runtime::core::Published;

const ENTRY_BYTES: u64 = 16;

/// Bytes of one rank's share.
pub(crate) const BYTES: u64 = ENTRIES * ENTRY_BYTES;

/// Bytes that a name may have.
pub const NAME_MAX: usize = 255;

/// Bytes that a value may have.
pub const VALUE_MAX: usize = 64 << 10;

/// How long a wait for a name rests between looks.
const NAP: Duration = Duration::from_micros(200);

/// How often an entry is read again because it changed meanwhile.
const RETRIES: usize = 1000;

/// The job's directory, as [`Node::directory`] gives it. Any thread may use it; in a handler only what need
/// not wait.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    node: &'a Node,
}

debug_is_display!(DirectoryError);

/// Why a value could not be published, looked up or withdrawn.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The name is empty or longer than [`NAME_MAX`].
    #[error("a name has 1 to {NAME_MAX} bytes, not {len}")]
    Name {
        /// Its bytes.
        len: usize,
    },
    /// The value is longer than [`VALUE_MAX`].
    #[error("a value has at most {VALUE_MAX} bytes, not {len}")]
    Value {
        /// Its bytes.
        len: usize,
    },
    /// Another rank has published this name.
    #[error("{name:?} is published by rank {by}")]
    Taken {
        /// The name.
        name: String,
        /// The rank that published it.
        by: Rank,
    },
    /// The rank that keeps this name's entry has no entry left.
    #[error("rank {rank} keeps {ENTRIES} names, and has no room for {name:?}")]
    Full {
        /// The name.
        name: String,
        /// The rank whose share is full.
        rank: Rank,
    },
    /// Nobody published the name in time.
    #[error("nobody published {name:?} within {} ms", waited.as_millis())]
    Timeout {
        /// The name.
        name: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The heap has no room for the value.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// A peer could not be reached: the one that keeps the entry, or the one that published the value.
    #[error(transparent)]
    Peer(#[from] Error),
}

impl DirectoryError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            DirectoryError::Name { .. } | DirectoryError::Value { .. } => Code::Name,
            DirectoryError::Taken { .. } => Code::Taken,
            DirectoryError::Full { .. } => Code::NoRoom,
            DirectoryError::Timeout { .. } => Code::Timeout,
            DirectoryError::Heap(error) => error.code(),
            DirectoryError::Peer(error) => error.code(),
        }
    }
}

into_io_error!(DirectoryError);

/// Where an entry lies: its two words.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: GlobalPtr<u64>,
    block: GlobalPtr<u64>,
}

impl Entry {
    fn at(keeper: Rank, offset: u64) -> Entry {
        Entry { hash: GlobalPtr::new(keeper, offset), block: GlobalPtr::new(keeper, offset.wrapping_add(8)) }
    }
}

/// A block's place, as an entry's second word holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPtr(u64);

const OFFSET_BITS: u32 = 40;
const RANK_BITS: u32 = 10;
const TAG_AT: u32 = OFFSET_BITS + RANK_BITS;
const _: () = assert!(RANKS_MAX <= 1 << RANK_BITS, "a block's pointer names every rank");

impl BlockPtr {
    /// Of `tag` the lowest 14 bits count.
    fn new(tag: u64, at: GlobalPtr<u8>) -> BlockPtr {
        assert!(
            at.offset().is_multiple_of(64) && at.offset() >> 6 >> OFFSET_BITS == 0,
            "blocks are lines of a heap below 64 TiB"
        );
        assert!(at.peer() >> RANK_BITS == 0, "no job has such a rank");
        BlockPtr(tag << TAG_AT | u64::from(at.peer()) << OFFSET_BITS | at.offset() >> 6)
    }

    fn tag(self) -> u64 {
        self.0 >> TAG_AT
    }

    fn rank(self) -> Rank {
        (self.0 >> OFFSET_BITS) as Rank & ((1 << RANK_BITS) - 1)
    }

    fn at(self) -> GlobalPtr<u8> {
        GlobalPtr::new(self.rank(), (self.0 & ((1 << OFFSET_BITS) - 1)) << 6)
    }

    /// The pointer to nothing that follows this one.
    fn withdrawn(self) -> BlockPtr {
        BlockPtr((self.tag() + 1) << TAG_AT)
    }

    fn is_none(self) -> bool {
        self.0 & ((1 << TAG_AT) - 1) == 0
    }
}

/// Sets a rank's share apart in its new heap. The share's pages are zero, hence empty.
pub(crate) fn reserve(allocator: &mut HeapAllocator) -> u64 {
    allocator.alloc(BYTES, 64).expect("a heap is made larger than its share of the directory")
}

/// The way to the directory.
impl Node {
    /// The job's directory of named values.
    pub fn directory(&self) -> Directory<'_> {
        Directory { node: self }
    }
}

impl Directory<'_> {
    /// Publishes a value under a name, or replaces the one that this rank has published under it. Lookups
    /// that start after this returns find the new one. It stays until it is withdrawn or this node closes.
    ///
    /// A process that finds the value uses no memory of this process as it was before. Publishing waits for
    /// that as [`Node::memory_sync`] does, which costs nothing where no registered memory has changed.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing has changed then.
    pub fn publish(&self, name: &str, value: &[u8]) -> Result<(), DirectoryError> {
        check_name(name)?;
        self.may_change()?;
        if value.len() > VALUE_MAX {
            return Err(DirectoryError::Value { len: value.len() });
        }
        self.node.memory_sync()?;
        let array = self.node.heap().alloc::<u8>(8 + name.len() + value.len())?;
        let lengths = [name.len() as u32, value.len() as u32];
        array.write_slice(0, bytemuck::cast_slice(&lengths));
        array.write_slice(8, name.as_bytes());
        array.write_slice(8 + name.len(), value);
        let mut published = lock(&self.node.core.published);
        let entry = self.claim(name)?;
        self.point(entry, name, array.ptr(0))?;
        let (keeper, entry) = (entry.hash.peer(), entry.hash.offset());
        published.insert(name.to_owned(), Published { keeper, entry, _block: array.into_block() });
        Ok(())
    }

    /// Withdraws what this rank has published under a name, and says whether it had.
    ///
    /// # Errors
    /// [`DirectoryError::Peer`] where the entry's keeper is lost; the value is then gone for all others too.
    pub fn withdraw(&self, name: &str) -> Result<bool, DirectoryError> {
        self.may_change()?;
        let mut published = lock(&self.node.core.published);
        let Some(old) = published.remove(name) else { return Ok(false) };
        let entry = Entry::at(old.keeper, old.entry);
        let pointer = BlockPtr(self.node.atomic_load(entry.block)?);
        // A process that took this rank for lost may have published the name since; that stays.
        if pointer.is_none() || pointer.rank() != self.node.rank() {
            return Ok(false);
        }
        Ok(self.node.compare_swap(entry.block, pointer.0, pointer.withdrawn().0)? == pointer.0)
    }

    /// The value published under a name; `None` if there is none now.
    ///
    /// # Errors
    /// [`DirectoryError::Peer`] with [`Error::PeerLost`] where the rank that keeps the entry, or the one that
    /// published the value, is lost.
    pub fn lookup(&self, name: &str) -> Result<Option<Vec<u8>>, DirectoryError> {
        check_name(name)?;
        let hash = hash(name);
        for entry in self.probe(hash)? {
            let found = self.node.atomic_load(entry.hash)?;
            if found == 0 {
                return Ok(None);
            }
            if found == hash
                && let Looked::Is(value) = self.read(entry, name)?
            {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// The value published under a name, waiting for it if need be: at most `within`. Makes progress
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`Directory::lookup`], and [`DirectoryError::Timeout`]; [`Error::InHandler`].
    pub fn wait(&self, name: &str, within: Duration) -> Result<Vec<u8>, DirectoryError> {
        self.node.may_wait("waiting for a name")?;
        let started = Instant::now();
        let left = || within.saturating_sub(started.elapsed());
        // Nothing announces a new name, so the wait naps between looks.
        loop {
            // The keeper, or the publisher, may not have joined yet.
            let node = self.node.within(left());
            match (Directory { node: &node }).lookup(name) {
                Ok(None) | Err(DirectoryError::Peer(Error::Timeout { .. })) => {}
                Ok(Some(value)) => return Ok(value),
                Err(error) => return Err(error),
            }
            if left().is_zero() {
                return Err(DirectoryError::Timeout { name: name.to_owned(), waited: started.elapsed() });
            }
            self.node.wait(Some(left().min(NAP)), || None::<()>);
            if self.node.has_closed() {
                return Err(Error::Closed { call: "waiting for a name" }.into());
            }
        }
    }

    /// Refuses what may wait in a handler, before a lock is taken that is held while handlers run.
    fn may_change(&self) -> Result<(), Error> {
        self.node.may_call("a change of the directory")?;
        if self.node.core.peers.has_far() { self.node.may_wait("a change of the directory") } else { Ok(()) }
    }

    /// The entry for a name: its own if it has one, otherwise a free one, taken now.
    fn claim(&self, name: &str) -> Result<Entry, DirectoryError> {
        let hash = hash(name);
        for entry in self.probe(hash)? {
            let found = match self.node.atomic_load(entry.hash)? {
                0 => self.node.compare_swap(entry.hash, 0, hash)?,
                taken => taken,
            };
            if found == 0 || (found == hash && self.may_take(entry, name)?) {
                return Ok(entry);
            }
        }
        Err(DirectoryError::Full { name: name.to_owned(), rank: self.keeper(hash) })
    }

    /// Whether an entry with a name's hash is that name's. Where the publisher is lost its hash alone must
    /// say so.
    fn may_take(&self, entry: Entry, name: &str) -> Result<bool, DirectoryError> {
        match self.read(entry, name) {
            Ok(looked) => Ok(!matches!(looked, Looked::Other)),
            Err(DirectoryError::Peer(Error::PeerLost { peer })) if peer != entry.hash.peer() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Makes an entry point to a block of this rank.
    fn point(&self, entry: Entry, name: &str, block: GlobalPtr<u8>) -> Result<(), DirectoryError> {
        for _ in 0..RETRIES {
            let old = BlockPtr(self.node.atomic_load(entry.block)?);
            let by = old.rank();
            if !old.is_none() && by != self.node.rank() && !self.node.lost_peers().contains(&by) {
                return Err(DirectoryError::Taken { name: name.to_owned(), by });
            }
            let new = BlockPtr::new(old.tag() + 1, block);
            // The swap also makes the block's bytes visible before the pointer to them.
            if self.node.compare_swap(entry.block, old.0, new.0)? == old.0 {
                return Ok(());
            }
        }
        Err(restless(entry))
    }

    fn keeper(&self, hash: u64) -> Rank {
        (hash % u64::from(self.node.size())) as Rank
    }

    /// Where the entry for a hash may lie, in the order in which to look.
    fn probe(&self, hash: u64) -> Result<impl Iterator<Item = Entry> + use<>, Error> {
        let keeper = self.keeper(hash);
        let share = self.node.core.peers.get(keeper, self.node.timeout)?.directory();
        let first = hash >> 32;
        let entry = move |step| share.wrapping_add((first + step) % ENTRIES * ENTRY_BYTES);
        Ok((0..ENTRIES).map(move |step| Entry::at(keeper, entry(step))))
    }

    /// Reads the block that an entry points to.
    fn read(&self, entry: Entry, name: &str) -> Result<Looked, DirectoryError> {
        for _ in 0..RETRIES {
            let pointer = BlockPtr(self.node.atomic_load(entry.block)?);
            if pointer.is_none() {
                return Ok(Looked::Is(None));
            }
            let block = self.read_block(pointer);
            if BlockPtr(self.node.atomic_load(entry.block)?) == pointer {
                let (found, value) = block?;
                return Ok(if found == name.as_bytes() { Looked::Is(Some(value)) } else { Looked::Other });
            }
        }
        Err(restless(entry))
    }

    fn read_block(&self, pointer: BlockPtr) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let at = pointer.at();
        let [name_len, value_len] = self.node.get(at.cast::<[u32; 2]>())?;
        let (name_len, value_len) = ((name_len as usize).min(NAME_MAX), (value_len as usize).min(VALUE_MAX));
        let mut bytes = vec![0; name_len + value_len];
        self.node.get_slice(at.add(8), &mut bytes)?;
        let value = bytes.split_off(name_len);
        Ok((bytes, value))
    }
}

/// The error where somebody replaces an entry's value faster than it can be looked at.
fn restless(entry: Entry) -> DirectoryError {
    let what = "an entry of the directory changes without end".to_owned();
    Error::Protocol { peer: entry.hash.peer(), what }.into()
}

/// An entry with the right hash.
enum Looked {
    /// The name's value, or nothing yet.
    Is(Option<Vec<u8>>),
    /// Another name's value.
    Other,
}

fn check_name(name: &str) -> Result<(), DirectoryError> {
    match name.len() {
        1..=NAME_MAX => Ok(()),
        len => Err(DirectoryError::Name { len }),
    }
}

/// The same at every rank, and never 0.
fn hash(name: &str) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(0, 0);
    hasher.write(name.as_bytes());
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_pointers_keep_their_parts() {
        let at = GlobalPtr::new(1023, 0x3f_ffff_ffc0);
        let last = (1 << 14) - 1;
        let pointer = BlockPtr::new(last, at);
        assert_eq!((pointer.tag(), pointer.rank(), pointer.at()), (last, 1023, at));
        assert_eq!(BlockPtr::new(last + 1, at).tag(), 0);
        assert!(!pointer.is_none());
        assert!(pointer.withdrawn().is_none());
        assert_eq!(pointer.withdrawn().tag(), 0);
    }

    #[test]
    fn what_another_has_published_since_is_not_withdrawn() {
        let node = Node::open(crate::Config::new().heap_bytes(1 << 20)).expect("a job of one");
        let directory = node.directory();
        directory.publish("name", b"value").expect("published");
        let entry = directory.claim("name").expect("its own");
        let theirs = BlockPtr::new(7, GlobalPtr::new(5, 64));
        node.put(entry.block, theirs.0).expect("its own heap");
        assert_eq!(directory.withdraw("name"), Ok(false));
        assert_eq!(node.get(entry.block), Ok(theirs.0));
    }

    #[test]
    fn a_hash_is_never_that_of_an_empty_entry() {
        assert!((0..10_000).all(|n| hash(&n.to_string()) != 0));
        assert_eq!(hash("a name"), hash("a name"));
    }
}
