//! The node: this process's part in a job.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use engine::node::{BARRIER_KEEPER, RegistrationCounters, Started};
use engine::{Counters, Nanos, OpError, OpId, PathReason, Rank};

use crate::base::error::Error;
use crate::base::handler_scope;
use crate::base::interrupt;
use crate::base::pointers::Remote;
use crate::counters::latency::{Latencies, Timed};
use crate::counters::stats::Stats;
use crate::observe::metrics::{self, NodeFigures};
use crate::runtime::core::{Engine, EngineGuard, NodeCore, Progress};
use crate::runtime::shared::Share;
use crate::runtime::wait_policy::WaitPolicy;
use crate::transport::contract::NodeTransport as _;
use crate::transport::peers::Peer;

/// The subject of a condition's late wait while a peer has not heard this process.
const UNHEARD: &str = "a condition; a peer has not heard this process's last message, and makes progress \
    only in calls of its own (STANDPIPE_PROGRESS is off there)";

/// A handle on this process's node. Clones are handles on the same node; any thread may use them. When the
/// last one is dropped the process leaves the job, and later operations of peers with it end with
/// [`Error::PeerLost`].
#[derive(Clone)]
pub struct Node {
    pub(crate) core: Arc<NodeCore>,
    /// How long blocking calls by this handle may wait.
    pub(crate) timeout: Option<Duration>,
    /// The client that the handle belongs to.
    pub(crate) client: u8,
    /// Shared by all handles of the client but those of handlers: what to end when the last one goes.
    share: Option<Arc<Share>>,
}

impl Node {
    /// The first handle of a client.
    pub(crate) fn new(share: Share, timeout: Option<Duration>) -> Node {
        let (core, client) = (Arc::clone(share.core()), share.client());
        Node { core, timeout, client, share: Some(Arc::new(share)) }
    }

    /// The parts that end with the client; handlers' handles have none.
    pub(crate) fn own_share(&self) -> Option<&Arc<Share>> {
        self.share.as_ref()
    }

    /// A handle for the time that a handler of a client's runs.
    pub(crate) fn from_inner(core: &Arc<NodeCore>, client: u8) -> Node {
        Node { core: Arc::clone(core), timeout: None, client, share: None }
    }

