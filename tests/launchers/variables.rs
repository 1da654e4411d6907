//! Variables that no launcher leaves: each ends in an error that names it.

use std::time::Instant;

use super::{MEET, SECRET, command, finish, lines, role, start};

#[test]
fn what_no_launcher_leaves_is_named() {
    let (program, args) = role();
    for (vars, named) in [
        (&[("STANDPIPE_LAUNCHER", "mpi")][..], "STANDPIPE_LAUNCHER is not auto, none"),
        (&[("STANDPIPE_LAUNCHER", "pmi1")][..], "PMI_SIZE is not"),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "9")][..],
            "set STANDPIPE_SECRET",
        ),
        (&[("RANK", "0"), ("WORLD_SIZE", "2")][..], "MASTER_ADDR is not set"),
        (&[("SLURM_STEP_NUM_TASKS", "2")][..], "--mpi=pmix or --mpi=pmi2"),
        (&[("PMI_FD", "97"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")][..], "Bad file descriptor"),
        (&[("STANDPIPE_LAUNCHER", "pmix"), ("STANDPIPE_PMIX", "/nowhere.so")][..], "/nowhere.so"),
    ] {
        let mut command = command(&program, "alone");
        let output =
            finish(start(command.args(args).envs(vars.iter().copied())).expect("it starts"), "a rank");
        let said = lines(&output);
        assert!(said.len() == 1 && said[0].contains(named), "{vars:?}: {said:?}");
    }
}

/// Names and values of the environment.
type Vars<'a> = [(&'a str, &'a str)];

/// What torchrun leaves, with some of it changed.
fn torchs<'a>(changed: &Vars<'a>) -> Vec<(&'a str, &'a str)> {
    let usual = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "9"),
        ("STANDPIPE_SECRET", SECRET),
    ];
    [&usual, changed].concat()
}

/// What hydra leaves, with some of it changed.
fn hydras<'a>(changed: &Vars<'a>) -> Vec<(&'a str, &'a str)> {
    // What is read from there is at its end at once.
    [&[("PMI_FD", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")], changed].concat()
}

#[test]
fn whatever_the_environment_says_ends_in_an_error_that_names_it() {
    let (program, args) = role();
    let long = "a".repeat(300);
    let cases = [
        (torchs(&[("RANK", "2")]), "RANK is not a number below"),
        (torchs(&[("RANK", "-1")]), "RANK is not a number below"),
        (torchs(&[("WORLD_SIZE", "0")]), "WORLD_SIZE is not"),
        (torchs(&[("WORLD_SIZE", "1025")]), "a job of 1025"),
        (torchs(&[("WORLD_SIZE", "4294967295")]), "a job of 4294967295"),
        (torchs(&[("WORLD_SIZE", "99999999999999999999")]), "WORLD_SIZE is not"),
        (torchs(&[("MASTER_PORT", "0")]), "MASTER_PORT"),
        (torchs(&[("MASTER_PORT", "65535")]), "MASTER_PORT is not"),
        (torchs(&[("MASTER_PORT", "http")]), "MASTER_PORT is not"),
        (torchs(&[("STANDPIPE_PORT", "65536")]), "STANDPIPE_PORT is not"),
        (torchs(&[("STANDPIPE_SECRET", "5a")]), "STANDPIPE_SECRET is not"),
        (torchs(&[]), "rank 0 at 127.0.0.1, port 10"),
        (torchs(&[("MASTER_ADDR", "192.0.2.1")]), "rank 0 at 192.0.2.1"),
        (torchs(&[("MASTER_ADDR", "")]), "rank 0 at , port"),
        (torchs(&[("MASTER_ADDR", "256.0.0.1")]), "rank 0 at 256.0.0.1"),
        (torchs(&[("MASTER_ADDR", &long)]), "rank 0 at aaa"),
        (torchs(&[("RANK", "0"), ("MASTER_ADDR", &long)]), "listening at aaa"),
        (torchs(&[("RANK", "0"), ("STANDPIPE_PORT", "29637")]), "rank 1 did not come in time"),
        (hydras(&[("PMI_FD", "-1")]), "PMI_FD"),
        (hydras(&[("PMI_FD", "2147483648")]), "PMI_FD"),
        (hydras(&[]), "PMI_FD"),
        (hydras(&[("PMI_RANK", "2")]), "PMI_RANK is not"),
        (hydras(&[("PMI_SIZE", "1000000")]), "a job of 1000000"),
        (hydras(&[("STANDPIPE_LAUNCHER", "pmi2")]), "PMI_FD"),
        (vec![("PMIX_NAMESPACE", "nobody's"), ("PMIX_RANK", "0")], "PMIx"),
        (vec![("PMIX_NAMESPACE", "nobody's"), ("PMIX_RANK", "-7")], "PMIx"),
    ];
    for (vars, named) in cases {
        let begun = Instant::now();
        let mut command = command(&program, "alone");
        command.args(args).envs(vars.iter().copied()).env("STANDPIPE_MEET_MS", MEET.as_millis().to_string());
        let said = lines(&finish(start(&mut command).expect("it starts"), "a rank"));
        assert!(said.len() == 1 && said[0].contains(named), "{vars:?}: {said:?}");
        let took = begun.elapsed();
        assert!(took < MEET * 5, "{vars:?} took {took:?}");
    }
}
