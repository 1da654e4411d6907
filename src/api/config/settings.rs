//! Settings: one table, whose rows say what each setting takes, read it, and are its documentation.
//!
//! A new setting is a row here, its field in [`Config`], and the method that sets it there. The environment
//! and the messages follow from the row. The tests have a value of each, and compare docs/SETTINGS.md with
//! it.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use engine::registration::Strategy;

use super::{COPIERS_MAX, Config, Exposure, Listen, PEERS_MAX, ProgressThread, Tracer, Transport};
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::job::plumbing::addresses::own as own_addresses;
use crate::transport::shm::Attach;

/// One line of the table of settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// The unit of its value, or the words that it takes.
    pub unit: &'static str,
    /// The value where the variable is not set.
    pub default: &'static str,
    /// The cost of a larger value.
    pub cost: &'static str,
    /// Its effect.
    pub help: &'static str,
    /// The methods of [`Config`] that set the same.
    pub methods: &'static [&'static str],
    /// Reads a value into a configuration.
    parse: fn(&mut Config, &str) -> Parsed<()>,
    /// Writes the value that a configuration has, as `parse` reads it; `None` where nothing is set.
    show: fn(&Config) -> Option<String>,
}

const PROGRESS: &[(&str, ProgressThread)] =
    &[("on", ProgressThread::On), ("off", ProgressThread::Off), ("auto", ProgressThread::Auto)];
const ATTACH: &[(&str, Attach)] =
    &[("auto", Attach::Auto), ("strict", Attach::Strict), ("never", Attach::Never)];
const EXPOSE: &[(&str, Exposure)] =
    &[("auto", Exposure::Auto), ("everything", Exposure::Everything), ("ranges", Exposure::Ranges)];

/// The value that was read, or words to add to the row's unit in the message: mostly nothing.
type Parsed<T> = Result<T, String>;