    /// The engine, which starts what is this client's until it is let go.
    #[inline]
    pub(crate) fn engine(&self) -> EngineGuard<'_> {
        let mut engine = self.core.engine();
        engine.act_for(self.client);
        engine
    }

    /// Refuses a call of a client that has closed, and to a child made by `fork`; to be asked before any
    /// lock.
    #[inline]
    pub(crate) fn may_call(&self, call: &'static str) -> Result<(), Error> {
        handler_scope::may_call(call, self.core.peers.clients.generation(self.client))
    }

    /// The same, of a call that may wait: it is refused while a handler runs on this thread, too.
    #[inline]
    pub(crate) fn may_wait(&self, call: &'static str) -> Result<(), Error> {
        handler_scope::may_wait(call, self.core.peers.clients.generation(self.client))
    }

    /// Refuses a number that is no rank's, and of nobody who came.
    pub(crate) fn check_peer(&self, peer: Rank) -> Result<(), Error> {
        if peer >= self.size() && self.core.peers.known(peer).is_none() {
            return Err(Error::NoSuchPeer { peer, size: self.size() });
        }
        Ok(())
    }

    /// Whether calls by this handle are answered: `call` is what an error names. For faces whose own calls
    /// must say so where a method of this has nothing to say it by. Any thread, and handlers.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn check(&self, call: &'static str) -> Result<(), Error> {
        self.may_call(call)
    }

    /// This process's rank: its number in the job, from 0.
    pub fn rank(&self) -> Rank {
        self.core.peers.own().rank
    }

    /// Processes in the job, this one included.
    pub fn size(&self) -> u32 {
        self.core.peers.own().size
    }

    /// A handle on the same node whose blocking calls wait at most `timeout`. An operation that it starts and
    /// waits for later (forms that end in `_nb` or `_nbi`) must end by then, too. The time counts from the
    /// operation's start, whoever waits for it, and how. An event of a collective of a [`Team`](crate::Team)
    /// waits at most so long, from the wait on. [`Duration::ZERO`] ends a call at once where it would have to
    /// wait; `STANDPIPE_TIMEOUT_MS=0` means no limit.
    pub fn within(&self, timeout: Duration) -> Node {
        Node { timeout: Some(timeout), ..self.clone() }
    }

    /// Connects to a peer now; otherwise the first operation with it does. Waits until the peer has joined
    /// the job.
    ///
    /// # Errors
    /// [`Error::NoSuchPeer`], [`Error::PeerLost`], and [`Error::Timeout`] (after 60 s where the node has no
    /// timeout). [`Error::HandlersDiffer`] where the peer has given a number of this process's to another
    /// handler; the two are connected all the same. [`Error::Connect`] or [`Error::Protocol`] where the
    /// peer's segments cannot be had or are not what they should be.
    pub fn connect(&self, peer: Rank) -> Result<(), Error> {
        self.may_wait("connecting to a peer")?;
        let known = self.core.peers.get(peer, self.timeout)?;
        let colliding = self.core.peers.colliding_number(known)?;
        colliding.map_or(Ok(()), |number| Err(self.core.handler_differs(peer, number)))
    }

    /// How a peer's private memory is reached: `Ok` by cross-memory attach, `Err` with the reason by
    /// messages. `None` before the first contact.
    pub fn attach(&self, peer: Rank) -> Option<Result<(), PathReason>> {
        self.core.peers.known(peer).map(|peer| peer.attach())
    }

    /// The provider of libfabric's by which peers are reached over a network: where none is asked for, the
    /// best that could be opened. `None` where there is shared memory only.
    pub fn provider(&self) -> Option<String> {
        self.may_call("the provider").ok()?;
        self.core.engine().transport().provider().map(str::to_owned)
    }

    /// Every rank that is known to be gone, in rising order: also each that an error has named as lost.
    pub fn lost_peers(&self) -> Vec<Rank> {
        if self.core.is_forked() {
            return Vec::new();
        }
        if self.core.peers.clients.are_leaving() {
            // To itself a node that closes has lost all.
            return (0..self.core.peers.own().places).filter(|rank| self.core.peers.is_lost(*rank)).collect();
        }
        self.core.note_losses();
        self.core.peers.lost_ranks()
    }

    /// Whether that rank is known to be gone. One look; [`Node::lost_peers`] names all that are. `false` also
    /// for a rank that there is not.
    pub fn is_lost(&self, peer: Rank) -> bool {
        if self.may_call("asking after a peer").is_ok() {
            self.core.note_losses();
        }
        self.core.peers.is_gone(peer)
    }

    /// Waits until every process of the job has called this. Everything that this node has put is complete
    /// before it arrives. Active Messages may still be on their way, and handlers of those that came before
    /// may not have run: only an answer of theirs tells.
    ///
    /// Of several threads that call it at once, each comes to a barrier of its own, one after the other.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when a rank cannot come any more, then and ever after. [`Error::WaitTimeout`],
    /// after which the next call waits for the same barrier. [`Error::InHandler`]. The errors of
    /// [`Node::quiet`]; then this process has not arrived, so call it again. At the first contact with rank 0
    /// those of [`Node::connect`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.may_wait("a barrier")?;
        let _span = tracing::trace_span!("barrier").entered();
        self.core.counted.latencies.time(Timed::Barrier, || self.all_meet())
    }

    fn all_meet(&self) -> Result<(), Error> {
        let late = || Error::WaitTimeout { waited_for: "all ranks to come to the barrier" };
        let turn = || self.core.threads.barrier.try_lock().ok();
        let _turn = match turn() {
            Some(turn) => turn,
            None => self.core.wait(self.timeout, turn).ok_or_else(late)?,
        };
        self.quiet()?;
        // The keeper may not have joined yet. If it is lost already, the engine knows what that means for the
        // barrier.
        match self.core.peers.get(BARRIER_KEEPER, self.timeout) {
            Ok(_) | Err(Error::PeerLost { .. }) => {}
            Err(error) => return Err(error),
        }
        let (core, mut wait_policy) = (&self.core, WaitPolicy::new(self.timeout));
        let polled = if core.has_network() { None } else { core.engine().arrive_polling() };
        let is_open = |engine: &mut Engine| polled.is_some_and(|epoch| engine.is_open(epoch));
        if polled.is_some()
            && core.poll_for(&mut wait_policy, |engine| is_open(engine).then_some(())).is_some()
        {
            return Ok(());
        }
        let op = {
            let mut engine = core.engine();
            if is_open(&mut engine) {
                return Ok(());
            }
            engine.barrier(None)
        };
        match (Node { timeout: wait_policy.left(), ..self.clone() }).finish(op) {
            Ok(_) => {
                self.core.flush_for_others(wait_policy.left());
                Ok(())
            }
            // The engine names who counts them.
            Err(Error::Timeout { .. }) => Err(late()),
            Err(error) => Err(error),
        }
    }

    /// Waits until every put of this client that was started before this call is complete at its target, and
    /// every get has arrived; what other threads start meanwhile is not waited for. Requests need not have
    /// run. Each client that [shares](Node::shared) a node waits for its own operations, and is told of its
    /// own failures.
    ///
    /// After `Ok` none of them can write any more, here or at its target. That holds for a put that was
    /// cancelled, was late, or whose event was dropped, too: this waits until its target has told that no
    /// more of it can arrive. So the target may be given to somebody else. A peer that is lost is not waited
    /// for.
    ///
    /// # Errors
    /// The first failure since the last call among operations that nobody waits for, and requests that their
    /// peers refused ([`Error::NoSuchHandler`]). [`Error::Timeout`] naming a peer that is awaited, which may
    /// still be written to. [`Error::InHandler`].
    pub fn quiet(&self) -> Result<(), Error> {
        self.may_call("quiet")?;
        self.quieten("quiet", None, None, || self.core.due.failures.take(self.client))
    }

    /// As [`Node::quiet`], of the operations that this client has started with one peer, and of their
    /// failures. Operations with other peers go on, and their failures stay for later calls. A peer that is
    /// lost is no failure by itself: only where something with it has failed. Failures with 4,096 peers are
    /// kept until somebody asks: those with more are not told here. Looks once through all that is under way.
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
        self.quieten(call, Some(peer), Some(started), || self.core.due.failures.take_with(self.client, peer))
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
        // A process that reads the heap after learning of this, by whatever way, sees the stores before.
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

    /// Says that `len` bytes of a peer's memory are going to be used. Where a network wants that registered,
    /// the peer is asked for it now, as far as this process may hold it at once, so that the first use need
    /// not wait. Nothing is waited for but the first contact with the peer, and nothing is promised: what is
    /// not used soon may be taken back. Elsewhere it does nothing.
    ///
    /// # Errors
    /// At the first contact with the peer what [`Node::connect`] says; [`Error::PeerLost`].
    pub fn prefetch(&self, remote: impl Into<Remote>, len: u64) -> Result<(), Error> {
        let remote = remote.into();
        let peer = self.connected(remote.peer())?;
        if let Peer::Far(far) = peer {
            self.core.engine().prefetch(far.rank, remote.place, len);
        }
        Ok(())
    }

    /// Says that this memory is going to be put from or got into, or to be reached by peers. Where a network
    /// wants it registered, it is now, as far as there is room for unused memory. It may be taken back;
    /// nothing is promised, and elsewhere it does nothing.
    pub fn prepare<T>(&self, memory: &[T]) {
        if self.core.is_forked() {
            return;
        }
        let (addr, len) = (memory.as_ptr().expose_provenance(), size_of_val(memory));
        self.core.engine().prepare(addr as u64, len as u64);
    }

    /// Whether [`Node::quiet`] has a failure to tell of. A caller that waits for an answer looks at this,
    /// too: the peer may have refused the request. One look.
    pub fn has_failed(&self) -> bool {
        let has = || self.engine().has_detached_error() || self.core.due.failures.has(self.client);
        self.may_call("asking for failures").is_ok() && has()
    }

    /// Waits until no peer uses what was registered of this process's memory before changes of it that have
    /// returned: memory that was unmapped, moved, mapped anew or emptied. A process that tells peers of new
    /// memory by messages, or by puts to other hosts, needs no such call: what this node sends after a change
    /// waits for that by itself. It is for processes that tell them by other ways than this node
    /// ([`Directory::publish`](crate::Directory::publish) does). Such a way is a file, a socket, a put or an
    /// atomic to a heap of this host, or a word of the own heap that others read. Costs nothing where nothing
    /// has changed, or nothing is registered.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`]; [`Error::InHandler`] where it would have to wait.
    pub fn memory_sync(&self) -> Result<(), Error> {
        let core = &self.core;
        self.may_call("memory_sync")?;
        let revocations = core.engine().revocations();
        let synced = || core.engine().are_given_back(revocations).then_some(());
        if synced().is_none() {
            self.may_wait("memory_sync")?;
            let waited_for = "peers to let go of memory that has changed";
            let late = || self.gave_up("memory_sync", Error::WaitTimeout { waited_for });
            self.wait(self.timeout, synced).ok_or_else(late)?;
        }
        Ok(())
    }

    /// Makes progress once: runs at most one handler. Returns whether anything moved. Never waits.
    pub fn progress(&self) -> bool {
        self.may_call("making progress").is_ok() && self.core.poll_once() == Progress::Moved
    }

    /// Makes progress until `condition` holds, which it asks again whenever something has moved; sleeps in
    /// between. A handler or a put by this node should change the condition, or a call of [`Node::wake`]
    /// should follow the change. A change by a peer's put into the heap is found within 100 ms.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`], [`Error::InHandler`].
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) -> Result<(), Error> {
        self.may_call("waiting for a condition")?;
        if condition() {
            return Ok(());
        }
        self.may_wait("waiting for a condition")?;
        self.wait(self.timeout, || condition().then_some(())).ok_or_else(|| {
            let waited_for = match self.core.peers.unheard_by().next() {
                None => "a condition",
                Some(_) => UNHEARD,
            };
            self.gave_up("waiting for a condition", Error::WaitTimeout { waited_for })
        })
    }

    /// Wakes this node's threads that wait, so that they look again at what they wait for.
    pub fn wake(&self) {
        if !self.core.is_forked() {
            self.core.wake();
        }
    }

    /// Counters of this node so far.
    pub fn stats(&self) -> Stats {
        if self.core.is_forked() {
            return Stats::new(Counters::default());
        }
        let mut counters = {
            let mut engine = self.core.engine();
            let mut counters = engine.counters().clone();
            engine.transport().add_to(&mut counters);
            counters
        };
        self.core.counted.add_to(&mut counters);
        Stats::new(counters)
    }

    /// How long this node's calls took, of those that wait for others or the kernel, one in
    /// [so many](Timed::sampled_of).
    pub fn latencies(&self) -> Latencies {
        Latencies::from_words(&self.core.counted.latencies.words())
    }

    /// Counters of registered memory so far; all zero where this node registers nothing.
    pub fn registrations(&self) -> RegistrationCounters {
        if self.core.is_forked() {
            return RegistrationCounters::default();
        }
        self.core.engine().registration_counters()
    }

    /// The counters of this node so far as OpenMetrics text, with its rank and these labels: the answer of a
    /// program that is scraped. Labels that the figures have themselves (`rank`, `operation`, `mechanism`,
    /// `call`) are left out. Any thread, and handlers.
    pub fn open_metrics(&self, labels: &[(&'static str, &str)]) -> String {
        let rank = ("rank", self.rank().to_string());
        let own = ["rank", "operation", "mechanism", "call"];
        let labels = labels.iter().filter(|(name, _)| !own.contains(name));
        let labels = labels.map(|(name, value)| (*name, (*value).to_owned()));
        let figures = NodeFigures::of(&self.stats(), &self.registrations(), self.latencies());
        metrics::text([(labels.chain([rank]).collect(), figures)])
    }

    /// Whether the client has closed, or the node.
    pub(crate) fn has_closed(&self) -> bool {
        self.core.peers.clients.generation(self.client) == handler_scope::CLOSED
    }

    /// Makes progress until `done` gives something. `None`: the time is over, the client has closed, or the
    /// program's hook has ended the wait.
    pub(crate) fn wait<R>(
        &self,
        timeout: Option<Duration>,
        mut done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let done_or_closed = || match done() {
            Some(result) => Some(Some(result)),
            None if self.has_closed() => Some(None),
            None => None,
        };
        self.core.wait(timeout, done_or_closed).flatten()
    }

    /// The error of a wait that was given up: its own, of time that has passed, unless the client has closed
    /// or the program's hook has ended it.
    #[cold]
    pub(crate) fn gave_up(&self, call: &'static str, late: Error) -> Error {
        let interrupted = || if interrupt::has_ended() { Error::Interrupted { call } } else { late };
        self.may_call(call).err().unwrap_or_else(interrupted)
    }

    /// When an operation that starts now must end, as the engine counts time.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let at = Instant::now().checked_add(self.timeout?)?;
        Some(self.core.nanos(at))
    }

    /// Waits for an operation's outcome. However this ends, the operation then touches no memory any more.
    pub(crate) fn finish(&self, op: OpId) -> Result<u64, Error> {
        let unfinished = Unfinished { node: self, op };
        self.may_wait("waiting for an operation")?;
        let core = &self.core;
        let outcome = match self.wait(self.timeout, || core.engine().outcome(op)) {
            Some(outcome) => {
                std::mem::forget(unfinished);
                outcome
            }
            // As if a deadline of the operation's own had passed: the engine knows whom it waited for.
            None => {
                let outcome = unfinished.end().unwrap_or(Err(OpError::Timeout { peer: 0 }));
                return outcome
                    .map_err(|error| self.gave_up("waiting for an operation", core.error_of(error)));
            }
        };
        outcome.map_err(|error| core.error_of(error))
    }
}

/// Looks whether nothing at all is under way, before it notes what is. So a wait that soon ends notes
/// nothing, and one beside threads that start ever more ends nonetheless.
const LOOKS: u32 = 2;

/// The target of a call's wait.
struct Awaited<'a> {
    node: &'a Node,
    /// Only what is with this peer.
    with: Option<Rank>,
    looks: u32,
    /// The operations that were started by the time that it was noted.
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
        peer.map_or(nobody, |peer| self.node.core.peers.late(peer))
    }
}

/// Ends an operation that is still under way when a wait for it ends early, be it by a handler's panic.
struct Unfinished<'a> {
    node: &'a Node,
    op: OpId,
}

impl Unfinished<'_> {
    #[cold]
    fn end(&self) -> Option<engine::Outcome> {
        let mut engine = self.node.core.engine();
        engine.cancel(self.op);
        let outcome = engine.outcome(self.op);
        drop(engine);
        // Its time may be taken, and nothing may move for long.
        self.node.core.after_cancel();
        outcome
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("rank", &self.rank()).field("size", &self.size()).finish_non_exhaustive()
    }
}
