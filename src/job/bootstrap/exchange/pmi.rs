//! The wire protocols of PMI 1 and 2, over the connection that the launcher left to this process.
//!
//! Both are lines of `name=value`; those of PMI 1 end with a newline and are parted by spaces, those of PMI 2
//! begin with their length in six digits and are parted by semicolons. Which of the two is spoken is agreed
//! on in the first line, which is of the first kind. Seen to work with hydra 4.0 (MPICH of Debian 12), both
//! of them.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::common::{ExchangeError, Lookup, place, variable};
use super::store::Store;
use crate::job::bootstrap::poll::poll_until;

/// What the launcher leaves in the environment.
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

/// A launcher's connection that is well described, for people.
pub(super) fn offered(version: Version, lookup: Lookup<'_>) -> Result<String, ExchangeError> {
    let (rank, size) = place(lookup, "PMI_RANK", "PMI_SIZE")?;
    socket_number(lookup)?;
    Ok(format!("PMI {}: rank {rank} of {size}", if version == Version::One { 1 } else { 2 }))
}

fn socket_number(lookup: Lookup<'_>) -> Result<i32, ExchangeError> {
    variable(lookup, "PMI_FD", "a file descriptor", |text| text.parse().ok().filter(|number| *number >= 0))
}

/// No answer is longer.
const ANSWER_MAX: usize = 64 << 10;

/// Texts of PMI 2 are at most this long, less what a launcher may count besides.
const TEXT_MAX_TWO: usize = 1000;

/// Digits of a length.
const LENGTH_DIGITS: usize = 6;

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
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

    fn greet(
        version: Version,
        mut line: Line,
        (rank, size): (u32, u32),
        job: &str,
        deadline: Instant,
    ) -> Result<Pmi, ExchangeError> {
        let init = match version {
            Version::One => "cmd=init pmi_version=1 pmi_subversion=1",
            Version::Two => "cmd=init pmi_version=2 pmi_subversion=0",
        };
        line.ask_one(init, "response_to_init", deadline)?;
        let mut pmi = Pmi { line, version, rank, size, space: String::new(), text_max: TEXT_MAX_TWO };
        match version {
            Version::One => {
                let maxes = pmi.line.ask_one("cmd=get_maxes", "maxes", deadline)?;
                pmi.text_max = maxes.number("vallen_max")?.saturating_sub(1);
                let named = pmi.line.ask_one("cmd=get_my_kvsname", "my_kvsname", deadline)?;
                pmi.space = named.value("kvsname")?.to_owned();
            }
            Version::Two => {
                let full = format!("cmd=fullinit;pmijobid={job};pmirank={rank};threaded=FALSE;");
                pmi.line.ask_two(&full, "fullinit-response", deadline)?;
            }
        }
        Ok(pmi)
    }
}

impl Store for Pmi {
    const LAUNCHER: &'static str = "PMI";

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
            Version::One => {
                let put = format!("cmd=put kvsname={} key={key} value={text}", self.space);
                self.line.ask_one(&put, "put_result", deadline)
            }
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
    /// What has come, and was not read yet.
    pending: Vec<u8>,
}

impl Line {
    fn new(socket: OwnedFd) -> Line {
        Line { socket, pending: Vec::new() }
    }

