//! Writing a trace: each rank streams its section to a file of its own, and then they are put together.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    error::TraceError,
    header::{Array, Header, RankHeader},
    reader::{Totals, Trace},
    step::{Cursor, STEP_BYTES_MAX, Step},
};

/// Writes one rank's section, holding nothing but the last addresses in memory. Give it a buffered writer.
#[derive(Debug)]
pub struct SectionWriter<W> {
    out: W,
    cursor: Cursor,
    steps: u64,
}

impl<W: Write> SectionWriter<W> {
    /// An empty section.
    pub fn new(out: W) -> Self {
        Self { out, cursor: Cursor::default(), steps: 0 }
    }

    /// Appends a step. Whether it makes sense is checked when the trace is [put together](assemble).
    ///
    /// # Errors
    /// What writing ends with.
    pub fn push(&mut self, step: &Step) -> io::Result<()> {
        let mut buffer = [0; STEP_BYTES_MAX];
        self.out.write_all(self.cursor.encode(step, &mut buffer))?;
        self.steps += 1;
        Ok(())
    }

    /// Writes what is still buffered; gives the number of steps.
    ///
    /// # Errors
    /// What writing ends with.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.steps)
    }
}

/// One rank's section in a file of its own, and what the header says of the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub file: PathBuf,
    /// The rank's arrays.
    pub arrays: Vec<Array>,
    /// Steps in the section.
    pub steps: u64,
}

/// Puts the ranks' sections, in their order, together to the trace at `path`, which is replaced if there is
/// one. The trace is written beside the first part, read back whole and checked, and only then moved to
/// `path`: so the parts must lie on the same file system.
///
/// # Errors
/// What reading or writing ends with, and whatever [`Trace::check`] finds wrong; nothing is at `path` then
/// that was not there before.
pub fn assemble(
    path: &Path,
    kernel: &str,
    parameters: BTreeMap<String, u64>,
    parts: &[Part],
) -> Result<Totals, TraceError> {
    let at_start = |source| TraceError::Io { offset: 0, source };
    let ranks = parts.iter().map(|part| {
        let bytes = fs::metadata(&part.file).map_err(at_start)?.len();
        Ok(RankHeader { arrays: part.arrays.clone(), steps: part.steps, bytes })
    });
    let header =
        Header { kernel: kernel.to_owned(), parameters, ranks: ranks.collect::<Result<_, TraceError>>()? };
    let head = header.encode()?;
    let draft = parts.first().map_or_else(|| path.into(), |part| part.file.with_extension("draft"));
    let mut out = File::create(&draft).map_err(at_start)?;
    out.write_all(&head).map_err(at_start)?;
    let mut offset = head.len() as u64;
    for part in parts {
        let mut section = File::open(&part.file).map_err(|source| TraceError::Io { offset, source })?;
        offset += io::copy(&mut section, &mut out).map_err(|source| TraceError::Io { offset, source })?;
    }
    let totals = Trace::open(&draft)?.check()?;
    fs::rename(&draft, path).map_err(|source| TraceError::Io { offset, source })?;
    Ok(totals)
}
