//! How tables look in a terminal: a line under the header and nothing else, and no number parted from its
//! unit.

use std::io::{self, IsTerminal};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, TableStyle, Width, presets};
use rustix::termios::tcgetwinsize;

/// What text is laid out for. Only what prints asks a terminal for it; what lays out is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Letters in a line, at most.
    pub columns: u16,
    /// Whether words may have colours.
    pub colours: bool,
}

impl Layout {
    /// For a file, or whatever else is no terminal.
    pub const FILE: Layout = Layout { columns: 120, colours: false };

    /// For standard output: as wide as its terminal, where it is one that knows its width.
    #[must_use]
    pub fn of_stdout() -> Layout {
        let out = io::stdout();
        let size = if out.is_terminal() { tcgetwinsize(&out).ok() } else { None };
        let columns = size.map(|size| size.ws_col).filter(|columns| *columns > 0);
        Layout { columns: columns.unwrap_or(Self::FILE.columns), colours: shows_colours(&out) }
    }
}

/// Whether a stream is a terminal that shows colours, and nobody has asked for none (<https://no-color.org>).
#[must_use]
pub fn shows_colours(stream: &(impl IsTerminal + AsFd)) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_screen(stream) && !unwanted
}

/// Whether a stream is a terminal that does more than to take lines.
#[must_use]
pub fn is_screen(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb")
}

/// A table without rows.
#[must_use]
pub fn plain(header: &[&str]) -> Table {
    let mut table = comfy_table::Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    Table(table)
}

/// Sentences that stand under a table, in lines as wide as it may be. Users copy commands, which
/// stand in backticks: each is on one line, however long.
#[must_use]
pub fn wrapped(text: &str, layout: Layout) -> String {
    let whole: String = text.split('`').enumerate().fold(String::new(), |line, (index, part)| {
        let tick = if index == 0 { "" } else { "`" };
        let part = if index % 2 == 1 { part.replace(' ', GLUE) } else { part.to_owned() };
        line + tick + &part
    });
    let options = textwrap::Options::new(usize::from(layout.columns))
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let lines: Vec<String> =
        textwrap::wrap(&whole, options).iter().map(|line| line.replace(GLUE, " ")).collect();
    lines.join("\n")
}

const STYLE: TableStyle =
    presets::NOTHING.header_separator(comfy_table::LineStyle::none().fill('─').junction('─'));

/// A table whose lines break between words only, and not between a number and its unit. Columns for which
/// there is no room stand in a second table below it, beside the first column again. Only where two columns'
/// words are wider than the layout, so is the table.
#[derive(Debug, Clone)]
pub struct Table(comfy_table::Table);

impl Deref for Table {
    type Target = comfy_table::Table;

    fn deref(&self) -> &comfy_table::Table {
        &self.0
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut comfy_table::Table {
        &mut self.0
    }
}

impl Table {
    /// What it looks like.
    #[must_use]
    pub fn text(&self, layout: Layout) -> String {
        self.lines(layout).join("\n")
    }

    /// The same, line by line.
    #[must_use]
    pub fn lines(&self, layout: Layout) -> Vec<String> {
        let mut table = self.0.clone();
        table.force_no_tty().set_width(layout.columns);
        if layout.colours {
            table.enforce_styling();
        }
        if let Some(header) = table.header().map(glued_row) {
            table.set_header(header);
        }
        for row in table.row_iter_mut() {
            *row = glued_row(row);
        }
        table.discover_columns();
        let widest = |cells: &mut dyn Iterator<Item = String>| cells.map(|cell| longest_word(&cell)).max();
        let widths: Vec<u16> = (0..table.column_count())
            .map(|column| {
                let cells = table.column_cells_with_header_iter(column);
                let width = widest(&mut cells.flatten().map(Cell::content)).unwrap_or(0);
                let padding = table.column(column).map_or(0, |column| column.padding_width());
                u16::try_from(width).unwrap_or(u16::MAX).saturating_add(padding)
            })
            .collect();
        let mut lines = Vec::new();
        for columns in parts(&widths, layout.columns) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let part = with_columns(&table, &columns, &widths);
            lines.extend(part.lines().map(|line| line.replace(GLUE, " ").trim_end().to_owned()));
        }
        lines
    }
}

/// Between one column and the next.
const GAP: u16 = 1;

/// Which columns stand beside each other so that these widths fit into so many: all, or the first and some of
/// the others, in turn.
fn parts(widths: &[u16], columns: u16) -> Vec<Vec<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let mut parts = vec![vec![0]];
    let mut used = first;
    for (column, width) in widths.iter().enumerate().skip(1) {
        let width = width.saturating_add(GAP);
        let fits = used.saturating_add(width) <= columns;
        match parts.last_mut() {
            Some(part) if fits || part.len() == 1 => {
                part.push(column);
                used = used.saturating_add(width);
            }
            _ => {
                parts.push(vec![0, column]);
                used = first.saturating_add(width);
            }
        }
    }
    parts
}

/// The table with these of its columns alone, each as wide at least as it must be.
fn with_columns(table: &comfy_table::Table, columns: &[usize], widths: &[u16]) -> comfy_table::Table {
    let mut part = table.clone();
    for (at, column) in part.column_iter_mut().enumerate() {
        column.set_constraint(match columns.contains(&at) {
            true => ColumnConstraint::LowerBoundary(Width::Fixed(widths[at])),
            false => ColumnConstraint::Hidden,
        });
    }
    part
}

/// Stands for a space at which no line breaks while a table is laid out.
const GLUE: &str = "\u{a0}";

fn glued_row(row: &Row) -> Row {
    let glued = |cell: &Cell| {
        let text = cell.content();
        let glued = glued(&text);
        // What has to change nothing keeps its colour.
        if glued == text { cell.clone() } else { Cell::new(glued) }
    };
    Row::from(row.cell_iter().map(glued).collect::<Vec<Cell>>())
}

