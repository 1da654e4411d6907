//! The command `standpipe-study`, as its users run it.

mod gups;
mod isx;
mod kernel;
mod signals;
mod sim;
mod studies;
mod study_kv;
mod study_layers;
mod words;

use std::process::Output;

use serde_json::Value;

/// The JSON that a command printed, whatever its exit status.
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The JSON of a command that did its work.
fn good(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(output)
}

/// Whether a study's page explains each key of its result, but for those that all studies have.
fn assert_explained(json: &Value, page: &str) {
    let of_all = include_str!("../../../../docs/COMMANDS.md");
    for key in json.as_object().expect("an object").keys().map(|key| format!("`{key}`")) {
        assert!(page.contains(&key) || of_all.contains(&key), "{key} is not on the study's page");
    }
}
