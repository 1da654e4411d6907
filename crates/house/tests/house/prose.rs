//! Sentences that can be read at once.
//!
//! A sentence has few words and names who acts. Read are pages, the help of the command's arguments, and the
//! messages of errors; `comment_prose` reads comments. A span of code counts as one word. Headings and code
//! between fences are no sentences.

use crate::ceilings::Count;
use crate::fields::derives;
use crate::finding::Finding;
use crate::pages::outside_code;
use crate::source::{File, Role, Tree};
use std::collections::BTreeMap;
use syn::{Attribute, Expr, ExprLit, Item, Lit, LitStr, Meta};

/// Most words of a sentence.
pub(crate) const SENTENCE_WORDS_MAX: usize = 32;

/// How a sentence begins whose subject is a clause, unless it asks.
const CLAUSES: &[&str] = &["Who ", "Whoever ", "What ", "Whatever ", "Those that ", "Of those "];

/// Derives of what clap reads, whose comments are help.
const ARGUMENTS: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Each with its line.
type Words = Vec<(usize, String)>;

/// Each page with sentences that are hard to read.
pub(crate) fn of_pages(pages: &[File]) -> Vec<Count> {
    let count = |page: &File| counted(&page.path, &paragraphs(outside_code(&page.text)));
    pages.iter().filter_map(count).collect()
}

/// Each source file with such sentences in what users are told.
pub(crate) fn of_code(tree: &Tree) -> Vec<Count> {
    let mut by_file: BTreeMap<usize, Vec<Words>> = BTreeMap::new();
    for module in tree.modules.iter().filter(|module| module.role == Role::Production) {
        by_file.entry(module.file).or_default().extend(module.items.iter().flat_map(told));
    }
    let count = |(file, told): (usize, Vec<Words>)| counted(&tree.files[file].path, &told);
    by_file.into_iter().filter_map(count).collect()
}

/// The sentences that are hard to read in lines of Markdown.
pub(crate) fn findings<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Finding> {
    judged(path, &paragraphs(lines))
}

fn judged(path: &str, paragraphs: &[Words]) -> Vec<Finding> {
    let sentences = paragraphs.iter().flat_map(|words| sentences(words));
    sentences.filter_map(|sentence| judge(path, sentence)).collect()
}

fn counted(path: &str, paragraphs: &[Words]) -> Option<Count> {
    let places = judged(path, paragraphs);
    (!places.is_empty()).then(|| Count { of: path.to_owned(), number: places.len(), places })
}

fn judge(path: &str, sentence: &[(usize, String)]) -> Option<Finding> {
    let (line, _) = sentence.first()?;
    let start: Vec<&str> = sentence.iter().take(6).map(|(_, word)| word.as_str()).collect();
    let start = start.join(" ");
    let words = sentence.iter().filter(|(_, word)| word.contains(char::is_alphanumeric)).count();
    if words > SENTENCE_WORDS_MAX {
        let what = format!("a sentence of {words} words of {SENTENCE_WORDS_MAX}: {start} …");
        return Some(Finding::new(path, *line, what, "make two of it, or a list"));
    }
    let asks = sentence.last().is_some_and(|(_, word)| word.contains('?'));
    let bare = start.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`');
    let clausal = !asks && CLAUSES.iter().any(|clause| bare.starts_with(clause));
    let what = format!("a sentence whose subject is a clause: {start} …");
    clausal.then(|| Finding::new(path, *line, what, "name who acts, and let them act"))
}

/// Parts where a word ends a sentence and the next one begins another.
fn sentences(words: &[(usize, String)]) -> impl Iterator<Item = &[(usize, String)]> {
    words.chunk_by(|(_, word), (_, next)| {
        let word = word.trim_end_matches([')', '"', '*', '_']);
        let abbreviated = ["e.g.", "i.e.", "cf.", "vs."].iter().any(|known| word.ends_with(known));
        let begins = !next.starts_with(char::is_lowercase) && next.contains(char::is_alphanumeric);
        abbreviated || !word.ends_with(['.', '!', '?']) || !begins
    })
}

/// The paragraphs, items of lists and cells of tables of lines of Markdown.
fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Words> {
    let mut found: Vec<Words> = vec![vec![]];
    for (at, line) in lines {
        let text = line.trim();
        let skipped = text.starts_with(['#', '<', '!']) || (text.starts_with('[') && text.contains("]: "));
        let (mark, after) = text.split_once(' ').unwrap_or_default();
        let numbered = mark.strip_suffix('.').is_some_and(|mark| mark.parse::<u32>().is_ok());
        let item = numbered || ["-", "*", "+"].contains(&mark);
        if text.is_empty() || skipped || item || text.starts_with('|') {
            found.push(Vec::new());
        }
        let text = if item { after } else { text };
        let words = text.split_whitespace().filter(|_| !skipped).map(|word| (at, word.to_owned()));
        found.last_mut().expect("there is one from the start").extend(words);
    }
    let joined = found.into_iter().map(join_code);
    joined
        .flat_map(|words| words.split(|(_, word)| word == "|").map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect()
}

/// Makes one word of each span of code.
fn join_code(words: Words) -> Words {
    let mut joined: Words = Vec::new();
    let mut open = false;
    for (at, word) in words {
        let ticks = word.matches('`').count();
        match joined.last_mut().filter(|_| open) {
            Some((_, before)) => *before += &format!(" {word}"),
            None => joined.push((at, word)),
        }
        open ^= ticks % 2 == 1;
    }
    joined
}

