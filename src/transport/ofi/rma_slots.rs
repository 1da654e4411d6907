//! Copies of few bytes that are under way, each in a slot: with a buffer and an operation of the provider's
//! that is prepared.

use engine::{Direction, Key, KeyedPiece, MemId, OpId, Piece, Place, Rank};
use fabric::Prepared;

/// The slot that nothing is started from, and what follows the last free one.
const SPARE: u32 = 0;

/// The provider's name for the first slot; buffers have lower names.
const FIRST_TOKEN: u64 = 1 << 63;

/// A slot, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(u32);

/// A place for one copy at a time, whose local end is not registered.
pub(super) struct Slot {
    /// Where its buffer lies in this process.
    pub(super) buffer: usize,
    prepared: Prepared,
    /// Its use, now or the last time.
    pub(super) op: OpId,
    pub(super) rank: Rank,
    pub(super) len: u64,
    /// In this process's space, and in the peer's; with the key for that, and where it begins.
    pub(super) local: u64,
    remote: u64,
    key: Key,
    base: u64,
    /// The copy's end is to be reported.
    pub(super) wanted: bool,
    /// Its bytes come in, and are to go where they belong in this process.
    pub(super) drains: bool,
    /// While it is free: the next one.
    next: u32,
}

impl Slot {
    fn new(buffer: usize, prepared: Prepared) -> Slot {
        Slot {
            buffer,
            prepared,
            op: OpId::NONE,
            rank: 0,
            len: 0,
            local: 0,
            remote: 0,
            key: Key(0),
            base: 0,
            wanted: false,
            drains: false,
            next: SPARE,
        }
    }

    /// It is taken for this copy. Word by word, as nothing else of the piece is kept. Returns what is to be
    /// started.
    #[inline(always)]
    pub(super) fn lend(
        &mut self,
        op: OpId,
        rank: Rank,
        direction: Direction,
        keyed: &KeyedPiece,
    ) -> Prepared {
        self.op = op;
        self.rank = rank;
        self.len = keyed.piece.len;
        self.local = keyed.piece.local.offset;
        self.remote = keyed.piece.remote.offset;
        self.key = keyed.key;
        self.base = keyed.base;
        self.wanted = true;
        self.drains = direction == Direction::Get;
        self.prepared
    }

    /// The copy that it has just been lent for.
    fn lent_for(&self) -> (OpId, Rank, Direction, KeyedPiece) {
        let space = |offset| Place::new(MemId::Space, offset);
        let piece = Piece { remote: space(self.remote), local: space(self.local), len: self.len };
        let direction = if self.drains { Direction::Get } else { Direction::Put };
        let keyed = KeyedPiece { piece, key: self.key, base: self.base, local: None };
        (self.op, self.rank, direction, keyed)
    }
}

/// All slots of an endpoint, and one that nothing is ever started from: it is taken where none is free.
pub(super) struct Slots {
    all: Vec<Slot>,
    free: u32,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { all: vec![Slot::new(0, Prepared::NONE)], free: SPARE }
    }
}

impl Slots {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len() - 1
    }

    /// Whether one is free.
    pub(super) fn has_free(&self) -> bool {
        self.free != SPARE
    }

    /// The provider's name for the next one.
    pub(super) fn next_token(&self) -> u64 {
        FIRST_TOKEN | self.all.len() as u64
    }

    /// Adds a free one.
    pub(super) fn add(&mut self, buffer: usize, prepared: Prepared) {
        let slot = Slot { next: self.free, ..Slot::new(buffer, prepared) };
        self.free = u32::try_from(self.all.len()).expect("there are a few");
        self.all.push(slot);
    }

    /// Takes one that is free, or the spare one.
    #[inline(always)]
    pub(super) fn take(&mut self) -> (SlotId, &mut Slot) {
        let at = self.free;
        let slot = &mut self.all[at as usize];
        self.free = slot.next;
        (SlotId(at), slot)
    }

    /// Takes the copy back that a slot has just been lent for, and was not started.
    pub(super) fn take_back(&mut self, id: SlotId) -> (OpId, Rank, Direction, KeyedPiece) {
        let slot = &mut self.all[id.0 as usize];
        slot.wanted = false;
        let copy = slot.lent_for();
        if id.0 != SPARE {
            self.put_back(id);
        }
        copy
    }

    /// The slot that the provider calls so.
    #[inline(always)]
    pub(super) fn named(token: u64) -> Option<SlotId> {
        (token >= FIRST_TOKEN).then_some(SlotId(token as u32))
    }

    /// One that is taken.
    #[inline(always)]
    pub(super) fn get(&mut self, SlotId(at): SlotId) -> Option<&mut Slot> {
        self.all.get_mut(at as usize)
    }

    /// The provider is done with a slot: from now on it is free.
    #[inline(always)]
    pub(super) fn put_back(&mut self, SlotId(at): SlotId) {
        let slot = &mut self.all[at as usize];
        slot.wanted = false;
        slot.next = self.free;
        self.free = at;
    }

    /// Those with something to report.
    pub(super) fn under_way(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.all.iter_mut().filter(|slot| slot.wanted)
    }
}
