//! The clients that share a node, and whether it takes their calls.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::base::handler_scope::{CLOSED, NOBODYS};

/// Clients that a node may have: as many as messages tell apart.
pub(crate) const CLIENTS: usize = 1 << u8::BITS;

/// The clients of a node. The first one is there from the beginning.
pub(crate) struct Clients {
    /// Of which [generation](vm::forks::generation) each is; [`CLOSED`] once it has left, and [`NOBODYS`]
    /// once none of its handles is left either.
    generations: Box<[AtomicU32; CLIENTS]>,
    /// Where the next one's number is looked for.
    next: AtomicU8,
    /// Whether they leave together with the node, whose peers hear of it before it has closed.
    are_leaving: AtomicBool,
}

impl Clients {
    pub(super) fn new() -> Clients {
        let generations = [const { AtomicU32::new(NOBODYS) }; CLIENTS];
        generations[0].store(vm::forks::generation(), Ordering::SeqCst);
        Clients {
            generations: Box::new(generations),
            next: AtomicU8::new(1),
            are_leaving: AtomicBool::new(false),
        }
    }

    /// The generation whose calls are taken of a client: none once it has closed, or the node has.
    #[inline]
    pub(crate) fn generation(&self, client: u8) -> u32 {
        self.generations[usize::from(client)].load(Ordering::Relaxed)
    }

    /// A number for another one; `None` where all are taken. A number is used again as late as can be.
    pub(crate) fn enter(&self) -> Option<u8> {
        (0..CLIENTS).find_map(|_| {
            let client = self.next.fetch_add(1, Ordering::Relaxed);
            let (place, new) = (&self.generations[usize::from(client)], vm::forks::generation());
            let taken = place.compare_exchange(NOBODYS, new, Ordering::SeqCst, Ordering::Relaxed);
            taken.is_ok().then_some(client)
        })
    }

    /// A client has closed.
    pub(crate) fn leave(&self, client: u8) {
        self.generations[usize::from(client)].store(CLOSED, Ordering::SeqCst);
    }

    /// None of a client's handles is left: its number may be another's.
    pub(crate) fn free(&self, client: u8) {
        self.generations[usize::from(client)].store(NOBODYS, Ordering::SeqCst);
    }

    /// The node closes: losses of peers are its own doing from now on.
    pub(crate) fn begin_to_leave(&self) {
        self.are_leaving.store(true, Ordering::SeqCst);
    }

    /// Whether the node closes, or has.
    pub(crate) fn are_leaving(&self) -> bool {
        self.are_leaving.load(Ordering::SeqCst)
    }

    /// The node has closed.
    pub(super) fn close(&self) {
        self.begin_to_leave();
        (0..=u8::MAX).for_each(|client| self.leave(client));
    }
}
