//! Opening a node: its segments, the job it joins, its engine and its threads.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::{OpError, Rights};
use vm::fault_safe_copy::CheckedCopy;
use vm::heap::HeapAllocator;
use vm::segment::PAGE_BYTES;
use vm::{Segment, SegmentError, membarrier};

use crate::api::config::{Config, Exposure, ProgressThread, Transport};
use crate::api::directory;
use crate::api::node::Node;
use crate::base::code::{Code, into_io_error, of_system};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::{Error, with_remedy};
use crate::base::fd_limit::fill_standard;
use crate::base::lock::lock;
use crate::job::launched::{JoinError, Membership, Notice, OnNotice};
use crate::job::launchers::{Host, HostError};
use crate::job::plumbing::{JobEnv, JobEnvError};
use crate::runtime::bring_up_network;
use crate::runtime::core::{Engine, Handler, NodeCore, Outside, Parts};
use crate::runtime::handlers::{Handlers, Runnable};
use crate::runtime::life::Life;
use crate::runtime::shared::Share;
use crate::transport::contract::{Members, NodeTransport as _, Party, Reach};
use crate::transport::list::{self, NetworkPlan, OpenEndpoint};
use crate::transport::ofi::provider::NetworkError;
use crate::transport::peers::{Own, OwnHandlers, Peer, Peers};
use crate::transport::router::Router;
use crate::transport::shm::control::{Identity, Mapping};
use crate::transport::shm::heap_pages::HeapState;
use crate::transport::shm::ledger::Ledger;
use crate::transport::shm::{COPIED_APART_MIN, Control, OwnMemory, ShmTransport};

/// How long joining the job may take.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// Taken for the physical memory where the system does not tell.
const HEAP_UNKNOWN: u64 = 2 << 30;

/// No heap is larger: pointers in the directory have no more bits, and few processes more room.
const HEAP_MAX: u64 = 64 << 40;

/// How long a far peer's address may take to be found, with the engine held: the peer has joined in most
/// cases.
const FIND_WITHIN: Duration = Duration::from_secs(2);

/// How long an opening node waits for the one that it watches to be connected to.
const GREET_WITHIN: Duration = Duration::from_secs(1);

/// How long a wait polls before it sleeps, where the job has a core for each process.
const SPIN: Duration = Duration::from_micros(50);

debug_is_display!(OpenError);

/// Why a node did not open.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The environment names a job, but not one that can be.
    #[error("the job that the environment names: {0}")]
    Environment(#[from] JobEnvError),
    /// The job's launcher did not let this process in.
    #[error("cannot join the job: {0}")]
    Join(#[from] JoinError),
    /// The processes that another launcher has started did not come together.
    #[error("the job that this process was started in: {0}")]
    Meet(#[from] HostError),
    /// There is no room for a heap of this size.
    #[error("cannot make a heap of {bytes} bytes: {}", with_remedy(source))]
    Heap {
        /// The heap's size.
        bytes: u64,
        /// The reason.
        source: SegmentError,
    },
    /// The configuration asks for a network, and there is none to be had.
    #[error("cannot open the network: {0}")]
    Network(#[from] NetworkError),
    /// The system gave no memory segment.
    #[error("cannot create a memory segment: {}", with_remedy(.0))]
    Segment(#[from] SegmentError),
    /// The system gave no thread or scratch memory.
    #[error("cannot start: {0}")]
    Os(#[from] std::io::Error),
    /// A rank of another host cannot be reached, as its network is another.
    #[error("{0}")]
    Peer(Error),
    /// A handler that comes with the configuration cannot be registered.
    #[error("{0}")]
    Handler(Error),
    /// The process's [shared](Node::shared) node was opened with another value of a setting.
    #[error("the process's node was opened with {setting} {first}, and not {given}")]
    Conflict {
        /// The setting.
        setting: &'static str,
        /// Its value at the first call, or `unset`.
        first: String,
        /// The value of this call.
        given: String,
    },
    /// As many clients share the process's node as can.
    #[error("{most} clients share the process's node already")]
    Clients {
        /// How many.
        most: u64,
    },
    /// This process is a child made by `fork` by one that shares its node. [`Node::open`] opens one here.
    #[error(
        "sharing a node: this process is a forked child of one that does, and can open a node of its own"
    )]
    Forked,
    /// Sharing the process's node would have to wait until it has been opened or closed, in a handler.
    #[error("sharing a node would wait for it to be opened or closed, and a handler must not")]
    InHandler,
}

impl OpenError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            OpenError::Environment(_) => Code::Setting,
            OpenError::Join(_) | OpenError::Meet(_) => Code::Join,
            OpenError::Heap { .. } => Code::NoMemory,
            OpenError::Network(error) => error.code(),
            OpenError::Segment(error) if error.is_for_size() => Code::NoMemory,
            OpenError::Segment(_) => Code::System,
            OpenError::Os(error) => of_system(error),
            OpenError::Handler(error) | OpenError::Peer(error) => error.code(),
            OpenError::Conflict { .. } => Code::Setting,
            OpenError::Clients { .. } => Code::NoRoom,
            OpenError::Forked => Code::Forked,
            OpenError::InHandler => Code::InHandler,
        }
    }
}

