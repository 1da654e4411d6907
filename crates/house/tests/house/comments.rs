//! Comments are as wide as code.
//!
//! rustfmt wraps code and leaves comments alone. A comment that cannot be wrapped may be wider: a row of a
//! table, what stands between code fences, a drawing, a link's definition, and a line with a URL.

use crate::finding::Finding;
use crate::source::{File, Tree};
use proc_macro2::{TokenStream, TokenTree};

/// Widest line of a comment, in columns: `max_width` of rustfmt.toml.
pub(crate) const COMMENT_COLUMNS_MAX: usize = 110;

/// Each line that ends in a comment and is too wide.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(wide).collect()
}

fn wide(file: &File) -> Vec<Finding> {
    let is_wide = |line: &str| line.contains("//") && line.chars().count() > COMMENT_COLUMNS_MAX;
    if !file.text.lines().any(is_wide) {
        return Vec::new();
    }
    let literals = literals(&file.text);
    let (mut findings, mut fenced) = (Vec::new(), false);
    for (at, line) in file.text.lines().enumerate() {
        let Some(text) = comment(line, at + 1, &literals) else {
            fenced = false;
            continue;
        };
        let fence = text.starts_with("```");
        fenced ^= fence;
        if is_wide(line) && !fenced && !fence && !stays(text) {
            let what = format!("a comment of {} columns of {COMMENT_COLUMNS_MAX}", line.chars().count());
            findings.push(Finding::new(&file.path, at + 1, what, "wrap it"));
        }
    }
    findings
}

/// Whether nobody can wrap this line of a comment.
fn stays(text: &str) -> bool {
    let drawn = |c: char| ('\u{2500}'..='\u{259f}').contains(&c);
    let defines_link = text.starts_with('[') && text.contains("]: ");
    text.starts_with('|')
        || defines_link
        || text.contains("://")
        || text.contains("   ")
        || text.contains(drawn)
}

/// What the comment at the end of a line says.
fn comment<'a>(line: &'a str, number: usize, literals: &[Literal]) -> Option<&'a str> {
    let mut starts = line.match_indices("//").map(|(at, _)| at);
    let quoted = |at: usize| {
        let column = line[..at].chars().count();
        literals.iter().any(|(start, end)| *start <= (number, column) && (number, column) < *end)
    };
    let start = starts.find(|at| !quoted(*at))?;
    Some(line[start..].trim_start_matches(['/', '!']).trim())
}

/// From its first line and column up to its end.
pub(crate) type Literal = ((usize, usize), (usize, usize));

/// The strings and characters of a source file, which may hold what only looks like a comment.
pub(crate) fn literals(text: &str) -> Vec<Literal> {
    let lines: Vec<&str> = text.lines().collect();
    let mut literals = Vec::new();
    collect(text.parse().unwrap_or_default(), &mut literals);
    // The text of a doc comment is a literal, too, whose place is the comment's.
    literals.retain(|((line, column), _)| lines[line - 1].chars().nth(*column) != Some('/'));
    literals
}

fn collect(tokens: TokenStream, literals: &mut Vec<Literal>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), literals),
            TokenTree::Literal(literal) => {
                let span = literal.span();
                let [start, end] = [span.start(), span.end()].map(|place| (place.line, place.column));
                literals.push((start, end));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Role;

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::of(Role::Production, &[("src/lib.rs", text)]);
        assert_eq!(tree.broken, []);
        check(&tree).iter().map(|finding| finding.line).collect()
    }

    fn words(columns: usize) -> String {
        "word ".repeat(columns)[..columns - 1].to_owned() + "."
    }

    #[test]
    fn a_comment_one_column_too_wide_is_found() {
        let after = words(COMMENT_COLUMNS_MAX - 3);
        assert_eq!(lines(&format!("// {after}\n")), [0; 0]);
        assert_eq!(lines(&format!("//! {after}\n/// {after}\nfn f() {{\n    // {after}\n}}\n")), [1, 2, 4]);
    }

    #[test]
    fn a_trailing_comment_is_found_and_a_string_is_none() {
        let after = words(COMMENT_COLUMNS_MAX);
        assert_eq!(lines(&format!("const A: u8 = 1; // {after}\n")), [1]);
        assert_eq!(lines(&format!("const A: &str = \"a // {after}\";\n")), [0; 0]);
        assert_eq!(
            lines(&format!("const A: &str = \"\\\n// {after}\";\nconst B: &str = \"//\"; // {after}\n")),
            [3]
        );
    }

    #[test]
    fn what_cannot_be_wrapped_is_left_alone() {
        let after = words(COMMENT_COLUMNS_MAX);
        for text in [
            format!("// | a | {after} |\n"),
            format!("/// ```\n/// {after}\n/// ```\nfn f() {{}}\n"),
            format!("//! [a]: {after}\n"),
            format!("// https://example.org/ {after}\n"),
            format!("// ───▶ {after}\n"),
            format!("// a    b {after}\n"),
        ] {
            assert_eq!(lines(&text), [0; 0], "{text}");
        }
        assert_eq!(lines(&format!("/// ```\n/// a\n/// ```\n/// {after}\nfn f() {{}}\n")), [4]);
    }
}
