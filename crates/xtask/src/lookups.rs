//! What finding a registration takes where there are many, beside UCX's cache of them and one random memory
//! access.

use std::collections::BTreeMap;

use crate::command::{Failure, run};
use crate::hits::numbers;
use crate::outcome::Outcome;

/// Registered regions.
const REGIONS: &str = "100000";

/// Each program runs so often, in turns; the median counts.
const TURNS: usize = 9;

/// Ours, and UCX's: a source beside ours, as its cache has an interface for C.
const OURS: &str = "lookups";
const UCX_SOURCE: &str = "tools/ucx_rcache.c";
const UCX: &str = "target/release/examples/ucx_rcache";

/// What is measured, and what it is called.
const SHOWN: [(&str, &str); 4] = [
    ("remote_ns", "a peer's registration"),
    ("local_ns", "one's own registration"),
    ("line_ns", "one random cache line of as many"),
    ("ucx_ns", "UCX's cache"),
];

/// Measures and prints; how fast it is never fails.
pub(crate) fn lookups() -> Outcome {
    measure().map(|figures| show(&figures)).into()
}

fn measure() -> Result<BTreeMap<String, Vec<f64>>, Failure> {
    run(&format!("cargo build --release --package standpipe-engine --example {OURS}")).status()?;
    let ucx = run(&format!("cc -O2 -o {UCX} {UCX_SOURCE} -lucs")).output().is_ok();
    if !ucx {
        println!("UCX's cache: not measured, as {UCX_SOURCE} does not compile here (Debian: libucx-dev)");
    }
    let mut figures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..TURNS {
        let mut printed = run(&format!("target/release/examples/{OURS} {REGIONS}")).output()?;
        if ucx {
            printed += &run(&format!("{UCX} {REGIONS}")).output()?;
        }
        for (name, figure) in numbers(&printed) {
            figures.entry(name).or_default().push(figure);
        }
    }
    figures.values_mut().for_each(|turns| turns.sort_by(f64::total_cmp));
    Ok(figures)
}

fn show(figures: &BTreeMap<String, Vec<f64>>) {
    println!(
        "nanoseconds to find one of {REGIONS} and give it back; the median of {TURNS} turns, least and most"
    );
    for (name, what) in SHOWN {
        if let Some([least, .., most]) = figures.get(name).map(Vec::as_slice) {
            println!("{what:<34}{:>8.1}{least:>8.1}{most:>8.1}", median(figures, name));
        }
    }
    let slower = median(figures, "remote_ns").max(median(figures, "local_ns"));
    for (name, bound) in
        [("line_ns", 1.5), ("ucx_ns", 1.0)].iter().filter(|(name, _)| figures.contains_key(*name))
    {
        let ratio = slower / median(figures, name);
        let word = if ratio <= *bound { "holds" } else { "BROKEN" };
        println!("the slower of ours by {name}: {ratio:.2}, bound {bound}: {word}");
    }
}

/// The middle one; not a number where there is none.
fn median(figures: &BTreeMap<String, Vec<f64>>, name: &str) -> f64 {
    figures.get(name).and_then(|turns| turns.get(turns.len() / 2)).copied().unwrap_or(f64::NAN)
}
