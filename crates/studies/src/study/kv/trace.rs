//! Mooncake's request traces: one JSON object a line, as published with the Mooncake paper (Qin et al., FAST
//! 2025).

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use serde::{Deserialize, Serialize};

/// Tokens in one block of the cache; a request has one hash id for each block it touches, the last one partly
/// full.
pub(crate) const BLOCK_TOKENS: u32 = 512;

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Arrival, in milliseconds since the trace began.
    #[serde(rename = "timestamp")]
    pub arrival_ms: u64,
    /// Tokens of the prompt.
    #[serde(rename = "input_length")]
    pub input_tokens: u32,
    /// Tokens of the answer.
    #[serde(rename = "output_length")]
    pub output_tokens: u32,
    /// The blocks of the prompt in order. Equal ids are equal blocks; an id stands for everything before it
    /// too.
    pub hash_ids: Vec<u64>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// The file could not be opened or read.
    #[error("reading {file}")]
    Io {
        /// The file as the user named it.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not a request.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file as the user named it.
        file: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no request in the file.
    #[error("{file}: holds no request")]
    Empty {
        /// The file as the user named it.
        file: String,
    },
}

/// Reads a whole trace file.
///
/// # Errors
/// [`TraceError`], naming the file and the first bad line.
pub(crate) fn read(path: &Path) -> Result<Vec<Request>, TraceError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| TraceError::Io { file: name.clone(), source })?;
    parse(&name, BufReader::new(file))
}

/// Reads a trace from `lines`; `name` is what errors call it. Blank lines are skipped.
///
/// # Errors
/// [`TraceError`], naming the first bad line.
pub(crate) fn parse(name: &str, lines: impl BufRead) -> Result<Vec<Request>, TraceError> {
    let mut requests: Vec<Request> = Vec::new();
    for (index, line) in lines.lines().enumerate() {
        let line = line.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => TraceError::Line {
                file: name.to_owned(),
                line: index + 1,
                reason: "is no text: is it compressed?".to_owned(),
            },
            _ => TraceError::Io { file: name.to_owned(), source },
        })?;
        if line.trim().is_empty() {
            continue;
        }
        let earliest_ms = requests.last().map_or(0, |last| last.arrival_ms);
        let request = parse_line(&line, earliest_ms).map_err(|reason| TraceError::Line {
            file: name.to_owned(),
            line: index + 1,
            reason,
        })?;
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(TraceError::Empty { file: name.to_owned() });
    }
    Ok(requests)
}

fn parse_line(line: &str, earliest_ms: u64) -> Result<Request, String> {
    // serde_json counts "line 1" within this one line; only the column means anything to the reader.
    let request: Request = serde_json::from_str(line).map_err(|error| {
        let text = error.to_string();
        match text.rsplit_once(" at line ") {
            Some((reason, _)) if error.is_data() => format!("{reason} (column {})", error.column()),
            Some((reason, _)) => {
                format!("it is no JSON, as each line of a trace is: {reason} in column {}", error.column())
            }
            None => text,
        }
    })?;
    let blocks = request.input_tokens.div_ceil(BLOCK_TOKENS) as usize;
    if request.hash_ids.is_empty() {
        return Err("a request without hash_ids".to_owned());
    }
    if request.hash_ids.len() != blocks {
        return Err(format!(
            "{} hash_ids, but {} tokens are {blocks} blocks of {BLOCK_TOKENS}",
            request.hash_ids.len(),
            request.input_tokens
        ));
    }
    if request.arrival_ms < earliest_ms {
        return Err(format!(
            "arrives at {} ms, before the line above ({earliest_ms} ms)",
            request.arrival_ms
        ));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"timestamp": 7, "input_length": 600, "output_length": 3, "hash_ids": [0, 9]}"#;

    fn reason(text: &str) -> String {
        parse("t.jsonl", text.as_bytes()).expect_err("the text is bad").to_string()
    }

    #[test]
    fn a_request_survives_reading_and_writing() {
        let requests = parse("t.jsonl", format!("{GOOD}\n\n{GOOD}\n").as_bytes()).expect("two good lines");
        assert_eq!(requests.len(), 2);
        assert_eq!(
            requests[0],
            Request { arrival_ms: 7, input_tokens: 600, output_tokens: 3, hash_ids: vec![0, 9] }
        );
        let again = serde_json::to_string(&requests[1]).expect("plain data");
        assert_eq!(parse("t.jsonl", again.as_bytes()).expect("what we wrote"), requests[1..]);
    }

    #[test]
    fn a_bad_line_is_named_with_its_reason() {
        assert!(reason(&format!("{GOOD}\n{{\"timestamp\": 7}}")).starts_with("t.jsonl:2: missing field"));
        assert!(reason("nonsense").starts_with("t.jsonl:1: it is no JSON"));
        assert!(reason(&GOOD.replace("7", "-7")).starts_with("t.jsonl:1: invalid value"));
        assert_eq!(
            reason(&GOOD.replace("600", "1600")),
            "t.jsonl:1: 2 hash_ids, but 1600 tokens are 4 blocks of 512"
        );
        assert_eq!(
            reason(&GOOD.replace("600", "0").replace("[0, 9]", "[]")),
            "t.jsonl:1: a request without hash_ids"
        );
        assert_eq!(
            reason(&format!("{GOOD}\n{}", GOOD.replace(": 7", ": 6"))),
            "t.jsonl:2: arrives at 6 ms, before the line above (7 ms)"
        );
        assert_eq!(reason("\n\n"), "t.jsonl: holds no request");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/trace.jsonl")).expect_err("no such file");
        let text = format!("{:#}", anyhow::Error::from(error));
        assert_eq!(text, "reading /nonexistent/trace.jsonl: No such file or directory (os error 2)");
    }
}
