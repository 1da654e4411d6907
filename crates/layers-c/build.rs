//! Names the library inside its file, so that programs find it by that name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libstandpipe_layers.so");
    // Lines of the source tell a C program's author nothing, and the command carries the file.
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
    }
    // Threads of the library may run code of it at any time: it stays in memory once it is loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
