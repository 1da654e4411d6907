//! What every command makes of arguments and of a standard output that cannot be.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use testbed::{Terminal, assert_refused};

fn standpipe(words: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(stdout)
        .output()
        .expect("the command was built with this test")
}

/// Commands that are soon done, in text and as JSON.
fn commands() -> Vec<Vec<&'static str>> {
    let short = ["doctor", "info", "perf open", "run -n 1 -- true"];
    let commands: Vec<Vec<&str>> = short.iter().map(|words| words.split(' ').collect()).collect();
    let with_json: Vec<Vec<&str>> =
        commands.iter().map(|words| [&words[..1], &["--json"], &words[1..]].concat()).collect();
    [with_json, commands].concat()
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for words in commands() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = standpipe(&words, writer.into());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !error.contains("pipe ("), "{words:?}: {error}");
    }
}

#[test]
fn a_full_disk_is_a_failure_in_a_line() {
    for words in commands() {
        if words == ["run", "-n", "1", "--", "true"] {
            // It prints nothing itself.
            continue;
        }
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = standpipe(&words, full.into());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains("cannot write to standard output: No space left"), "{words:?}: {error}");
    }
}

/// Commands that write on standard error, with the status that each ends with.
const COMPLAINING: [(&str, i32); 5] = [
    ("run -n 2 -- no-such-program", 127),
    ("run -n 1 -- false", 1),
    ("perf --size 8", 2),
    ("-v perf open", 0),
    ("top 1", 1),
];

#[test]
fn a_standard_error_that_takes_nothing_changes_no_status() {
    for (words, status) in COMPLAINING {
        let words: Vec<&str> = words.split(' ').collect();
        let ends = |stderr: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
            command.args(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
            command.status().expect("the command was built with this test").code()
        };
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = [ends(Stdio::null()), ends(full.into()), ends(writer.into())];
        assert_eq!(ended, [Some(status); 3], "{words:?}");
    }
}

#[test]
fn settings_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let bad = std::ffi::OsStr::from_bytes(b"\xff");
    for setting in ["STANDPIPE_HEAP", "STANDPIPE_TRANSPORT", "STANDPIPE_LAUNCHER"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let output =
            command.args(["doctor"]).env(setting, bad).stdin(Stdio::null()).output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(1) && said.contains(setting), "{setting}: {said}");
    }
}

#[test]
fn what_takes_long_tells_how_far_it_has_come_even_without_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("perf").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command was built with this test");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let told = lines.find(|line| line.contains(" % after "));
    child.kill().expect("it has more to measure");
    child.wait().expect("our child");
    let told = told.expect("all its cases take far longer than two seconds");
    // Rows for placements of cores come to these.
    let all = told.split_once('/').and_then(|(_, rest)| rest.split_once(' ')?.0.parse::<u32>().ok());
    assert!(told.starts_with("standpipe: ") && all >= Some(31), "{told}");
}

#[test]
fn messages_are_measured_in_nine_jobs() {
    let output = standpipe(&["perf", "am", "--json"], Stdio::piped());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    assert_eq!((number("jobs"), number("samples")), (9.0, 1800.0));
    let ratio = number("median_ns") / number("limit_ns");
    assert!((number("ratio") - ratio).abs() < 1e-9, "{row}");
}

#[test]
fn lists_of_grants_and_lists_by_one_grant_are_measured() {
    let row = |args: &[&str]| -> serde_json::Value {
        let output = standpipe(args, Stdio::piped());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one object")
    };
    let shared = row(&["perf", "share-many", "-n", "2000", "--json"]);
    assert_eq!(
        (&shared["op"], &shared["n"], &shared["limit_ns"]),
        (&"share-many".into(), &2000.into(), &100.0.into())
    );
    assert!(
        shared["bytes_each"].as_f64() > Some(0.0) && shared["median_ns"].as_f64() > Some(0.0),
        "{shared}"
    );
    if matches!(measure::attach::try_attach(), measure::attach::Attach::Works) {
        let list = row(&["perf", "scatter", "--memory", "one-grant", "-n", "8", "--json"]);
        assert_eq!((&list["memory"], &list["n"]), (&"one-grant".into(), &8.into()));
        assert!(list["ratio"].as_f64() > Some(0.0) && list.get("bytes_each").is_none(), "{list}");
    }
}

