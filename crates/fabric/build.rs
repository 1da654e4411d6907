//! Compiles libfabric into the crate, if the feature `bundled` asks for it: its core and what TCP needs.

#[cfg(not(feature = "bundled"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "bundled")]
fn main() {
    let root = libfabric_src::source_dir();
    let mut build = cc::Build::new();
    // Files in the folder of this crate come before those in the library's.
    build.include("bundled").include(&root);
    build.include(root.join("include")).include(root.join("prov/hook/include"));
    build.define("HAVE_CONFIG_H", None).flag("-fvisibility=hidden");
    // Warnings, assertions and symbols for debugging are for its own developers.
    build.warnings(false).define("NDEBUG", None).opt_level(2).debug(false);
    build.files(include_str!("bundled/sources.txt").lines().map(|file| root.join(file)));
    build.compile("standpipe_libfabric");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=bundled");
}
