//! Names the library inside its file as programs are to find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // While the major number is 0, each minor one may change what programs rely on.
    let version = env!("CARGO_PKG_VERSION");
    let series = version.rsplit_once('.').expect("a version has three numbers").0;
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libstandpipe.so.{series}");
    // Lines of the source tell a C program's author nothing.
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
    }
    // Threads of the library may run code of it at any time: it stays in memory once it is loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
