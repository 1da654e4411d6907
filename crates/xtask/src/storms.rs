//! The long run: storms over ever new seeds, for as long as is asked for.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{Failure, run};
use crate::outcome::Outcome;

/// What goes wrong: one of them for each lot of seeds.
const FAULTS: [&str; 19] = [
    "",
    "delay,reorder",
    "register-fail,register-slow,reorder",
    "shrink,register-slow",
    "unmap=100,delay,reorder",
    "stop=0.5,delay,reorder",
    "mute=1,unmap=50,delay,reorder",
    "delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5",
    "restart=2",
    "restart=10,delay,reorder",
    "restart=50,reorder",
    "restart=5,register-slow,register-fail=0.02,reorder",
    "restart=5,shrink,unmap=50,delay,reorder",
    "restart=5,stop=0.5,delay,reorder",
    "restart=5,mute=2,unmap=50,delay,reorder",
    "restart=2,delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5",
    "shrink,unmap=200,register-fail=0.05",
    "late,delay,reorder",
    "restart=5,late,shrink,delay,reorder",
];

/// Seeds that share nodes, steps and faults.
const LOT: u64 = 500;

/// How often what has been done is told.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Storms from `seed` on, until so many minutes are over. The last lot is brought to its end.
pub(crate) fn storms(minutes: u64, seed: u64) -> Outcome {
    let built = run("cargo build --release --package standpipe-study").status();
    built.and_then(|()| go_on(Duration::from_secs(60 * minutes), seed)).into()
}

fn go_on(time: Duration, first: u64) -> Result<(), Failure> {
    let (started, mut told) = (Instant::now(), Instant::now());
    let (mut seed, mut operations) = (first, 0);
    while started.elapsed() < time {
        operations += lot(seed)?;
        seed += LOT;
        if told.elapsed() >= TOLD_EVERY || started.elapsed() >= time {
            told = Instant::now();
            let (minutes, last) = (started.elapsed().as_secs() / 60, seed - 1);
            println!("{minutes} min: seeds {first} to {last}, {operations} operations, no violation");
        }
    }
    Ok(())
}

/// Storms of one lot; gives their operations.
fn lot(seed: u64) -> Result<u64, Failure> {
    let number = seed / LOT;
    let faults = FAULTS[number as usize % FAULTS.len()];
    let (nodes, steps) = (2 + number % 15, [400, 1000, 3000][(number / 15 % 3) as usize]);
    let line = format!(
        "target/release/standpipe-study sim --json --nodes {nodes} --seed {seed} --seeds {LOT} --steps {steps}"
    );
    let printed = run(&line).arg("--faults").arg(faults).output()?;
    let told = serde_json::from_str::<Value>(&printed).ok();
    let operations = told.and_then(|told| told["operations"].as_u64());
    operations.ok_or_else(|| Failure(format!("`{line}` printed no operations: {printed}")))
}
