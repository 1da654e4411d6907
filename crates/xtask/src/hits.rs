//! What a hit costs: in the registration tables, instructions counted by valgrind, and bytes; and over
//! libfabric ([`provider_hits`]).
//!
//! The figures are compared with those that were committed last, and with what was promised.

use std::collections::BTreeMap;
use std::fs;

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;
use crate::provider_hits;

/// Where the last figures stand.
const COMMITTED: &str = "crates/engine/hit_cost.toml";

/// The example that hits, and its functions whose instructions count.
const EXAMPLE: &str = "hit_cost";
const MEASURED: [&str; 4] = ["acquire_remote", "release_remote", "acquire_local", "release_local"];

/// The orders of giving up that it is run with. Each keeps something else up to date at a hit.
const ORDERS: [&str; 3] = ["fifo", "lru", "sieve"];

/// Instructions, at most, of an acquire and of a release.
const INSTRUCTIONS_MAX: f64 = 100.0;

/// Instructions, at most, that a whole put or get of a node adds to what the same calls take alone. The goal
/// is 250: what is beyond finds out that the peer is far, and which of a node's two transports is asked
/// first, and counts whose it is of those who share the node.
const ADDED_MAX: f64 = 275.0;

/// Bytes, at most. Tables grow by parts of what they are, so that a 64th of the holders' may be empty.
const BYTES_MAX: [(&str, f64); 3] =
    [("bucket_bytes", 100.0), ("holder_bytes", 16.25), ("firehose_bytes", 100.0)];

/// How much more than committed is no accident.
const MORE: f64 = 1.1;

/// Figures by section and name, as in the committed file.
type Figures = BTreeMap<String, BTreeMap<String, f64>>;

/// Measures, shows the figures as they would be committed, and compares.
pub(crate) fn hits() -> Outcome {
    if std::env::consts::ARCH != "x86_64" {
        return Outcome::Skipped("the committed figures are instructions of x86-64".into());
    }
    if run("valgrind --version").output().is_err() {
        return Outcome::Skipped("valgrind is not installed".into());
    }
    let judged = measure().and_then(|figures| {
        println!("{}", shown(&figures));
        let text = fs::read_to_string(root().join(COMMITTED))
            .map_err(|error| Failure(format!("{COMMITTED}: {error}")))?;
        judge(&figures, &committed(&text)?)?;
        Ok(figures)
    });
    match judged {
        Ok(figures) if !figures.contains_key("ofi") => {
            Outcome::Skipped("no libfabric, so no hits over it".into())
        }
        Ok(_) => Outcome::Passed,
        Err(failure) => Outcome::Failed(failure.0),
    }
}

fn measure() -> Result<Figures, Failure> {
    // With the library, whose tests are built next, dependencies have the features that they need there, and
    // are built once.
    let packages = "--package standpipe-engine --package standpipe";
    run(&format!("cargo build --release {packages} --example {EXAMPLE}")).status()?;
    let mut figures = Figures::new();
    let profile =
        tempfile::NamedTempFile::new().map_err(|error| Failure(format!("no temporary file: {error}")))?;
    for order in ORDERS {
        let printed = run("valgrind --quiet --tool=callgrind --compress-strings=no")
            .arg(format!("--callgrind-out-file={}", profile.path().display()))
            .arg(format!("target/release/examples/{EXAMPLE}"))
            .arg(order)
            .output()?;
        let mut bytes = numbers(&printed);
        let hits = bytes.remove("hits").ok_or_else(|| Failure(format!("{EXAMPLE} counted no hits")))?;
        let text = fs::read_to_string(profile.path())
            .map_err(|error| Failure(format!("callgrind's profile: {error}")))?;
        let costs = MEASURED.map(|name| (name.to_owned(), rounded(cost_of(&text, name) as f64 / hits)));
        figures.insert(order.into(), costs.into());
        figures.insert("memory".into(), bytes);
    }
    if let Some(hits) = provider_hits::figures()? {
        figures.insert("ofi".into(), hits.into_iter().collect());
    }
    Ok(figures)
}

