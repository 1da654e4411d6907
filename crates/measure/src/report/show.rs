//! What a study shows, in the terminal and on its page, and what its JSON says of how it came about.

use anyhow::Result;
use serde::Serialize;

use crate::{
    machine::{self, Load},
    report::{
        output::Output,
        page::{Figure, Grid, document, escape, folded, load, table},
    },
    table::{self, Layout},
};

/// The simulator's costs that a study ran by.
#[derive(Debug, Clone)]
pub struct CostFile {
    /// The file, by the name that `standpipe-study sim --costs` takes.
    pub file: &'static str,
    /// What the costs are of.
    pub name: String,
}

/// All that a study has to show.
pub struct Show {
    /// The page's heading.
    pub heading: &'static str,
    /// What was done, in a sentence or two.
    pub lead: String,
    /// What came out, three lines at most.
    pub summary: Vec<String>,
    /// The drawings.
    pub figures: Vec<Figure>,
    /// The tables.
    pub grids: Vec<Grid>,
    /// Rows of numbers behind the drawings, on the page alone: folded, and last. Where there are any, the
    /// other tables stand before the drawings, as readers look for them first.
    pub numbers: Vec<Grid>,
    /// What is to be said about them beyond the summary, a sentence each.
    pub findings: Vec<String>,
    /// What takes longer to say: a question, and its answer's paragraphs. It is on the page only.
    pub explanations: Vec<(&'static str, Vec<String>)>,
    /// What everything costs in virtual time; `None`: all times are this machine's.
    pub costs: Option<CostFile>,
    /// What decided random numbers; `None`: no option does.
    pub seed: Option<u64>,
    /// How the runs were set up besides: what, and how much.
    pub setup: Vec<(String, String)>,
    /// The command line that repeats them.
    pub command: String,
    /// Files that go beside the report: names and texts.
    pub beside: Vec<(&'static str, String)>,
}

const VIRTUAL: &str = "Times are virtual: the costs decide them, not this machine. What programs put where, and how much \
                       memory simulating took, is this machine’s.";
const LIVE: &str = "Times are this machine’s, but those that are called predicted: they are the simulator’s, with the \
                    costs that were measured here.";
const REAL: &str = "Times are this machine’s.";

/// A study's result with where it came from.
#[derive(Debug, Serialize)]
struct Told<'a, R> {
    standpipe_version: &'static str,
    command: &'a str,
    /// The file of costs, if there are any.
    costs: Option<&'static str>,
    seed: Option<u64>,
    #[serde(flatten)]
    result: &'a R,
}

impl Show {
    /// Writes the page and the result, and prints one of them.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn deliver(&self, output: &Output<'_>, result: &impl Serialize) -> Result<()> {
        let told = Told {
            standpipe_version: env!("CARGO_PKG_VERSION"),
            command: &self.command,
            costs: self.costs.as_ref().map(|costs| costs.file),
            seed: self.seed,
            result,
        };
        output.deliver_with(&self.html(), &self.text(Layout::of_stdout()), &told, &self.beside)
    }

    /// The whole page.
    fn html(&self) -> String {
        let figures: String = self.figures.iter().map(|figure| figure.html("nothing was measured")).collect();
        let grids: String = self.grids.iter().map(Grid::html).collect();
        let numbers: String = self.numbers.iter().map(Grid::folded).collect();
        let lines = |texts: &[String], tag: &str| -> String {
            texts.iter().map(|text| format!("<{tag}>{}</{tag}>\n", escape(text))).collect()
        };
        let explanations: String =
            self.explanations.iter().map(|(question, answer)| folded(question, answer)).collect();
        let drawings = format!("<h2>Figures</h2>\n<div class=\"grid\">\n{figures}</div>\n");
        let tables = format!("<h2>In numbers</h2>\n<div class=\"stack\">\n{grids}</div>\n");
        let shown = match self.numbers[..] {
            [] => drawings + &tables,
            _ => format!("<div class=\"stack first\">\n{grids}</div>\n{drawings}"),
        };
        let behind = match self.numbers[..] {
            [] => String::new(),
            _ => format!("<h2>All numbers</h2>\n<div class=\"stack\">\n{numbers}</div>\n"),
        };
        let main = format!(
            "<h1>{heading}</h1>\n{load}<p class=\"lead\">{lead}</p>\n\
             <ul class=\"summary\">\n{summary}</ul>\n{shown}\
             {findings}{behind}\
             <h2>What was run</h2>\n<div class=\"grid\">\n{setup}{machine}</div>\n\
             <h2>To repeat it</h2>\n<div class=\"card\"><pre>{command}</pre></div>\n\
             <footer>Written by standpipe {version}. {times}</footer>\n",
            heading = self.heading,
            load = load(self.load()),
            lead = escape(&self.lead),
            summary = lines(&self.summary, "li"),
            findings = self.findings_html(&lines(&self.findings, "p"), &explanations),
            setup = table("Set-up", &self.all_setup()),
            machine = table(if self.is_live() { "Measured on" } else { "Simulated on" }, &machine::facts()),
            command = escape(&self.command),
            version = env!("CARGO_PKG_VERSION"),
            times = match (&self.costs, self.is_live()) {
                (None, _) => REAL,
                (Some(_), true) => LIVE,
                (Some(_), false) => VIRTUAL,
            },
        );
        document(self.heading, &main)
    }

