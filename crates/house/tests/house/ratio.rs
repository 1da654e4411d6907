//! How much of the code is tests; shown, not judged.

use crate::source::{Role, Tree, attrs_of, needs_test};
use std::collections::BTreeMap;
use syn::spanned::Spanned;

/// Lines that hold code, so neither blank nor only a comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// In what users run.
    pub(crate) production: usize,
    /// In tests, benches and the conformance suite.
    pub(crate) tests: usize,
}

/// Counts each file once, even if several targets share it.
pub(crate) fn count(trees: &[Tree]) -> Lines {
    let mut by_file: BTreeMap<&str, Lines> = BTreeMap::new();
    for tree in trees {
        let mut in_tests: Vec<Vec<(usize, usize)>> = vec![vec![]; tree.files.len()];
        for module in tree.modules.iter().filter(|module| module.role != Role::Example) {
            let test_items =
                module.items.iter().filter(|item| module.role == Role::Test || needs_test(attrs_of(item)));
            let range = |item: &syn::Item| (item.span().start().line, item.span().end().line);
            in_tests[module.file].extend(test_items.map(range));
        }
        for (file, ranges) in tree.files.iter().zip(in_tests) {
            by_file.insert(&file.path, count_file(&file.text, &ranges));
        }
    }
    let add = |sum: Lines, lines: &Lines| Lines {
        production: sum.production + lines.production,
        tests: sum.tests + lines.tests,
    };
    by_file.values().fold(Lines::default(), add)
}

fn count_file(text: &str, in_tests: &[(usize, usize)]) -> Lines {
    let mut lines = Lines::default();
    for (at, line) in text.lines().enumerate() {
        let (line, at) = (line.trim(), at + 1);
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        match in_tests.iter().any(|(first, last)| (*first..=*last).contains(&at)) {
            true => lines.tests += 1,
            false => lines.production += 1,
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_modules_count_as_tests_and_comments_as_nothing() {
        let text =
            "//! Docs.\n\nfn f() {\n    // why\n    g()\n}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let tree = Tree::of(Role::Production, &[("src/lib.rs", text)]);
        let lines = count(&[tree]);
        assert_eq!(lines, Lines { production: 6, tests: 1 });
    }
}
