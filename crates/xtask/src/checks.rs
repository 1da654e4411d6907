//! Checks that need nothing but the stable toolchain.

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;

/// Formatting, clippy and documentation of the whole workspace, warnings being errors.
pub(crate) fn lint() -> Outcome {
    let all = || -> Result<(), Failure> {
        run("cargo fmt --all --check").status()?;
        run("cargo fmt --manifest-path fuzz/Cargo.toml --check").status()?;
        run("cargo clippy --workspace --all-targets -- -D warnings").status()?;
        run("cargo doc --workspace --lib --no-deps --document-private-items")
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
    };
    all().into()
}

/// The tests named `loom_…` of the `vm` crate, compiled against loom.
pub(crate) fn loom() -> Outcome {
    run("cargo test --package standpipe-vm --lib --release loom_")
        .env("RUSTFLAGS", "--cfg loom")
        // The release profile is made for speed at any price; here it is compiled once and run for seconds.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", root().join("target/loom"))
        .status()
        .into()
}
