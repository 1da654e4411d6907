//! What a process that this command starts tells it: one JSON object a line on its standard output.

use std::io::{self, Write};

use serde::{Serialize, de::DeserializeOwned};

/// The line as text, without its end.
///
/// # Panics
/// If it holds a map whose keys are no texts; lines are structs of numbers, texts and lists of such.
#[must_use]
pub(crate) fn encode<L: Serialize>(line: &L) -> String {
    serde_json::to_string(line).expect("numbers and strings always serialise")
}

/// Reads a line; `None` if it is something else that the process printed.
#[must_use]
pub(crate) fn decode<L: DeserializeOwned>(text: &str) -> Option<L> {
    serde_json::from_str(text).ok()
}

/// Tells the command that started this process.
///
/// # Errors
/// If it does not listen.
pub(crate) fn tell<L: Serialize>(line: &L) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", encode(line))?;
    out.flush()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Debug;

    use super::*;

    /// What is said arrives, on one line each, and is told apart from what is no line.
    pub(crate) fn survive<L: Serialize + DeserializeOwned + PartialEq + Debug>(lines: Vec<L>) {
        for line in lines {
            let text = encode(&line);
            assert!(!text.contains('\n'), "{text:?}");
            assert_eq!(decode(&text), Some(line));
        }
        assert_eq!(decode::<L>("thread 'main' panicked"), None);
    }
}