into_io_error!(OpenError);

/// Opening.
impl Node {
    /// Opens this process's node: joins the job that `standpipe run`, Open MPI's `mpirun`, MPICH's `mpiexec`,
    /// Slurm's `srun` or torchrun started it in, or makes a job of one. Under other launchers than ours all
    /// of the job's processes must open a node. There the last handle of each host's lowest rank waits, when
    /// it is dropped, until all others there have left. Ranks on other hosts are reached over the network,
    /// whatever [`Config::transport`] says of those on this.
    ///
    /// From now on every process of the job may put to and get from every address of this one, as `ptrace`
    /// would let it: a job is one program in several processes. Without a job, or where [`Config::exposure`]
    /// says so, peers reach the heap and what the node [exposes](Node::expose).
    ///
    /// # Errors
    /// See [`OpenError`]. Waits for the other ranks to come only under other launchers than ours, for a
    /// minute or as [`Config::meet_within`] says, at each of two meetings.
    pub fn open(config: Config) -> Result<Node, OpenError> {
        let timeout = config.timeout;
        Ok(Node::new(Share::alone(open(config)?), timeout))
    }

    /// Opens a node of the job that `env` names, or a job of one. Several nodes may live in one process,
    /// which is how tests run a whole job inside themselves.
    ///
    /// # Errors
    /// As for [`Node::open`].
    pub fn open_in(config: Config, env: Option<&JobEnv>) -> Result<Node, OpenError> {
        let timeout = config.timeout;
        Ok(Node::new(Share::alone(open_in(config, env)?), timeout))
    }
}

/// Opens a node of the job that this process was started in, or of none.
pub(super) fn open(config: Config) -> Result<Arc<Life>, OpenError> {
    prepare_process();
    if let Some(env) = JobEnv::from_env()? {
        return open_in(config, Some(&env));
    }
    match Host::meet(config.interface.as_deref(), soon(config.meet))? {
        Some(host) => open_at(config, host),
        None => open_in(config, None),
    }
}

