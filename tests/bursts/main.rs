//! Bursts: of each operation one less than there are places of some kind, as many, one more, and ten times as
//! many, by one thread and by many, over each route, whether the link is there or not. See [`cases`] for
//! which of them there are; each ends in seconds, and each byte is looked at.

mod burst;
mod cases;
mod process;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cases::Case;
use standpipe::launch::{End, Outcome};
use support::{Heard, job_of, network};

/// The only case, as failures tell it.
const ONLY: &str = "STANDPIPE_TEST_BURST";
/// For how many seconds each route begins cases: all of them are a few hundred.
const SECONDS: &str = "STANDPIPE_TEST_BURST_S";

/// Without that: all routes together take a minute, or less without time.
const SHORT: Duration = Duration::from_secs(12);
const SHORTEST: Duration = Duration::from_secs(3);

/// Cases of one route that fail before it is left alone.
const FAILURES_MAX: usize = 5;

type Settings<'a> = &'a [(&'a str, &'a str)];

/// Not a test: what the ranks do.
#[test]
fn child() {
    if support::role().is_some() {
        process::run();
    }
}

#[test]
fn bursts_by_shared_memory() {
    bursts(&[("STANDPIPE_TRANSPORT", "shm")], false);
}

#[test]
fn bursts_by_message() {
    bursts(&[("STANDPIPE_TRANSPORT", "shm"), ("STANDPIPE_ATTACH", "never")], false);
}

#[test]
fn bursts_over_the_network() {
    if let Some(network) = network() {
        bursts(&[("STANDPIPE_TRANSPORT", network)], true);
    }
}

#[test]
fn bursts_over_the_network_where_memory_is_registered() {
    if let Some(network) = network() {
        bursts(&[("STANDPIPE_TRANSPORT", network), ("STANDPIPE_STRATEGY", "firehose")], true);
    }
}

#[test]
fn bursts_over_providers_that_are_named() {
    let Ok(named) = std::env::var(testbed::PROVIDERS) else {
        return testbed::skip(format_args!("{} names no provider", testbed::PROVIDERS));
    };
    for provider in named.split(',') {
        bursts(&[("STANDPIPE_TRANSPORT", &format!("ofi:{provider}"))], false);
    }
}

/// Bursts over one route for as long as is asked for, those of one test after those of another. Its
/// connections can be `cut`, or not.
fn bursts(settings: Settings<'_>, cut: bool) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().expect("a number"));
    let short = || if testbed::has_time_for("a burst of 12 seconds instead of 3") { SHORT } else { SHORTEST };
    let (begun, time) = (Instant::now(), seconds.map_or_else(short, Duration::from_secs));
    let only = std::env::var(ONLY).ok().map(|text| Case::parse(&text).expect("a case, as failures tell it"));
    let all = only.map_or_else(|| [cases::first(), cases::all(cut)].concat(), |only| vec![only]);
    let (mut failures, mut done, mut longest) = (Vec::new(), 0, Duration::ZERO);
    let fits = |case: &&Case| cut || case.state != cases::State::Cut;
    let all: Vec<&Case> = all.iter().filter(fits).collect();
    for case in &all {
        if begun.elapsed() > time || failures.len() >= FAILURES_MAX {
            break;
        }
        let since = Instant::now();
        failures.extend(one(case, settings).err());
        (done, longest) = (done + 1, longest.max(since.elapsed()));
    }
    println!("{settings:?}: {done} of {} bursts, the longest {longest:.1?}", all.len());
    assert!(failures.is_empty(), "over {settings:?}\n{}", failures.join("\n"));
    // Who says how long may want all; without that, they are begun.
    let is_short = seconds.is_none() && only.is_none();
    assert!(is_short || done == all.len() && done > 0, "{done} of {} in {time:?}", all.len());
}

/// Runs one case as a job of its own. The error says what its ranks were at.
fn one(case: &Case, settings: Settings<'_>) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("bursts-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("no folder: {error}"))?;
    let job = job_of(2, "burst").env(process::CASE, case.to_string()).env(process::FOLDER, &folder);
    let job = settings.iter().fold(job, |job, (name, value)| job.env(*name, *value));
    let heard = Heard::default();
    let outcome = heard.run(job);
    let _ = std::fs::remove_dir_all(&folder);
    let ended = |outcome: &Outcome| outcome.ranks.iter().all(|rank| rank.end == End::Exited(0));
    match ended(&outcome) {
        true => Ok(()),
        false => Err(format!("{ONLY}='{case}' failed: {outcome:?}\n{}", heard.all())),
    }
}
