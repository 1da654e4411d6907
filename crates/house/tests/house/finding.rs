//! What every house check reports: a place, what is wrong there, and what to do about it.

use std::fmt;

/// One broken house rule, printed as `file:line: what; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path from the workspace's root.
    pub(crate) file: String,
    /// 1-based; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
    /// What its author should do.
    pub(crate) remedy: String,
}

impl Finding {
    /// A finding at `file:line`.
    pub(crate) fn new(file: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { file: file.into(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}; {}", self.file, self.line, self.what, self.remedy)
    }
}

/// Fails the calling test with one line per finding.
#[track_caller]
pub(crate) fn assert_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} house rule(s) broken:\n{}\n", lines.len(), lines.join("\n"));
}
