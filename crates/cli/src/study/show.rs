//! What a study shows, in the terminal and on its page.

use crate::{
    machine,
    report::page::{Figure, Grid, document, escape, table},
};

/// All that a study has to show.
pub(super) struct Show {
    /// The page's heading.
    pub(super) heading: &'static str,
    /// What was done, in a sentence or two.
    pub(super) lead: String,
    /// The drawings.
    pub(super) figures: Vec<Figure>,
    /// The tables.
    pub(super) grids: Vec<Grid>,
    /// What is to be said about them, a sentence each.
    pub(super) findings: Vec<String>,
    /// How the runs were set up: what, and how much.
    pub(super) setup: Vec<(String, String)>,
    /// The command line that repeats them.
    pub(super) command: String,
}

impl Show {
    /// The whole page.
    pub(super) fn html(&self) -> String {
        let figures: String = self.figures.iter().map(|figure| figure.html("nothing was measured")).collect();
        let grids: String = self.grids.iter().map(Grid::html).collect();
        let findings: String =
            self.findings.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
        let main = format!(
            "<h1>{heading}</h1>\n<p class=\"lead\">{lead}</p>\n\
             <h2>Findings</h2>\n<div class=\"card\">{findings}</div>\n\
             <h2>Figures</h2>\n<div class=\"grid\">\n{figures}</div>\n\
             <h2>In numbers</h2>\n<div class=\"stack\">\n{grids}</div>\n\
             <h2>What was run</h2>\n<div class=\"grid\">\n{setup}{machine}</div>\n\
             <h2>To repeat it</h2>\n<div class=\"card\"><pre>{command}</pre></div>\n\
             <footer>Written by standpipe {version}. Times are virtual; programs recorded and memory \
             measured for it differ from machine to machine.</footer>\n",
            heading = self.heading,
            lead = escape(&self.lead),
            setup = table("Set-up", &self.setup),
            machine = table("Simulated on", &machine::facts()),
            command = escape(&self.command),
            version = env!("CARGO_PKG_VERSION"),
        );
        document(self.heading, &main)
    }

    /// The tables and the findings, for a terminal.
    pub(super) fn text(&self) -> String {
        let grids: Vec<String> = self.grids.iter().map(Grid::text).collect();
        format!("{}\n{}", grids.join("\n"), self.findings.join("\n"))
    }
}

/// A row of a set-up.
pub(super) fn row(what: &str, value: impl ToString) -> (String, String) {
    (what.to_owned(), value.to_string())
}

/// How far `ours` is from what was published, in percent of that.
pub(super) fn deviation_percent(ours: f64, published: f64) -> f64 {
    100.0 * (ours / published - 1.0)
}

/// The same for a table.
pub(super) fn deviation(ours: f64, published: f64) -> String {
    format!("{:+.1} %", deviation_percent(ours, published))
}
