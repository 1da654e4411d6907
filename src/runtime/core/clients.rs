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
        let _ = self.failures.take(client);
        Some(client)
    }

    /// A client leaves, and others stay: its handlers are gone, and its handles end their calls.
    pub(crate) fn leave_client(&self, client: u8) {
        self.peers.clients.leave(client);
        self.remove_handlers(|of, _| of == client);
        self.wake();
    }

    /// Removes the handlers that `goes` says of by client and id. Whether there were any.
    pub(crate) fn remove_handlers(&self, goes: impl Fn(u8, HandlerId) -> bool) -> bool {
        let any = self.handlers.remove(&self.peers.own().handlers, goes, || self.engine());
        if any && !self.rests() {
            // Whoever polls just now lets go of them.
            self.deferred.fetch_or(HANDLERS, Ordering::AcqRel);
        }
        any
    }

    /// Lets go of handlers that have gone, if nobody polls just now: whoever does comes here after it.
    #[cold]
    pub(super) fn let_go_of_handlers(&self) {
        self.deferred.fetch_and(!HANDLERS, Ordering::AcqRel);
        if !self.rests() {
            self.deferred.fetch_or(HANDLERS, Ordering::AcqRel);
        }
        self.handlers.drop_old();
    }

    /// Whether no handler runs at this moment. Then nothing is kept of those that are gone.
    pub(crate) fn rests(&self) -> bool {
        let Some(mut arrivals) = self.arrivals.try_lock() else { return false };
        let old = self.handlers.renew(&mut arrivals.handlers);
        drop(arrivals);
        // What they hold is dropped with no lock held.
        drop(old);
        true
    }
}
