//! VIA from C: connections, descriptors, memory, and every code, status and error that VIPL names.

mod support;

use std::path::PathBuf;

use support::{Job, Programs, Ran, STRICT};

/// A program of `tests/via/`, as strictly compiled as the headers are.
fn program(programs: &Programs, name: &str) -> PathBuf {
    let path = support::folder("tests/via").join(format!("{name}.c"));
    let text = std::fs::read_to_string(&path).expect("the program is there");
    let include = format!("-I{}", support::folder("tests/via").display());
    let flags: Vec<&str> = STRICT
        .iter()
        .copied()
        .chain(["-D_GNU_SOURCE", "-Wno-unused-variable", "-Wno-unused-function", "-g", &include])
        .collect();
    programs.compile_text(&format!("{name}.c"), &text, &flags)
}

/// Settings by which a job's processes reach each other over a network, where there is such a thing.
fn network() -> Option<(&'static str, &'static str)> {
    support::network().map(|transport| ("STANDPIPE_TRANSPORT", transport))
}

fn job(ranks: u32, args: &[&str], env: &[(&str, &str)]) -> Job {
    let job = args.iter().fold(Job::of(ranks), |job, arg| job.arg(*arg));
    env.iter().fold(job, |job, (name, value)| job.env(name, value))
}

/// Runs a program of `tests/via/` in each way; all ranks must end well.
fn run(name: &str, ranks: u32, ways: &[&[&str]], env: &[(&str, &str)]) -> Vec<Ran> {
    let programs = Programs::new();
    let program = program(&programs, name);
    ways.iter().map(|args| job(ranks, args, env).run_well(&program)).collect()
}

/// The three reliability levels.
const LEVELS: [&[&str]; 3] = [&["1"], &["2"], &["4"]];

#[test]
fn data_goes_both_ways() {
    run("data", 2, &LEVELS, &[]);
}

#[test]
fn data_goes_both_ways_over_a_network() {
    let Some(network) = network() else { return };
    run("data", 2, &LEVELS, &[network]);
}

#[test]
fn clients_and_servers_connect() {
    run("connect", 2, &[&[]], &[]);
}

#[test]
fn clients_and_servers_connect_over_a_network() {
    let Some(network) = network() else { return };
    run("connect", 2, &[&[]], &[network]);
}

#[test]
fn equals_connect() {
    run("equals", 2, &[&[]], &[]);
}

#[test]
fn equals_connect_over_a_network() {
    let Some(network) = network() else { return };
    run("equals", 2, &[&[]], &[network]);
}

#[test]
fn every_status_arises() {
    run("statuses", 2, &LEVELS[1..], &[]);
}

#[test]
fn every_status_arises_over_a_network() {
    let Some(network) = network() else { return };
    run("statuses", 2, &LEVELS[1..], &[network]);
}
