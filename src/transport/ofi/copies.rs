//! Copies by key that are under way, and how they are cut into operations of the provider.
//!
//! The pieces of a copy are taken one after the other, as one long run of bytes at the local end. A *part* is a stretch
//! of that run: as long as a buffer, and over no more pieces than the provider takes in one operation.

use engine::{Direction, KeyedPiece, OpError, OpId, Rank};
use fabric::{Description, PIECES_MAX, Peer, RemotePiece};
use slab::Slab;

use super::port::{Buffer, Size};

/// A place in the run of a copy's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The piece.
    pub(super) piece: usize,
    /// Bytes of it before the place.
    pub(super) offset: u64,
}

/// A stretch of a copy's bytes that goes as one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Which copy.
    pub(super) copy: usize,
    pub(super) from: Cursor,
    pub(super) len: usize,
    /// It only finds out whether the writes before it have arrived.
    pub(super) confirms: bool,
}

/// One copy.
pub(super) struct Copy {
    pub(super) op: OpId,
    pub(super) rank: Rank,
    pub(super) peer: Peer,
    pub(super) direction: Direction,
    pub(super) pieces: Vec<KeyedPiece>,
    /// What comes next.
    pub(super) next: Cursor,
    /// A part that the provider had no room for, in its buffer.
    pub(super) ready: Option<(Buffer, Part)>,
    /// Parts that the provider has.
    pub(super) under_way: usize,
    /// Its end may be reported: nothing that was written is still on its way.
    pub(super) confirmed: bool,
    /// Its caller wants no more of it: local memory is touched no more.
    pub(super) given_up: bool,
    pub(super) error: Option<OpError>,
    pub(super) reported: bool,
    /// Whether it stands in its link's list of those that wait.
    pub(super) waits: bool,
}

impl Copy {
    /// Whether no more of it is to be started.
    pub(super) fn is_started(&self) -> bool {
        self.given_up || self.error.is_some() || self.next.piece == self.pieces.len()
    }
}

/// All copies of a transport.
pub(super) struct Copies {
    pub(super) all: Slab<Copy>,
    /// Parts that the provider has, by the number that it knows them by.
    pub(super) parts: Slab<Part>,
    /// Lists of pieces that are over, for those to come.
    spare: Vec<Vec<KeyedPiece>>,
    /// Pieces in one operation.
    pub(super) pieces_max: usize,
    /// Whether remote addresses are addresses, and not offsets in a registration.
    virt_addr: bool,
    /// Whether the provider says when a write has arrived.
    pub(super) delivers: bool,
}

impl Copies {
    pub(super) fn new(description: &Description) -> Copies {
        Copies {
            all: Slab::new(),
            parts: Slab::new(),
            spare: Vec::new(),
            pieces_max: description.remote_pieces.clamp(1, PIECES_MAX),
            virt_addr: description.mr_mode.virt_addr,
            delivers: description.delivery,
        }
    }

    /// Adds a copy of these pieces, but for empty ones.
    pub(super) fn insert(
        &mut self,
        op: OpId,
        rank: Rank,
        peer: Peer,
        direction: Direction,
        pieces: &[KeyedPiece],
    ) -> usize {
        let mut own = self.spare.pop().unwrap_or_default();
        own.extend(pieces.iter().filter(|keyed| keyed.piece.len > 0));
        self.all.insert(Copy {
            op,
            rank,
            peer,
            direction,
            pieces: own,
            next: Cursor::default(),
            ready: None,
            under_way: 0,
            confirmed: direction == Direction::Get || self.delivers,
            given_up: false,
            error: None,
            reported: false,
            waits: false,
        })
    }

    /// Forgets a copy that is over.
    pub(super) fn remove(&mut self, copy: usize) {
        let mut pieces = self.all.remove(copy).pieces;
        pieces.clear();
        self.spare.push(pieces);
    }

    /// The part that comes next.
    pub(super) fn plan(&self, copy: usize) -> Part {
        let Copy { pieces, next, .. } = &self.all[copy];
        Part { copy, from: *next, len: fit(pieces, *next, self.pieces_max), confirms: false }
    }

    /// Goes past a part.
    pub(super) fn pass(&mut self, part: &Part) {
        let Copy { pieces, next, .. } = &mut self.all[part.copy];
        *next = end_of(pieces, part);
    }

