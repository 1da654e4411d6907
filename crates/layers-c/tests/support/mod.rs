//! C programs that are compiled against the headers and the library, and run as jobs.
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may take: far more than it does, so that a hang ends.
const LIMIT: Duration = Duration::from_secs(120);

/// The strictest warnings that the headers, and programs written today, are compiled with.
pub(crate) const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// This crate's folder `name`.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo has put `libstandpipe_layers.so`: beside this test.
pub(crate) fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("Linux tells where it is");
    let folder = test.parent().expect("a file lies in a folder").to_owned();
    assert!(folder.join("libstandpipe_layers.so").exists(), "the library lies in {folder:?}");
    folder
}

/// Compiled programs, which are gone with the value.
pub(crate) struct Programs {
    folder: TempDir,
    /// How many have been compiled, for their names.
    count: AtomicU32,
}

impl Programs {
    pub(crate) fn new() -> Programs {
        Programs {
            folder: tempfile::tempdir().expect("there is room for programs"),
            count: AtomicU32::new(0),
        }
    }

    /// Compiles `source`, a file of `programs/`, with these flags before it, and links it with the library.
    pub(crate) fn compile(&self, source: &str, flags: &[&str]) -> PathBuf {
        self.compile_file(&folder("programs").join(source), flags)
    }

    /// Compiles a file that lies anywhere.
    pub(crate) fn compile_at(&self, source: &Path, flags: &[&str]) -> PathBuf {
        self.compile_file(source, flags)
    }

    /// Compiles the text of a C program.
    pub(crate) fn compile_text(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        let source = self.folder.path().join(name);
        std::fs::write(&source, text).expect("there is room for a program's text");
        self.compile_file(&source, flags)
    }

    fn compile_file(&self, source: &Path, flags: &[&str]) -> PathBuf {
        let stem = source.file_stem().expect("a file has a name").to_string_lossy();
        let program =
            self.folder.path().join(format!("{stem}-{}", self.count.fetch_add(1, Ordering::Relaxed)));
        let libraries = library_folder();
        let is_cplusplus = source.extension().is_some_and(|extension| extension == "cc");
        let output = Command::new(if is_cplusplus { "c++" } else { "cc" })
            .args(flags)
            .arg("-I")
            .arg(folder("include"))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(&libraries)
            .arg("-lstandpipe_layers")
            // Ahead of LD_LIBRARY_PATH, where cargo names a folder with an older library.
            .arg("-Wl,--disable-new-dtags")
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .arg("-lm")
            .output()
            .expect("a C compiler is there");
        assert!(output.status.success(), "{source:?} {flags:?}: {}", text(&output));
        program
    }
}

/// What a program wrote, on both streams.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}\n-- standard output:\n{}-- standard error:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How a job is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub(crate) ranks: u32,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) same_addresses: bool,
    pub(crate) keep_going: bool,
}

