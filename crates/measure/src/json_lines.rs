//! What a process that this command starts tells it: one JSON object a line on its standard output.

use std::io::{self, Write};

use serde::{Serialize, de::DeserializeOwned};

/// The line as text, without its end.
///
/// # Panics
/// If it holds a map whose keys are no texts; lines are structs of numbers, texts and lists of such.
#[must_use]
pub fn encode<L: Serialize>(line: &L) -> String {
    serde_json::to_string(line).expect("numbers and strings always serialise")
}

/// Reads a line; `None` if it is something else that the process printed.
#[must_use]
pub fn decode<L: DeserializeOwned>(text: &str) -> Option<L> {
    serde_json::from_str(text).ok()
}

/// Tells the command that started this process.
///
/// # Errors
/// If it does not listen.
pub fn tell<L: Serialize>(line: &L) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", encode(line))?;
    out.flush()
}
