//! Registrations that this process keeps beyond its operations, until it ends the pin or the memory changes.

use std::ops::Range;

use super::entry::{IsFor, Pin, PinId, State, bytes_of, run};
use super::{NoRoom, Table};
use crate::registration::{RegId, RegisterError, Run, end_of};

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
    /// Begins a pin of some buckets, if there is room for them, without touching anything. Each part of them
    /// is then referred to by [`Table::pin_part`].
    ///
    /// # Errors
    /// The bytes that it would take: MAXVICTIM does not leave so much now.
    pub(crate) fn begin_pin(&mut self, buckets: Range<u64>) -> Result<PinId, u64> {
        let all = (buckets.end - buckets.start).saturating_mul(self.settings.bucket.bytes());
        let free = self.settings.victims_bytes - self.used.local;
        // At either end a run may be there that covers more.
        let ends = 2 * u64::from(self.settings.run_max) * self.settings.bucket.bytes();
        if all.saturating_add(ends) > free {
            let wanted = self.charge(&buckets, free);
            if wanted > free {
                self.counters.refusals += 1;
                return Err(wanted.max(all));
            }
        }
        Ok(PinId(self.pins.all.insert(Pin { buckets, regs: Vec::new(), is_gone: false })))
    }

    /// Bytes of runs that this process does not refer to yet and that cover some buckets; those beyond
    /// `enough` are not counted to the end.
    fn charge(&self, buckets: &Range<u64>, enough: u64) -> u64 {
        let (mut at, mut charge) = (buckets.start, 0);
        while at < buckets.end && charge <= enough {
            let entry = self.index.get(&at).map(|place| &self.entries.0[*place as usize]);
            let count = u32::try_from(buckets.end - at).unwrap_or(u32::MAX);
            let part = entry.map_or_else(|| self.gap(at, Run { first: at, count }), run);
            charge += match entry {
                Some(entry) if entry.local > 0 => 0,
                _ => bytes_of(&self.settings, part),
            };
            at = end_of(part);
        }
        charge
    }

    /// Refers to a part of what a pin is for, as [`Table::pin`] does, until [`Table::unpin`] or until the
    /// memory changes.
    ///
    /// # Errors
    /// As for [`Table::pin`]: others have taken the room since.
    pub(crate) fn pin_part(&mut self, pin: PinId, part: Run) -> Result<(), NoRoom> {
        let mut regs = std::mem::take(&mut self.pins.all[pin.0].regs);
        let before = regs.len();
        let pinned = self.pin(part, &mut regs);
        for reg in &regs[before..] {
            *self.pins.runs.entry(reg.index).or_default() += 1;
        }
        self.pins.all[pin.0].regs = regs;
        pinned
    }

    /// Gives back what a pin refers to.
    ///
    /// # Panics
    /// When there is no such pin.
    pub(crate) fn unpin(&mut self, pin: PinId) {
        for reg in self.pins.all.remove(pin.0).regs {
            let Some(at) = self.place_of(reg) else { continue };
            let Some(pins) = self.pins.runs.get_mut(&at) else { continue };
            assert!(*pins > 0, "a pin ends once");
            *pins -= 1;
            if *pins == 0 {
                self.pins.runs.remove(&at);
            }
            self.release(reg);
        }
    }

    /// Memory has changed, as [`Table::invalidate`] was told: pins of other memory that the same runs covered
    /// have it registered anew.
    pub(crate) fn pin_anew(&mut self, changed: Range<u64>) {
        for (reg, run) in std::mem::take(&mut self.pins.ended) {
            let hit = |(_, pin): &(usize, &Pin)| pin.regs.contains(&reg);
            let pins: Vec<usize> = self.pins.all.iter().filter(hit).map(|(pin, _)| pin).collect();
            for pin in pins {
                let kept = &mut self.pins.all[pin];
                kept.regs.retain(|known| *known != reg);
                let (first, end) = (kept.buckets.start.max(run.first), kept.buckets.end.min(end_of(run)));
                kept.is_gone |= first < changed.end && changed.start < end;
                for (first, end) in [(first, end.min(changed.start)), (first.max(changed.end), end)] {
                    let part = || Run { first, count: (end - first) as u32 };
                    if first < end && self.pin_part(PinId(pin), part()).is_err() {
                        self.pins.all[pin].is_gone = true;
                    }
                }
            }
        }
    }

    /// How a pin is. Looks at each of its registrations.
    ///
    /// # Panics
    /// When there is no such pin.
    pub(crate) fn pinning(&self, pin: PinId) -> Pinning {
        let Pin { regs, is_gone, .. } = &self.pins.all[pin.0];
        if *is_gone {
            // This is so whatever comes of registering the rest anew.
            return Pinning::Gone;
        }
        let mut all = Pinning::Held;
        for reg in regs {
            match self.pinned_run(*reg) {
                Pinning::Failed(error) => return Pinning::Failed(error),
                Pinning::Gone => all = Pinning::Gone,
                Pinning::Pending if all == Pinning::Held => all = Pinning::Pending,
                Pinning::Pending | Pinning::Held => {}
            }
        }
        all
    }

    /// Whether the part of a pin that came last could not be registered.
    pub(crate) fn last_part_failed(&self, pin: PinId) -> bool {
        let last = self.pins.all[pin.0].regs.last();
        last.is_some_and(|reg| matches!(self.pinned_run(*reg), Pinning::Failed(_)))
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
