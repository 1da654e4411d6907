//! Checks that need a nightly compiler: Miri and the sanitizers.

use crate::command::{Failure, INSTALL_LIMIT_S, root, run};
use crate::form::Form;
use crate::outcome::{Missing, Outcome};
use std::fs;
use std::path::Path;

/// Few random cases: Miri is some hundred times slower than the machine.
const MIRI_PROPTEST_CASES: &str = "4";

/// Installs nightly and these of its components, where they are not there yet.
pub(crate) fn install(components: &[&str]) -> Result<(), Missing> {
    let toolchains = run("rustup toolchain list").output();
    let toolchains = toolchains.map_err(|_| Missing("there is no rustup to install nightly with".into()))?;
    let missing =
        |what: &str, failure: Failure| Missing(format!("{what} cannot be installed: {}", failure.0));
    if !toolchains.lines().any(|line| line.starts_with("nightly-")) {
        let install = run("rustup toolchain install nightly --profile minimal --no-self-update");
        install.limit_s(INSTALL_LIMIT_S).status().map_err(|failure| missing("nightly", failure))?;
    }
    let installed = run("rustup component list --installed --toolchain nightly").output().unwrap_or_default();
    for component in components {
        if !installed.lines().any(|line| line.starts_with(component)) {
            let add = run("rustup component add --toolchain nightly")
                .arg(component)
                .limit_s(INSTALL_LIMIT_S)
                .status();
            add.map_err(|failure| missing(component, failure))?;
        }
    }
    Ok(())
}

/// What Miri can reach: of `vm` what works on ordinary memory; and the engine in the long form, which forbids
/// unsafe code, and so can only misuse what it depends on.
pub(crate) fn miri(form: Form) -> Outcome {
    if let Err(missing) = install(&["miri", "rust-src"]) {
        return missing.into();
    }
    let test = |package: &str| {
        run("cargo +nightly miri test --lib --package")
            .arg(package)
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            .env("PROPTEST_CASES", MIRI_PROPTEST_CASES)
            .env("CARGO_TARGET_DIR", root().join("target/miri"))
    };
    // Reports of earlier runs excuse nothing.
    has_compiler_broken();
    let tested = |package: &str| match test(package).status() {
        Err(failure) if has_compiler_broken() => {
            println!("Miri itself has broken off, not a test ({}): once more", failure.0);
            test(package).status()
        }
        ended => ended,
    };
    let vm = tested("standpipe-vm");
    match form {
        Form::Short => vm,
        Form::Long => vm.and_then(|()| tested("standpipe-engine")),
    }
    .into()
}

/// Whether a compiler has left a report on a defect of its own. Miri does so now and then, by chance: it
/// loses what it knows of an atomic word's earlier values (nightly of 2026-05-19). Removes the reports.
fn has_compiler_broken() -> bool {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    let reports = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rustc-ice-"));
    reports.map(|report| fs::remove_file(report.path())).filter(Result::is_ok).count() > 0
}

/// Data races in `vm`, whose memory threads and processes share; in the long form, of the library too. The
/// standard library is rebuilt, so that its own accesses are seen.
pub(crate) fn tsan(form: Form) -> Outcome {
    sanitize("thread", &["rust-src"], "-Zbuild-std", form)
}

/// Wrong accesses in `vm`, in which nearly all unsafe code is; in the long form, of the library too.
pub(crate) fn asan(form: Form) -> Outcome {
    sanitize("address", &[], "", form)
}

/// What the short form runs. The library takes five times as long to compile for a sanitizer, and is left to
/// the long form.
const SHORT: &str = "--package standpipe-vm --lib --test two_processes";

/// Libfabric has not been compiled for a sanitizer, and whole suites over it take minutes here. Besides,
/// words of the heap that atomics change are served to gets by plain copies, which ThreadSanitizer sees where
/// ranks share a process. Allocators that were built without a sanitizer do not work beside one.
/// `outages` takes hosts from each other for minutes, over libfabric.
const LONG_BUT: &str = "-- --skip ofi::tests::suite --skip network --skip preloaded --skip outages::";

