//! The clients of a node: how one leaves, and what goes with it.

use super::NodeCore;
use crate::base::handler_id::HandlerId;

impl NodeCore {
    /// A client leaves, and others stay: its handlers are gone, and its handles end their calls.
    pub(crate) fn leave_client(&self, client: u8) {
        self.peers.clients.leave(client);
        self.remove_handlers(|of, _| of == client);
        self.wake();
    }

    /// Removes the handlers that `goes` says of by client and id. Whether there were any.
    pub(crate) fn remove_handlers(&self, goes: impl Fn(u8, HandlerId) -> bool) -> bool {
        let any = self.handlers.remove(&self.peers.own().handlers, goes, || self.engine());
        // Whoever polls just now sees that they are gone by itself.
        let old = self.arrivals.try_lock().map(|mut arrivals| self.handlers.renew(&mut arrivals.handlers));
        drop(old);
        any
    }

    /// Whether no handler runs at this moment.
    pub(crate) fn rests(&self) -> bool {
        self.arrivals.try_lock().is_some()
    }
}
