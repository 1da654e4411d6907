//! Waiting until what was started is over, and can write no more: `quiet`, `fence`, and both with one peer.

use std::sync::atomic::{Ordering, fence};

use engine::node::Started;
use engine::{OpError, Rank};

use crate::api::node::Node;
use crate::base::error::Error;

/// Looks whether nothing at all is under way, before what is under way is noted: so that a wait which soon
/// ends notes nothing, and one beside threads that start ever more ends nonetheless.
const LOOKS: u32 = 16;

/// What a call waits for.
struct Awaited<'a> {
    node: &'a Node,
    /// Only what is with this peer.
    with: Option<Rank>,
    looks: u32,
    /// What was started by the time that it was noted.
    started: Option<Started>,
}

impl Awaited<'_> {
    /// Whether it is over: then a failure as the engine sees it.
    fn look(&mut self) -> Option<Option<OpError>> {
        let mut engine = self.node.engine();
        let is_over = match &mut self.started {
            Some(started) => engine.are_over(started),
            None if engine.is_quiet() => true,
            None => {
                self.looks += 1;
                if self.looks == LOOKS {
                    self.started = Some(engine.started(None));
                }
                false
            }
        };
        is_over.then(|| match self.with {
            Some(peer) => engine.take_detached_error_with(peer),
            None => engine.take_detached_error(),
        })
    }

    /// The error of a wait that was too long.
    #[cold]
    fn late(&self) -> Error {
        let now = || self.node.engine().started(None).awaited();
        let peer = self.with.or_else(|| self.started.as_ref().map_or_else(now, Started::awaited));
        let nobody = Error::WaitTimeout { waited_for: "what this node has started to end" };
        peer.map_or(nobody, |peer| Error::Timeout { peer })
    }
}

/// Waiting for what was started.
impl Node {
    /// Waits until every put of this client that was started before this call is complete at its target, and
    /// every get has arrived; what other threads start meanwhile is not waited for. Requests need not have
    /// run. Of those who [share](Node::shared) a node, each waits for its own, and is told of its own
    /// failures.
    ///
    /// After `Ok` nothing of it can write any more, here or at its target: a put that was cancelled, was
    /// late, or whose event was dropped is waited for, too, until its target has told that no more of it can
    /// arrive. So the target may be given to somebody else. A peer that is lost is not waited for.
    ///
    /// # Errors
    /// The first failure since the last call among operations that nobody waits for, and requests that their
    /// peers refused ([`Error::NoSuchHandler`]); [`Error::Timeout`] naming a peer that is awaited, which may
    /// still be written to; [`Error::InHandler`].
    pub fn quiet(&self) -> Result<(), Error> {
        self.may_call("quiet")?;
        self.quieten("quiet", None, None, || self.core.failures.take(self.client))
    }

    /// As [`Node::quiet`], of what this client has started with one peer, and of the failures of that: what
    /// it has started with others goes on, and failures with them stay for later calls. A peer that is lost
    /// is no failure by itself: only where something with it has failed. Failures with 4,096 peers are kept
    /// until somebody asks: those with more are not told here. Looks once through all that is under way.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`]; the first failure with that peer since the last call of this or
    /// [`Node::quiet`], [`Error::PeerLost`] among them; [`Error::Timeout`] naming the peer;
    /// [`Error::InHandler`] where something is under way with it.
    pub fn quiet_with(&self, peer: Rank) -> Result<(), Error> {
        self.quieten_with("quiet_with", peer)
    }

    /// Orders: puts to a peer that were started before are seen by it before those started after. Waits only
    /// if some are going by message, or may still arrive though they were given up.
    ///
    /// # Errors
    /// As for [`Node::quiet`].
    pub fn fence(&self) -> Result<(), Error> {
        self.quiet()
    }

    /// Orders as [`Node::fence`] does, of puts to one peer: those to others are neither waited for nor told
    /// of.
    ///
    /// # Errors
    /// As for [`Node::quiet_with`].
    pub fn fence_with(&self, peer: Rank) -> Result<(), Error> {
        self.quieten_with("fence_with", peer)
    }

    fn quieten_with(&self, call: &'static str, peer: Rank) -> Result<(), Error> {
        self.may_call(call)?;
        self.check_peer(peer)?;
        let started = self.engine().started(Some(peer));
        self.quieten(call, Some(peer), Some(started), || self.core.failures.take_with(self.client, peer))
    }

    /// Waits for what was started, with one peer or with all, and tells of a failure that is known by the end
    /// or was noted.
    fn quieten(
        &self,
        call: &'static str,
        with: Option<Rank>,
        started: Option<Started>,
        noted: impl FnOnce() -> Option<Error>,
    ) -> Result<(), Error> {
        // Whoever reads the heap after learning of this, by whatever way, sees the stores before.
        fence(Ordering::SeqCst);
        let mut awaited = Awaited { node: self, with, looks: 0, started };
        let failed = match awaited.look() {
            Some(failed) => failed,
            None => {
                self.may_wait(call)?;
                let waited = self.wait(self.timeout, || awaited.look());
                waited.ok_or_else(|| self.gave_up(call, awaited.late()))?
            }
        };
        // Not with the engine held: names have a lock of their own.
        let failed = failed.map(|error| self.core.named(error));
        // Both are told of, by one of them: what failed at once, and what did later.
        let noted = noted();
        failed.or(noted).map_or(Ok(()), Err)
    }
}