/// Opens a node of a job that another launcher has started, on one host or several.
fn open_at(config: Config, mut host: Host) -> Result<Arc<Life>, OpenError> {
    let (rank, size) = (host.env().rank(), host.env().size());
    let _span = tracing::debug_span!("open", rank, size).entered();
    let endpoint = match &config.transport {
        any if host.is_spread() => Some(list::open(any, Reach::Network(host.address()))?),
        far if *far != Transport::Shm && size > 1 => Some(list::open(far, Reach::Host)?),
        _ => None,
    };
    let (watch, notify) = Watch::new();
    let seat = Seat::take(&config, Some(host.env()), endpoint.as_ref(), notify)?;
    host.set_round(seat.peers.round());
    if host.is_spread() {
        let card = seat.peers.card(host.lowest(), config.progress != ProgressThread::Off);
        let elsewhere = host.tell(&card, soon(config.meet))?;
        // Endpoints that never hear each other are told so now: later it would only be late.
        for (rank, card) in (0..).zip(&elsewhere) {
            card.as_ref()
                .map_or(Ok(()), |card| seat.peers.understands_card(rank, card))
                .map_err(OpenError::Peer)?;
        }
        seat.peers.set_elsewhere(elsewhere);
    }
    let endpoint = endpoint.map(|endpoint| (endpoint, host.secret()));
    let life = assemble(config, seat, endpoint, &watch)?;
    if host.is_spread() {
        let core = life.core();
        core.listen()?;
        core.keep_watch(&mut core.engine());
        // A peer that is connected to is missed when it is gone; one that never was might be late.
        let is_reached = || core.engine().transport().is_flushed().then_some(());
        let _ = core.wait_for_room(Some(GREET_WITHIN), is_reached);
    }
    host.take_leave();
    life.stay_for(host);
    Ok(life)
}

/// Opens a node of the job that `env` names, or a job of one.
fn open_in(config: Config, env: Option<&JobEnv>) -> Result<Arc<Life>, OpenError> {
    prepare_process();
    let (rank, size) = env.map_or((0, 1), |env| (env.rank(), env.size()));
    let _span = tracing::debug_span!("open", rank, size).entered();
    let (watch, notify) = Watch::new();
    let endpoint = match (&config.transport, env) {
        (far, Some(env)) if *far != Transport::Shm && env.size() > 1 => {
            Some((list::open(far, Reach::Host)?, env.secret()))
        }
        _ => None,
    };
    let seat = Seat::take(&config, env, endpoint.as_ref().map(|(endpoint, _)| endpoint), notify)?;
    assemble(config, seat, endpoint, &watch)
}

fn assemble(
    config: Config,
    seat: Seat,
    endpoint: Option<(OpenEndpoint, &[u8])>,
    watch: &Watch,
) -> Result<Arc<Life>, OpenError> {
    let seed = nonce();
    let Seat { peers, heap, nonce, outside, handlers } = seat;
    let own = peers.own();
    // With `Auto`, a peer may still ask for it later.
    let threaded = match config.progress {
        ProgressThread::On => true,
        ProgressThread::Off => false,
        ProgressThread::Auto => own.size > 1 && peers.itself().reach.attach().is_err(),
    };
    let spin = config.spin.unwrap_or_else(|| default_spin(own.size, threaded && endpoint.is_none()));
    let attends = threaded || (endpoint.is_some() && config.progress == ProgressThread::Auto);
    let sleepers = Arc::new(AtomicU32::new(0));
    let mut memory =
        OwnMemory::new(Arc::clone(peers.itself()), checked()?).with_bounce_buffers(Arc::clone(&heap));
    if endpoint.is_some() {
        memory.set_bounce_buffers_aside();
    }
    let mut shm = ShmTransport::new(Arc::clone(&peers), Arc::clone(&sleepers), !spin.is_zero(), memory);
    let has_copiers = shm.set_copiers(config.copiers as usize);
    let plan = plan(&config);
    let parts = Parts {
        engine: Engine::new(own.rank, own.size, 0, Router::near(shm)),
        peers,
        heap,
        handlers,
        sleepers,
        spin,
        nonce,
        outside,
        may_attend: plan.attends,
        copied_apart_min: if has_copiers { COPIED_APART_MIN } else { u64::MAX },
    };
    let core = Arc::new(NodeCore::new(parts));
    core.handlers.give_all(&mut core.engine());
    core.engine().seed_grants(seed);
    let near = || (0..core.peers.own().size).filter(|rank| !core.peers.is_far(*rank)).collect();
    let near: Option<Vec<u32>> = core.peers.has_far().then(near);
    core.engine().make_near_team(near);
    if core.peers.own().identity.ranges_only {
        let (mut engine, heap) = (core.engine(), core.peers.itself().heap());
        engine.expose_ranges_only();
        // Over a network its pages may be named by their addresses.
        engine.expose(heap.base_addr(), heap.len(), Rights::ReadWrite);
        let allocated = core.peers.own().identity.allocated;
        if allocated.len > 0 {
            engine.expose(allocated.base, allocated.len, Rights::ReadWrite);
        }
    }
    if let Some((endpoint, secret)) = endpoint {
        bring_up_network::set_up(&core, &plan, endpoint, members(&core.peers, secret))?;
    }
    watch.watch(&core);
    if attends {
        core.attend()?;
    } else if !core.handlers.is_empty() {
        core.stand_by();
    }
    Ok(Arc::new(Life::new(core)))
}