/// Every setting that the library reads from the environment.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "STANDPIPE_HEAP",
        unit: "bytes (K, M, G, T)",
        default: "half of physical memory, at most 64 TiB over the number of ranks",
        cost: "address space in every process that talks to this one; pages only when touched",
        help: "largest size of this process's heap",
        methods: &["heap_bytes"],
        parse: |config, text| bytes(text).map(|bytes| config.heap_bytes = Some(bytes)),
        show: |config| config.heap_bytes.map(|bytes| bytes.to_string()),
    },
    Setting {
        name: "STANDPIPE_SPIN_US",
        unit: "microseconds",
        default: "50 if the host has a core for each process of the job, and over shm one for each progress thread that is `on`; else 0",
        cost: "processor time while waiting",
        help: "how long a wait polls before it sleeps",
        methods: &["spin"],
        parse: |config, text| {
            count(text, 0..=u64::MAX).map(|us| config.spin = Some(Duration::from_micros(us)))
        },
        show: |config| config.spin.map(|spin| spin.as_micros().to_string()),
    },
    Setting {
        name: "STANDPIPE_PROGRESS",
        unit: "on, off, auto",
        default: "auto",
        cost: "a thread that wakes for every message that nobody is polling for",
        help: "whether a thread of the library runs handlers and serves peers while no call waits. `auto`: where peers \
               depend on it, as docs/THREADS.md lists. `off`: never; a thread that only wakes tasks lets their own polls \
               make progress, and messages that gather over a network leave at your next poll or wait",
        methods: &["progress"],
        parse: |config, text| word(text, PROGRESS).map(|progress| config.progress = progress),
        show: |config| word_of(config.progress, PROGRESS),
    },
    Setting {
        name: "STANDPIPE_ATTACH",
        unit: "auto, strict, never",
        default: "auto",
        cost: "`strict`: two file descriptors a peer, and two system calls a piece that is put. `never`: private memory goes \
               through messages, and needs the peer's progress",
        help: "whether private memory may be reached by cross-memory attach. `strict`: puts go by a descriptor of the peer's \
               memory, so none is written into another process that has got the peer's number",
        methods: &["attach_strict", "attach_never"],
        parse: |config, text| word(text, ATTACH).map(|attach| config.attach = attach),
        show: |config| word_of(config.attach, ATTACH),
    },
    Setting {
        name: "STANDPIPE_TRANSPORT",
        unit: "shm, ofi, ofi:PROVIDER",
        default: "shm",
        cost: "`ofi`: system calls and copies, and a progress thread",
        help: "how other ranks are reached. `shm`: memory and system calls of one host. `ofi`: libfabric, by its best \
               provider, or by the one named, such as `ofi:tcp`. The same at every rank",
        methods: &["transport"],
        parse: |config, text| transport(text).map(|transport| config.transport = transport),
        show: |config| Some(config.transport.to_string()),
    },
    Setting {
        name: "STANDPIPE_STRATEGY",
        unit: "bounce, firehose, pin-down, rendezvous-unpin, rendezvous-no-unpin, pin-everything",
        default: "firehose where the provider pins what is registered (verbs, cxi), bounce elsewhere",
        cost: "over providers that pin nothing, all but `bounce`: the program must keep mapped what it lets peers know of",
        help: "over `ofi`, how memory is registered. `bounce`: never, it goes by message. The same at every rank",
        methods: &["strategy"],
        parse: |config, text| strategy(text).map(|strategy| config.strategy = Some(strategy)),
        show: |config| config.strategy.map(|strategy| strategy.name().to_owned()),
    },
    Setting {
        name: "STANDPIPE_PIN",
        unit: "bytes (K, M, G, T)",
        default: "half of what may be locked (`ulimit -l`), at most a quarter of physical memory",
        cost: "memory that the system cannot page out",
        help: "over `ofi`, how much memory, heaps included, may be registered at a time. The same at every rank",
        methods: &["pin_bytes"],
        parse: |config, text| bytes(text).map(|bytes| config.pin_bytes = Some(bytes)),
        show: |config| config.pin_bytes.map(|bytes| bytes.to_string()),
    },
    Setting {
        name: "STANDPIPE_COPIERS",
        unit: "threads, 0 to 64",
        default: "0",
        cost: "threads, and for each large copy two wake-ups",
        help: "how many threads make copies of 256 KiB and more within a host, in place of the threads that start them. So an \
               executor goes on meanwhile, and deadlines cut copies off",
        methods: &["copiers"],
        parse: |config, text| count(text, 0..=COPIERS_MAX).map(|threads| config.copiers = threads),
        show: |config| Some(config.copiers.to_string()),
    },
    Setting {
        name: "STANDPIPE_MEET_MS",
        unit: "milliseconds",
        default: "60000",
        cost: "none, unless a process of the job never comes",
        help: "how long the processes that another launcher started may take to meet when they open their nodes. It holds for \
               each of the two meetings",
        methods: &["meet_within"],
        parse: |config, text| milliseconds(text).map(|time| config.meet = time),
        show: |config| Some(config.meet.as_millis().to_string()),
    },
    Setting {
        name: "STANDPIPE_SILENCE_MS",
        unit: "milliseconds, 0 for ever",
        default: "60000",
        cost: "a rank whose host is gone, or cannot be reached, is waited for so long",
        help: "how long a rank or node on another host, which has a progress thread, may be silent before it is lost. This \
               also holds if it is stopped, or if the network does not reach it. It is lost sooner if its end is told, or seen: \
               by TCP nobody listens at its port. If the network takes long copies and carries none, while the peer is heard \
               from, they end with `Timeout` after about as long",
        methods: &["silence"],
        parse: |config, text| milliseconds_or_0(text).map(|time| config.silence = time),
        show: |config| Some(milliseconds_of(config.silence)),
    },
    Setting {
        name: "STANDPIPE_PEERS",
        unit: "peers, 0 to 65535",
        default: "1024",
        cost: "540 KiB of address space a peer in every process that talks to this one; pages only when touched",
        help: "outside a launched job, how many other nodes may become peers of this one during its life, lost ones counted",
        methods: &["peers_max"],
        parse: |config, text| count(text, 0..=PEERS_MAX).map(|peers| config.peers = peers),
        show: |config| Some(config.peers.to_string()),
    },
    Setting {
        name: "STANDPIPE_EXPOSE",
        unit: "auto, everything, ranges",
        default: "auto",
        cost: "`ranges`: private memory goes through messages within a host, and needs this process's progress",
        help: "what of this process's private memory peers may read and write: everything, or only the ranges that it exposes \
               by `Node::expose`. Peers always reach heaps. `auto`: everything in a launched job, ranges outside one",
        methods: &["exposure"],
        parse: |config, text| word(text, EXPOSE).map(|exposure| config.exposure = exposure),
        show: |config| word_of(config.exposure, EXPOSE),
    },
    Setting {
        name: "STANDPIPE_TRACER",
        unit: "auto, parent, any, never, the number of a process",
        default: "auto",
        cost: "processes that are let in may attach to this one as a debugger does",
        help: "whose children may attach to this process where Yama lets only ancestors do so. `auto`: the launcher's, in a \
               launched job; nobody's outside one, where private memory then goes by message. `parent`: those of this \
               process's parent. `any`: every process of the user",
        methods: &["tracer"],
        parse: |config, text| {
            let words = ["auto", "parent", "any", "never"];
            Tracer::parse(text).map(|tracer| config.tracer = tracer).ok_or_else(|| meant(text, words))
        },
        show: |config| Some(config.tracer.to_string()),
    },
    Setting {
        name: "STANDPIPE_LISTEN",
        unit: "auto, none, IP:PORT (port 0: any)",
        default: "auto",
        cost: "none; with `auto`, all that reach any of the host's addresses can knock",
        help: "outside a launched job, where the node listens once its program asks for its address or connects. `auto`: for \
               this host's processes, and at a free port of all of the host's addresses. IP:PORT: over TCP there only, and \
               libfabric opens at that address, too. `none`: no socket ever, so that it has no address and can only call \
               nodes of this host",
        methods: &["listen"],
        parse: |config, text| {
            Listen::parse(text).map(|listen| config.listen = listen).ok_or_else(String::new)
        },
        show: |config| Some(config.listen.to_string()),
    },
    Setting {
        name: "STANDPIPE_INTERFACE",
        unit: "auto, the name of an interface that is up, or an IP address",
        default: "auto",
        cost: "none",
        help: "in a job on several hosts, by which of its host's interfaces or addresses other hosts reach this rank over \
               `ofi`. `auto`: the one that leads to rank 0, which takes the one at which most others have met it",
        methods: &["interface"],
        parse: |config, text| interface(text).map(|interface| config.interface = interface),
        show: |config| Some(config.interface.clone().unwrap_or_else(|| "auto".to_owned())),
    },
    Setting {
        name: "STANDPIPE_TIMEOUT_MS",
        unit: "milliseconds, 0 for none",
        default: "0",
        cost: "none",
        help: "how long a blocking call or an await may wait before it ends with `Timeout`. `within` of no time at all ends at \
               once instead",
        methods: &["timeout"],
        parse: |config, text| milliseconds_or_0(text).map(|time| config.timeout = time),
        show: |config| Some(milliseconds_of(config.timeout)),
    },
];

