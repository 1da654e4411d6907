//! The layer's handle: how it opens and ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use standpipe::{Error, Node, Team};

use super::arrivals::arrive;
use super::extract::Extractor;
use super::notices::Notice;
use super::outgoing::Outgoing;
use super::port::Port;
use super::runner::Runner;
use super::shared::Shared;
use crate::Copies;

/// The layer's namespace.
const NAMESPACE: &str = "fm";

/// How long closing may take.
const CLOSE: Duration = Duration::from_secs(5);

/// Nodes that the layer can tell apart.
pub(crate) const NODES_MAX: u32 = 1 << 20;

/// Fast Messages on a node. Any thread may use it; handlers run in its calls only, one at a time.
pub struct Fm {
    extractor: Extractor,
    world: Team,
}

/// The counters of the layer at this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Messages and packets of peers that were refused, as no process of this layer sends them.
    pub refused: u64,
    /// Messages for handlers that were not registered.
    pub unhandled: u64,
    /// Handlers whose message will never be complete. Each keeps its stack.
    pub set_aside: u64,
    /// Stacks that were made.
    pub stacks: u64,
}

/// Why the layer does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The job has more processes than the layer can tell apart.
    #[error("a job of {nodes} processes, where {most} are the most")]
    Nodes {
        /// How many it has.
        nodes: u32,
        /// How many it may have.
        most: u32,
    },
    /// The node refuses, or a process is lost before it comes.
    #[error(transparent)]
    Node(#[from] Error),
}

impl Fm {
    /// Opens the layer on a node, whose handle it keeps, and waits until all processes of the job have.
    /// `dispatch` runs the handlers: it must hold nothing that keeps this value alive.
    ///
    /// # Errors
    /// [`OpenError::Nodes`]; [`OpenError::Node`] where the layer is open on this node already
    /// ([`Error::HandlerTaken`]), where a process is lost ([`Error::PeerLost`]), and in a handler of Active
    /// Messages ([`Error::InHandler`]).
    pub fn open(
        node: Node,
        dispatch: impl Fn(&super::Incoming<'_>) -> Option<super::Done> + Send + Sync + 'static,
    ) -> Result<Fm, OpenError> {
        let nodes = node.size();
        if nodes > NODES_MAX {
            return Err(OpenError::Nodes { nodes, most: NODES_MAX });
        }
        let shared = Arc::new(Shared::new(nodes));
        let its = Arc::clone(&shared);
        let packets = node.register(NAMESPACE, "packet", move |call| arrive(&its, call))?;
        let world = node.world_of(NAMESPACE)?;
        world.barrier()?;
        let port = Port { node, shared, packets };
        Ok(Fm { extractor: Extractor::new(port, Arc::new(dispatch)), world })
    }

    #[inline]
    pub(crate) fn port(&self) -> &Port {
        &self.extractor.port
    }

    /// Takes packets in the order in which they came, and runs the handlers of their messages, until packets
    /// of `most` bytes have been taken: the last one may go beyond it. A packet counts as one byte at least;
    /// with 0 none is taken. Packets that wait at the call, and those that come meanwhile, are taken up to as
    /// many as could have waited. After four calls that found one packet and none behind it, a call may take
    /// one only, and the next one the rest. Ends early where a handler says
    /// [`Done::Quit`](super::Done::Quit). Never waits.
    ///
    /// Handlers run on this thread, and may call this. While another thread extracts, and deeper within
    /// handlers than [`NESTING_MAX`](super::NESTING_MAX), it runs none. Returns how many bytes of messages it
    /// has taken.
    #[inline]
    pub fn extract(&self, most: u64) -> u64 {
        self.extractor.extract(most)
    }

    /// This process's number, from 0.
    pub fn node_id(&self) -> u32 {
        self.port().node.rank()
    }

    /// Processes in the job.
    pub fn nodes(&self) -> u32 {
        self.port().nodes()
    }

    /// Packets that may be under way from one process to another, of up to
    /// [`PACKET_MAX`](super::wire::PACKET_MAX) bytes each.
    pub fn window(&self) -> u32 {
        self.port().window()
    }

    /// Whether a handler of the layer's runs on the calling thread.
    pub fn in_handler(&self) -> bool {
        Runner::current().is_some()
    }

    /// Where the [`Incoming`](super::Incoming) lies of the handler that runs on the calling thread. `None`
    /// outside handlers.
    pub fn running(&self) -> Option<usize> {
        Runner::current().map(|current| current.incoming)
    }

    /// Whether a process is known to be lost.
    pub fn is_lost(&self, node: u32) -> bool {
        self.port().shared.peers.get(node as usize).is_some_and(|peer| peer.is_lost.load(Ordering::Relaxed))
    }

    /// Errors since the last call that the layer has gone on after.
    #[inline]
    pub fn take_notices(&self) -> Vec<Notice> {
        self.port().shared.notices.take()
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.port().shared.counters;
        let [refused, unhandled, set_aside, stacks] =
            [&counters.refused, &counters.unhandled, &counters.set_aside, &counters.stacks]
                .map(|counter| counter.load(Ordering::Relaxed));
        Counts { refused, unhandled, set_aside, stacks }
    }

    /// Bytes that the layer has copied.
    pub fn copies(&self) -> Copies {
        let counters = &self.port().shared.counters;
        Copies {
            sent: counters.copied_sent.load(Ordering::Relaxed),
            received: counters.copied_received.load(Ordering::Relaxed)
                + counters.copied_arrived.load(Ordering::Relaxed),
        }
    }

    /// Ends the layer at this process, once all others have called this or are lost. Packets that have not
    /// been extracted, and those that come meanwhile, are thrown away. Messages that have not been ended are
    /// given up, and handlers that wait are set aside. Nothing may be called after it.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler, and nothing is done. [`Error::PeerLost`] where a process is lost;
    /// the layer has ended all the same.
    pub fn finalize(&self) -> Result<(), Error> {
        if self.in_handler() {
            return Err(Error::InHandler { call: "ending the layer" });
        }
        self.give_all_up();
        let all_met = self.meet();
        // What stays open at a peer that is lost is no news.
        let _ = self.port().node.clone().close(CLOSE);
        all_met
    }

    /// Waits until all others have come, and takes what they send meanwhile.
    fn meet(&self) -> Result<(), Error> {
        let mut event = self.world.barrier_nb();
        while !event.is_complete() {
            self.port().throw_away_queued();
            self.port().return_all_credits();
            self.port().tell_of_cuts();
            // An event's end wakes it; the time is for what a full lane has kept.
            let _ = self.port().node.within(Duration::from_millis(10)).wait_until(|| event.is_complete());
        }
        event.wait().0
    }

    fn give_all_up(&self) {
        self.port().shared.is_closing.store(true, Ordering::Relaxed);
        Runner::with(|runner| {
            runner.take_all(&self.port().shared).into_iter().for_each(|suspended| suspended.set_aside());
        });
        // Handlers of other threads stay where they are.
        self.port().shared.discard_streams();
        for (node, peer) in (0..).zip(&self.port().shared.peers) {
            if peer.outgoing.is_open() {
                if !peer.is_lost.load(Ordering::Relaxed) {
                    self.port().shared.notices.add(not_ended(node, &peer.outgoing));
                }
                self.port().shared.give_up(peer);
            }
        }
    }
}

fn not_ended(node: u32, outgoing: &Outgoing) -> Notice {
    Notice::NotEnded { node, given: outgoing.total(), announced: outgoing.announced() }
}

impl fmt::Debug for Fm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Fm");
        shown.field("node", &self.port().node).field("counts", &self.counts()).finish_non_exhaustive()
    }
}
