//! A cluster's memory, and what its cards have pinned of it.

use engine::{MemId, Place, Rank};

use crate::cluster::Cluster;
use crate::costs::Costs;
use crate::space::Access;
use crate::violation::Violation;

impl Cluster {
    /// Maps `len` bytes of `rank`'s private memory, in whole pages, zero, anywhere. Their place in
    /// [`MemId::Space`].
    pub fn map(&mut self, rank: Rank, len: u64, access: Access) -> Place {
        let mut world = self.world.borrow_mut();
        Place::new(MemId::Space, world.process_mut(rank).space.map(len, access))
    }

    /// Maps the pages of `rank`'s private memory that `len` bytes from `offset` on touch: zero, in place of
    /// what was there. Whoever watches that memory must be told.
    pub fn map_at(&mut self, rank: Rank, offset: u64, len: u64, access: Access) {
        let mut world = self.world.borrow_mut();
        world.unmap(rank, offset, len);
        world.process_mut(rank).space.map_at(offset, len, access);
    }

    /// Unmaps the pages of `rank`'s private memory that `len` bytes from `offset` on touch. What is
    /// registered of them stays pinned, and its key reaches the old bytes. Whoever watches that memory must
    /// be told.
    pub fn unmap(&mut self, rank: Rank, offset: u64, len: u64) {
        self.world.borrow_mut().unmap(rank, offset, len);
    }

    /// Makes `len` bytes of `rank`'s heap, zero, which every card can reach. Their place in [`MemId::Heap`].
    pub fn heap(&mut self, rank: Rank, len: u64) -> Place {
        let mut world = self.world.borrow_mut();
        Place::new(MemId::Heap, world.process_mut(rank).memory_mut(MemId::Heap).map(len, Access::Full))
    }

    /// Reads `rank`'s memory, taking no time. `Err` with the first byte that cannot be read.
    pub fn peek(&self, rank: Rank, from: Place, into: &mut [u8]) -> Result<(), u64> {
        self.world.borrow().process(rank).read(from, into)
    }

    /// Writes `rank`'s memory, taking no time. `Err` with the first byte that cannot be written.
    pub fn poke(&mut self, rank: Rank, to: Place, from: &[u8]) -> Result<(), u64> {
        self.world.borrow().process(rank).write(to, from)
    }

    /// Bytes that `rank` has pinned now.
    pub fn pinned(&self, rank: Rank) -> u64 {
        self.world.borrow().process(rank).nic.pinned()
    }

    /// The most bytes that `rank` ever had pinned at once.
    pub fn pinned_peak(&self, rank: Rank) -> u64 {
        self.world.borrow().process(rank).nic.pinned_peak()
    }

    /// Whether [`Cluster::take_violations`] has any to give.
    #[inline]
    pub(crate) fn has_violations(&self) -> bool {
        !self.world.borrow().violations.is_empty()
    }

    /// Takes the accesses to memory that was not registered as it should have been, since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.world.borrow_mut().violations)
    }

    /// One-sided operations that were started so far, in the whole cluster: tells what came before which
    /// [`Violation`]'s operation.
    pub fn started(&self) -> u64 {
        self.world.borrow().started
    }

    /// What everything costs.
    pub fn costs(&self) -> Costs {
        self.world.borrow().costs.clone()
    }

    /// A number that depends on all that has happened, and when: the same for the same plan and driver.
    pub fn fingerprint(&self) -> u64 {
        self.world.borrow().fingerprint()
    }
}
