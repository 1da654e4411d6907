//! The real workspace, as `cargo metadata` tells it.

use crate::finding::Finding;
use crate::source::{Role, Tree};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package of the workspace.
pub(crate) struct Package {
    /// As in its manifest.
    pub(crate) name: String,
    /// Path of the manifest from the workspace's root.
    pub(crate) manifest: String,
    /// Text of the manifest.
    pub(crate) manifest_text: String,
    /// Everything it says it depends on.
    pub(crate) dependencies: Vec<Dependency>,
    /// (role, root file) of its targets, for libraries and binaries first.
    pub(crate) targets: Vec<(Role, PathBuf)>,
}

/// One line of a package's dependency tables.
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) package: String,
    /// Whether only tests, benches and examples see it.
    pub(crate) dev: bool,
    /// The registry or repository it comes from; none for a path.
    pub(crate) source: Option<String>,
}

/// Where the workspace is: two folders above this crate.
pub(crate) fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate lies in the workspace's `crates`")
}

/// All packages of the workspace.
pub(crate) fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("the cargo that built this test can be run");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    list(&metadata, "packages").iter().map(package).collect()
}

/// Every target of the workspace, and of the fuzzer's beside it, read and parsed.
pub(crate) fn trees(packages: &[Package]) -> Vec<Tree> {
    let read = |path: &Path| std::fs::read_to_string(root().join(path)).ok();
    let targets = packages.iter().flat_map(|package| &package.targets);
    let mut fuzz_targets = Vec::new();
    rust_files(Path::new("fuzz/fuzz_targets"), &mut fuzz_targets);
    let fuzz_targets = fuzz_targets.iter().map(|path| Tree::load(Path::new(path), Role::Test, &read));
    targets.map(|(role, path)| Tree::load(path, *role, &read)).chain(fuzz_targets).collect()
}

/// Source files that no target reaches: forgotten code that no check and no compiler looks at.
pub(crate) fn orphans(packages: &[Package], trees: &[Tree]) -> Vec<Finding> {
    let reached: BTreeSet<&str> = trees.iter().flat_map(Tree::paths).collect();
    let mut found = Vec::new();
    for package in packages {
        let dir = Path::new(&package.manifest).parent().unwrap_or(Path::new(""));
        for part in ["src", "tests", "benches", "examples"] {
            rust_files(&dir.join(part), &mut found);
        }
    }
    let lost = found.iter().filter(|path| !reached.contains(path.as_str()));
    lost.map(|path| {
        Finding::new(path, 0, "no target reaches this file", "declare it with `mod` or delete it")
    })
    .collect()
}

fn rust_files(dir: &Path, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(root().join(dir)) else { return };
    for entry in entries.flatten() {
        let path = dir.join(entry.file_name());
        if entry.path().is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

fn package(value: &Value) -> Package {
    let name = text(value, "name");
    let manifest = relative(&text(value, "manifest_path"));
    let manifest_text = std::fs::read_to_string(root().join(&manifest)).expect("cargo has just read it");
    let dependencies = list(value, "dependencies").iter().map(dependency).collect();
    let targets = list(value, "targets").iter().map(|value| target(&name, value)).collect();
    Package { name, manifest: manifest.to_string_lossy().into_owned(), manifest_text, dependencies, targets }
}

fn dependency(value: &Value) -> Dependency {
    Dependency {
        package: text(value, "name"),
        dev: value["kind"].as_str() == Some("dev"),
        source: value["source"].as_str().map(str::to_owned),
    }
}

fn target(package: &str, value: &Value) -> (Role, PathBuf) {
    let kind = list(value, "kind")[0].as_str().unwrap_or_default();
    let role = match kind {
        _ if package == "standpipe-conformance" => Role::Test,
        "test" | "bench" => Role::Test,
        "example" => Role::Example,
        _ => Role::Production,
    };
    (role, relative(&text(value, "src_path")))
}

fn relative(path: &str) -> PathBuf {
    Path::new(path).strip_prefix(root()).unwrap_or(Path::new(path)).to_path_buf()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().expect("cargo metadata always has this text").to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("cargo metadata always has this list")
}
