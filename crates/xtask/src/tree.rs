//! Files that are put below a folder: what an installation, or a package, consists of.

use crate::command::Failure;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// One file of an installation.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where it goes, below the prefix.
    pub(crate) to: PathBuf,
    /// Its content.
    pub(crate) from: From,
}

/// Where the content of a file comes from.
#[derive(Debug)]
pub(crate) enum From {
    /// A file, with its permissions to execute.
    File(PathBuf),
    /// This text.
    Text(String),
    /// A symbolic link to this name beside it.
    Link(String),
}

impl Piece {
    /// The file `from`, in `folder` under its own name.
    pub(crate) fn file(from: impl Into<PathBuf>, folder: impl AsRef<Path>) -> Piece {
        let from = from.into();
        let to = folder.as_ref().join(from.file_name().expect("a file that was built or read has a name"));
        Piece { to, from: From::File(from) }
    }

    /// The file `to` with this text.
    pub(crate) fn text(to: impl Into<PathBuf>, text: String) -> Piece {
        Piece { to: to.into(), from: From::Text(text) }
    }

    /// The link `to`, which leads to the name `target` beside it.
    pub(crate) fn link(to: impl Into<PathBuf>, target: impl Into<String>) -> Piece {
        Piece { to: to.into(), from: From::Link(target.into()) }
    }

    /// Puts it below `prefix`, and gives its path. Programs may use a file of its name meanwhile: that is
    /// replaced, and never changed.
    pub(crate) fn put(&self, prefix: &Path) -> Result<PathBuf, Failure> {
        let to = prefix.join(&self.to);
        self.write(&to).map_err(|error| Failure(format!("cannot write {}: {error}", to.display())))?;
        Ok(to)
    }

    fn write(&self, to: &Path) -> std::io::Result<()> {
        let folder = to.parent().expect("a file lies in a folder");
        fs::create_dir_all(folder)?;
        let beside = tempfile::tempdir_in(folder)?;
        let beside = beside.path().join("new");
        match &self.from {
            From::Link(target) => symlink(target, &beside)?,
            From::File(from) => {
                fs::copy(from, &beside)?;
                let can_run = fs::metadata(from)?.permissions().mode() & 0o100 != 0 && !is_library(to);
                fs::set_permissions(&beside, mode(can_run))?;
            }
            From::Text(text) => {
                fs::File::create(&beside)?.write_all(text.as_bytes())?;
                fs::set_permissions(&beside, mode(false))?;
            }
        }
        fs::rename(&beside, to)
    }
}

/// Whether the loader maps it and nobody executes it.
fn is_library(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"))
}

fn mode(can_run: bool) -> fs::Permissions {
    fs::Permissions::from_mode(if can_run { 0o755 } else { 0o644 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_texts_and_links_replace_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = folder.path().join("p");
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\n").expect("there is room");
        fs::set_permissions(&program, mode(true)).expect("it is ours");
        for text in ["old", "new"] {
            Piece::file(&program, "bin").put(&prefix).expect("it can be put");
            Piece::text("lib/libx.so.1", text.into()).put(&prefix).expect("it can be put");
            Piece::link("lib/libx.so", "libx.so.1").put(&prefix).expect("it can be put");
        }
        assert_eq!(fs::read_to_string(prefix.join("lib/libx.so")).expect("the link leads on"), "new");
        let mode_of = |name: &str| fs::metadata(prefix.join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode_of("bin/program") & 0o777, 0o755);
        assert_eq!(mode_of("lib/libx.so.1") & 0o777, 0o644);
        assert_eq!(fs::read_dir(prefix.join("lib")).expect("it is there").count(), 2, "nothing is left");
    }
}
