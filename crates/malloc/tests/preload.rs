//! Programs that know nothing of the library, with it preloaded: C programs of these tests, and the system's.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;

/// How long a program may take, in seconds: far more than it does, so that a hang ends.
const LIMIT_S: u32 = 60;

/// What each C program says that has found everything as it should be.
const FINE: &str = "all is as it should be\n";

/// Where cargo has put a library: beside this test.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("Linux tells where it is");
    let library = test.parent().expect("a file lies in a folder").join(name);
    assert!(library.exists(), "{library:?}");
    library
}

/// A file of this crate.
fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A command that runs with the library. Its processes end after [`LIMIT_S`].
fn preloaded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5"]).arg(LIMIT_S.to_string());
    command.arg("env").arg(format!("LD_PRELOAD={}", library("libstandpipe_malloc.so").display()));
    command.arg(program.as_ref()).stdin(Stdio::null()).env_remove("LD_PRELOAD").process_group(0);
    command
}

/// Runs a command, which must end well, and gives what it wrote.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it can be run");
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("it is text")
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let how = output.status.signal().map_or("", |_| "by a signal");
    format!("{} {how}\n-- standard output:\n{out}-- standard error:\n{err}", output.status)
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        testbed::skip(format!("no {program}"));
    }
    found
}

/// Compiles a program of these tests, and gives its path in a folder that lives as long as the tests.
fn compile(compiler: &str, source: &str, to: &str, flags: &[&str]) -> PathBuf {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("there is room"));
    let to = FOLDER.path().join(to);
    let source = here("tests/programs").join(source);
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror"])
        .arg(source)
        .arg("-o")
        .arg(&to)
        .args(flags)
        .output()
        .expect("a C compiler is there");
    assert!(output.status.success(), "{}", text(&output));
    to
}

/// The program that forks.
fn forks() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| compile("cc", "forks.c", "forks", &["-lpthread", "-lutil"]));
    &PROGRAM
}

