//! Settings: one table of name, unit, default, cost and help, from which the environment, the documentation and the
//! command line all come.

use std::time::Duration;

use engine::registration::Strategy;

use crate::api::ops::active_message::{Call, Handlers};
use crate::base::debug_is_display::debug_is_display;
pub use crate::job::bootstrap::Listen;
use crate::job::bootstrap::addresses::own as own_addresses;
use crate::transport::peers::PLACES_MAX;
use crate::transport::shm::Attach;

/// One line of the table of settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// What its value counts, or which words it takes.
    pub unit: &'static str,
    /// The value where the variable is not set.
    pub default: &'static str,
    /// What a larger value costs.
    pub cost: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// Every setting that the library reads from the environment.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "STANDPIPE_HEAP",
        unit: "bytes (K, M, G, T)",
        default: "half of physical memory, at most 64 TiB over the number of ranks",
        cost: "address space in every process that talks to this one; pages only when touched",
        help: "largest size of this process's heap",
    },
    Setting {
        name: "STANDPIPE_SPIN_US",
        unit: "microseconds",
        default: "50 where the job has a core for each process, and within a host for each progress thread that is `on`, else 0",
        cost: "processor time while waiting",
        help: "how long a wait polls before it sleeps",
    },
    Setting {
        name: "STANDPIPE_PROGRESS",
        unit: "on, off, auto",
        default: "auto",
        cost: "a thread that wakes for every message that nobody is polling for",
        help: "whether a thread of the library runs handlers and serves peers while no call waits; auto: over ofi, once cross-memory \
               attach turns out to be forbidden, here or to a peer, once memory is exposed that peers reach by messages, once a node \
               that nobody launched and that has handlers gives its address, and from the first await that has to wait; \
               off: never, and a thread that only wakes tasks lets their own polls make progress",
    },
    Setting {
        name: "STANDPIPE_ATTACH",
        unit: "auto, strict, never",
        default: "auto",
        cost: "strict: two file descriptors a peer, and two system calls a piece that is put; never: private memory goes through \
               messages, and needs the peer's progress",
        help: "whether private memory may be reached by cross-memory attach; strict: puts go by a descriptor of the peer's memory, so \
               that none is written into another process that has got the peer's number",
    },
    Setting {
        name: "STANDPIPE_TRANSPORT",
        unit: "shm, ofi, ofi:PROVIDER",
        default: "shm",
        cost: "ofi: system calls and copies, and a progress thread",
        help: "how other ranks are reached: shm: memory and system calls of one host; ofi: libfabric, by its best provider, \
               or by the one named, such as ofi:tcp; the same at every rank",
    },
    Setting {
        name: "STANDPIPE_STRATEGY",
        unit: "bounce, firehose, pin-down, rendezvous-unpin, rendezvous-no-unpin, pin-everything",
        default: "firehose where the provider pins what is registered (verbs, cxi), bounce elsewhere",
        cost: "over providers that pin nothing, all but bounce: the program must keep mapped what it lets peers know of",
        help: "over ofi, how memory is registered; bounce: never, it goes by message; the same at every rank",
    },
    Setting {
        name: "STANDPIPE_PIN",
        unit: "bytes (K, M, G, T)",
        default: "half of what may be locked (`ulimit -l`), at most a quarter of physical memory",
        cost: "memory that the system cannot page out",
        help: "over ofi, how much memory, heaps included, may be registered at a time; the same at every rank",
    },
    Setting {
        name: "STANDPIPE_MEET_MS",
        unit: "milliseconds",
        default: "60000",
        cost: "none, unless a process of the job never comes",
        help: "how long the processes that another launcher started may take to meet when they open their nodes; each of \
               the two meetings",
    },
    Setting {
        name: "STANDPIPE_SILENCE_MS",
        unit: "milliseconds, 0 for ever",
        default: "60000",
        cost: "a rank whose host is gone, or cannot be reached, is waited for so long",
        help: "how long nothing may be heard from a rank or node on another host, though it has a progress thread, before it \
               is lost; also of one that is stopped, or that the network does not reach. One is lost sooner whose end is told, or \
               seen: by TCP nobody listens at its port. Long copies end with `Timeout` after about as long, where the network \
               takes them, carries none, and the peer is heard from",
    },
    Setting {
        name: "STANDPIPE_PEERS",
        unit: "peers, 0 to 65535",
        default: "1024",
        cost: "160 KiB of address space a peer in every process that talks to this one; pages only when touched",
        help: "outside a launched job, how many other nodes may become peers of this one during its life, lost ones counted",
    },
    Setting {
        name: "STANDPIPE_EXPOSE",
        unit: "auto, everything, ranges",
        default: "auto",
        cost: "ranges: private memory goes through messages within a host, and needs this process's progress",
        help: "what of this process's private memory peers may read and write: everything, or only the ranges that it exposes by \
               Node::expose; heaps always; auto: everything in a launched job, ranges outside one",
    },
    Setting {
        name: "STANDPIPE_LISTEN",
        unit: "auto, none, IP:PORT (port 0: any)",
        default: "auto",
        cost: "none; with auto, whoever reaches any of the host's addresses can knock",
        help: "outside a launched job, where the node listens once its program asks for its address or connects: auto: for this \
               host's processes, and at a free port of all of the host's addresses; IP:PORT: over TCP there only, and what \
               libfabric opens at that address; none: no socket ever, so that it has no address and can only call nodes of this host",
    },
    Setting {
        name: "STANDPIPE_INTERFACE",
        unit: "auto, the name of an interface that is up, or an IP address",
        default: "auto",
        cost: "none",
        help: "in a job on several hosts, by which of its host's interfaces or addresses other hosts reach this rank over ofi; \
               auto: the one that leads to rank 0, which takes the one at which most others have met it",
    },
    Setting {
        name: "STANDPIPE_TIMEOUT_MS",
        unit: "milliseconds, 0 for none",
        default: "0",
        cost: "none",
        help: "how long a blocking call or an await may wait before it ends with Timeout",
    },
];

