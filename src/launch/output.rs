//! The ranks' output: passed on line by line, by one thread, so that no two lines mix.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::job::plumbing::poll::{Waker, poll_until};

/// A longer line is passed on in pieces of this many bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;
const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// Where a rank wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stream {
    /// To its standard output.
    Stdout,
    /// To its standard error.
    Stderr,
}

/// Handles a line.
pub(super) type OnLine = Box<dyn Fn(u32, Stream, &[u8]) + Send>;

/// Where the ranks' output goes.
pub(super) enum Output {
    /// The ranks have the launcher's own streams.
    Direct { stdout_to_stderr: bool },
    /// Through the launcher, each line marked with its rank.
    Tagged { stdout_to_stderr: bool },
    /// To a function.
    Lines(OnLine),
}

/// The launcher's end of one rank's stream.
pub(super) struct Pipe {
    pub(super) rank: u32,
    pub(super) stream: Stream,
    pub(super) source: OwnedFd,
}

/// The thread that reads the pipes.
pub(super) struct Pump {
    thread: JoinHandle<Option<io::Error>>,
    stop: Arc<Stop>,
}

struct Stop {
    waker: Waker,
    asked: AtomicBool,
}

impl Pump {
    pub(super) fn start(pipes: Vec<Pipe>, output: Output) -> io::Result<Self> {
        let stop = Arc::new(Stop { waker: Waker::new()?, asked: AtomicBool::new(false) });
        let seen = Arc::clone(&stop);
        let pumping = move || pump(pipes.into_iter().map(Reader::new).collect(), Sink::new(output), &seen);
        let thread = vm::threads::spawn("standpipe-output", pumping)?;
        Ok(Self { thread, stop })
    }

    /// To be called when the last rank has ended: passes on what is still in the pipes and stops, even if a
    /// process that a rank left behind keeps its end open. Says why something could not be passed on, if that
    /// was so.
    pub(super) fn finish(self) -> Option<io::Error> {
        self.stop.asked.store(true, Ordering::Release);
        self.stop.waker.wake();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The first reason why something could not be passed on, if there was one.
fn pump(mut readers: Vec<Reader>, mut sink: Sink, stop: &Stop) -> Option<io::Error> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        stop.waker.clear();
        if readers.is_empty() || stop.asked.load(Ordering::Acquire) {
            break;
        }
        let mut fds = vec![PollFd::new(&stop.waker, PollFlags::IN)];
        fds.extend(readers.iter().map(|reader| PollFd::new(&reader.pipe.source, PollFlags::IN)));
        if poll_until(&mut fds, None).is_err() {
            // For want of memory, which may be over soon.
            std::thread::sleep(STARVED_PAUSE);
        }
        let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        readers.retain_mut(|reader| {
            !ready.next().unwrap_or(false) || reader.read(&mut buffer, &mut sink).is_ok()
        });
    }
    for reader in readers {
        reader.drain(&mut buffer, &mut sink);
    }
    sink.lost
}

/// One pipe, and the beginning of a line whose end has not come.
struct Reader {
    pipe: Pipe,
    begun: Vec<u8>,
}

/// The pipe is at its end, or nobody takes what comes out of it.
struct Ended;

impl Reader {
    fn new(pipe: Pipe) -> Self {
        Self { pipe, begun: Vec::new() }
    }

    /// Reads once, which does not block as the pipe is ready.
    fn read(&mut self, buffer: &mut [u8], sink: &mut Sink) -> Result<(), Ended> {
        let count = match rustix::io::read(&self.pipe.source, &mut *buffer) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(0) | Err(_) => {
                self.end(sink);
                return Err(Ended);
            }
            Ok(count) => count,
        };
        self.split(&buffer[..count], sink);
        sink.flush(self.pipe.stream)
    }

    /// Reads what is in the pipe now, and takes it for the end.
    fn drain(mut self, buffer: &mut [u8], sink: &mut Sink) {
        let mut left = rustix::io::ioctl_fionread(&self.pipe.source).unwrap_or(0);
        while left > 0 {
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match rustix::io::read(&self.pipe.source, &mut buffer[..room]) {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    self.split(&buffer[..count], sink);
                    left -= count as u64;
                }
            }
        }
        self.end(sink);
    }

    fn split(&mut self, bytes: &[u8], sink: &mut Sink) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            for text in text.chunks(LINE_BYTES_MAX) {
                if self.begun.len() + text.len() > LINE_BYTES_MAX {
                    self.pass_on(sink);
                }
                self.begun.extend_from_slice(text);
            }
            if whole {
                self.pass_on(sink);
            }
        }
    }

    fn end(&mut self, sink: &mut Sink) {
        if !self.begun.is_empty() {
            self.pass_on(sink);
        }
        let _ = sink.flush(self.pipe.stream);
    }

    fn pass_on(&mut self, sink: &mut Sink) {
        sink.line(self.pipe.rank, self.pipe.stream, &self.begun);
        self.begun.clear();
    }
}

