//! Running other programs: shown before they start, bounded in time.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A command line to run, from the workspace's root unless told otherwise.
pub(crate) struct Run {
    shown: Vec<String>,
    words: Vec<String>,
    dir: PathBuf,
    env: Vec<(String, String)>,
    limit_s: u64,
}

/// What went wrong with a command, naming it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

/// Longer than any check should take.
const LIMIT_S: u64 = 1800;

/// Longer than installing a toolchain or a part of one should take.
pub(crate) const INSTALL_LIMIT_S: u64 = 600;

/// What timeout(1) exits with when the time was up.
const TIMED_OUT: i32 = 124;

/// In what steps Linux tells its users of processor time, on every architecture we know.
const TICK_MS: u64 = 10;

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    this.ancestors().nth(2).expect("xtask lies two folders below the root")
}

/// Where Cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `program` with `line` split at spaces as its arguments.
pub(crate) fn run(line: &str) -> Run {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Run { shown: vec![], words, dir: root().to_path_buf(), env: vec![], limit_s: LIMIT_S }
}

/// Processor time that ended commands have used so far, with all that they started; zero where the kernel
/// hides it.
pub(crate) fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may hold spaces. Behind it fields 3 to 52 follow; 16 and 17 are what is asked
    // for.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(16 - 3).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * TICK_MS)
}

impl Run {
    /// Adds one argument, spaces and all.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.words.push(arg.as_ref().to_string_lossy().into_owned());
        self
    }

    /// Adds `line` split at spaces.
    pub(crate) fn args(mut self, line: &str) -> Run {
        self.words.extend(line.split_whitespace().map(str::to_owned));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        let value = value.as_ref().to_string_lossy().into_owned();
        self.shown.push(format!("{name}={value:?}"));
        self.env.push((name.to_owned(), value));
        self
    }

    /// Runs it in `dir`.
    pub(crate) fn dir(mut self, dir: &Path) -> Run {
        self.dir = dir.to_path_buf();
        self
    }

    /// Ends it, and what it started, after this many seconds.
    pub(crate) fn limit_s(mut self, seconds: u64) -> Run {
        self.limit_s = seconds;
        self
    }

    /// Runs it with its output shown.
    pub(crate) fn status(self) -> Result<(), Failure> {
        println!("$ {}", self.line());
        let status = self.command().stdin(Stdio::null()).status();
        self.judge(status.map(|status| status.code()))
    }

    /// Runs it unseen and gives its standard output.
    pub(crate) fn output(self) -> Result<String, Failure> {
        let output = written(self.command().stdin(Stdio::null()));
        self.judge(output.as_ref().map(|output| output.status.code()).map_err(|error| error.kind().into()))?;
        let bytes = output.map(|output| output.stdout).unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Runs it, and gives what it wrote on standard error instead of showing it.
    pub(crate) fn complaint(self) -> (Result<(), Failure>, String) {
        println!("$ {}", self.line());
        let ended = Written::new().and_then(|said| {
            let status = self.command().stdin(Stdio::null()).stderr(said.stdio()?).status()?;
            Ok((status.code(), said.read()?))
        });
        let (code, said) = match ended {
            Ok((code, said)) => (Ok(code), said),
            Err(error) => (Err(error), Vec::new()),
        };
        (self.judge(code), String::from_utf8_lossy(&said).into_owned())
    }

    fn line(&self) -> String {
        [self.shown.as_slice(), self.words.as_slice()].concat().join(" ")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=10").arg(self.limit_s.to_string());
        command.args(&self.words).current_dir(&self.dir).envs(self.env.iter().cloned());
        command
    }

    fn judge(&self, code: std::io::Result<Option<i32>>) -> Result<(), Failure> {
        let line = self.words.join(" ");
        match code {
            Ok(Some(0)) => Ok(()),
            Ok(Some(TIMED_OUT)) => Err(Failure(format!("`{line}` passed {} s", self.limit_s))),
            Ok(Some(code)) => Err(Failure(format!("`{line}` exited with {code}"))),
            Ok(None) => Err(Failure(format!("`{line}` was ended by a signal"))),
            Err(error) => Err(Failure(format!("`{line}` did not start: {error}"))),
        }
    }
}

/// Runs a command until it ends itself, and gives what it has written by then. A process that it leaves
/// behind would hold pipes open, and keep who reads them.
pub(crate) fn written(command: &mut Command) -> std::io::Result<Output> {
    let (out, err) = (Written::new()?, Written::new()?);
    let status = command.stdout(out.stdio()?).stderr(err.stdio()?).status()?;
    Ok(Output { status, stdout: out.read()?, stderr: err.read()? })
}

/// A file without a name, in place of a pipe.
struct Written(File);

impl Written {
    fn new() -> std::io::Result<Written> {
        tempfile::tempfile().map(Written)
    }

    fn stdio(&self) -> std::io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    fn read(mut self) -> std::io::Result<Vec<u8>> {
        self.0.rewind()?;
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_success_failure_and_too_long_apart() {
        assert_eq!(run("true").status(), Ok(()));
        assert_eq!(run("false").status(), Err(Failure("`false` exited with 1".into())));
        assert_eq!(run("sleep 9").limit_s(1).status(), Err(Failure("`sleep 9` passed 1 s".into())));
        assert!(run("no-such-program-here").status().is_err());
    }

    #[test]
    fn counts_what_commands_use() {
        let before = processor();
        assert_eq!(run("sh -c").arg("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").status(), Ok(()));
        assert!(processor() > before);
    }

    #[test]
    fn keeps_what_is_said_on_standard_error_however_it_ends() {
        let (result, said) = run("sh -c").arg("echo why >&2; exit 3").complaint();
        assert_eq!(
            (result, said.as_str()),
            (Err(Failure("`sh -c echo why >&2; exit 3` exited with 3".into())), "why\n")
        );
    }

    #[test]
    fn a_process_that_a_command_leaves_behind_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("a folder of our own");
        // It ends with the folder, or after ten seconds.
        let leaves = "for i in $(seq 100); do [ -e \"$0\" ] && sleep 0.1; done & echo said; echo why >&2";
        let started = || run("sh -c").arg(leaves).arg(folder.path().display().to_string());
        let begun = std::time::Instant::now();
        assert_eq!(started().output(), Ok("said\n".into()));
        assert_eq!(started().complaint(), (Ok(()), "why\n".into()));
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }

    #[test]
    fn gives_output_directory_and_environment() {
        let out = run("sh -c").arg("echo $WORD; pwd").env("WORD", "a b").dir(Path::new("/")).output();
        assert_eq!(out, Ok("a b\n/\n".into()));
    }
}