/// What else begins with [`PREFIX`] and is read by some part of this project: by launchers and jobs, by its commands, and by
/// its tests, whose names go on.
const OTHERS: [&str; 15] = [
    "STANDPIPE_JOB",
    "STANDPIPE_SECRET",
    "STANDPIPE_RANK",
    "STANDPIPE_SIZE",
    "STANDPIPE_PORT",
    "STANDPIPE_LAUNCHER",
    "STANDPIPE_RENDEZVOUS",
    "STANDPIPE_LIBFABRIC",
    "STANDPIPE_PMIX",
    "STANDPIPE_RDMA_VM",
    "STANDPIPE_INSIDE_RDMA_VM",
    "STANDPIPE_PERF_STARTED",
    "STANDPIPE_COST",
    "STANDPIPE_CHANGE_",
    "STANDPIPE_TEST_",
];

/// What all names of variables begin with that this project reads.
const PREFIX: &str = "STANDPIPE_";

/// How long a rank on another host may be silent where nothing else is said: no network that is to be used again is away
/// for longer, and few machines that are busy.
const SILENCE: Duration = Duration::from_secs(60);

/// How long the processes that another launcher has started may take to meet.
const MEET_WITHIN: Duration = Duration::from_secs(60);

/// Peers from outside any job for which a node has room: what their places take is address space.
const PEERS: u32 = 1024;

/// No node has room for more.
const PEERS_MAX: u32 = PLACES_MAX - 1;

/// When a node has a thread of its own that makes progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressThread {
    /// Always.
    On,
    /// Never: no thread of the library runs a handler or serves a peer. Progress is made by calls that wait, and by polls of tasks that
    /// await: a thread that only wakes them is started at the first await that has to wait.
    Off,
    /// Where peers depend on it: over a network; where cross-memory attach is forbidden, and from when on a peer reaches this process's
    /// private memory by messages because it finds it forbidden; and in a node that nobody launched, that has handlers and gives its
    /// [address](crate::Node::address). And where tasks do: from the first await that has to wait.
    #[default]
    Auto,
}

/// How a node reaches other ranks. Itself it reaches within this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By shared memory and cross-memory attach: all ranks are on one host.
    #[default]
    Shm,
    /// By libfabric, and nothing else.
    Ofi {
        /// libfabric's name of the provider, such as `tcp` or `verbs;ofi_rxm`; `None`: the best that can be opened.
        provider: Option<String>,
    },
}

