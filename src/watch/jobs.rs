//! Finding this user's jobs: every rank has the job's name and secret in its environment, which the kernel shows to its
//! own user only.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Watch;
use crate::bootstrap::{JobEnv, JoinError, find_launcher};

/// No environment is longer, as far as it matters here: the kernel gives a new process no more than a few MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// A job of this user on this host.
#[derive(Debug)]
pub struct Job {
    env: JobEnv,
    launcher_pid: u32,
    pids: Vec<u32>,
    program: String,
}

/// Every job of this user on this host whose launcher runs, in the order of the launchers' process numbers.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn jobs() -> io::Result<Vec<Job>> {
    let mut found: Vec<Job> = Vec::new();
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    pids.sort_unstable();
    for pid in pids {
        // It may have ended meanwhile, or hide.
        let Some(env) = invitation(pid) else { continue };
        match found.iter_mut().find(|job| job.env.is_same_job(&env)) {
            Some(job) => job.pids.push(pid),
            None => found.push(Job { env, launcher_pid: 0, pids: vec![pid], program: program(pid) }),
        }
    }
    found.retain_mut(|job| {
        let launcher = find_launcher(&job.env);
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

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.env.size()
    }

    /// What its first process runs, for a person to read.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether `pid` is the launcher, or a process that the launcher or a rank started.
    pub fn has(&self, pid: u32) -> bool {
        self.launcher_pid == pid || self.pids.contains(&pid)
    }

    /// Watches it.
    ///
    /// # Errors
    /// When it has just ended, or its launcher refuses.
    pub fn watch(&self) -> Result<Watch, JoinError> {
        Watch::attach(&self.env)
    }
}

/// What the environment of a process of this user invites it to.
fn invitation(pid: u32) -> Option<JobEnv> {
    let process = Path::new("/proc").join(pid.to_string());
    if std::fs::metadata(&process).ok()?.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
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
fn program(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().as_bytes();
    String::from_utf8_lossy(name).replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let environment = b"XA=0\0A=1\0AB=2\0A=3\0B\0";
        assert_eq!(look_up(environment, "A"), Some("1".into()));
        assert_eq!(look_up(environment, "AB"), Some("2".into()));
        assert_eq!(look_up(environment, "B"), None);
    }
}
