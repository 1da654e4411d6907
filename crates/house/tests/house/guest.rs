//! Rules for a library in somebody else's process: its threads take no signals of the program's, so that all
//! start in one place, and its public enums may grow.

use crate::finding::Finding;
use crate::source::{Role, Tree};
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

/// Where the packages lie that run in programs of others.
const LIBRARY: &[&str] =
    &["src/", "crates/vm/src/", "crates/fabric/src/", "crates/pmix/src/", "crates/engine/src/"];

/// Where threads start.
const THREADS: &str = "crates/vm/src/threads.rs";

/// Where public enums are users' business.
const PUBLIC: &str = "src/";

/// Threads that start elsewhere, and public enums that nothing can be added to.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in tree.modules.iter().filter(|module| module.role == Role::Production) {
        let path = tree.files[module.file].path.as_str();
        if LIBRARY.iter().any(|folder| path.starts_with(folder)) && path != THREADS {
            let mut starts = Starts::default();
            module.items.iter().for_each(|item| starts.visit_item(item));
            findings.extend(
                starts.0.into_iter().map(|line| {
                    Finding::new(path, line, "starts a thread", "start it by vm::threads::spawn")
                }),
            );
        }
        if path.starts_with(PUBLIC) {
            findings.extend(module.items.iter().filter_map(|item| closed_enum(path, item)));
        }
    }
    findings
}

/// The lines that name the standard library's ways to start a thread.
#[derive(Default)]
struct Starts(Vec<usize>);

const WAYS: [&str; 2] = ["spawn", "Builder"];

impl<'ast> Visit<'ast> for Starts {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.windows(2).any(|pair| pair[0] == "thread" && WAYS.contains(&pair[1].as_str())) {
            self.0.push(path.segments[0].ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_use_path(&mut self, path: &'ast syn::UsePath) {
        if path.ident == "thread" && is_way(&path.tree) {
            self.0.push(path.ident.span().start().line);
        }
        visit::visit_use_path(self, path);
    }
}

fn is_way(tree: &UseTree) -> bool {
    match tree {
        UseTree::Name(name) => WAYS.iter().any(|way| name.ident == way),
        UseTree::Rename(name) => WAYS.iter().any(|way| name.ident == way),
        UseTree::Glob(_) => true,
        UseTree::Group(group) => group.items.iter().any(is_way),
        UseTree::Path(_) => false,
    }
}

fn closed_enum(path: &str, item: &Item) -> Option<Finding> {
    let Item::Enum(item) = item else { return None };
    let is_open = item.attrs.iter().any(|attr| attr.path().is_ident("non_exhaustive"));
    let is_public = matches!(item.vis, Visibility::Public(_));
    let what = format!("the public enum {} cannot grow", item.ident);
    (is_public && !is_open)
        .then(|| Finding::new(path, item.ident.span().start().line, what, "give it #[non_exhaustive]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(Role::Production, &[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn threads_that_start_elsewhere_are_found() {
        for text in [
            "fn f() { std::thread::spawn(|| ()); }",
            "use std::thread; fn f() { thread::Builder::new(); }",
            "use std::thread::{Builder, sleep};",
            "use std::thread::spawn as start;",
        ] {
            assert_eq!(found("src/a.rs", text).len(), 1, "{text}");
            assert!(found(THREADS, text).is_empty() && found("crates/cli/src/a.rs", text).is_empty());
        }
        let tests = "#[cfg(test)] mod tests { fn f() { std::thread::spawn(|| ()); } }";
        assert!(found("src/a.rs", tests).is_empty());
        assert!(found("src/a.rs", "fn f() { std::thread::sleep(x); vm::threads::spawn(n, w); }").is_empty());
    }

    #[test]
    fn public_enums_that_cannot_grow_are_found() {
        assert_eq!(found("src/a.rs", "pub enum A { B }").len(), 1);
        assert!(
            found("src/a.rs", "#[non_exhaustive] pub enum A { B } enum C { D } pub(crate) enum E { F }")
                .is_empty()
        );
        assert!(found("crates/cli/src/a.rs", "pub enum A { B }").is_empty());
    }
}