impl Transport {
    /// The transport of this name, as the setting `STANDPIPE_TRANSPORT` takes it.
    pub fn parse(name: &str) -> Option<Transport> {
        match name.split_once(':') {
            None if name == "shm" => Some(Transport::Shm),
            None if name == "ofi" => Some(Transport::Ofi { provider: None }),
            Some(("ofi", provider)) if !provider.is_empty() => {
                Some(Transport::Ofi { provider: Some(provider.to_owned()) })
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Transport::Shm => f.write_str("shm"),
            Transport::Ofi { provider: None } => f.write_str("ofi"),
            Transport::Ofi { provider: Some(provider) } => write!(f, "ofi:{provider}"),
        }
    }
}

/// What of a process's private memory its peers may read and write. Its heap they always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// [`Exposure::Everything`] in a launched job, whose processes are one program's, and [`Exposure::Ranges`] outside one.
    #[default]
    Auto,
    /// All of it, as a debugger of the same user could.
    Everything,
    /// What [`Node::expose`](crate::Node::expose) names, for as long as it does; nothing else. What comes by message is checked by this
    /// process, which hands out no key that reaches beyond; peers of its host, which could attach to it, go by message instead.
    Ranges,
}

/// How to open a [`Node`](crate::Node).
#[derive(Debug)]
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
    pub(crate) transport: Transport,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) pin_bytes: Option<u64>,
    pub(crate) handlers: Handlers,
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
            transport: Transport::default(),
            strategy: None,
            pin_bytes: None,
            handlers: Handlers::default(),
        }
    }
}

debug_is_display!(ConfigError);

/// A setting's value that could not be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not {unit}{}", hint(name, value))]
pub struct ConfigError {
    /// The environment variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub unit: &'static str,
}

/// What somebody will have meant who set that, or why it is not taken.
fn hint(name: &str, value: &str) -> String {
    match name {
        "STANDPIPE_HEAP" | "STANDPIPE_PIN" => match count_and_shift(value) {
            Some((0, _)) => "; it must be 1 or more".to_owned(),
            Some(_) => "; it is more than 64 bits can count".to_owned(),
            None => String::new(),
        },
        "STANDPIPE_TRANSPORT" if !value.contains(':') => {
            format!("; if {value} is a provider of libfabric's, it is named by ofi:{value}")
        }
        "STANDPIPE_INTERFACE" => {
            own_addresses(Some(value)).err().map(|why| format!(": {why}")).unwrap_or_default()
        }
        _ => String::new(),
    }
}

impl Config {
    /// The defaults, whatever the environment says.
    pub fn new() -> Config {
        Config::default()
    }

    /// The defaults, changed by the variables of [`SETTINGS`] that are set. Of [others](Config::unknown_variables) with such a name
    /// a warning is logged.
    ///
    /// # Errors
    /// [`ConfigError`] for the first variable whose value is not what the table says.
    pub fn from_env() -> Result<Config, ConfigError> {
        for name in Config::unknown_variables() {
            tracing::warn!("{name} is set, and is no setting of standpipe's");
        }
        Config::from_lookup(crate::base::environment::variable)
    }

