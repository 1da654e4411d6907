//! The same updates by an MPI's one-sided operations: a program of ours in C, by whichever compiler and
//! launcher the MPI has.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::other_programs::{Asked, PATIENCE, Ran, Started, await_end};
use measure::scratch;
use measure::signals::Leftover;

/// The program, compiled for an MPI, which has been found to work.
pub(super) struct Rma {
    /// The MPI as its library names itself, with its version.
    pub(super) library: String,
    launcher: PathBuf,
    program: PathBuf,
    folder: TempDir,
}

impl Rma {
    /// Compiles it, and tries it with one process.
    pub(super) fn compiled(compiler: &Path) -> Result<Rma> {
        let launcher = launcher_of(compiler)
            .with_context(|| format!("there is no mpiexec or mpirun beside {}", compiler.display()))?;
        let folder = scratch::folder().context("it is built in a folder")?;
        Leftover::Folder(folder.path().to_owned()).note();
        let [source, program] = ["rma.c", "rma"].map(|name| folder.path().join(name));
        fs::write(&source, include_str!("rma.c")).context("its source")?;
        let mut compile = Command::new(compiler);
        compile.arg("-O2").arg("-o").arg(&program).arg(&source);
        await_end(Started::start(&mut compile, None)?, PATIENCE)
            .with_context(|| format!("compiling for it by {}", compiler.display()))?;
        let mut rma = Rma { library: String::new(), launcher, program, folder };
        let said = rma.said(Asked { ranks: 1, words: 1024, updates: 1024 })?;
        rma.library = library(&said).context("it did not say what it is")?;
        Ok(rma)
    }

    /// Runs it once: its rate by puts, and by accumulates.
    pub(super) fn run(&self, asked: Asked) -> Result<[(&'static str, Ran); 2]> {
        let said = self.said(asked)?;
        let ran = |way| line_of(&said, way, asked).map(|ran| (way, ran));
        Ok([ran("put").context("it said nothing of puts")?, ran("atomic").context("nor of accumulates")?])
    }

    fn said(&self, asked: Asked) -> Result<String> {
        let said = self.folder.path().join("said");
        let mut command = Command::new(&self.launcher);
        command.args(["-n", &asked.ranks.to_string()]).arg(&self.program);
        command.args([asked.words, asked.updates].map(|number| number.to_string()));
        // What a launcher that is killed leaves behind goes with the folder.
        command.current_dir(self.folder.path()).env("TMPDIR", self.folder.path());
        let out = File::create(&said).context("a file for what it says")?;
        await_end(Started::start(&mut command, Some(out))?, PATIENCE)?;
        fs::read_to_string(&said).context("what it said")
    }
}

/// The launcher that an MPI has beside its compiler, by the same suffix: `mpiexec.mpich` for `mpicc.mpich`.
fn launcher_of(compiler: &Path) -> Option<PathBuf> {
    let suffix = compiler.file_name()?.to_str()?.strip_prefix("mpicc")?;
    let named = |name: &str| compiler.with_file_name(format!("{name}{suffix}"));
    ["mpiexec", "mpirun"].map(named).into_iter().find(|file| file.is_file())
}

/// What the library calls itself: the beginning of what it says, which goes on with much else.
fn library(said: &str) -> Option<String> {
    let line = said.lines().find_map(|line| line.strip_prefix("library "))?;
    let words = line.split(',').next()?.split_whitespace().filter(|word| *word != "Version:");
    let plain = |word: &str| match word.strip_prefix('v') {
        Some(number) if number.starts_with(|first: char| first.is_ascii_digit()) => number.to_owned(),
        _ => word.to_owned(),
    };
    Some(words.map(plain).collect::<Vec<_>>().join(" ")).filter(|name| !name.is_empty())
}

/// What the program has said of a way: its name, GUPS and wrong words.
fn line_of(said: &str, way: &str, asked: Asked) -> Option<Ran> {
    let mut parts = said.lines().find_map(|line| line.strip_prefix(way))?.split_whitespace();
    let (gups, errors) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Ran { gups, table_bytes: asked.words * 8, updates: asked.updates, errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_program_says_is_understood() {
        let said = "library MPICH Version:      5.0.2\nput 0.0125 0\natomic 0.003 7\n";
        let asked = Asked { ranks: 2, words: 1024, updates: 99 };
        let ran = |gups, errors| Some(Ran { gups, table_bytes: 8192, updates: 99, errors });
        assert_eq!(line_of(said, "put", asked), ran(0.0125, 0));
        assert_eq!(line_of(said, "atomic", asked), ran(0.003, 7));
        assert_eq!(line_of("put 0.0125\n", "put", asked), None);
        assert_eq!(library(said).as_deref(), Some("MPICH 5.0.2"));
        let open = "library Open MPI v5.0.11, package: Open MPI of somebody, repo rev: v5.0.11\n";
        assert_eq!(library(open).as_deref(), Some("Open MPI 5.0.11"));
        assert_eq!(library("library \n"), None);
    }

    #[test]
    fn the_launcher_is_the_compilers_neighbour() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("mpirun"), "").expect("a file");
        fs::write(at("mpiexec.mpich"), "").expect("a file");
        assert_eq!(launcher_of(&at("mpicc")), Some(at("mpirun")));
        assert_eq!(launcher_of(&at("mpicc.mpich")), Some(at("mpiexec.mpich")));
        assert_eq!(launcher_of(&at("mpicc.openmpi")), None);
        assert_eq!(launcher_of(&at("gcc")), None);
    }
}