/// How a node of this configuration uses the network.
fn plan(config: &Config) -> NetworkPlan {
    NetworkPlan {
        transport: config.transport.clone(),
        strategy: config.strategy,
        pin_bytes: config.pin_bytes,
        silence: config.silence,
        attends: config.progress != ProgressThread::Off,
        listen: config.listen,
    }
}

/// The ranks of a job, as its network is told.
fn members(peers: &Arc<Peers>, secret: &[u8]) -> Members {
    let (rank, size, known) = (peers.own().rank, peers.own().size, Arc::clone(peers));
    let find = move |rank| match known.get(rank, Some(FIND_WITHIN)) {
        Ok(Peer::Far(peer)) => Ok(peer.endpoint.clone()),
        Ok(Peer::Near(_)) => {
            Err(OpError::Protocol { peer: rank, what: "no address in the network: it is near" })
        }
        Err(Error::PeerLost { .. }) => Err(OpError::PeerLost { peer: rank }),
        Err(error) => {
            tracing::warn!(peer = rank, %error, "the peer's address cannot be found");
            Err(OpError::Protocol { peer: rank, what: "no address in the network" })
        }
    };
    // A rank's nodes are told apart by the round that they are of, as all others' are.
    let round = peers.round();
    let (own, incarnations) = (Party { rank, incarnation: round }, vec![round; size as usize]);
    Members { secret: secret.into(), own, incarnations, find: Box::new(find) }
}

/// So much later than now; of two moments that nobody lives to see, the earlier.
fn soon(time: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(365 * 86_400);
    Instant::now() + time.min(AGE)
}

fn checked() -> std::io::Result<CheckedCopy> {
    Ok(CheckedCopy::new()?)
}

/// A process's memory and its place in a job: all of a node but its engine.
pub(crate) struct Seat {
    pub(crate) peers: Arc<Peers>,
    pub(crate) heap: Arc<HeapState>,
    /// Lies at an address that peers know for as long as they may look.
    pub(crate) nonce: Box<u64>,
    /// For peers of no job, unless there is one.
    pub(crate) outside: Option<Outside>,
    pub(crate) handlers: Handlers<Handler>,
}

