//! The wire protocols of PMI 1 and 2, over the connection that the launcher left to this process.
//!
//! Both are lines of `name=value`. In PMI 1 a line ends with a newline, and spaces part its words. In PMI 2
//! it begins with its length in six digits, and semicolons part them. Which of the two is spoken is agreed
//! on in the first line, which is of the first kind.
//!
//! PMI 1 is asked for first: every launcher that leaves this connection speaks it. PMI 2 was seen to end
//! whole jobs: Intel's hydra agrees to it and dies of the next line, and MPICH's 5.0 dies of a name without a
//! value. Where a launcher refuses one, or agrees to it and does not speak it, the other is tried.
//!
//! | launcher | what it does in its own way |
//! |---|---|
//! | hydra 4.0, MPICH of Debian 12 | a text is there from the next barrier on; both protocols |
//! | hydra 5.0, MPICH | an own text is there at once, a missing one is `rc=1`; `barrier_out` has a tag; both |
//! | hydra 2021, Intel MPI | texts of 4,096; agrees to PMI 2, and ends the job at the first line of it |
//! | Slurm's `pmi2` | reads a question at once and 1,024 bytes of it; takes no second first line; both |

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::common::{ExchangeError, Lookup, place, variable};
use super::store::Store;
use crate::job::plumbing::poll::poll_until;

/// The variables that the launcher leaves in the environment.
pub(super) const OFFERED: [&str; 3] = ["PMI_FD", "PMI_RANK", "PMI_SIZE"];

/// The error of a task of several that `srun` started without PMI. As a job of one it would compute alone,
/// and nobody would notice.
///
/// A shell of `srun --pty` is no such task: its commands are jobs of one. So is a batch script, to which
/// Slurm gives no step's variables.
pub(super) fn missing(lookup: Lookup<'_>) -> Option<ExchangeError> {
    if lookup("SLURM_PTY_PORT").is_some() {
        return None;
    }
    let size = lookup("SLURM_STEP_NUM_TASKS")?.trim().parse().ok().filter(|size| *size > 1)?;
    Some(ExchangeError::NoPmi { size })
}

/// Whether there is the connection that the environment names: this process's own launcher's, then. It has
/// come through an `exec`; a socket of the program's own, which may have got the number, is closed by one.
pub(super) fn is_connected(lookup: Lookup<'_>) -> bool {
    let Ok(number) = socket_number(lookup) else { return false };
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
    let is_socket = link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    is_socket && vm::spawn::is_inheritable(number)
}

/// A launcher's connection that is well described, for people.
pub(super) fn offered(version: Version, lookup: Lookup<'_>) -> Result<String, ExchangeError> {
    let (rank, size) = place(lookup, "PMI_RANK", "PMI_SIZE")?;
    socket_number(lookup)?;
    Ok(format!("PMI {}: rank {rank} of {size}", version.number()))
}

fn socket_number(lookup: Lookup<'_>) -> Result<i32, ExchangeError> {
    variable(lookup, "PMI_FD", "a file descriptor", |text| text.parse().ok().filter(|number| *number >= 0))
}

/// No answer is longer.
const ANSWER_MAX: usize = 64 << 10;

/// No question of PMI 1 is longer: Slurm reads as much of one, though it takes texts of that length.
const ASK_MAX_ONE: usize = 1024;

/// No key is longer.
const KEY_MAX: usize = 64;

/// Texts of PMI 2 are at most this long, less what a launcher may count besides.
const TEXT_MAX_TWO: usize = 1000;

/// How long a launcher that has refused one protocol may take to answer in the other.
const SECOND_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// How long the rest of an answer may take that is of neither protocol.
const NONSENSE_WITHIN: Duration = Duration::from_millis(200);

/// Digits of a length.
const LENGTH_DIGITS: usize = 6;

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    fn number(self) -> u8 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    fn other(self) -> Version {
        match self {
            Version::One => Version::Two,
            Version::Two => Version::One,
        }
    }
}

