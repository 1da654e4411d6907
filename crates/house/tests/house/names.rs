//! To which module a path in the source leads, as far as it can be told without a compiler.
//!
//! Followed are `crate`, `self`, `super`, child modules, imports, re-exports and globs, and the strings of
//! serde's attributes. Not followed are methods (their receiver's type is not known), names that a macro
//! makes, and paths into other crates.

use crate::source::{Role, Tree, attrs_of, needs_test};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, Item, Lit, Meta, Token, UseTree, Visibility};

/// A path as written.
#[derive(Clone, Debug)]
pub(crate) struct Mention {
    /// Its segments; `["*"]` at the end for a glob.
    pub(crate) path: Vec<String>,
    /// Where it stands.
    pub(crate) line: usize,
}

/// What production code of one module defines, imports and mentions.
#[derive(Default)]
pub(crate) struct Scope {
    defined: BTreeSet<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Every path in its code. Re-exports (`pub use`) are no mentions: passing a name on is not using it.
    pub(crate) mentions: Vec<Mention>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// Something defined in this module.
    ItemOf(usize),
}

/// The scopes of a target's modules.
pub(crate) struct Names<'a> {
    tree: &'a Tree,
    /// One for each module, in order.
    pub(crate) scopes: Vec<Scope>,
    /// Where exported macros, which live in the crate's root whatever their module, are defined.
    macros: BTreeMap<String, usize>,
}

/// Chains of imports longer than this are taken for circular.
const DEPTH_MAX: usize = 32;

/// Keys of serde's attributes whose strings hold paths or types.
const SERDE_PATHS: &[&str] = &[
    "serialize_with",
    "deserialize_with",
    "default",
    "skip_serializing_if",
    "getter",
    "remote",
    "from",
    "try_from",
    "into",
];

impl<'a> Names<'a> {
    /// Collects the names of a target.
    pub(crate) fn new(tree: &'a Tree) -> Self {
        let scopes = tree.modules.iter().map(|module| {
            let mut collector = Collector::default();
            let production = module.role == Role::Production;
            module.items.iter().filter(|_| production).for_each(|item| collector.top(item));
            collector.scope
        });
        Names { tree, scopes: scopes.collect(), macros: exported_macros(tree) }
    }

    /// The module that defines the item which `path`, written in module `from`, leads to. None where the path
    /// leads to a whole module, to another crate, or to something that is no item.
    pub(crate) fn definer(&self, from: usize, path: &[String]) -> Option<usize> {
        match self.resolve(from, path, 0)? {
            Target::ItemOf(module) => Some(module),
            Target::Module(_) => None,
        }
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.inside(0, rest, true, depth),
            "self" => self.inside(from, rest, true, depth),
            "super" => self.inside(self.tree.modules[from].parent?, rest, true, depth),
            _ => self.inside(from, path, false, depth),
        }
    }

    /// Resolves `path` in `module`. When `surely` the path must lead into this crate, so that a name nobody
    /// seems to define (a macro made it) is taken for one of `module`'s own.
    fn inside(&self, module: usize, path: &[String], surely: bool, depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        if surely && name == "super" {
            return self.inside(self.tree.modules[module].parent?, rest, true, depth);
        }
        let scope = &self.scopes[module];
        let child = self.tree.modules[module].children.get(name).copied();
        // A module and a function may share a name; only the module has something inside.
        if let Some(child) = child.filter(|_| !rest.is_empty()) {
            return self.inside(child, rest, true, depth);
        }
        if scope.defined.contains(name) {
            return Some(Target::ItemOf(module));
        }
        if let Some(import) = scope.imports.get(name).filter(|import| import[0] != *name || import.len() > 1)
        {
            let whole: Vec<String> = import.iter().chain(rest).cloned().collect();
            return self.resolve(module, &whole, depth + 1);
        }
        if let Some(child) = child {
            return Some(Target::Module(child));
        }
        let through_glob = scope.globs.iter().find_map(|glob| {
            let Target::Module(source) = self.resolve(module, glob, depth + 1)? else { return None };
            self.inside(source, path, false, depth + 1)
        });
        let exported = self.macros.get(name).filter(|_| module == 0).map(|definer| Target::ItemOf(*definer));
        through_glob.or(exported).or(surely.then_some(Target::ItemOf(module)))
    }
}

