//! Reading a trace.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path};

use super::{
    error::TraceError,
    header::{Header, PREAMBLE_BYTES, decode_preamble},
    step::{Action, Cursor, STEP_BYTES_MAX, Step, Transfer},
};

/// An open trace: its header in memory, its steps in the file. Any threads may read steps at once.
#[derive(Debug)]
pub struct Trace {
    header: Header,
    /// Where each section starts, and where the last ends.
    sections: Vec<u64>,
    file: File,
}

impl Trace {
    /// Opens a trace and reads its header.
    ///
    /// # Errors
    /// If the file cannot be read, is no trace of this version, or is shorter or longer than its header says.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let at_start = |source| TraceError::Io { offset: 0, source };
        let file = File::open(path).map_err(at_start)?;
        let length = file.metadata().map_err(at_start)?.len();
        let mut preamble = [0; PREAMBLE_BYTES];
        read_exact(&file, length, 0, &mut preamble)?;
        let start = PREAMBLE_BYTES as u64;
        let header_bytes = decode_preamble(&preamble)?;
        let end = start + u64::from(header_bytes);
        if end > length {
            return Err(TraceError::Truncated { offset: length, missing: end - length });
        }
        let mut body = vec![0; header_bytes as usize];
        read_exact(&file, length, start, &mut body)?;
        let header = Header::decode(&body)?;
        let sections = header.sections(end)?;
        match sections[sections.len() - 1] {
            last if last > length => Err(TraceError::Truncated { offset: length, missing: last - length }),
            last if last < length => Err(TraceError::Trailing { offset: last, extra: length - last }),
            _ => Ok(Self { header, sections, file }),
        }
    }

    /// What the trace is of.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The steps of `rank` in order, read from the file as they are asked for; none if there is no such rank.
    /// After an error there are no more.
    #[must_use]
    pub fn steps(&self, rank: u32) -> Steps<'_> {
        let (at, end) = match self.sections.get(rank as usize..) {
            Some([at, end, ..]) => (*at, *end),
            _ => (0, 0),
        };
        let left = self.header.ranks.get(rank as usize).map_or(0, |header| header.steps);
        Steps { trace: self, rank, left, cursor: Cursor::default(), buffer: Vec::new(), start: 0, at, end }
    }

    /// Reads all steps, and checks that the ranks' steps fit together: all come to as many barriers, and each
    /// signal is waited for once.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<Totals, TraceError> {
        let size = self.header.ranks.len();
        let mut totals = Totals::default();
        let mut barriers = Vec::with_capacity(size);
        let mut signals = BTreeMap::<(u32, u32), i64>::new();
        for rank in 0..self.header.size() {
            let mut count = 0u64;
            for step in self.steps(rank) {
                let step = step?;
                totals.add(&step);
                match step.action {
                    Action::Barrier => count += 1,
                    Action::Signal { peer } => *signals.entry((rank, peer)).or_default() += 1,
                    Action::Wait { peer } => *signals.entry((peer, rank)).or_default() -= 1,
                    Action::Put(_) | Action::Get(_) => {}
                }
            }
            barriers.push(count);
        }
        let unmatched =
            |rank: u32, what| TraceError::Unmatched { offset: self.sections[rank as usize + 1], rank, what };
        if let Some(rank) = (0..size).find(|rank| barriers[*rank] != barriers[0]) {
            let what = format!("{} barriers, where rank 0 has {}", barriers[rank], barriers[0]);
            return Err(unmatched(rank as u32, what));
        }
        if let Some(((from, to), over)) = signals.into_iter().find(|(_, over)| *over != 0) {
            let what = format!(
                "it gives rank {to} {} signals {} than that waits for",
                over.abs(),
                more_or_fewer(over)
            );
            return Err(unmatched(from, what));
        }
        Ok(totals)
    }

    /// What is wrong with a step that was decoded at `offset`, if anything.
    fn judge(&self, rank: u32, offset: u64, step: &Step) -> Result<(), TraceError> {
        let ranks = self.header.size();
        let (peer, transfer) = match step.action {
            Action::Barrier => return Ok(()),
            Action::Signal { peer } | Action::Wait { peer } => (peer, None),
            Action::Put(transfer) | Action::Get(transfer) => (transfer.peer, Some(transfer)),
        };
        if peer >= ranks || peer == rank {
            return Err(TraceError::Peer { offset, rank, peer, ranks });
        }
        let Some(Transfer { remote, local, len, .. }) = transfer else { return Ok(()) };
        if len == 0 {
            return Err(TraceError::Step { offset, rank, what: "a transfer of nothing" });
        }
        for (owner, addr) in [(peer, remote), (rank, local)] {
            let arrays = &self.header.ranks[owner as usize].arrays;
            if !arrays.iter().any(|array| array.contains(addr, len)) {
                return Err(TraceError::Outside { offset, rank, owner, addr, len });
            }
        }
        Ok(())
    }
}

