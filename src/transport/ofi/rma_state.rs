//! Copies by key that are under way, and how they are cut into operations of the provider.
//!
//! The pieces of a copy are taken one after the other, as one long run of bytes at the local end. A *part* is
//! a stretch of that run, over no more pieces than the provider takes in one operation. It goes straight from
//! or to the caller's memory, or through a buffer of this transport, and then is no longer than that.

use engine::{Direction, Key, KeyedPiece, MemId, OpError, OpId, Piece, Place, Rank, RegId};
use fabric::{Desc, Description, PIECES_MAX, Peer, RemotePiece};
use slab::Slab;

use super::buffers::{Buffer, Buffers, Size};
use super::endpoint::Lent;
use super::link::DIRECT;
use super::provider::one_sided_min;
use crate::base::limits::DIRECT_BYTES;

/// A place in the run of a copy's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// It goes straight from or to the caller's memory.
    pub(super) direct: bool,
    /// It only finds out whether the writes before it have arrived.
    pub(super) confirms: bool,
}

/// One copy.
pub(super) struct RmaOp {
    pub(super) op: OpId,
    pub(super) rank: Rank,
    pub(super) peer: Peer,
    pub(super) direction: Direction,
    pub(super) pieces: Vec<KeyedPiece>,
    /// The next step.
    pub(super) next: Cursor,
    /// The pooled endpoint of its direct parts; `None`: it has none. And the bytes of such a part, at most.
    pub(super) pooled: Option<usize>,
    pub(super) direct_max: usize,
    /// Parts that the provider has.
    pub(super) under_way: usize,
    /// Its end may be reported: nothing that was written is still on its way.
    pub(super) confirmed: bool,
    /// Nobody wants more of it: local memory is touched no more.
    pub(super) given_up: bool,
    /// Why it was given up, if this transport did that, though the peer is there.
    pub(super) fault: Option<OpError>,
    /// Writes of it were broken off, and may still arrive: its end is reported once the peer has said that
    /// the endpoint is closed by which they would.
    pub(super) doubtful: bool,
    pub(super) error: Option<OpError>,
    pub(super) reported: bool,
    /// The kind of place that it waits for, in its link's list.
    pub(super) waits: Option<usize>,
}

impl Part {
    /// The kind of place that it takes while it is under way, as in [`PARTS`](super::link::PARTS).
    pub(super) fn kind(&self) -> usize {
        if self.direct { DIRECT } else { self.size() as usize }
    }

    /// The buffer that it needs, if it needs one.
    pub(super) fn size(&self) -> Size {
        if self.len <= Size::Small.bytes() { Size::Small } else { Size::Large }
    }
}

impl RmaOp {
    /// Bytes of all its pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|keyed| keyed.piece.len).fold(0, u64::saturating_add)
    }

    /// Whether no more of it is to be started.
    pub(super) fn is_started(&self) -> bool {
        self.given_up || self.error.is_some() || self.next.piece == self.pieces.len()
    }

    /// Begins anew from there, the first of the parts that the provider had and that are gone.
    pub(super) fn restart(&mut self, from: Cursor) {
        self.next = self.next.min(from);
        self.doubtful |= self.direction == Direction::Put;
    }
}

/// All copies of a transport.
pub(super) struct RmaOps {
    pub(super) all: Slab<RmaOp>,
    /// Parts that the provider has, by the number that it knows them by.
    pub(super) parts: Slab<Part>,
    /// Lists of pieces that are over, for those to come.
    spare: Vec<Vec<KeyedPiece>>,
    /// Pieces in one operation: far ones, and those of both ends.
    pub(super) pieces_max: usize,
    direct_pieces_max: usize,
    /// Bytes in one.
    message_bytes: usize,
    /// Whether local memory must be registered, too.
    pub(super) registers_local: bool,
    /// Remote addresses count from a registration's beginning where all bits are set, and from nought where
    /// none is.
    based: u64,
    /// Whether the provider says when a write has arrived.
    pub(super) delivers: bool,
    /// Bytes that go in a slot, by direction: no puts, where arrival must be found out.
    pub(super) small_max: [u64; 2],
    /// Bytes of one piece from which copies to and from heaps had better not go by message.
    pub(super) heap_min: u64,
}

