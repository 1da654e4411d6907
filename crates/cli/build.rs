//! Finds `libstandpipe_layers.so`, which cargo makes of a dependency, so that the command carries it.
//!
//! The command depends on the package of that library, which is both a Rust library and a C one. Cargo
//! therefore builds both before the command, and puts the C one where it puts all dependencies' files.

use std::path::PathBuf;

const LIBRARY: &str = "libstandpipe_layers.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let own = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    // PROFILE/build/standpipe-cli-HASH/out
    let profile = own.ancestors().nth(3).expect("cargo's folders lie in that of the profile");
    let folder = profile.join("deps");
    // `cargo check` builds no library, and compiles the line that includes it all the same: an empty file
    // does there. It is never taken for the library: where that is built, this file is written anew.
    std::fs::create_dir_all(&folder).expect("cargo can write there, and so can its build scripts");
    let placeholder = std::fs::File::options().append(true).create(true).open(folder.join(LIBRARY));
    drop(placeholder.expect("a file of cargo's folder can be opened"));
    // No name of a setting: cargo sets it for tests, too.
    println!("cargo::rustc-env=LIBRARY_OF_LAYERS={}", folder.join(LIBRARY).display());
}
