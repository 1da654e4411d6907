//! How users name remote memory: typed pointers into heaps, and raw addresses.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytemuck::Pod;
use engine::{MemId, Place, Rank};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::error::Memory;
use crate::base::grant_name::GrantName;

/// A `T` in some peer's heap. Plain data: copy it, send it, store it in the heap by its
/// [words](GlobalPtr::to_words).
///
/// Nothing guarantees that it points to what it should: using it reads or writes plain-old-data in a heap, or
/// ends with [`Error::Fault`](crate::Error::Fault), and is therefore safe.
pub struct GlobalPtr<T> {
    peer: Rank,
    offset: u64,
    points_to: PhantomData<fn() -> T>,
}

impl<T> GlobalPtr<T> {
    /// The `T` that lies `offset` bytes into the heap of `peer`.
    pub const fn new(peer: Rank, offset: u64) -> GlobalPtr<T> {
        GlobalPtr { peer, offset, points_to: PhantomData }
    }

    /// The rank whose heap it points into.
    #[inline]
    pub const fn peer(self) -> Rank {
        self.peer
    }

    /// Bytes from the start of that heap.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// The same place in the heap of `peer`. Numbers of peers that came by their
    /// [addresses](crate::Node::connect_to) are each node's own, and each has 0 itself. A pointer that one of
    /// them names to its own heap means something here once it bears the number that it has here. Of a third
    /// node's heap nobody else can tell.
    pub const fn at(self, peer: Rank) -> GlobalPtr<T> {
        GlobalPtr::new(peer, self.offset)
    }

    /// The same place as another type; not checked for alignment, which only atomics need.
    pub const fn cast<U>(self) -> GlobalPtr<U> {
        GlobalPtr::new(self.peer, self.offset)
    }

    /// The pointer as two words, to be stored or sent.
    pub const fn to_words(self) -> [u64; 2] {
        [self.peer as u64, self.offset]
    }

    /// The pointer that two words stand for.
    pub const fn from_words(words: [u64; 2]) -> GlobalPtr<T> {
        GlobalPtr::new(words[0] as Rank, words[1])
    }
}

impl<T: Pod> GlobalPtr<T> {
    /// The `count`-th `T` after this one; stays at the end of the offsets, where every access is a fault.
    #[inline]
    pub const fn add(self, count: usize) -> GlobalPtr<T> {
        GlobalPtr::new(
            self.peer,
            self.offset.saturating_add((count as u64).saturating_mul(size_of::<T>() as u64)),
        )
    }
}

impl<T> Clone for GlobalPtr<T> {
    fn clone(&self) -> GlobalPtr<T> {
        *self
    }
}

impl<T> Copy for GlobalPtr<T> {}

impl<T> PartialEq for GlobalPtr<T> {
    fn eq(&self, other: &GlobalPtr<T>) -> bool {
        (self.peer, self.offset) == (other.peer, other.offset)
    }
}

impl<T> Eq for GlobalPtr<T> {}

impl<T> Hash for GlobalPtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_words().hash(state);
    }
}

/// By peer, then by offset.
impl<T> Ord for GlobalPtr<T> {
    fn cmp(&self, other: &GlobalPtr<T>) -> Ordering {
        self.to_words().cmp(&other.to_words())
    }
}

impl<T> PartialOrd for GlobalPtr<T> {
    fn partial_cmp(&self, other: &GlobalPtr<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As the pair of peer and offset.
impl<T> Serialize for GlobalPtr<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.peer, self.offset).serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for GlobalPtr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GlobalPtr<T>, D::Error> {
        let (peer, offset) = Deserialize::deserialize(deserializer)?;
        Ok(GlobalPtr::new(peer, offset))
    }
}

impl<T> fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:heap+{:#x}", self.peer, self.offset)
    }
}

/// Any bytes of a peer: in its heap, in what it has granted, or anywhere in its address space.
///
/// Made from a [`GlobalPtr`], from the name of a grant by [`Remote::granted`], or from a raw address by
/// [`Remote::raw`], which is where the promise is made that using it does no harm. With a `Remote` at hand,
/// all operations are safe.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remote {
    pub(crate) peer: Rank,
    pub(crate) place: Place,
}

