//! What Rust can, C can: each public method of the library stands in `rust-items.tsv`, with its C function.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use support::here;

/// Types that the library exports by name, whose methods are for Rust alone: bodies of traits, what tasks
/// poll, and what reads a job from outside.
const RUST_ALONE: [&str; 5] = ["BuiltIn", "Next", "Located", "Until", "UnmetSignal"];

/// Each `pub fn` in a plain `impl` of a type that is exported by name, in a folder's sources.
fn methods(folder: &Path, exported: &BTreeSet<String>, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("there are sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            methods(&path, exported, into);
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("it can be read");
        for item in syn::parse_file(&source).expect("it is Rust").items {
            let syn::Item::Impl(block) = item else { continue };
            let syn::Type::Path(of) = &*block.self_ty else { continue };
            let name = of.path.segments.last().expect("a path has a name").ident.to_string();
            if block.trait_.is_some() || !exported.contains(&name) {
                continue;
            }
            for item in block.items {
                if let syn::ImplItem::Fn(method) = item
                    && matches!(method.vis, syn::Visibility::Public(_))
                {
                    into.insert(format!("{name}::{}", method.sig.ident));
                }
            }
        }
    }
}

/// The names that the library's root exports from `api`, and of pointers, names and statistics.
fn exported() -> BTreeSet<String> {
    let root = std::fs::read_to_string(here("../../src/lib.rs")).expect("the library is there");
    let uses = root.lines().filter_map(|line| line.strip_prefix("pub use "));
    let wanted = uses.filter(|path| {
        ["api::", "base::", "counters::", "job::"].iter().any(|floor| path.starts_with(floor))
    });
    let names = wanted.flat_map(|path| {
        let last = path.trim_end_matches(';').rsplit("::").next().unwrap_or("").trim_matches(['{', '}']);
        last.split(", ").map(str::to_owned).collect::<Vec<_>>()
    });
    let errors = |name: &String| name.ends_with("Error") || *name == "Code";
    let mut all: BTreeSet<String> = names.filter(|name| !errors(name)).collect();
    all.insert("Rendezvous".into());
    all.retain(|name| !RUST_ALONE.contains(&&**name));
    all
}

#[test]
fn each_method_has_its_function_or_a_reason() {
    let table = std::fs::read_to_string(here("rust-items.tsv")).expect("the table is there");
    let rows: BTreeMap<&str, &str> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let mut found = BTreeSet::new();
    methods(&here("../../src"), &exported(), &mut found);
    assert!(found.len() > 250, "{} methods", found.len());
    let listed: BTreeSet<String> = rows.keys().map(|name| (*name).to_owned()).collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in the table: {missing:?}; only there: {gone:?}");
    let header = std::fs::read_to_string(here("include/standpipe.h")).expect("the header is there");
    for (method, function) in rows {
        let is_there = header.contains(&format!(" {function}(")) || header.contains(&format!("*{function}("));
        assert!(function.len() > 3 && (function.starts_with('-') || is_there), "{method}: {function}");
    }
}
