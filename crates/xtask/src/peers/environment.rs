//! Where peers are: an environment of Python's in a folder that goes with the check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::c_library::{CLibrary, Layout};
use crate::command::{Failure, INSTALL_LIMIT_S, Run, root, run};
use crate::products;

/// Wheels that carry peers, without what they depend on, and the newest versions that could be had when this
/// was written.
const WHEELS: [(&str, &str); 4] =
    [("libucx-cu12", "1.22.0"), ("mpich", "5.0.2"), ("nixl-cu12", "1.5.1"), ("numpy", "2.4.6")];

/// A peer from crates.io, and its version.
const CRATE: (&str, &str) = ("iceoryx2", "0.10.0");

/// Floods of ours under peers that bring no program for it.
const MPI_SOURCE: &str = "tools/mpi_flood.c";
const ICEORYX2_SOURCE: &str = "tools/iceoryx2_flood.rs";
const NIXL_SOURCE: &str = "tools/nixl_flood.py";

/// Calls of ours by C; those by Rust are the example of the same name.
const FACE_SOURCE: &str = "crates/capi/examples/face.c";

/// Peers that were installed, or why not.
pub(super) struct Environment {
    folder: PathBuf,
    /// By the wheel's or the crate's name.
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

    /// Builds the programs of ours that run under peers.
    fn built(mut self) -> Environment {
        let (name, version) = CRATE;
        if let Err(why) = self.build_crate() {
            self.missing.insert(name, format!("{why}; `cargo add {name}@={version}` brings it"));
        }
        if let Err(why) = self.build_face() {
            self.missing.insert("face", format!("{}; a C compiler and binutils are needed", why.0));
        }
        let mpicc = run(&self.bin("mpicc")).arg("-O2").arg("-o").arg(self.bin("mpi_flood"));
        if !self.missing.contains_key("mpich")
            && let Err(why) = mpicc.arg(root().join(MPI_SOURCE)).status()
        {
            self.missing.insert("mpich", format!("{}; a C compiler is needed", why.0));
        }
        self
    }

    /// Builds the calls by C, with the library as it is installed, and those by Rust.
    fn build_face(&self) -> Result<(), Failure> {
        run("cargo build --release --package standpipe-capi --example face")
            .limit_s(INSTALL_LIMIT_S)
            .status()?;
        let products = products::build(false)?;
        let library = CLibrary::link(&products.archive, &self.folder)?;
        let layout = Layout::relocatable();
        for piece in library.runtime(&layout).into_iter().chain(library.development(&layout)?) {
            piece.put(&self.folder)?;
        }
        let below = |folder: &str| self.folder.join(folder).display().to_string();
        let cc = run("cc -O2 -I").arg(below("include")).arg("-o").arg(self.bin("face"));
        let cc = cc.arg(root().join(FACE_SOURCE)).arg("-L").arg(below("lib")).arg("-lstandpipe");
        cc.arg(format!("-Wl,-rpath,{}", below("lib"))).status()
    }

    /// Builds the flood under the peer of crates.io, in a package of its own.
    fn build_crate(&self) -> Result<(), String> {
        let (name, version) = CRATE;
        let package = self.folder.join("crate");
        let manifest = format!(
            "[package]\nname = \"{name}_flood\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\n{name} = \"={version}\"\n\n[workspace]\n"
        );
        std::fs::create_dir_all(package.join("src"))
            .and_then(|()| std::fs::write(package.join("Cargo.toml"), manifest))
            .and_then(|()| std::fs::copy(root().join(ICEORYX2_SOURCE), package.join("src/main.rs")))
            .map_err(|error| format!("no package: {error}"))?;
        let cargo = run("cargo build --release --manifest-path").arg(package.join("Cargo.toml"));
        let cargo = cargo.arg("--target-dir").arg(self.folder.join("target"));
        cargo.limit_s(INSTALL_LIMIT_S).status().map_err(|why| why.0)
    }

    /// The flood under the peer of crates.io.
    pub(super) fn crate_flood(&self) -> String {
        self.folder.join("target/release").join(format!("{}_flood", CRATE.0)).display().to_string()
    }

    /// The flood under NIXL, of so many operations of so many bytes; or why it cannot run.
    pub(super) fn nixl_flood(&self, bytes: u32, count: u32) -> Result<Run, String> {
        self.look_for("nixl-cu12").and_then(|()| self.look_for("numpy"))?;
        let flood = run(&self.bin("python")).arg(root().join(NIXL_SOURCE));
        let flood = flood.arg(bytes.to_string()).arg(count.to_string());
        Ok(flood.env("NIXL_LOG_LEVEL", "ERROR"))
    }

    /// Why the peer of this wheel or crate is not there; nothing if it is.
    pub(super) fn look_for(&self, wheel: &str) -> Result<(), String> {
        self.missing.get(wheel).map_or(Ok(()), |why| Err(why.clone()))
    }

    /// A program of a wheel's, or Python.
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
        WHEELS.into_iter().chain([CRATE]).map(version).collect()
    }
}
