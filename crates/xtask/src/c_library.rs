//! The C library as programs get it, and the files by which other build systems find it.
//!
//! It is linked once more from Rust's archive: so its symbols have a version, and no others are seen.

use crate::command::{Failure, root, run};
use crate::tree::Piece;
use std::fs;
use std::path::{Path, PathBuf};

/// The library's version, which is the workspace's.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// System libraries that the archive needs. A C compiler adds the C library and what unwinds stacks by
/// itself.
const PRIVATE: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// The linker's map, which has every function and the version's name.
const MAP: &str = "crates/capi/libstandpipe.map";

/// How the linker makes one object of Rust's.
const ONE_OBJECT: &str = "crates/capi/package/one-object.ld";

/// The version without its last number: libraries of one series replace each other.
pub(crate) fn series() -> &'static str {
    VERSION.rsplit_once('.').expect("a version has three numbers").0
}

/// The library, built.
pub(crate) struct CLibrary {
    shared: PathBuf,
    archive: PathBuf,
}

/// Where a distribution has its files, below the prefix.
pub(crate) struct Layout {
    /// The folder of libraries: `lib`, or `lib/` and the architecture.
    pub(crate) lib: String,
    /// The prefix, as the pkg-config file has it.
    pub(crate) prefix: String,
}

impl Layout {
    /// All files keep their distance, so that the folder may be moved.
    pub(crate) fn relocatable() -> Layout {
        Layout { lib: "lib".into(), prefix: "${pcfiledir}/../..".into() }
    }

    /// Debian's, of the architecture that its tools call `triple`.
    pub(crate) fn debian(triple: &str) -> Layout {
        Layout { lib: format!("lib/{triple}"), prefix: "/usr".into() }
    }

    fn filled(&self, template: &str) -> Result<String, Failure> {
        let path = root().join("crates/capi/package").join(template);
        let text = fs::read_to_string(&path).map_err(|why| Failure(format!("{}: {why}", path.display())))?;
        // From the folder of CMake's files, two below that of the libraries.
        let up = vec![".."; 2 + self.lib.split('/').count()].join("/");
        let private = match template.ends_with(".pc.in") {
            true => PRIVATE.join(" "),
            false => PRIVATE.join(";"),
        };
        Ok(text
            .replace("@version@", VERSION)
            .replace("@series@", series())
            .replace("@prefix@", &self.prefix)
            .replace("@libdir@", &format!("${{prefix}}/{}", self.lib))
            .replace("@up@", &up)
            .replace("@private@", &private))
    }
}

impl CLibrary {
    /// Links the library in `folder`, from the archive that Cargo has built.
    pub(crate) fn link(rusts: &Path, folder: &Path) -> Result<CLibrary, Failure> {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|why| Failure(format!("{}: {why}", path.display())))?;
            Ok(path)
        };
        let map = read_map()?;
        let exported = exported(&map);
        let roots: Vec<String> = exported.iter().map(|name| format!("-Wl,-u,{name}")).collect();
        let roots = write("roots", roots.join("\n"))?;
        let names = write("names", exported.join("\n"))?;

        // One object, of what the functions need. Groups of sections would be merged with those of a program
        // that is Rust's, too, and then be missed here.
        let object = folder.join("standpipe.o");
        run("cc -r -nostdlib -Wl,--gc-sections,--force-group-allocation")
            .arg(format!("-Wl,-T,{}", root().join(ONE_OBJECT).display()))
            .arg(format!("@{}", roots.display()))
            .arg(rusts)
            .arg("-o")
            .arg(&object)
            .status()?;
        // Symbols that only removed code named would be wanted by every program.
        run("objcopy --strip-unneeded")
            .arg(format!("--keep-global-symbols={}", names.display()))
            .arg(&object)
            .status()?;
        let archive = folder.join("libstandpipe.a");
        // Else it would be added to.
        run("rm -f").arg(&archive).status()?;
        run("ar crsD").arg(&archive).arg(&object).status()?;

        let shared = folder.join(format!("libstandpipe.so.{VERSION}"));
        run("cc -shared -Wl,--no-undefined,-z,relro,-z,now,-z,nodelete")
            .arg(format!("-Wl,-soname,libstandpipe.so.{}", series()))
            .arg(format!("-Wl,--version-script={}", root().join(MAP).display()))
            .arg(&object)
            .args(&PRIVATE.join(" "))
            .arg("-o")
            .arg(&shared)
            .status()?;
        Ok(CLibrary { shared, archive })
    }

    /// The shared library.
    pub(crate) fn shared(&self) -> &Path {
        &self.shared
    }

    /// The files that programs need to run.
    pub(crate) fn runtime(&self, layout: &Layout) -> Vec<Piece> {
        let lib = Path::new(&layout.lib);
        let link = lib.join(format!("libstandpipe.so.{}", series()));
        vec![Piece::file(&self.shared, lib), Piece::link(link, format!("libstandpipe.so.{VERSION}"))]
    }

    /// The files that compilers, linkers and build systems need beside these.
    pub(crate) fn development(&self, layout: &Layout) -> Result<Vec<Piece>, Failure> {
        let lib = Path::new(&layout.lib);
        let mut pieces = vec![
            Piece::link(lib.join("libstandpipe.so"), format!("libstandpipe.so.{VERSION}")),
            Piece::file(&self.archive, lib),
            Piece::text(lib.join("pkgconfig/standpipe.pc"), layout.filled("standpipe.pc.in")?),
        ];
        for name in ["StandpipeConfig.cmake", "StandpipeConfigVersion.cmake"] {
            let to = lib.join("cmake/Standpipe").join(name);
            pieces.push(Piece::text(to, layout.filled(&format!("{name}.in"))?));
        }
        pieces.extend(files_in("crates/capi/include")?.into_iter().map(|file| Piece::file(file, "include")));
        Ok(pieces)
    }
}

