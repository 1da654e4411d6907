//! Every function of the header, by the cases of `programs/cases.c`: alone and as jobs, over shared memory,
//! by messages, over a network, and under the checkers that C programmers use.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use support::{Programs, STRICT, has_network, here, run_alone, run_well, text};

static PROGRAMS: LazyLock<Programs> = LazyLock::new(Programs::new);

fn cases(flags: &[&str]) -> std::path::PathBuf {
    let flags = [&["-std=gnu11", "-g", "-O1"][..], &STRICT, flags].concat();
    PROGRAMS.compile(&here("tests/programs/cases.c"), &flags)
}

fn run_in(program: &Path, sizes: &[u32], env: &[(&str, &str)]) {
    for ranks in sizes {
        let ran = run_well(program, *ranks, &[], env);
        assert!(ran.says("15 cases"), "{ran:#?}");
    }
}

#[test]
fn all_cases_hold_within_a_host() {
    run_in(&cases(&[]), &[1, 2, 3], &[]);
}

#[test]
fn all_cases_hold_by_message() {
    run_in(&cases(&["-DBY_MESSAGE"]), &[1, 2], &[("STANDPIPE_ATTACH", "never")]);
}

#[test]
fn all_cases_hold_over_a_network() {
    if has_network() {
        run_in(&cases(&["-DOVER_TCP"]), &[2, 3], &[("STANDPIPE_TRANSPORT", "ofi:tcp")]);
    }
}

#[test]
fn a_program_that_nobody_launched_is_a_job_of_one() {
    let output = run_alone(&mut Command::new(cases(&["-DALONE"])));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn no_case_is_at_odds_with_address_and_undefined_behaviour_sanitizers() {
    if PROGRAMS.has("-fsanitize=address,undefined") {
        let program = cases(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        // The library's own heap of shared memory is no leak, and threads of it outlive `main`.
        run_in(&program, &[2], &[("ASAN_OPTIONS", "detect_leaks=0")]);
    }
}

#[test]
fn no_case_is_at_odds_with_the_thread_sanitizer() {
    if PROGRAMS.has("-fsanitize=thread") {
        // The library is not instrumented: what it orders, the sanitizer does not see. So its threads run no
        // handlers of the program's here.
        let env = [("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"), ("STANDPIPE_PROGRESS", "off")];
        run_in(&cases(&["-fsanitize=thread"]), &[2], &env);
    }
}

#[test]
fn no_case_is_at_odds_with_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        testbed::skip("valgrind is not installed");
        return;
    }
    let mut command = Command::new("valgrind");
    let known = format!("--suppressions={}", here("tests/valgrind.supp").display());
    command.args(["-q", "--error-exitcode=9", &known]).arg(cases(&["-DVALGRIND"]));
    let output = run_alone(&mut command);
    assert!(output.status.success(), "{}", text(&output));
}

/// Garbage in every argument that is no pointer. `STANDPIPE_TEST_GARBAGE` says how many seeds, by name.
#[test]
fn garbage_is_answered_by_a_status() {
    let seeds =
        std::env::var("STANDPIPE_TEST_GARBAGE").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let sanitize = if PROGRAMS.has("-fsanitize=address") { "-fsanitize=address" } else { "-O1" };
    let flags = [&["-std=gnu11", "-g", "-O1", sanitize][..], &STRICT].concat();
    let program = PROGRAMS.compile(&here("tests/programs/garbage.c"), &flags);
    for seed in 1..=seeds {
        let mut command = Command::new(&program);
        command.args([seed.to_string().as_str(), "5000"]).env("ASAN_OPTIONS", "detect_leaks=0");
        let output = run_alone(&mut command);
        assert!(output.status.success(), "seed {seed}: {}", text(&output));
    }
}
