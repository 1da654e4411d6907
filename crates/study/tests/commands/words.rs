//! What every command makes of arguments and of a standard output that cannot be.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use testbed::{Terminal, assert_refused};

fn study(words: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(stdout)
        .output()
        .expect("the command was built with this test")
}

/// Commands that are soon done, in text and as JSON.
fn commands(folder: &str) -> Vec<Vec<&str>> {
    let short = ["sim --steps 50", "kernel bitonic --size 1024"];
    let mut commands: Vec<Vec<&str>> = short.iter().map(|words| words.split(' ').collect()).collect();
    commands.push(vec!["kv", "--requests", "2", "--out", folder]);
    let with_json: Vec<Vec<&str>> = commands.iter().map(|words| [&words[..], &["--json"]].concat()).collect();
    [with_json, commands].concat()
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    for words in commands(folder.path().to_str().expect("letters")) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = study(&words, writer.into());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !error.contains("pipe ("), "{words:?}: {error}");
    }
}

#[test]
fn a_full_disk_is_a_failure_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for words in commands(folder.path().to_str().expect("letters")) {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = study(&words, full.into());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains("cannot write to standard output: No space left"), "{words:?}: {error}");
    }
}

/// Commands that write on standard error, with the status that each ends with.
const COMPLAINING: [(&str, i32); 2] = [("kernel bitonic --size 1024", 0), ("kernel cannon -n 5", 2)];

#[test]
fn a_standard_error_that_takes_nothing_changes_no_status() {
    for (words, status) in COMPLAINING {
        let words: Vec<&str> = words.split(' ').collect();
        let ends = |stderr: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
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
fn what_cannot_be_is_refused_at_once_and_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a file");
    std::fs::write(&file, "").expect("written");
    let (folder, file) = (folder.path().to_str().expect("letters"), file.to_str().expect("letters"));
    let cases: [(&[&str], &str); 21] = [
        (&["sim", "--seeds", "0"], "it must be at least 1"),
        (&["sim", "--steps", "0"], "it must be at least 1"),
        (&["sim", "--costs", "/dev/zero"], "these are no costs"),
        (&["sim", "--measure", folder], "it is a directory"),
        (&["sim", "--measure", "/dev/null"], "it is no file, but a device"),
        (&["kernel", "cannon", "--record", "/dev/null"], "it is no file, but a device"),
        (&["kernel", "cannon", "--record", folder], "it is a directory"),
        (&["kernel", "bitonic", "--size", "68719476736"], "of memory at least, and this machine has"),
        (&["policies", "--out", file], "it is no directory"),
        (&["firehose", "--out", "/proc"], "cannot write a report to /proc: "),
        (&["scale", "--nodes-max", "1"], "it must be 2 to 65536"),
        (&["sim", "--costs", "/no/such"], "/no/such is none of"),
        (&["sim", "--seed", "2", "--seeds", "18446744073709551615"], "there are no"),
        (&["sim", "--measure", "/proc/costs.toml"], "cannot write /proc/costs.toml: "),
        (&["kernel", "cannon", "--record", "/proc/trace"], "recording to /proc/trace: "),
        (&["kernel", "cannon", "-n", "5"], "not 1, 4, 9"),
        (&["kv", "--cap", "1K"], "holds no block"),
        (&["kv", "--trace", "/no/such"], "reading /no/such: No such file"),
        (&["kv", "--out", file], "it is no directory"),
        (&["kv", "--cap", "100T"], "of memory at least, and this machine has"),
        (&["policies", "--trace", "/no/such"], "reading /no/such: No such file"),
    ];
    for (words, said) in cases {
        assert_refused(words, said, &study(words, Stdio::piped()));
    }
}

/// The variable that names libfabric's file, or the libfabric that is compiled in.
const LIBFABRIC: &str = "STANDPIPE_LIBFABRIC";

#[test]
fn what_is_wrong_with_arguments_is_said_whatever_is_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a file");
    std::fs::write(&file, "").expect("written");
    let file = file.to_str().expect("letters");
    let cases: [(&[&str], &str); 9] = [
        (&["kv", "--trace", "/no/such"], "reading /no/such: No such file"),
        (&["kv", "--cap", "100T"], "of memory at least, and this machine has"),
        (&["kv", "--out", file], "it is no directory"),
        (&["gups", "--table", "128T"], "of memory at least, and this machine has"),
        (&["isx", "--keys", "2147483648", "--ranks", "1024"], "of memory at least, and this machine has"),
        (&["isx", "--out", file], "it is no directory"),
        (&["firehose", "--out", file], "it is no directory"),
        (&["pindown", "--pin", "1"], "a put of 262144 bytes wants as many registered"),
        (&["pindown", "--layer", "pm", "--pin", "1"], "messages of 262144 bytes want 2097152"),
    ];
    for (words, said) in cases {
        let words = [words, &["--transport", "ofi:tcp"]].concat();
        assert_refused(&words, said, &study(&words, Stdio::piped()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
        let without = command.args(&words).env(LIBFABRIC, "/no/such").stdin(Stdio::null()).output();
        assert_refused(&words, said, &without.expect("it was built with this test"));
    }
}

#[test]
fn a_provider_that_is_not_there_is_refused() {
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    let words = ["kv", "--transport", "ofi:nonesuch"];
    let said = "libfabric has no provider nonesuch that can be used here";
    assert_refused(&words, said, &study(&words, Stdio::piped()));
}

#[test]
fn a_network_that_is_not_there_is_refused_in_a_line_before_anything_is_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let cases: [&[&str]; 6] = [
        &["layers", "--out"],
        &["kv", "--out"],
        &["gups", "--out"],
        &["isx", "--out"],
        &["firehose", "--out"],
        &["pindown", "--out"],
    ];
    for words in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
        command.args(words).arg(&out).env(LIBFABRIC, "/no/such").stdin(Stdio::null());
        let output = command.args(["--transport", "ofi:tcp"]).output().expect("it was built with this test");
        assert_refused(words, "libfabric cannot be loaded: /no/such", &output);
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{words:?}");
        assert!(!out.exists(), "{words:?}: a folder is left");
    }
}

