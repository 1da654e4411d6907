//! Memory that a program keeps registered: pins.

use crate::Transport;
use crate::node::Node;
use crate::node::registration::state::CHUNK_BYTES;
use crate::registration::{PinId, Pinning, Run, Settings};

/// Why nothing is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinError {
    /// Nothing is registered here: no transport wants it, or the strategy keeps nothing.
    NotOffered,
    /// MAXVICTIM does not leave so much beside what is pinned and what operations under way use.
    NoRoom {
        /// Bytes wanted, of the registrations that cover them and that are not referred to yet.
        wanted: u64,
        /// Bytes that this process may refer to at a time, in all.
        budget: u64,
    },
}

impl<T: Transport> Node<T> {
    /// Registers `len` bytes of this process's memory from an address on, and keeps them registered until
    /// [`Node::unpin`]: transfers to or from there, of this process or of a peer that asks, find them
    /// registered. All or nothing; see [`Node::pinning`] for when it is there. Pins may overlap. They count
    /// against MAXVICTIM, and transfers that find no room beside them go by message.
    ///
    /// # Errors
    /// See [`PinError`]; then nothing is kept.
    pub fn pin(&mut self, addr: u64, len: u64) -> Result<PinId, PinError> {
        let Some(registration) = &mut self.registration else { return Err(PinError::NotOffered) };
        let Settings { bucket, run_max, victims_bytes: budget, .. } = registration.settings;
        if budget == 0 {
            return Err(PinError::NotOffered);
        }
        let first = bucket.index(addr);
        let end = if len == 0 { first } else { bucket.index(addr.saturating_add(len - 1)) + 1 };
        let no_room = |wanted| PinError::NoRoom { wanted, budget };
        let pin = registration.table.begin_pin(first..end).map_err(no_room)?;
        let most = (CHUNK_BYTES / bucket.bytes()).min(u64::from(run_max)).max(1);
        for at in (first..end).step_by(most as usize) {
            let part = Run { first: at, count: most.min(end - at) as u32 };
            let Some(registration) = &mut self.registration else { break };
            if registration.table.pin_part(pin, part).is_err() {
                registration.table.unpin(pin);
                self.run_actions();
                self.work();
                return Err(no_room((end - first) * bucket.bytes()));
            }
            // A pin of memory that is not mapped fails here, before it asks for more.
            self.run_actions();
            if self.registration.as_ref().is_some_and(|registration| registration.table.last_part_failed(pin))
            {
                break;
            }
        }
        self.work();
        Ok(pin)
    }

    /// How a pin is. Looks at each of its registrations: at one for each MiB, or for less.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn pinning(&self, pin: PinId) -> Pinning {
        let registration = self.registration.as_ref().expect("a pin is of what is registered");
        registration.table.pinning(pin)
    }

    /// Ends a pin. Memory that no operation or peer refers to stays registered as a victim, and goes when
    /// room is needed.
    ///
    /// # Panics
    /// When there is no such pin.
    pub fn unpin(&mut self, pin: PinId) {
        let registration = self.registration.as_mut().expect("a pin is of what is registered");
        registration.table.unpin(pin);
        self.run_actions();
        self.work();
    }
}
