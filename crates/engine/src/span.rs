//! How the engine names memory: never by pointer, always by (memory id, offset, length).

use crate::grant_id::{GRANT_BYTES, GrantId, OFFSET_BITS};

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this process to the peer.
    Put,
    /// From the peer to this process.
    Get,
}

/// Which memory of a process an offset counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemId {
    /// The process's whole address space; the offset is the virtual address.
    Space,
    /// The process's heap segment, which peers may map.
    Heap,
    /// The words that the engine itself shares with peers (the barrier's counter).
    Control,
    /// A grant of the process's: this generation of the line that the offset's upper bits name. The lower
    /// bits count in the grant. See [`GrantId`].
    Grant(u32),
}

/// The lower bits of a memory's number on the wire say of what kind it is; a grant's generation lies above.
const KIND_BITS: u32 = 4;
const KINDS: u64 = (1 << KIND_BITS) - 1;
const GRANT: u64 = 3;

impl MemId {
    /// The id's number on the wire: 32 bits.
    pub const fn to_wire(self) -> u64 {
        match self {
            MemId::Space => 0,
            MemId::Heap => 1,
            MemId::Control => 2,
            MemId::Grant(generation) => GRANT | (generation as u64) << KIND_BITS,
        }
    }

    /// The id that a wire number stands for; `None` for any other number.
    pub const fn from_wire(number: u64) -> Option<MemId> {
        match number {
            0 => Some(MemId::Space),
            1 => Some(MemId::Heap),
            2 => Some(MemId::Control),
            _ if number & KINDS == GRANT && number <= u32::MAX as u64 => {
                Some(MemId::Grant((number >> KIND_BITS) as u32))
            }
            _ => None,
        }
    }
}

/// A byte's place in some process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which memory.
    pub mem: MemId,
    /// Bytes from that memory's start ([`MemId::Space`]: the virtual address).
    pub offset: u64,
}

impl Place {
    /// The place `offset` bytes into `mem`.
    pub const fn new(mem: MemId, offset: u64) -> Place {
        Place { mem, offset }
    }

    /// The first byte of a grant, or one behind it.
    pub const fn granted(grant: GrantId, offset: u64) -> Place {
        let offset = if offset < GRANT_BYTES { offset } else { GRANT_BYTES - 1 };
        Place { mem: MemId::Grant(grant.generation), offset: (grant.line as u64) << OFFSET_BITS | offset }
    }

    /// The grant that it lies in, and where in that; `None` in other memory.
    pub const fn in_grant(self) -> Option<(GrantId, u64)> {
        match self.mem {
            MemId::Grant(generation) => {
                let line = (self.offset >> OFFSET_BITS) as u32;
                Some((GrantId { line, generation }, self.offset & (GRANT_BYTES - 1)))
            }
            _ => None,
        }
    }

    /// The offset that users know: in the grant, where it lies in one.
    pub const fn shown(self) -> u64 {
        match self.in_grant() {
            Some((_, offset)) => offset,
            None => self.offset,
        }
    }

    /// The place `bytes` further on, or at the end of its memory, where nothing ever lies.
    pub const fn saturating_plus(self, bytes: u64) -> Place {
        match self.in_grant() {
            Some((grant, offset)) => Place::granted(grant, offset.saturating_add(bytes)),
            None => Place { mem: self.mem, offset: self.offset.saturating_add(bytes) },
        }
    }

    /// The place `bytes` further on, or back where they are a negative number's two's complement. From before
    /// the start of a grant it goes to the end, where nothing ever lies.
    pub const fn wrapping_plus(self, bytes: u64) -> Place {
        match self.in_grant() {
            Some((grant, offset)) => Place::granted(grant, offset.wrapping_add(bytes)),
            None => Place { mem: self.mem, offset: self.offset.wrapping_add(bytes) },
        }
    }

    /// Bytes from there to where no memory of its kind goes on.
    const fn room(self) -> u64 {
        match self.in_grant() {
            Some((_, offset)) => GRANT_BYTES - offset,
            None => u64::MAX - self.offset,
        }
    }