impl Remote {
    /// The bytes at virtual address `addr` of `peer`. An address that the peer has not mapped, or not with
    /// the rights needed, makes operations end with [`Error::Fault`](crate::Error::Fault).
    ///
    /// # Safety
    /// It holds as long as this value, copies of it and operations with it exist. A put through it must not
    /// change memory that the peer's program assumes not to change, nor make it a value invalid for its type.
    /// A get reads whatever is there at that moment, possibly in parts. Where the peer is this very process,
    /// both count for its own memory.
    ///
    /// Cross-memory attach finds the peer by its process number, as Linux has no form of it that takes a
    /// pidfd. Between the peer's end and the launcher's notice of it, the system could in theory give that
    /// number to a new process of the same user. An operation would then reach that process instead.
    pub const unsafe fn raw(peer: Rank, addr: u64) -> Remote {
        Remote { peer, place: Place::new(MemId::Space, addr) }
    }

    /// The first byte of what `peer` has granted by that name: the number that this node has for the one who
    /// granted it. [`Remote::plus`] leads to the others. This is safe: the owner has vouched for the memory,
    /// and looks at each access.
    ///
    /// Operations end with [`Error::Revoked`](crate::Error::Revoked) once the grant is revoked, or where the
    /// peer never had it. They end with [`Error::NotGranted`](crate::Error::NotGranted) where it is not for
    /// this process, or not for that, and with [`Error::Fault`](crate::Error::Fault) beyond its end.
    pub const fn granted(peer: Rank, name: GrantName) -> Remote {
        Remote { peer, place: Place::granted(name.id(), 0) }
    }

    /// The word of that type there, for [atomics](crate::Node::fetch): in a heap or in a grant. By raw
    /// address there are none, and they end with [`Error::Fault`](crate::Error::Fault).
    pub const fn word<T>(self) -> Word<T> {
        Word { at: self, points_to: PhantomData }
    }

    /// The rank whose memory it names.
    pub const fn peer(self) -> Rank {
        self.peer
    }

    /// The place `bytes` further on, or back where they are a negative number's two's complement.
    pub(crate) const fn wrapping_plus(self, bytes: u64) -> Remote {
        Remote { peer: self.peer, place: self.place.wrapping_plus(bytes) }
    }

    /// The place `bytes` further on; stays at the end of the addresses, where every access is a fault. From a
    /// grant it leads into no other one.
    pub const fn plus(self, bytes: u64) -> Remote {
        Remote { peer: self.peer, place: self.place.saturating_plus(bytes) }
    }

    /// Which memory of the peer it is in.
    pub const fn memory(self) -> Memory {
        match self.place.mem {
            MemId::Space => Memory::Private,
            MemId::Heap | MemId::Control => Memory::Heap,
            MemId::Grant(_) => Memory::Granted,
        }
    }

    /// The virtual address there, or the offset in the heap or grant.
    pub const fn addr(self) -> u64 {
        self.place.shown()
    }

    /// The place as two words, to be stored or sent.
    pub const fn to_words(self) -> [u64; 2] {
        [self.peer as u64 | self.place.mem.to_wire() << 32, self.place.offset]
    }

    /// The place that two words stand for; `None` where they stand for none.
    ///
    /// # Safety
    /// As [`Remote::raw`]: whoever sends words sends an address.
    pub const unsafe fn from_words([peer, addr]: [u64; 2]) -> Option<Remote> {
        let mem = match MemId::from_wire(peer >> 32) {
            Some(mem @ (MemId::Space | MemId::Heap | MemId::Grant(_))) => mem,
            _ => return None,
        };
        Some(Remote { peer: peer as Rank, place: Place::new(mem, addr) })
    }
}

/// A `T` of a peer that [atomics](crate::Node::fetch) and [signals](crate::Signal) change: in its heap, or in
/// what it has granted. They take a [`GlobalPtr`] as it is; [`Remote::word`] makes one of a place in a grant.
pub struct Word<T> {
    at: Remote,
    points_to: PhantomData<fn() -> T>,
}

impl<T> Word<T> {
    /// The rank whose memory it lies in.
    pub const fn peer(self) -> Rank {
        self.at.peer
    }

