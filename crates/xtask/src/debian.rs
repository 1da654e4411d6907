//! A minimal Debian 12 in a folder, and commands in it that see nothing of this machine's files.

use crate::command::{Failure, run};
use crate::outcome::Missing;
use std::path::Path;
use std::process::Command;

/// Looks for debootstrap, and whether we are root: both are needed to make one and to enter it.
pub(crate) fn can_be_made() -> Result<(), Missing> {
    if run("debootstrap --version").output().is_err() || run("unshare --mount true").output().is_err() {
        return Err(Missing("it needs debootstrap, and to be root (`unshare --mount`)".into()));
    }
    Ok(())
}

/// Makes one in `machine` with these packages, unless there is one.
pub(crate) fn make(machine: &Path, packages: &str) -> Result<(), Failure> {
    if machine.join("etc/debian_version").exists() {
        return Ok(());
    }
    let bootstrap = run("debootstrap --variant=minbase").arg(format!("--include={packages}"));
    bootstrap.arg("bookworm").arg(machine).status()
}

/// `command` of a shell in `machine`, with this `PATH` and `HOME`. Its mounts go away with it.
pub(crate) fn enter(machine: &Path, path: &str, home: &str, command: &str) -> Command {
    let enter = "for dir in proc sys dev; do mount --rbind /$dir $0/$dir; done; \
        exec chroot $0 env -i TERM=xterm PATH=$1 HOME=$2 sh -euc \"$3\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-euc", enter]).arg(machine).args([path, home, command]);
    unshare
}