    /// The names of this process's environment variables that begin like those of [`SETTINGS`], and that nothing of
    /// Standpipe reads: misspelt ones.
    pub fn unknown_variables() -> Vec<String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        names.filter(|name| is_unknown(name)).collect()
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        for setting in SETTINGS {
            let Some(value) = lookup(setting.name) else { continue };
            let value = value.trim();
            if !value.is_empty() && config.set(setting.name, value).is_none() {
                return Err(ConfigError { name: setting.name, value: value.to_owned(), unit: setting.unit });
            }
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("STANDPIPE_HEAP", _) => self.heap_bytes = Some(parse_bytes(value)?),
            ("STANDPIPE_SPIN_US", _) => self.spin = Some(Duration::from_micros(value.parse().ok()?)),
            ("STANDPIPE_TIMEOUT_MS", "0") => self.timeout = None,
            ("STANDPIPE_TIMEOUT_MS", _) => self.timeout = Some(Duration::from_millis(value.parse().ok()?)),
            ("STANDPIPE_MEET_MS", _) => self.meet = Duration::from_millis(value.parse().ok()?),
            ("STANDPIPE_SILENCE_MS", "0") => self.silence = None,
            ("STANDPIPE_SILENCE_MS", _) => self.silence = Some(Duration::from_millis(value.parse().ok()?)),
            ("STANDPIPE_PEERS", _) => {
                self.peers = Some(value.parse().ok()?).filter(|peers| *peers <= PEERS_MAX)?;
            }
            ("STANDPIPE_EXPOSE", "auto") => self.exposure = Exposure::Auto,
            ("STANDPIPE_EXPOSE", "everything") => self.exposure = Exposure::Everything,
            ("STANDPIPE_EXPOSE", "ranges") => self.exposure = Exposure::Ranges,
            ("STANDPIPE_LISTEN", _) => self.listen = Listen::parse(value)?,
            ("STANDPIPE_INTERFACE", "auto") => self.interface = None,
            ("STANDPIPE_INTERFACE", _) => {
                own_addresses(Some(value)).ok()?;
                self.interface = Some(value.to_owned());
            }
            ("STANDPIPE_PROGRESS", "on") => self.progress = ProgressThread::On,
            ("STANDPIPE_PROGRESS", "off") => self.progress = ProgressThread::Off,
            ("STANDPIPE_PROGRESS", "auto") => self.progress = ProgressThread::Auto,
            ("STANDPIPE_ATTACH", "auto") => self.attach = Attach::Auto,
            ("STANDPIPE_ATTACH", "strict") => self.attach = Attach::Strict,
            ("STANDPIPE_ATTACH", "never") => self.attach = Attach::Never,
            ("STANDPIPE_TRANSPORT", _) => self.transport = Transport::parse(value)?,
            ("STANDPIPE_STRATEGY", _) => {
                let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == value)?;
                self.strategy = Some(Some(found).filter(|strategy| *strategy != Strategy::Hardware)?);
            }
            ("STANDPIPE_PIN", _) => self.pin_bytes = Some(parse_bytes(value)?),
            _ => return None,
        }
        Some(())
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

    /// Puts to private memory by a descriptor of the peer's memory, which never means another process. By cross-memory attach, which
    /// names the peer by its number, a put may be written into another process in one case: this process was stopped in the
    /// middle of the put, and meanwhile the peer ended and its number was given away. A launcher of ours prevents that in its jobs.
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

    /// Sets how memory is registered where ranks are reached over a network; the same at every rank. Without it that is
    /// [`Strategy::Firehose`] with a provider that is known to pin what is registered (`verbs`, `cxi`), and
    /// [`Strategy::Bounce`] with all others, as `tcp`: with such a one, and any other strategy, this process must keep
    /// mapped what peers have been told of. They may have it registered still, and this process dies, or shows
    /// something else, if it is not there.
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

    /// Sets how many other nodes may become this one's peers during its life outside a launched job, lost ones counted:
    /// [`Node::connect_to`](crate::Node::connect_to).
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

    /// Sets where the node listens outside a launched job, from its first call of [`Node::address`](crate::Node::address) or
    /// [`Node::connect_to`](crate::Node::connect_to) on.
    pub fn listen(mut self, listen: Listen) -> Config {
        self.listen = listen;
        self
    }

    /// Sets by which of its host's interfaces, or addresses, ranks on other hosts reach this one over a network: the name of an
    /// interface, or an address of IP. Without it that is the address by which the ranks have met; where a launcher has brought
    /// them together, the one that the system sends from to the host of rank 0. A node of no job has [`Config::listen`].
    pub fn interface(mut self, name_or_address: impl Into<String>) -> Config {
        self.interface = Some(name_or_address.into());
        self
    }

    /// Sets how long nothing may be heard from a rank on another host before it is lost; `None`: for ever. Less than a few
    /// seconds also loses those that are merely late.
    pub fn silence(mut self, silence: Option<Duration>) -> Config {
        self.silence = silence;
        self
    }

    /// Adds an Active-Message handler under a name; every process of the job must add the same names. What a handler
    /// may do is said at [`Call`].
    ///
    /// # Panics
    /// When the name is taken, empty or longer than 255 bytes, or is the 4,097th.
    pub fn handler(mut self, name: &str, handler: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Config {
        self.handlers.add(name, handler);
        self
    }
}

/// Parses a byte count with an optional binary suffix: `64M`, `2G`, `4096`.
fn parse_bytes(text: &str) -> Option<u64> {
    let (count, shift) = count_and_shift(text)?;
    let bytes = count.checked_mul(1 << shift).filter(|bytes| *bytes > 0)?;
    u64::try_from(bytes).ok()
}

/// A byte count's digits, and the power of two that its suffix stands for.
fn count_and_shift(text: &str) -> Option<(u128, u32)> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't']);
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    // More digits than that are too large as well.
    is_number.then(|| (digits.parse().unwrap_or(u128::MAX), shift))
}

/// Whether a variable looks as if it were one of this project's, and is not.
fn is_unknown(name: &str) -> bool {
    let is_setting = SETTINGS.iter().any(|setting| setting.name == name);
    let is_other =
        || OTHERS.iter().any(|other| *other == name || other.ends_with('_') && name.starts_with(other));
    name.starts_with(PREFIX) && !is_setting && !is_other()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
