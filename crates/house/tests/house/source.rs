//! A crate target as the compiler sees it: its files, found by following `mod`, and its modules, parsed.

use crate::finding::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// What the code of a target, file or item is for; the rules differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// What users run: libraries, binaries, build scripts.
    Production,
    /// Shown to users, so short; but free to use the unsafe parts of the API, with an argument.
    Example,
    /// Tests, benches, the conformance suite, and whatever stands under `#[cfg(test)]`.
    Test,
}

/// One source file.
pub(crate) struct File {
    /// Path from the workspace's root.
    pub(crate) path: String,
    /// Its whole text.
    pub(crate) text: String,
}

/// One module, without the modules inside it.
pub(crate) struct Module {
    /// As written in Rust: `crate::a::b`.
    pub(crate) path: String,
    /// Index of the module around it; none for the crate's root.
    pub(crate) parent: Option<usize>,
    /// Modules declared in it, by name.
    pub(crate) children: BTreeMap<String, usize>,
    /// Index of the file it stands in.
    pub(crate) file: usize,
    /// Test when it is only compiled for tests.
    pub(crate) role: Role,
    /// The crate's or module's inner attributes (`#![…]`), where it is a file of its own.
    pub(crate) inner: Vec<Attribute>,
    /// Its items, module declarations left out.
    pub(crate) items: Vec<Item>,
}

/// A crate target: a root file and everything reached from it.
pub(crate) struct Tree {
    /// Every file, the root first.
    pub(crate) files: Vec<File>,
    /// Every module, the root first.
    pub(crate) modules: Vec<Module>,
    /// What could not be read or parsed.
    pub(crate) broken: Vec<Finding>,
}

/// Gives a file's text by its path from the workspace's root, or none where there is no such file.
pub(crate) type Reader<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Tree {
    /// Reads the target whose root file is `root`.
    pub(crate) fn load(root: &Path, role: Role, read: Reader<'_>) -> Tree {
        let mut loader = Loader { read, tree: Tree { files: vec![], modules: vec![], broken: vec![] } };
        let dir = root.parent().unwrap_or(Path::new("")).to_path_buf();
        loader.file(root, Place { name: "crate".into(), parent: None, role, dir });
        loader.tree
    }

    /// The tree of files given as (path, text); the first one is the root.
    pub(crate) fn of(role: Role, files: &[(&str, &str)]) -> Tree {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| text.to_string())
        };
        Tree::load(Path::new(files[0].0), role, &read)
    }

    /// Paths of all files of the target.
    pub(crate) fn paths(&self) -> BTreeSet<&str> {
        self.files.iter().map(|file| file.path.as_str()).collect()
    }
}

/// Where a module is to be put, and where its own children's files are.
struct Place {
    name: String,
    parent: Option<usize>,
    role: Role,
    dir: PathBuf,
}

struct Loader<'a> {
    read: Reader<'a>,
    tree: Tree,
}