/// A connection to the launcher. Closing it in order is what tells the launcher that this process ends as it
/// should.
pub(crate) struct Pmi {
    line: Line,
    version: Version,
    rank: u32,
    size: u32,
    /// The store's name, where it has one.
    space: String,
    text_max: usize,
}

impl Pmi {
    pub(super) fn init(
        version: Version,
        lookup: Lookup<'_>,
        deadline: Instant,
    ) -> Result<Pmi, ExchangeError> {
        let (rank, size) = place(lookup, "PMI_RANK", "PMI_SIZE")?;
        let socket = vm::spawn::inherited(socket_number(lookup)?).map_err(failed)?;
        let job = lookup("PMI_JOBID").unwrap_or_default();
        Pmi::greet(version, Line::new(socket), (rank, size), &job, deadline)
    }

    /// Agrees with the launcher on this protocol, or on the other where it refuses this one.
    fn greet(
        version: Version,
        mut line: Line,
        (rank, size): (u32, u32),
        job: &str,
        deadline: Instant,
    ) -> Result<Pmi, ExchangeError> {
        let (version, (space, text_max)) = match line.agree(version, rank, job, deadline) {
            Ok(terms) => (version, terms),
            Err(Unspoken::Failed(error)) => return Err(error),
            Err(Unspoken::Refused(refused)) => {
                tracing::debug!(%refused, "the launcher does not speak PMI {}", version.number());
                line.pending.clear();
                let soon = deadline.min(Instant::now() + SECOND_WITHIN);
                // Of two refusals the first is the one that matters.
                let terms = line.agree(version.other(), rank, job, soon).map_err(|_| refused)?;
                (version.other(), terms)
            }
        };
        Ok(Pmi { line, version, rank, size, space, text_max })
    }
}

/// Why a protocol is not spoken.
enum Unspoken {
    /// The launcher said something else. It may speak the other.
    Refused(ExchangeError),
    /// The connection is of no more use, or the launcher's words are of neither.
    Failed(ExchangeError),
}

impl From<ExchangeError> for Unspoken {
    fn from(error: ExchangeError) -> Unspoken {
        match error {
            ExchangeError::Answer { .. } => Unspoken::Refused(error),
            other => Unspoken::Failed(other),
        }
    }
}

impl Store for Pmi {
    const LAUNCHER: &'static str = "PMI";
    const LEAVES_EARLY: bool = true;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn text_max(&self) -> usize {
        self.text_max
    }

    fn put(&mut self, key: &str, text: &str, deadline: Instant) -> Result<(), ExchangeError> {
        match self.version {
            Version::One => self.line.ask_one(&put_one(&self.space, key, text), "put_result", deadline),
            Version::Two => {
                let put = format!("cmd=kvs-put;key={key};value={text};");
                self.line.ask_two(&put, "kvs-put-response", deadline)
            }
        }
        .map(|_| ())
    }

    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeError> {
        match self.version {
            Version::One => self.line.ask_one("cmd=barrier_in", "barrier_out", deadline),
            Version::Two => self.line.ask_two("cmd=kvs-fence;", "kvs-fence-response", deadline),
        }
        .map(|_| ())
    }

    fn get(&mut self, _: u32, key: &str, deadline: Instant) -> Result<String, ExchangeError> {
        let answer = match self.version {
            Version::One => {
                let get = format!("cmd=get kvsname={} key={key}", self.space);
                self.line.ask_one(&get, "get_result", deadline)?
            }
            Version::Two => {
                let get = format!("cmd=kvs-get;srcid=-1;key={key};");
                self.line.ask_two(&get, "kvs-get-response", deadline)?
            }
        };
        answer.value("value").map(str::to_owned)
    }
}

impl Drop for Pmi {
    fn drop(&mut self) {
        // Without an answer the launcher is gone, and needs no leave.
        let soon = Instant::now() + Duration::from_secs(5);
        let left = match self.version {
            Version::One => self.line.ask_one("cmd=finalize", "finalize_ack", soon),
            Version::Two => self.line.ask_two("cmd=finalize;", "finalize-response", soon),
        };
        if let Err(error) = left {
            tracing::debug!(%error, "the launcher was not told of the end");
        }
    }
}

