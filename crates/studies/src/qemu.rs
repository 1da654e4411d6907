//! Studies inside an emulated machine whose kernel has real RDMA devices in software (soft-RoCE):
//! `tools/rdma-vm` of the sources boots it, with this machine's files, and this very program runs there.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use clap::Args;

use measure::report::output::{Output, OutputArgs};
use measure::usage_error::UsageError;

/// Where a study runs.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VmArgs {
    /// Run inside an emulated machine that has soft-RoCE devices (by tools/rdma-vm of Standpipe's sources, as
    /// root), over ofi:verbs;ofi_rxm unless --transport says otherwise; the report comes out here. Slow:
    /// everything is emulated
    #[arg(long)]
    vm: bool,
    /// With --vm: the program that makes the machine; also STANDPIPE_RDMA_VM. Without it, tools/rdma-vm above
    /// this program's folder or this one
    #[arg(long, value_name = "FILE", requires = "vm")]
    rdma_vm: Option<PathBuf>,
}

/// Why a study did not run in the machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmError {
    /// There is nothing that makes one.
    #[error(
        "there is no tools/rdma-vm above {}, which makes the machine for --vm; it is part of Standpipe's sources: name it by \
         --rdma-vm FILE or {VARIABLE}", places(.looked)
    )]
    Absent {
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// It cannot be started.
    #[error("{} cannot be started: {source}", program.display())]
    Start {
        /// What.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It made no machine, for the reason that it has said.
    #[error(
        "{} made no machine, or that died (above it says why): it wants x86-64, root, and Debian's packages qemu-system-x86, \
         cpio, kmod, python3, busybox-static, iproute2, ibverbs-utils and ibverbs-providers, which it installs where it can",
        program.display()
    )]
    NoMachine {
        /// What.
        program: PathBuf,
    },
    /// It took too long.
    #[error("the study took more than {LIMIT_S} s inside the machine, and was ended")]
    TooLong,
}

fn places(looked: &[PathBuf]) -> String {
    looked.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" nor ")
}

/// Names the program that makes the machine.
const VARIABLE: &str = "STANDPIPE_RDMA_VM";
/// Tells this program that it runs inside one.
const INSIDE: &str = "STANDPIPE_INSIDE_RDMA_VM";
/// No study takes as long, not even on a slow machine.
const LIMIT_S: u32 = 7200;
/// Memory of the machine.
const MEMORY: &str = "3G";
/// How long waits poll before they sleep, there: ten times as long as elsewhere, since all takes some ten
/// times as long. Else what is measured is how processors that have nothing to do are woken by the emulator.
const SPIN: (&str, &str) = ("STANDPIPE_SPIN_US", "500");
/// The provider over soft-RoCE.
const TRANSPORT: [&str; 2] = ["--transport", "ofi:verbs;ofi_rxm"];

/// Whether this is the program inside the machine.
#[must_use]
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// What repeats it, behind the command line of what runs inside.
#[must_use]
pub(crate) fn word() -> &'static str {
    if is_inside() { " --vm" } else { "" }
}

impl VmArgs {
    /// Runs this command line inside the machine, if it is to run there; `named`: it names a transport.
    ///
    /// # Errors
    /// [`VmError`]; [`UsageError`] if the results' directory cannot be had.
    pub(crate) fn run(&self, results: &OutputArgs, named: bool) -> Option<Result<ExitCode>> {
        self.vm.then(|| self.boot(results, named))
    }

    fn boot(&self, results: &OutputArgs, named: bool) -> Result<ExitCode> {
        let program = self.program().map_err(UsageError::new)?;
        // The machine writes into it.
        let _output = Output::make(results)?;
        let out = results.out.canonicalize().context("the directory for the results")?;
        let here = env::current_dir().context("this folder")?;
        let mut machine = Command::new(&program);
        machine.args(["-t", &LIMIT_S.to_string(), "-m", MEMORY]);
        // It shares this folder with all that is in it anyway.
        if !out.starts_with(&here) || here == Path::new("/") {
            machine.arg("-w").arg(&out);
        }
        machine
            .arg(env::current_exe().context("this program's own file")?)
            .args(inside(env::args_os(), named));
        if env::var_os(SPIN.0).is_none() {
            machine.env(SPIN.0, SPIN.1);
        }
        // What it leaves when a signal ends this process goes with this process's own, and so do its
        // children.
        machine.env("TMPDIR", tempfile::env::temp_dir()).env(INSIDE, "1").stdin(Stdio::null());
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let status =
            machine.status().map_err(|source| VmError::Start { program: program.clone(), source })?;
        match status.code() {
            Some(124) => Err(VmError::TooLong.into()),
            Some(125) | None => Err(VmError::NoMachine { program }.into()),
            Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        }
    }

    /// What makes the machine.
    fn program(&self) -> Result<PathBuf, VmError> {
        if let Some(program) = self.rdma_vm.clone().or_else(|| env::var_os(VARIABLE).map(PathBuf::from)) {
            return Ok(program);
        }
        let looked: Vec<PathBuf> = [env::current_exe(), env::current_dir()].into_iter().flatten().collect();
        find(&looked).ok_or(VmError::Absent { looked })
    }
}

/// The first `tools/rdma-vm` above one of these.
fn find(places: &[PathBuf]) -> Option<PathBuf> {
    let above = places.iter().flat_map(|place| place.ancestors());
    above.map(|folder| folder.join("tools/rdma-vm")).find(|program| program.is_file())
}

/// The arguments for the program inside: without those that are about the machine, and with a transport.
fn inside(words: impl Iterator<Item = OsString>, named: bool) -> Vec<OsString> {
    let mut inner: Vec<OsString> = Vec::new();
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--vm") => {}
            Some("--rdma-vm") => _ = words.next(),
            Some(text) if text.starts_with("--rdma-vm=") => {}
            _ => inner.push(word),
        }
    }
    if !named {
        inner.extend(TRANSPORT.map(OsString::from));
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_inside_is_not_told_of_the_machine() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let told = |text: &str, named| inside(words(text).into_iter(), named);
        let all = "standpipe-study kv --vm --rdma-vm /x/vm --out a --rdma-vm=/y --transport ofi:tcp";
        assert_eq!(told(all, true), words("kv --out a --transport ofi:tcp"));
        assert_eq!(told("standpipe-study kv --vm", false), words("kv --transport ofi:verbs;ofi_rxm"));
    }

    #[test]
    fn the_machines_maker_is_looked_for_upwards_and_named_where_it_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("target/release/standpipe");
        assert_eq!(find(std::slice::from_ref(&deep)), None);
        std::fs::create_dir(folder.path().join("tools")).expect("a folder");
        let maker = folder.path().join("tools/rdma-vm");
        std::fs::write(&maker, "").expect("written");
        assert_eq!(find(std::slice::from_ref(&deep)), Some(maker));
        let error = VmError::Absent { looked: vec![deep, PathBuf::from("/")] }.to_string();
        assert!(error.contains("release/standpipe nor /") && error.contains("STANDPIPE_RDMA_VM"), "{error}");
    }
}