impl Loader<'_> {
    fn file(&mut self, path: &Path, place: Place) {
        let name = path.to_string_lossy().into_owned();
        let Some(text) = (self.read)(path) else {
            self.tree.broken.push(Finding::new(&name, 0, "cannot be read", "add the file or its `mod`"));
            return;
        };
        let parsed = match syn::parse_file(&text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let line = error.span().start().line;
                self.tree.broken.push(Finding::new(&name, line, error.to_string(), "make it parse"));
                return;
            }
        };
        self.tree.files.push(File { path: name, text });
        let file = self.tree.files.len() - 1;
        let role = if needs_test(&parsed.attrs) { Role::Test } else { place.role };
        self.module(file, Place { role, ..place }, parsed.attrs, parsed.items);
    }

    fn module(&mut self, file: usize, place: Place, inner: Vec<Attribute>, items: Vec<Item>) {
        let index = self.tree.modules.len();
        let path = match place.parent {
            Some(parent) => format!("{}::{}", self.tree.modules[parent].path, place.name),
            None => place.name.clone(),
        };
        if let Some(parent) = place.parent {
            self.tree.modules[parent].children.insert(place.name, index);
        }
        let (mods, items) = items.into_iter().partition(|item| matches!(item, Item::Mod(_)));
        let (parent, role, children) = (place.parent, place.role, BTreeMap::new());
        self.tree.modules.push(Module { path, parent, children, file, role, inner, items });
        for item in mods {
            if let Item::Mod(item) = item {
                self.child(file, index, role, &place.dir, item);
            }
        }
    }

    fn child(&mut self, file: usize, parent: usize, role: Role, dir: &Path, item: syn::ItemMod) {
        let name = item.ident.to_string();
        let role = if needs_test(&item.attrs) { Role::Test } else { role };
        let place = |dir: PathBuf| Place { name: name.clone(), parent: Some(parent), role, dir };
        if let Some((_, items)) = item.content {
            return self.module(file, place(dir.join(&name)), item.attrs, items);
        }
        if let Some(given) = path_attribute(&item.attrs) {
            let here = PathBuf::from(&self.tree.files[file].path);
            let path = here.parent().unwrap_or(Path::new("")).join(given);
            let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
            return self.file(&path, place(dir));
        }
        let (flat, nested) = (dir.join(format!("{name}.rs")), dir.join(&name).join("mod.rs"));
        let path = if (self.read)(&nested).is_some() { nested } else { flat };
        self.file(&path, place(dir.join(&name)));
    }
}

fn path_attribute(attrs: &[Attribute]) -> Option<String> {
    attrs.iter().find(|attr| attr.path().is_ident("path")).and_then(|attr| match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether code under these attributes is compiled for tests only: `#[test]`, or a `cfg` that cannot hold
/// otherwise.
pub(crate) fn needs_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("test")
            || (attr.path().is_ident("cfg")
                && attr.parse_args::<Meta>().is_ok_and(|cfg| cfg_needs_test(&cfg)))
    })
}

fn cfg_needs_test(cfg: &Meta) -> bool {
    let Meta::List(list) = cfg else { return cfg.path().is_ident("test") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("all") => parts.iter().any(cfg_needs_test),
        Some("any") => !parts.is_empty() && parts.iter().all(cfg_needs_test),
        _ => false,
    }
}

/// The attributes of any kind of item.
pub(crate) fn attrs_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_files_inline_modules_and_paths() {
        let tree = Tree::of(
            Role::Production,
            &[
                ("src/lib.rs", "mod a; mod b { mod c; } #[path = \"odd.rs\"] mod d;"),
                ("src/a.rs", "mod e;"),
                ("src/a/e.rs", ""),
                ("src/b/c/mod.rs", ""),
                ("src/odd.rs", ""),
            ],
        );
        let paths: Vec<&str> = tree.modules.iter().map(|module| module.path.as_str()).collect();
        assert_eq!(
            paths,
            ["crate", "crate::a", "crate::a::e", "crate::b", "crate::b::c", "crate::d"],
            "{:?}",
            tree.broken
        );
    }

    #[test]
    fn a_missing_or_broken_file_is_a_finding() {
        let tree =
            Tree::of(Role::Production, &[("src/lib.rs", "mod gone; mod bad;"), ("src/bad.rs", "fn (")]);
        let files: Vec<&str> = tree.broken.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!(files, ["src/gone.rs", "src/bad.rs"]);
    }

    #[test]
    fn only_what_cannot_exist_outside_tests_is_test_code() {
        let role_of = |cfg: &str| {
            Tree::of(Role::Production, &[("src/lib.rs", &format!("#[cfg({cfg})] mod a {{}}"))]).modules[1]
                .role
        };
        assert_eq!(role_of("test"), Role::Test);
        assert_eq!(role_of("all(test, loom)"), Role::Test);
        assert_eq!(role_of("any(test, loom)"), Role::Production);
        assert_eq!(role_of("not(test)"), Role::Production);
    }
}