/// Units that stand after a number; and what stands before one.
const UNITS: [&str; 18] = [
    "%", "×", "ns", "us", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB", "KB/s", "MB/s", "GB/s", "KiB/s",
    "MiB/s", "GiB/s",
];
const BEFORE: [&str; 3] = ["<=", "≤", "±"];

/// The text with its numbers and units kept together, and without signs before zeros.
fn glued(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = "";
    for (index, word) in text.split(' ').enumerate() {
        let ends_in_digit = before.ends_with(|letter: char| letter.is_ascii_digit());
        let unit = UNITS.contains(&word.trim_end_matches([')', ',', '.', ';', ':']));
        if index > 0 {
            out.push_str(if ends_in_digit && unit || BEFORE.contains(&before) { GLUE } else { " " });
        }
        out.push_str(without_sign_of_zero(word));
        before = word;
    }
    out
}

/// `-0.0` is zero, however little below it was.
fn without_sign_of_zero(word: &str) -> &str {
    match word.strip_prefix(['-', '−', '+']) {
        Some(number) if number.starts_with('0') && number.bytes().all(|byte| matches!(byte, b'0' | b'.')) => {
            number
        }
        _ => word,
    }
}

fn longest_word(text: &str) -> usize {
    text.split([' ', '\n']).map(|word| word.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of terminals, small and large.
    const WIDTHS: [u16; 3] = [60, 120, 200];

    #[test]
    fn no_line_ends_in_blanks() {
        let mut table = plain(&["what", "value"]);
        table.add_row(["a", "long words"]).add_row(["b", "2"]).add_row(["c", ""]);
        let lines = table.lines(Layout::FILE);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{lines:?}");
    }

    #[test]
    fn columns_without_room_stand_below_beside_the_first() {
        assert_eq!(parts(&[5, 5, 5], 17), [vec![0, 1, 2]]);
        assert_eq!(parts(&[5, 5, 5], 16), [vec![0, 1], vec![0, 2]]);
        assert_eq!(parts(&[5, 50, 5, 5], 17), [vec![0, 1], vec![0, 2, 3]]);
        assert_eq!(parts(&[], 17), [vec![0]]);
        let mut table = plain(&["name", "apples", "pears", "plums"]);
        table.add_row(["Ada", "1", "22", "333"]).add_row(["Bob", "4", "55", "666"]);
        let narrow = table.lines(Layout { columns: 23, ..Layout::FILE });
        let rows: Vec<String> =
            narrow.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let rule = &rows[1];
        let expected = ["name apples pears", rule, "Ada 1 22", "Bob 4 55", "", "name plums"];
        assert_eq!(rows[..6], expected, "{narrow:?}");
        assert_eq!(rows[7..], ["Ada 333", "Bob 666"], "{narrow:?}");
        assert!(narrow.iter().all(|line| line.chars().count() <= 23), "{narrow:?}");
    }

    #[test]
    fn rows_are_short_and_not_ruled() {
        let mut table = plain(&["what", "value"]);
        table.add_row(["a", &"long words ".repeat(30)]).add_row(["b", "2"]);
        for columns in WIDTHS {
            let text = table.text(Layout { columns, ..Layout::FILE });
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{text}");
            assert_eq!(text.lines().filter(|line| line.contains("──")).count(), 1, "{text}");
        }
    }

    #[test]
    fn sentences_are_as_wide_as_tables() {
        for columns in WIDTHS {
            let text = wrapped(&"words of a note ".repeat(30), Layout { columns, ..Layout::FILE });
            assert!(text.lines().count() > 2 && !text.contains('─'), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{text}");
            assert_eq!(text.split_whitespace().count(), 120);
        }
    }

    #[test]
    fn what_is_to_be_copied_stands_on_a_line() {
        let command = "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`";
        for columns in [10, 60, 120] {
            let text =
                wrapped(&format!("{command} mends it, or {command}"), Layout { columns, ..Layout::FILE });
            assert_eq!(text.lines().filter(|line| line.contains(command)).count(), 2, "{text}");
            assert!(!text.contains(GLUE) && text.split_whitespace().count() == 11, "{text}");
        }
    }

    #[test]
    fn neither_names_nor_numbers_are_broken() {
        let mut table =
            plain(&["strategy", "time taken", "mean latency of a put", "deviation from the paper"]);
        table.add_row(["rendezvous-no-unpin", "14.5 µs of it", "1000.25 GB/s", "-12.5 %"]);
        table.add_row(["firehose", "2 ms", "1.5 MB/s (or so)", "−0.0 %"]);
        let text = table.text(Layout { columns: 60, ..Layout::FILE });
        for whole in ["rendezvous-no-unpin", "14.5 µs", "1000.25 GB/s", "-12.5 %", " 0.0 %", "1.5 MB/s"] {
            assert!(text.contains(whole), "{whole}:\n{text}");
        }
        assert!(!text.contains('−') && !text.contains(GLUE), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn only_units_stick_to_numbers() {
        assert_eq!(glued("4 ranks of 5 MiB, <= 7"), "4 ranks of 5\u{a0}MiB, <=\u{a0}7");
        assert_eq!(glued("+0.00 -0 -0.1 +5 - 0x0"), "0.00 0 -0.1 +5 - 0x0");
    }

    #[test]
    fn what_is_wider_than_the_terminal_stays_whole() {
        let mut table = plain(&["a", "b"]);
        table.add_row(["rendezvous-no-unpin", "a-name-as-long-as-that"]);
        let text = table.text(Layout { columns: 10, ..Layout::FILE });
        assert!(text.contains("a-name-as-long-as-that"), "{text}");
    }
}