impl Seat {
    /// Makes the segments, and joins the job that `env` names with them; without one it is a job of one. With
    /// an `endpoint`, peers are reached over the network.
    pub(crate) fn take(
        config: &Config,
        env: Option<&JobEnv>,
        endpoint: Option<&OpenEndpoint>,
        on_notice: OnNotice,
    ) -> Result<Seat, OpenError> {
        let (rank, size) = env.map_or((0, 1), |env| (env.rank(), env.size()));
        // The ranks of a job are all the peers that they have.
        let places = if env.is_some() { size } else { 1 + config.peers };
        let (heap, allocated) = create_heap(config, size)?;
        let (allocator, directory) = first_blocks(&heap, allocated)?;
        let nonce = Box::new(nonce());
        let identity = Identity {
            rank,
            size,
            nonce: *nonce,
            nonce_addr: std::ptr::from_ref(&*nonce).expose_provenance() as u64,
            fences_asymmetric: membarrier::register(),
            ranges_only: match config.exposure {
                Exposure::Auto => env.is_none(),
                exposure => exposure == Exposure::Ranges,
            },
            unattended: config.progress == ProgressThread::Off,
            directory,
            allocated,
            heap: Mapping::of(heap.memory()),
        };
        let (control, control_segment) = Control::create(places, &identity)?;
        let reserves = vm::host::is_strict_about_memory();
        let ledger = Arc::new(Ledger::create(reserves)?);
        if reserves {
            control_segment.reserve(0, Control::least_bytes(places))?;
        }
        endpoint.inspect(|endpoint| control.set_endpoint(endpoint.address(), &endpoint.protocol()));
        control.live().store(allocator.high_water(), Ordering::Release);
        let own = Own {
            rank,
            size,
            places,
            identity,
            control: control.clone(),
            heap: heap.memory().clone(),
            handlers: OwnHandlers::new(control.clone()),
            attach: config.attach,
            ledger: Arc::clone(&ledger),
            network: endpoint.is_some() && config.transport != Transport::Shm,
        };
        let handlers = first_handlers(config, &own.handlers)?;
        let peers = Arc::new(Peers::new(own)?);
        hold_end(&peers);
        let mut outside = None;
        if let Some(env) = env {
            let deadline = Instant::now() + JOIN_WITHIN;
            let member =
                Membership::join(env, [control_segment.fd(), heap.fd(), ledger.fd()], deadline, on_notice)?;
            // To a node of ranges no correct peer attaches.
            let exposes_all = !peers.own().identity.ranges_only;
            config.tracer.permit(exposes_all.then(|| member.launcher_pid()));
            peers.set_membership(member);
        } else if config.peers > 0 {
            config.tracer.permit(None);
            outside = Some(Outside {
                segments: copies([control_segment.fd(), heap.fd(), ledger.fd()])?,
                plan: plan(config),
            });
        }
        let heap = Arc::new(HeapState::new(heap, control, allocator, allocated.len, reserves));
        Ok(Seat { peers, heap, nonce, outside, handlers })
    }
}

/// The initial contents of a heap, which may be accessed then, and where in it the directory lies.
fn first_blocks(heap: &Segment, allocated: Mapping) -> Result<(HeapAllocator, u64), SegmentError> {
    let mut allocator = HeapAllocator::new(heap.len());
    if allocated.len > 0 {
        allocator.alloc(allocated.len, PAGE_BYTES).expect("the heap was made larger by that");
    }
    let directory = directory::reserve(&mut allocator);
    heap.open_to(allocator.high_water())?;
    Ok((allocator, directory))
}

/// The handlers that a node has from the beginning, for whoever meets it to find.
fn first_handlers(config: &Config, own: &OwnHandlers) -> Result<Handlers<Handler>, OpenError> {
    let handlers = Handlers::default();
    for (name, handler) in config.handlers.iter() {
        let runnable = Runnable { handler: Arc::clone(handler), client: 0 };
        handlers.add_first(own, ("", name), runnable).map_err(OpenError::Handler)?;
    }
    Ok(handlers)
}