/// Other variables that begin with [`PREFIX`] and that some part of this project reads: launchers and jobs,
/// its commands, its historic layers, and its tests, whose names go on.
const OTHERS: [&str; 17] = [
    "STANDPIPE_JOB",
    "STANDPIPE_SECRET",
    "STANDPIPE_RANK",
    "STANDPIPE_SIZE",
    "STANDPIPE_PORT",
    "STANDPIPE_LAUNCHER",
    "STANDPIPE_RENDEZVOUS",
    "STANDPIPE_LIBFABRIC",
    "STANDPIPE_MALLOC_FORK_MAX",
    "STANDPIPE_PM_LOCKS",
    "STANDPIPE_PMIX",
    "STANDPIPE_RDMA_VM",
    "STANDPIPE_INSIDE_RDMA_VM",
    "STANDPIPE_PERF_STARTED",
    "STANDPIPE_COST",
    "STANDPIPE_CHANGE_",
    "STANDPIPE_TEST_",
];

/// The target of the warning about variables that nothing reads: for programs that say so themselves.
pub const UNKNOWN_VARIABLES: &str = "standpipe::unknown_variables";

/// So much of a name may be other than in the one that is meant.
const UNLIKE: f64 = 0.4;

/// The beginning of all names of variables that this project reads.
const PREFIX: &str = "STANDPIPE_";

debug_is_display!(ConfigError);

/// A setting that could not be set.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It takes no such value.
    #[error("{name}={value:?} is not {unit}{hint}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// A description of right values.
        unit: &'static str,
        /// A guess at what the user meant, or why it is not taken; may be empty.
        hint: String,
    },
    /// There is no such setting.
    #[error("there is no setting {name:?}; the settings are {}", SETTINGS.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", "))]
    NoSuch {
        /// The value that was asked for.
        name: String,
    },
}

