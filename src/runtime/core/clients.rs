//! The clients of a node: how one leaves, and what goes with it.

use std::sync::atomic::Ordering;

use super::{HANDLERS, NodeCore};
use crate::base::handler_id::HandlerId;

impl NodeCore {
    /// A number for another client, with nothing left on it; `None` where all are taken.
    pub(crate) fn enter_client(&self) -> Option<u8> {
        let client = self.peers.clients.enter()?;
        {
            let mut engine = self.engine();
            engine.act_for(client);
            let _ = engine.take_detached_error();
        }
        let _ = self.due.failures.take(client);
        Some(client)
    }

    /// A client leaves, and others stay: its handlers are gone, and its handles end their calls.
    pub(crate) fn leave_client(&self, client: u8) {
        self.peers.clients.leave(client);
        self.remove_handlers(|of, _| of == client);
        self.wake();
    }

    /// The node has left: nothing is kept of its handlers. Their entries at peers stay, for as long as those
    /// have not heard of that: what they send then ends with the loss.
    pub(crate) fn drop_handlers(&self) {
        self.handlers.clear();
        if !self.rests() {
            self.due.flags.fetch_or(HANDLERS, Ordering::AcqRel);
        }
    }

    /// Removes the handlers that `goes` says of by client and id. Whether there were any.
    pub(crate) fn remove_handlers(&self, goes: impl Fn(u8, HandlerId) -> bool) -> bool {
        let any = self.handlers.remove(&self.peers.own().handlers, goes, || self.engine());
        if any && !self.rests() {
            // A thread that polls just now lets go of them.
            self.due.flags.fetch_or(HANDLERS, Ordering::AcqRel);
        }
        any
    }
}