/// Descriptors of the same files.
fn copies([control, heap, ledger]: [BorrowedFd<'_>; 3]) -> std::io::Result<[OwnedFd; 3]> {
    Ok([control.try_clone_to_owned()?, heap.try_clone_to_owned()?, ledger.try_clone_to_owned()?])
}

/// Does what a process needs once, before its first node.
fn prepare_process() {
    fill_standard();
    vm::loaded::keep_loaded();
}

/// Where the launcher's news goes: to the node, once there is one.
#[derive(Default)]
struct Watch {
    state: std::sync::Mutex<(Option<std::sync::Weak<NodeCore>>, Vec<Notice>)>,
}

impl Watch {
    fn new() -> (Arc<Watch>, OnNotice) {
        let watch = Arc::new(Watch::default());
        let notify = Arc::clone(&watch);
        (watch, Box::new(move |notice: Notice| notify.tell(notice)))
    }

    fn tell(&self, notice: Notice) {
        let mut state = lock(&self.state);
        match &state.0 {
            Some(core) => {
                if let Some(core) = core.upgrade() {
                    drop(state);
                    core.on_notice(&notice);
                }
            }
            None => state.1.push(notice),
        }
    }

    fn watch(&self, core: &Arc<NodeCore>) {
        let mut state = lock(&self.state);
        state.0 = Some(Arc::downgrade(core));
        for notice in state.1.drain(..) {
            core.on_notice(&notice);
        }
    }
}

/// Lets peers see when this process has ended, if it may have any. Without that they do not attach to it.
fn hold_end(peers: &Peers) {
    if peers.own().places == 1 {
        return;
    }
    match peers.own().control.hold_end() {
        Ok(held) => peers.set_end(held),
        Err(error) => {
            tracing::warn!(%error, "nothing can tell of this process's end: peers reach its private memory by messages")
        }
    }
}

/// Spinning pays only while there is a core for whoever is waited for: within a host that may be a progress
/// thread, which would wait for the core of who spins. Data that comes over a network takes longer, and
/// sleeping would cost more. With progress threads on, two processes on two cores put 8 bytes over tcp in 25
/// µs, in 70 asleep, whether the target computes or not.
fn default_spin(size: u32, threaded: bool) -> Duration {
    let cores = vm::host::cores();
    let threads = size as usize * if threaded { 2 } else { 1 };
    if threads <= cores { SPIN } else { Duration::ZERO }
}

/// The heap, which begins with what the program's allocator divides, if that is a `GlobalHeap` or preloaded,
/// and no other node has it.
fn create_heap(config: &Config, size: u32) -> Result<(Segment, Mapping), OpenError> {
    let memory = || vm::host::memory_bytes().unwrap_or(HEAP_UNKNOWN);
    let bytes = config.heap_bytes.unwrap_or_else(|| default_heap(memory(), size));
    let too_large = |source| OpenError::Heap { bytes, source };
    if bytes > HEAP_MAX {
        return Err(too_large(SegmentError::BadLength { len: bytes }));
    }
    let whole = bytes.max(directory::BYTES + PAGE_BYTES).next_multiple_of(PAGE_BYTES);
    let failed = |error: SegmentError| match error {
        error if error.is_for_size() => too_large(error),
        error => OpenError::Segment(error),
    };
    if let Some((segment, adopted)) = vm::program_heap::adopt(whole).map_err(failed)? {
        segment.prefer_huge_pages();
        return Ok((segment, Mapping { base: adopted.base, len: adopted.len }));
    }
    let segment = Segment::create_closed("standpipe-heap", whole).map_err(failed)?;
    segment.prefer_huge_pages();
    Ok((segment, Mapping::default()))
}

/// A heap for each process of a job of `size`, so that one process has room for all of them.
fn default_heap(memory: u64, size: u32) -> u64 {
    (memory / 2).min(HEAP_MAX / u64::from(size.max(1)))
}

/// A number that no other process's memory holds at the same address but by an unlikely chance.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_room_for_all_default_heaps() {
        assert_eq!(default_heap(16 << 30, 4), 8 << 30);
        assert_eq!(default_heap(1 << 40, 1024), 64 << 30);
        assert_eq!(default_heap(u64::MAX, 1), HEAP_MAX);
    }

    #[test]
    fn a_heap_beyond_all_bounds_is_refused_with_the_remedy() {
        for bytes in [u64::MAX, u64::MAX - 4095, HEAP_MAX + 1] {
            let made = create_heap(&Config::new().heap_bytes(bytes), 1);
            let error = made.map(|_| ()).expect_err("no room for that");
            assert!(matches!(error, OpenError::Heap { bytes: named, .. } if named == bytes), "{error}");
            let text = error.to_string();
            assert!(text.contains("STANDPIPE_HEAP") && text.contains("ulimit -v"), "{text}");
        }
    }
}
