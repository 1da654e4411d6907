//! Where peers are: an environment of Python's in a folder that goes with the check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::command::{INSTALL_LIMIT_S, root, run};

/// Wheels that carry peers, without what they depend on, and the newest versions that could be had when this
/// was written.
const WHEELS: [(&str, &str); 2] = [("libucx-cu12", "1.22.0"), ("mpich", "5.0.2")];

/// The flood under MPI, for which no wheel has a program.
const MPI_SOURCE: &str = "tools/mpi_flood.c";

/// Peers that were installed, or why not.
pub(super) struct Environment {
    folder: PathBuf,
    /// By the wheel's name.
    missing: BTreeMap<&'static str, String>,
}

impl Environment {
    /// Installs what can be had.
    pub(super) fn install(folder: &Path) -> Environment {
        let mut missing = BTreeMap::new();
        let made = run("python3 -m venv").arg(folder).status();
        for (wheel, version) in WHEELS {
            let installed = made.clone().and_then(|()| {
                let pip = run(&folder.join("bin/pip").display().to_string());
                let pip = pip.arg("install").arg("--quiet").arg("--no-deps");
                pip.arg(format!("{wheel}=={version}")).limit_s(INSTALL_LIMIT_S).status()
            });
            if let Err(why) = installed {
                missing.insert(
                    wheel,
                    format!("{}; `pip install --no-deps {wheel}=={version}` brings it", why.0),
                );
            }
        }
        let environment = Environment { folder: folder.to_path_buf(), missing };
        environment.built()
    }

    /// Builds the program of ours that runs under a peer.
    fn built(mut self) -> Environment {
        let mpicc = run(&self.bin("mpicc")).arg("-O2").arg("-o").arg(self.bin("mpi_flood"));
        if !self.missing.contains_key("mpich")
            && let Err(why) = mpicc.arg(root().join(MPI_SOURCE)).status()
        {
            self.missing.insert("mpich", format!("{}; a C compiler is needed", why.0));
        }
        self
    }

    /// Why the peer of this wheel is not there; nothing if it is.
    pub(super) fn look_for(&self, wheel: &str) -> Result<(), String> {
        self.missing.get(wheel).map_or(Ok(()), |why| Err(why.clone()))
    }

    /// A program of MPICH's.
    pub(super) fn bin(&self, program: &str) -> String {
        self.folder.join("bin").join(program).display().to_string()
    }

    /// The folder of UCX's wheel.
    pub(super) fn ucx(&self) -> Option<PathBuf> {
        let libraries = std::fs::read_dir(self.folder.join("lib")).ok()?;
        let folders = libraries.flatten().map(|entry| entry.path().join("site-packages/libucx"));
        folders.into_iter().find(|folder| folder.is_dir())
    }

    /// Names and versions, for the page.
    pub(super) fn versions(&self) -> Vec<String> {
        let version = |(wheel, version): (&str, &str)| match self.look_for(wheel) {
            Ok(()) => format!("{wheel} {version}"),
            Err(why) => format!("{wheel} {version}: *skipped*, {why}"),
        };
        WHEELS.map(version).to_vec()
    }
}
