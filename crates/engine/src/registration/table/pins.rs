//! What this process keeps registered beyond its operations, until it says otherwise or the memory changes.

use super::entry::{IsFor, State, bytes_of, run};
use super::{NoRoom, Table};
use crate::registration::{RegId, RegisterError, Run};

/// How one of a pin's registrations is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinnedRun {
    /// It is on its way.
    Pending,
    /// It is there.
    Held,
    /// It cannot be had.
    Failed(RegisterError),
    /// Its memory has changed since, so that nothing is kept of it.
    Gone,
}

impl Table {
    /// As [`Table::pin`], for longer than an operation takes: to be given back by [`Table::unpin`]. If the
    /// memory changes before, the reference is given back then.
    ///
    /// # Errors
    /// As for [`Table::pin`].
    pub(crate) fn pin_kept(&mut self, wanted: Run, got: &mut Vec<RegId>) -> Result<(), NoRoom> {
        let before = got.len();
        self.pin(wanted, got)?;
        for reg in &got[before..] {
            *self.pins.entry(reg.index).or_default() += 1;
        }
        Ok(())
    }

    /// Gives back what [`Table::pin_kept`] has referred to, if the memory has not changed since.
    pub(crate) fn unpin(&mut self, reg: RegId) {
        let Some(at) = self.place_of(reg) else { return };
        let Some(pins) = self.pins.get_mut(&at) else { return };
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&at);
        }
        self.release(reg);
    }

    /// How a registration is that was referred to by [`Table::pin_kept`].
    pub(crate) fn pinned_run(&self, reg: RegId) -> PinnedRun {
        let Some(at) = self.place_of(reg).filter(|at| self.pins.contains_key(at)) else {
            return PinnedRun::Gone;
        };
        let entry = &self.entries.0[at as usize];
        match (entry.state, entry.is_for) {
            (State::Waiting | State::Registering, _) => PinnedRun::Pending,
            (State::Ready, IsFor::All) => PinnedRun::Held,
            (State::Ready, IsFor::Waiting) => PinnedRun::Failed(RegisterError::Untold),
            (State::Failed(error), _) => PinnedRun::Failed(error),
            _ => PinnedRun::Gone,
        }
    }

    /// The memory of a run has changed: only operations under way keep it from going, which the caller looks
    /// at.
    pub(super) fn end_pins(&mut self, at: u32) {
        let Some(pins) = self.pins.remove(&at) else { return };
        let entry = &mut self.entries.0[at as usize];
        entry.local -= pins;
        if entry.local == 0 {
            self.local_used -= bytes_of(&self.settings, run(entry));
        }
    }
}
