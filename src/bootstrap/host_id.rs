//! Which host, network and process namespace and user a process is of.

use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// What decides whether two processes can be members of one broker, or meet at a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostId {
    /// Of the running system.
    pub(super) boot: String,
    /// The network namespace, in which the broker's name lies.
    pub(super) network: u64,
    /// The process namespace, out of which nobody is seen by number: as of containers that share the network only, such as those of
    /// one pod.
    pub(super) processes: u64,
    pub(super) user: u32,
}

impl HostId {
    pub(super) fn own() -> HostId {
        // Where the system does not tell, processes are told apart by nothing, and the join says what is wrong.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace =
            |of| std::fs::metadata(format!("/proc/self/ns/{of}")).map(|meta| meta.ino()).unwrap_or_default();
        let (network, processes) = (namespace("net"), namespace("pid"));
        HostId { boot, network, processes, user: rustix::process::geteuid().as_raw() }
    }

    /// Whether names in the abstract namespace mean the same to both.
    pub(super) fn shares_sockets(&self, other: &HostId) -> bool {
        (&self.boot, self.network) == (&other.boot, other.network)
    }

    /// Whether each sees the other's process besides, as those must that share memory.
    pub(super) fn sees(&self, other: &HostId) -> bool {
        self.shares_sockets(other) && self.processes == other.processes
    }
}