    fn findings_html(&self, findings: &str, explanations: &str) -> String {
        let card = match findings {
            "" => String::new(),
            _ => format!("<div class=\"card\">{findings}</div>\n"),
        };
        match (findings, explanations) {
            ("", "") => String::new(),
            _ => format!("<h2>Findings</h2>\n<div class=\"stack\">\n{card}{explanations}</div>\n"),
        }
    }

    /// How busy the machine was when the study began, where times are of this machine.
    fn load(&self) -> Option<Load> {
        Load::before().filter(|_| self.is_live())
    }

    /// Whether times are of this machine.
    fn is_live(&self) -> bool {
        self.costs.as_ref().is_none_or(|costs| costs.file == MEASURED)
    }

    fn all_setup(&self) -> Vec<(String, String)> {
        let costs = self.costs.iter().map(|costs| row("costs", format!("{} ({})", costs.file, costs.name)));
        let mut rows: Vec<(String, String)> = costs.collect();
        rows.extend(self.seed.map(|seed| row("seed", seed)));
        rows.extend(self.setup.iter().cloned());
        rows
    }

    /// The tables, the summary and the findings, for a terminal.
    fn text(&self, layout: Layout) -> String {
        let grids: Vec<String> = self.grids.iter().map(|grid| grid.text(layout)).collect();
        let said: Vec<&str> = self.summary.iter().chain(&self.findings).map(String::as_str).collect();
        let load =
            self.load().map_or_else(String::new, |load| table::wrapped(&load.words(), layout) + "\n\n");
        format!("{load}{}\n{}", grids.join("\n"), said.join("\n"))
    }
}

/// The file of costs that were measured.
pub const MEASURED: &str = "costs.toml";

/// A row of a set-up.
pub fn row(what: &str, value: impl ToString) -> (String, String) {
    (what.to_owned(), value.to_string())
}

/// How far `ours` is from what was published, in percent of that.
pub fn deviation_percent(ours: f64, published: f64) -> f64 {
    100.0 * (ours / published - 1.0)
}

/// The same for a table: in percent, or how many times as much where that says more.
pub fn deviation(ours: f64, published: f64) -> String {
    match deviation_percent(ours, published) {
        off if off >= 100.0 => format!("{:.1}\u{a0}×", ours / published),
        // No zero has a minus.
        off if off.abs() < 0.05 => "0.0\u{a0}%".to_owned(),
        off => format!("{off:+.1}\u{a0}%"),
    }
}

/// The same for a sentence, which goes on with what was published: `28 % less than`.
pub fn beside(ours: f64, published: f64) -> String {
    match deviation_percent(ours, published) {
        off if off >= 100.0 => format!("{:.1} times", ours / published),
        off if off < 0.0 => format!("{:.1} % less than", -off),
        off => format!("{off:.1} % more than"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_say_of_what_they_are() {
        assert_eq!(deviation(12_050.0, 522.0), "23.1\u{a0}×");
        assert_eq!(
            [(99.0, 100.0), (99.99, 100.0)].map(|(a, b)| deviation(a, b)),
            ["-1.0\u{a0}%", "0.0\u{a0}%"]
        );
        let said =
            [(12_050.0, 522.0), (72.0, 100.0), (104.0, 100.0)].map(|(ours, paper)| beside(ours, paper));
        assert_eq!(said, ["23.1 times", "28.0 % less than", "4.0 % more than"]);
    }
}