#[test]
fn puts_that_miss_are_measured_over_a_network() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    let output = standpipe(&["perf", "miss", "--transport", "ofi:tcp", "--json"], Stdio::piped());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(row["samples"].as_u64().is_some_and(|samples| samples > 0), "{row}");
    assert_eq!((&row["op"], &row["size"], &row["memory"]), (&"miss".into(), &8.into(), &"private".into()));
}

#[test]
fn puts_that_signal_are_measured_over_a_network() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    let output = standpipe(&["perf", "put-signal", "--transport", "ofi:tcp", "--json"], Stdio::piped());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(row["samples"].as_u64().is_some_and(|samples| samples > 0), "{row}");
    let limit = "a write by libfabric there and back";
    assert_eq!(
        (&row["op"], &row["jobs"], &row["limit_name"]),
        (&"put-signal".into(), &1.into(), &limit.into())
    );
}

#[test]
fn what_cannot_be_is_refused_at_once_and_in_words() {
    let cases: [(&[&str], &str); 15] = [
        (&["perf", "put", "--size", "100T"], "of memory at least, and this machine has"),
        (&["perf", "scatter", "--size", "9999999T", "-n", "99999999999"], "of memory at least"),
        (&["run", "-n", "0", "--", "true"], "it must be 1 to 1024"),
        (&["perf", "--size", "8"], "name the operation"),
        (&["perf", "miss", "--transport", "shm"], "nothing is registered within a host"),
        (&["perf", "miss", "--size", "9"], "--size does not fit miss"),
        (&["perf", "am", "--size", "1G"], "a message's payload has at most"),
        (&["perf", "am", "--memory", "private"], "--memory does not fit am"),
        (&["perf", "barrier", "--size", "64"], "--size does not fit barrier"),
        (&["perf", "alltoall", "--size", "8"], "in multiples of 32 bytes"),
        (&["perf", "allreduce", "-n", "1"], "2 to 256 can be measured"),
        (&["perf", "am", "--target", "busy"], "--target does not fit am"),
        (&["perf", "atomic", "-n", "2"], "-n 2 does not fit atomic"),
        (&["perf", "share-many", "-n", "1048577"], "a node has at most 1048576"),
        (&["perf", "get", "--memory", "one-grant"], "--memory one-grant does not fit get"),
    ];
    for (words, said) in cases {
        assert_refused(words, said, &standpipe(words, Stdio::piped()));
    }
}

/// The variable that names libfabric's file, or the libfabric that is compiled in.
const LIBFABRIC: &str = "STANDPIPE_LIBFABRIC";

#[test]
fn what_is_wrong_with_arguments_is_said_whatever_is_installed() {
    let cases: [(&[&str], &str); 3] = [
        (&["perf", "put-signal", "--same-core"], "leave out --same-core"),
        (&["perf", "am"], "only put, get, miss, pin, put-signal, flood and bandwidth are measured"),
        (&["perf", "put", "--size", "100T"], "of memory at least, and this machine has"),
    ];
    for (words, said) in cases {
        let words = [words, &["--transport", "ofi:tcp"]].concat();
        assert_refused(&words, said, &standpipe(&words, Stdio::piped()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let without = command.args(&words).env(LIBFABRIC, "/no/such").stdin(Stdio::null()).output();
        assert_refused(&words, said, &without.expect("it was built with this test"));
    }
}

#[test]
fn a_provider_that_is_not_there_is_refused_in_the_same_words_by_all() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    let said = "libfabric has no provider nonesuch that can be used here";
    for words in [&["perf", "am"][..], &["perf", "put"], &["run", "-n", "2"]] {
        let over = ["--transport", "ofi:nonesuch"];
        let program: &[&str] = if words[0] == "run" { &["true"] } else { &[] };
        let words = [words, &over, program].concat();
        assert_refused(&words, said, &standpipe(&words, Stdio::piped()));
    }
}

#[test]
fn the_help_of_perf_names_all_that_is_measured_over_a_network() {
    let help = standpipe(&["perf", "-h"], Stdio::piped()).stdout;
    let help = String::from_utf8_lossy(&help).split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, over) = help.split_once("over ofi only ").expect("of --transport");
    let (over, _) = over.split_once("Without it").expect("what holds then");
    for op in ["put", "get", "put-signal", "miss", "pin"] {
        assert!(over.split([' ', ',', '.']).any(|word| word == op), "{op}: {over}");
    }
}

