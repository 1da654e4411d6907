//! The node's contract ([`NodeTransport`]), kept by libfabric.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use engine::registration::{Settings, Strategy};
use engine::{Counters, Rank};

use super::chores::Chore;
use super::endpoint::NetEndpoint;
use super::link::Link;
use super::liveness_probe::listens_at;
use super::token::Token;
use super::transport::OfiTransport;
use super::{provider, provider_env};
use crate::transport::contract::{Endpoint, NodeTransport, Outsider, Party, Rest, Setup};
use crate::transport::mr_invalidation::{CachesRegistrations, ChangeSource};
use crate::transport::protocol::NetProtocol;

impl Endpoint for NetEndpoint {
    type Network = OfiTransport;

    fn address(&self) -> &[u8] {
        NetEndpoint::address(self)
    }

    fn protocol(&self) -> NetProtocol {
        let description = self.description();
        NetProtocol {
            provider: description.provider.clone(),
            library: provider::version().unwrap_or_default(),
            number: description.protocol,
            version: description.protocol_version,
        }
    }

    fn into_network(self, setup: Setup) -> (OfiTransport, Option<Settings>) {
        let Setup { members, memory, heap, silence, strategy, pin_bytes } = setup;
        let mistakes = provider_env::may_mistake_memory(self.description());
        let strategy = match strategy {
            Some(strategy) => strategy,
            None if mistakes => Strategy::Bounce,
            None => provider::default_strategy(self.description()),
        };
        let settings = provider::registration(strategy, pin_bytes);
        // Whose silence has no limit may be refused for as long, too.
        let mut ofi = OfiTransport::new(self, members, memory, Duration::MAX);
        ofi.silence = silence;
        if settings.is_some() {
            ofi.memory = if mistakes { ChangeSource::Unavailable } else { ChangeSource::watched() };
            let piecewise = !ofi.shares_heaps && !mistakes;
            ofi.heap = piecewise.then(|| Arc::clone(&heap));
        }
        (ofi, settings)
    }
}

impl CachesRegistrations for OfiTransport {
    #[inline]
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        Some(&mut self.memory)
    }
}

impl NodeTransport for OfiTransport {
    fn provider(&self) -> Option<&str> {
        Some(&self.endpoint.description().provider)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.wait_fd()
    }

    /// The one of the two that was called says nothing before it has heard from the other, which may not have
    /// come so far.
    fn meet(&mut self, rank: Rank, outsider: &Outsider) -> bool {
        let Some(known) = self.endpoint.add_peer(&outsider.endpoint, outsider.met) else { return false };
        let [caller, called] = [0, 1].map(|rank| Party { rank, incarnation: 0 });
        let (own, peer) = if outsider.called { (caller, called) } else { (called, caller) };
        let secret = &outsider.secret;
        let (outward, inward) = (Token::new(secret, own, peer), Token::new(secret, peer, own));
        let provider = &self.endpoint.description().provider;
        let mut link = Link::new(Some(known), outsider.place, outward, inward);
        link.life.silence_max = outsider.silence;
        link.life.listens_at = listens_at(provider, &outsider.endpoint, outsider.met);
        link.waiting.held = !outsider.called;
        self.links.insert(rank, link);
        if outsider.called {
            self.ping(rank);
        }
        true
    }

    #[inline(always)]
    fn is_linked(&self, peer: Rank) -> bool {
        self.links.get(peer).is_some()
    }

    /// A network's message comes by no cache line, so each moment of waiting finds it later.
    #[inline(always)]
    fn spin_for_message(&mut self, _: u32) {}

    fn prepare_sleep(&mut self) -> Rest {
        self.look_at_clock();
        self.send_frames_that_gather();
        let was_open = self.endpoint.is_open();
        self.landings.poll(&mut self.endpoint);
        if was_open && !self.endpoint.is_open() {
            self.lose_all();
        }
        if !self.events.is_empty() || self.gone.has_untold() {
            return Rest::Poll;
        }
        let waits = !self.ready.is_empty() || self.chores.len() > 0;
        if waits || self.endpoint.lacks_receives() {
            return Rest::Nap;
        }
        if self.endpoint.try_wait() { Rest::Sleep } else { Rest::Poll }
    }

    fn look_at_clock_soon(&mut self) {
        self.looks_left = 0;
    }

    /// Small copies are not among them.
    fn bytes_on_the_way(&self) -> u64 {
        self.copies.bytes_on_the_way()
    }

    /// Copies to and from heaps, and messages that bore no token of a member's.
    fn add_to(&self, counters: &mut Counters) {
        counters.merge(&self.counters);
        counters.malformed += self.strangers;
    }

    #[inline]
    fn take_signalled(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }

    #[inline]
    fn take_gathering(&mut self) -> bool {
        std::mem::take(&mut self.begins_to_gather)
    }

    fn send_gathered(&mut self) {
        self.send_frames_that_gather();
    }

    #[inline(always)]
    fn has_lost(&self) -> bool {
        self.gone.has_untold()
    }

    fn take_lost(&mut self) -> Vec<Rank> {
        self.gone.take_untold()
    }

    fn is_flushed(&self) -> bool {
        self.sending == 0 && !self.chores.has(Chore::Stuck) && !self.chores.has(Chore::Gathering)
    }

    fn take_leave(&mut self, peer: Rank) {
        if self.links.has(peer) && !self.gone.has(peer) {
            self.say_bye(peer);
        }
    }

    fn has_left(&self, peer: Rank) -> bool {
        self.gone.has_left(peer)
    }

    fn watch(&mut self, peer: Rank) {
        if !self.links.has(peer) && self.link(peer).is_ok() {
            self.ping(peer);
        }
    }
}
