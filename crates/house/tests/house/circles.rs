//! Files of one type that call each other.
//!
//! The methods of a large type stand in several files. Where those of `a.rs` call those of `b.rs` and the
//! other way round, nobody can read one without the other, and no module names the other, so that `cycles.rs`
//! sees nothing. Calls are `self.method()`, `Self::function()`, and those of free functions that take the
//! type by reference first. Such a function is taken for a method of the type.

use crate::ceilings::Count;
use crate::finding::Finding;
use crate::graph::{Uses, knot};
use crate::names::Names;
use crate::source::{Role, Tree, attrs_of, needs_test};
use proc_macro2::{Ident, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, ImplItem, Item, Pat, Type};

/// The module that defines a type, and its name.
type Key = (usize, String);

/// What is done with a type's values.
#[derive(Default)]
struct Family<'a> {
    bodies: Vec<Body<'a>>,
    /// The files of its methods.
    methods: BTreeMap<String, usize>,
    /// The files of functions that take it, by the module that defines them and by name.
    functions: BTreeMap<(usize, String), usize>,
}

/// A function, and what it calls the value that it works on.
struct Body<'a> {
    module: usize,
    value: String,
    block: &'a syn::Block,
}

/// Each type of a target some of whose files call each other in a circle.
pub(crate) fn count(tree: &Tree) -> Vec<Count> {
    let names = Names::new(tree);
    let families = families(tree, &names);
    families.iter().filter_map(|((_, name), family)| circles(tree, &names, name, family)).collect()
}

fn families<'a>(tree: &'a Tree, names: &Names) -> BTreeMap<Key, Family<'a>> {
    let mut families: BTreeMap<Key, Family> = BTreeMap::new();
    for (module, scope) in tree.modules.iter().enumerate().filter(|(_, found)| found.role == Role::Production)
    {
        for item in scope.items.iter().filter(|item| !needs_test(attrs_of(item))) {
            match item {
                Item::Impl(item) => {
                    let Some(key) = key(names, module, &item.self_ty) else { continue };
                    let of_trait = item.trait_.is_some();
                    let family = families.entry(key).or_default();
                    for item in &item.items {
                        let ImplItem::Fn(item) = item else { continue };
                        if !needs_test(&item.attrs) {
                            let name = item.sig.ident.to_string();
                            // What calls a name that a trait has, too, calls the type's own.
                            if !of_trait || !family.methods.contains_key(&name) {
                                family.methods.insert(name, scope.file);
                            }
                            family.bodies.push(Body { module, value: "self".into(), block: &item.block });
                        }
                    }
                }
                Item::Fn(item) => {
                    let Some(FnArg::Typed(first)) = item.sig.inputs.first() else { continue };
                    let (Pat::Ident(value), Type::Reference(taken)) = (&*first.pat, &*first.ty) else {
                        continue;
                    };
                    let Some(key) = key(names, module, &taken.elem) else { continue };
                    let family = families.entry(key).or_default();
                    family.functions.insert((module, item.sig.ident.to_string()), scope.file);
                    family.bodies.push(Body { module, value: value.ident.to_string(), block: &item.block });
                }
                _ => {}
            }
        }
    }
    families
}

fn key(names: &Names, module: usize, ty: &Type) -> Option<Key> {
    let Type::Path(path) = ty else { return None };
    let path: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    Some((names.definer(module, &path)?, path.last()?.clone()))
}

fn circles(tree: &Tree, names: &Names, name: &str, family: &Family) -> Option<Count> {
    let mut uses = Uses::new();
    for body in &family.bodies {
        let mut calls = Calls { names, family, body, found: Vec::new() };
        calls.visit_block(body.block);
        let from = tree.modules[body.module].file;
        for (to, line, name) in calls.found.into_iter().filter(|(to, ..)| *to != from) {
            uses.entry(from).or_default().entry(to).or_insert((line, name));
        }
    }
    let (mut told, mut places) = (BTreeSet::new(), Vec::new());
    for &file in uses.keys() {
        let knot = knot(&uses, file);
        if !told.contains(&file) && !knot.is_empty() {
            places.push(finding(tree, &uses, name, &knot));
            told.extend(knot);
        }
    }
    (!told.is_empty()).then(|| Count {
        of: format!("{} {name}", tree.files[0].path),
        number: told.len(),
        places,
    })
}

fn finding(tree: &Tree, uses: &Uses, name: &str, knot: &BTreeSet<usize>) -> Finding {
    let path = |file: usize| tree.files[file].path.as_str();
    let lines: usize = knot.iter().map(|file| tree.files[*file].text.lines().count()).sum();
    let inside = knot.iter().flat_map(|from| uses[from].iter().map(move |(to, call)| (*from, *to, call)));
    let calls = inside
        .filter(|(_, to, _)| knot.contains(to))
        .map(|(from, to, (line, call))| format!("{}:{line} calls {call} of {}", path(from), path(to)));
    let calls: Vec<String> = calls.collect();
    let what =
        format!("{name} goes in a circle of {} files, {lines} lines: {}", knot.len(), calls.join(", "));
    let first = *knot.first().expect("a knot has those that it was found by");
    Finding::new(path(first), 0, what, "give one side a type of its own, which does not know the other")
}