struct Sink {
    kind: SinkKind,
    /// The first reason why a line could not be passed on; that nobody reads it any more is none.
    lost: Option<io::Error>,
}

enum SinkKind {
    Tagged { stdout_to_stderr: bool, lines: Vec<u8> },
    Lines(OnLine),
    Nothing,
}

impl Sink {
    fn new(output: Output) -> Self {
        let kind = match output {
            Output::Direct { .. } => SinkKind::Nothing,
            Output::Tagged { stdout_to_stderr } => SinkKind::Tagged { stdout_to_stderr, lines: Vec::new() },
            Output::Lines(on_line) => SinkKind::Lines(on_line),
        };
        Self { kind, lost: None }
    }

    fn line(&mut self, rank: u32, stream: Stream, line: &[u8]) {
        match &mut self.kind {
            SinkKind::Tagged { lines, .. } => {
                lines.extend_from_slice(format!("[{rank}] ").as_bytes());
                lines.extend_from_slice(line);
                lines.push(b'\n');
            }
            SinkKind::Lines(on_line) => on_line(rank, stream, line),
            SinkKind::Nothing => {}
        }
    }

    /// Writes the lines since the last flush, which are all of `stream`.
    fn flush(&mut self, stream: Stream) -> Result<(), Ended> {
        let SinkKind::Tagged { stdout_to_stderr, lines } = &mut self.kind else { return Ok(()) };
        let lines = std::mem::take(lines);
        let written = if stream == Stream::Stderr || *stdout_to_stderr {
            write_whole(io::stderr().lock(), &lines)
        } else {
            let mut stdout = io::stdout().lock();
            // Lines that this process has printed itself come first; those that cannot go now stay in the
            // buffer for later.
            let _ = stdout.flush();
            write_whole(stdout, &lines)
        };
        written.map_err(|error| {
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.lost.get_or_insert(error);
            }
            Ended
        })
    }
}

/// Writes all of `bytes`, past the stream's own buffer. A stream that does not block is waited for: whoever
/// shares a terminal with this process may have set that for both.
pub(super) fn write_whole(stream: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&stream, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll_until(&mut [PollFd::new(&stream, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use proptest::prelude::*;

    use super::*;

    /// What comes out when `writes` go in one after another, and the writer stays.
    fn lines(writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (source, end) = rustix::pipe::pipe().expect("a pipe");
        let (send, lines) = channel();
        let on_line = Box::new(move |rank, stream, line: &[u8]| {
            assert_eq!((rank, stream), (3, Stream::Stderr));
            send.send(line.to_vec()).expect("the test listens");
        });
        let pipe = Pipe { rank: 3, stream: Stream::Stderr, source };
        let pump = Pump::start(vec![pipe], Output::Lines(on_line)).expect("a thread");
        let mut writer = std::fs::File::from(end);
        for write in writes {
            writer.write_all(write).expect("the pump reads");
        }
        assert!(pump.finish().is_none());
        lines.iter().collect()
    }

    #[test]
    fn the_last_line_needs_no_line_feed() {
        assert_eq!(
            lines(&[b"one\n\ntw".to_vec(), b"o\nthree".to_vec()]),
            [&b"one"[..], b"", b"two", b"three"]
        );
    }

    #[test]
    fn a_stream_that_does_not_block_is_waited_for() {
        let (source, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
        // More than any pipe holds.
        let bytes: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8).collect();
        std::thread::scope(|scope| {
            let written = scope.spawn(|| write_whole(end, &bytes));
            let mut read = Vec::new();
            let mut buffer = vec![0; READ_BYTES];
            loop {
                poll_until(&mut [PollFd::new(&source, PollFlags::IN)], None).expect("a poll");
                match rustix::io::read(&source, &mut buffer).expect("ready") {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            written.join().expect("no panic").expect("all written");
            assert!(read == bytes);
        });
    }

    #[test]
    fn an_endless_line_is_cut() {
        let writes = vec![vec![b'x'; 100_000]; 3];
        let lines = lines(&writes);
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES_MAX));
        assert_eq!(lines.concat(), writes.concat());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn however_it_is_cut_the_lines_are_the_same(
            writes in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..50), 0..10)
        ) {
            let all = writes.concat();
            let mut expected: Vec<&[u8]> = all.split(|byte| *byte == b'\n').collect();
            if expected.last().is_some_and(|last| last.is_empty()) {
                expected.pop();
            }
            prop_assert_eq!(lines(&writes), expected);
        }
    }
}
