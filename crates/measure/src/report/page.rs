//! A report's page, and the cards on it, as HTML.

use std::{borrow::Cow, fmt::Write};

use super::plots::{self, Chart};
use crate::machine::Load;
use crate::table::{Layout, plain, wrapped};

/// A chart with the words around it.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The heading.
    pub title: Cow<'static, str>,
    /// One sentence on how to read it.
    pub note: Cow<'static, str>,
    /// The drawing.
    pub chart: Chart,
}

impl Figure {
    /// The card; `nothing` stands there instead of lines where no line has a point.
    #[must_use]
    pub fn html(&self, nothing: &str) -> String {
        let series = &self.chart.series;
        let name = |(index, series): (usize, &plots::Series)| {
            let (colour, name) = (series.colour(index), escape(&series.name));
            format!("<span><i style=\"background:{colour}\"></i>{name}</span>")
        };
        let shown = series.iter().enumerate().filter(|(_, series)| !series.points.is_empty());
        let legend: String = shown.map(name).collect();
        let drawing = if series.iter().all(|series| series.points.is_empty()) {
            format!("<p>{nothing}</p>")
        } else {
            self.chart.svg().unwrap_or_else(|error| format!("<p>not drawn: {}</p>", escape(&error)))
        };
        format!(
            "<div class=\"card\"><h3>{}</h3><p class=\"note\">{}</p><div class=\"legend\">{legend}</div>\n{drawing}</div>\n",
            self.title, self.note
        )
    }
}

/// The longest text in a column of figures, in characters.
const FIGURE_MAX: usize = 20;

/// A table with columns, for the terminal and for the page.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// The heading.
    pub title: String,
    /// Sentences under it.
    pub note: String,
    /// What the columns are.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// The card.
    #[must_use]
    pub fn html(&self) -> String {
        let (title, body) = self.parts();
        format!("<div class=\"card\"><h3>{title}</h3>{body}</div>\n")
    }

    /// A card that shows its title, and the table once that is clicked.
    #[must_use]
    pub fn folded(&self) -> String {
        let (title, body) = self.parts();
        format!("<details class=\"card\"><summary>{title}</summary>\n{body}</details>\n")
    }

    /// The title, and what stands below it.
    fn parts(&self) -> (String, String) {
        let row = |tag: &str, cells: &[String]| {
            let cell = |(column, cell): (usize, &String)| {
                let class = if self.has_words(column) { " class=\"words\"" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", escape(cell))
            };
            format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
        };
        let rows: String = self.rows.iter().map(|cells| row("td", cells)).collect();
        let header = row("th", &self.header);
        let (title, body) = (escape(&self.title), format!("<table>{header}{rows}</table>"));
        let note = match self.note.as_str() {
            "" => String::new(),
            note => format!("<p class=\"note\">{}</p>", escape(note)),
        };
        (title, format!("{note}<div class=\"wide\">{body}</div>"))
    }

    /// Whether a column is read as words, and not compared as numbers.
    fn has_words(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|cells| cells.get(column)).any(|cell| cell.chars().count() > FIGURE_MAX)
    }

    /// The same for a terminal.
    #[must_use]
    pub fn text(&self, layout: Layout) -> String {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        let mut table = plain(&header);
        table.add_rows(&self.rows);
        let note =
            if self.note.is_empty() { String::new() } else { format!("\n{}", wrapped(&self.note, layout)) };
        format!("{}\n{}{note}\n", self.title, table.text(layout))
    }
}

/// How busy the machine was when the run began, at the top of the page: as a warning where that spoils times.
#[must_use]
pub fn load(load: Option<Load>) -> String {
    let Some(load) = load else { return String::new() };
    let class = if load.is_busy() { "busy" } else { "quiet" };
    format!("<p class=\"{class}\">{}</p>\n", escape(&load.words()))
}

/// A card that shows its title, and all paragraphs below it once that is clicked.
#[must_use]
pub fn folded(title: &str, paragraphs: &[String]) -> String {
    let paragraphs: String = paragraphs.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
    format!("<details class=\"card\"><summary>{}</summary>\n{paragraphs}</details>\n", escape(title))
}

/// A card with a table of what, and how much.
#[must_use]
pub fn table(title: &str, rows: &[(String, String)]) -> String {
    let mut text = format!("<div class=\"card\"><h3>{title}</h3><table>\n");
    for (what, value) in rows {
        let class = if what.starts_with(' ') { " class=\"indent\"" } else { "" };
        writeln!(text, "<tr><td{class}>{}</td><td>{}</td></tr>", escape(what.trim()), escape(value))
            .expect("a string grows");
    }
    text + "</table></div>\n"
}

/// A whole page of what stands in its `main`.
#[must_use]
pub fn document(title: &str, main: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Standpipe: {title}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n\
         {main}</main>\n</body>\n</html>\n",
        css = include_str!("report.css"),
    )
}

/// Text as HTML: file names and command lines come from the user.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_shows_the_same_on_the_page_and_in_the_terminal() {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let grid = Grid {
            title: "Puts".to_owned(),
            note: "Below 20 %.".to_owned(),
            header: text(&["strategy", "time"]),
            rows: vec![text(&["a<b", "14.5 µs"])],
        };
        let (html, terminal) = (grid.html(), grid.text(Layout::FILE));
        for part in ["Puts", "Below 20 %.", "strategy", "14.5 µs"] {
            assert!(html.contains(part) && terminal.contains(part), "{part}: {terminal}");
        }
        assert!(html.contains("<td>a&lt;b</td>") && terminal.contains("a<b"));
    }

    #[test]
    fn the_load_is_told_and_warns_where_it_spoils_times() {
        let at = |average| load(Some(Load { average, cores: 2 }));
        assert!(at(2.1).starts_with("<p class=\"busy\">Other programs"), "{}", at(2.1));
        assert!(at(0.3).starts_with("<p class=\"quiet\">This machine was idle"), "{}", at(0.3));
        assert_eq!(load(None), "");
    }

    #[test]
    fn a_figure_without_points_says_so() {
        let chart = Chart {
            x_label: "x",
            y_label: "y",
            x_log: false,
            y_log: false,
            y_text: plots::short,
            y_max: None,
            marks: Vec::new(),
            series: Vec::new(),
        };
        let figure = Figure { title: "A".into(), note: "B".into(), chart };
        assert!(figure.html("no puts").contains("<p>no puts</p>"));
    }
}
