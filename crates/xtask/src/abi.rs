//! Compares the interface that C programs rely on with a committed dump: functions, their versions, their
//! types, and the fields of structs.
//!
//! Types come from the header as a C compiler reads it, by a library of its functions with empty bodies: the
//! real one's would be Rust's. A test of the C crate compares the header with the real library.

use crate::command::{Failure, root, run};
use crate::outcome::{Missing, Outcome};
use std::fs;
use std::path::{Path, PathBuf};

const HEADER: &str = "crates/capi/include/standpipe.h";
const MAP: &str = "crates/capi/libstandpipe.map";
const DUMP: &str = "crates/capi/libstandpipe.abi";

/// Compares, or with `write` writes the dump anew.
pub(crate) fn abi(write: bool) -> Outcome {
    if let Err(missing) = tools() {
        return missing.into();
    }
    let all = || -> Result<(), Failure> {
        let folder = tempfile::tempdir().map_err(|why| Failure(format!("no temporary folder: {why}")))?;
        let library = hollow(folder.path())?;
        let dump = if write { root().join(DUMP) } else { folder.path().join("now.abi") };
        // Neither places nor folders: the dump is to be the same on every machine.
        run("abidw --load-all-types --no-corpus-path --no-comp-dir-path --no-show-locs --out-file")
            .arg(&dump)
            .arg(library)
            .status()?;
        if write {
            println!("{DUMP}");
            return Ok(());
        }
        // It also ends with another status than 0 where something was only added.
        run("abidiff --non-reachable-types").arg(root().join(DUMP)).arg(&dump).status().map_err(
            |Failure(why)| {
                Failure(format!("{why}: where that is meant, write {DUMP} by `cargo xtask abi --write`"))
            },
        )
    };
    all().into()
}

fn tools() -> Result<(), Missing> {
    match run("abidw --version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(Missing("no abidw (Debian: apt install abigail-tools)".into())),
    }
}

/// A library that has the header's functions, all of them empty.
fn hollow(folder: &Path) -> Result<PathBuf, Failure> {
    let header =
        fs::read_to_string(root().join(HEADER)).map_err(|why| Failure(format!("{HEADER}: {why}")))?;
    let functions = declarations(&header);
    if functions.is_empty() {
        return Err(Failure(format!("{HEADER} declares no function")));
    }
    let bodies: Vec<String> =
        functions.iter().map(|function| format!("{function} {{ __builtin_trap(); }}\n")).collect();
    let source = folder.join("hollow.c");
    fs::write(&source, format!("#include <standpipe.h>\n{}", bodies.concat()))
        .map_err(|why| Failure(format!("{}: {why}", source.display())))?;
    let library = folder.join("libstandpipe.so");
    // With types that no function names, such as the enumerations of statuses, and without its place.
    run("cc -shared -fPIC -g -O0 -fno-eliminate-unused-debug-types -I")
        .dir(folder)
        .arg(root().join(HEADER).parent().expect("it lies in a folder"))
        .arg(format!("-Wl,--version-script={}", root().join(MAP).display()))
        .arg(format!("-Wl,-soname,libstandpipe.so.{}", crate::c_library::series()))
        .arg("hollow.c")
        .arg("-o")
        .arg(&library)
        .status()?;
    Ok(library)
}

/// The functions that the header declares, without those that it defines.
fn declarations(header: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut statement) = (0, String::new());
    for letter in plain(header).chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ';' if depth == 0 => {
                let text = std::mem::take(&mut statement);
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                if is_function(&text) {
                    found.push(text);
                }
            }
            // The end of a function's body, and not of a type.
            '}' if depth == 0 && statement.split('{').next().is_some_and(|head| head.contains('(')) => {
                statement.clear();
            }
            letter => statement.push(letter),
        }
    }
    found
}

fn is_function(statement: &str) -> bool {
    let head = statement.split('(').next().unwrap_or_default();
    let name = head.rsplit([' ', '*']).next().unwrap_or_default();
    statement.contains('(')
        && name.starts_with("sp_")
        && !statement.starts_with("typedef")
        // Another name for a symbol that is declared before.
        && !statement.contains("__asm__")
        && !head.contains('{')
}

/// The header's C, without the program in front, comments, what is for C++, and the preprocessor's lines.
fn plain(header: &str) -> String {
    let mut rest = header.split_once("#endif").map_or(header, |(_, rest)| rest);
    let mut code = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let mut is_cplusplus = false;
    let mut lines = Vec::new();
    for line in code.lines() {
        if line.starts_with('#') {
            is_cplusplus = line.starts_with("#ifdef __cplusplus");
        } else if !is_cplusplus {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_TEXT: &str = "#if 0\nint sp_no(void);\n#endif\n/* int sp_no(void); */\n#ifndef X\n#define X\n\
        #ifdef __cplusplus\nextern \"C\" {\n#endif\n\
        typedef struct sp_a { int sp_no; int (*call)(void); } sp_a;\n\
        typedef int (*sp_f)(void *of);\nenum sp_e { SP_A = 1 };\n\
        static inline int sp_near(int of) { if (of) { return sp_far(of); } return sp_far(1); }\n\
        const char *sp_text(void);\nint sp_call(sp_f f,\n            int (*g)(void));\n\
        int sp_other(void) __asm__(\"sp_call\");\n\
        #ifdef __cplusplus\n}\n#endif\n#endif\n";

    #[test]
    fn declared_functions_are_found_and_nothing_else() {
        let found = declarations(HEADER_TEXT);
        assert_eq!(found, ["const char *sp_text(void)", "int sp_call(sp_f f, int (*g)(void))"]);
    }

    #[test]
    fn the_headers_functions_are_those_of_the_map() {
        let read = |name| fs::read_to_string(root().join(name)).expect("it is there");
        let map = read(MAP);
        let found = declarations(&read(HEADER));
        let exported = map.lines().filter(|line| line.trim().starts_with("sp_")).count();
        assert_eq!(found.len(), exported);
    }
}
