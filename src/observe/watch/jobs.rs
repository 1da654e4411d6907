//! Finding this user's jobs: every rank has the job's name and secret in its environment, which the kernel
//! shows to its own user only. A node that nobody launched says in its control segment how to look at it. The
//! kernel lets that user open the segment by the process's descriptors, and removes it with the process.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::Watch;
use crate::job::launched::{JoinError, find_launcher};
use crate::job::plumbing::JobEnv;
use crate::transport::shm::control::SEGMENT;
use crate::transport::shm::stats_page::listener::read_listener;
use engine::Rank;

/// No environment is longer, as far as it matters here: the kernel gives a new process no more than a few
/// MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// A job of this user on this host, or a node that nobody launched, as a job of one.
#[derive(Debug)]
pub struct Job {
    env: JobEnv,
    launcher_pid: u32,
    /// Processes that were invited, each with the rank that it was invited as.
    pids: Vec<(u32, u32)>,
    program: String,
    launched: bool,
}

/// Every job of this user on this host whose launcher runs, and every node that nobody launched and that
/// others can come to ([`Node::address`](crate::Node::address)), in the order of their process numbers.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn jobs() -> io::Result<Vec<Job>> {
    let mut found: Vec<Job> = Vec::new();
    for (pid, process) in own_processes()? {
        let job = |env: JobEnv, launched| {
            let pids = vec![(pid, env.rank())];
            Job { env, launcher_pid: 0, pids, program: program(pid), launched }
        };
        found.extend(doors(&process).into_iter().map(|env| job(env, false)));
        // It may have ended meanwhile, or hide.
        let Some(env) = invitation(&process) else { continue };
        match found.iter_mut().find(|job| job.launched && job.env.is_same_job(&env)) {
            Some(job) => job.pids.push((pid, env.rank())),
            None => found.push(job(env, true)),
        }
    }
    found.retain_mut(|job| {
        // Of a node, only the process itself has the listener that its segment names.
        let launcher = find_launcher(&job.env).filter(|pid| job.launched || job.has_only(*pid));
        job.launcher_pid = launcher.unwrap_or(0);
        launcher.is_some()
    });
    found.sort_by_key(|job| job.launcher_pid);
    Ok(found)
}

impl Job {
    /// The process that started it; zero where that is out of sight.
    pub fn launcher_pid(&self) -> u32 {
        self.launcher_pid
    }

    /// Whether a launcher started it. Otherwise it is one node, of the process
    /// [`launcher_pid`](Self::launcher_pid).
    pub fn is_launched(&self) -> bool {
        self.launched
    }

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.env.size()
    }

    /// Tells it from all other jobs and nodes: 16 hexadecimal digits, random and no secret.
    pub fn id(&self) -> &str {
        &self.env.name()[..16]
    }

    /// The program of its first process, for a person to read.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether `pid` is the launcher, or a process that the launcher or a rank started.
    pub fn has(&self, pid: u32) -> bool {
        self.launcher_pid == pid || self.pids.iter().any(|(known, _)| *known == pid)
    }

    /// The process that the launcher has started as this rank, as of when the job was found; `None` where
    /// that is out of sight. It need not have opened a node, and what it starts may do so in its place.
    pub fn process_of(&self, rank: Rank) -> Option<u32> {
        let pids = || self.pids.iter().filter(|(_, invited_as)| *invited_as == rank).map(|(pid, _)| *pid);
        pids().find(|pid| parent(*pid) == Some(self.launcher_pid)).or_else(|| pids().next())
    }

    fn has_only(&self, pid: u32) -> bool {
        self.pids.iter().all(|(known, _)| *known == pid)
    }

    /// Watches it.
    ///
    /// # Errors
    /// When it has just ended, or its launcher refuses.
    pub fn watch(&self) -> Result<Watch, JoinError> {
        let watch = Watch::attach(&self.env)?;
        Ok(if self.launched { watch } else { watch.of_node() })
    }
}

/// This user's processes, and where `/proc` tells of each, in the order of their numbers.
pub(super) fn own_processes() -> io::Result<impl Iterator<Item = (u32, PathBuf)>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut pids: Vec<u32> = entries.filter_map(number).collect();
    pids.sort_unstable();
    Ok(pids.into_iter().filter_map(|pid| Some((pid, own_process(pid)?))))
}

fn own_process(pid: u32) -> Option<PathBuf> {
    let process = Path::new("/proc").join(pid.to_string());
    let uid = std::fs::metadata(&process).ok()?.uid();
    (uid == rustix::process::geteuid().as_raw()).then_some(process)
}

/// The process that started this one, or has it now.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The program's name stands in brackets, and may have any letters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The descriptors of a process; none where the kernel does not show them.
pub(super) fn descriptors(process: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The way to the nodes of a process that nobody launched; also to those of others whose segments it has.
pub(super) fn doors(process: &Path) -> Vec<JobEnv> {
    let mut envs: Vec<JobEnv> = Vec::new();
    for path in descriptors(process) {
        let env = peer_listener(&path).filter(|env| !envs.iter().any(|known| known.is_same_job(env)));
        envs.extend(env);
    }
    envs
}

/// The way to the listener that a descriptor's segment names, if it is a control segment and names one.
fn peer_listener(descriptor: &Path) -> Option<JobEnv> {
    let target = std::fs::read_link(descriptor).ok()?;
    let name = target.as_os_str().as_bytes().strip_prefix(b"/memfd:")?;
    name.starts_with(SEGMENT.as_bytes()).then_some(())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let page = rustix::fs::open(descriptor, flags, Mode::empty()).ok()?;
    read_listener(&page).map(|peer_listener| JobEnv::of_listener(&peer_listener))
}

/// The job that the environment of a process invites it to.
pub(super) fn invitation(process: &Path) -> Option<JobEnv> {
    let mut text = Vec::new();
    let environment = std::fs::File::open(process.join("environ")).ok()?;
    environment.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut text).ok()?;
    JobEnv::from_lookup(|name| look_up(&text, name)).ok().flatten()
}

/// The value of `name` in an environment as the kernel shows it.
fn look_up(environment: &[u8], name: &str) -> Option<OsString> {
    let value = |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environment.split(|byte| *byte == 0).find_map(value).map(OsString::from_vec)
}

/// The program's name, without anything that a terminal would obey.
pub(super) fn program(pid: u32) -> String {
    program_name(&std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default())
}

fn program_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().as_bytes();
    // The words that the kernel adds where a file has been replaced since.
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    String::from_utf8_lossy(name).replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_name_when_its_file_is_replaced() {
        let name = |path: &str| program_name(Path::new(path));
        assert_eq!(name("/usr/bin/stencil"), "stencil");
        assert_eq!(name("/usr/bin/stencil (deleted)"), "stencil");
        assert_eq!(name("/tmp/a\nb"), "a?b");
    }

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let environment = b"XA=0\0A=1\0AB=2\0A=3\0B\0";
        assert_eq!(look_up(environment, "A"), Some("1".into()));
        assert_eq!(look_up(environment, "AB"), Some("2".into()));
        assert_eq!(look_up(environment, "B"), None);
    }
}
