//! One worker's blocks: a store under a memory cap that recycles the least recently used block, unless a peer
//! is reading it.

use lru::LruCache;

/// A block's memory: one ordinary allocation a layer, as serving engines hold it.
pub type Pieces = Vec<Vec<u8>>;

/// The place of a block in the worker's table of records, where peers look it up.
pub type Slot = usize;

/// Says whether a block's memory may be taken back.
pub trait Pins {
    /// Asks for the memory of block `id` in `slot`. True means that it was taken back: from now on no peer
    /// starts to read it, and none is reading it. False means that a peer reads it, or has wanted it lately:
    /// the store then treats it as just used and asks for another.
    fn recycle(&mut self, slot: Slot, id: u64) -> bool;
}

/// Blocks in order of their last use, at most `cap_bytes` of them.
#[derive(Debug)]
pub struct Store {
    blocks: LruCache<u64, Block>,
    free_slots: Vec<Slot>,
    used_bytes: usize,
    cap_bytes: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Block {
    slot: Slot,
    bytes: usize,
    pieces: Pieces,
}

impl Store {
    /// A store of at most `cap_bytes` of block memory and at most `slots` blocks.
    #[must_use]
    pub fn new(cap_bytes: usize, slots: usize) -> Self {
        Self {
            blocks: LruCache::unbounded(),
            free_slots: (0..slots).rev().collect(),
            used_bytes: 0,
            cap_bytes,
            evictions: 0,
        }
    }

    /// The block's pieces, if it is held; it becomes the most recently used.
    pub fn get(&mut self, id: u64) -> Option<&Pieces> {
        self.blocks.get(&id).map(|block| &block.pieces)
    }

    /// Takes a block in, recycling others until it fits. Gives its slot, or the pieces back if no room could
    /// be made because peers read everything that is held, or because the block alone passes the cap.
    ///
    /// # Errors
    /// The pieces, when there is no room for them.
    ///
    /// # Panics
    /// If the block is held already.
    pub fn insert(&mut self, id: u64, pieces: Pieces, pins: &mut impl Pins) -> Result<Slot, Pieces> {
        assert!(!self.blocks.contains(&id), "block {id} is held already");
        let bytes = pieces.iter().map(Vec::len).sum();
        if bytes > self.cap_bytes {
            return Err(pieces);
        }
        while self.used_bytes + bytes > self.cap_bytes || self.free_slots.is_empty() {
            if !self.evict(pins) {
                return Err(pieces);
            }
        }
        let Some(slot) = self.free_slots.pop() else { return Err(pieces) };
        self.used_bytes += bytes;
        self.blocks.put(id, Block { slot, bytes, pieces });
        self.check();
        Ok(slot)
    }

    /// The slots of all blocks held, with their ids.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, u64)> {
        self.blocks.iter().map(|(&id, block)| (block.slot, id))
    }

    /// Bytes of block memory held now; never more than the cap.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Blocks recycled so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Recycles one block: its memory goes back to the allocator before this returns.
    fn evict(&mut self, pins: &mut impl Pins) -> bool {
        // Twice round: a block refused the first time only because it was wanted lately may go the second
        // time.
        for _ in 0..2 * self.blocks.len() {
            let Some((&id, block)) = self.blocks.peek_lru() else { return false };
            if !pins.recycle(block.slot, id) {
                self.blocks.promote(&id);
                continue;
            }
            let Some((_, block)) = self.blocks.pop_lru() else { return false };
            self.used_bytes -= block.bytes;
            self.free_slots.push(block.slot);
            self.evictions += 1;
            return true;
        }
        false
    }

    fn check(&self) {
        assert!(self.used_bytes <= self.cap_bytes, "{} of {} bytes used", self.used_bytes, self.cap_bytes);
        debug_assert_eq!(self.used_bytes, self.blocks.iter().map(|(_, block)| block.bytes).sum::<usize>());
    }
}

