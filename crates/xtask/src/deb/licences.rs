//! Whose work is in a package, and under which terms.

use crate::command::{Failure, root, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How deep below a crate's folder licences are looked for: mimalloc's lies three folders below its crate's.
const DEPTH: usize = 4;

/// The crates of others that are compiled in.
#[derive(Default)]
pub(super) struct Licences {
    crates: BTreeMap<String, Crate>,
}

struct Crate {
    terms: String,
    folder: PathBuf,
}

/// Those of a package of ours, with these features.
pub(super) fn of(package: &str, features: &str) -> Result<Licences, Failure> {
    let tree = "cargo tree --locked --edges normal,build --prefix none --format {p}";
    let tree = run(tree).arg(format!("--features={features}")).arg("--package").arg(package).output()?;
    let used: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let metadata = run("cargo metadata --locked --format-version 1").output()?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|why| Failure(format!("cargo metadata: {why}")))?;
    let mut licences = Licences::default();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        // Ours have no source.
        if used.contains(&(name, version)) && package["source"].is_string() {
            let folder = Path::new(text("manifest_path")).parent().unwrap_or(Path::new("/")).to_path_buf();
            let terms = text("license").to_owned();
            licences.crates.insert(format!("{name} {version}"), Crate { terms, folder });
        }
    }
    if licences.crates.is_empty() {
        return Err(Failure(format!("cargo names nothing that {package} is made of")));
    }
    Ok(licences)
}

/// Of a line such as `libc v0.2.180 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once(" v")?;
    Some((name, rest.split(' ').next()?))
}

impl Licences {
    /// Adds another's.
    pub(super) fn merge(&mut self, other: Licences) {
        self.crates.extend(other.crates);
    }

    /// A copyright file, as machines read it.
    pub(super) fn copyright(&self) -> Result<String, Failure> {
        let mut text =
            String::from("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n");
        text += "Upstream-Name: Standpipe\nComment:\n Compiled in are Rust's standard library (MIT or Apache-2.0)";
        text += " and these crates. Their licences\n are in third-party-licences.gz beside this file.\n .\n";
        for (name, Crate { terms, .. }) in &self.crates {
            text += &format!(" {name}: {terms}\n");
        }
        text += "\nFiles: *\nCopyright: Standpipe's developers\nLicense: MIT or Apache-2.0\n";
        text += &paragraph(&read(&root().join("LICENSE-MIT"))?);
        text += " .\n Or, at your option, the Apache License, version 2.0:\n";
        text += " /usr/share/common-licenses/Apache-2.0 on Debian.\n";
        Ok(text)
    }

    /// The texts of all licences, each once, behind the names of those whose it is.
    pub(super) fn texts(&self) -> Result<String, Failure> {
        let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, Crate { folder, .. }) in &self.crates {
            for file in licence_files(folder, DEPTH) {
                let owners = texts.entry(read(&file)?).or_default();
                if owners.last() != Some(&&**name) {
                    owners.push(name);
                }
            }
        }
        let mut all: Vec<String> =
            texts.iter().map(|(text, names)| format!("==== {}\n\n{text}\n", names.join(", "))).collect();
        all.sort();
        Ok(all.concat())
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let bytes = fs::read(file).map_err(|why| Failure(format!("{}: {why}", file.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text as a field's further lines.
fn paragraph(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }).collect()
}

fn licence_files(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    let mut entries: Vec<PathBuf> = entries.unwrap_or_default();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_dir() && depth > 1 {
            found.extend(licence_files(&path, depth - 1));
        } else if path.is_file()
            && ["LICEN", "COPYING", "NOTICE", "UNLICEN"].iter().any(|of| name.starts_with(of))
        {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_taken_from_lines_of_the_tree() {
        assert_eq!(name_and_version("libc v0.2.180"), Some(("libc", "0.2.180")));
        assert_eq!(name_and_version("serde_derive v1.0.2 (proc-macro) (*)"), Some(("serde_derive", "1.0.2")));
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn licences_that_are_alike_are_told_once_for_all_that_have_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut licences = Licences::default();
        for (name, file, text) in
            [("a 1", "LICENSE", "do"), ("b 2", "COPYING", "do"), ("c 3", "README", "no")]
        {
            let folder = folder.path().join(name);
            fs::create_dir_all(folder.join("inner")).expect("there is room");
            fs::write(folder.join("inner").join(file), text).expect("there is room");
            licences.crates.insert(name.into(), Crate { terms: "MIT".into(), folder });
        }
        assert_eq!(licences.texts(), Ok("==== a 1, b 2\n\ndo\n".into()));
        let copyright = licences.copyright().expect("ours are there");
        assert!(copyright.contains("\n c 3: MIT\n") && copyright.contains("Permission is hereby granted"));
        assert!(copyright.lines().all(|line| !line.trim_end().is_empty() || line.is_empty()), "{copyright}");
    }
}