impl Job {
    pub(crate) fn of(ranks: u32) -> Job {
        Job { ranks, ..Job::default() }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Job {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Job {
        self.env.push((name.into(), value.into()));
        self
    }

    pub(crate) fn same_addresses(mut self) -> Job {
        self.same_addresses = true;
        self
    }

    /// The others go on when a rank has failed.
    pub(crate) fn keep_going(mut self) -> Job {
        self.keep_going = true;
        self
    }

    /// Runs `program` as such a job: all that its ranks wrote, by lines, each with its rank, and how the job
    /// ended.
    pub(crate) fn run(&self, program: &Path) -> Ran {
        use std::sync::{Arc, Mutex};
        let lines: Arc<Mutex<Vec<(u32, String)>>> = Arc::default();
        let heard = Arc::clone(&lines);
        let mut launch = standpipe::launch::Launch::new(program)
            .ranks(self.ranks)
            .args(&self.args)
            .same_addresses(self.same_addresses)
            .keep_going(self.keep_going)
            .grace(Duration::from_secs(10))
            .say(|_| {})
            .on_line(move |rank, _, line| {
                let line = String::from_utf8_lossy(line).into_owned();
                heard.lock().expect("nobody panics with it").push((rank, line));
            });
        for (name, value) in &self.env {
            launch = launch.env(name, value);
        }
        let begun = Instant::now();
        let outcome = launch.run().expect("the job starts");
        assert!(begun.elapsed() < LIMIT, "{program:?} took {:?}", begun.elapsed());
        let lines = std::mem::take(&mut *lines.lock().expect("nobody panics with it"));
        Ran { status: outcome.status(), lines }
    }

    /// As [`Job::run`], of a program that must end well.
    pub(crate) fn run_well(&self, program: &Path) -> Ran {
        let ran = self.run(program);
        assert_eq!(ran.status, 0, "{program:?}: {ran:#?}");
        ran
    }
}

/// What came of a job.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: u8,
    pub(crate) lines: Vec<(u32, String)>,
}

impl Ran {
    /// Whether some rank wrote a line that has this in it.
    pub(crate) fn says(&self, part: &str) -> bool {
        self.lines.iter().any(|(_, line)| line.contains(part))
    }
}

/// The transport over the first provider that is to be tested, or over tcp: what every machine with libfabric
/// has. Where neither provider nor transport is named, that takes time.
pub(crate) fn network() -> Option<&'static str> {
    let is_named =
        [testbed::PROVIDERS, "STANDPIPE_TRANSPORT"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_named && !testbed::has_time_for("a layer over the network") {
        return None;
    }
    static NETWORK: LazyLock<Option<String>> = LazyLock::new(|| {
        let named = std::env::var(testbed::PROVIDERS).ok();
        let provider = named.as_deref().and_then(|names| names.split(',').next()).unwrap_or("tcp");
        let found = standpipe::network::look_for(Some(provider));
        assert!(named.is_none() || found.is_ok(), "{provider} was asked for by name: {found:?}");
        found.is_ok().then(|| format!("ofi:{provider}"))
    });
    if NETWORK.is_none() {
        testbed::skip("no libfabric with the provider tcp");
    }
    NETWORK.as_deref()
}

/// Runs a program that nobody launched, as its user would in a shell.
pub(crate) fn run_alone(program: &Path, args: &[&str]) -> Output {
    run_alone_with(program, args, Stdio::null(), &[])
}

/// The same, with such a standard input and such variables.
pub(crate) fn run_alone_with(program: &Path, args: &[&str], input: Stdio, env: &[(&str, &str)]) -> Output {
    // Files take all that it writes; a pipe that nobody reads meanwhile would not.
    let [out, errors] = [(); 2].map(|()| tempfile::tempfile().expect("there is room for its output"));
    let to = |file: &File| Stdio::from(file.try_clone().expect("a file can be shared"));
    let mut child = Command::new(program)
        .args(args)
        .env_remove("STANDPIPE_JOB")
        .envs(env.iter().copied())
        .stdin(input)
        .stdout(to(&out))
        .stderr(to(&errors))
        .spawn()
        .expect("the program can be run");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().expect("it still runs");
            child.wait().expect("it is a child");
            panic!("{program:?} {args:?} took more than {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Output { status, stdout: whole(out), stderr: whole(errors) }
}

/// All that a file holds.
fn whole(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("it is a file");
    file.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

/// The headers compile by themselves in each language, with warnings as errors.
pub(crate) fn header_compiles(header: &str) {
    static CPLUSPLUS: OnceLock<bool> = OnceLock::new();
    let has_cplusplus = *CPLUSPLUS.get_or_init(|| Command::new("c++").arg("--version").output().is_ok());
    let folder = tempfile::tempdir().expect("there is room");
    let languages = [("cc", "gnu89", "c"), ("cc", "c11", "c"), ("c++", "c++17", "cc")];
    for (compiler, standard, extension) in languages {
        if compiler == "c++" && !has_cplusplus {
            testbed::skip("the headers in C++: no C++ compiler");
            continue;
        }
        let source = folder.path().join(format!("header.{extension}"));
        let program =
            format!("#include \"{header}\"\n#include \"{header}\"\nint main(void) {{ return 0; }}\n");
        std::fs::write(&source, program).expect("there is room");
        let output = Command::new(compiler)
            .args([&format!("-std={standard}"), "-fsyntax-only"])
            .args(STRICT)
            .arg("-I")
            .arg(self::folder("include"))
            .arg(&source)
            .output()
            .expect("a compiler is there");
        assert!(output.status.success(), "{header} as {standard}: {}", text(&output));
    }
}