impl RmaOps {
    pub(super) fn new(description: &Description) -> RmaOps {
        let small = Size::Small.bytes() as u64;
        let mut small_max = [small; 2];
        if !description.delivery {
            small_max[Direction::Put as usize] = 0;
        }
        RmaOps {
            all: Slab::new(),
            parts: Slab::new(),
            spare: Vec::new(),
            pieces_max: description.remote_pieces.clamp(1, PIECES_MAX),
            direct_pieces_max: description.remote_pieces.min(description.local_pieces).clamp(1, PIECES_MAX),
            message_bytes: description.message_bytes,
            registers_local: description.mr_mode.local,
            based: if description.mr_mode.virt_addr { 0 } else { u64::MAX },
            delivers: description.delivery,
            small_max,
            heap_min: one_sided_min(&description.provider),
        }
    }

    /// Bytes of the parts that the provider has.
    pub(super) fn bytes_on_the_way(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.len as u64).sum()
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
        self.all.insert(RmaOp {
            op,
            rank,
            peer,
            direction,
            pieces: own,
            next: Cursor::default(),
            pooled: None,
            direct_max: DIRECT_BYTES,
            under_way: 0,
            confirmed: direction == Direction::Get || self.delivers,
            given_up: false,
            fault: None,
            doubtful: false,
            error: None,
            reported: false,
            waits: None,
        })
    }

    /// Those with a peer.
    pub(super) fn with(&self, rank: Rank) -> Vec<usize> {
        self.all.iter().filter(|(_, copy)| copy.rank == rank).map(|(copy, _)| copy).collect()
    }

    /// Forgets a copy that is over.
    pub(super) fn remove(&mut self, copy: usize) {
        let mut pieces = self.all.remove(copy).pieces;
        pieces.clear();
        self.spare.push(pieces);
    }

    /// The part that comes next: one that only confirms, when all has been started.
    pub(super) fn next_part(&self, copy: usize) -> Part {
        if self.all[copy].is_started() {
            return Part { copy, from: Cursor::default(), len: 1, direct: false, confirms: true };
        }
        self.plan(copy)
    }

    /// Whether a part's bytes are the caller's, and go out.
    pub(super) fn sends(&self, part: &Part) -> bool {
        self.all[part.copy].direction == Direction::Put && !part.confirms
    }

    /// The part that comes next of those with bytes. Where only some of the local memory is registered, that
    /// goes by itself.
    fn plan(&self, copy: usize) -> Part {
        let RmaOp { pieces, next, pooled, direct_max, .. } = &self.all[copy];
        let direct =
            |piece: &KeyedPiece| pooled.is_some() && (piece.local.is_some() || !self.registers_local);
        let is_direct = direct(&pieces[next.piece]);
        let (pieces_max, bytes_max) = if is_direct {
            (self.direct_pieces_max, self.message_bytes.min(*direct_max))
        } else {
            (self.pieces_max, Size::Large.bytes())
        };
        let alike =
            pieces[next.piece..].iter().take(pieces_max).take_while(|piece| direct(piece) == is_direct);
        let len = fit(alike, next.offset, bytes_max);
        Part { copy, from: *next, len, direct: is_direct, confirms: false }
    }

    /// Goes past a part.
    pub(super) fn pass(&mut self, part: &Part) {
        let RmaOp { pieces, next, .. } = &mut self.all[part.copy];
        *next = end_of(pieces, part);
    }

    /// A stretch of a peer's memory, in a registration that begins at `base`.
    #[inline]
    pub(super) fn far(&self, place: Place, base: u64, len: usize, key: Key) -> RemotePiece {
        RemotePiece { addr: place.offset.wrapping_sub(base & self.based), len, key: key.0 }
    }

    /// A part at the far end: so many pieces, and the rest of the list is not used.
    pub(super) fn remote(&self, part: &Part) -> ([RemotePiece; PIECES_MAX], usize) {
        let mut list = [RemotePiece { addr: 0, len: 0, key: 0 }; PIECES_MAX];
        let mut count = 0;
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, _, len| {
            list[count] = self.far(keyed.piece.remote.plus(offset), keyed.base, len, keyed.key);
            count += 1;
        });
        (list, count)
    }

    /// A part at the near end, likewise; `desc` is asked for what the provider wants to know of a
    /// registration.
    pub(super) fn local(
        &self,
        part: &Part,
        mut desc: impl FnMut(RegId) -> Desc,
    ) -> ([Lent; PIECES_MAX], usize) {
        let nothing = Lent { place: Place::new(MemId::Space, 0), len: 0, desc: Desc::NONE };
        let (mut list, mut count) = ([nothing; PIECES_MAX], 0);
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, _, len| {
            let registered = keyed.local.filter(|_| self.registers_local);
            let desc = registered.map_or(Desc::NONE, &mut desc);
            list[count] = Lent { place: keyed.piece.local.plus(offset), len, desc };
            count += 1;
        });
        (list, count)
    }

    /// As [`missing`], of a part of one of these copies.
    pub(super) fn missing(&self, part: &Part, is_there: impl FnMut(Place, u64) -> bool) -> Option<Piece> {
        missing(&self.all[part.copy].pieces, part, is_there)
    }

    /// Copies a part from the caller's memory to its buffer.
    pub(super) fn fill(&self, part: &Part, buffers: &Buffers, buffer: &Buffer) {
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, at, len| {
            buffers.fill(buffer, at, keyed.piece.local.plus(offset), len);
        });
    }

    /// Copies a part from its buffer to the caller's memory.
    pub(super) fn drain(&self, part: &Part, buffers: &Buffers, buffer: &Buffer) {
        stretch(&self.all[part.copy].pieces, part, |keyed, offset, at, len| {
            buffers.drain(buffer, at, keyed.piece.local.plus(offset), len);
        });
    }
}

