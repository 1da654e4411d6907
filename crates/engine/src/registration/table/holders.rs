//! The rights that peers hold of a table: who is given a right to which run, and who gives one back.

use super::entry::{Holder, bytes_of};
use super::{Action, HolderId, NoRoom, Table};
use crate::Rank;
use crate::registration::slots::{NONE, push};
use crate::registration::{Keep, PeerCounters, RegId, Run, end_of};

impl Table {
    /// Gives `peer` the right to every bucket of `wanted`, as soon as it is registered: all of it, or
    /// nothing. The firehoses are appended to `got`; they may cover more.
    ///
    /// # Errors
    /// [`NoRoom`] where the peer may not hold so much, ever or now.
    pub fn attach(&mut self, peer: Rank, wanted: Run, got: &mut Vec<HolderId>) -> Result<(), NoRoom> {
        let (mut charge, mut held) = (0, 0);
        self.each_part(wanted, |part, entry| {
            let bytes = bytes_of(&self.settings, part);
            held += bytes;
            charge += if entry.is_some_and(|entry| entry.holders > 0) { 0 } else { bytes };
        });
        self.may_hold(peer, held, charge)?;
        let mut at = wanted.first;
        while at < end_of(wanted) {
            let entry = self.entry_for(at, wanted);
            at = end_of(self.run_of(entry));
            got.push(self.add_holder(peer, entry));
        }
        self.make_room();
        Ok(())
    }

    /// Whether `peer` may hold so many bytes more, of which so many are to be charged to M.
    pub(super) fn may_hold(&mut self, peer: Rank, held: u64, charge: u64) -> Result<(), NoRoom> {
        if held > self.leases.share(peer) {
            self.counters.refusals += 1;
            return Err(NoRoom::Never);
        }
        if self.leases.held(peer) + held > self.leases.share(peer)
            || self.used.peers + charge > self.settings.peers_bytes
        {
            self.counters.refusals += 1;
            self.recall_for(peer, charge);
            return Err(NoRoom::Now);
        }
        Ok(())
    }

    /// Takes a firehose back from `peer`. `false`: the peer has no such firehose.
    pub(crate) fn detach(&mut self, peer: Rank, holder: HolderId) -> bool {
        let detached = self.detach_reserving(peer, holder);
        if detached {
            self.free_name(holder);
        }
        detached
    }

    /// As [`Table::detach`], but the name is given to no other firehose before [`Table::free_name`]:
    /// something that calls it by that name is still on its way.
    pub(crate) fn detach_reserving(&mut self, peer: Rank, holder: HolderId) -> bool {
        let known = self.holders.get(holder.0 as usize).is_some_and(|h| h.peer == peer && h.entry != NONE);
        if known {
            self.remove_holder(holder);
            self.make_room();
        }
        known
    }

    /// Ends the reservation of a name.
    pub(crate) fn free_name(&mut self, holder: HolderId) {
        self.holders[holder.0 as usize].next = self.free_holder;
        self.free_holder = holder.0;
    }

    /// Bytes that `peer` may hold now, those that it holds included.
    pub(crate) fn limit(&self, peer: Rank) -> u64 {
        let free = self.settings.peers_bytes - self.used.peers;
        self.leases.share(peer).min(self.leases.held(peer) + free)
    }

    /// Takes back all that `peer` holds: it is gone.
    pub(crate) fn drop_peer(&mut self, peer: Rank) {
        for at in 0..self.holders.len() {
            self.detach(peer, HolderId(at as u32));
        }
        self.leases.drop_peer(peer);
        self.make_room();
    }

    /// Counts a message by which `peer` asks for firehoses.
    pub(crate) fn count_served(&mut self, peer: Rank) {
        self.leases.count_served(peer);
    }

    /// Counts of each peer that is there, and of those that are gone together.
    pub(crate) fn peer_counters(&self) -> (impl Iterator<Item = (Rank, PeerCounters)>, PeerCounters) {
        self.leases.counters()
    }

    /// The firehoses of `peer`, in order.
    pub(crate) fn holders_of(&self, peer: Rank) -> Vec<u32> {
        let theirs = |(at, holder): (usize, &Holder)| {
            (holder.peer == peer && holder.entry != NONE).then_some(at as u32)
        };
        self.holders.iter().enumerate().filter_map(theirs).collect()
    }

    /// The run that a firehose is for.
    pub(crate) fn held(&self, holder: HolderId) -> (RegId, Run) {
        let entry = self.holders[holder.0 as usize].entry;
        (self.id_of(entry), self.run_of(entry))
    }

    /// The run that a firehose is for, if it is that peer's.
    pub(crate) fn held_by(&self, peer: Rank, holder: HolderId) -> Option<(RegId, Run)> {
        let Holder { peer: of, entry, .. } = *self.holders.get(holder.0 as usize)?;
        (entry != NONE && of == peer).then(|| self.held(holder))
    }

    /// Asks those who hold more than is guaranteed to them to give back what they do not need.
    fn recall_for(&mut self, peer: Rank, bytes: u64) {
        if let Some((rank, bytes)) = self.leases.recall_for(peer, bytes) {
            self.counters.recalls += 1;
            self.actions.push_back(Action::Recall(rank, bytes));
        }
    }

    /// Whether a peer has been asked for bytes that it has neither given back nor answered about.
    pub(crate) fn owes(&self, peer: Rank) -> bool {
        self.leases.recalled(peer) > 0
    }

    /// Takes note that a peer has answered [`Action::Recall`].
    pub(crate) fn recall_answered(&mut self, peer: Rank) {
        self.leases.recall_answered(peer);
    }

    pub(super) fn add_holder(&mut self, peer: Rank, at: u32) -> HolderId {
        self.rescue(at);
        let bytes = self.bytes(at);
        let (holders, next) = (self.entries.0[at as usize].holders, self.entries.0[at as usize].holder);
        if holders == 0 {
            self.used.peers += bytes;
        }
        let holder = Holder { peer, entry: at, previous: NONE, next };
        let id = match self.free_holder {
            NONE => push(&mut self.holders, holder, 64),
            free => {
                self.free_holder = self.holders[free as usize].next;
                self.holders[free as usize] = holder;
                free
            }
        };
        if next != NONE {
            self.holders[next as usize].previous = id;
        }
        let entry = &mut self.entries.0[at as usize];
        (entry.holder, entry.holders) = (id, holders + 1);
        self.leases.add(peer, bytes);
        self.queue.touch(&mut self.entries, at);
        HolderId(id)
    }

    fn remove_holder(&mut self, id: HolderId) {
        let Holder { peer, entry: at, previous, next } = self.holders[id.0 as usize];
        let bytes = self.bytes(at);
        self.leases.take(peer, bytes);
        match previous {
            NONE => self.entries.0[at as usize].holder = next,
            previous => self.holders[previous as usize].next = next,
        }
        if next != NONE {
            self.holders[next as usize].previous = previous;
        }
        self.holders[id.0 as usize].entry = NONE;
        let entry = &mut self.entries.0[at as usize];
        assert!(entry.holders > 0, "a holder leaves once");
        entry.holders -= 1;
        if entry.holders == 0 {
            self.used.peers -= bytes;
            if self.settings.keep == Keep::Nothing && self.is_victim(at) {
                self.counters.evictions += 1;
                self.evict(at);
            } else if self.entries.0[at as usize].local == 0 {
                self.on_idle(at);
            }
        }
    }
}