/// Where the pieces lie in this process, for peers to pull them from.
#[must_use]
pub fn addresses(pieces: &Pieces) -> Vec<u64> {
    pieces.iter().map(|piece| piece.as_ptr().expose_provenance() as u64).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Pinned slots always refuse; wanted ones refuse once.
    #[derive(Default)]
    struct Readers {
        pinned: BTreeSet<u64>,
        wanted: BTreeSet<u64>,
        recycled: Vec<u64>,
    }

    impl Pins for Readers {
        fn recycle(&mut self, _slot: Slot, id: u64) -> bool {
            let yes = !self.pinned.contains(&id) && !self.wanted.remove(&id);
            if yes {
                self.recycled.push(id);
            }
            yes
        }
    }

    fn block(bytes: usize) -> Pieces {
        vec![vec![1; bytes / 2], vec![2; bytes - bytes / 2]]
    }

    #[derive(Debug, Clone)]
    enum Step {
        Get(u64),
        Insert(u64, usize),
        Pin(u64),
        Unpin(u64),
        Want(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = 0u64..24;
        prop_oneof![
            id.clone().prop_map(Step::Get),
            (id.clone(), 1usize..40).prop_map(|(id, bytes)| Step::Insert(id, bytes)),
            (id.clone(), 1usize..40).prop_map(|(id, bytes)| Step::Insert(id, bytes)),
            id.clone().prop_map(Step::Pin),
            id.clone().prop_map(Step::Unpin),
            id.prop_map(Step::Want),
        ]
    }

    /// The plain model: a list with the most recently used block last.
    struct Model {
        blocks: Vec<(u64, usize)>,
        cap_bytes: usize,
        slots: usize,
    }

    impl Model {
        fn used(&self) -> usize {
            self.blocks.iter().map(|block| block.1).sum()
        }

        fn touch(&mut self, id: u64) -> bool {
            let Some(at) = self.blocks.iter().position(|block| block.0 == id) else { return false };
            let block = self.blocks.remove(at);
            self.blocks.push(block);
            true
        }

        fn insert(&mut self, id: u64, bytes: usize, pins: &mut Readers) -> bool {
            if bytes > self.cap_bytes {
                return false;
            }
            while self.used() + bytes > self.cap_bytes || self.blocks.len() == self.slots {
                let asked = 2 * self.blocks.len();
                let victim = (0..asked).find(|_| {
                    let yes = pins.recycle(0, self.blocks[0].0);
                    if !yes {
                        self.blocks.rotate_left(1);
                    }
                    yes
                });
                if victim.is_none() {
                    return false;
                }
                self.blocks.remove(0);
            }
            self.blocks.push((id, bytes));
            true
        }
    }

    proptest! {
        #[test]
        fn a_store_does_what_a_plain_list_does(steps in prop::collection::vec(step(), 0..200)) {
            let (cap_bytes, slots) = (100, 7);
            let mut store = Store::new(cap_bytes, slots);
            let mut model = Model { blocks: Vec::new(), cap_bytes, slots };
            let (mut pins, mut model_pins) = (Readers::default(), Readers::default());
            for step in steps {
                match step {
                    Step::Get(id) => prop_assert_eq!(store.get(id).is_some(), model.touch(id)),
                    Step::Insert(id, _) if store.get(id).is_some() => { model.touch(id); }
                    Step::Insert(id, bytes) => {
                        let stored = store.insert(id, block(bytes), &mut pins).is_ok();
                        prop_assert_eq!(stored, model.insert(id, bytes, &mut model_pins));
                    }
                    Step::Pin(id) => { pins.pinned.insert(id); model_pins.pinned.insert(id); }
                    Step::Unpin(id) => { pins.pinned.remove(&id); model_pins.pinned.remove(&id); }
                    Step::Want(id) => { pins.wanted.insert(id); model_pins.wanted.insert(id); }
                }
                prop_assert_eq!(&pins.recycled, &model_pins.recycled);
                prop_assert_eq!(store.used_bytes(), model.used());
                prop_assert!(store.used_bytes() <= cap_bytes);
                let used: BTreeSet<Slot> = store.slots().map(|(slot, _)| slot).collect();
                prop_assert_eq!(used.len(), model.blocks.len(), "each block has a slot of its own");
            }
            prop_assert_eq!(store.evictions(), pins.recycled.len() as u64);
        }
    }

    #[test]
    fn a_block_that_is_read_stays_and_a_full_store_gives_the_pieces_back() {
        let mut store = Store::new(64, 8);
        let mut pins = Readers { pinned: BTreeSet::from([1, 2]), ..Readers::default() };
        store.insert(1, block(32), &mut pins).expect("empty");
        store.insert(2, block(32), &mut pins).expect("half full");
        assert_eq!(store.insert(3, block(32), &mut pins), Err(block(32)));
        pins.pinned.remove(&2);
        store.insert(3, block(32), &mut pins).expect("block 2 may go");
        assert_eq!(pins.recycled, [2]);
        assert!(store.get(1).is_some() && store.get(2).is_none() && store.get(3).is_some());
        assert_eq!(store.insert(4, block(65), &mut pins), Err(block(65)), "it can never fit");
    }
}
