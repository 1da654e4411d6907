//! Both commands, and the historic layers' library and headers, put where a user has them.

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// What is built: the packages of both commands and of the library.
const PACKAGES: &str = "--package standpipe-cli --package standpipe-study --package standpipe-layers-c";

/// Longer than a first build takes on a slow and busy machine.
const BUILD_LIMIT_S: u64 = 2 * 3600;

/// The library's headers.
const HEADERS: &str = "crates/layers-c/include";

/// Builds all, and puts it below `prefix`, or else below `~/.local`. `debug`: without optimisations.
pub(crate) fn install(prefix: Option<&Path>, debug: bool) -> Outcome {
    let all = || -> Result<(), Failure> {
        let prefix = match prefix {
            Some(prefix) => std::path::absolute(prefix).map_err(|error| Failure(error.to_string()))?,
            None => default_prefix()?,
        };
        for file in built(debug)? {
            let folder = if file.extension().is_some() { "lib" } else { "bin" };
            put(&file, &prefix.join(folder))?;
        }
        for header in headers()? {
            put(&header, &prefix.join("include"))?;
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

/// The commands and the library, just built.
fn built(debug: bool) -> Result<Vec<PathBuf>, Failure> {
    let profile = if debug { "dev" } else { "release" };
    let build =
        || run(&format!("cargo build --locked --profile {profile} {PACKAGES}")).limit_s(BUILD_LIMIT_S);
    build().status()?;
    // It has nothing to build any more.
    let told = build().arg("--message-format=json").output()?;
    let files: Vec<PathBuf> = told.lines().filter_map(product).collect();
    match files.len() {
        3 => Ok(files),
        _ => Err(Failure(format!("cargo names no two commands and a library, but {files:?}"))),
    }
}

/// The command or library of C symbols of which one of Cargo's messages tells.
fn product(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_ours = message["package_id"].as_str()?.starts_with("path+");
    let kinds = message["target"]["kind"].as_array()?;
    let is_of = |wanted: &str| is_ours && kinds.iter().any(|kind| kind == wanted);
    if is_of("bin") {
        return message["executable"].as_str().map(PathBuf::from);
    }
    let files = is_of("cdylib").then(|| message["filenames"].as_array())??;
    let library = files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".so"));
    library.map(PathBuf::from)
}

fn headers() -> Result<Vec<PathBuf>, Failure> {
    let folder = root().join(HEADERS);
    let entries = fs::read_dir(&folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Puts a file into a folder. Programs may run with one of its name meanwhile: that is replaced, and never
/// changed.
fn put(file: &Path, folder: &Path) -> Result<(), Failure> {
    let to = folder.join(file.file_name().expect("a file that was built or read has a name"));
    let copied = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let beside = tempfile::NamedTempFile::new_in(folder)?.into_temp_path();
        fs::copy(file, &beside)?;
        beside.persist(&to)?;
        Ok(())
    };
    copied().map_err(|error| Failure(format!("cannot write {}: {error}", to.display())))?;
    println!("{}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_the_library_are_found_in_what_cargo_says() {
        let ours = r#""package_id":"path+file:///s/crates/x#standpipe-x@0.2.0""#;
        let command =
            format!(r#"{{{ours},"target":{{"kind":["bin"]}},"executable":"/t/release/standpipe"}}"#);
        assert_eq!(product(&command), Some("/t/release/standpipe".into()));
        let library = format!(
            r#"{{{ours},"target":{{"kind":["cdylib","rlib"]}},"executable":null,"filenames":["/t/libx.so","/t/libx.rlib"]}}"#
        );
        assert_eq!(product(&library), Some("/t/libx.so".into()));
        assert_eq!(product(&command.replace("bin", "lib")), None);
        assert_eq!(product("nonsense"), None);
    }
}
