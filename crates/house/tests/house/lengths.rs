//! How long functions and files may be.
//!
//! A function's length is the number of lines from its `fn` line to its closing brace, blank lines and
//! comments included. Functions inside macro calls and macro definitions count too.

use crate::finding::Finding;
use crate::source::{Role, Tree, attrs_of, needs_test};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Longest function of production code and examples, in lines.
pub(crate) const FN_LINES_MAX: usize = 70;
/// Longest function of tests.
pub(crate) const TEST_FN_LINES_MAX: usize = 100;
/// Nine production functions in ten are no longer than this.
pub(crate) const FN_LINES_USUAL: usize = 30;
/// Longest file of any kind.
pub(crate) const FILE_LINES_MAX: usize = 600;

/// A function with a body.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Path of its file.
    pub(crate) file: String,
    /// Where it starts.
    pub(crate) line: usize,
    /// How many lines it has.
    pub(crate) lines: usize,
    /// What it is for.
    pub(crate) role: Role,
}

/// Every function of a target.
pub(crate) fn functions(tree: &Tree) -> Vec<Function> {
    let mut found = Vec::new();
    for module in &tree.modules {
        let file = &tree.files[module.file].path;
        let mut visitor = Functions { file, role: module.role, found: &mut found };
        module.items.iter().for_each(|item| visitor.visit_item(item));
    }
    found
}

/// Functions that are too long.
pub(crate) fn long_functions(functions: &[Function]) -> Vec<Finding> {
    let max = |function: &Function| match function.role {
        Role::Test => TEST_FN_LINES_MAX,
        Role::Production | Role::Example => FN_LINES_MAX,
    };
    let long = functions.iter().filter(|function| function.lines > max(function));
    long.map(|function| {
        let what = format!("fn {} has {} lines of at most {}", function.name, function.lines, max(function));
        Finding::new(&function.file, function.line, what, "split it where its steps part")
    })
    .collect()
}

/// How many production functions there are, and how many of them are of usual length.
pub(crate) fn usual(functions: &[Function]) -> (usize, usize) {
    let production = functions.iter().filter(|function| function.role == Role::Production);
    let short = production.clone().filter(|function| function.lines <= FN_LINES_USUAL);
    (production.count(), short.count())
}

/// Too many production functions above the usual length: the longest of them.
pub(crate) fn unusual(functions: &[Function]) -> Vec<Finding> {
    let (all, short) = usual(functions);
    let excess = (all - short).saturating_sub(all / 10);
    let mut long: Vec<&Function> = functions.iter().filter(|f| f.role == Role::Production).collect();
    long.sort_by_key(|function| std::cmp::Reverse(function.lines));
    long.iter()
        .take(excess)
        .map(|function| {
            let what = format!(
                "fn {} has {} lines, and {} of {all} functions pass {FN_LINES_USUAL}",
                function.name,
                function.lines,
                all - short
            );
            Finding::new(&function.file, function.line, what, "shorten it until nine in ten are short")
        })
        .collect()
}

/// Files that are too long.
pub(crate) fn long_files(tree: &Tree) -> Vec<Finding> {
    let lines = tree.files.iter().map(|file| (file, file.text.lines().count()));
    lines
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(file, lines)| {
            let what = format!("{lines} lines of at most {FILE_LINES_MAX}");
            Finding::new(&file.path, FILE_LINES_MAX + 1, what, "make two modules of it")
        })
        .collect()
}

struct Functions<'a> {
    file: &'a str,
    role: Role,
    found: &'a mut Vec<Function>,
}

impl Functions<'_> {
    /// Runs `inside` with the role that `attrs` give.
    fn under(&mut self, attrs: &[syn::Attribute], inside: impl FnOnce(&mut Self)) {
        let around = self.role;
        if needs_test(attrs) {
            self.role = Role::Test;
        }
        inside(self);
        self.role = around;
    }

    fn add(&mut self, name: &syn::Ident, first: usize, last: usize) {
        let (name, file) = (name.to_string(), self.file.to_owned());
        self.found.push(Function { name, file, line: first, lines: last + 1 - first, role: self.role });
    }

    fn add_parsed(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.add(&signature.ident, signature.span().start().line, block.span().end().line);
    }

    /// Finds `fn name … { … }` in tokens that are not parsed further.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut started: Option<(syn::Ident, usize)> = None;
        let mut after_fn = None;
        for token in tokens {
            match &token {
                TokenTree::Ident(ident) if ident == "fn" => after_fn = Some(ident.span().start().line),
                TokenTree::Ident(ident) => {
                    started = after_fn.take().map(|line| (ident.clone(), line)).or(started)
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => started = None,
                TokenTree::Group(group) => {
                    let body = group.delimiter() == Delimiter::Brace;
                    if let Some((name, first)) = started.take_if(|_| body) {
                        self.add(&name, first, group.span_close().end().line);
                    }
                    after_fn = None;
                    self.tokens(group.stream());
                }
                _ => after_fn = None,
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.under(attrs_of(item), |inner| visit::visit_item(inner, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_parsed(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.under(&item.attrs, |inner| {
            inner.add_parsed(&item.sig, &item.block);
            visit::visit_impl_item_fn(inner, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add_parsed(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of `lines` lines.
    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn found(text: &str) -> Vec<Finding> {
        long_functions(&functions(&Tree::of(Role::Production, &[("src/lib.rs", text)])))
    }

    #[test]
    fn a_function_one_line_too_long_is_found() {
        assert_eq!(found(&function("fits", FN_LINES_MAX)), []);
        let long = found(&function("long", FN_LINES_MAX + 1));
        assert_eq!((long.len(), long[0].line), (1, 1));
        assert!(long[0].what.contains("fn long has 71 lines of at most 70"), "{}", long[0]);
    }

    #[test]
    fn methods_defaults_and_macros_are_looked_into() {
        let long = function("long", FN_LINES_MAX + 1);
        for (head, tail) in [
            ("impl T {", "}"),
            ("impl Clone for T {", "}"),
            ("trait T {", "}"),
            ("mod m {", "}"),
            ("macro_rules! m { () => {", "} }"),
            ("proptest! {", "}"),
            ("fn outer() { {", "} }"),
        ] {
            let findings = found(&format!("{head} {long} {tail}"));
            assert!(findings.iter().any(|finding| finding.what.contains("fn long")), "{head}: {findings:?}");
        }
    }

    #[test]
    fn tests_may_be_longer_but_not_without_end() {
        let long = function("long", TEST_FN_LINES_MAX);
        assert_eq!(found(&format!("#[test]\n{long}")), []);
        assert_eq!(found(&format!("#[cfg(test)] mod tests {{ {long} }}")), []);
        assert_eq!(found(&format!("#[test]\n{}", function("long", TEST_FN_LINES_MAX + 1))).len(), 1);
    }

    #[test]
    fn more_than_one_in_ten_above_the_usual_length_is_found() {
        let short: String = (0..9).map(|_| function("short", FN_LINES_USUAL)).collect();
        let long = function("long", FN_LINES_USUAL + 1);
        let of = |text: &str| unusual(&functions(&Tree::of(Role::Production, &[("src/lib.rs", text)])));
        assert_eq!(of(&format!("{short}{long}")), []);
        assert_eq!(of(&format!("{short}{long}{long}")).len(), 1);
    }

    #[test]
    fn a_long_file_is_found() {
        let of = |lines| long_files(&Tree::of(Role::Test, &[("tests/a.rs", &"\n".repeat(lines))]));
        assert_eq!(of(FILE_LINES_MAX), []);
        assert_eq!(of(FILE_LINES_MAX + 1).len(), 1);
    }
}
