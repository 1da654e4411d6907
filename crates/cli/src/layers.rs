//! `standpipe layers`: where the historic layers' library and headers lie, and how to build with them.

use std::env;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use layer_list::{ALL, Layer};
use measure::stdout::print;
use measure::table::{Layout, plain};
use serde::Serialize;

/// The library's file, and the name by which programs are linked with it.
const FILE: &str = "libstandpipe_layers.so";
const LINKED: &str = "-lstandpipe_layers";

/// The version of all these interfaces.
const VERSION_HEADER: &str = "standpipe_layers.h";

/// Arguments of `standpipe layers`.
#[derive(Debug, Args)]
pub(crate) struct LayersArgs {
    /// Print what a C or C++ compiler needs to find the headers
    #[arg(long)]
    cflags: bool,
    /// Print what a compiler needs to link with the library
    #[arg(long)]
    libs: bool,
    /// The folder whose lib and include have the library and the headers, where this command's own has none
    #[arg(long, value_name = "FOLDER")]
    prefix: Option<PathBuf>,
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

impl Row {
    fn of(layer: &Layer) -> Row {
        Row { layer: layer.name, title: layer.title, headers: layer.headers }
    }
}

/// Says where the headers and the library are, and how to build with them.
///
/// # Errors
/// Where there are none, or a compiler cannot be told of them.
pub(crate) fn run(args: &LayersArgs) -> Result<ExitCode> {
    let installed = Installed::find(args.prefix.as_deref())?;
    let (cflags, libs) = (installed.cflags(), installed.libs());
    let said = match (args.json, args.cflags, args.libs) {
        (true, ..) => {
            let library = installed.lib.join(FILE);
            serde_json::to_string(&Report {
                cflags,
                libs,
                include: installed.include,
                library,
                layers: ALL.iter().map(Row::of).collect(),
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
    /// Looks where this command is installed, and then below `prefix`.
    ///
    /// # Errors
    /// Where neither has all files, or a compiler cannot be told of the folder.
    fn find(prefix: Option<&Path>) -> Result<Installed> {
        // The command lies in the `bin` of its own prefix.
        let own = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
        // Programs look for the library there, wherever they are run.
        let named = prefix.map(path::absolute).transpose().context("the folder that --prefix names")?;
        let places: Vec<PathBuf> = own.into_iter().chain(named).collect();
        let Some(found) = places.iter().map(|prefix| Installed::below(prefix)).find(Installed::is_there)
        else {
            let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            bail!(
                "neither lib/{FILE} nor the layers' headers lie below {}: `cargo xtask install` in Standpipe's sources puts \
                 them beside this command, and --prefix names another folder",
                looked.join(" or ")
            );
        };
        check_is_a_word(&found.include)?;
        Ok(found)
    }

    fn below(prefix: &Path) -> Installed {
        Installed { include: prefix.join("include"), lib: prefix.join("lib") }
    }

    /// Whether all files are there.
    fn is_there(&self) -> bool {
        let mut headers = ALL.iter().flat_map(|layer| layer.headers).chain([&VERSION_HEADER]);
        self.lib.join(FILE).is_file() && headers.all(|name| self.include.join(name).is_file())
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
        for layer in ALL {
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

/// Refuses a path that does not reach the compiler as it is: a shell that puts in what a command has printed
/// splits it at blanks, takes stars for patterns, and undoes no quotes. The linker's option splits at commas.
fn check_is_a_word(path: &Path) -> Result<()> {
    let is_taken_apart = |letter: char| letter.is_whitespace() || ",*?[".contains(letter);
    if path.to_str().is_none_or(|text| text.contains(is_taken_apart)) {
        bail!(
            "a compiler's command line cannot name {path:?} as it is printed: install into a path without blanks, commas and \
             the letters * ? [, in UTF-8"
        );
    }
    Ok(())
}