#[test]
fn a_network_that_is_not_there_is_refused_in_a_line_before_anything_is_run() {
    let words = ["perf", "put", "--transport", "ofi:tcp"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.args(words).env(LIBFABRIC, "/no/such").stdin(Stdio::null());
    let output = command.output().expect("it was built with this test");
    assert_refused(&words, "libfabric cannot be loaded: /no/such", &output);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

#[cfg(feature = "bundled")]
#[test]
fn the_libfabric_compiled_in_has_tcp_and_moves_bytes() {
    let json = |words: &str| -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.args(words.split(' ')).env(LIBFABRIC, "bundled").stdin(Stdio::null());
        let output = command.output().expect("it was built with this test");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one object")
    };
    let info = json("info --json");
    let ofi = &info["transports"][1];
    let providers = ofi["providers"].as_array().expect("a list");
    assert!(ofi["origin"] == "bundled" && !providers.is_empty(), "{info}");
    let row = json("perf put --transport ofi:tcp --json");
    assert!(row["samples"].as_u64().is_some_and(|samples| samples > 0), "{row}");
}

/// Runs a command in a terminal, and gives its standard output without its standard error.
fn in_terminal(columns: u16, words: &str, settings: &[(&str, &str)]) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" {words} 2> /dev/null"), env!("CARGO_BIN_EXE_standpipe")]);
    shell.env_remove("NO_COLOR").envs(settings.iter().copied());
    // Whether `doctor` finds fault with this machine does not matter here.
    Terminal::of(columns).output(&shell).expect("a terminal").1
}

#[test]
fn whatever_is_printed_fits_the_commonest_terminal() {
    for words in commands() {
        let json = words.contains(&"--json");
        let said = in_terminal(80, &words.join(" "), &[]).replace('\r', "");
        let plain = without_colours(&said);
        for line in plain.lines().filter(|_| !json) {
            // No line break parts a command.
            let whole = line.contains('`');
            assert!(whole || line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}

/// Text without what gives it colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn completions_and_manual_pages_name_what_users_call_and_nothing_else() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = standpipe(&["completions", shell], Stdio::piped());
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.contains("doctor") && text.contains("tag-output"), "{shell}");
        assert!(!text.contains("doctor-peer") && !text.contains("perf-worker"), "{shell}");
    }
    let page = String::from_utf8(standpipe(&["man"], Stdio::piped()).stdout).expect("text");
    assert!(page.contains(".TH standpipe 1") && page.contains("Exit status"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man1");
    let out = pages.to_str().expect("letters");
    assert!(standpipe(&["man", "--out", out], Stdio::piped()).status.success());
    for page in ["standpipe.1", "standpipe-run.1", "standpipe-top.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    assert_eq!(standpipe(&["man", "--out", "/proc/x"], Stdio::piped()).status.code(), Some(1));
}

#[test]
fn tables_are_as_wide_as_the_terminal_and_coloured_where_it_shows_colours() {
    let widest = |columns| {
        let said = without_colours(&in_terminal(columns, "info", &[]));
        said.lines().map(|line| line.chars().count()).max().expect("some lines")
    };
    assert!(widest(80) <= 81 && widest(80) < widest(200));
    assert!(in_terminal(80, "doctor", &[]).contains("\x1b["));
    for unwanted in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let said = in_terminal(80, "doctor", &[unwanted]);
        assert!(!said.contains('\x1b') && said.contains(" ok "), "{unwanted:?}: {said}");
    }
}

/// The user's setting is for the user's programs.
#[test]
fn the_commands_own_processes_expose_what_they_use_whatever_the_setting() {
    let mut perf = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    perf.args(["perf", "put", "--memory", "private", "--size", "8", "--json"])
        .env("STANDPIPE_EXPOSE", "ranges");
    let output = perf.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