    /// The place `bytes` further on; wraps at 2^64, which no valid piece reaches (see [`Piece::new`]).
    pub const fn plus(self, bytes: u64) -> Place {
        Place { mem: self.mem, offset: self.offset.wrapping_add(bytes) }
    }
}

/// One contiguous part of a transfer: `len` bytes between a peer's memory and this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the bytes are, or go, at the peer.
    pub remote: Place,
    /// Where the bytes are, or go, here.
    pub local: Place,
    /// Bytes.
    pub len: u64,
}

impl Piece {
    /// A piece, or `None` where either end would run past 2^64, or past where grants end.
    pub fn new(remote: Place, local: Place, len: u64) -> Option<Piece> {
        (len <= remote.room() && len <= local.room()).then_some(Piece { remote, local, len })
    }

    /// Splits off the piece's first part: at most `most` bytes. It ends no further than the end of the remote
    /// bucket that it starts in, so that an access error names the very bucket. The rest is `None` when
    /// nothing is left.
    ///
    /// `most` must not be zero.
    pub fn cut(self, most: u64, bucket: BucketSize) -> (Piece, Option<Piece>) {
        assert!(most > 0, "a piece cannot be cut into empty parts");
        let to_edge = bucket.end(self.remote.offset) - self.remote.offset;
        let len = self.len.min(most).min(to_edge);
        let first = Piece { len, ..self };
        let rest = (len < self.len).then(|| Piece {
            remote: self.remote.plus(len),
            local: self.local.plus(len),
            len: self.len - len,
        });
        (first, rest)
    }
}

/// The size of a bucket: 2^k bytes, the unit in which memory is accounted and faults are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSize {
    shift: u32,
}

impl BucketSize {
    /// Buckets of 2^`shift` bytes; `None` below a 4-KiB page or above 1 TiB.
    pub const fn new(shift: u32) -> Option<BucketSize> {
        if shift >= 12 && shift <= 40 { Some(BucketSize { shift }) } else { None }
    }

    /// Bytes of a bucket.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The number of the bucket that holds `offset`.
    pub const fn index(self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// The first offset after the bucket that holds `offset`, or the last offset of all in the very last
    /// bucket.
    pub const fn end(self, offset: u64) -> u64 {
        (offset | (self.bytes() - 1)).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant_id::GENERATIONS;
    use proptest::prelude::*;

    #[test]
    fn a_piece_that_wraps_is_refused() {
        let space = |offset| Place::new(MemId::Space, offset);
        assert!(Piece::new(space(u64::MAX), space(0), 1).is_none());
        assert!(Piece::new(space(0), space(u64::MAX - 3), 4).is_none());
        assert!(Piece::new(space(u64::MAX - 4), space(0), 4).is_some());
    }

    #[test]
    fn memory_ids_survive_the_wire_and_strangers_do_not() {
        for mem in [MemId::Space, MemId::Heap, MemId::Control, MemId::Grant(0), MemId::Grant(GENERATIONS - 1)]
        {
            assert_eq!(MemId::from_wire(mem.to_wire()), Some(mem));
        }
        for stranger in [4, 16, 1 << 32 | 3, u64::MAX] {
            assert_eq!(MemId::from_wire(stranger), None, "{stranger:#x}");
        }
    }

    proptest! {
        #[test]
        fn cuts_cover_the_piece_once_and_stay_in_their_bucket(
            remote in 0u64..1 << 30, local in 0u64..1 << 30, len in 1u64..1 << 18, most in 1u64..1 << 16,
        ) {
            let bucket = BucketSize::new(13).expect("13 is between 12 and 40");
            let whole = Piece::new(Place::new(MemId::Space, remote), Place::new(MemId::Heap, local), len)
                .expect("both ends are far below 2^64");
            let (mut done, mut rest) = (0, Some(whole));
            while let Some(piece) = rest {
                let (first, next) = piece.cut(most.max(64), bucket);
                prop_assert_eq!(first.remote.offset, remote + done);
                prop_assert_eq!(first.local.offset, local + done);
                prop_assert!(first.len > 0 && first.len <= most.max(64));
                prop_assert_eq!(bucket.index(first.remote.offset), bucket.index(first.remote.offset + first.len - 1));
                done += first.len;
                rest = next;
            }
            prop_assert_eq!(done, len);
        }
    }
}
