//! How a node is opened: what its program sets, or the environment.

mod settings;
mod tracer;

use std::time::Duration;

use engine::registration::Strategy;

use crate::api::ops::active_message::{Call, ConfigHandlers};
pub use crate::job::unlaunched::Listen;
pub use crate::transport::list::Transport;
use crate::transport::peers::PLACES_MAX;
use crate::transport::shm::Attach;
pub use settings::{ConfigError, SETTINGS, Setting, UNKNOWN_VARIABLES};
pub use tracer::Tracer;

/// How long a rank on another host may be silent by default: networks that will be used again, and most busy
/// machines, are away for less.
const SILENCE: Duration = Duration::from_secs(60);

/// How long the processes that another launcher has started may take to meet.
const MEET_WITHIN: Duration = Duration::from_secs(60);

/// Peers from outside any job for which a node has room: what their places take is address space.
const PEERS: u32 = 1024;

/// No node has room for more.
const PEERS_MAX: u32 = PLACES_MAX - 1;

/// Threads that copy, at most.
const COPIERS_MAX: u32 = 64;

/// When a node has a thread of its own that makes progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressThread {
    /// Always.
    On,
    /// Never: no thread of the library runs a handler or serves a peer. Progress is made by calls that wait,
    /// and by polls of tasks that await: a thread that only wakes them is started at the first await that has
    /// to wait. Peers that wait in vain are told of the setting, by their error or in the log.
    Off,
    /// Where peers depend on it. This is so over a network. It is so where cross-memory attach is forbidden,
    /// or as soon as a peer finds it so and reaches this process's private memory by messages. And it is so
    /// in a node that nobody launched, that has handlers and gives its [address](crate::Node::address) or
    /// [connects](crate::Node::connect_to). And where tasks do: from the first await that has to wait.
    /// Otherwise it runs for a node that has handlers or has begun a collective. It starts where messages
    /// have waited for 10 ms in which the program has not polled, as it waits elsewhere or computes, and runs
    /// until the program polls again.
    #[default]
    Auto,
}

/// The part of a process's private memory that its peers may read and write. Its heap they always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exposure {
    /// [`Exposure::Everything`] in a launched job, whose processes are one program's, and
    /// [`Exposure::Ranges`] outside one.
    #[default]
    Auto,
    /// All of it, as a debugger of the same user could.
    Everything,
    /// The memory that [`Node::expose`](crate::Node::expose) names, for as long as it does; nothing else.
    /// This process checks messages, and hands out no key that reaches beyond. Peers of its host, which could
    /// attach to it, go by message instead.
    Ranges,
}

/// How to open a [`Node`](crate::Node).
///
/// A copy opens another node alike, with the same handlers.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) heap_bytes: Option<u64>,
    pub(crate) spin: Option<Duration>,
    pub(crate) progress: ProgressThread,
    pub(crate) attach: Attach,
    pub(crate) timeout: Option<Duration>,
    pub(crate) silence: Option<Duration>,
    pub(crate) meet: Duration,
    pub(crate) peers: u32,
    pub(crate) listen: Listen,
    pub(crate) interface: Option<String>,
    pub(crate) exposure: Exposure,
    pub(crate) tracer: Tracer,
    pub(crate) transport: Transport,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) pin_bytes: Option<u64>,
    pub(crate) copiers: u32,
    pub(crate) handlers: ConfigHandlers,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            heap_bytes: None,
            spin: None,
            progress: ProgressThread::default(),
            attach: Attach::default(),
            timeout: None,
            silence: Some(SILENCE),
            meet: MEET_WITHIN,
            peers: PEERS,
            listen: Listen::default(),
            interface: None,
            exposure: Exposure::default(),
            tracer: Tracer::default(),
            transport: Transport::default(),
            strategy: None,
            pin_bytes: None,
            copiers: 0,
            handlers: ConfigHandlers::default(),
        }
    }
}

impl Config {
    /// The defaults, whatever the environment says.
    pub fn new() -> Config {
        Config::default()
    }

    /// Sets the largest size of the heap in bytes (rounded up to pages).
    pub fn heap_bytes(mut self, bytes: u64) -> Config {
        self.heap_bytes = Some(bytes);
        self
    }

    /// Sets how long a wait polls before it sleeps.
    pub fn spin(mut self, spin: Duration) -> Config {
        self.spin = Some(spin);
        self
    }

    /// Sets whether the node has a progress thread.
    pub fn progress(mut self, progress: ProgressThread) -> Config {
        self.progress = progress;
        self
    }

    /// Sends private memory through messages even where cross-memory attach is allowed.
    pub fn attach_never(mut self) -> Config {
        self.attach = Attach::Never;
        self
    }

    /// Puts to private memory by a descriptor of the peer's memory, which never means another process. By
    /// cross-memory attach, which names the peer by its number, a put may be written into another process in
    /// one case. That is when this process was stopped in the middle of the put, and meanwhile the peer ended
    /// and its number was given away. A launcher of ours prevents that in its jobs.
    ///
    /// Gets are not concerned: they end with [`Error::PeerLost`](crate::Error::PeerLost) then.
    pub fn attach_strict(mut self) -> Config {
        self.attach = Attach::Strict;
        self
    }

