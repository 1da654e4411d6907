//! Grants: memory that peers reach by a name, until it is revoked.

use crate::node::Node;
use crate::wire::{GrantAsk, Message};
use crate::{Direction, GrantId, Granted, GrantsByPeer, Lane, NotGranted, Place, Rank, Transport};

impl<T: Transport> Node<T> {
    /// Draws the names of grants by this number from now on, which no other process has. To be called before
    /// the first grant.
    pub fn seed_grants(&mut self, seed: u64) {
        self.shown.grants.set_seed(seed);
    }

    /// Lets peers reach that memory by the name that this returns, by message, or by a key that they ask for
    /// where keys reach memory and they may both read and write. The name is never that of
    /// another grant of this process.
    ///
    /// # Errors
    /// [`NotGranted`] says which of its values no grant can have, or that there are too many.
    pub fn grant(&mut self, granted: Granted) -> Result<GrantId, NotGranted> {
        let len = granted.len;
        let grant = self.shown.grants.grant(granted)?;
        let counters = &mut self.core.counters;
        counters.grants += 1;
        counters.granted += len;
        counters.grants_made += 1;
        Ok(grant)
    }

    /// Ends a grant: no message gets there any more, and who holds a key for it is told to give that back.
    /// Until then nothing is sent, as after [`Node::invalidate`], and the memory is in use: see
    /// [`Node::is_grant_idle`]. Returns what was granted; `None` where there is no such grant.
    pub fn revoke(&mut self, grant: GrantId) -> Option<Granted> {
        let granted = self.shown.grants.revoke(grant)?;
        self.core.counters.grants -= 1;
        self.core.counters.granted -= granted.len;
        self.recall_grant(grant);
        Some(granted)
    }

    /// Has a grant name other memory of the same length, which begins at `start`, for all messages and keys
    /// from now on. Keys for the old memory are taken back as [`Node::revoke`] does it. Returns where its
    /// memory began until now; `None` where there is no such grant.
    pub fn repoint(&mut self, grant: GrantId, start: u64) -> Option<u64> {
        let old = self.shown.grants.repoint(grant, start)?;
        self.recall_grant(grant);
        Some(old)
    }

    /// Takes back the keys for memory that a grant names no more.
    fn recall_grant(&mut self, grant: GrantId) {
        let Some(registration) = &mut self.registration else { return };
        registration.table.recall_grant(grant);
        self.run_actions();
        self.work();
    }

    /// Whether every key is closed for memory that a grant has named and names no more. Of a grant that was
    /// [revoked](Node::revoke) that is all of its memory, of one that was [re-pointed](Node::repoint) what it
    /// named before. It takes polls, and the answers of those who hold a key: they have as long for them as
    /// after [`Node::invalidate`].
    pub fn is_grant_idle(&self, grant: GrantId) -> bool {
        self.registration.as_ref().is_none_or(|registration| registration.table.is_grant_idle(grant))
    }

    /// A peer that has not given such a key back. `None` where none has one: then [`Node::is_grant_idle`]
    /// says whether the transport still is at its end.
    pub fn grant_holder(&self, grant: GrantId) -> Option<Rank> {
        self.registration.as_ref()?.table.holder_of_grant(grant)
    }

    /// The memory that a grant names; `None` where there is no such grant.
    pub fn granted(&self, grant: GrantId) -> Option<Granted> {
        self.shown.grants.get(grant)
    }

    /// The grant that a peer's long Active Message says its payload of so many bytes lies in; where in it,
    /// and how many bytes that grant has. `None` where it was revoked since, or the peer may not put that
    /// there.
    pub fn landed(&self, peer: Rank, payload: (Place, u64)) -> Option<(GrantId, u64, u64)> {
        self.shown.grants.landed(peer, payload)
    }

    /// Grants of this process.
    pub fn grants(&self) -> u64 {
        self.shown.grants.count()
    }

    /// Counts a wait for a grant's users that found that peer at the memory. `in_use`: it ended while the
    /// peer was still there.
    pub fn count_wait(&mut self, peer: Rank, in_use: bool) {
        self.core.counters.revocations_waited += 1;
        self.core.counters.revocations_in_use += u64::from(in_use);
        let tally = self.shown.tallies.of(peer, self.core.is_lost(peer));
        tally.waited += 1;
        tally.in_use += u64::from(in_use);
    }

    /// Refusals and waits, peer by peer. A peer that was neither refused nor waited for is not among them.
    /// Counts of a lost peer stay in [`GrantsByPeer::gone`]. Takes time and memory in proportion to the peers
    /// that are named.
    pub fn grants_by_peer(&self) -> GrantsByPeer {
        self.shown.tallies.by_peer()
    }

    /// Asks a peer which of its grants covers `len` bytes at an address of its, for such an access. The
    /// transport [hears](Transport::learn_grant) the answer.
    pub fn ask_for_grant(&mut self, peer: Rank, addr: u64, len: u64, direction: Direction) {
        let ask = GrantAsk { addr, len, direction: Some(direction) };
        // A peer that is gone answers nothing, and nobody waits.
        let _ = self.mail.send_soon(&mut self.core, peer, Lane::Request, Message::GrantAsk(ask));
    }
}