    /// Asks in PMI 1, or what comes before it is known which is spoken.
    fn ask_one(&mut self, ask: &str, wanted: &str, deadline: Instant) -> Result<Answer, ExchangeError> {
        self.send(format!("{ask}\n").as_bytes(), deadline)?;
        let end = loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            self.receive(deadline)?;
        };
        let line = self.take(end + 1);
        Answer::read(ask, line.trim_end(), ' ', wanted)
    }

    /// Asks in PMI 2.
    fn ask_two(&mut self, ask: &str, wanted: &str, deadline: Instant) -> Result<Answer, ExchangeError> {
        self.send(format!("{:>LENGTH_DIGITS$}{ask}", ask.len()).as_bytes(), deadline)?;
        while self.pending.len() < LENGTH_DIGITS {
            self.receive(deadline)?;
        }
        let head = self.take(LENGTH_DIGITS);
        let len = head.trim().parse::<usize>().ok().filter(|len| *len <= ANSWER_MAX);
        let len = len.ok_or_else(|| answered(ask, &head))?;
        while self.pending.len() < len {
            self.receive(deadline)?;
        }
        Answer::read(ask, &self.take(len), ';', wanted)
    }

    fn take(&mut self, len: usize) -> String {
        let rest = self.pending.split_off(len);
        String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned()
    }

    fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), ExchangeError> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, deadline)?;
            match rustix::io::write(&self.socket, bytes) {
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

/// What the launcher said.
struct Answer {
    ask: String,
    text: String,
    parting: char,
}

impl Answer {
    /// An answer that is of the kind that was wanted, and says that all went well if it says anything about
    /// it.
    fn read(ask: &str, text: &str, parting: char, wanted: &str) -> Result<Answer, ExchangeError> {
        let answer = Answer { ask: ask.to_owned(), text: text.to_owned(), parting };
        let went_well = answer.find("rc").is_none_or(|rc| rc == "0");
        if answer.find("cmd") == Some(wanted) && went_well { Ok(answer) } else { Err(answered(ask, text)) }
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.text
            .split(self.parting)
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    fn value(&self, name: &str) -> Result<&str, ExchangeError> {
        self.find(name).ok_or_else(|| answered(&self.ask, &self.text))
    }

    fn number(&self, name: &str) -> Result<usize, ExchangeError> {
        let number = self.value(name)?.parse().ok().filter(|number| *number > 1);
        number.ok_or_else(|| answered(&self.ask, &self.text))
    }
}

fn answered(ask: &str, answer: &str) -> ExchangeError {
    ExchangeError::Answer { launcher: Pmi::LAUNCHER, command: ask.to_owned(), answer: answer.to_owned() }
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
mod tests {
    use std::io::Read;

    use super::*;

    /// A launcher that says these things, each after the question that goes with it.
    fn scripted(script: &'static [(&'static str, &'static str)]) -> (Line, std::thread::JoinHandle<()>) {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let launcher = std::thread::spawn(move || {
            for (ask, answer) in script {
                let mut heard = vec![0; ask.len()];
                theirs.read_exact(&mut heard).expect("a question");
                assert_eq!(String::from_utf8_lossy(&heard), *ask);
                // In two halves, as a stream may bring it.
                let (first, second) = answer.as_bytes().split_at(answer.len() / 2);
                theirs.write_all(first).expect("room");
                std::thread::sleep(Duration::from_millis(2));
                theirs.write_all(second).expect("room");
            }
        });
        (Line::new(ours.into()), launcher)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn pmi_1_is_spoken() {
        let (line, launcher) = scripted(&[
            (
                "cmd=init pmi_version=1 pmi_subversion=1\n",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            ),
            ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
            ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_1_0\n"),
            ("cmd=put kvsname=kvs_1_0 key=k value=v\n", "cmd=put_result rc=0 msg=success\n"),
            ("cmd=barrier_in\n", "cmd=barrier_out\n"),
            ("cmd=get kvsname=kvs_1_0 key=k\n", "cmd=get_result rc=0 msg=success value=v\n"),
            ("cmd=get kvsname=kvs_1_0 key=n\n", "cmd=get_result rc=-1 msg=key_n_not_found value=unknown\n"),
            ("cmd=finalize\n", "cmd=finalize_ack\n"),
        ]);
        let mut pmi = Pmi::greet(Version::One, line, (0, 1), "", soon()).expect("well spoken");
        assert_eq!(pmi.text_max(), 1023);
        pmi.put("k", "v", soon()).expect("put");
        pmi.fence(soon()).expect("a fence");
        assert_eq!(pmi.get(0, "k", soon()).expect("it is there"), "v");
        let error = pmi.get(0, "n", soon()).expect_err("not there");
        assert!(error.to_string().contains("key_n_not_found"), "{error}");
        drop(pmi);
        launcher.join().expect("all was said");
    }

    #[test]
    fn pmi_2_is_spoken() {
        let (line, launcher) = scripted(&[
            (
                "cmd=init pmi_version=2 pmi_subversion=0\n",
                "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n",
            ),
            (
                "    51cmd=fullinit;pmijobid=3.0;pmirank=0;threaded=FALSE;",
                "    50cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;",
            ),
            ("    26cmd=kvs-put;key=k;value=v;", "    26cmd=kvs-put-response;rc=0;"),
            ("    14cmd=kvs-fence;", "    28cmd=kvs-fence-response;rc=0;"),
            ("    27cmd=kvs-get;srcid=-1;key=k;", "    45cmd=kvs-get-response;found=TRUE;value=v;rc=0;"),
            ("    13cmd=finalize;", "    27cmd=finalize-response;rc=0;"),
        ]);
        let mut pmi = Pmi::greet(Version::Two, line, (0, 1), "3.0", soon()).expect("well spoken");
        pmi.put("k", "v", soon()).expect("put");
        pmi.fence(soon()).expect("a fence");
        assert_eq!(pmi.get(0, "k", soon()).expect("it is there"), "v");
        drop(pmi);
        launcher.join().expect("all was said");
    }

    #[test]
    fn nonsense_and_silence_are_errors() {
        let (mut line, launcher) = scripted(&[("     6cmd=x;", "abcdef")]);
        let nonsense = line.ask_two("cmd=x;", "x-response", soon());
        assert!(matches!(nonsense, Err(ExchangeError::Answer { .. })));
        drop((line, launcher));
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let mut line = Line::new(ours.into());
        let silence = line.ask_one("cmd=init", "", Instant::now() + Duration::from_millis(20));
        assert!(matches!(silence, Err(ExchangeError::Timeout { .. })));
        drop(theirs);
        assert!(matches!(line.ask_one("cmd=init", "", soon()), Err(ExchangeError::Io { .. })));
    }
}
