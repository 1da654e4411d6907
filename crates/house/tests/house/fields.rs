//! How many fields a struct may have.
//!
//! What others lay out may have more: C's structs, what clap and serde fill in or read out, and the settings.

use crate::ceilings::Count;
use crate::finding::Finding;
use crate::source::Tree;
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, ItemStruct, Meta, Token};

/// Most fields of a struct.
pub(crate) const FIELDS_MAX: usize = 15;

/// A struct that derives one of these has the fields of what it reads or writes.
const ROWS: &[&str] = &["Args", "Parser", "Subcommand", "Serialize", "Deserialize"];

/// Structs that have a field for each thing a user may set.
const SETTINGS: &[&str] = &["Config"];

/// Each struct with too many fields.
pub(crate) fn count(tree: &Tree) -> Vec<Count> {
    let mut counts = Vec::new();
    for module in &tree.modules {
        let file = &tree.files[module.file].path;
        let structs = module.items.iter().filter_map(|item| match item {
            Item::Struct(item) => Some(item),
            _ => None,
        });
        counts.extend(structs.filter(|item| item.fields.len() > FIELDS_MAX && !is_free(item)).map(|item| {
            let (name, number) = (&item.ident, item.fields.len());
            let what = format!("struct {name} has {number} fields of at most {FIELDS_MAX}");
            let place = Finding::new(
                file,
                name.span().start().line,
                what,
                "make types of those that belong together",
            );
            Count { of: format!("{file} {name}"), number, places: vec![place] }
        }));
    }
    counts
}

fn is_free(item: &ItemStruct) -> bool {
    SETTINGS.iter().any(|name| item.ident == name)
        || listed(&item.attrs, "repr").any(|name| name == "C")
        || derives(&item.attrs, ROWS)
}

/// Whether an item with these attributes derives any of these traits.
pub(crate) fn derives(attrs: &[Attribute], traits: &[&str]) -> bool {
    listed(attrs, "derive").any(|name| traits.contains(&name.as_str()))
}

/// The last names of the paths that attributes of this name list.
fn listed(attrs: &[Attribute], attribute: &str) -> impl Iterator<Item = String> {
    let lists = attrs.iter().filter(move |attr| attr.path().is_ident(attribute));
    let parts = lists.flat_map(|attr| {
        attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    });
    parts.filter_map(|part| part.path().segments.last().map(|last| last.ident.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Role;

    fn counted(head: &str, fields: usize) -> Vec<(String, usize)> {
        let fields: String = (0..fields).map(|field| format!("f{field}: u8,")).collect();
        let tree = Tree::of(Role::Production, &[("src/lib.rs", &format!("{head} {{ {fields} }}"))]);
        assert_eq!(tree.broken, []);
        count(&tree).into_iter().map(|count| (count.of, count.number)).collect()
    }

    #[test]
    fn a_struct_with_a_field_too_many_is_counted() {
        assert_eq!(counted("struct A", FIELDS_MAX), []);
        let many = FIELDS_MAX + 1;
        assert_eq!(counted("#[derive(Debug)] struct A", many), [("src/lib.rs A".into(), many)]);
    }

    #[test]
    fn what_others_lay_out_is_not() {
        for head in [
            "#[repr(C, align(64))] struct A",
            "#[derive(Debug, clap::Args)] struct A",
            "#[derive(Serialize)] struct A",
            "struct Config",
        ] {
            assert_eq!(counted(head, FIELDS_MAX + 1), [], "{head}");
        }
    }
}
