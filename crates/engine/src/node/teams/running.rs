//! How collectives under way go on.
//!
//! Members number the collectives of their team as they come to them. A member that is ahead of another waits
//! before it sends that one more than a few collectives' messages ([`AHEAD`](crate::limits::AHEAD)). So no
//! member must keep more than a fixed number of them, and none waits for ever, since what the slowest needs
//! is never held back.
//!
//! When a member is lost, gives up a collective, or calls another than the others, all of them are told, and
//! the team's collectives are over.

use super::run::{CollectiveRun, Received, Sent};
use super::state::Teams;
use super::steps::Steps;
use super::team::{Arrived, ENDED, Slot};
use crate::collective::TeamId;
use crate::node::lent::Lent;
use crate::op_id::OpKey;
use crate::wire::{Pace, TeamMessage};
use crate::{Nanos, OpError, Rank, Transport};

impl Teams {
    /// Has something done for a collective under way, and ends it if it is over then, or that failed.
    /// `None`: it is not under way.
    pub(super) fn with_run<T: Transport, R>(
        &mut self,
        lent: &mut Lent<'_, T>,
        key: OpKey,
        what: impl FnOnce(&mut Steps<'_, '_, T>, &mut CollectiveRun) -> (R, Result<(), OpError>),
    ) -> Option<R> {
        let run = self.runs.get_mut(key).filter(|_| lent.ops.is_under_way(key))?;
        let mut steps = Steps { key, roster: &mut self.roster, wants: &mut self.wants, lent };
        let (value, result) = what(&mut steps, run);
        let (team, number, is_over) = (run.team, run.number, run.is_over());
        match result {
            Err(error) => self.break_team(lent, (team, number), error),
            Ok(()) if is_over => self.end_well(lent, key),
            Ok(()) => {}
        }
        Some(value)
    }

    /// Goes on with a collective as far as that goes.
    pub(super) fn go_on_with<T: Transport>(&mut self, lent: &mut Lent<'_, T>, key: OpKey) {
        self.with_run(lent, key, |steps, run| ((), steps.go_on(run)));
    }

    fn end_well<T: Transport>(&mut self, lent: &mut Lent<'_, T>, key: OpKey) {
        let Some(run) = self.runs.get(key) else { return };
        let (team, number, steps_told, signature) = (run.team, run.number, run.steps_told, run.signature);
        if let Some(state) = self.roster.all.get_mut(&team) {
            state.runs.remove(&number);
            state.ended[number as usize % ENDED] = (number, signature);
            if !state.early.is_empty() {
                // Of the same collective, as all that came early is, and no step of it.
                let unasked = state.early.extract_if(|(of, ..), _| *of == number).count();
                lent.core.counters.malformed += unasked as u64;
            }
        }
        self.tell_of_end(key, steps_told);
        lent.ops.finish(key, Ok(0));
        self.forget_team(lent, team);
    }

    /// A step has come of a collective under way.
    pub(super) fn arrive_at<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        key: OpKey,
        (slot, arrived): (Slot, Arrived),
    ) {
        self.with_run(lent, key, |steps, run| ((), steps.take(run, slot, arrived)));
        self.go_on_with(lent, key);
    }

    /// The offered bytes that the transfer `get` was getting, a part of this collective, are here, or not.
    pub(in crate::node) fn on_read<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        (key, get): (OpKey, OpKey),
        result: Result<(), OpError>,
    ) {
        self.with_run(lent, key, |steps, run| ((), steps.take_read(run, get, result)));
        self.go_on_with(lent, key);
    }

    /// Sends what could not be sent of all collectives. Returns whether anything moved.
    pub(in crate::node) fn retry<T: Transport>(&mut self, lent: &mut Lent<'_, T>) -> bool {
        let mut unsent = std::mem::take(&mut self.wants.unsent);
        unsent.sort_unstable();
        unsent.dedup();
        unsent.into_iter().fold(false, |moved, key| self.send_unsent(lent, key) | moved)
    }

    /// Sends what could not be sent of a collective. Returns whether anything moved.
    pub(super) fn send_unsent<T: Transport>(&mut self, lent: &mut Lent<'_, T>, key: OpKey) -> bool {
        let moved = self.with_run(lent, key, |steps, run| {
            let left = |run: &CollectiveRun| run.sends.iter().filter(|send| send.state == Sent::No).count();
            let before = left(run);
            let mut result = Ok(());
            for at in 0..run.sends.len() {
                if result.is_ok() && run.sends[at].state == Sent::No {
                    result = steps.send(run, at);
                }
            }
            (left(run) < before || result.is_err(), result)
        });
        let moved = moved == Some(true);
        if moved {
            self.go_on_with(lent, key);
        }
        moved
    }

    /// Sends what waited until a member has come so far.
    pub(super) fn send_all_unsent<T: Transport>(&mut self, lent: &mut Lent<'_, T>, id: TeamId) {
        let Some(team) = self.roster.all.get_mut(&id) else { return };
        let mut keys: Vec<(u64, OpKey)> = team.runs.iter().map(|(number, key)| (*number, *key)).collect();
        keys.sort_unstable();
        for (_, key) in keys {
            self.send_unsent(lent, key);
        }
    }
}

/// Time.
impl Teams {
    /// Collectives under way.
    pub(in crate::node) fn in_flight(&self) -> usize {
        self.roster.all.values().map(|team| team.runs.len()).sum()
    }

    /// Somebody whom a collective waits for; rank 0 if that is nobody.
    pub(in crate::node) fn awaits(&self, key: OpKey) -> Rank {
        self.runs.get(key).map_or(0, |run| run.awaits())
    }

    /// Asks the members that collectives have waited for too long whether they called the same: they may wait
    /// in vain for each other. Returns when to look again; `None`: nothing is under way.
    pub(in crate::node) fn ask_the_awaited<T: Transport>(
        &mut self,
        lent: &mut Lent<'_, T>,
        now: Nanos,
    ) -> Option<Nanos> {
        let (mut in_vain, mut next) = (Vec::new(), None);
        for (key, run) in self.runs.iter_mut().filter(|(key, _)| lent.ops.is_under_way(*key)) {
            let (asks_now, at) = run.asks(now);
            if asks_now {
                in_vain.push(key);
            }
            next = Some(next.map_or(at, |next: Nanos| next.min(at)));
        }
        in_vain.into_iter().for_each(|key| self.ask(lent, key));
        next
    }

    fn ask<T: Transport>(&self, lent: &mut Lent<'_, T>, key: OpKey) {
        let Some(run) = self.runs.get(key) else { return };
        let (id, waits_in) = (run.team, Some((run.number, run.signature)));
        let missing = run.receives.iter().filter(|receive| receive.state == Received::No);
        let mut missing: Vec<Rank> = missing.map(|receive| receive.from).collect();
        missing.sort_unstable();
        missing.dedup();
        let Some(team) = self.roster.all.get(&id) else { return };
        let asks = TeamMessage::Pace(Pace { come_to: team.started, wants: 0, waits_in });
        for peer in missing {
            // A member that cannot be told is lost, or will be.
            let _ = self.roster.tell(lent, peer, id, asks);
        }
    }
}
