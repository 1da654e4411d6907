//! Memory that a program keeps registered: pins.

use crate::Transport;
use crate::node::Node;
use crate::node::registration::state::CHUNK_BYTES;
use crate::registration::table::NoRoom;
use crate::registration::table::pins::PinnedRun;
use crate::registration::{RegId, RegisterError};

/// Names a pin of a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinId(usize);

/// Why nothing is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinError {
    /// Nothing is registered here: no transport wants it, or the strategy keeps nothing.
    NotOffered,
    /// MAXVICTIM does not leave so much beside what is pinned and what operations under way use.
    NoRoom {
        /// Bytes wanted, in whole buckets.
        wanted: u64,
        /// Bytes that this process may refer to at a time, in all.
        budget: u64,
    },
}

/// How a pin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Part of it waits for others to go, or for the system.
    Pending,
    /// All of it is registered.
    Held,
    /// Part of it could not be registered.
    Failed(RegisterError),
    /// Part of the memory has been unmapped, or mapped anew: that part is not registered any more.
    Gone,
}

impl<T: Transport> Node<T> {
    /// Registers `len` bytes of this process's memory from an address on, and keeps them registered until
    /// [`Node::unpin`]: transfers to or from there, of this process or of a peer that asks, find them
    /// registered. All or nothing; see [`Node::pinning`] for when it is there. Pins may overlap. What is
    /// pinned counts against MAXVICTIM, and transfers that find no room beside it go by message.
    ///
    /// # Errors
    /// [`PinError::NotOffered`] and [`PinError::NoRoom`]; then nothing is kept.
    pub fn pin(&mut self, addr: u64, len: u64) -> Result<PinId, PinError> {
        let Some(registration) = &mut self.registration else { return Err(PinError::NotOffered) };
        let (settings, end) = (registration.settings, addr.saturating_add(len));
        if settings.victims_bytes == 0 {
            return Err(PinError::NotOffered);
        }
        let most = CHUNK_BYTES.min(settings.bucket.bytes() * u64::from(settings.run_max));
        let (mut at, mut regs) = (addr, Vec::new());
        while at < end {
            // Parts begin with buckets, but for the first, so that none is referred to twice.
            let next = at.saturating_add(most) & !(settings.bucket.bytes() - 1);
            let next = if next > at { next.min(end) } else { end };
            let wanted = registration.buckets(at, next - at);
            if let Err(NoRoom::Now | NoRoom::Never) = registration.table.pin_kept(wanted, &mut regs) {
                regs.into_iter().for_each(|reg| registration.table.unpin(reg));
                self.run_actions();
                let mask = settings.bucket.bytes() - 1;
                let wanted = (end - 1 | mask) - (addr & !mask);
                return Err(PinError::NoRoom {
                    wanted: wanted.saturating_add(1),
                    budget: settings.victims_bytes,
                });
            }
            at = next;
        }
        let id = registration.pins.insert(regs);
        self.run_actions();
        Ok(PinId(id))
    }

    /// How a pin is. Looks at each of its registrations: one for each MiB or less.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn pinning(&self, pin: PinId) -> Pinning {
        let registration = self.registration.as_ref().expect("a pin is of what is registered");
        let mut all = Pinning::Held;
        for reg in &registration.pins[pin.0] {
            match registration.table.pinned_run(*reg) {
                PinnedRun::Failed(error) => return Pinning::Failed(error),
                PinnedRun::Gone => all = Pinning::Gone,
                PinnedRun::Pending if all == Pinning::Held => all = Pinning::Pending,
                PinnedRun::Pending | PinnedRun::Held => {}
            }
        }
        all
    }

    /// Ends a pin. What nobody else refers to stays registered as a victim, and goes when room is needed.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn unpin(&mut self, pin: PinId) {
        let registration = self.registration.as_mut().expect("a pin is of what is registered");
        let regs: Vec<RegId> = registration.pins.remove(pin.0);
        regs.into_iter().for_each(|reg| registration.table.unpin(reg));
        self.run_actions();
    }
}
