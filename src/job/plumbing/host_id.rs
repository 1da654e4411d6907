//! Which host, network and process namespace and user a process is of.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Once, OnceLock};

use serde::{Deserialize, Serialize};

use super::secret::{random_bytes, to_hex};

/// The files that tell, below `/proc`.
const BOOT: &str = "sys/kernel/random/boot_id";
const NETWORK: &str = "self/ns/net";
const PROCESSES: &str = "self/ns/pid";

/// How the `boot` of a process begins that cannot tell its host from others.
const ALONE: &str = "alone-";

/// The facts that decide whether two processes can be members of one broker, or meet at a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::job) struct HostId {
    /// Of the running system. Where the system does not tell all of this, no other process has the same.
    pub(in crate::job) boot: String,
    /// The network namespace, in which the broker's name lies.
    pub(in crate::job) network: u64,
    /// The process namespace, out of which nobody is seen by number: as of containers that share the network
    /// only, such as those of one pod.
    pub(in crate::job) processes: u64,
    pub(in crate::job) user: u32,
}

impl HostId {
    /// This process's. Where the system does not tell, a warning says so once, and the process counts as
    /// alone on its host: all others are reached over a network.
    pub(in crate::job) fn own() -> HostId {
        static SAID: Once = Once::new();
        let user = rustix::process::geteuid().as_raw();
        match read(Path::new("/proc")) {
            Ok((boot, network, processes)) => HostId { boot, network, processes, user },
            Err(why) => {
                SAID.call_once(|| tracing::warn!("{why}"));
                HostId { boot: name_of_one_alone(), network: 0, processes: 0, user }
            }
        }
    }

    /// Whether the process could tell its host from others.
    pub(in crate::job) fn is_known(&self) -> bool {
        !self.boot.starts_with(ALONE)
    }

    /// Whether names in the abstract namespace mean the same to both.
    pub(in crate::job) fn shares_sockets(&self, other: &HostId) -> bool {
        (&self.boot, self.network) == (&other.boot, other.network)
    }

    /// Whether each sees the other's process besides, as those must that share memory.
    pub(in crate::job) fn sees(&self, other: &HostId) -> bool {
        self.shares_sockets(other) && self.processes == other.processes
    }
}

/// Why this process cannot tell its host from others; `None` where it can.
pub(in crate::job) fn why_alone() -> Option<String> {
    read(Path::new("/proc")).err()
}

/// The boot, and the network and process namespaces; or what cannot be read, and what comes of it.
fn read(proc: &Path) -> Result<(String, u64, u64), String> {
    let failed = |what: &str, error: &io::Error| {
        format!(
            "{} cannot be read ({error}), so that this process cannot tell which others are on its host: it reaches all of them over \
             a network",
            proc.join(what).display()
        )
    };
    let namespace = |what| match fs::metadata(proc.join(what)) {
        Ok(meta) => Ok(meta.ino()),
        Err(error) => Err(failed(what, &error)),
    };
    let boot = match fs::read_to_string(proc.join(BOOT)) {
        Ok(boot) if !boot.trim().is_empty() => boot,
        Ok(_) => return Err(failed(BOOT, &io::Error::new(ErrorKind::UnexpectedEof, "it is empty"))),
        Err(error) => return Err(failed(BOOT, &error)),
    };
    Ok((boot, namespace(NETWORK)?, namespace(PROCESSES)?))
}

/// A name that no other process has, and that stays the same in this one.
fn name_of_one_alone() -> String {
    static RANDOM: OnceLock<String> = OnceLock::new();
    let random = RANDOM.get_or_init(|| {
        let bytes = random_bytes::<16>();
        bytes.map_or_else(|_| vm::host::monotonic_ns().to_string(), |bytes| to_hex(&bytes))
    });
    // Forked processes have the same random bytes.
    format!("{ALONE}{random}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named() {
        let (boot, ..) = read(Path::new("/proc")).expect("there");
        assert!(HostId::own().is_known() && HostId::own().boot == boot && why_alone().is_none());
        let folder = std::env::temp_dir().join(format!("standpipe-no-proc-{}", std::process::id()));
        let boot_id = folder.join(BOOT);
        let why = read(&folder).expect_err("nothing is there");
        assert!(why.contains("boot_id cannot be read (No such file"), "{why}");
        fs::create_dir_all(boot_id.parent().expect("a folder")).expect("ours");
        fs::write(&boot_id, "\n").expect("ours");
        let empty = read(&folder).expect_err("nothing is in it");
        fs::write(&boot_id, "0-1-2\n").expect("ours");
        let without = read(&folder).expect_err("no namespaces are there");
        fs::remove_dir_all(&folder).expect("ours");
        assert!(empty.contains("it is empty") && without.contains("self/ns/net"), "{empty}; {without}");
    }

    #[test]
    fn who_cannot_tell_its_host_is_like_itself_only() {
        let name = name_of_one_alone();
        assert_eq!(name, name_of_one_alone());
        let one = HostId { boot: name, network: 0, processes: 0, user: 0 };
        assert!(!one.is_known() && one.sees(&one.clone()));
        let other = HostId { boot: format!("{ALONE}another"), ..one.clone() };
        assert!(!one.shares_sockets(&other) && !one.shares_sockets(&HostId::own()));
    }
}