    /// Where it begins.
    #[inline(always)]
    pub const fn remote(self) -> Remote {
        self.at
    }
}

impl<T> Clone for Word<T> {
    fn clone(&self) -> Word<T> {
        *self
    }
}

impl<T> Copy for Word<T> {}

impl<T> PartialEq for Word<T> {
    fn eq(&self, other: &Word<T>) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Word<T> {}

impl<T> Hash for Word<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.at.hash(state);
    }
}

impl<T> fmt::Debug for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

impl<T> From<GlobalPtr<T>> for Word<T> {
    #[inline(always)]
    fn from(ptr: GlobalPtr<T>) -> Word<T> {
        let place = Place::new(MemId::Heap, ptr.offset);
        Word { at: Remote { peer: ptr.peer, place }, points_to: PhantomData }
    }
}

/// By peer, then memory, then address.
impl Ord for Remote {
    fn cmp(&self, other: &Remote) -> Ordering {
        let key = |remote: &Remote| (remote.peer, remote.place.mem.to_wire(), remote.place.offset);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Remote {
    fn partial_cmp(&self, other: &Remote) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As its [words](Remote::to_words). Nothing safe reads it back: that is [`Remote::from_words`].
impl Serialize for Remote {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_words().serialize(serializer)
    }
}

impl<T> From<GlobalPtr<T>> for Remote {
    #[inline]
    fn from(ptr: GlobalPtr<T>) -> Remote {
        Remote { peer: ptr.peer, place: Place::new(MemId::Heap, ptr.offset) }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.mem {
            MemId::Space => write!(f, "{}:{:#x}", self.peer, self.place.offset),
            MemId::Heap => write!(f, "{}:heap+{:#x}", self.peer, self.place.offset),
            MemId::Control => write!(f, "{}:control+{:#x}", self.peer, self.place.offset),
            MemId::Grant(_) => {
                let (grant, offset) = self.place.in_grant().expect("it lies in a grant");
                write!(f, "{}:grant {grant}+{offset:#x}", self.peer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use engine::GrantId;

    use super::*;

    #[test]
    fn places_go_through_words_and_back() {
        let pointer = GlobalPtr::<u64>::new(7, 64);
        assert_eq!(GlobalPtr::<u64>::from_words(pointer.to_words()), pointer);
        // SAFETY: nothing is ever put or gotten by way of it.
        let raw = unsafe { Remote::raw(u32::MAX, u64::MAX) };
        let name = GrantName::new(GrantId { line: 5, generation: 0x0fff_ffff }, 100);
        let granted = Remote::granted(u32::MAX, name).plus(99);
        assert_eq!(format!("{granted:?}"), "4294967295:grant 5.fffffff+0x63");
        assert_eq!((granted.memory(), granted.addr()), (Memory::Granted, 99));
        for remote in [raw, pointer.into(), granted] {
            // SAFETY: nothing is ever put or gotten by way of it.
            assert_eq!(unsafe { Remote::from_words(remote.to_words()) }, Some(remote));
        }
        assert_eq!((raw.memory(), raw.addr()), (Memory::Private, u64::MAX));
        assert_eq!((Remote::from(pointer).memory(), Remote::from(pointer).addr()), (Memory::Heap, 64));
        for unknown in [2, 4, u32::MAX] {
            // SAFETY: nothing is ever put or gotten by way of it.
            assert_eq!(unsafe { Remote::from_words([u64::from(unknown) << 32, 0]) }, None, "{unknown}");
        }
    }

    #[test]
    fn places_are_keys_and_go_through_serde() {
        let pointers = [(1, 8), (0, 16), (1, 0), (0, 16)].map(|(peer, at)| GlobalPtr::<u8>::new(peer, at));
        let sorted: Vec<_> = pointers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(sorted, [pointers[1], pointers[2], pointers[0]]);
        assert_eq!(pointers.iter().map(|p| Remote::from(*p)).collect::<HashSet<_>>().len(), 3);
        let bytes = postcard::to_stdvec(&pointers).expect("plain values");
        assert_eq!(postcard::from_bytes::<[GlobalPtr<u8>; 4]>(&bytes), Ok(pointers));
    }
}
