//! This user's jobs and nodes in other network namespaces: what can be said of them from here, and how to
//! look at them there.

use std::fs::read_link;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;
use standpipe::watch::{self, Elsewhere};

use crate::doctor::{Check, Status};

/// Why nothing more is said of them.
const UNSEEN: &str =
    "in another network namespace (a container, perhaps), and what happens there cannot be seen from here";

/// A job, or a node that nobody launched, that cannot be looked at from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Far {
    /// The launcher, or the node's process.
    pid: u32,
    program: String,
    /// How many ranks it has; `None` for a node that nobody launched.
    ranks: Option<u32>,
    /// The words to put before a command, so that it runs where that one does.
    nsenter: String,
}

/// All that there are.
pub(crate) fn found() -> Vec<Far> {
    watch::elsewhere().unwrap_or_default().iter().map(Far::of).collect()
}

/// Whether a process is known to have another network than this one: nodes are called by names of their
/// network.
pub(crate) fn is_in_another_network(pid: u32) -> bool {
    is_in_another("net", pid)
}

/// How to run a command of `standpipe` in the network namespace of a process.
pub(crate) fn way_there(pid: u32, command: &str) -> String {
    let way = format!("`{} standpipe {command}`", nsenter(pid));
    let uid = std::fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    // The user that made a user namespace may enter it.
    let may_enter =
        is_in_another("user", pid) && uid.is_ok_and(|uid| rustix::process::geteuid().as_raw() == uid);
    if may_enter { way } else { format!("{way}, as root") }
}

fn nsenter(pid: u32) -> String {
    let user = if is_in_another("user", pid) { " -U --preserve-credentials" } else { "" };
    format!("nsenter -t {pid}{user} -n")
}

fn is_in_another(namespace: &str, pid: u32) -> bool {
    let of = |process: &str| read_link(format!("/proc/{process}/ns/{namespace}")).ok();
    of("self").zip(of(&pid.to_string())).is_some_and(|(ours, theirs)| ours != theirs)
}

impl Far {
    fn of(one: &Elsewhere) -> Far {
        let (pid, program) = (one.pid(), one.program().to_owned());
        Far { pid, program, ranks: one.is_launched().then(|| one.size()), nsenter: nsenter(pid) }
    }

    fn what(&self) -> String {
        match self.ranks {
            Some(ranks) => format!("{ranks} ranks of {}", self.program),
            None => format!("a node of {}", self.program),
        }
    }

    /// A sentence that says how to look at it.
    pub(crate) fn sentence(&self) -> String {
        let (what, pid, way) = (self.what(), self.pid, self.way("top"));
        let who = match self.ranks {
            Some(_) => format!("{what} (started by {pid}) are"),
            None => format!("{what} (process {pid}) is"),
        };
        format!("{who} {UNSEEN}; to look there: {way}")
    }

    /// A line of a list: the command that looks at it.
    pub(crate) fn line(&self) -> String {
        let Far { pid, nsenter, .. } = self;
        format!("\n  {nsenter} standpipe top {pid}  {}, in another network namespace", self.what())
    }

    /// The doctor's word of it.
    pub(crate) fn check(&self) -> Check {
        let value = format!("{} ({}): {UNSEEN}", self.pid, self.what());
        let remedy = format!("process {}: to look there: {}", self.pid, way_there(self.pid, "doctor"));
        Check { check: "running node", status: Status::Info, value, remedy, node: None }
    }

    fn way(&self, command: &str) -> String {
        way_there(self.pid, &format!("{command} {}", self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_named_with_the_way_there() {
        let pid = std::process::id();
        let nsenter = format!("nsenter -t {pid} -n");
        let far = Far { pid, program: "solver".to_owned(), ranks: Some(4), nsenter: nsenter.clone() };
        let said = far.sentence();
        assert!(said.starts_with(&format!("4 ranks of solver (started by {pid}) are in another")), "{said}");
        assert!(said.ends_with(&format!("`{nsenter} standpipe top {pid}`, as root")), "{said}");
        assert!(far.line().contains(&format!("{nsenter} standpipe top {pid}  4 ranks of solver")));
        let check = Far { ranks: None, ..far }.check();
        assert!(check.value.contains("a node of solver") && check.remedy.contains("standpipe doctor`"));
        assert!(!is_in_another_network(pid));
    }
}
