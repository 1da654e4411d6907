//! Both commands, the C library, the library to preload, and the historic layers' library and headers, put
//! where a user has them.

use crate::c_library::{CLibrary, Layout, files_in, pages};
use crate::command::Failure;
use crate::outcome::Outcome;
use crate::products;
use crate::tree::Piece;
use std::path::{Path, PathBuf};

/// Builds all, and puts it below `prefix`, or else below `~/.local`. `debug`: without optimisations.
pub(crate) fn install(prefix: Option<&Path>, debug: bool) -> Outcome {
    let all = || -> Result<(), Failure> {
        let prefix = match prefix {
            Some(prefix) => std::path::absolute(prefix).map_err(|error| Failure(error.to_string()))?,
            None => default_prefix()?,
        };
        let products = products::build(debug)?;
        let made = tempfile::tempdir().map_err(|error| Failure(format!("no temporary folder: {error}")))?;
        let library = CLibrary::link(&products.archive, made.path())?;
        let layout = Layout::relocatable();

        let mut pieces: Vec<Piece> =
            products.commands.iter().map(|command| Piece::file(command, "bin")).collect();
        pieces.push(Piece::file(&products.layers, "lib"));
        pieces.push(Piece::file(&products.malloc, "lib"));
        pieces.extend(
            files_in("crates/layers-c/include")?.into_iter().map(|file| Piece::file(file, "include")),
        );
        pieces.extend(library.runtime(&layout));
        pieces.extend(library.development(&layout)?);
        pieces.extend(pages("standpipe")?);
        for piece in pieces {
            println!("{}", piece.put(&prefix)?.display());
        }
        Ok(())
    };
    all().into()
}

fn default_prefix() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Failure("HOME names no folder: say where by --prefix".into()))?;
    Ok(home.join(".local"))
}