#[test]
fn it_exports_what_c_allocates_by_and_one_symbol() {
    let names =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library("libstandpipe_malloc.so")).output();
    let Ok(names) = names else { return testbed::skip("no nm") };
    let names = String::from_utf8(names.stdout).expect("it is text");
    let names: Vec<&str> = names.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let wanted = "aligned_alloc calloc free malloc malloc_usable_size memalign posix_memalign pvalloc realloc \
                  reallocarray standpipe_malloc_heap_v1 valloc";
    assert_eq!(names, wanted.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn it_keeps_what_the_c_library_promises_of_its_allocator() {
    let blocks = compile("cc", "blocks.c", "blocks", &["-ldl", "-lpthread"]);
    let loaded = compile("cc", "loaded.c", "libloaded.so", &["-shared", "-fPIC"]);
    assert_eq!(run(preloaded(blocks).arg(loaded)), FINE);
    let news = compile("c++", "news.cc", "news", &["-std=c++17"]);
    assert_eq!(run(&mut preloaded(news)), FINE);
}

/// Runs a case of the program that forks, which must find everything as it should be, and gives what else it
/// says.
fn forks_well(case: &str, env: &[(&str, &str)]) -> String {
    let output = preloaded(forks()).arg(case).envs(env.iter().copied()).output().expect("it can be run");
    assert!(output.status.success() && output.stdout == FINE.as_bytes(), "{case}: {}", text(&output));
    String::from_utf8(output.stderr).expect("it is text")
}

#[test]
fn neither_a_parent_nor_its_child_sees_what_the_other_writes() {
    for case in ["plain", "deep", "many", "librarys", "handlers"] {
        assert_eq!(forks_well(case, &[]), "", "{case}");
    }
}

#[test]
fn commands_are_run_by_all_calls_for_it() {
    assert_eq!(forks_well("commands", &[]), "");
    assert_eq!(forks_well("spawned", &[("STANDPIPE_MALLOC_FORK_MAX", "0")]), "");
}

#[test]
fn a_child_has_what_all_threads_wrote_until_one_moment() {
    for case in ["threads", "crowd", "churn", "files"] {
        assert_eq!(forks_well(case, &[]), "", "{case}");
    }
}

#[test]
fn threads_that_take_no_signals_get_none() {
    for case in ["signals", "groups"] {
        assert_eq!(forks_well(case, &[]), "", "{case}");
    }
}

#[test]
fn a_child_that_is_killed_while_it_copies_holds_nobody_up() {
    assert_eq!(forks_well("killed", &[]), "");
}

#[test]
fn a_child_that_can_have_no_copy_ends_and_says_why() {
    let larger = forks_well("large", &[("STANDPIPE_MALLOC_FORK_MAX", "10M")]);
    assert!(larger.contains("more than the 10485760 that a child may copy"), "{larger}");
    let no_number = forks_well("large", &[("STANDPIPE_MALLOC_FORK_MAX", "much")]);
    assert!(no_number.contains("STANDPIPE_MALLOC_FORK_MAX is no number of bytes"), "{no_number}");
    let closed = forks_well("closed", &[]);
    assert!(closed.contains("has closed that of the memory file"), "{closed}");
    let stack = forks_well("stack", &[]);
    assert!(stack.contains("a stack that its parent's malloc gave"), "{stack}");
}

#[test]
fn the_systems_programs_run_as_ever() {
    let out =
        run(preloaded("sh").args(["-c", "x=$(echo one | tr o u); (exit 3); echo $x $?; ls / | grep -c ."]));
    assert!(out.starts_with("une 3\n"), "{out}");
    let listed = run(preloaded("ls").arg("/"));
    assert_eq!(listed, run(Command::new("ls").arg("/")));
    if has("bash") {
        let script =
            "exec 3>&1 4</dev/null; for i in 1 2 3; do (echo $i >&3; echo $(echo deep $i)); done; wait";
        assert_eq!(run(preloaded("bash").args(["-c", script])), "1\ndeep 1\n2\ndeep 2\n3\ndeep 3\n");
    }
}

#[test]
fn large_files_are_sorted_by_several_threads() {
    let folder = tempfile::tempdir().expect("there is room");
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let lines: Vec<String> = (0..300_000_u64).map(|i| (i * 7_919 % 1_000_003).to_string()).collect();
    std::fs::write(&from, lines.join("\n") + "\n").expect("there is room");
    run(preloaded("sort")
        .args(["-n", "--parallel=4", "-S", "2M", "-T"])
        .arg(folder.path())
        .arg("-o")
        .arg(&to)
        .arg(&from));
    let sorted = std::fs::read_to_string(&to).expect("it was written");
    let mut numbers: Vec<u64> = lines.iter().map(|line| line.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert!(sorted.lines().map(|line| line.parse::<u64>().expect("a number")).eq(numbers));
}

#[test]
fn an_interpreter_forks_and_threads() {
    if !has("python3") {
        return;
    }
    let program = "
import os, subprocess, threading, multiprocessing
assert subprocess.run(['echo', 'said'], capture_output=True).stdout == b'said\\n'
table, stopped = {i: str(i) for i in range(50000)}, []
def work():
    while not stopped: [str(i) for i in range(1000)]
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for turn in range(5):
    child = os.fork()
    if child == 0: os._exit(7 if table[777] == '777' and len([str(i) for i in range(50000)]) == 50000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stopped.append(True)
for thread in threads: thread.join()
with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))
";
    assert_eq!(run(preloaded("python3").args(["-c", program])), "[1, 2]\n");
}

#[test]
fn git_looks_after_a_folder() {
    if !has("git") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let git = |words: &[&str]| run(preloaded("git").arg("-C").arg(folder.path()).args(words));
    git(&["init", "-q"]);
    for name in 0..50 {
        std::fs::write(folder.path().join(name.to_string()), "text\n".repeat(name)).expect("there is room");
    }
    git(&["add", "."]);
    git(&["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "all"]);
    std::fs::write(folder.path().join("7"), "other").expect("there is room");
    assert_eq!(git(&["status", "--porcelain"]), " M 7\n");
    assert_eq!(git(&["gc", "-q"]), "");
}

/// Tells the process that [`rust_node`] starts from those that run all tests.
const ROLE: &str = "STANDPIPE_TEST_PRELOADED";

/// A program in Rust has the node compiled in, and allocates by the system's allocator.
#[test]
fn a_node_in_rust_finds_the_heap() {
    let this = std::env::current_exe().expect("Linux tells where it is");
    run(preloaded(this)
        .args(["--exact", "rust_node", "--nocapture"])
        .env(ROLE, "yes")
        .env_remove("STANDPIPE_JOB"));
}

#[test]
fn rust_node() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let node = standpipe::Node::open(standpipe::Config::new()).expect("a node of one");
    let (value, on_the_stack) = (Box::new(AtomicU64::new(7)), 8_u64);
    let there = node.heap().ptr_of(value.as_ptr()).expect("it is allocated");
    assert_eq!((node.fetch_add(there, 1), value.load(Ordering::Relaxed)), (Ok(7), 8));
    assert_eq!(node.heap().ptr_of(&raw const on_the_stack), None);
    let mut command = Command::new("true");
    // SAFETY: the function does nothing; that there is one has the library fork.
    unsafe { command.pre_exec(|| Ok(())) };
    assert!(command.status().expect("it runs").success());
    let malloc = standpipe::host::preloaded_malloc().expect("it is preloaded");
    assert!(malloc.bytes > 0 && malloc.copied_bytes > 0, "{malloc:?}");
    assert_eq!((malloc.copied, malloc.refused, malloc.not_halted), (1, 0, 0), "{malloc:?}");
}

#[test]
fn peers_map_what_malloc_gives() {
    let folder = tempfile::tempdir().expect("there is room");
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("a version has three numbers").0;
    for name in ["libstandpipe.so".to_owned(), format!("libstandpipe.so.{version}")] {
        let link = std::os::unix::fs::symlink(library("libstandpipe_c.so"), folder.path().join(name));
        link.expect("a new folder");
    }
    let include = format!("-I{}", here("../capi/include").display());
    let (at, there) =
        (format!("-L{}", folder.path().display()), format!("-Wl,-rpath,{}", folder.path().display()));
    let flags = [&include, &at, "-lstandpipe", "-Wl,--disable-new-dtags", &there, "-lpthread"];
    let puts = compile("cc", "puts.c", "puts", &flags);
    let lines = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let heard = std::sync::Arc::clone(&lines);
    let outcome = standpipe::launch::Launch::new(puts)
        .ranks(2)
        .grace(Duration::from_secs(10))
        .env("LD_PRELOAD", library("libstandpipe_malloc.so"))
        .say(|_| {})
        .on_line(move |_, _, line| {
            let line = String::from_utf8_lossy(line);
            heard.lock().expect("nobody panics with it").push_str(&format!("{}\n", line.trim_end()));
        })
        .run();
    let lines = lines.lock().expect("nobody panics with it");
    assert_eq!((outcome.expect("the job starts").status(), lines.as_str()), (0, FINE.repeat(2).as_str()));
}