fn sanitize(sanitizer: &str, components: &[&str], build: &str, form: Form) -> Outcome {
    if let Err(missing) = install(components) {
        return missing.into();
    }
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Sanitizers reserve fixed ranges of addresses, which full randomization sometimes takes first.
    let fixed = if run("setarch -R true").output().is_ok() { "setarch -R" } else { "" };
    let suppressions = root().join("crates/xtask/tsan-suppressions.txt");
    // Some tests forget events, or end a process amid its work: then threads are left, and that is no race. A
    // child that a test makes by fork may start a thread, at which it would be ended.
    let tsan_options =
        format!("report_thread_leaks=0 die_after_fork=0 suppressions='{}'", suppressions.display());
    // All at once: each package by itself has dependencies with other features, and so most of them twice.
    // `vm` has other tests, too; they change memory on purpose while the kernel reads it.
    let long = format!("{SHORT} --package standpipe {}{LONG_BUT}", integration_tests(sanitizer));
    // A test that hangs costs no more than this.
    let (tests, limit_s) = match form {
        Form::Short => (SHORT, 900),
        Form::Long => (&*long, 3600),
    };
    run(&format!("{fixed} cargo +nightly test --no-fail-fast {build} --target {target} {tests}"))
        // Sanitizers see what goes through libc: without it, memory that one test unmaps and another maps
        // again at the same address looks like memory that both share.
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer} --cfg=rustix_use_libc"))
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("TSAN_OPTIONS", &tsan_options)
        // A sanitizer slows every access; with some optimization there are half as many.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        // Some tests panic on purpose, and a backtrace takes seconds here: longer than their deadlines.
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_TARGET_DIR", root().join("target").join(sanitizer))
        .env(testbed::LONG, "1")
        .limit_s(limit_s)
        .status()
        .into()
}

/// Test targets that no sanitizer's long form runs, and why.
const NOT_SANITIZED: [(&str, &str); 4] = [
    ("docs", "only reads files, and would take minutes here"),
    ("examples", "runs the example programs, which cargo does not build with test targets that are named"),
    ("launchers", "loads launchers' libraries, which no sanitizer has compiled"),
    ("ships", "counts calls of the kernel, of which sanitizers make more"),
];

/// What ThreadSanitizer does not run besides: the memory that an allocator in C hands from one thread to
/// another by atomics, which ThreadSanitizer has not compiled, looks to it like a race.
const NOT_FOR_THREADS: &str = "global_heap";

/// The library's test targets that this sanitizer's long form runs, as arguments.
fn integration_tests(sanitizer: &str) -> String {
    let entries = fs::read_dir(root().join("tests")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| test_target(&entry.path())).collect();
    names.retain(|name| !NOT_SANITIZED.iter().any(|(excluded, _)| excluded == name));
    names.retain(|name| sanitizer != "thread" || name != NOT_FOR_THREADS);
    names.sort();
    names.iter().map(|name| format!("--test {name} ")).collect()
}

/// The target that cargo makes of this file or folder in `tests`, if it makes one.
fn test_target(path: &Path) -> Option<String> {
    let is_target =
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists();
    is_target.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_with_a_main_are_test_targets() {
        assert_eq!(test_target(&root().join("tests/storm")), Some("storm".into()));
        assert_eq!(test_target(Path::new("tests/shm.rs")), Some("shm".into()));
        assert_eq!(test_target(Path::new("tests/common")), None);
    }

    #[test]
    fn each_test_target_that_is_left_out_is_there_and_the_others_run() {
        let targets = integration_tests("address");
        for (excluded, _) in NOT_SANITIZED {
            let file = root().join("tests").join(format!("{excluded}.rs"));
            assert!(file.exists() || file.with_extension("").join("main.rs").exists(), "{excluded}");
            assert!(!targets.contains(&format!("--test {excluded} ")), "{targets}");
        }
        assert!(targets.contains(&format!("--test {NOT_FOR_THREADS} ")), "{targets}");
        assert_eq!(targets.replace(&format!("--test {NOT_FOR_THREADS} "), ""), integration_tests("thread"));
    }
}
