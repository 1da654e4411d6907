//! A decorator of a trait passes all of the trait's calls on.
//!
//! A provided method that a decorator leaves out does what it does by default, whatever the decorated type
//! does: nobody notices, as all else goes on.

use crate::finding::Finding;
use crate::source::Tree;
use std::collections::BTreeSet;
use syn::{ImplItem, Item, TraitItem, Type};

/// Traits, and the types that decorate others of that trait.
const DECORATORS: &[(&str, &str)] = &[("Transport", "Router"), ("Transport", "Network")];

/// Each method of a trait that a decorator does not have.
pub(crate) fn check(trees: &[Tree]) -> Vec<Finding> {
    DECORATORS.iter().flat_map(|(of, decorator)| missing(trees, of, decorator)).collect()
}

fn missing(trees: &[Tree], of: &str, decorator: &str) -> Vec<Finding> {
    let methods: BTreeSet<String> = trees.iter().flat_map(|tree| methods_of(tree, of)).collect();
    let impls: Vec<_> = trees.iter().flat_map(|tree| impls_of(tree, of, decorator)).collect();
    if methods.is_empty() || impls.is_empty() {
        let what = format!("no trait {of}, or no {decorator} that decorates it");
        return vec![Finding::new(file!(), 0, what, "keep DECORATORS true")];
    }
    let absent = |(file, has): &(String, BTreeSet<String>)| {
        let absent = methods.difference(has).map(|method| {
            let what = format!("{decorator} does not pass {of}::{method} on");
            Finding::new(file, 0, what, "pass it on, even where that is what the default does")
        });
        absent.collect::<Vec<_>>()
    };
    impls.iter().flat_map(absent).collect()
}

/// The methods that a trait of this name has.
fn methods_of(tree: &Tree, of: &str) -> BTreeSet<String> {
    let items = tree.modules.iter().flat_map(|module| &module.items);
    let methods = items.filter_map(|item| match item {
        Item::Trait(found) if found.ident == of => Some(found.items.iter()),
        _ => None,
    });
    let name = |item: &TraitItem| match item {
        TraitItem::Fn(method) => Some(method.sig.ident.to_string()),
        _ => None,
    };
    methods.flatten().filter_map(name).collect()
}

/// The files in which that type has that trait, and the methods that it gives it there.
fn impls_of(tree: &Tree, of: &str, decorator: &str) -> Vec<(String, BTreeSet<String>)> {
    let names = |ty: &Type| matches!(ty, Type::Path(path) if path.path.is_ident(decorator));
    let mut found = Vec::new();
    for module in &tree.modules {
        for item in &module.items {
            let Item::Impl(item) = item else { continue };
            let is_of = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == of);
            if !names(&item.self_ty) || !item.trait_.as_ref().is_some_and(|(path, _)| is_of(path)) {
                continue;
            }
            let methods = item.items.iter().filter_map(|item| match item {
                ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
                _ => None,
            });
            found.push((tree.files[module.file].path.clone(), methods.collect()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Role;

    const TRAIT: &str = "pub trait Talk { fn say(&self); fn hear(&self) -> bool { false } }";

    fn found(decorator: &str) -> Vec<String> {
        let text = format!("{TRAIT} struct Both(A, B); impl Talk for Both {{ {decorator} }}");
        let findings = missing(&[Tree::of(Role::Production, &[("a.rs", &text)])], "Talk", "Both");
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_method_that_is_left_to_its_default_is_found() {
        assert!(found("fn say(&self) {} fn hear(&self) -> bool { true }").is_empty());
        let lines = found("fn say(&self) {}");
        assert!(
            lines.len() == 1 && lines[0].starts_with("a.rs:0: Both does not pass Talk::hear on"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_decorator_that_is_gone_is_found() {
        let nothing = [Tree::of(Role::Production, &[("a.rs", TRAIT)])];
        assert_eq!(missing(&nothing, "Talk", "Both").len(), 1);
    }
}
