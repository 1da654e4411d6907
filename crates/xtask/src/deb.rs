//! Three Debian packages: the C library, what compilers need to use it, and the commands.

mod check;
mod licences;
mod package;

use crate::c_library::{CLibrary, Layout, VERSION, pages, series};
use crate::command::{Failure, run, target};
use crate::outcome::Outcome;
use crate::tree::Piece;
use crate::{debian, products};
use package::{Package, needs, wanted};
use std::fs;
use std::path::{Path, PathBuf};

/// Builds the packages into `out`, or else into `target/deb`. `debug`: without optimisations. `check`: and
/// uses them in the Debian of that folder, or of one below `target`.
pub(crate) fn deb(out: Option<&Path>, debug: bool, check: Option<Option<&Path>>) -> Outcome {
    let target = target();
    let out = out.map_or_else(|| target.join("deb"), Path::to_path_buf);
    if run("dpkg-deb --version").output().is_err() {
        return Outcome::Skipped("there is no dpkg-deb: it takes a Debian".into());
    }
    let packages = match build(&out, debug) {
        Ok(packages) => packages,
        Err(failure) => return Outcome::Failed(failure.0),
    };
    let Some(machine) = check else { return Outcome::Passed };
    if let Err(missing) = debian::can_be_made() {
        return missing.into();
    }
    let machine = machine.map_or_else(|| target.join("debian-12-c"), Path::to_path_buf);
    check::check(&machine, &packages).into()
}

/// Builds the packages, and gives their paths.
fn build(out: &Path, debug: bool) -> Result<Vec<PathBuf>, Failure> {
    let trouble = |what: &str| format!("cannot make {what}");
    fs::create_dir_all(out).map_err(|why| Failure(format!("{}: {why}", trouble("the folder"))))?;
    let products = products::build(debug)?;
    let made = tempfile::tempdir().map_err(|why| Failure(format!("no temporary folder: {why}")))?;
    let library = CLibrary::link(&products.archive, made.path())?;
    run("strip --strip-unneeded").arg(library.shared()).status()?;
    let stripped = |file: &PathBuf| {
        let stripped = made.path().join(file.file_name().expect("a file has a name"));
        run("strip --strip-unneeded -o").arg(&stripped).arg(file).status()?;
        Ok(stripped)
    };
    let commands = products.commands.iter().map(stripped).collect::<Result<Vec<_>, Failure>>()?;
    let malloc = stripped(&products.malloc)?;
    let triple = run("cc -print-multiarch").output()?.trim().to_owned();
    let layout = Layout::debian(&triple);
    let packages =
        [runtime(&library, &layout)?, development(&library, &layout)?, tools(&commands, &malloc, &layout)?];
    packages.iter().map(|package| package.build(out, debug)).collect()
}

/// The library's package is named as its series is: two of them can be installed side by side.
fn library_name() -> String {
    format!("libstandpipe{}", series())
}

fn runtime(library: &CLibrary, layout: &Layout) -> Result<Package, Failure> {
    let name = library_name();
    Ok(Package {
        section: "libs",
        same: true,
        depends: wanted(&needs(library.shared())?)?,
        suggests: Some("libfabric1"),
        summary: "one-sided put and get to any address of a peer: C library",
        pieces: library.runtime(layout),
        shlibs: Some(format!("libstandpipe {} {name} (>= {VERSION})\n", series())),
        licences: licences::of("standpipe-capi", "bundled")?,
        name,
    })
}

fn development(library: &CLibrary, layout: &Layout) -> Result<Package, Failure> {
    let name = "libstandpipe-dev".to_owned();
    let mut pieces = library.development(layout)?;
    pieces.extend(pages(&name)?);
    Ok(Package {
        section: "libdevel",
        same: true,
        depends: vec![format!("{} (= {})", library_name(), package::REVISION), "libc6-dev".into()],
        suggests: Some("pkg-config, cmake, standpipe-tools"),
        summary: "one-sided put and get to any address of a peer: C headers",
        pieces,
        shlibs: None,
        // The archive has all that the library has.
        licences: licences::of("standpipe-capi", "bundled")?,
        name,
    })
}

/// The commands, and the library to preload: as it has no series in its name, two of them could not be
/// installed side by side with the C library's.
fn tools(commands: &[PathBuf], malloc: &Path, layout: &Layout) -> Result<Package, Failure> {
    let mut pieces = vec![Piece::file(malloc, &layout.lib)];
    let mut needed = needs(malloc)?;
    for command in commands {
        needed.extend(needs(command)?);
        pieces.push(Piece::file(command, "bin"));
        let name = command.file_name().expect("a command has a name").to_string_lossy();
        if name == "standpipe" {
            let page = run("").arg(command).args("man").output()?;
            pieces.push(Piece::text(format!("share/man/man1/{name}.1"), page));
            let words = run("").arg(command).args("completions bash").output()?;
            pieces.push(Piece::text(format!("share/bash-completion/completions/{name}"), words));
        }
    }
    let mut licences = licences::of("standpipe-cli", "bundled")?;
    licences.merge(licences::of("standpipe-study", "bundled")?);
    licences.merge(licences::of("standpipe-malloc", "")?);
    Ok(Package {
        name: "standpipe-tools".into(),
        section: "net",
        same: false,
        depends: wanted(&needed)?,
        suggests: Some("libfabric1"),
        summary: "one-sided put and get to any address of a peer: commands",
        pieces,
        shlibs: None,
        licences,
    })
}