fn exported_macros(tree: &Tree) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (index, module) in tree.modules.iter().enumerate() {
        for item in &module.items {
            if let Item::Macro(syn::ItemMacro { attrs, ident: Some(name), .. }) = item
                && attrs.iter().any(|attr| attr.path().is_ident("macro_export"))
            {
                found.insert(name.to_string(), index);
            }
        }
    }
    found
}

#[derive(Default)]
struct Collector {
    scope: Scope,
}

impl Collector {
    /// An item of the module itself, rather than of a function's body.
    fn top(&mut self, item: &Item) {
        let name = match item {
            Item::Const(i) => Some(&i.ident),
            Item::Enum(i) => Some(&i.ident),
            Item::Fn(i) => Some(&i.sig.ident),
            Item::Macro(i) => i.ident.as_ref(),
            Item::Static(i) => Some(&i.ident),
            Item::Struct(i) => Some(&i.ident),
            Item::Trait(i) => Some(&i.ident),
            Item::Type(i) => Some(&i.ident),
            Item::Union(i) => Some(&i.ident),
            _ => None,
        };
        if !needs_test(attrs_of(item)) {
            self.scope.defined.extend(name.map(ToString::to_string));
        }
        self.visit_item(item);
    }

    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.scope.mentions.push(Mention { path, line });
    }

    fn import(&mut self, tree: &UseTree, before: &[String], passed_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), passed_on),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before, passed_on)),
            UseTree::Glob(_) => self.scope.globs.push(before.to_vec()),
            UseTree::Name(name) => self.bind(&name.ident, &name.ident, before, passed_on),
            UseTree::Rename(rename) => self.bind(&rename.ident, &rename.rename, before, passed_on),
        }
    }

    fn bind(&mut self, name: &syn::Ident, alias: &syn::Ident, before: &[String], passed_on: bool) {
        let itself = name == "self";
        let path = if itself { before.to_vec() } else { [before, &[name.to_string()]].concat() };
        let alias = if itself && alias == "self" { before.last().cloned() } else { Some(alias.to_string()) };
        if !passed_on {
            self.mention(path.clone(), name.span().start().line);
        }
        self.scope.imports.extend(alias.map(|alias| (alias, path)));
    }

    /// Functions and types that serde's attributes name in strings.
    fn serde(&mut self, attr: &syn::Attribute) {
        let parts = attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
        for part in parts {
            let Meta::NameValue(pair) = part else { continue };
            let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { continue };
            // `with` names a module; what is used are its functions.
            if pair.path.is_ident("with") {
                let functions = ["serialize", "deserialize"].map(|name| format!("{}::{name}", text.value()));
                for function in functions {
                    let path = function.split("::").map(|name| name.trim().to_owned()).collect();
                    self.mention(path, text.span().start().line);
                }
            } else if SERDE_PATHS.iter().any(|name| pair.path.is_ident(name)) {
                self.tokens(text.parse().unwrap_or_default());
            }
        }
    }

    /// Finds `a::b::c` in tokens that are not parsed further.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 && !path.is_empty() {
                        self.mention(std::mem::take(&mut path), line);
                    }
                    path.push(ident.to_string());
                    (line, colons) = (ident.span().start().line, 0);
                }
                other => {
                    if !path.is_empty() {
                        self.mention(std::mem::take(&mut path), line);
                    }
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        if !path.is_empty() {
            self.mention(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !needs_test(attrs_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !needs_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.mention(segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, attr: &'ast syn::Attribute) {
        if attr.path().is_ident("serde") {
            self.serde(attr);
        }
    }
}
