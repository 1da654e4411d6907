//! `standpipe layers`: the historic layers' library and headers, which the command carries, and how to build
//! with them.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use layers_c::HEADERS;
use measure::stdout::print;
use measure::table::{Layout, plain};
use serde::Serialize;

/// The library, as cargo has built it for this command.
const LIBRARY: &[u8] = include_bytes!(env!("LIBRARY_OF_LAYERS"));

/// Its file's name, and the name by which programs are linked with it.
const FILE: &str = "libstandpipe_layers.so";
const LINKED: &str = "-lstandpipe_layers";

/// Arguments of `standpipe layers`.
#[derive(Debug, Args)]
pub(crate) struct LayersArgs {
    /// Print what a C or C++ compiler needs to find the headers
    #[arg(long)]
    cflags: bool,
    /// Print what a compiler needs to link with the library
    #[arg(long)]
    libs: bool,
    /// Put headers and library into this folder, and not into the one of the user's data
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// Where headers and library lie.
#[derive(Debug)]
struct Installed {
    include: PathBuf,
    lib: PathBuf,
}

/// All that there is, for `--json`.
#[derive(Debug, Serialize)]
struct Report {
    cflags: String,
    libs: String,
    include: PathBuf,
    library: PathBuf,
    layers: Vec<Row>,
}

/// A layer.
#[derive(Debug, Serialize)]
struct Row {
    layer: &'static str,
    title: &'static str,
    headers: &'static [&'static str],
}

/// Puts the headers and the library where they are to be, and says how to build with them.
///
/// # Errors
/// Where they cannot be written.
pub(crate) fn run(args: &LayersArgs) -> Result<ExitCode> {
    let installed = Installed::make(args.out.as_deref())?;
    let (cflags, libs) = (installed.cflags(), installed.libs());
    let said = match (args.json, args.cflags, args.libs) {
        (true, ..) => {
            let layers = layers::ALL.iter();
            let layers =
                layers.map(|layer| Row { layer: layer.name, title: layer.title, headers: layer.headers });
            serde_json::to_string(&Report {
                cflags,
                libs,
                include: installed.include.clone(),
                library: installed.lib.join(FILE),
                layers: layers.collect(),
            })?
        }
        (_, true, true) => format!("{cflags} {libs}"),
        (_, true, false) => cflags,
        (_, false, true) => libs,
        (_, false, false) => installed.described(),
    };
    print(said)?;
    Ok(ExitCode::SUCCESS)
}

impl Installed {
    /// Writes what is not there yet.
    fn make(out: Option<&Path>) -> Result<Installed> {
        if LIBRARY.is_empty() {
            bail!(
                "this command was built without the layers' library: build it by `cargo build` or `cargo install`"
            );
        }
        let folder = match out {
            // Programs look for the library there, wherever they are run.
            Some(folder) => path::absolute(folder).with_context(|| cannot_write(folder))?,
            None => data_folder()?.join(format!("layers-{}-{:016x}", env!("CARGO_PKG_VERSION"), content())),
        };
        check_is_a_word(&folder)?;
        let installed = Installed { include: folder.join("include"), lib: folder.join("lib") };
        for folder in [&installed.include, &installed.lib] {
            fs::create_dir_all(folder).with_context(|| cannot_write(folder))?;
        }
        for (name, text) in HEADERS {
            keep(&installed.include.join(name), text.as_bytes())?;
        }
        keep(&installed.lib.join(FILE), LIBRARY)?;
        Ok(installed)
    }

    fn cflags(&self) -> String {
        format!("-I{}", self.include.display())
    }

    fn libs(&self) -> String {
        let lib = self.lib.display();
        format!("-L{lib} {LINKED} -Wl,-rpath,{lib}")
    }

    /// What a reader is told.
    fn described(&self) -> String {
        let mut table = plain(&["layer", "what it is", "headers"]);
        for layer in layers::ALL {
            table.add_row([layer.name.to_owned(), layer.title.to_owned(), layer.headers.join(", ")]);
        }
        let table = table.text(Layout::of_stdout());
        format!(
            "{table}\n\nTo build a program:   cc prog.c $(standpipe layers --cflags --libs)\nTo run it:            standpipe run -n 4 -- ./prog\n\nHeaders: {}\nLibrary: {}",
            self.include.display(),
            self.lib.join(FILE).display()
        )
    }
}

/// Where a user's programs keep what they do not make anew: as the XDG base directories say.
fn data_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| home.join(".local/share"));
    let folder = set("XDG_DATA_HOME").or_else(home).map(|data| data.join("standpipe"));
    folder.context(
        "neither XDG_DATA_HOME nor HOME names a folder: say where headers and library are to be by --out",
    )
}

/// A number for what this command carries: another build's lies in another folder.
fn content() -> u64 {
    let mut hasher = DefaultHasher::new();
    (LIBRARY, HEADERS).hash(&mut hasher);
    hasher.finish()
}

/// Writes a file unless it is there with this content. Programs may run with it meanwhile: it is replaced,
/// and never changed.
fn keep(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let failed = || cannot_write(path);
    let folder = path.parent().with_context(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    file.write_all(content).with_context(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Refuses a path that does not reach the compiler as it is: a shell that puts in what a command has printed
/// splits it at blanks, takes stars for patterns, and undoes no quotes. The linker's option splits at commas.
fn check_is_a_word(path: &Path) -> Result<()> {
    let is_taken_apart = |letter: char| letter.is_whitespace() || ",*?[".contains(letter);
    if path.to_str().is_none_or(|text| text.contains(is_taken_apart)) {
        bail!(
            "a compiler's command line cannot name {path:?} as it is printed: give --out a path without blanks, commas and the letters * ? [, in UTF-8"
        );
    }
    Ok(())
}
