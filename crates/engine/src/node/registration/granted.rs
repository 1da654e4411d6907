//! Keys of granted memory: asked for by the grant, given by its owner for the exact bytes, and taken back
//! before the memory is anybody else's. Asking is a kind of move, and what is given is a firehose.

use super::state::{PendingMove, ServedMove};
use crate::node::Node;
use crate::registration::extent::Extent;
use crate::registration::message;
use crate::wire::{GivenKey, KeyAsk, KeyIs, Message, MoveId, Status};
use crate::{GRANT_BYTES, Granted, Rank, Rights, Transport};

impl<T: Transport> Node<T> {
    /// Gives no key, as this process registers nothing: what is granted is reached by message then.
    #[cold]
    pub(in crate::node) fn refuse_key(&mut self, peer: Rank, ask: &KeyAsk, payload: &[u8]) {
        if ask.grant.is_none() || message::take_detached(payload, ask.detach).is_none() {
            self.core.counters.malformed += 1;
            return;
        }
        let answer = KeyIs { id: ask.id, limit: 0, len: 0, given: None };
        self.mail.answer(&mut self.core, peer, Message::KeyIs(answer), 0);
    }

    /// Serves a peer that asks for the key of a grant. A key lets whoever has it read and write, so that
    /// there is none where a peer may not do both.
    pub(in crate::node) fn serve_key_ask(&mut self, peer: Rank, ask: &KeyAsk, payload: &[u8]) {
        let parts = message::take_detached(payload, ask.detach);
        let (Some(parts), Some(grant), Some(registration)) = (parts, ask.grant, &mut self.registration)
        else {
            return self.refuse_key(peer, ask, payload);
        };
        registration.counters.served += 1;
        registration.table.count_served(peer);
        for holder in parts.detach() {
            self.core.counters.malformed += u64::from(!registration.give_up(peer, holder));
        }
        self.mail.hold_back(registration.revocations.are_out());
        let mut holders = registration.spare_holders.pop().unwrap_or_default();
        let mut its_len = 0;
        let granted = self.shown.grants.get(grant);
        if let Some(Granted { start, len, .. }) =
            granted.filter(|granted| granted.rights == Rights::ReadWrite && granted.is_for(peer))
        {
            its_len = len;
            // Without room the peer is told so, by what its answer lacks.
            let _ = registration.table.attach_granted(peer, Extent { grant, start, len }, &mut holders);
        }
        let (id, status, pending) = (ask.id, Status::Ok, 0);
        self.serve(ServedMove { peer, id, holders, pending, status, grant: Some(its_len) });
    }

    /// Takes a peer's answer.
    pub(in crate::node) fn on_key_is(&mut self, peer: Rank, answer: &KeyIs) {
        let MoveId { at, serial } = answer.id;
        let Some(registration) = &mut self.registration else { return };
        let is_it = |asked: &&PendingMove| (asked.peer, asked.serial) == (peer, serial);
        let asked = registration.moves.get(at as usize).filter(is_it);
        let Some(grant) = asked.and_then(|asked| asked.grant) else {
            self.core.counters.malformed += 1;
            return;
        };
        let asked = registration.moves.remove(at as usize);
        registration.hoses.answered_granted(peer, grant, at);
        registration.hoses.set_limit(peer, answer.limit);
        let (mut refused, mut moved) = (Vec::new(), 0);
        match answer.given {
            None => registration.hoses.refuse_granted(peer, grant, answer.len),
            Some(GivenKey { holder, key, start }) => {
                let len = answer.len;
                let is_range = (1..GRANT_BYTES).contains(&len) && start.checked_add(len).is_some();
                // No owner gives two rights one name.
                if !is_range || registration.hoses.has(peer, holder) {
                    self.core.counters.malformed += 1;
                } else if registration.early_revocations.take(peer, holder) {
                    refused.push(holder);
                } else {
                    registration.hoses.add_granted(peer, Extent { grant, start, len }, key, holder);
                    moved = 1;
                }
            }
        }
        self.end_move(peer, asked, refused, moved, None);
    }
}
