//! `standpipe-study kernel`, whole: real ranks, real puts, real results, and what was recorded of them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sim::recording::{Action, Array, Header, Step, Trace, TraceError};
use testbed::{PATIENCE, finish};

use super::json;

fn kernel(words: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe-study"));
    command.arg("kernel").args(words.split_whitespace()).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &str, more: &[&str]) -> Output {
    finish(kernel(words, more).spawn().expect("it starts"))
}

/// The object of a run that must go well.
fn good(words: &str, more: &[&str]) -> Value {
    let output = run(&format!("{words} --json"), more);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let json = json(&output);
    assert_eq!((&json["verified"], &json["fault"]), (&Value::Bool(true), &Value::Null), "{json}");
    json
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("{name} in {json}"))
}

#[test]
fn cannon_is_right_on_one_four_and_nine_ranks() {
    for (words, puts, bytes) in [
        ("cannon -n 1 --size 20", 0, 0),
        // Twelve blocks move: four to their first place, eight on. Rows of 80 bytes go in two puts.
        ("cannon -n 4 --size 20 --put-bytes 64", 12 * 10 * 2, 12 * 10 * 80),
        ("cannon -n 9 --size 18 --put-bytes 8 --rounds 2", 2 * 48 * 36, 2 * 48 * 36 * 8),
    ] {
        let json = good(words, &[]);
        assert_eq!((number(&json, "puts"), number(&json, "bytes")), (puts, bytes), "{words}");
        assert_eq!(json["verified_by"], "every entry equals the naive product's");
        let by_mechanism: u64 =
            json["mechanisms"].as_object().expect("mechanisms").values().filter_map(Value::as_u64).sum();
        assert_eq!(by_mechanism, bytes, "every byte went to private memory: {json}");
    }
}

#[test]
fn bitonic_is_right_on_one_two_four_and_eight_ranks() {
    for (words, puts) in [
        ("bitonic -n 1 --size 100", 0),
        ("bitonic -n 2 --size 100 --put-bytes 8", 100),
        ("bitonic -n 4 --size 1000 --put-bytes 64", 3 * 4 * 32),
        ("bitonic -n 8 --size 800 --put-bytes 800 --rounds 3", 3 * 6 * 8),
    ] {
        let json = good(words, &[]);
        assert_eq!(number(&json, "puts"), puts, "{words}");
    }
}

#[test]
fn without_cross_memory_attach_puts_go_by_message() {
    for words in ["cannon -n 4 --size 12 --json", "bitonic -n 2 --size 64 --json"] {
        let child = kernel(words, &[]).env("STANDPIPE_ATTACH", "never").spawn().expect("it starts");
        let json = json(&finish(child));
        assert_eq!(
            (&json["verified"], &json["mechanisms"]["message"]),
            (&true.into(), &json["bytes"]),
            "{json}"
        );
    }
}

/// The user's setting is for the user's programs.
#[test]
fn ranks_expose_what_they_use_whatever_the_setting() {
    let child = kernel("bitonic -n 2 --size 64 --json", &[])
        .env("STANDPIPE_EXPOSE", "ranges")
        .spawn()
        .expect("it starts");
    assert_eq!(json(&finish(child))["verified"], true);
}

