//! Memory that a program keeps registered: pins.

use crate::Transport;
use crate::node::Node;
use crate::node::registration::state::CHUNK_BYTES;
use crate::registration::{PinId, Pinning};

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

impl<T: Transport> Node<T> {
    /// Registers `len` bytes of this process's memory from an address on, and keeps them registered until
    /// [`Node::unpin`]: transfers to or from there, of this process or of a peer that asks, find them
    /// registered. All or nothing; see [`Node::pinning`] for when it is there. Pins may overlap. What is
    /// pinned counts against MAXVICTIM, and transfers that find no room beside it go by message.
    ///
    /// # Errors
    /// See [`PinError`]; then nothing is kept.
    pub fn pin(&mut self, addr: u64, len: u64) -> Result<PinId, PinError> {
        let Some(registration) = &mut self.registration else { return Err(PinError::NotOffered) };
        let (settings, end) = (registration.settings, addr.saturating_add(len));
        if settings.victims_bytes == 0 {
            return Err(PinError::NotOffered);
        }
        // Parts end with buckets, so that none is referred to twice.
        let bucket = settings.bucket;
        let most = CHUNK_BYTES.min(bucket.bytes() * u64::from(settings.run_max));
        let next = |at: u64| match at.saturating_add(most) & !(bucket.bytes() - 1) {
            next if next > at => next.min(end),
            _ => end,
        };
        let starts = std::iter::successors(Some(addr), |at| Some(next(*at))).take_while(|at| *at < end);
        let parts: Vec<_> = starts.map(|at| registration.buckets(at, next(at) - at)).collect();
        let wanted = || parts.iter().map(|part| u64::from(part.count) * bucket.bytes()).sum();
        let pin = registration.table.pin_kept(parts.iter().copied());
        let pin = pin.map_err(|_| PinError::NoRoom { wanted: wanted(), budget: settings.victims_bytes });
        self.run_actions();
        pin
    }

    /// How a pin is. Looks at each of its registrations: at one for each MiB, or for less.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn pinning(&self, pin: PinId) -> Pinning {
        let registration = self.registration.as_ref().expect("a pin is of what is registered");
        registration.table.pinning(pin)
    }

    /// Ends a pin. What nobody else refers to stays registered as a victim, and goes when room is needed.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn unpin(&mut self, pin: PinId) {
        let registration = self.registration.as_mut().expect("a pin is of what is registered");
        registration.table.unpin(pin);
        self.run_actions();
    }
}
