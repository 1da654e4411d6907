//! What a put or get by key adds to the provider's calls, where it hits: instructions counted by valgrind,
//! less what a program takes that makes the same calls and does nothing else.

use std::fs;

use crate::command::{Failure, run};

/// The test that hits, and its functions whose instructions count, with all that they call but the provider.
const TEST: &str = "transport::ofi::tests::cost::hits";
const COUNTED: [&str; 4] = ["*cost::begin", "*cost::end", "*cost::bare_begin", "*cost::bare_end"];

/// The provider's object file.
const PROVIDER: &str = "libfabric.so";

/// What is measured: the figures' name, and what the test is told.
const CASES: [(&str, &str); 2] = [("put_8", "put 8"), ("get_8", "get 8")];

/// The figures by name; `None`: there is no libfabric with a provider that works on one machine.
pub(crate) fn figures() -> Result<Option<Vec<(String, f64)>>, Failure> {
    let program = test_program()?;
    let mut figures = Vec::new();
    for (name, wanted) in CASES {
        let Some(all) = besides_provider(&program, wanted)? else { return Ok(None) };
        let Some(bare) = besides_provider(&program, &format!("bare {wanted}"))? else { return Ok(None) };
        let rounded = |figure: f64| (figure * 10.0).round() / 10.0;
        figures.push((format!("{name}_bare"), rounded(bare)));
        figures.push((format!("{name}_added"), rounded(all - bare)));
    }
    Ok(Some(figures))
}

/// The instructions of one hit that are not the provider's.
fn besides_provider(program: &str, wanted: &str) -> Result<Option<f64>, Failure> {
    let profile =
        tempfile::NamedTempFile::new().map_err(|error| Failure(format!("no temporary file: {error}")))?;
    let mut command = run("valgrind --quiet --tool=callgrind --compress-strings=no")
        .env("STANDPIPE_COST", wanted)
        .arg(format!("--callgrind-out-file={}", profile.path().display()));
    for function in COUNTED {
        command = command.arg(format!("--toggle-collect={function}"));
    }
    let printed =
        command.arg(program).arg("--ignored").arg("--exact").arg(TEST).arg("--nocapture").output()?;
    let Some(hits) = hits(&printed) else { return Ok(None) };
    let text = fs::read_to_string(profile.path())
        .map_err(|error| Failure(format!("callgrind's profile: {error}")))?;
    Ok(Some(added(&text) as f64 / hits))
}

/// The library's tests as a program.
fn test_program() -> Result<String, Failure> {
    let built =
        run("cargo test --release --package standpipe --lib --no-run --message-format=json").output()?;
    let mut path = built.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(message.get("executable")?.as_str()?.to_owned())
    });
    path.next_back().ok_or_else(|| Failure("cargo names no program of tests".into()))
}

/// How many hits the test says that it counted.
fn hits(printed: &str) -> Option<f64> {
    printed.lines().find_map(|line| line.split_once("counted hits: ")?.1.trim().parse().ok())
}

/// The instructions of a profile, but for what the provider took with all that it called.
fn added(profile: &str) -> u64 {
    let (mut object, mut callee, mut calls) = (String::new(), None::<String>, false);
    let (mut all, mut providers) = (0, 0);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            name.clone_into(&mut object);
        } else if let Some(name) = line.strip_prefix("cob=") {
            callee = Some(name.to_owned());
        } else if line.starts_with("calls=") {
            calls = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            if std::mem::take(&mut calls) {
                let is_call = callee.take().is_some_and(|callee| callee.contains(PROVIDER));
                providers += if is_call && !object.contains(PROVIDER) { cost } else { 0 };
            } else {
                all += cost;
            }
        }
    }
    all - providers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_part_is_taken_off_with_all_that_it_calls() {
        let ours = "ob=/bin/test\nfn=begin\n10 70\n+2 5\ncob=/lib/libc.so.6\ncfn=memcpy\ncalls=3 0\n* 30\n";
        let call = "cob=/lib/libfabric.so.1\ncfn=write\ncalls=1 0\n+1 900\n11 4\n";
        let theirs = "\nob=/lib/libfabric.so.1\nfn=write\n0 800\ncob=/lib/libc.so.6\ncfn=memcpy\ncalls=1 0\n0 100\n\
            cfn=inner\ncalls=1 0\n0 20\n";
        let libc = "\nob=/lib/libc.so.6\nfn=memcpy\n0 130\n\ntotals: 1009\n";
        assert_eq!(added(&format!("{ours}{call}{theirs}{libc}")), 70 + 5 + 4 + 30);
    }

    #[test]
    fn the_test_says_how_often() {
        assert_eq!(hits("running 1 test\nnet: counted hits: 1000\nok"), Some(1000.0));
        assert_eq!(hits("running 1 test\nskipped: no provider net"), None);
    }
}
