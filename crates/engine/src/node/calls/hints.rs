//! Hints: what is going to be used is registered before, so that its first use is a hit.

use slotmap::Key;

use crate::node::Node;
use crate::node::registration::state::CHUNK_BYTES;
use crate::op_id::OpKey;
use crate::registration::firehose::Found;
use crate::registration::{Run, end_of};
use crate::{MemId, Piece, Place, Rank, Transport};

impl<T: Transport> Node<T> {
    /// Asks `peer` for the registrations of `len` bytes of its memory, as far as they may be held at once and
    /// are not held, and waits for none. A transfer that comes meanwhile waits for what was asked for here.
    /// Where nothing need be registered, nothing is asked. The peer may refuse, and take back what it gave.
    pub fn prefetch(&mut self, peer: Rank, remote: Place, len: u64) {
        let is_asked =
            peer != self.core.rank && self.core.transport.is_keyed(peer) && !self.core.is_lost(peer);
        let Some(registration) = self.registration.as_ref().filter(|_| is_asked && len > 0) else { return };
        let most = registration.hoses.limit(peer);
        let local = Place::new(MemId::Space, 0);
        let Some(piece) = Piece::new(remote, local, len) else { return };
        let place = match remote.mem {
            MemId::Space => remote,
            _ => match self.core.transport.in_spaces(peer, piece) {
                Some(piece) => piece.remote,
                None => return,
            },
        };
        let (mut at, end) = (place.offset, place.offset + len.min(most));
        while at < end {
            let part = CHUNK_BYTES.min(end - at);
            self.prefetch_part(peer, at, part);
            at += part;
        }
        self.run_actions();
        self.work();
    }

    /// As [`Node::prefetch`], for no more than one miss asks for.
    fn prefetch_part(&mut self, peer: Rank, at: u64, len: u64) {
        let Some(registration) = &self.registration else { return };
        let Run { first, .. } = registration.buckets(at, len);
        let end = end_of(registration.buckets(at, len));
        let absent = |bucket: &u64| matches!(registration.hoses.find(peer, *bucket), Found::Miss);
        let Some(first) = (first..end).find(absent) else { return };
        let Some(last) = (first..end).rev().find(absent) else { return };
        let wanted = Run { first, count: (last - first + 1) as u32 };
        if registration.settings.peers_bytes > 0 && registration.may_ask(wanted) {
            // No operation waits for it.
            self.ask(peer, wanted, OpKey::null(), None);
        }
    }

    /// Registers `len` bytes of this process's memory from an address on, as far as there is room for unused
    /// memory. A transfer to or from there, of this process or of a peer that asks, finds them registered.
    /// Where nothing need be, nothing is.
    pub fn prepare(&mut self, addr: u64, len: u64) {
        let (mut at, end) = (addr, addr.saturating_add(len));
        let Some(registration) = &mut self.registration else { return };
        let most =
            CHUNK_BYTES.min(registration.settings.bucket.bytes() * u64::from(registration.settings.run_max));
        let mut left = registration.settings.victims_bytes;
        let mut pins = Vec::new();
        while at < end {
            let wanted = registration.buckets(at, most.min(end - at));
            let bytes = u64::from(wanted.count) * registration.settings.bucket.bytes();
            if bytes > left || registration.table.pin(wanted, &mut pins).is_err() {
                break;
            }
            left -= bytes;
            at += most.min(end - at);
        }
        self.run_actions();
        let Some(registration) = &mut self.registration else { return };
        pins.into_iter().for_each(|reg| registration.table.release(reg));
        self.run_actions();
        self.work();
    }
}
