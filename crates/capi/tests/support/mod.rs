//! C programs that are compiled against the header and the library, and run alone or as jobs.
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may take: far more than it does, so that a hang ends.
const LIMIT: Duration = Duration::from_secs(120);

/// The strictest warnings that the header, and programs written today, are compiled with.
pub(crate) const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// A file or folder of this crate.
pub(crate) fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo has put the library: beside this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("Linux tells where it is");
    let library = test.parent().expect("a file lies in a folder").join("libstandpipe_c.so");
    assert!(library.exists(), "{library:?}");
    library
}

/// A folder with the library as it is installed, and with programs, all of which go with the value.
pub(crate) struct Programs {
    pub(crate) folder: TempDir,
}

impl Programs {
    pub(crate) fn new() -> Programs {
        let folder = tempfile::tempdir().expect("there is room for programs");
        let version = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("a version has three numbers").0;
        for name in ["libstandpipe.so".to_owned(), format!("libstandpipe.so.{version}")] {
            std::os::unix::fs::symlink(library(), folder.path().join(name)).expect("a new folder");
        }
        Programs { folder }
    }

    /// Compiles `source` with these flags, by the C or C++ compiler as its name says.
    pub(crate) fn compile(&self, source: &Path, flags: &[&str]) -> PathBuf {
        let name = source.file_stem().expect("a file has a name").to_string_lossy();
        let program = self.folder.path().join(format!("{name}{}", flags.concat().replace(['/', '='], "")));
        let is_cplusplus = source.extension().is_some_and(|extension| extension == "cc");
        let folder = self.folder.path().display();
        let output = Command::new(if is_cplusplus { "c++" } else { "cc" })
            .args(flags)
            .arg(format!("-I{}", here("include").display()))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{folder}"))
            .arg("-lstandpipe")
            // Ahead of LD_LIBRARY_PATH.
            .args(["-Wl,--disable-new-dtags", &format!("-Wl,-rpath,{folder}"), "-lm", "-lpthread"])
            .output()
            .expect("a C compiler is there");
        assert!(output.status.success(), "{source:?} {flags:?}: {}", text(&output));
        program
    }

    /// Whether the compiler has a sanitizer, by a program of one line.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let source = self.folder.path().join("one.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("there is room");
        let built =
            Command::new("cc").arg(flag).arg(&source).arg("-o").arg(source.with_extension("out")).output();
        let has = built.is_ok_and(|output| output.status.success());
        if !has {
            testbed::skip(format!("the C compiler has no {flag}"));
        }
        has
    }

    /// Compiles the text of a program.
    pub(crate) fn compile_text(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, source).expect("there is room for a program's text");
        self.compile(&path, flags)
    }
}

/// A program's output, on both streams.
pub(crate) fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n-- standard output:\n{out}-- standard error:\n{err}", output.status)
}

/// What came of a job: its status, and what its ranks wrote.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: u8,
    pub(crate) lines: Vec<String>,
}

impl Ran {
    /// Whether some rank wrote a line that has this in it.
    pub(crate) fn says(&self, part: &str) -> bool {
        self.lines.iter().any(|line| line.contains(part))
    }
}

/// Runs a program as a job of so many ranks.
pub(crate) fn run(program: &Path, ranks: u32, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&lines);
    let mut launch = standpipe::launch::Launch::new(program)
        .ranks(ranks)
        .args(args.iter().copied())
        .grace(Duration::from_secs(10))
        .say(|_| {})
        .on_line(move |rank, _, line| {
            let line = format!("{rank}: {}", String::from_utf8_lossy(line));
            heard.lock().expect("nobody panics with it").push(line);
        });
    for (name, value) in env {
        launch = launch.env(name, value);
    }
    let begun = Instant::now();
    let outcome = launch.run().expect("the job starts");
    assert!(begun.elapsed() < LIMIT, "{program:?} took {:?}", begun.elapsed());
    let lines = std::mem::take(&mut *lines.lock().expect("nobody panics with it"));
    Ran { status: outcome.status(), lines }
}

/// As [`run`], of a program that must end well.
pub(crate) fn run_well(program: &Path, ranks: u32, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let ran = run(program, ranks, args, env);
    assert_eq!(ran.status, 0, "{program:?} {args:?} {env:?}, {ranks} ranks: {ran:#?}");
    ran
}

/// Runs a program that nobody launched, to its end.
pub(crate) fn run_alone(command: &mut Command) -> Output {
    let [out, err] = [(); 2].map(|()| tempfile::tempfile().expect("there is room for its output"));
    let to = |file: &std::fs::File| Stdio::from(file.try_clone().expect("a file can be shared"));
    command.env_remove("STANDPIPE_JOB").stdin(Stdio::null()).stdout(to(&out)).stderr(to(&err));
    let mut child = command.spawn().expect("the program can be run");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().expect("it still runs");
            child.wait().expect("it is a child");
            panic!("{command:?} took more than {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let whole = |mut file: std::fs::File| {
        use std::io::{Read as _, Seek as _};
        let mut bytes = Vec::new();
        file.rewind().expect("it is a file");
        file.read_to_end(&mut bytes).expect("it can be read");
        bytes
    };
    Output { status, stdout: whole(out), stderr: whole(err) }
}

/// Whether libfabric is there, with its tcp provider.
pub(crate) fn has_network() -> bool {
    let found = standpipe::network::look_for(Some("tcp")).is_ok();
    if !found {
        testbed::skip("no libfabric with the provider tcp");
    }
    found
}
