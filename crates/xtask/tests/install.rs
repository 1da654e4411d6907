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

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The C library's name that programs ask for, up to the number behind `ending`.
fn library(ending: &str) -> String {
    format!("libstandpipe.{ending}{}", VERSION.rsplit_once('.').expect("a version has three numbers").0)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("xtask lies two folders below the root")
}

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
    headers.extend(names(&root().join("crates/capi/include")));
    assert_eq!(names(&prefix.join("include")), headers, "what all share, each layer's, and C's");
    let libraries = [
        "cmake",
        "libstandpipe.a",
        "libstandpipe.so",
        &library("so."),
        &format!("libstandpipe.so.{VERSION}"),
        "libstandpipe_layers.so",
        "libstandpipe_malloc.so",
        "pkgconfig",
    ];
    assert_eq!(names(&prefix.join("lib")), libraries.map(str::to_owned).into());

    let listed =
        said(Command::new("ls").arg(&prefix).env("LD_PRELOAD", prefix.join("lib/libstandpipe_malloc.so")));
    assert_eq!(listed, "bin\ninclude\nlib\nshare");

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

    // All of C's is found wherever the folder goes.
    let moved = folder.path().join("moved");
    std::fs::rename(&prefix, &moved).expect("both are in one folder");
    exports_its_functions_alone(&moved);
    c_programs_are_built(folder.path(), &moved);
}

/// Functions of one version, and no other symbol of Rust's or of what is compiled in.
fn exports_its_functions_alone(prefix: &Path) {
    let symbols = |words: &[&str], file: &str| {
        let told = said(Command::new("nm").args(words).arg(prefix.join("lib").join(file)));
        let symbols = told.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned);
        symbols.collect::<BTreeSet<String>>()
    };
    let series = VERSION.rsplit_once('.').expect("a version has three numbers").0;
    let versioned = symbols(&["-D", "--defined-only"], "libstandpipe.so");
    let node = format!("STANDPIPE_{series}");
    let functions: BTreeSet<String> = versioned
        .iter()
        .filter(|name| **name != node)
        .map(|name| name.replace(&format!("@@{node}"), ""))
        .collect();
    assert!(functions.len() > 150 && functions.iter().all(|name| name.starts_with("sp_")), "{functions:?}");
    assert!(functions.iter().all(|name| !name.contains('@')), "all are of {node}: {versioned:?}");
    let in_archive = symbols(&["--extern-only", "--defined-only"], "libstandpipe.a");
    assert_eq!(in_archive, functions, "the archive's global symbols");
    // Without frames a panic would end the program, instead of becoming a status.
    let sections = said(Command::new("readelf").arg("-SW").arg(prefix.join("lib/libstandpipe.a")));
    assert!(sections.contains(" .rela.eh_frame") && sections.contains(" .gcc_except_table"), "{sections}");
    let told = said(Command::new("readelf").arg("-d").arg(prefix.join("lib/libstandpipe.so")));
    assert!(told.contains(&format!("soname: [{}]", library("so."))) && told.contains("NODELETE"), "{told}");
}

/// The header's first program, by each way in which programs find a library.
fn c_programs_are_built(folder: &Path, prefix: &Path) {
    let header = std::fs::read_to_string(prefix.join("include/standpipe.h")).expect("it was installed");
    let program = header.split_once("#endif").expect("it ends").0.split_once('\n').expect("it begins").1;
    std::fs::write(folder.join("hello.c"), program).expect("there is room");
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let runs = |program: &Path| {
        let mut job = Command::new(prefix.join("bin/standpipe"));
        job.args(["run", "-n", "2", "--"]).arg(program).env("LD_LIBRARY_PATH", &lib);
        let ran = said(&mut job);
        assert!(ran.contains("0: hello from 1") && ran.contains("1: hello from 0"), "{ran}");
    };

    let mut whole = Command::new("cc");
    whole.args(["-static-libgcc", "hello.c", "-o", "whole"]).arg(format!("-I{}", include.display()));
    whole.arg(lib.join("libstandpipe.a")).args(["-lpthread", "-ldl", "-lm"]);
    said(whole.current_dir(folder));
    runs(&folder.join("whole"));

    if Command::new("pkg-config").arg("--version").output().is_err() {
        testbed::skip("pkg-config is not installed");
    } else {
        let mut built = Command::new("sh");
        built.args(["-c", "cc hello.c $(pkg-config --cflags --libs standpipe) -o by-pkg-config"]);
        said(built.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).current_dir(folder));
        runs(&folder.join("by-pkg-config"));
    }

    if Command::new("cmake").arg("--version").output().is_err() {
        testbed::skip("CMake is not installed");
        return;
    }
    let examples = root().join("examples/c");
    let mut made = Command::new("cmake");
    made.arg("-S")
        .arg(examples)
        .args(["-B", "cmake"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    said(made.current_dir(folder));
    said(Command::new("cmake").args(["--build", "cmake"]).current_dir(folder));
    let mut ring = Command::new(prefix.join("bin/standpipe"));
    let ran = said(ring.args(["run", "-n", "2", "--"]).arg(folder.join("cmake/ring")).arg("100"));
    assert!(ran.contains("100 rounds"), "{ran}");
}
