//! `standpipe layers` as a user calls it: a C program is built by what it prints, and run.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const PROGRAM: &str = r#"
#include <stdio.h>
#include "am.h"
static volatile long sum;
static void add(vnn_t from, long value) { sum += value + 0 * from; }
int main(int argc, char **argv) {
    am_enable(2, argc, argv);
    am_request_1(1 - am_my_proc(), add, am_my_proc() + 5);
    am_wait_for(sum != 0);
    printf("%d has %ld\n", am_my_proc(), sum);
    am_disable();
    return 0;
}
"#;

fn standpipe(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_standpipe"))
        .args(args)
        .env_remove("XDG_DATA_HOME")
        .env("HOME", home)
        .output()
        .expect("the command runs")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn compile(folder: &Path, words: &str) {
    std::fs::write(folder.join("prog.c"), PROGRAM).expect("there is room");
    // As a user's shell would: the words are split by it.
    let line = format!("cc prog.c {words} -o prog");
    let output =
        Command::new("sh").args(["-c", &line]).current_dir(folder).output().expect("a shell is there");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_program_is_built_by_what_it_prints_and_run_by_standpipe_run() {
    let home = TempDir::new().expect("there is room");
    let words = said(&standpipe(home.path(), &["layers", "--cflags", "--libs"]));
    compile(home.path(), &words);
    let program = home.path().join("prog");
    let program = program.to_str().expect("its name is text");
    let ran = said(&standpipe(home.path(), &["run", "--same-addresses", "-n", "2", "--", program]));
    assert!(ran.contains("0 has 6") && ran.contains("1 has 5"), "{ran}");
    // Alone it makes the other process itself.
    let alone = Command::new(program).output().expect("it runs");
    let ran = said(&alone);
    assert!(ran.contains("0 has 6") && ran.contains("1 has 5"), "{ran}");
    // A program at other addresses in each process is told what to do.
    let apart = standpipe(home.path(), &["run", "-n", "2", "--", program]);
    assert_eq!(apart.status.code(), Some(1));
    let error = String::from_utf8_lossy(&apart.stderr).into_owned();
    assert!(error.contains("--same-addresses") && error.contains("-no-pie"), "{error}");
}

#[test]
fn each_option_prints_its_part_and_json_has_all() {
    let home = TempDir::new().expect("there is room");
    let ask = |args: &[&str]| said(&standpipe(home.path(), &[&["layers"], args].concat()));
    let (cflags, libs) = (ask(&["--cflags"]), ask(&["--libs"]));
    assert!(cflags.starts_with("-I") && !cflags.contains("-l"), "{cflags}");
    assert!(libs.contains("-lstandpipe_layers") && libs.contains("-Wl,-rpath,"), "{libs}");
    assert_eq!(ask(&["--cflags", "--libs"]), format!("{cflags} {libs}"));
    let report: serde_json::Value = serde_json::from_str(&ask(&["--json"])).expect("one JSON object");
    assert_eq!((&report["cflags"], &report["libs"]), (&cflags.clone().into(), &libs.clone().into()));
    let include = Path::new(report["include"].as_str().expect("a path"));
    for layer in report["layers"].as_array().expect("a list") {
        for header in layer["headers"].as_array().expect("a list") {
            assert!(include.join(header.as_str().expect("a name")).is_file(), "{header}");
        }
    }
    assert!(Path::new(report["library"].as_str().expect("a path")).is_file());
    assert!(ask(&[]).contains("cc prog.c $(standpipe layers --cflags --libs)"));
}

#[test]
fn a_folder_may_be_named_and_need_not_be_the_users() {
    let home = TempDir::new().expect("there is room");
    let folder = home.path().join("an/other");
    let out = folder.to_str().expect("its name is text");
    let words = said(&standpipe(home.path(), &["layers", "--cflags", "--libs", "--out", out]));
    assert!(folder.join("include/am.h").is_file() && folder.join("lib/libstandpipe_layers.so").is_file());
    compile(home.path(), &words);
    // Under a relative name, too: the program finds its library from wherever it is run.
    let near = Command::new(env!("CARGO_BIN_EXE_standpipe"))
        .args(["layers", "--cflags", "--libs", "--out", "near"])
        .current_dir(home.path())
        .output()
        .expect("the command runs");
    assert!(said(&near).contains(&format!("-I{}", home.path().join("near/include").display())), "{near:?}");

    let none = Command::new(env!("CARGO_BIN_EXE_standpipe"))
        .args(["layers", "--libs"])
        .env_remove("XDG_DATA_HOME")
        .env_remove("HOME")
        .output()
        .expect("the command runs");
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("--out"), "{none:?}");
}

/// A shell takes such a path apart in `cc prog.c $(standpipe layers --cflags --libs)`.
#[test]
fn a_folder_whose_name_a_shell_or_a_linker_takes_apart_is_refused_and_not_made() {
    let home = TempDir::new().expect("there is room");
    for name in ["with a blank", "a\ttab", "one,two", "all*", "which?", "a[b]"] {
        let folder = home.path().join(name);
        let out = folder.to_str().expect("its name is text");
        let asked: [&[&str]; 3] = [&["--cflags", "--libs"], &[], &["--json"]];
        for options in asked {
            let refused = standpipe(home.path(), &[&["layers", "--out", out], options].concat());
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
            let error = String::from_utf8_lossy(&refused.stderr);
            assert!(error.contains("give --out a path without blanks, commas"), "{error}");
            assert!(!folder.exists() && refused.stdout.is_empty(), "{refused:?}");
        }
    }
    let home = home.path().join("with a blank");
    let refused = standpipe(&home, &["layers"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("give --out a path"), "{refused:?}");
}
