//! Registrations of granted memory.
//!
//! Each is of the exact bytes of one grant, and is made when a peer first asks for its key. It is found by
//! the grant alone: no run of buckets is ever handed out for it. It is charged as the buckets that it
//! touches, and is kept, evicted and taken back as any other.

use super::entry::{Entry, IsFor, State, bytes_of};
use super::granted_runs::{GrantedRuns, class};
use super::{HolderId, NoRoom, Table};
use crate::registration::extent::Extent;
use crate::registration::{RegId, RegisterError};
use crate::{GrantId, Rank};

impl Table {
    /// Gives `peer` the right to memory that it was granted, as soon as that is registered. The firehose is
    /// appended to `got`.
    ///
    /// # Errors
    /// [`NoRoom`] where the peer may not hold so much, ever or now.
    pub(crate) fn attach_granted(
        &mut self,
        peer: Rank,
        extent: Extent,
        got: &mut Vec<HolderId>,
    ) -> Result<(), NoRoom> {
        let current = self.granted.current.get(&extent.grant).copied();
        let bytes = bytes_of(&self.settings, extent.buckets_of(&self.settings));
        let is_held = current.is_some_and(|at| self.entries.0[at as usize].holders > 0);
        self.may_hold(peer, bytes, if is_held { 0 } else { bytes })?;
        let at = match current {
            Some(at) => {
                self.counters.hits += 1;
                at
            }
            None => self.new_granted(extent),
        };
        got.push(self.add_holder(peer, at));
        self.make_room();
        Ok(())
    }

    fn new_granted(&mut self, extent: Extent) -> u32 {
        let run = extent.buckets_of(&self.settings);
        let at = self.new_run(run);
        self.entries.0[at as usize].is_for = IsFor::Granted;
        self.granted.add(at, extent, run);
        at
    }

    /// A grant names this memory no more: whoever holds the key of its registration is told to give it back,
    /// and it goes with the last of them.
    pub(crate) fn recall_grant(&mut self, grant: GrantId) {
        let Some(&at) = self.granted.current.get(&grant) else { return };
        if self.entries.0[at as usize].state == State::Waiting {
            self.line.retain(|waiting| *waiting != at);
            self.fail(at, RegisterError::Fault);
        } else {
            self.revoke(at);
        }
        self.make_room();
    }

    /// Whether nothing is registered of memory that a grant has named and names no more.
    pub(crate) fn is_grant_idle(&self, grant: GrantId) -> bool {
        let current = u32::from(self.granted.current.contains_key(&grant));
        self.granted.counts.get(&grant).is_none_or(|count| *count == current)
    }

    /// A peer that holds the key of such a registration, if one does.
    pub(crate) fn holder_of_grant(&self, grant: GrantId) -> Option<Rank> {
        let current = self.granted.current.get(&grant);
        let old =
            self.granted.extents.iter().filter(|(at, extent)| extent.grant == grant && current != Some(at));
        let holders = old.map(|(at, _)| self.entries.0[*at as usize].holder);
        holders.filter_map(|holder| self.holders.get(holder as usize)).map(|holder| holder.peer).min()
    }

    /// The memory of a registration, if it is a grant's.
    pub(crate) fn extent_of(&self, reg: RegId) -> Option<Extent> {
        self.granted.extent(self.place_of(reg)?)
    }

