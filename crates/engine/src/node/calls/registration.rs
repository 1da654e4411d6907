//! The node's calls about registration. The work behind these is in
//! [`registration`](crate::node::registration).

use crate::node::Node;
use crate::node::registration::state::{Registration, RegistrationCounters};
use crate::registration::{ByPeer, Settings};
use crate::{Rank, Transport};

impl<T: Transport> Node<T> {
    /// A node that reaches its peers' private memory by registering it, as `settings` say. Otherwise as
    /// [`Node::new`].
    pub fn with_registration(
        rank: Rank,
        size: u32,
        handlers: u32,
        transport: T,
        settings: Settings,
    ) -> Node<T> {
        let mut node = Node::new(rank, size, handlers, transport);
        node.register_by(settings, size);
        node
    }

    /// Registers from now on, as `settings` say, for so many processes at most, this one included. For a node
    /// that has not registered before.
    pub fn register_by(&mut self, settings: Settings, processes: u32) {
        debug_assert!(self.registration.is_none(), "what is registered would be forgotten");
        self.registration = Some(Box::new(Registration::new(settings, processes)));
    }

    /// Counts of registration; all zero where there is none.
    #[inline]
    pub fn registration_counters(&self) -> RegistrationCounters {
        self.registration.as_ref().map_or_else(RegistrationCounters::default, |registration| {
            RegistrationCounters {
                table: registration.table.counters(),
                hits: registration.hits(),
                ..registration.counters
            }
        })
    }

    /// The counts of [`Node::registration_counters`] peer by peer; nothing where there is no registration. A
    /// peer that was never asked and never asked itself is not among them. Counts of a lost peer stay in
    /// [`ByPeer::gone`]. Takes time and memory in proportion to the peers that are named.
    pub fn registration_by_peer(&self) -> ByPeer {
        self.registration.as_ref().map(|registration| registration.by_peer()).unwrap_or_default()
    }

    /// Takes note that `len` bytes of this process's space from `offset` on are not the memory that they
    /// were: freed, or mapped anew. No transfer that starts from now on, here or at any peer that hears of
    /// the new memory from here, uses a registration from before. Until all peers that hold one have given it
    /// back, nothing is sent. How long they may take counts from the next [`Node::expire`]: see
    /// [`Node::wants_time`].
    pub fn invalidate(&mut self, offset: u64, len: u64) {
        let Some(registration) = &mut self.registration else { return };
        let bucket = registration.settings.bucket;
        let last = bucket.index(offset.saturating_add(len.max(1) - 1));
        registration.table.invalidate(bucket.index(offset), last + 1);
        registration.table.pin_anew(bucket.index(offset)..last + 1);
        self.run_actions();
        self.work();
    }

    /// Looks at all that is kept about registration anew.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn audit(&self) -> Result<(), String> {
        let Some(registration) = &self.registration else { return Ok(()) };
        self.mail.audit()?;
        let are_out = registration.revocations.are_out();
        if self.mail.holds_back() != are_out {
            return Err(format!("rights are out: {are_out}; messages are held back: {}", !are_out));
        }
        registration.table.audit()?;
        registration.hoses.audit()?;
        registration.audit_by_peer()
    }

    /// The rights to this process's memory that `peer` has been given and has not given back, by their
    /// numbers, in order. At any time they are at least what the peer's [`Node::rights_held`] says; when
    /// nothing is under way, the same.
    pub fn rights_given(&self, peer: Rank) -> Vec<u32> {
        self.registration.as_ref().map_or_else(Vec::new, |registration| registration.table.holders_of(peer))
    }

    /// The rights to `peer`'s memory that this process has and has not told it that it gives up.
    pub fn rights_held(&self, peer: Rank) -> Vec<u32> {
        let Some(registration) = &self.registration else { return Vec::new() };
        let mut held = registration.hoses.holders_of(peer);
        held.extend(registration.owed.get(&peer).into_iter().flatten().map(|holder| holder.0));
        held.sort_unstable();
        held
    }

    /// References that operations under way have: to registrations of this process's memory, and to rights to
    /// its peers'; pins are counted, too. None when nothing is under way or pinned.
    pub fn references(&self) -> (u64, u64) {
        let Some(registration) = &self.registration else { return (0, 0) };
        (registration.table.references(), registration.hoses.references())
    }

    /// How many rights to this process's memory have been revoked so far, because it changed.
    pub fn revocations(&self) -> u64 {
        self.registration.as_ref().map_or(0, |registration| registration.revocations.count())
    }

    /// Whether none of the first so many rights that were revoked is used any more.
    pub fn are_given_back(&self, revocations: u64) -> bool {
        self.registration
            .as_ref()
            .is_none_or(|registration| registration.revocations.are_given_back(revocations))
    }
}
