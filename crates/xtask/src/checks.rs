//! Checks that need nothing but the stable toolchain.

use crate::command::{INSTALL_LIMIT_S, root, run};
use crate::outcome::{Missing, Outcome};

/// Formatting, clippy and documentation of the whole workspace, warnings being errors.
pub(crate) fn lint() -> Outcome {
    fmt().and(clippy).and(doc)
}

/// Whether all sources are as rustfmt has them.
pub(crate) fn fmt() -> Outcome {
    if let Err(missing) = install("rustfmt", "cargo fmt --version") {
        return missing.into();
    }
    let workspace = run("cargo fmt --all --check").status();
    workspace.and_then(|()| run("cargo fmt --manifest-path fuzz/Cargo.toml --check").status()).into()
}

/// Clippy's opinion of everything, tests and examples too.
pub(crate) fn clippy() -> Outcome {
    if let Err(missing) = install("clippy", "cargo clippy --version") {
        return missing.into();
    }
    run("cargo clippy --workspace --all-targets -- -D warnings").status().into()
}

/// Whether the documentation is whole, and its links lead somewhere.
pub(crate) fn doc() -> Outcome {
    // What links to a feature's items must hold with and without it.
    let doc = |what: &str| {
        run(&format!("cargo doc {what} --lib --no-deps --document-private-items"))
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
    };
    doc("--workspace").and_then(|()| doc("--package standpipe --features allocator")).into()
}

/// Installs a component of the stable toolchain, where the command that shows it fails.
fn install(component: &str, shows: &str) -> Result<(), Missing> {
    if run(shows).output().is_ok() {
        return Ok(());
    }
    let added = run("rustup component add").arg(component).limit_s(INSTALL_LIMIT_S).status();
    added.map_err(|failure| Missing(format!("{component} cannot be installed: {}", failure.0)))
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