/// Calls `each` with every piece that a part has bytes of, where in the piece they begin, where in the part,
/// and how many they are.
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

/// The first piece of which a part has bytes that lie nowhere here, as `is_there` says of stretches. Of a
/// copy that is one small part it is not asked: that may cost as much as copying.
fn missing(
    pieces: &[KeyedPiece],
    part: &Part,
    mut is_there: impl FnMut(Place, u64) -> bool,
) -> Option<Piece> {
    let is_all = part.from == Cursor::default() && end_of(pieces, part).piece == pieces.len();
    if is_all && part.len <= Size::Small.bytes() {
        return None;
    }
    let mut missing = None;
    stretch(pieces, part, |keyed, offset, _, len| {
        if missing.is_none() && !is_there(keyed.piece.local.plus(offset), len as u64) {
            missing = Some(keyed.piece);
        }
    });
    missing
}

/// Bytes of these pieces, the first from `offset` on, that go as one part.
fn fit<'a>(pieces: impl Iterator<Item = &'a KeyedPiece>, offset: u64, bytes_max: usize) -> usize {
    let len = pieces.map(|keyed| keyed.piece.len).fold(0_u64, u64::saturating_add) - offset;
    len.min(bytes_max as u64) as usize
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
    use engine::Piece;
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

    #[test]
    fn only_a_parts_own_bytes_are_looked_for() {
        let pieces = pieces(&[10, 200_000, 30]);
        let mut asked = Vec::new();
        let mut part = Part {
            copy: 0,
            from: Cursor { piece: 1, offset: 150_000 },
            len: 50_020,
            direct: false,
            confirms: false,
        };
        let found = missing(&pieces, &part, |place, len| {
            asked.push((place.offset, len));
            len != 20
        });
        assert_eq!((found, asked), (Some(pieces[2].piece), vec![(150_010, 50_000), (200_010, 20)]));
        let nowhere = |_, _| false;
        (part.from, part.len) = (Cursor::default(), 10);
        assert_eq!(missing(&pieces, &part, nowhere), Some(pieces[0].piece), "a long copy's first part");
        assert_eq!(missing(&pieces[..1], &part, nowhere), None, "one small part");
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
                let rest = pieces[next.piece..].iter().take(pieces_max);
                let len = fit(rest, next.offset, Size::Large.bytes());
                prop_assert!(0 < len && len <= Size::Large.bytes());
                let part = Part { copy: 0, from: next, len, direct: false, confirms: false };
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
