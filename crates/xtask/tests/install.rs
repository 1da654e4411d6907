//! `cargo xtask install` into a fresh folder, and what a user does with it then.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

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

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn said(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("it was installed").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_installed_builds_and_runs_a_program_and_finds_its_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("fresh");
    // As tests are built: in seconds, where the workspace is.
    said(Command::new(env!("CARGO_BIN_EXE_xtask")).args(["install", "--debug", "--prefix"]).arg(&prefix));
    let standpipe = prefix.join("bin/standpipe");
    let standpipe = || Command::new(&standpipe);

    let told: Value = serde_json::from_str(&said(standpipe().args(["layers", "--json"]))).expect("JSON");
    let layers = told["layers"].as_array().expect("a list").iter();
    let headers = layers.flat_map(|layer| layer["headers"].as_array().expect("a list"));
    let mut headers: BTreeSet<String> = headers.map(|name| name.as_str().expect("text").to_owned()).collect();
    headers.insert("standpipe_layers.h".into());
    assert_eq!(names(&prefix.join("include")), headers, "what all share, and each layer's");
    assert_eq!(names(&prefix.join("lib")), ["libstandpipe_layers.so".to_owned()].into());

    std::fs::write(folder.path().join("prog.c"), PROGRAM).expect("there is room");
    // As a user's shell would: the words are split by it.
    let line = format!("cc prog.c {} -o prog", said(standpipe().args(["layers", "--cflags", "--libs"])));
    said(Command::new("sh").args(["-c", &line]).current_dir(folder.path()));
    let program = folder.path().join("prog");
    let program = program.to_str().expect("its name is text");
    let ran = said(standpipe().args(["run", "--same-addresses", "-n", "2", "--", program]));
    assert!(ran.contains("0 has 6") && ran.contains("1 has 5"), "{ran}");
    // Alone it makes the other process itself.
    let ran = said(&mut Command::new(program));
    assert!(ran.contains("0 has 6") && ran.contains("1 has 5"), "{ran}");
    // A program at other addresses in each process is told what to do.
    let apart = output(standpipe().args(["run", "-n", "2", "--", program]));
    let error = String::from_utf8_lossy(&apart.stderr).into_owned();
    assert_eq!(apart.status.code(), Some(1), "{error}");
    assert!(error.contains("--same-addresses") && error.contains("-no-pie"), "{error}");

    // The old spelling and the new one are the same program.
    let words = ["sim", "--steps", "50", "--json"];
    let steps = |command: &mut Command| {
        let told: Value = serde_json::from_str(&said(command.args(words))).expect("JSON");
        told["steps"].clone()
    };
    let study = steps(&mut Command::new(prefix.join("bin/standpipe-study")));
    assert!(study.as_u64() >= Some(50) && study == steps(&mut standpipe()), "{study}");
}
