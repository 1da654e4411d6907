//! The storm: real processes of several threads each that do everything to each other at random, verified
//! byte for byte, while they are killed, leave and join at random moments, and grant and revoke memory. See
//! [`supervisor`] for what is held to.

mod grants;
mod guests;
mod memory;
mod passers;
mod peer;
mod process;
mod supervisor;
#[path = "../support/mod.rs"]
mod support;
mod teams;
mod thread;
mod verdict;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use supervisor::{Form, Setting};
use support::{Random, network};

/// Repeats the choices of a storm.
const SEED: &str = "STANDPIPE_TEST_SEED";
/// How many seconds storms go on for; one storm at least.
const SECONDS: &str = "STANDPIPE_TEST_STORM_S";

/// Not a test: what the processes of the storms do.
#[test]
fn child() {
    if support::role().is_some() {
        process::run();
    }
}

#[test]
fn processes_that_come_and_go_by_shared_memory() {
    storms(Form::Elastic, &["shm"], &[]);
}

#[test]
fn processes_that_come_and_go_over_the_network() {
    over_network(Form::Elastic, &[NETWORK], &[]);
}

#[test]
fn processes_that_come_and_go_by_either() {
    if !testbed::has_time_for("another kind of storm") {
        return;
    }
    over_network(Form::Elastic, &["shm", NETWORK], &[]);
}

#[test]
fn processes_that_come_and_go_by_message() {
    if !testbed::has_time_for("another kind of storm") {
        return;
    }
    storms(Form::Elastic, &["shm"], &[("STANDPIPE_ATTACH", "never")]);
}

#[test]
fn a_job_whose_ranks_are_killed() {
    if !testbed::has_time_for("another kind of storm") {
        return;
    }
    storms(Form::Job, &["shm"], &[]);
}

#[test]
fn a_job_whose_ranks_are_killed_over_the_network() {
    over_network(Form::Job, &[NETWORK], &[]);
}

#[test]
fn a_job_whose_ranks_are_killed_where_memory_is_registered() {
    if !testbed::has_time_for("another kind of storm") {
        return;
    }
    // Hardly any at a time, so that it changes hands.
    over_network(Form::Job, &[NETWORK], &[("STANDPIPE_STRATEGY", "firehose"), ("STANDPIPE_PIN", "512K")]);
}

/// The provider that every machine with libfabric has.
const NETWORK: &str = "ofi:tcp";

type Settings = &'static [(&'static str, &'static str)];

fn over_network(form: Form, transports: &'static [&'static str], settings: Settings) {
    if network().is_some() {
        storms(form, transports, settings);
    }
}

/// Storms for as long as is asked for, one at least; those of one test after those of another.
fn storms(
    form: Form,
    transports: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number(SEED).unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) >> 1);
    let time = Duration::from_secs(number(SECONDS).unwrap_or(0));
    let (begun, mut seeds, mut seed) = (Instant::now(), Random::new(first), first);
    loop {
        supervisor::storm(&Setting { form, transports, settings, seed });
        // The first has the seed itself, so that any storm of a long run can be had alone.
        seed = seeds.next() >> 1;
        if begun.elapsed() >= time {
            return;
        }
    }
}
