//! What comes back from a PMIx of this test's own, which treats long texts as PMIx 5.0.11 does.

use std::process::Command;
use std::time::Duration;

use pmix::{Client, PmixError, TEXT_MAX};

/// Set where this program is the test's process with that library.
const CHILD: &str = "FAKE_PMIX";

#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let within = Duration::from_secs(10);
    let mut client = Client::init().expect("the library of the test's own");
    assert_eq!((client.rank(), client.size()), (0, 1));
    let longest = "a".repeat(TEXT_MAX);
    client.put("longest", &longest).expect("put");
    client.put("longer", &format!("{longest}a")).expect("put");
    client.fence(within).expect("a fence of one");
    assert_eq!(client.get(0, "longest", within).expect("it is there"), longest);
    let longer = client.get(0, "longer", within).expect_err("compressed");
    assert!(matches!(longer, PmixError::Kind { found: 42, wanted: 3, .. }), "{longer}");
    let missing = client.get(0, "missing", within).expect_err("nobody has put it");
    assert!(missing.to_string().contains("NOT-FOUND"), "{missing}");
    if std::env::var_os(EXITS).is_some() {
        std::process::exit(0);
    }
    // The library ends the process with another status if a value was not given back.
}

/// Set where it is to exit with the client still there.
const EXITS: &str = "FAKE_PMIX_EXITS";

#[test]
fn long_texts_come_back_whole_and_each_value_is_given_back() {
    plays(|child| child);
}

#[test]
fn a_process_that_exits_has_left() {
    plays(|child| child.env(EXITS, "1"));
}

/// Runs this program as that process, which is to end well and to have left.
fn plays(with: impl Fn(&mut Command) -> &mut Command) {
    let folder = tempfile::tempdir().expect("a folder of our own");
    let folder = folder.path();
    let library = folder.join("libpmix.so.2");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_pmix.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("the C compiler that links this program").success());
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"));
    child.args(["--exact", "child", "--nocapture"]).env("STANDPIPE_PMIX", &library).env(CHILD, folder);
    child.env("FAKE_PMIX_SIZE", "1").env("PMIX_NAMESPACE", "fake").env("PMIX_RANK", "0");
    let output = with(&mut child).output().expect("this program again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.join("left-job-0").exists(), "it has not left");
}
