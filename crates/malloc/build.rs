//! Has the linker lead mimalloc's calls for locks to `src/locks.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["lock", "trylock", "unlock"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=pthread_mutex_{name}");
    }
}
