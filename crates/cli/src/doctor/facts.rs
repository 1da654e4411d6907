//! The facts that the doctor gathers. Its checks stand apart, so that tests can give them any host.

use measure::attach::{self, Attach};
use standpipe::bootstrap::{JobEnv, launched_by};
use standpipe::host::{
    self, Limit, Seccomp, ShmemHugePages, Userfaultfd, address_space, cores, dev_shm_bytes, file_size,
    kernel_release, locks_anything, memlock, memory_bytes, memory_limit, open_files, ptrace_scope, seccomp,
    shmem_huge_pages, traces_anyone, userfaultfd, variable, verbs_devices,
};
use standpipe::network;
use standpipe::rendezvous::Rendezvous;
use standpipe::{Config, Transport};

use super::network::NoNetwork;

/// Everything that was found out.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) kernel: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: Option<u64>,
    /// The control group's limit of memory, in bytes, for all of its processes.
    pub(super) memory_limit: Option<u64>,
    pub(super) segment: Result<(), String>,
    pub(super) membarrier: bool,
    /// Whether a process can be watched, or why not.
    pub(super) watch: Result<(), String>,
    pub(super) seccomp: Option<Seccomp>,
    pub(super) ptrace_scope: Option<u8>,
    pub(super) traces_anyone: Option<bool>,
    pub(super) attach: Attach,
    pub(super) near: Near,
    /// The value of `STANDPIPE_TRANSPORT`, if it names a network.
    pub(super) transport_set: Option<String>,
    /// Each setting in the environment that no node can read: its name, and why not.
    pub(super) bad_settings: Vec<(String, String)>,
    /// Why there is no libfabric, or in it no such provider, where `STANDPIPE_TRANSPORT` asks for one.
    pub(super) no_network: Option<NoNetwork>,
    /// The value of `STANDPIPE_PIN`; `None` also while a setting is bad.
    pub(super) pin_bytes: Option<u64>,
    /// The job that a node would join, if it would, or what is wrong with what the environment says of one.
    pub(super) job: Result<Option<String>, String>,
    /// Why no program could ask the rendezvous that `STANDPIPE_RENDEZVOUS` names.
    pub(super) bad_rendezvous: Option<String>,
    /// Remarks on variables that look like settings, and are none.
    pub(super) unknown_settings: Vec<String>,
    pub(super) memlock: Limit,
    /// Whether that limit does not bind this process.
    pub(super) locks_anything: Option<bool>,
    pub(super) verbs_devices: Vec<String>,
    pub(super) address_space: Limit,
    pub(super) file_size: Limit,
    pub(super) open_files: Limit,
    /// Whether `STANDPIPE_HEAP` says how large heaps are.
    pub(super) heap_set: bool,
    pub(super) watching: Watching,
    pub(super) shmem_huge_pages: Option<ShmemHugePages>,
    pub(super) dev_shm_bytes: Option<u64>,
    /// The version of libfabric, or why there is none.
    pub(super) libfabric: Result<String, String>,
    /// Why it has none of the providers that nodes take by themselves.
    pub(super) no_provider: Option<NoNetwork>,
}

/// The facts that decide how private memory of this host is reached, besides the kernel's leave to attach.
#[derive(Debug, Clone)]
pub(super) struct Near {
    /// The values of `STANDPIPE_ATTACH`, `STANDPIPE_EXPOSE` and `STANDPIPE_TRACER`, if the user has changed
    /// them.
    pub(super) attach_set: Option<String>,
    pub(super) expose_set: Option<String>,
    pub(super) tracer_set: Option<String>,
    /// Whether there can be the table that near peers find grants in, or why not.
    pub(super) table: Result<(), String>,
    /// Bytes that the heap of a preloaded `malloc` may grow to.
    pub(super) preloaded: Option<u64>,
    /// Whether the kernel tells of a process's end before it gives the number away, or why not.
    pub(super) end: Result<(), String>,
}

/// How the library learns of changes of private memory on this machine.
#[derive(Debug, Clone)]
pub(super) struct Watching {
    pub(super) offer: Userfaultfd,
    /// Processes in which several copies of the library watch memory, each with how many.
    pub(super) copies: Vec<(u32, usize)>,
}

impl Facts {
    /// Asks the system; takes a fraction of a second, for two short-lived processes and what libfabric says
    /// of a provider.
    pub(super) fn gather() -> Self {
        let config = Config::from_env();
        Self {
            kernel: kernel_release(),
            cores: cores(),
            memory_bytes: memory_bytes(),
            memory_limit: memory_limit(),
            segment: host::try_segment().map_err(|error| error.to_string()),
            membarrier: host::register_membarrier(),
            watch: host::try_watch().map_err(|errno| errno.to_string()),
            seccomp: seccomp(),
            ptrace_scope: ptrace_scope(),
            traces_anyone: traces_anyone(),
            attach: attach::try_attach(),
            near: Near {
                attach_set: set("STANDPIPE_ATTACH").filter(|value| value != "auto"),
                expose_set: set("STANDPIPE_EXPOSE").filter(|value| value != "auto"),
                tracer_set: set("STANDPIPE_TRACER").filter(|value| value != "auto"),
                preloaded: host::preloaded_malloc().map(|malloc| malloc.bytes),
                table: host::try_grant_table().map_err(|error| error.to_string()),
                end: host::try_end_mark().map_err(|error| error.to_string()),
            },
            transport_set: set("STANDPIPE_TRANSPORT").filter(|value| is_network(value)),
            bad_settings: Config::bad_variables()
                .iter()
                .map(|error| (error.to_string(), error.name().to_owned()))
                .collect(),
            no_network: set("STANDPIPE_TRANSPORT").and_then(|name| NoNetwork::of_transport(&name)),
            pin_bytes: config.ok().and_then(|config| config.pin_budget()),
            job: job(),
            bad_rendezvous: Rendezvous::from_env().err().map(|error| error.to_string()),
            unknown_settings: Config::unknown_variables()
                .iter()
                .map(|name| Config::unknown_variable(name))
                .collect(),
            memlock: memlock(),
            locks_anything: locks_anything(),
            verbs_devices: verbs_devices(),
            address_space: address_space(),
            file_size: file_size(),
            open_files: open_files(),
            heap_set: set("STANDPIPE_HEAP").is_some(),
            watching: Watching { offer: userfaultfd(), copies: host::copies() },
            shmem_huge_pages: shmem_huge_pages(),
            dev_shm_bytes: dev_shm_bytes(),
            libfabric: network::version().map_err(|error| error.to_string()),
            no_provider: match set("STANDPIPE_TRANSPORT").filter(|name| is_network(name)) {
                // `no_network` looks for the provider that the setting names.
                Some(_) => None,
                None => NoNetwork::of_provider(None),
            },
        }
    }
}

/// A variable of the environment that is set.
fn set(name: &str) -> Option<String> {
    variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The job that `Node::open` would join.
fn job() -> Result<Option<String>, String> {
    match JobEnv::from_env() {
        Ok(Some(_)) => Ok(Some("standpipe run".to_owned())),
        Ok(None) => launched_by().map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn is_network(transport: &str) -> bool {
    matches!(Transport::parse(transport), Some(Transport::Ofi { .. }))
}
