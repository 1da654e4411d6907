//! Showing the counters to whoever looks at the job from outside, when told that somebody does.
//!
//! Two writers that never wait for each other: the watching thread shows what is counted directly, whoever
//! polls next shows the engine's.

use std::sync::atomic::Ordering;
use std::time::Instant;

use engine::Counters;
use engine::node::RegistrationCounters;

use crate::runtime::core::{Engine, NodeCore};
use crate::transport::contract::NodeTransport as _;
use crate::transport::shm::stats_page::peers::{GrantPeers, Peers};
use crate::transport::shm::stats_page::{PageCounters, Part};

impl NodeCore {
    /// Shows what never enters the engine. Only for the watching thread, and once that has ended.
    pub(crate) fn publish_direct(&self) {
        let at = self.nanos(Instant::now());
        self.peers.own().control.publish_latencies(at, &self.counted.latencies.words());
        let mut counters = Counters::default();
        self.counted.add_to(&mut counters);
        self.publish(Part::Direct, &PageCounters::new(&counters, RegistrationCounters::default()));
    }

    /// Shows the engine's counters. Only for whoever holds its lock.
    pub(crate) fn publish_engine(&self, engine: &mut Engine) {
        // First, for whoever sees the figures takes these to be there.
        let at = self.nanos(Instant::now());
        self.peers.own().control.publish_peers(at, &Peers::of(engine.registration_by_peer()));
        self.peers.own().control.publish_grant_peers(at, &GrantPeers::of_grants(engine.grants_by_peer()));
        let mut counters = engine.counters().clone();
        engine.transport().add_to(&mut counters);
        self.publish(Part::Engine, &PageCounters::new(&counters, engine.registration_counters()));
    }

    /// Shows all counters once more, where somebody has been looking. For when all other threads have ended.
    pub(crate) fn publish_last(&self) {
        if self.counted.watched.load(Ordering::Relaxed) {
            self.publish_direct();
            self.publish_engine(&mut self.engine());
        }
    }

    fn publish(&self, part: Part, figures: &PageCounters) {
        self.peers.own().control.publish(part, self.nanos(Instant::now()), figures);
    }
}
