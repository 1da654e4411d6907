//! How long and how wide pages are.

use crate::ceilings::Count;
use crate::finding::Finding;
use crate::source::File;
use crate::workspace::root;

/// Most lines of a page.
pub(crate) const PAGE_LINES_MAX: usize = 150;
/// Widest line of a page, in columns, apart from tables, code and where links lead.
pub(crate) const PAGE_COLUMNS_MAX: usize = 110;

/// The readme and what lies in `docs`.
pub(crate) fn load() -> Vec<File> {
    let entries = std::fs::read_dir(root().join("docs")).expect("the workspace has a folder of pages");
    let names = entries.flatten().map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    let mut paths: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    paths.push("README.md".into());
    paths.sort();
    paths.into_iter().map(page).collect()
}

/// One page.
pub(crate) fn page(path: String) -> File {
    let text = std::fs::read_to_string(root().join(&path)).expect("pages are text that can be read");
    File { path, text }
}

/// Each page that is too long.
pub(crate) fn long(pages: &[File]) -> Vec<Count> {
    let lines = pages.iter().map(|page| (page, page.text.lines().count()));
    lines
        .filter(|(_, lines)| *lines > PAGE_LINES_MAX)
        .map(|(page, number)| {
            let what = format!("{number} lines of at most {PAGE_LINES_MAX}");
            let place = Finding::new(&page.path, PAGE_LINES_MAX + 1, what, "make two pages of it");
            Count { of: page.path.clone(), number, places: vec![place] }
        })
        .collect()
}

/// Each page with lines that are too wide, and how many it has.
pub(crate) fn wide(pages: &[File]) -> Vec<Count> {
    let count = |page: &File| {
        let lines = outside_code(&page.text).filter(|(_, line)| !line.starts_with('|'));
        let wide =
            lines.map(|(at, line)| (at, columns(line))).filter(|(_, columns)| *columns > PAGE_COLUMNS_MAX);
        let places: Vec<Finding> = wide
            .map(|(at, columns)| {
                let what = format!("{columns} columns of at most {PAGE_COLUMNS_MAX}");
                Finding::new(&page.path, at, what, "wrap it")
            })
            .collect();
        Count { of: page.path.clone(), number: places.len(), places }
    };
    pages.iter().map(count).filter(|count| count.number > 0).collect()
}

/// A page's lines and their numbers, without what stands between code fences.
pub(crate) fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    outside_code_of(text.lines().enumerate().map(|(at, line)| (at + 1, line)))
}

/// The same of lines that have their numbers.
pub(crate) fn outside_code_of<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut fenced = false;
    lines.filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// How wide a line is, without where its links lead.
fn columns(line: &str) -> usize {
    if line.contains("://") || (line.starts_with('[') && line.contains("]: ")) {
        return 0;
    }
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().chars().count();
    first
        + parts
            .map(|part| 2 + part.split_once(')').map_or(part, |(_, rest)| rest).chars().count())
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> [File; 1] {
        [File { path: "docs/A.md".into(), text: text.into() }]
    }

    fn wide_lines(text: &str) -> Vec<usize> {
        wide(&of(text)).iter().flat_map(|count| &count.places).map(|place| place.line).collect()
    }

    #[test]
    fn a_page_one_line_too_long_is_counted() {
        assert!(long(&of(&"a\n".repeat(PAGE_LINES_MAX))).is_empty());
        let counts = long(&of(&"a\n".repeat(PAGE_LINES_MAX + 1)));
        assert_eq!((counts.len(), counts[0].number), (1, PAGE_LINES_MAX + 1));
    }

    #[test]
    fn a_line_one_column_too_wide_is_counted() {
        let fits = "é".repeat(PAGE_COLUMNS_MAX);
        assert_eq!(wide_lines(&format!("{fits}\n{fits}a\n")), [2]);
    }

    #[test]
    fn tables_code_and_where_links_lead_are_left_alone() {
        let wide = "word ".repeat(PAGE_COLUMNS_MAX);
        assert_eq!(wide_lines(&format!("| {wide} |\n```sh\n{wide}\n```\n[a]: {wide}\n")), [0; 0]);
        assert_eq!(wide_lines(&format!("A [page]({wide}) that ends here.\n")), [0; 0]);
        assert_eq!(wide_lines(&format!("A [page](a.md) and {wide}\n")), [1]);
    }
}
