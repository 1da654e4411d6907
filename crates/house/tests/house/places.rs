//! Whether the table "Where to look" names what there is.
//!
//! Text between backquotes is a path if it has a slash or ends in `.rs`: from the root, or from a folder of
//! the path before it in the row. A word in capitals is a constant of some file that the row names.

use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::source::File;

/// What is wrong with the table of a page, whose paths begin at `root`.
pub(crate) fn check(root: &Path, page: &File) -> Vec<Finding> {
    let lines = (1..).zip(page.text.lines());
    let table = lines.skip_while(|(_, line)| *line != "## Where to look");
    let rows = table.skip(1).take_while(|(_, line)| !line.starts_with("## "));
    rows.filter(|(_, line)| line.starts_with('|'))
        .flat_map(|(at, row)| {
            let report = move |what| Finding::new(&page.path, at, what, "name what there is");
            missing(root, row).into_iter().map(report)
        })
        .collect()
}

/// What is wrong with the table "Versions" of a page: a row names a constant, its file, and its value.
pub(crate) fn versions(root: &Path, page: &File) -> Vec<Finding> {
    let lines = (1..).zip(page.text.lines()).skip_while(|(_, line)| *line != "## Versions");
    let rows = lines.filter(|(_, line)| line.starts_with("| `"));
    rows.filter_map(|(at, row)| {
        let spans: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [constant, file, value] = spans[..] else { panic!("a constant, a file and a value: {row}") };
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let start = format!("const {constant}: ");
        let declared = text.lines().find(|line| line.contains(&start));
        let is_so = declared.is_some_and(|line| line.ends_with(&format!(" = {value};")));
        let what = format!("{constant} of {file} is not {value}");
        (!is_so).then(|| Finding::new(&page.path, at, what, "write what it is"))
    })
    .collect()
}

fn missing(root: &Path, row: &str) -> Vec<String> {
    let (mut named, mut constants, mut missing) = (Vec::<PathBuf>::new(), Vec::new(), Vec::new());
    for span in row.split('`').skip(1).step_by(2) {
        if span.contains('/') || span.ends_with(".rs") {
            let before = named.last().into_iter().flat_map(|path| path.ancestors());
            let places = before.map(|folder| folder.join(span)).chain([root.join(span)]);
            match places.filter(|place| place.starts_with(root)).find(|place| place.exists()) {
                Some(place) => named.push(place),
                None => missing.push(format!("there is no {span}")),
            }
        } else if span.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_') {
            constants.push(span);
        }
    }
    for constant in constants {
        let declared = format!("const {constant}:");
        if !named.iter().any(|path| declares(path, &declared)) {
            missing.push(format!("no file that the row names has the constant {constant}"));
        }
    }
    missing
}

/// Whether a file, or one of a folder's, has this text.
fn declares(path: &Path, declared: &str) -> bool {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().any(|entry| declares(&entry.path(), declared)),
        Err(_) => std::fs::read_to_string(path).is_ok_and(|text| text.contains(declared)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    #[test]
    fn what_is_not_there_is_found() {
        let text = "`nowhere.rs` is read in the table alone\n## Where to look\n\n| to change | look in |\n\
            | paths | `crates/house/tests/house/places.rs`, `pages.rs` and `PAGE_LINES_MAX`, `fn` |\n\
            | a lost path | `crates/house/tests/house`, `gone.rs`, `src/gone` |\n\
            | a lost constant | `crates/house/tests/house/pages.rs`, `GONE_MAX` |\n\
            ## Next\n| `gone.rs` |\n";
        let page = File { path: "page.md".into(), text: text.into() };
        let file = "crates/house/tests/house/pages.rs";
        let of = |value| File {
            path: "page.md".into(),
            text: format!("## Versions\n| `PAGE_LINES_MAX` | `{file}` | `{value}` |\n"),
        };
        assert!(versions(root(), &of("150")).is_empty());
        assert_eq!(versions(root(), &of("50")).len(), 1);
        let found: Vec<_> =
            check(root(), &page).iter().map(|found| (found.line, found.what.clone())).collect();
        let lost = "no file that the row names has the constant GONE_MAX".to_owned();
        assert_eq!(
            found,
            [(6, "there is no gone.rs".to_owned()), (6, "there is no src/gone".to_owned()), (7, lost)]
        );
    }
}
