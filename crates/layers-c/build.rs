//! What the library's file is named inside, so that programs find it by that name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libstandpipe_layers.so");
    // Threads of the library may run code of it at any time: it stays in memory once it is loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
