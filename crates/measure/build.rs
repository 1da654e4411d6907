//! Tells the crate how far the compiler optimises it, which reports name.

fn main() {
    let level = std::env::var("OPT_LEVEL").expect("Cargo gives it to build scripts");
    println!("cargo::rustc-env=MEASURE_OPT_LEVEL={level}");
    println!("cargo::rerun-if-changed=build.rs");
}
