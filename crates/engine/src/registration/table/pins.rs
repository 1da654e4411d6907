//! What this process keeps registered beyond its operations, until it says otherwise or the memory changes.

use super::entry::{IsFor, PinId, State};
use super::{NoRoom, Table};
use crate::registration::{RegId, RegisterError, Run};

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

impl Table {
    /// Refers to every bucket of some runs, as [`Table::pin`] does, until [`Table::unpin`] or until the
    /// memory changes: to all of them, or to nothing.
    ///
    /// # Errors
    /// As for [`Table::pin`].
    pub(crate) fn pin_kept(&mut self, wanted: impl Iterator<Item = Run>) -> Result<PinId, NoRoom> {
        let mut regs = Vec::new();
        for run in wanted {
            if let Err(error) = self.pin(run, &mut regs) {
                regs.into_iter().for_each(|reg| self.release(reg));
                return Err(error);
            }
        }
        for reg in &regs {
            *self.pins.runs.entry(reg.index).or_default() += 1;
        }
        Ok(PinId(self.pins.all.insert(regs)))
    }

    /// Gives back what a pin refers to, but for memory that has changed since.
    ///
    /// # Panics
    /// When there is no such pin.
    pub(crate) fn unpin(&mut self, pin: PinId) {
        for reg in self.pins.all.remove(pin.0) {
            let Some(at) = self.place_of(reg) else { continue };
            let Some(pins) = self.pins.runs.get_mut(&at) else { continue };
            *pins -= 1;
            if *pins == 0 {
                self.pins.runs.remove(&at);
            }
            self.release(reg);
        }
    }

    /// How a pin is. Looks at each of its registrations.
    ///
    /// # Panics
    /// When there is no such pin.
    pub(crate) fn pinning(&self, pin: PinId) -> Pinning {
        let mut all = Pinning::Held;
        for reg in &self.pins.all[pin.0] {
            match self.pinned_run(*reg) {
                Pinning::Failed(error) => return Pinning::Failed(error),
                Pinning::Gone => all = Pinning::Gone,
                Pinning::Pending if all == Pinning::Held => all = Pinning::Pending,
                Pinning::Pending | Pinning::Held => {}
            }
        }
        all
    }

    fn pinned_run(&self, reg: RegId) -> Pinning {
        let Some(at) = self.place_of(reg).filter(|at| self.pins.of(*at) > 0) else { return Pinning::Gone };
        let entry = &self.entries.0[at as usize];
        match (entry.state, entry.is_for) {
            (State::Waiting | State::Registering, _) => Pinning::Pending,
            (State::Ready, IsFor::All) => Pinning::Held,
            (State::Ready, IsFor::Waiting) => Pinning::Failed(RegisterError::Untold),
            (State::Failed(error), _) => Pinning::Failed(error),
            _ => Pinning::Gone,
        }
    }
}