    /// Sets how other ranks are reached; the same at every rank.
    pub fn transport(mut self, transport: Transport) -> Config {
        self.transport = transport;
        self
    }

    /// Sets how memory is registered where ranks are reached over a network; the same at every rank. Without
    /// it that is [`Strategy::Firehose`] with a provider that is known to pin what is registered (`verbs`,
    /// `cxi`), and [`Strategy::Bounce`] with all others, as `tcp`. With such a provider and any other
    /// strategy, this process must keep mapped what peers have been told of. They may have it registered
    /// still, and this process dies, or shows something else, if it is not there.
    ///
    /// # Panics
    /// For [`Strategy::Hardware`]: no network reaches memory without keys and says what is not there.
    pub fn strategy(mut self, strategy: Strategy) -> Config {
        assert!(strategy != Strategy::Hardware, "no network reaches memory without keys");
        self.strategy = Some(strategy);
        self
    }

    /// Sets how much memory, heaps included, may be registered at a time, in bytes; the same at every rank.
    pub fn pin_bytes(mut self, bytes: u64) -> Config {
        self.pin_bytes = Some(bytes);
        self
    }

    /// How much memory may be registered at a time, where that is said.
    pub fn pin_budget(&self) -> Option<u64> {
        self.pin_bytes
    }

    /// Sets how many threads make large copies within a host, of 256 KiB and more.
    /// [`Node::put_nb`](crate::Node::put_nb) and its kin then return with such a copy under way, as over a
    /// network. A put or get of one piece that waits goes to these threads where the node has a timeout,
    /// which then cuts it off. With none, as without this, the calling thread makes all copies.
    ///
    /// # Panics
    /// For more than 64.
    pub fn copiers(mut self, threads: u32) -> Config {
        assert!(threads <= COPIERS_MAX, "{threads} copiers are more than {COPIERS_MAX}");
        self.copiers = threads;
        self
    }

    /// Sets how long a blocking call may wait; see [`Node::within`](crate::Node::within) for single calls.
    pub fn timeout(mut self, timeout: Duration) -> Config {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how long the processes that another launcher started may take to meet.
    pub fn meet_within(mut self, time: Duration) -> Config {
        self.meet = time;
        self
    }

    /// Sets how many other nodes may become this one's peers during its life outside a launched job, lost
    /// ones counted: [`Node::connect_to`](crate::Node::connect_to).
    ///
    /// # Panics
    /// For more than 65,535.
    pub fn peers_max(mut self, peers: u32) -> Config {
        assert!(peers <= PEERS_MAX, "{peers} peers are more than {PEERS_MAX}");
        self.peers = peers;
        self
    }

    /// Sets what of this process's private memory its peers may read and write.
    pub fn exposure(mut self, exposure: Exposure) -> Config {
        self.exposure = exposure;
        self
    }

    /// Sets whose children may attach to this process, where Yama lets only ancestors do so. The node gives
    /// the permission when it opens; a later node of this process replaces it. If it cannot, the log says
    /// why, and peers reach private memory by messages.
    pub fn tracer(mut self, tracer: Tracer) -> Config {
        self.tracer = tracer;
        self
    }

    /// Sets where the node listens outside a launched job, from its first call of
    /// [`Node::address`](crate::Node::address) or [`Node::connect_to`](crate::Node::connect_to) on.
    pub fn listen(mut self, listen: Listen) -> Config {
        self.listen = listen;
        self
    }

    /// Sets by which of its host's interfaces, or addresses, ranks on other hosts reach this one over a
    /// network: the name of an interface, or an address of IP. Without it that is the address by which the
    /// ranks have met; where a launcher has brought them together, the one that the system sends from to the
    /// host of rank 0. A node of no job has [`Config::listen`].
    pub fn interface(mut self, name_or_address: impl Into<String>) -> Config {
        self.interface = Some(name_or_address.into());
        self
    }

    /// Sets how long nothing may be heard from a rank on another host before it is lost; `None`: for ever.
    /// Less than a few seconds also loses those that are merely late.
    pub fn silence(mut self, silence: Option<Duration>) -> Config {
        self.silence = silence;
        self
    }

    /// Adds an Active-Message handler under a name in the empty namespace: it is there when peers meet the
    /// node. [`Node::register`](crate::Node::register) adds others later. [`Call`] says what a handler may
    /// do.
    ///
    /// # Panics
    /// Where [`Config::may_add_handler`] says no.
    pub fn handler(mut self, name: &str, handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Config {
        self.handlers.add(name, handler);
        self
    }

    /// Whether [`Config::handler`] takes a handler of that name. Any thread may call it, and it never waits.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`](crate::Error::HandlerTaken) where the name is registered already, or another
    /// one that has the same hash. [`Error::BadName`](crate::Error::BadName) for a name that no handler may
    /// have. [`Error::HandlersFull`](crate::Error::HandlersFull) beyond 4,096.
    pub fn may_add_handler(&self, name: &str) -> Result<(), crate::Error> {
        self.handlers.may_add(name)
    }
}