impl ConfigError {
    /// The setting that it is about.
    pub fn name(&self) -> &str {
        match self {
            ConfigError::Value { name, .. } => name,
            ConfigError::NoSuch { name } => name,
        }
    }

    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        Code::Setting
    }
}

into_io_error!(ConfigError);

impl Config {
    /// The defaults, changed by the variables of [`SETTINGS`] that are set. Of
    /// [others](Config::unknown_variables) with such a name a [warning](Config::unknown_variable) is logged,
    /// under the target [`UNKNOWN_VARIABLES`].
    ///
    /// # Errors
    /// [`ConfigError`] for the first variable whose value is not what the table says.
    pub fn from_env() -> Result<Config, ConfigError> {
        for name in Config::unknown_variables() {
            tracing::warn!(target: UNKNOWN_VARIABLES, "{}", Config::unknown_variable(&name));
        }
        Config::from_lookup(crate::base::environment::variable)
    }

    /// One message for each of this process's environment variables of [`SETTINGS`] whose value cannot be
    /// read, in the order of that table. [`Config::from_env`] ends with the first. For programs that start
    /// others, and those that explain.
    pub fn bad_variables() -> Vec<ConfigError> {
        bad_of(crate::base::environment::variable)
    }

    /// The names of this process's environment variables that begin like those of [`SETTINGS`], and that
    /// nothing of Standpipe reads: misspelt ones.
    pub fn unknown_variables() -> Vec<String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        names.filter(|name| is_unknown(name)).collect()
    }

    /// A sentence about a [variable that nothing reads](Config::unknown_variables): it names the variable
    /// that the user probably meant, if one is like it.
    pub fn unknown_variable(name: &str) -> String {
        let names = SETTINGS.iter().map(|setting| setting.name).chain(OTHERS.into_iter().filter(is_whole));
        let likeness = |known: &str| {
            let [given, known] = [name, known].map(|name| name.strip_prefix(PREFIX).unwrap_or(name));
            if known.strip_prefix(given).is_some_and(|rest| ["_MS", "_US"].contains(&rest)) {
                return 0.0; // Its unit was left out.
            }
            strsim::damerau_levenshtein(given, known) as f64 / known.len().max(given.len()).max(1) as f64
        };
        let nearest = names.map(|known| (likeness(known), known)).min_by(|a, b| a.0.total_cmp(&b.0));
        match nearest.filter(|(parts, _)| *parts <= UNLIKE) {
            Some((_, meant)) => format!("{name} has no meaning: nothing reads it; did you mean {meant}?"),
            None => {
                format!("{name} has no meaning: nothing reads it; docs/SETTINGS.md names what is read")
            }
        }
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        for (setting, value) in set_by(lookup) {
            setting.read(&mut config, &value)?;
        }
        Ok(config)
    }

    /// Sets a setting by its name in [`SETTINGS`], to a value as the environment has it: for faces in other
    /// languages, and for programs that read settings from elsewhere. The prefix `STANDPIPE_` may be left
    /// out, and case does not count: `heap` is `STANDPIPE_HEAP`.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        setting(name)?.read(self, value)
    }

    /// The value that a setting has here, as [`Config::set`] takes it; `None` where it is not set, and its
    /// row says what holds then.
    ///
    /// # Errors
    /// [`ConfigError::NoSuch`].
    pub fn get(&self, name: &str) -> Result<Option<String>, ConfigError> {
        setting(name).map(|setting| (setting.show)(self))
    }
}

impl Setting {
    /// The value that a configuration has, if it is set.
    pub(crate) fn shown(&self, config: &Config) -> Option<String> {
        (self.show)(config)
    }

    fn read(&self, config: &mut Config, value: &str) -> Result<(), ConfigError> {
        (self.parse)(config, value).map_err(|hint| ConfigError::Value {
            name: self.name,
            value: value.to_owned(),
            unit: self.unit,
            hint,
        })
    }
}

/// The settings that are set, with their values: none is as good as an empty one.
fn set_by(lookup: impl Fn(&str) -> Option<String>) -> impl Iterator<Item = (&'static Setting, String)> {
    let value = move |setting: &Setting| Some(lookup(setting.name)?.trim().to_owned());
    let set = SETTINGS.iter().filter_map(move |setting| Some((setting, value(setting)?)));
    set.filter(|(_, value)| !value.is_empty())
}

