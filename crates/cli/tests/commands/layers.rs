//! `standpipe layers` as a user calls it. `cargo xtask install` has the test that builds a program.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use layer_list::ALL;
use tempfile::TempDir;

/// The files below a prefix that all layers share.
const SHARED: [&str; 2] = ["lib/libstandpipe_layers.so", "include/standpipe_layers.h"];

/// All that has to lie there.
fn files() -> Vec<String> {
    let headers = ALL.iter().flat_map(|layer| layer.headers).map(|header| format!("include/{header}"));
    headers.chain(SHARED.map(str::to_owned)).collect()
}

fn layers(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("layers").args(args).current_dir(folder).output().expect("the command runs")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Makes empty files in place of the library and its headers.
fn put_files(prefix: &Path) {
    for file in files().iter().map(|file| prefix.join(file)) {
        fs::create_dir_all(file.parent().expect("a folder")).expect("there is room");
        fs::write(file, "").expect("there is room");
    }
}

#[test]
fn each_option_prints_its_part_and_json_has_all() {
    let folder = TempDir::new().expect("there is room");
    put_files(&folder.path().join("here"));
    // A relative name: the program finds its library from wherever it is run.
    let ask = |args: &[&str]| said(&layers(folder.path(), &[args, &["--prefix", "here"]].concat()));
    let (cflags, libs) = (ask(&["--cflags"]), ask(&["--libs"]));
    assert_eq!(cflags, format!("-I{}", folder.path().join("here/include").display()));
    assert!(libs.contains("-lstandpipe_layers") && libs.contains("-Wl,-rpath,/"), "{libs}");
    assert_eq!(ask(&["--cflags", "--libs"]), format!("{cflags} {libs}"));
    let report: serde_json::Value = serde_json::from_str(&ask(&["--json"])).expect("one JSON object");
    assert_eq!((&report["cflags"], &report["libs"]), (&cflags.into(), &libs.into()));
    assert!(Path::new(report["library"].as_str().expect("a path")).is_file());
    let layers = report["layers"].as_array().expect("a list");
    let headers = layers.iter().flat_map(|layer| layer["headers"].as_array().expect("a list"));
    let mut files: Vec<String> =
        headers.map(|name| format!("include/{}", name.as_str().expect("a name"))).collect();
    files.extend(SHARED.map(str::to_owned));
    assert_eq!(files, self::files());
    assert!(layers.iter().map(|layer| &layer["layer"]).eq(ALL.iter().map(|layer| layer.name)));
    assert!(ask(&[]).contains("cc prog.c $(standpipe layers --cflags --libs)"));
}

#[test]
fn where_nothing_is_installed_nothing_is_printed_and_the_installer_is_named() {
    let folder = TempDir::new().expect("there is room");
    let asked = [&[][..], &["--cflags", "--libs"], &["--json"], &["--libs", "--prefix", "."]];
    for (missing, args) in
        ["include/fm.h", "include/standpipe_layers.h"].iter().flat_map(|file| asked.map(|args| (file, args)))
    {
        put_files(folder.path());
        fs::remove_file(folder.path().join(missing)).expect("it is there");
        let output = layers(folder.path(), args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {error}");
        assert!(error.contains("`cargo xtask install`") && error.lines().count() == 1, "{args:?}: {error}");
    }
}

#[test]
fn what_lies_beside_the_command_needs_no_option_and_comes_first() {
    let folder = TempDir::new().expect("there is room");
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    put_files(&own);
    put_files(&other);
    fs::create_dir(own.join("bin")).expect("there is room");
    let program = own.join("bin/standpipe");
    // By another process: a child that another test starts meanwhile would have a file open that is written
    // here, which then cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_standpipe")).arg(&program).status();
    assert!(copied.expect("cp").success(), "it was built with this test");
    for more in [&[][..], &["--prefix", other.to_str().expect("letters")]] {
        let output = Command::new(&program).args(["layers", "--cflags"]).args(more).output();
        assert_eq!(said(&output.expect("it starts")), format!("-I{}", own.join("include").display()));
    }
}

/// A shell takes such a path apart in `cc prog.c $(standpipe layers --cflags --libs)`.
#[test]
fn a_folder_whose_name_a_shell_or_a_linker_takes_apart_is_refused() {
    let folder = TempDir::new().expect("there is room");
    for name in ["with a blank", "a\ttab", "one,two", "all*", "which?", "a[b]"] {
        put_files(&folder.path().join(name));
        for options in [&["--cflags", "--libs"][..], &[], &["--json"]] {
            let refused = layers(folder.path(), &[&["--prefix", name], options].concat());
            assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
            let error = String::from_utf8_lossy(&refused.stderr);
            assert!(error.contains("a path without blanks, commas"), "{error}");
        }
    }
}