/// Runs a command in a terminal, and gives its standard output without its standard error.
fn in_terminal(columns: u16, words: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" {words} 2> /dev/null"), env!("CARGO_BIN_EXE_standpipe-study")]);
    Terminal::of(columns).output(shell.env("NO_COLOR", "1")).expect("a terminal").1
}

#[test]
fn whatever_is_printed_fits_the_commonest_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("letters");
    for words in commands(folder).iter().filter(|words| !words.contains(&"--json")) {
        let said = in_terminal(80, &words.join(" ")).replace('\r', "");
        for line in said.lines() {
            // No line break parts a command or a folder's name.
            let whole = line.contains('`') || line.contains(folder);
            assert!(whole || line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}

#[test]
fn completions_and_manual_pages_name_what_users_call_and_nothing_else() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = study(&["completions", shell], Stdio::piped());
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.contains("pindown") && text.contains("bitonic"), "{shell}");
        for hidden in ["doctor-peer", "perf-worker", ",rank)", "A process that a study starts"] {
            assert!(!text.contains(hidden), "{shell}: {hidden}");
        }
    }
    let page = String::from_utf8(study(&["man"], Stdio::piped()).stdout).expect("text");
    assert!(page.contains(".TH standpipe-study 1") && page.contains("Exit status"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("letters");
    assert!(study(&["man", "--out", out], Stdio::piped()).status.success());
    for page in ["standpipe-study.1", "standpipe-study-kv.1", "standpipe-study-kernel-cannon.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
}

#[test]
fn tables_are_as_wide_as_the_terminal() {
    let widest = |columns| {
        let said = in_terminal(columns, "sim --steps 50");
        said.lines().map(|line| line.chars().count()).max().expect("some lines")
    };
    assert!((41..=60).contains(&widest(60)) && (61..=200).contains(&widest(200)));
}

#[test]
fn settings_that_no_rank_reads_stop_no_study_of_virtual_time() {
    let out = tempfile::tempdir().expect("a folder");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
        command.args(words).arg(out.path()).env("STANDPIPE_PIN", "0").stdin(Stdio::null());
        command.output().expect("it was built with this test").status.code()
    };
    assert_eq!(run(&["pindown", "--small", "--json", "--out"]), Some(0));
    assert_eq!(run(&["kv", "--requests", "2", "--json", "--out"]), Some(2));
}
