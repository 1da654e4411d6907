//! Programs that link other libraries too, load this one while they run, or end in the middle of their work.

mod support;

use std::process::Command;
use std::sync::LazyLock;

use support::{Programs, STRICT, has_network, here, library, run_alone, run_well, text};

static PROGRAMS: LazyLock<Programs> = LazyLock::new(Programs::new);

/// Whether the linker finds a library of this name.
fn has(name: &str) -> bool {
    let source = PROGRAMS.folder.path().join(format!("{name}.c"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("there is room");
    let mut compiler = Command::new("cc");
    let output = compiler.arg(&source).arg(format!("-l:{name}")).arg("-o").arg(source.with_extension("out"));
    let has = output.output().expect("a C compiler is there").status.success();
    if !has {
        testbed::skip(format!("{name} is not installed"));
    }
    has
}

/// A program that has the library `name` in front of ours.
fn beside(name: &str, define: &str) -> std::path::PathBuf {
    let link = format!("-l:{name}");
    let flags = [&STRICT[..], &[define, "-Wl,--no-as-needed", &link]].concat();
    PROGRAMS.compile(&here("tests/programs/beside.c"), &flags)
}

/// Runs it in a job of two, within the host and over a network, if there is one.
fn both_work(program: &std::path::Path) {
    let shared = ("STANDPIPE_EXPOSE", "everything");
    assert!(run_well(program, 2, &[], &[shared]).says("both libraries work"));
    if has_network() {
        let ran = run_well(program, 2, &[], &[shared, ("STANDPIPE_TRANSPORT", "ofi:tcp")]);
        assert!(ran.says("both libraries work"));
    }
}

#[test]
fn a_program_may_link_libfabric_too() {
    let name = "libfabric.so.1";
    if has(name) {
        both_work(&beside(name, "-DFABRIC"));
    }
}

#[test]
fn a_program_may_have_mimalloc_as_its_malloc() {
    let name = "libmimalloc.so.2";
    if has(name) {
        both_work(&beside(name, "-DMIMALLOC"));
    }
}

#[test]
fn a_program_may_load_and_unload_it_again_and_again() {
    let flags = [&STRICT[..], &["-Wl,--as-needed", "-ldl"]].concat();
    let program = PROGRAMS.compile(&here("tests/programs/loads.c"), &flags);
    let copy = PROGRAMS.folder.path().join("copy.so");
    std::fs::copy(library(), &copy).expect("there is room");
    let output = run_alone(Command::new(&program).arg(library()).arg(&copy));
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("loaded and unloaded"), "{}", text(&output));
    let told = Command::new("readelf").arg("-d").arg(&program).output().expect("it comes with the linker");
    assert!(!text(&told).contains("libstandpipe"), "it is linked, too: {}", text(&told));
}

#[test]
fn a_program_may_end_in_the_middle_of_its_work() {
    let program = PROGRAMS.compile(&here("tests/programs/exits.c"), &[&STRICT[..], &["-pthread"]].concat());
    for how in ["exit", "return", "_exit", "atexit"] {
        let output = run_alone(Command::new(&program).arg(how));
        assert!(output.status.success(), "{how}: {}", text(&output));
    }
    // Both ranks end so, and neither knows of the other's end.
    run_well(&program, 2, &["exit"], &[]);
}