fn more_or_fewer(over: i64) -> &'static str {
    if over > 0 { "more" } else { "fewer" }
}

/// What all ranks of a trace did together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps of all kinds.
    pub steps: u64,
    /// Puts.
    pub puts: u64,
    /// Gets.
    pub gets: u64,
    /// Bytes of puts and gets.
    pub bytes: u64,
    /// Processor time between the steps, in nanoseconds.
    pub compute_ns: u64,
}

impl Totals {
    fn add(&mut self, step: &Step) {
        self.steps += 1;
        self.compute_ns = self.compute_ns.saturating_add(step.compute_ns);
        let bytes = match step.action {
            Action::Put(transfer) => {
                self.puts += 1;
                transfer.len
            }
            Action::Get(transfer) => {
                self.gets += 1;
                transfer.len
            }
            Action::Barrier | Action::Signal { .. } | Action::Wait { .. } => 0,
        };
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The steps of one rank. It holds 64 KiB of the file at most.
#[derive(Debug)]
pub struct Steps<'a> {
    trace: &'a Trace,
    rank: u32,
    left: u64,
    cursor: Cursor,
    /// Bytes of the file that end at `at`; those from `start` on are not decoded yet.
    buffer: Vec<u8>,
    start: usize,
    at: u64,
    end: u64,
}

/// How much of the file is read at once.
const BUFFER_BYTES: usize = 64 << 10;
const _: () = assert!(STEP_BYTES_MAX < BUFFER_BYTES);

impl Steps<'_> {
    fn read(&mut self) -> Result<Option<Step>, TraceError> {
        self.fill()?;
        let (rank, bytes) = (self.rank, &self.buffer[self.start..]);
        let offset = self.at - bytes.len() as u64;
        let wrong = |what| TraceError::Step { offset, rank, what };
        if self.left == 0 {
            let over = "the section goes on after its last step";
            return if bytes.is_empty() { Ok(None) } else { Err(wrong(over)) };
        }
        if bytes.is_empty() {
            return Err(wrong("the section ends before its last step"));
        }
        let (step, length) = self.cursor.decode(bytes).ok_or_else(|| wrong("no step of a kernel"))?;
        self.trace.judge(rank, offset, &step)?;
        self.start += length;
        self.left -= 1;
        Ok(Some(step))
    }

    /// Sees to it that a whole step is in the buffer, if the section has one.
    fn fill(&mut self) -> Result<(), TraceError> {
        if self.buffer.len() - self.start >= STEP_BYTES_MAX || self.at == self.end {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let have = self.buffer.len();
        let more = (BUFFER_BYTES - have).min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        self.buffer.resize(have + more, 0);
        // The file was long enough when it was opened: that it is not now is an error of its own.
        read_exact(&self.trace.file, self.end, self.at, &mut self.buffer[have..])?;
        self.at += more as u64;
        Ok(())
    }
}

impl Iterator for Steps<'_> {
    type Item = Result<Step, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if !matches!(next, Some(Ok(_))) {
            // Nothing after the end or an error.
            (self.left, self.at, self.end, self.start) = (0, 0, 0, self.buffer.len());
        }
        next
    }
}

/// Fills `into` from `offset` on, in a file that is `length` bytes long as far as anyone knows.
fn read_exact(file: &File, length: u64, offset: u64, into: &mut [u8]) -> Result<(), TraceError> {
    file.read_exact_at(into, offset).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            let end = file.metadata().map_or(length, |metadata| metadata.len());
            TraceError::Truncated { offset: end, missing: (offset + into.len() as u64).saturating_sub(end) }
        }
        _ => TraceError::Io { offset, source },
    })
}
