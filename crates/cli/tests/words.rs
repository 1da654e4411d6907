//! What every command makes of arguments and of a standard output that cannot be.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use testbed::Terminal;

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
fn commands(folder: &str) -> Vec<Vec<&str>> {
    let short =
        ["sim --steps 50", "doctor", "info", "perf open", "kernel bitonic --size 1024", "run -n 1 -- true"];
    let mut commands: Vec<Vec<&str>> = short.iter().map(|words| words.split(' ').collect()).collect();
    commands.push(vec!["study", "kv", "--requests", "2", "--out", folder]);
    let with_json: Vec<Vec<&str>> =
        commands.iter().map(|words| [&words[..1], &["--json"], &words[1..]].concat()).collect();
    // `study kv --json`, not `study --json kv`.
    let with_json = with_json.into_iter().map(|mut words| {
        if words[0] == "study" || words[0] == "kernel" {
            words.swap(1, 2);
        }
        words
    });
    let mut all: Vec<Vec<&str>> = with_json.collect();
    all.append(&mut commands);
    all
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for words in commands(folder.path().to_str().expect("letters")) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = standpipe(&words, writer.into());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !error.contains("pipe ("), "{words:?}: {error}");
    }
}

#[test]
fn a_full_disk_is_a_failure_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for words in commands(folder.path().to_str().expect("letters")) {
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
const COMPLAINING: [(&str, i32); 6] = [
    ("run -n 2 -- no-such-program", 127),
    ("run -n 1 -- false", 1),
    ("perf --size 8", 2),
    ("-v perf open", 0),
    ("kernel bitonic --size 1024", 0),
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
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a file");
    std::fs::write(&file, "").expect("written");
    let (folder, file) = (folder.path().to_str().expect("letters"), file.to_str().expect("letters"));
    let cases: [(&[&str], &str); 34] = [
        (&["sim", "--seeds", "0"], "it must be at least 1"),
        (&["sim", "--steps", "0"], "it must be at least 1"),
        (&["sim", "--costs", "/dev/zero"], "these are no costs"),
        (&["sim", "--measure", folder], "it is a directory"),
        (&["sim", "--measure", "/dev/null"], "it is no file, but a device"),
        (&["kernel", "cannon", "--record", "/dev/null"], "it is no file, but a device"),
        (&["kernel", "cannon", "--record", folder], "it is a directory"),
        (&["kernel", "bitonic", "--size", "68719476736"], "of memory at least, and this machine has"),
        (&["perf", "put", "--size", "100T"], "of memory at least, and this machine has"),
        (&["perf", "scatter", "--size", "9999999T", "-n", "99999999999"], "of memory at least"),
        (&["study", "policies", "--out", file], "it is no directory"),
        (&["study", "firehose", "--out", "/proc"], "cannot write a report to /proc: "),
        (&["study", "scale", "--nodes-max", "1"], "it must be 2 to 65536"),
        (&["run", "-n", "0", "--", "true"], "it must be 1 to 1024"),
        (&["sim", "--costs", "/no/such"], "/no/such is none of"),
        (&["sim", "--seed", "2", "--seeds", "18446744073709551615"], "there are no"),
        (&["sim", "--measure", "/proc/costs.toml"], "cannot write /proc/costs.toml: "),
        (&["kernel", "cannon", "--record", "/proc/trace"], "recording to /proc/trace: "),
        (&["kernel", "cannon", "-n", "5"], "not 1, 4, 9"),
        (&["perf", "--size", "8"], "name the operation"),
        (&["perf", "miss", "--transport", "shm"], "nothing is registered within a host"),
        (&["perf", "miss", "--size", "9"], "--size does not fit miss"),
        (&["perf", "am", "--size", "1G"], "a message's payload has at most"),
        (&["study", "kv", "--cap", "1K"], "holds no block"),
        (&["study", "kv", "--trace", "/no/such"], "reading /no/such: No such file"),
        (&["study", "kv", "--out", file], "it is no directory"),
        (&["study", "kv", "--cap", "100T"], "of memory at least, and this machine has"),
        (&["study", "policies", "--trace", "/no/such"], "reading /no/such: No such file"),
        (&["perf", "am", "--memory", "private"], "--memory does not fit am"),
        (&["perf", "barrier", "--size", "64"], "--size does not fit barrier"),
        (&["perf", "alltoall", "--size", "8"], "in multiples of 32 bytes"),
        (&["perf", "allreduce", "-n", "1"], "2 to 256 can be measured"),
        (&["perf", "am", "--target", "busy"], "--target does not fit am"),
        (&["perf", "atomic", "-n", "2"], "-n 2 does not fit atomic"),
    ];
    for (words, said) in cases {
        assert_refused(words, said, &standpipe(words, Stdio::piped()));
    }
}

/// With exit status 2, in few words that are the user's.
fn assert_refused(words: &[&str], said: &str, output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code().expect("not killed");
    assert!(output.stdout.is_empty(), "{words:?}: {error}");
    let temporary = ["at path", ".costs-", ".recording-"].iter().any(|part| error.contains(part));
    assert!(status == 2 && !temporary, "{words:?}: {status}: {error}");
    assert!(error.contains(said) && error.lines().count() < 8, "{words:?}: {error}");
}

/// The variable that names libfabric's file, or the libfabric that is compiled in.
const LIBFABRIC: &str = "STANDPIPE_LIBFABRIC";

#[test]
fn what_is_wrong_with_arguments_is_said_whatever_is_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a file");
    std::fs::write(&file, "").expect("written");
    let file = file.to_str().expect("letters");
    let cases: [(&[&str], &str); 12] = [
        (&["perf", "put-signal", "--same-core"], "leave out --same-core"),
        (&["perf", "am"], "only put, get, miss, pin and put-signal are measured"),
        (&["perf", "put", "--size", "100T"], "of memory at least, and this machine has"),
        (&["study", "kv", "--trace", "/no/such"], "reading /no/such: No such file"),
        (&["study", "kv", "--cap", "100T"], "of memory at least, and this machine has"),
        (&["study", "kv", "--out", file], "it is no directory"),
        (&["study", "gups", "--table", "128T"], "of memory at least, and this machine has"),
        (
            &["study", "isx", "--keys", "2147483648", "--ranks", "1024"],
            "of memory at least, and this machine has",
        ),
        (&["study", "isx", "--out", file], "it is no directory"),
        (&["study", "firehose", "--out", file], "it is no directory"),
        (&["study", "pindown", "--pin", "1"], "a put of 262144 bytes wants as many registered"),
        (&["study", "pindown", "--layer", "pm", "--pin", "1"], "messages of 262144 bytes want 2097152"),
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
    for words in [&["perf", "am"][..], &["perf", "put"], &["study", "kv"], &["run", "-n", "2"]] {
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
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let cases: [&[&str]; 7] = [
        &["perf", "put"],
        &["study", "layers", "--out"],
        &["study", "kv", "--out"],
        &["study", "gups", "--out"],
        &["study", "isx", "--out"],
        &["study", "firehose", "--out"],
        &["study", "pindown", "--out"],
    ];
    for words in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.args(words).env(LIBFABRIC, "/no/such").stdin(Stdio::null());
        if words.ends_with(&["--out"]) {
            command.arg(&out);
        }
        let output = command.args(["--transport", "ofi:tcp"]).output().expect("it was built with this test");
        assert_refused(words, "libfabric cannot be loaded: /no/such", &output);
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{words:?}");
        assert!(!out.exists(), "{words:?}: a folder is left");
    }
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
    let folder = tempfile::tempdir().expect("a folder");
    for words in commands(folder.path().to_str().expect("letters")) {
        let json = words.contains(&"--json");
        let said = in_terminal(80, &words.join(" "), &[]).replace('\r', "");
        let plain = without_colours(&said);
        for line in plain.lines().filter(|_| !json) {
            // No line break parts a command or a folder's name.
            let whole = line.contains('`') || line.contains(folder.path().to_str().expect("letters"));
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
        assert!(!text.contains("doctor-peer") && !text.contains("kv-worker"), "{shell}");
    }
    let page = String::from_utf8(standpipe(&["man"], Stdio::piped()).stdout).expect("text");
    assert!(page.contains(".TH standpipe 1") && page.contains("Exit status"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man1");
    let out = pages.to_str().expect("letters");
    assert!(standpipe(&["man", "--out", out], Stdio::piped()).status.success());
    for page in ["standpipe.1", "standpipe-run.1", "standpipe-study-kv.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
    assert_eq!(standpipe(&["man", "--out", "/proc/x"], Stdio::piped()).status.code(), Some(1));
}

#[test]
fn tables_are_as_wide_as_the_terminal_and_coloured_where_it_shows_colours() {
    let widest = |columns| {
        let said = in_terminal(columns, "sim --steps 50", &[]);
        said.lines().map(|line| line.chars().count()).max().expect("some lines")
    };
    assert!((41..=60).contains(&widest(60)) && (61..=200).contains(&widest(200)));
    assert!(in_terminal(80, "doctor", &[]).contains("\x1b["));
    for unwanted in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let said = in_terminal(80, "doctor", &[unwanted]);
        assert!(!said.contains('\x1b') && said.contains(" ok "), "{unwanted:?}: {said}");
    }
}
