//! Finding this user's jobs and nodes in other network namespaces. The sockets at which they are looked at
//! have names of their namespace, so that nobody else can come to them. `/proc` shows all the same which
//! processes they are, and which sockets their namespace has.

use std::io;
use std::path::{Path, PathBuf};

use super::jobs::{descriptors, doors, invitation, own_processes, program};
use crate::job::plumbing::JobEnv;

/// The flag of a socket that listens in the kernel's table (`__SO_ACCEPTCON`).
const LISTENS: u32 = 1 << 16;

/// A job of this user on this host, or a node that nobody launched, in another network namespace.
#[derive(Debug)]
pub struct Elsewhere {
    env: JobEnv,
    pid: u32,
    pids: Vec<u32>,
    program: String,
    launched: bool,
}

/// Every job and node as in [`jobs`](super::jobs()), but of the other network namespaces that this host's
/// processes of this user are in: they run, and cannot be looked at from here.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn elsewhere() -> io::Result<Vec<Elsewhere>> {
    let Some(ours) = network_of(Path::new("/proc/self")) else { return Ok(Vec::new()) };
    let is_far = |process: &Path| network_of(process).is_some_and(|theirs| theirs != ours);
    let far: Vec<(u32, PathBuf)> = own_processes()?.filter(|(_, process)| is_far(process)).collect();
    let mut found: Vec<Elsewhere> = Vec::new();
    for (pid, process) in &far {
        let of = |env: JobEnv, launched| Elsewhere {
            env,
            pid: 0,
            pids: vec![*pid],
            program: program(*pid),
            launched,
        };
        let invited = invitation(process).map(|env| of(env, true));
        for one in invited.into_iter().chain(doors(process).into_iter().map(|env| of(env, false))) {
            match found.iter_mut().find(|known| known.env.is_same_job(&one.env)) {
                Some(known) => known.pids.push(*pid),
                None => found.push(one),
            }
        }
    }
    found.retain_mut(|one| one.find_listener(&far));
    found.sort_by_key(Elsewhere::pid);
    Ok(found)
}

impl Elsewhere {
    /// The launcher, or the node's process. Where another user has that, some process of the job.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether a launcher started it. Otherwise it is one node, of the process [`pid`](Self::pid).
    pub fn is_launched(&self) -> bool {
        self.launched
    }

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.env.size()
    }

    /// Its program, for a person to read.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Finds which process has the socket to look at it by: whether any has, as long as it is not over.
    fn find_listener(&mut self, far: &[(u32, PathBuf)]) -> bool {
        let name = self.env.socket_name();
        let process = |pid: &u32| Path::new("/proc").join(pid.to_string());
        let Some(inode) = self.pids.iter().find_map(|pid| listener(&process(pid), &name)) else {
            return false;
        };
        let socket = PathBuf::from(format!("socket:[{inode}]"));
        let has_it = |process: &Path| {
            descriptors(process).any(|path| std::fs::read_link(path).is_ok_and(|target| target == socket))
        };
        let owner = far.iter().find(|(_, process)| has_it(process)).map(|(pid, _)| *pid);
        self.pid = owner.unwrap_or(self.pids[0]);
        if !self.launched {
            self.program = program(self.pid);
        }
        true
    }
}

/// The name of a process's network namespace; `None` where the kernel does not tell.
fn network_of(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/net")).ok()
}

/// The socket that listens under this abstract name in the network namespace of a process.
fn listener(process: &Path, name: &[u8]) -> Option<u64> {
    listener_in(&std::fs::read_to_string(process.join("net/unix")).ok()?, std::str::from_utf8(name).ok()?)
}

fn listener_in(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let [_, _, _, flags, _, _, inode, path] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & LISTENS != 0);
        (listens && path.strip_prefix('@') == Some(name)).then(|| inode.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_that_listens_is_found_by_its_whole_name() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/x\n\
                     0000000000000000: 00000003 00000000 00000000 0005 03 12 @standpipe-ab\n\
                     0000000000000000: 00000002 00000000 00010000 0005 01 13 @standpipe-abc\n\
                     0000000000000000: 00000002 00000000 00010000 0005 01 14 @standpipe-ab\n\
                     0000000000000000: 00000003 00000000 00000000 0001 03 15\n";
        assert_eq!(listener_in(table, "standpipe-ab"), Some(14));
        assert_eq!(listener_in(table, "standpipe-a"), None);
    }

    #[test]
    fn this_network_is_not_another() {
        let own = std::process::id();
        assert!(elsewhere().expect("/proc is there").iter().all(|one| one.pid() != own));
    }
}
