//! How tables look in a terminal: a line under the header and nothing else.

use comfy_table::{ContentArrangement, Table, TableStyle, presets};

/// A table without rows, as wide as the terminal at most; 120 letters where there is none, or none that knows its width.
#[must_use]
pub fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    if table.width().is_none_or(|letters| letters == 0) {
        table.set_width(WIDTH);
    }
    table
}

const WIDTH: u16 = 120;
const STYLE: TableStyle =
    presets::NOTHING.header_separator(comfy_table::LineStyle::none().fill('─').junction('─'));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_short_and_not_ruled() {
        let mut table = plain(&["what", "value"]);
        table.add_row(["a", &"long words ".repeat(30)]).add_row(["b", "2"]);
        let text = table.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        assert_eq!(
            text.matches("──").count() > 0,
            text.lines().filter(|line| line.contains('─')).count() == 1
        );
    }
}