/// The instructions of a function of the example, with those of all that it called.
fn cost_of(profile: &str, function: &str) -> u64 {
    let wanted = format!("cfn={EXAMPLE}::{function}");
    let mut lines = profile.lines();
    let mut cost = 0;
    while let Some(line) = lines.next() {
        if line == wanted {
            // `calls=…`, and then what they cost.
            let spent = lines.nth(1).and_then(|line| line.split(' ').next_back());
            cost += spent.and_then(|spent| spent.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    cost
}

/// Lines `name = number`.
pub(crate) fn numbers(text: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, number) = line.split_once(" = ")?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn committed(text: &str) -> Result<Figures, Failure> {
    let table: toml::Table = text.parse().map_err(|error| Failure(format!("{COMMITTED}: {error}")))?;
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let section = |(name, value): (&String, &toml::Value)| {
        let figures = value.as_table()?.iter();
        Some((
            name.clone(),
            figures.filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect(),
        ))
    };
    Ok(table.iter().filter_map(section).collect())
}

fn shown(figures: &Figures) -> String {
    let section = |(name, figures): (&String, &BTreeMap<String, f64>)| {
        let lines: String = figures.iter().map(|(name, figure)| format!("{name} = {figure:.1}\n")).collect();
        format!("[{name}]\n{lines}")
    };
    figures.iter().map(section).collect::<Vec<_>>().join("\n")
}

fn judge(figures: &Figures, before: &Figures) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for (section, name, figure) in figures
        .iter()
        .flat_map(|(section, all)| all.iter().map(move |(name, figure)| (section, name, *figure)))
    {
        match before.get(section).and_then(|all| all.get(name)) {
            None => wrong.push(format!("{section}.{name} is {figure} and not in {COMMITTED}")),
            Some(before) if figure > before * MORE => {
                wrong.push(format!("{section}.{name} is {figure}, was {before}"));
            }
            Some(_) => {}
        }
        let instructions = MEASURED.contains(&name.as_str());
        let bytes = BYTES_MAX.iter().find(|(of, _)| of == name).map(|(_, max)| *max);
        let added = name.ends_with("_added").then_some(ADDED_MAX);
        let max = bytes.or(instructions.then_some(INSTRUCTIONS_MAX)).or(added);
        // A function that is not found costs nothing.
        if figure <= 0.0 || max.is_some_and(|max| figure > max) {
            wrong.push(format!(
                "{section}.{name} is {figure}, which is not in 0 to {}",
                max.unwrap_or(f64::MAX)
            ));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure(wrong.join("; "))) }
}

fn rounded(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "fn=hit_cost::main\n3 4\ncfn=hit_cost::acquire_local\ncalls=10 5\n7 1200\n8 1\n\
        cfn=hit_cost::acquire_local_not\ncalls=1 5\n7 5000\ncfn=hit_cost::acquire_local\ncalls=1 5\n9 34\n";

    fn figures(section: &str, name: &str, figure: f64) -> Figures {
        [(section.to_owned(), [(name.to_owned(), figure)].into())].into()
    }

    #[test]
    fn a_functions_calls_are_added_up() {
        assert_eq!(cost_of(PROFILE, "acquire_local"), 1234);
        assert_eq!(cost_of(PROFILE, "release_local"), 0);
    }

    #[test]
    fn what_is_shown_can_be_committed() {
        let some = figures("fifo", "acquire_local", 82.5);
        assert_eq!(committed(&shown(&some)), Ok(some));
    }

    #[test]
    fn more_than_before_and_more_than_promised_fail() {
        let judged = |section, name, now, before| {
            judge(&figures(section, name, now), &figures(section, name, before)).is_ok()
        };
        assert!(judged("fifo", "acquire_local", 80.0, 75.0));
        assert!(!judged("fifo", "acquire_local", 80.0, 72.0), "over 10 % more");
        assert!(!judged("sieve", "release_remote", 101.0, 100.0), "over the limit");
        assert!(!judged("lru", "acquire_local", 101.0, 100.0), "over the limit");
        assert!(!judged("lru", "acquire_local", 0.0, 100.0), "was not measured");
        assert!(!judged("memory", "bucket_bytes", 101.0, 100.0), "over the limit");
        assert!(judged("ofi", "put_8_added", 275.0, 264.0));
        assert!(!judged("ofi", "put_8_added", 275.1, 275.0), "over the limit");
        assert!(judge(&figures("fifo", "acquire_local", 80.0), &Figures::new()).is_err(), "new");
    }
}