/// What an item tells users: the help of arguments, and the messages of errors.
fn told(item: &Item) -> Vec<Words> {
    let mut parts: Vec<&[Attribute]> = Vec::new();
    let attrs = match item {
        Item::Struct(item) => {
            parts.extend(item.fields.iter().map(|field| field.attrs.as_slice()));
            &item.attrs
        }
        Item::Enum(item) => {
            for variant in &item.variants {
                parts.push(&variant.attrs);
                parts.extend(variant.fields.iter().map(|field| field.attrs.as_slice()));
            }
            &item.attrs
        }
        _ => return Vec::new(),
    };
    parts.insert(0, attrs);
    let help = derives(attrs, ARGUMENTS);
    let texts =
        parts.iter().map(|attrs| attrs.iter().filter_map(|attr| text(attr, help)).collect::<Vec<_>>());
    texts.flat_map(|lines| paragraphs(lines.iter().map(|(at, line)| (*at, line.as_str())))).collect()
}

/// A line of help, or a message.
fn text(attr: &Attribute, help: bool) -> Option<(usize, String)> {
    let placed = |text: &LitStr| (text.span().start().line, text.value());
    match &attr.meta {
        Meta::NameValue(pair) if help && pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(placed(text)),
            _ => None,
        },
        Meta::List(list) if list.path.is_ident("error") => {
            let first = list.tokens.clone().into_iter().take(1).collect();
            syn::parse2(first).ok().map(|text| placed(&text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<usize> {
        let page = File { path: "docs/A.md".into(), text: text.into() };
        of_pages(&[page]).iter().flat_map(|count| &count.places).map(|place| place.line).collect()
    }

    fn code(text: &str) -> Vec<usize> {
        let tree = Tree::of(Role::Production, &[("src/lib.rs", text)]);
        assert_eq!(tree.broken, []);
        of_code(&tree).iter().flat_map(|count| &count.places).map(|place| place.line).collect()
    }

    fn sentence(words: usize) -> String {
        format!("A{}.", " word".repeat(words - 1))
    }

    #[test]
    fn a_sentence_one_word_too_long_is_counted() {
        let (fits, long) = (sentence(SENTENCE_WORDS_MAX), sentence(SENTENCE_WORDS_MAX + 1));
        assert_eq!(page(&format!("{fits} {fits}\n{long}\n")), [2]);
        let fewer = sentence(SENTENCE_WORDS_MAX - 1);
        assert_eq!(page(&format!("`some span\nof code` {fewer}")), [0; 0]);
        assert_eq!(page(&format!("- {long}\n- {fits}\n| {long} | {fits} |\n")), [1, 3]);
        assert_eq!(page(&format!("{}, e.g. A {fits}", &fits[..20])), [1]);
    }

    #[test]
    fn a_clause_as_the_subject_is_counted() {
        let text = "Who waits is woken. **Whatever** waits.\nIt waits. Those that wait are woken.\n";
        assert_eq!(page(text), [1, 2]);
        assert_eq!(page("1. Whoever waits\n2. What waits\n   wakes\n"), [1, 2]);
        assert_eq!(page("What waits? A rank, who waits. Whole ranks wait.\n"), [0; 0]);
    }

    #[test]
    fn headings_and_code_are_no_sentences() {
        let long = sentence(SENTENCE_WORDS_MAX + 1);
        assert_eq!(page(&format!("# What waits\n```\n{long}\n```\n[a]: {long}\n")), [0; 0]);
    }

    #[test]
    fn help_and_messages_are_read() {
        assert_eq!(code("/// Who waits\n#[derive(Args)]\nstruct A {\n/// What waits\na: u8 }"), [1, 4]);
        assert_eq!(
            code("#[derive(Subcommand)]\nenum A {\n/// It.\n///\n/// Who waits\nA { /// Who else\nb: u8 } }"),
            [5, 6]
        );
        assert_eq!(code("enum A {\n#[error(\"Who {0} waits\", 1)]\nA }"), [2]);
        assert_eq!(code("/// Who waits\nstruct A {\n/// What waits\na: u8 }"), [0; 0]);
    }
}