#[test]
fn one_wrong_put_is_noticed() {
    for (words, told) in [
        ("cannon -n 4 --size 20 --json --spoil", "rows of the ranks' blocks are wrong"),
        // Above this size another way of verifying is taken.
        ("cannon -n 4 --size 520 --json --spoil", "rows of the ranks' blocks are wrong"),
        ("bitonic -n 2 --size 64 --json --spoil", "rank 0 has a key above the first of rank 1"),
    ] {
        let output = run(words, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {stderr}");
        assert!(stderr.contains("the result is wrong") && stderr.contains(told), "{words}: {stderr}");
        assert_eq!(json(&output)["verified"], false);
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_starts() {
    let output = run("cannon -n 3 --record never-made", &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && output.stdout.is_empty() && stderr.contains("form a square"),
        "{stderr}"
    );
    assert!(!Path::new("never-made").exists());
}

/// Runs a kernel with its recording in `directory`.
fn recorded(directory: &Path, words: &str) -> (Trace, Value) {
    let path = directory.join("trace");
    let json = good(words, &["--record", path.to_str().expect("a plain path")]);
    let left: Vec<_> =
        fs::read_dir(directory).expect("our directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["trace"], "the parts are gone");
    assert_eq!(fs::metadata(&path).expect("the trace").len(), number(&json["trace"], "bytes"));
    (Trace::open(&path).expect("what was written"), json)
}

/// Puts by (from, to, array, offset, length), and how often each was made.
type Puts = BTreeMap<(u32, u32, String, u64, u64), usize>;

fn replay(trace: &Trace) -> Puts {
    let mut puts = Puts::new();
    for rank in 0..trace.header().size() {
        for step in trace.steps(rank) {
            let Step { action: Action::Put(put), .. } = step.expect("what was written") else { continue };
            let array = array(trace.header(), put.peer, put.remote);
            assert!(array.name.starts_with("arriving"), "a put into {}", array.name);
            let key = (rank, put.peer, array.name.clone(), put.remote - array.addr, put.len);
            *puts.entry(key).or_default() += 1;
        }
    }
    puts
}

fn array(header: &Header, rank: u32, addr: u64) -> &Array {
    let arrays = &header.ranks[rank as usize].arrays;
    arrays.iter().find(|array| array.contains(addr, 1)).expect("it is in an array")
}

#[test]
fn a_recorded_sort_replays_to_the_puts_of_the_sort() {
    let directory = tempfile::tempdir().expect("a directory");
    let (trace, json) = recorded(directory.path(), "bitonic -n 4 --size 400 --put-bytes 64");
    let mut expected = Puts::new();
    // Neighbours; then across the two pairs; then neighbours again.
    for partner in [|rank| rank ^ 1, |rank| rank ^ 2, |rank: u32| rank ^ 1] {
        for (rank, run) in (0..4).flat_map(|rank| (0..13).map(move |run| (rank, run))) {
            let len = if run == 12 { 32 } else { 64 };
            *expected.entry((rank, partner(rank), "arriving keys".to_owned(), run * 64, len)).or_default() +=
                1;
        }
    }
    assert_eq!(replay(&trace), expected);
    assert_eq!(expected.values().sum::<usize>() as u64, number(&json, "puts"));
    assert_eq!((trace.header().kernel.as_str(), trace.header().parameters["size"]), ("bitonic", 400));
    let totals = trace.check().expect("the ranks fit together");
    assert_eq!((totals.puts, totals.bytes), (number(&json, "puts"), number(&json, "bytes")));
    // Sorting comes first, and counts as computing.
    assert!(totals.compute_ns > 0);
}

#[test]
fn a_recorded_product_replays_to_the_puts_of_the_product() {
    let directory = tempfile::tempdir().expect("a directory");
    let (trace, json) = recorded(directory.path(), "cannon -n 4 --size 6 --put-bytes 16");
    let mut expected = Puts::new();
    let mut moves = |rank, to, name: &str| {
        for (row, (offset, len)) in (0..3).flat_map(|row| [(row, (0, 16)), (row, (16, 8))]) {
            *expected.entry((rank, to, format!("arriving {name}"), row * 24 + offset, len)).or_default() += 1;
        }
    };
    // On a square of two by two, left and right are the same, and so are up and down.
    for (rank, to) in [(2, 3), (3, 2)] {
        moves(rank, to, "a, even");
    }
    for (rank, to) in [(1, 3), (3, 1)] {
        moves(rank, to, "b, even");
    }
    for rank in 0..4 {
        moves(rank, rank ^ 1, "a, odd");
        moves(rank, rank ^ 2, "b, odd");
    }
    assert_eq!(replay(&trace), expected);
    assert_eq!(expected.values().sum::<usize>() as u64, number(&json, "puts"));
    let barriers = |rank| {
        trace.steps(rank).filter(|step| step.as_ref().expect("a step").action == Action::Barrier).count()
    };
    assert!((0..4).all(|rank| barriers(rank) == 3));
}

#[test]
fn a_truncated_recording_is_an_error_that_says_where() {
    let directory = tempfile::tempdir().expect("a directory");
    let _ = recorded(directory.path(), "bitonic -n 2 --size 64");
    let path = directory.path().join("trace");
    let bytes = fs::read(&path).expect("the trace");
    for length in [0, 5, 20, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).expect("room on disk");
        let error = Trace::open(&path).expect_err("it is cut");
        assert!(matches!(error, TraceError::Truncated { .. }), "{error}");
        assert_eq!(error.offset(), length as u64);
    }
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error_before_the_run() {
    let output = run("bitonic -n 2 --size 64 --record /nowhere/at/all", &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("recording to /nowhere/at/all"), "{stderr}");
}

#[test]
fn an_interrupted_recording_says_so_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let more = ["--record", path.to_str().expect("a plain path")];
    let child = kernel("cannon -n 4 --size 4000 --json", &more).spawn().expect("it starts");
    let start = Instant::now();
    while parts(directory.path()) < 4 {
        assert!(start.elapsed() < PATIENCE, "{} parts", parts(directory.path()));
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let output = finish(child);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0), "{stderr}");
    assert!(stderr.contains("standpipe: ended by SIGINT"), "{stderr}");
    assert_eq!(fs::read_dir(directory.path()).expect("our directory").count(), 0);
}

/// How many ranks have begun their part of the recording that is being made in `directory`.
fn parts(directory: &Path) -> usize {
    let inside = fs::read_dir(directory).expect("our directory").flatten();
    inside.flat_map(|entry| fs::read_dir(entry.path())).map(Iterator::count).sum()
}

#[test]
fn the_table_tells_what_the_run_came_to() {
    let output = run("bitonic -n 2 --size 64 --put-bytes 8", &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["64, of up to 8 bytes", "mean put latency", "yes: in order, and the same keys as before"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