    /// A part at the far end: so many pieces, and the rest of the list is not used.
    pub(super) fn remote(&self, part: &Part) -> ([RemotePiece; PIECES_MAX], usize) {
        let mut list = [RemotePiece { addr: 0, len: 0, key: 0 }; PIECES_MAX];
        let mut count = 0;
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, _, len| {
            let start = if self.virt_addr { 0 } else { keyed.base };
            let addr = keyed.piece.remote.offset.wrapping_sub(start) + offset;
            list[count] = RemotePiece { addr, len, key: keyed.key.0 };
            count += 1;
        });
        (list, count)
    }

    /// Copies a part from the caller's memory to its buffer.
    pub(super) fn fill(&self, part: &Part, buffer: &Buffer) {
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, at, len| {
            buffer.fill(at, keyed.piece.local.plus(offset), len);
        });
    }

    /// Copies a part from its buffer to the caller's memory.
    pub(super) fn drain(&self, part: &Part, buffer: &Buffer) {
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, at, len| {
            buffer.drain(at, keyed.piece.local.plus(offset), len);
        });
    }
}

/// Calls `each` with every piece that a part has bytes of, where in the piece they begin, where in the part, and how many
/// they are.
fn stretch(pieces: &[KeyedPiece], part: &Part, mut each: impl FnMut(&KeyedPiece, u64, usize, usize)) {
    let Cursor { mut piece, mut offset } = part.from;
    let mut at = 0;
    while at < part.len {
        let keyed = &pieces[piece];
        let run = (keyed.piece.len - offset).min((part.len - at) as u64) as usize;
        each(keyed, offset, at, run);
        (piece, offset, at) = (piece + 1, 0, at + run);
    }
}

/// Bytes from a place on that go as one part.
fn fit(pieces: &[KeyedPiece], from: Cursor, pieces_max: usize) -> usize {
    let rest = pieces[from.piece..].iter().take(pieces_max).map(|keyed| keyed.piece.len);
    let len = rest.fold(0_u64, u64::saturating_add) - from.offset;
    len.min(Size::Large.bytes() as u64) as usize
}

/// The place after a part.
fn end_of(pieces: &[KeyedPiece], part: &Part) -> Cursor {
    let mut end = part.from;
    stretch(pieces, part, |keyed, offset, _, len| {
        end.offset = offset + len as u64;
        if end.offset == keyed.piece.len {
            end = Cursor { piece: end.piece + 1, offset: 0 };
        }
    });
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Key, MemId, Piece, Place};
    use proptest::prelude::*;

    fn pieces(lens: &[u64]) -> Vec<KeyedPiece> {
        let mut at = 0;
        let piece = |len: &u64| {
            let (remote, local) = (Place::new(MemId::Space, 3 * at), Place::new(MemId::Space, at));
            at += len;
            let piece = Piece::new(remote, local, *len).expect("it does not wrap");
            KeyedPiece { piece, key: Key(0), base: 0, local: None }
        };
        lens.iter().map(piece).collect()
    }

    proptest! {
        /// The parts of a copy are all of it, in order, each within what a buffer and the provider take.
        #[test]
        fn parts_cover_every_byte_once(
            lens in proptest::collection::vec(prop_oneof![1_u64..100, 1_u64..200_000], 1..40), pieces_max in 1_usize..6,
        ) {
            let pieces = pieces(&lens);
            let (mut next, mut covered) = (Cursor::default(), 0);
            while next.piece < pieces.len() {
                let len = fit(&pieces, next, pieces_max);
                prop_assert!(0 < len && len <= Size::Large.bytes());
                let part = Part { copy: 0, from: next, len, confirms: false };
                let (mut count, mut gathered) = (0, 0);
                stretch(&pieces, &part, |keyed, offset, at, run| {
                    assert_eq!(keyed.piece.local.offset + offset, covered, "bytes are left out or come twice");
                    assert_eq!((at, run > 0), (gathered, true));
                    assert!(offset + run as u64 <= keyed.piece.len);
                    (count, gathered, covered) = (count + 1, at + run, covered + run as u64);
                });
                prop_assert!(count <= pieces_max && gathered == len);
                next = end_of(&pieces, &part);
            }
            prop_assert_eq!((covered, next.offset), (lens.iter().sum::<u64>(), 0));
        }
    }
}