struct Calls<'a> {
    names: &'a Names<'a>,
    family: &'a Family<'a>,
    body: &'a Body<'a>,
    /// The file of what is called, the line of the call, and the name.
    found: Vec<(usize, usize, String)>,
}

impl Calls<'_> {
    fn method(&mut self, name: &Ident) {
        let file = self.family.methods.get(&name.to_string());
        self.found.extend(file.map(|file| (*file, name.span().start().line, name.to_string())));
    }

    /// Finds `self.method(…)` and `Self::function` in tokens that are not parsed further.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for at in 0..tokens.len() {
            let is =
                |at: usize, wanted: &str| tokens.get(at).is_some_and(|token| token.to_string() == wanted);
            let nth = |at: usize| tokens.get(at);
            if let TokenTree::Group(group) = &tokens[at] {
                self.tokens(group.stream());
            } else if is(at, &self.body.value) && is(at + 1, ".") {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(_))) = (nth(at + 2), nth(at + 3))
                {
                    self.method(name);
                }
            } else if is(at, "Self")
                && is(at + 1, ":")
                && let Some(TokenTree::Ident(name)) = nth(at + 3)
            {
                self.method(name);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident(&self.body.value)) {
            self.method(&call.method);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<&Ident> = path.path.segments.iter().map(|segment| &segment.ident).collect();
        if let [first, name] = names.as_slice()
            && *first == "Self"
        {
            return self.method(name);
        }
        let path: Vec<String> = names.iter().map(ToString::to_string).collect();
        if let (Some(definer), Some(name)) = (self.names.definer(self.body.module, &path), names.last()) {
            let file = self.family.functions.get(&(definer, name.to_string()));
            self.found.extend(file.map(|file| (*file, name.span().start().line, name.to_string())));
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }

    fn visit_item(&mut self, _: &'ast Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type in the root, with these texts in `a` and `b` below it.
    fn counted(a: &str, b: &str) -> Vec<String> {
        let root = "mod a; mod b; mod c; pub struct T { a: u8 } pub struct Other;";
        let c = "use crate::T; impl T { fn c(&self) { self.a() } }";
        let tree = Tree::of(
            Role::Production,
            &[("src/lib.rs", root), ("src/a.rs", a), ("src/b.rs", b), ("src/c.rs", c)],
        );
        assert_eq!(tree.broken, []);
        count(&tree).iter().flat_map(|count| &count.places).map(ToString::to_string).collect()
    }

    const A: &str = "use super::T; impl T { pub fn a(&self) { self.b() } }";

    #[test]
    fn two_files_whose_methods_call_each_other_are_found() {
        let found = counted(A, "use super::T; impl T {\npub fn b(&self) { if true { self.a() } } }");
        assert_eq!(
            found,
            ["src/a.rs:0: T goes in a circle of 2 files, 3 lines: src/a.rs:1 calls b of src/b.rs, \
              src/b.rs:2 calls a of src/a.rs; give one side a type of its own, which does not know the other"]
        );
    }

    #[test]
    fn every_way_to_call_counts() {
        for b in [
            "impl super::T { fn b(&self) { assert!(self.a()) } }",
            "impl crate::T { fn b(&self) { (0..9).for_each(|_| Self::a(self)) } }",
            "use super::T; impl T { fn b(&self) { go(self) } } fn go(t: &T) { t.a() }",
            "use crate::*; impl T { fn b(&self) { vec![Self::a(self)] } }",
        ] {
            assert_eq!(counted(A, b).len(), 1, "{b}");
        }
    }

    #[test]
    fn free_functions_that_take_the_type_are_its_methods() {
        let a = "use crate::T; pub fn a(t: &mut T) { crate::b::b(t) }";
        assert_eq!(counted(a, "use crate::T; use crate::a; pub fn b(t: &mut T) { a::a(t) }").len(), 1);
        assert_eq!(
            counted(a, "use crate::T; use crate::a; pub fn b(t: u8, of: &mut T) { a::a(of) }").len(),
            0
        );
    }

    #[test]
    fn one_way_other_types_and_tests_are_no_circle() {
        for b in [
            "use super::T; impl T { fn b(&self) {} }",
            "use super::T; impl T { fn b(&self) { self.a.a() } }",
            "use super::{Other, T}; impl T { fn b(&self) {} } impl Other { fn d(&self) { self.a() } }",
            "use super::T; impl T { fn b(&self) {} #[cfg(test)] fn d(&self) { self.a() } }",
        ] {
            assert_eq!(counted(A, b), [""; 0], "{b}");
        }
    }
}