    /// Each run of a grant is one that there is, and what is current is to be found by its buckets.
    pub(super) fn audit_granted(&self) -> Result<(), String> {
        let GrantedRuns { extents, current, counts, by_address } = &self.granted;
        for (&at, extent) in extents {
            let entry = &self.entries.0[at as usize];
            let run = extent.buckets_of(&self.settings);
            let is_current = current.get(&extent.grant) == Some(&at);
            let is_live = matches!(entry.state, State::Waiting | State::Registering | State::Ready);
            let is_new = is_live && entry.is_for == IsFor::Granted;
            let is_found = by_address.contains(&(class(run), run.first, at));
            if entry.state == State::Free
                || self.run_of(at) != run
                || is_current != is_new
                || is_found != is_new
            {
                return Err(format!("run {at}, {:?}, of {extent:?} is current: {is_current}", entry.state));
            }
        }
        let sum: u32 = counts.values().sum();
        let granted = |entry: &&Entry| entry.state != State::Free && entry.is_for == IsFor::Granted;
        let is_known = self.entries.0.iter().filter(granted).count() <= extents.len();
        if sum as usize != extents.len() || current.len() != by_address.len() || !is_known {
            return Err(format!("{} runs of grants, of which {sum} are counted", extents.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, HolderId};
    use super::*;
    use crate::registration::{Keep, Key, Order, Quota, Run, Settings};
    use crate::span::BucketSize;

    const PAGE: u64 = 4096;

    fn settings(peers: u64, victims: u64) -> Settings {
        Settings {
            bucket: BucketSize::new(12).expect("a page"),
            run_max: 4,
            peers_bytes: peers * PAGE,
            victims_bytes: victims * PAGE,
            victims_borrow: false,
            quota: Quota::Leases { guaranteed: 0 },
            order: Order::Fifo,
            keep: Keep::Firehoses,
            put_in_move_max: 0,
            recall_within: 0,
        }
    }

    fn extent(line: u32, start: u64, len: u64) -> Extent {
        Extent { grant: GrantId { line, generation: 7 }, start, len }
    }

    fn attach(table: &mut Table, peer: Rank, extent: Extent) -> Result<HolderId, NoRoom> {
        let mut got = Vec::new();
        table.attach_granted(peer, extent, &mut got).map(|()| got[0])
    }

    /// Does at once what the table wants, and returns what it wanted.
    fn serve(table: &mut Table) -> Vec<Action> {
        let mut said = Vec::new();
        while let Some(action) = table.next_action() {
            match action {
                Action::RegisterGranted(reg, start, _) => table.registered(reg, Ok(Key(start))),
                Action::Register(reg, run) => table.registered(reg, Ok(Key(run.first))),
                Action::Deregister(reg) => table.deregistered(reg),
                _ => {}
            }
            table.audit().expect("sound after every step");
            said.push(action);
        }
        said
    }

    #[test]
    fn a_grant_is_registered_with_its_own_bytes_and_charged_by_its_buckets() {
        let mut table = Table::new(settings(16, 0), 3);
        let both = [extent(1, 2 * PAGE - 1, 2), extent(2, 2 * PAGE - 1, 2)];
        let [first, second] = both.map(|extent| attach(&mut table, 1, extent).expect("there is room"));
        let said = serve(&mut table);
        let of = |action: &Action| matches!(action, Action::RegisterGranted(_, start, 2) if *start == 2 * PAGE - 1);
        assert_eq!(said.iter().filter(|action| of(action)).count(), 2, "grants that overlap: a key each");
        assert_eq!((table.counters().pinned, table.used.peers), (4 * PAGE, 4 * PAGE));
        // Another peer shares it, and no run of buckets is made of it.
        let third = attach(&mut table, 2, both[0]).expect("there is room");
        assert_eq!(table.held(first).0, table.held(third).0);
        assert_ne!(table.held(first).0, table.held(second).0);
        let mut runs = Vec::new();
        table.attach(2, Run { first: 1, count: 2 }, &mut runs).expect("there is room");
        serve(&mut table);
        assert_ne!(table.held(runs[0]).0, table.held(first).0);
        assert_eq!(table.acquire(1), None, "and so is what this process itself refers to");
    }

    #[test]
    fn what_is_revoked_goes_when_its_holders_have_given_it_back() {
        let mut table = Table::new(settings(16, 8), 3);
        let (granted, new) = (extent(1, 0, PAGE), extent(1, 9 * PAGE, PAGE));
        let holders = [1, 2].map(|peer| attach(&mut table, peer, granted).expect("there is room"));
        serve(&mut table);
        assert!(table.is_grant_idle(granted.grant), "what a grant names is not awaited");
        table.recall_grant(granted.grant);
        let revoked = [(2, holders[1]), (1, holders[0])].map(|(peer, holder)| Action::Revoke(peer, holder));
        assert_eq!(serve(&mut table), revoked);
        // It names other memory meanwhile, which has a registration of its own.
        let newer = attach(&mut table, 1, new).expect("there is room");
        serve(&mut table);
        assert!(
            table.extent_of(table.held(newer).0) == Some(new)
                && table.key(table.held(holders[0]).0).is_none()
        );
        assert!(table.detach(1, holders[0]) && !table.is_grant_idle(granted.grant));
        assert_eq!(table.holder_of_grant(granted.grant), Some(2));
        assert!(table.detach(2, holders[1]));
        let Some(Action::Deregister(reg)) = table.next_action() else { panic!("nobody refers to it") };
        assert!(!table.is_grant_idle(granted.grant) && table.holder_of_grant(granted.grant).is_none());
        table.deregistered(reg);
        assert!(table.is_grant_idle(granted.grant));
        table.recall_grant(granted.grant);
        assert!(!table.is_grant_idle(granted.grant));
        table.drop_peer(1);
        serve(&mut table);
        assert!(table.is_grant_idle(granted.grant), "a peer that is gone holds nothing");
    }

    #[test]
    fn what_waits_is_not_registered_once_it_is_revoked() {
        let mut table = Table::new(settings(2, 0), 3);
        attach(&mut table, 1, extent(1, 0, 2 * PAGE)).expect("there is room");
        let Some(Action::RegisterGranted(first, ..)) = table.next_action() else { panic!("it is begun") };
        table.registered(first, Ok(Key(1)));
        table.drop_peer(1);
        let ends = [Action::Settled(first), Action::Deregister(first)];
        assert_eq!([table.next_action(), table.next_action()], ends.map(Some));
        let later = attach(&mut table, 2, extent(2, 9 * PAGE, PAGE)).expect("it may hold as much");
        assert_eq!(table.next_action(), None, "it does not fit beside the first");
        table.recall_grant(extent(2, 0, 0).grant);
        assert!(matches!(table.next_action(), Some(Action::Settled(_))));
        assert!(table.detach(2, later) && table.is_grant_idle(extent(2, 0, 0).grant));
        table.deregistered(first);
        serve(&mut table);
        assert_eq!((table.counters().pinned, table.counters().registrations), (0, 1));
    }

    #[test]
    fn a_change_of_memory_takes_back_what_is_registered_of_it() {
        let mut table = Table::new(settings(4096, 0), 3);
        let all = [
            extent(1, 0, 1),
            extent(2, 5, 700 * PAGE),
            extent(3, 600 * PAGE, 9),
            extent(4, 800 * PAGE, PAGE),
        ];
        let holders = all.map(|extent| attach(&mut table, 1, extent).expect("there is room"));
        serve(&mut table);
        table.invalidate(600, 601);
        assert_eq!(serve(&mut table), [holders[2], holders[1]].map(|holder| Action::Revoke(1, holder)));
        table.invalidate(0, 1 << 40);
        assert_eq!(serve(&mut table), [holders[0], holders[3]].map(|holder| Action::Revoke(1, holder)));
    }

    #[test]
    fn a_victim_is_kept_and_evicted_as_any_other() {
        let mut table = Table::new(settings(4, 2), 3);
        let granted = extent(1, 100, 2 * PAGE - 200);
        let holder = attach(&mut table, 1, granted).expect("there is room");
        serve(&mut table);
        assert!(table.detach(1, holder) && table.next_action().is_none());
        let again = attach(&mut table, 2, granted).expect("there is room");
        assert_eq!((table.counters().rescues, table.counters().registrations), (1, 1));
        assert!(table.detach(2, again));
        for line in 2..5 {
            let other =
                attach(&mut table, 1, extent(line, u64::from(line) * 64 * PAGE, 2 * PAGE)).expect("room");
            serve(&mut table);
            assert!(table.detach(1, other));
            serve(&mut table);
        }
        assert_eq!(table.counters().pinned, 2 * PAGE);
        assert!(table.is_grant_idle(granted.grant) && table.granted.current.len() == 1);
    }
}
