//! Modules that need each other.
//!
//! *Rule.* Module `a` uses module `b` when production code of `a` names an item that is defined in `b`,
//! whatever re-exports the path goes through. Three things are no use: declaring a child (`mod b;`), passing
//! a name on (`pub use b::Item;`), and naming a whole module. A cycle is a chain of uses that comes back to
//! where it started, parents and children included: a parent that only declares and passes on its children
//! may well be used by them, but not one that also works with them.

use crate::finding::Finding;
use crate::graph::{Uses, directly, knot, shortest_cycle};
use crate::names::Names;
use crate::source::Tree;
use std::collections::BTreeSet;

/// One finding for each two modules that use each other, and one for each knot of modules that only a longer
/// way round holds together.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let uses = uses(tree);
    let mut told = BTreeSet::new();
    let mut findings = Vec::new();
    for (&module, used) in &uses {
        for &other in used.keys().filter(|other| **other > module && directly(&uses, **other, module)) {
            told.extend(knot(&uses, module));
            findings.push(finding(tree, &uses, &[module, other, module]));
        }
    }
    for &module in uses.keys() {
        if !told.contains(&module)
            && let Some(cycle) = shortest_cycle(&uses, module)
        {
            told.extend(knot(&uses, module));
            findings.push(finding(tree, &uses, &cycle));
        }
    }
    findings
}

fn uses(tree: &Tree) -> Uses {
    let names = Names::new(tree);
    let mut uses = Uses::new();
    for (from, scope) in names.scopes.iter().enumerate() {
        for mention in &scope.mentions {
            let definer = names.definer(from, &mention.path).filter(|to| *to != from);
            if let Some(to) = definer {
                let place = || (mention.line, mention.path.join("::"));
                uses.entry(from).or_default().entry(to).or_insert_with(place);
            }
        }
    }
    uses
}

fn finding(tree: &Tree, uses: &Uses, cycle: &[usize]) -> Finding {
    let file = |module: usize| tree.files[tree.modules[module].file].path.as_str();
    let step = |pair: &[usize]| {
        let (line, path) = &uses[&pair[0]][&pair[1]];
        let [from, to] = [pair[0], pair[1]].map(|module| &tree.modules[module].path);
        format!("{from} uses {to} ({path}, {}:{line})", file(pair[0]))
    };
    let steps: Vec<String> = cycle.windows(2).map(step).collect();
    let (line, _) = uses[&cycle[0]][&cycle[1]];
    let what = format!("modules need each other: {}", steps.join(", "));
    Finding::new(file(cycle[0]), line, what, "move what both need into a module of its own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Role;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(Role::Production, files);
        assert_eq!(tree.broken, []);
        check(&tree).iter().map(Finding::to_string).collect()
    }

    /// Siblings `a` and `b` with the given texts, below a root with the given text.
    fn siblings(root: &str, a: &str, b: &str) -> Vec<String> {
        found(&[("src/lib.rs", &format!("mod a; mod b; {root}")), ("src/a.rs", a), ("src/b.rs", b)])
    }

    const A: &str = "pub struct A; use crate::b::B; impl A { fn b(self) -> B { B } }";

    #[test]
    fn siblings_that_import_each_other_are_found() {
        let cycle = siblings("", A, "pub struct B;\nuse crate::a::A; impl B { fn a(self) -> A { A } }");
        assert_eq!(
            cycle,
            ["src/a.rs:1: modules need each other: crate::a uses crate::b (crate::b::B, src/a.rs:1), \
              crate::b uses crate::a (crate::a::A, src/b.rs:2); move what both need into a module of its own"]
        );
    }

    #[test]
    fn one_way_is_no_cycle() {
        assert_eq!(siblings("", A, "pub struct B;"), [""; 0]);
    }

    #[test]
    fn every_way_to_name_an_item_counts() {
        for b in [
            "pub struct B; fn f() { crate::a::A; }",
            "pub struct B(super::a::A);",
            "pub struct B; use super::a; fn f() { a::A; }",
            "pub struct B; use super::a::{self as other}; fn f() { other::A; }",
            "pub struct B; use super::a::*; fn f(a: A) {}",
            "pub struct B; use crate::A; fn f(a: A) {}",
            "pub struct B; pub use crate::a::A; fn f(a: A) {}",
            "pub struct B; fn f() { use crate::a::A; }",
            "pub struct B; fn f() { assert_eq!(1, crate::a::A); }",
            "pub struct B; impl From<crate::a::A> for B {}",
            "pub struct B; fn f() { crate::a::made_by_a_macro(); }",
            "pub struct B; use crate::*; fn f(a: A) {}",
            "pub struct B { #[serde(skip, with = \"crate::a\")] b: u8 }",
            "use super::a; pub struct B { #[serde(serialize_with = \"a::written\")] b: u8 }",
            "pub struct B { #[serde(default = \"crate::a::A::new\")] b: u8 }",
            "use crate::a::*; #[serde(try_from = \"Vec<A>\")] pub struct B;",
        ] {
            assert_eq!(siblings("pub use a::A;", A, b).len(), 1, "{b}");
        }
    }

    #[test]
    fn passing_on_and_tests_do_not_count() {
        for b in [
            "pub struct B; pub use crate::a::A;",
            "pub struct B; pub(crate) use crate::a::*;",
            "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
            "pub struct B; #[cfg(test)] use crate::a::A;",
            "pub struct B; #[test] fn f() { crate::a::A; }",
            "pub struct B; impl B { #[cfg(test)] fn f() { crate::a::A; } }",
            "pub struct B; pub(in crate::a) fn f() {}",
            "pub struct B; use crate::a; fn f(a: u8) { a; }",
            "pub struct B; use a::A;",
            "use super::a; #[serde(rename = \"a::A\")] pub struct B;",
        ] {
            assert_eq!(siblings("", A, b), [""; 0], "{b}");
        }
    }

    #[test]
    fn a_longer_way_round_is_found_once() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "pub struct A(crate::b::B);"),
            ("src/b.rs", "pub struct B(crate::c::C);"),
            ("src/c.rs", "pub struct C(Box<crate::a::A>);"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn each_pair_in_a_knot_is_told() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "pub struct A(crate::b::B, crate::c::C);"),
            ("src/b.rs", "pub struct B(crate::a::A);"),
            ("src/c.rs", "pub struct C(crate::a::A);"),
        ];
        assert_eq!(found(&files).len(), 2);
    }

    #[test]
    fn a_parent_may_pass_on_the_children_that_use_it() {
        let child = ("src/a.rs", "use super::Shared; pub struct A(Shared);");
        assert_eq!(found(&[("src/lib.rs", "mod a; pub use a::A; pub struct Shared;"), child]), [""; 0]);
        let works = "mod a; pub use a::A; pub struct Shared; fn f(a: A) {}";
        assert_eq!(found(&[("src/lib.rs", works), child]).len(), 1);
    }

    #[test]
    fn exported_macros_belong_to_where_they_are_defined() {
        let a = "#[macro_export] macro_rules! shout { () => {} } pub struct A(crate::b::B);";
        assert_eq!(siblings("", a, "pub struct B; fn f() { crate::shout!() }").len(), 1);
    }

    #[test]
    fn a_function_and_a_module_may_share_a_name() {
        let a = "pub fn a() {} pub struct A(crate::b::B);";
        assert_eq!(siblings("pub use a::a;", a, "pub struct B; fn f() { crate::a() }").len(), 1);
    }
}
