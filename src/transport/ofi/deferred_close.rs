//! Registrations that were to be taken back, and that the provider would not close.
//!
//! Peers that know their keys reach them still, and their pages stay pinned. So nobody is told that they are
//! gone: the engine goes on counting them ([`Deregistering::Refused`](engine::Deregistering::Refused)), and
//! the provider is asked again twice a second.

use std::ops::Range;

use engine::Event;

use super::transport::{DeferredClose, OfiTransport};

impl OfiTransport {
    /// Closes a registration. `false`: it stays, and is tried again.
    pub(super) fn close_region(&mut self, deferred_closes: DeferredClose) -> bool {
        match self.endpoint.deregister(deferred_closes.id) {
            Ok(()) => {
                self.let_go_closed(deferred_closes.held);
                true
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "a registration cannot be taken back: its memory stays pinned, and peers may reach it"
                );
                self.deferred_closes.push(deferred_closes);
                false
            }
        }
    }

    /// Tries again to close what the provider would not.
    pub(super) fn close_again(&mut self) {
        for deferred_closes in std::mem::take(&mut self.deferred_closes) {
            if self.endpoint.deregister(deferred_closes.id).is_err() {
                self.deferred_closes.push(deferred_closes);
                continue;
            }
            self.let_go_closed(deferred_closes.held);
            self.events.extend(deferred_closes.reg.map(|reg| Event::Deregistered { reg }));
        }
    }

    /// Without an endpoint the registration may have been leaked with it: then its pages stay.
    fn let_go_closed(&self, held: Option<Range<u64>>) {
        if self.endpoint.is_open() {
            self.let_go(held);
        }
    }
}