/// Questions and answers over a connection, one at a time.
struct Line {
    socket: OwnedFd,
    /// Bytes that have come, and were not read yet.
    pending: Vec<u8>,
}

impl Line {
    fn new(socket: OwnedFd) -> Line {
        Line { socket, pending: Vec::new() }
    }

    /// Agrees on a protocol: the store's name, where it has one, and the longest text.
    fn agree(
        &mut self,
        version: Version,
        rank: u32,
        job: &str,
        deadline: Instant,
    ) -> Result<(String, usize), Unspoken> {
        let init = match version {
            Version::One => "cmd=init pmi_version=1 pmi_subversion=1",
            Version::Two => "cmd=init pmi_version=2 pmi_subversion=0",
        };
        let said = self.ask_line(init, deadline)?;
        if said.find("cmd") != Some("response_to_init") {
            return Err(Unspoken::Failed(said.refused()));
        }
        let number = version.number().to_string();
        if !said.went_well() || said.find("pmi_version").is_some_and(|theirs| theirs != number) {
            return Err(Unspoken::Refused(said.refused()));
        }
        match version {
            Version::One => {
                let text_max = self.ask_one("cmd=get_maxes", "maxes", deadline)?.number("vallen_max")?;
                let named = self.ask_one("cmd=get_my_kvsname", "my_kvsname", deadline)?;
                let space = named.value("kvsname")?.to_owned();
                let around = put_one(&space, &"k".repeat(KEY_MAX), "").len() + 1;
                let room = ASK_MAX_ONE.checked_sub(around).filter(|room| *room > 0);
                let room = room.ok_or_else(|| Unspoken::Failed(named.refused()))?;
                Ok((space, room.min(text_max - 1)))
            }
            Version::Two => {
                // MPICH's hydra 5.0 ends the whole job where a name has no value.
                let job = if job.is_empty() { String::new() } else { format!("pmijobid={job};") };
                let full = format!("cmd=fullinit;{job}pmirank={rank};threaded=FALSE;");
                self.ask_two(&full, "fullinit-response", deadline).map_err(unspoken_two)?;
                Ok((String::new(), TEXT_MAX_TWO))
            }
        }
    }

    /// Asks in PMI 1.
    fn ask_one(&mut self, ask: &str, wanted: &str, deadline: Instant) -> Result<Answer, ExchangeError> {
        self.ask_line(ask, deadline)?.of(wanted)
    }

    /// Asks in PMI 1, or what comes before it is known which is spoken.
    fn ask_line(&mut self, ask: &str, deadline: Instant) -> Result<Answer, ExchangeError> {
        self.send(format!("{ask}\n").as_bytes(), deadline)?;
        let line = self.take_line(deadline)?;
        Ok(Answer { ask: ask.to_owned(), text: line.trim_end().to_owned(), parting: ' ' })
    }