fn bad_of(lookup: impl Fn(&str) -> Option<String>) -> Vec<ConfigError> {
    let mut config = Config::new();
    set_by(lookup).filter_map(|(setting, value)| setting.read(&mut config, &value).err()).collect()
}

/// The end of the message about an unknown word: which word the user probably meant, if any.
fn meant<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let text = text.to_ascii_lowercase();
    let unlike = |word: &str| {
        let letters = word.chars().count().max(text.chars().count()).max(1);
        strsim::damerau_levenshtein(&text, word) as f64 / letters as f64
    };
    let nearest = words.into_iter().map(|word| (unlike(word), word)).min_by(|a, b| a.0.total_cmp(&b.0));
    match nearest.filter(|(parts, _)| *parts <= UNLIKE) {
        Some((_, word)) => format!("; did you mean {word}?"),
        None => String::new(),
    }
}

/// The row of that name.
fn setting(name: &str) -> Result<&'static Setting, ConfigError> {
    let is_it = |setting: &&Setting| {
        let short = setting.name.strip_prefix(PREFIX).unwrap_or_default();
        [setting.name, short].iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    SETTINGS.iter().find(is_it).ok_or_else(|| ConfigError::NoSuch { name: name.to_owned() })
}

/// The word for a meaning.
fn word_of<T: Copy + PartialEq>(value: T, words: &[(&str, T)]) -> Option<String> {
    words.iter().find(|(_, meaning)| *meaning == value).map(|(word, _)| (*word).to_owned())
}

/// A time in milliseconds; 0 for none.
fn milliseconds_of(time: Option<Duration>) -> String {
    // The value that is there is no 0, which stands for none.
    time.map_or(0, |time| time.as_millis().max(1)).to_string()
}

/// One of these words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Parsed<T> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| meant(text, words.iter().map(|(word, _)| *word)))
}

/// A number within a range.
fn count<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Parsed<T> {
    text.parse().ok().filter(|count| range.contains(count)).ok_or_else(String::new)
}

/// A time, in milliseconds.
fn milliseconds(text: &str) -> Parsed<Duration> {
    count(text, 0..=u64::MAX).map(Duration::from_millis)
}

/// A time, in milliseconds; 0 stands for none.
fn milliseconds_or_0(text: &str) -> Parsed<Option<Duration>> {
    if text == "0" { Ok(None) } else { milliseconds(text).map(Some) }
}

/// A byte count of 1 or more with an optional binary suffix: `64M`, `2G`, `4096`.
fn bytes(text: &str) -> Parsed<u64> {
    let (count, shift) = count_and_shift(text).ok_or_else(String::new)?;
    let bytes = count.checked_mul(1 << shift).and_then(|bytes| u64::try_from(bytes).ok());
    match bytes {
        Some(0) => Err("; it must be 1 or more".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("; it is more than 64 bits can count".to_owned()),
    }
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

/// A transport; the bare name of a provider is told how that is written.
fn transport(text: &str) -> Parsed<Transport> {
    let hint = || {
        let meant = meant(text, ["shm", "ofi"]);
        if text.contains(':') || !meant.is_empty() {
            return meant;
        }
        format!("; if {text} is a provider of libfabric's, it is named by ofi:{text}")
    };
    Transport::parse(text).ok_or_else(hint)
}

/// A strategy that networks can have.
fn strategy(text: &str) -> Parsed<Strategy> {
    let usable = || Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Hardware);
    let found = usable().find(|strategy| strategy.name() == text);
    found.ok_or_else(|| meant(text, usable().map(Strategy::name)))
}

/// The name of an interface of this host's, or an address; `None`: whichever leads to the others.
fn interface(text: &str) -> Parsed<Option<String>> {
    if text == "auto" {
        return Ok(None);
    }
    own_addresses(Some(text)).map(|_| Some(text.to_owned())).map_err(|why| format!(": {why}"))
}

/// Whether a variable looks as if it were one of this project's, and is not.
fn is_unknown(name: &str) -> bool {
    let is_setting = SETTINGS.iter().any(|setting| setting.name == name);
    let is_other =
        || OTHERS.iter().any(|other| *other == name || other.ends_with('_') && name.starts_with(other));
    name.starts_with(PREFIX) && !is_setting && !is_other()
}

/// Whether a name of [`OTHERS`] is one, and not how some begin.
fn is_whole(name: &&str) -> bool {
    !name.ends_with('_')
}

#[cfg(test)]
mod tests;
