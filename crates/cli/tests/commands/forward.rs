//! The old spellings of what `standpipe-study` does now.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A command beside which, and on whose PATH, stand these programs.
fn standpipe(folder: &Path, path: &Path, words: &[&str]) -> Output {
    let own = folder.join("standpipe");
    if !own.exists() {
        // A link of its own name: the command looks beside the file that it runs.
        fs::hard_link(env!("CARGO_BIN_EXE_standpipe"), &own)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_standpipe"), &own).map(drop))
            .expect("it was built with this test");
    }
    Command::new(own).args(words).env("PATH", path).output().expect("it starts")
}

/// A program in place of `standpipe-study`, which says what it was given.
fn put_study(folder: &Path, name: &str) {
    let program = folder.join("standpipe-study");
    let script = format!("#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\necho err >&2\nexit 7\n");
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our file");
}

#[test]
fn old_spellings_start_the_program_beside_with_their_arguments_and_end_as_it_does() {
    let [own, path] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let ran = |words: &[&str]| {
        let output = standpipe(own.path(), path.path(), words);
        (String::from_utf8(output.stdout).expect("text"), output.stderr, output.status.code())
    };
    put_study(path.path(), "path");
    let err = b"err\n".to_vec();
    assert_eq!(ran(&["sim", "--seeds", "2"]), ("path\nsim\n--seeds\n2\n".into(), err.clone(), Some(7)));
    put_study(own.path(), "beside");
    assert_eq!(ran(&["study", "kv", "--out", "a b"]), ("beside\nkv\n--out\na b\n".into(), err, Some(7)));
    assert_eq!(ran(&["-v", "kernel", "cannon"]).0, "beside\n-v\nkernel\ncannon\n");
    assert!(ran(&["--version"]).0.starts_with("standpipe "));
}

#[test]
fn where_there_is_no_such_program_it_is_said_how_to_get_it() {
    let [own, path] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    for words in [&["study", "kv", "--full"][..], &["kernel", "cannon"], &["sim"], &["study"]] {
        let output = standpipe(own.path(), path.path(), words);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{words:?}: {said}");
        assert!(said.contains("cargo run --release -p standpipe-study -- "), "{words:?}: {said}");
        assert!(said.contains("cargo xtask install") && said.lines().count() == 1, "{said}");
    }
}