    fn take_line(&mut self, deadline: Instant) -> Result<String, ExchangeError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                return Ok(self.take(end + 1));
            }
            self.receive(deadline)?;
        }
    }

    /// Asks in PMI 2.
    fn ask_two(&mut self, ask: &str, wanted: &str, deadline: Instant) -> Result<Answer, ExchangeError> {
        self.send(format!("{:>LENGTH_DIGITS$}{ask}", ask.len()).as_bytes(), deadline)?;
        let is_of_length = |byte: &u8| matches!(byte, b' ' | b'0'..=b'9');
        while self.pending.len() < LENGTH_DIGITS && self.pending.iter().all(is_of_length) {
            self.receive(deadline)?;
        }
        let head = self.pending.get(..LENGTH_DIGITS).and_then(|head| str::from_utf8(head).ok());
        let len = head.and_then(|head| head.trim_matches(' ').parse().ok());
        let Some(len) = len.filter(|len| *len <= ANSWER_MAX) else {
            return Err(answered(ask, &self.nonsense(deadline)));
        };
        self.take(LENGTH_DIGITS);
        while self.pending.len() < len {
            self.receive(deadline)?;
        }
        Answer { ask: ask.to_owned(), text: self.take(len), parting: ';' }.of(wanted)
    }

    /// A message that has come without length: a line, or as much of one as comes soon.
    fn nonsense(&mut self, deadline: Instant) -> String {
        let soon = deadline.min(Instant::now() + NONSENSE_WITHIN);
        let line = self.take_line(soon);
        line.unwrap_or_else(|_| self.take(self.pending.len())).trim_end().to_owned()
    }

    fn take(&mut self, len: usize) -> String {
        let rest = self.pending.split_off(len);
        String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned()
    }

    fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), ExchangeError> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, deadline)?;
            // A launcher that is gone is an error here, and no signal to the program.
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> Result<(), ExchangeError> {
        self.wait(PollFlags::IN, deadline)?;
        let mut bytes = [0; 4096];
        match rustix::io::read(&self.socket, &mut bytes) {
            Ok(0) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) if self.pending.len() > ANSWER_MAX => {
                Err(answered("", &String::from_utf8_lossy(&self.pending[..80])))
            }
            Ok(len) => {
                self.pending.extend_from_slice(&bytes[..len]);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), ExchangeError> {
        let ready = poll_until(&mut [PollFd::new(&self.socket, events)], Some(deadline));
        match ready.map_err(|error| failed(error.into()))? {
            0 => Err(ExchangeError::Timeout { waited_for: "the launcher's answer (PMI)".to_owned() }),
            _ => Ok(()),
        }
    }
}

/// The launcher's answer.
struct Answer {
    ask: String,
    text: String,
    parting: char,
}

impl Answer {
    /// The answer, if it is of the kind that was wanted, and all went well.
    fn of(self, wanted: &str) -> Result<Answer, ExchangeError> {
        if self.find("cmd") == Some(wanted) && self.went_well() { Ok(self) } else { Err(self.refused()) }
    }

    /// Whether all went well, if it says anything about it.
    fn went_well(&self) -> bool {
        self.find("rc").is_none_or(|rc| rc == "0")
    }

    /// The error that says this answer.
    fn refused(&self) -> ExchangeError {
        answered(&self.ask, &self.text)
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.text
            .split(self.parting)
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    fn value(&self, name: &str) -> Result<&str, ExchangeError> {
        self.find(name).ok_or_else(|| self.refused())
    }

    fn number(&self, name: &str) -> Result<usize, ExchangeError> {
        let number = self.value(name)?.parse().ok().filter(|number| *number > 1);
        number.ok_or_else(|| self.refused())
    }
}

/// The command that leaves a text, in PMI 1.
fn put_one(space: &str, key: &str, text: &str) -> String {
    format!("cmd=put kvsname={space} key={key} value={text}")
}

fn answered(ask: &str, answer: &str) -> ExchangeError {
    ExchangeError::Answer { launcher: Pmi::LAUNCHER, command: ask.to_owned(), answer: answer.to_owned() }
}

/// A connection that ends at the first line of PMI 2 ended because of it.
fn unspoken_two(error: ExchangeError) -> ExchangeError {
    match error {
        ExchangeError::Io { with, source } => ExchangeError::Io {
            with: format!(
                "{with}, at the first line of PMI 2 (STANDPIPE_LAUNCHER=pmi1 names the other protocol)"
            ),
            source,
        },
        other => other,
    }
}

fn failed(source: std::io::Error) -> ExchangeError {
    ExchangeError::Io { with: "the launcher's connection (PMI_FD)".to_owned(), source }
}

/// Talks with a launcher that says these bytes, whatever it is asked, by both protocols: for the fuzzer.
/// Whether it was told anything.
#[doc(hidden)]
pub fn check_launcher_words(bytes: &[u8]) -> bool {
    let told = |version| -> Result<String, ExchangeError> {
        let (ours, mut theirs) = UnixStream::pair().map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        theirs.write(bytes).and_then(|_| theirs.shutdown(Shutdown::Write)).map_err(failed)?;
        let soon = Instant::now() + Duration::from_secs(1);
        Pmi::greet(version, Line::new(ours.into()), (0, 1), "", soon)?.get(0, "key", soon)
    };
    told(Version::One).is_ok() | told(Version::Two).is_ok()
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
