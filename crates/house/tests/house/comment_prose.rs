//! Sentences of comments that can be read at once: those of [`prose`](crate::prose), counted by crate.
//!
//! Documentation and plain comments of production code are read, where a comment has its line for itself.
//! Headings, tables' rules, links' definitions and code between fences are no sentences.

use crate::ceilings::Count;
use crate::comments::{Literal, literals};
use crate::finding::Finding;
use crate::pages::outside_code_of;
use crate::prose::findings;
use crate::source::{File, Role, Tree, attrs_of, needs_test};
use crate::workspace::Package;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use syn::Item;
use syn::spanned::Spanned;

/// Lines of a file, by their numbers.
type Lines = RangeInclusive<usize>;

/// Each package whose comments have sentences that are hard to read.
pub(crate) fn count(packages: &[Package], trees: &[Tree]) -> Vec<Count> {
    let (mut by_package, mut seen) = (BTreeMap::<&str, Vec<Finding>>::new(), BTreeSet::new());
    for tree in trees {
        for (at, file) in tree.files.iter().enumerate().filter(|(at, _)| is_production(tree, *at)) {
            if seen.insert(&file.path) {
                let package = package_of(packages, &file.path);
                by_package.entry(package).or_default().extend(hard(file, &tests_of(tree, at)));
            }
        }
    }
    let count = |(of, places): (&str, Vec<Finding>)| Count { of: of.into(), number: places.len(), places };
    by_package.into_iter().map(count).filter(|count| count.number > 0).collect()
}

/// The package in whose folder a file lies, the deepest where folders lie in each other.
fn package_of<'a>(packages: &'a [Package], path: &str) -> &'a str {
    let dir = |package: &'a Package| package.manifest.strip_suffix("Cargo.toml").unwrap_or_default();
    let around = packages.iter().filter(|package| path.starts_with(dir(package)));
    around.max_by_key(|package| dir(package).len()).map_or("", |package| &package.name)
}

fn is_production(tree: &Tree, file: usize) -> bool {
    tree.modules.iter().any(|module| module.file == file && module.role == Role::Production)
}

/// Where a file's tests stand: whole modules of them, and single items.
fn tests_of(tree: &Tree, file: usize) -> Vec<Lines> {
    let lines = |item: &Item| item.span().start().line..=item.span().end().line;
    let mut found = Vec::new();
    for module in tree.modules.iter().filter(|module| module.file == file) {
        match (module.role, module.items.first(), module.items.last()) {
            (Role::Production, ..) => {
                found.extend(module.items.iter().filter(|item| needs_test(attrs_of(item))).map(lines));
            }
            (_, Some(first), Some(last)) => found.push(*lines(first).start()..=*lines(last).end()),
            _ => {}
        }
    }
    found
}

fn hard(file: &File, tests: &[Lines]) -> Vec<Finding> {
    let literals = literals(&file.text);
    let (mut found, mut block, mut mark) = (Vec::new(), Vec::new(), "");
    for (at, line) in file.text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let said = said(at, line, &literals).filter(|_| !tests.iter().any(|lines| lines.contains(&at)));
        if said.is_none_or(|(other, _)| other != mark) {
            found.extend(findings(&file.path, outside_code_of(block.drain(..))));
        }
        if let Some((its, text)) = said {
            mark = its;
            block.push((at, text));
        }
    }
    found.extend(findings(&file.path, outside_code_of(block.drain(..))));
    found
}

/// The mark and the words of a line that is a comment.
fn said<'a>(at: usize, line: &'a str, literals: &[Literal]) -> Option<(&'static str, &'a str)> {
    let text = line.trim_start();
    let column = line.len() - text.len();
    let quoted = literals.iter().any(|(start, end)| *start < (at, column) && (at, column) < *end);
    let marks = ["///", "//!", "//"];
    marks.iter().filter(|_| !quoted).find_map(|mark| Some((*mark, text.strip_prefix(mark)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::SENTENCE_WORDS_MAX;
    use std::path::PathBuf;

    fn package(name: &str, dir: &str) -> Package {
        Package {
            name: name.into(),
            manifest: format!("{dir}Cargo.toml"),
            manifest_text: String::new(),
            dependencies: vec![],
            targets: vec![(Role::Production, PathBuf::from("src/lib.rs"))],
        }
    }

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::of(Role::Production, &[("src/lib.rs", text)]);
        assert_eq!(tree.broken, []);
        let counts = count(&[package("a", "")], &[tree]);
        counts.iter().flat_map(|count| &count.places).map(|place| place.line).collect()
    }

    fn long() -> String {
        format!("A{}.", " word".repeat(SENTENCE_WORDS_MAX))
    }

    #[test]
    fn documentation_and_plain_comments_are_read() {
        let text =
            "//! Who waits.\n\n/// It is.\n/// Whoever waits.\nfn f() {\n    // What waits\n    g();\n}\n";
        assert_eq!(lines(text), [1, 4, 6]);
        assert_eq!(lines(&format!("struct A {{\n    /// {}\n    a: u8,\n}}\n", long())), [2]);
    }

    #[test]
    fn a_sentence_goes_on_in_the_next_line_and_ends_with_its_comment() {
        let (one, two) = (vec!["word"; 20].join(" "), vec!["more"; 20].join(" "));
        assert_eq!(lines(&format!("/// A {one}\n/// {two}\nfn f() {{}}\n")), [1]);
        assert_eq!(lines(&format!("// A {one}\n\n// {two}\n")), [0; 0]);
        assert_eq!(lines(&format!("// A {one}\n/// {two}\nfn f() {{}}\n")), [0; 0]);
    }

    #[test]
    fn headings_fences_and_strings_are_no_sentences() {
        let long = long();
        let fenced =
            format!("/// ```\n/// {long}\n/// ```\n/// # Who waits\n/// | Who | {long} |\nfn f() {{}}\n");
        assert_eq!(lines(&fenced), [5]);
        assert_eq!(lines(&format!("const A: &str = \"\n// {long}\n\"; // {long}\n")), [0; 0]);
    }

    #[test]
    fn tests_are_not_read() {
        let tests = "    use super::*;\n    // Who waits\n    /// Who waits\n    fn t() {}\n";
        assert_eq!(lines(&format!("#[cfg(test)]\nmod tests {{\n{tests}}}\n// Who waits\n")), [8]);
        assert_eq!(lines("/// Who waits\n#[cfg(test)]\nfn t() {}\n"), [0; 0]);
        let tree = Tree::of(Role::Test, &[("tests/a.rs", "// Who waits\n")]);
        assert!(count(&[package("a", "")], &[tree]).is_empty());
    }

    #[test]
    fn comments_are_counted_by_package_and_a_shared_file_once() {
        let tree =
            |path: &str| Tree::of(Role::Production, &[(path, "// Who waits\n// Who waits.\n\n// What\n")]);
        let packages = [package("all", ""), package("part", "crates/part/")];
        let trees = [tree("src/lib.rs"), tree("crates/part/src/lib.rs"), tree("crates/part/src/lib.rs")];
        let counts = count(&packages, &trees);
        let counts: Vec<(&str, usize)> =
            counts.iter().map(|count| (count.of.as_str(), count.number)).collect();
        assert_eq!(counts, [("all", 1), ("part", 1)]);
    }
}
