//! Memory that is not what it was: nobody begins to use a registration of it, and who does is told.

use super::entry::{Entry, IsFor, State, run};
use super::{Action, HolderId, Table};
use crate::registration::end_of;
use crate::registration::slots::NONE;

impl Table {
    /// Takes note that the memory of the buckets from `first` to before `end` is not what it was: no
    /// operation that starts from now on uses a registration from before. Holders are told to give theirs
    /// back.
    pub(crate) fn invalidate(&mut self, first: u64, end: u64) {
        let touched =
            |entry: &Entry| entry.state != State::Free && entry.first < end && first < end_of(run(entry));
        if end.saturating_sub(first) > self.entries.0.len() as u64 {
            for at in 0..self.entries.0.len() as u32 {
                if touched(&self.entries.0[at as usize]) {
                    self.revoke(at);
                }
            }
        } else {
            let mut at = first;
            while at < end {
                let entry = self.index.get(&at).copied();
                at = entry.map_or(at + 1, |entry| end_of(self.run_of(entry)));
                entry.into_iter().for_each(|entry| self.revoke(entry));
            }
            for at in self.granted.touching(first, end) {
                if touched(&self.entries.0[at as usize]) {
                    self.revoke(at);
                }
            }
        }
        self.make_room();
    }

    /// The memory of a registration is not what it was, or is named no more: nobody finds the registration
    /// any more, and holders are told to give theirs back.
    pub(super) fn revoke(&mut self, at: u32) {
        // A run that is not begun yet will register the pages that are there then.
        let Entry { state, is_for, .. } = self.entries.0[at as usize];
        if is_for == IsFor::Nobody || !matches!(state, State::Registering | State::Ready) {
            return;
        }
        self.counters.invalidations += 1;
        self.forget(at);
        self.queue.remove(&mut self.entries, at);
        if self.is_victim(at) {
            self.used.victims -= self.bytes(at);
        }
        self.entries.0[at as usize].is_for = IsFor::Nobody;
        let mut holder = self.entries.0[at as usize].holder;
        while holder != NONE {
            self.actions.push_back(Action::Revoke(self.holders[holder as usize].peer, HolderId(holder)));
            holder = self.holders[holder as usize].next;
        }
        let pins = self.pins.end(self.id_of(at), self.run_of(at));
        self.entries.0[at as usize].local -= pins;
        if pins > 0 && self.entries.0[at as usize].local == 0 {
            self.used.local -= self.bytes(at);
        }
        if !self.is_referred_to(at) {
            self.on_idle(at);
        }
    }
}