/// The guide's pages and the examples in C and C++, where the documents of a package lie. They name each
/// other as they do in the workspace.
pub(crate) fn pages(package: &str) -> Result<Vec<Piece>, Failure> {
    let below = Path::new("share/doc").join(package);
    let mut pieces = Vec::new();
    for folder in ["docs", "examples/c", "examples/c++"] {
        let to = below.join(folder);
        pieces.extend(files_in(folder)?.into_iter().map(|file| Piece::file(file, &to)));
    }
    Ok(pieces)
}

/// All files of a folder of the workspace, by name.
pub(crate) fn files_in(folder: &str) -> Result<Vec<PathBuf>, Failure> {
    let folder = root().join(folder);
    let entries = fs::read_dir(&folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// The linker's map.
fn read_map() -> Result<String, Failure> {
    fs::read_to_string(root().join(MAP)).map_err(|why| Failure(format!("{MAP}: {why}")))
}

/// The functions that a map lists.
fn exported(map: &str) -> Vec<&str> {
    let lines = map.lines().map(str::trim).filter(|line| line.starts_with("sp_"));
    lines.filter_map(|line| line.strip_suffix(';')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_the_functions_of_one_version() {
        let map = read_map().expect("it is there");
        assert!(map.starts_with(&format!("STANDPIPE_{} {{\n", series())), "{map}");
        let exported = exported(&map);
        assert!(exported.len() > 150 && exported.contains(&"sp_open"), "{exported:?}");
        assert!(map.contains("local:\n        *;\n"), "{map}");
    }

    #[test]
    fn files_for_build_systems_find_the_prefix_from_where_they_lie() {
        let [moved, debian] = [Layout::relocatable(), Layout::debian("x86_64-linux-gnu")];
        let pc = moved.filled("standpipe.pc.in").expect("it is there");
        assert!(pc.contains("prefix=${pcfiledir}/../..\n") && pc.contains("libdir=${prefix}/lib\n"), "{pc}");
        assert!(pc.contains(&format!("Version: {VERSION}\n")) && !pc.contains('@'), "{pc}");
        let pc = debian.filled("standpipe.pc.in").expect("it is there");
        assert!(pc.contains("prefix=/usr\n") && pc.contains("${prefix}/lib/x86_64-linux-gnu\n"), "{pc}");
        let cmake = moved.filled("StandpipeConfig.cmake.in").expect("it is there");
        assert!(cmake.contains("_here}/../../..\" ABSOLUTE") && !cmake.contains('@'), "{cmake}");
        let cmake = debian.filled("StandpipeConfig.cmake.in").expect("it is there");
        assert!(cmake.contains("_here}/../../../..\" ABSOLUTE"), "{cmake}");
    }
}
