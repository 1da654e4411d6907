//! Building what is installed and packaged, and finding it in what Cargo says.

use crate::command::{Failure, run};
use serde_json::Value;
use std::path::PathBuf;

/// The packages of both commands and of the historic layers' library.
const PACKAGES: &str = "--package standpipe-cli --package standpipe-study --package standpipe-layers-c";

/// Longer than a first build takes on a slow and busy machine.
const BUILD_LIMIT_S: u64 = 2 * 3600;

/// All that is built.
#[derive(Debug)]
pub(crate) struct Products {
    /// `standpipe` and `standpipe-study`.
    pub(crate) commands: Vec<PathBuf>,
    /// The historic layers' library.
    pub(crate) layers: PathBuf,
    /// The library to preload.
    pub(crate) malloc: PathBuf,
    /// The C interface's archive, as Rust makes it.
    pub(crate) archive: PathBuf,
}

/// Builds all, with libfabric compiled in. `debug`: without optimisations.
pub(crate) fn build(debug: bool) -> Result<Products, Failure> {
    let told = if debug {
        // In one, for what they have in common.
        let all = format!("{PACKAGES} --package standpipe-capi --features standpipe-capi/bundled");
        told(&format!("cargo build --locked --profile dev {all}"))?
    } else {
        // Cargo optimises across crates only where nothing but the archive is made.
        let archive = "--package standpipe-capi --lib --crate-type staticlib --features bundled";
        let commands = told(&format!("cargo build --locked --profile release {PACKAGES}"))?;
        commands + &told(&format!("cargo rustc --locked --profile release {archive}"))?
    };
    // By itself: what it makes its parts of, the others are to be without.
    let profile = if debug { "dev" } else { "release" };
    let told =
        told + &self::told(&format!("cargo build --locked --profile {profile} --package standpipe-malloc"))?;
    let products: Vec<Product> = told.lines().filter_map(product).collect();
    let all = |wanted: fn(&Product) -> Option<&PathBuf>| products.iter().filter_map(wanted).cloned();
    let commands: Vec<PathBuf> = all(|product| product.command()).collect();
    let layers = all(|product| product.of_layers()).next();
    let malloc = all(|product| product.of_malloc()).next();
    let archive = all(|product| product.of_c()).next();
    match (commands.len(), layers, malloc, archive) {
        (2, Some(layers), Some(malloc), Some(archive)) => Ok(Products { commands, layers, malloc, archive }),
        _ => Err(Failure(format!("cargo names no two commands and three libraries, but {products:?}"))),
    }
}

/// Builds, and gives Cargo's messages on it.
fn told(line: &str) -> Result<String, Failure> {
    run(line).limit_s(BUILD_LIMIT_S).status()?;
    // It has nothing to build any more.
    run(line).limit_s(BUILD_LIMIT_S).arg("--message-format=json").output()
}

/// A file that one of Cargo's messages tells of.
#[derive(Debug, PartialEq, Eq)]
enum Product {
    Command(PathBuf),
    Layers(PathBuf),
    Malloc(PathBuf),
    CArchive(PathBuf),
}

impl Product {
    fn command(&self) -> Option<&PathBuf> {
        if let Product::Command(path) = self { Some(path) } else { None }
    }

    fn of_layers(&self) -> Option<&PathBuf> {
        if let Product::Layers(path) = self { Some(path) } else { None }
    }

    fn of_malloc(&self) -> Option<&PathBuf> {
        if let Product::Malloc(path) = self { Some(path) } else { None }
    }

    fn of_c(&self) -> Option<&PathBuf> {
        if let Product::CArchive(path) = self { Some(path) } else { None }
    }
}

fn product(message: &str) -> Option<Product> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_ours = message["package_id"].as_str()?.starts_with("path+");
    let kinds = message["target"]["kind"].as_array()?;
    let is_of = |wanted: &str| is_ours && kinds.iter().any(|kind| kind == wanted);
    if is_of("bin") {
        return message["executable"].as_str().map(|path| Product::Command(path.into()));
    }
    let file = |ending: &str| {
        let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
        files.find(|file| file.ends_with(ending)).map(PathBuf::from)
    };
    match is_of("staticlib") {
        true => file(".a").map(Product::CArchive),
        false if is_of("cdylib") => {
            file("standpipe_malloc.so").map(Product::Malloc).or_else(|| file(".so").map(Product::Layers))
        }
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_libraries_are_found_in_what_cargo_says() {
        let ours = r#""package_id":"path+file:///s/crates/x#standpipe-x@0.2.0""#;
        let command =
            format!(r#"{{{ours},"target":{{"kind":["bin"]}},"executable":"/t/release/standpipe"}}"#);
        assert_eq!(product(&command), Some(Product::Command("/t/release/standpipe".into())));
        let library = format!(
            r#"{{{ours},"target":{{"kind":["cdylib","rlib"]}},"executable":null,"filenames":["/t/libx.so","/t/libx.rlib"]}}"#
        );
        assert_eq!(product(&library), Some(Product::Layers("/t/libx.so".into())));
        let malloc = library.replace("libx.so", "libstandpipe_malloc.so");
        assert_eq!(product(&malloc), Some(Product::Malloc("/t/libstandpipe_malloc.so".into())));
        let c = library.replace(r#""rlib""#, r#""staticlib","rlib""#).replace("libx.rlib", "libx.a");
        assert_eq!(product(&c), Some(Product::CArchive("/t/libx.a".into())));
        assert_eq!(product(&command.replace("bin", "lib")), None);
        assert_eq!(product("nonsense"), None);
    }
}
