//! What comes back from a PMIx of this test's own, which treats long texts as PMIx 5.0.11 does.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pmix::{Client, PmixError, TEXT_MAX};

/// Set where this program is the test's process with that library.
const CHILD: &str = "FAKE_PMIX";

#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut client = Client::init(aside).expect("the library of the test's own");
    match std::env::var(ENDS).as_deref() {
        Ok(AMID_A_LEAVE) => exit_amid(move || drop(client), "leaves-job-0"),
        Ok(AMID_A_FENCE) => exit_amid(move || drop(client.fence(WITHIN)), "fence-0-0"),
        how => texts(&mut client, how.is_ok()),
    }
}

const WITHIN: Duration = Duration::from_secs(10);

fn texts(client: &mut Client, exits: bool) {
    assert_eq!((client.rank(), client.size()), (0, 1));
    let longest = "a".repeat(TEXT_MAX);
    client.put("longest", &longest).expect("put");
    client.put("longer", &format!("{longest}a")).expect("put");
    client.fence(WITHIN).expect("a fence of one");
    assert_eq!(client.get(0, "longest", WITHIN).expect("it is there"), longest);
    let longer = client.get(0, "longer", WITHIN).expect_err("compressed");
    assert!(matches!(longer, PmixError::Kind { found: 42, wanted: 3, .. }), "{longer}");
    let missing = client.get(0, "missing", WITHIN).expect_err("nobody has put it");
    assert!(missing.to_string().contains("NOT-FOUND"), "{missing}");
    if exits {
        std::process::exit(0);
    }
    // The library ends the process with another status if a value was not given back.
}

/// Exits while another thread makes that call, which leaves that file as it begins.
fn exit_amid(call: impl FnOnce() + Send + 'static, file: &str) {
    std::thread::spawn(call);
    let file = PathBuf::from(std::env::var_os(CHILD).expect("the test says where")).join(file);
    let deadline = Instant::now() + WITHIN;
    while !file.exists() {
        assert!(Instant::now() < deadline, "no {file:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(0);
}

fn aside(call: Box<dyn FnOnce() + Send>, within: Duration) {
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        call();
        let _ = ends.send(());
    });
    let _ = ended.recv_timeout(within);
}

/// Set where it is to exit before it has left, to what it does then.
const ENDS: &str = "FAKE_PMIX_ENDS";
const WITH_A_CLIENT: &str = "with a client";
const AMID_A_LEAVE: &str = "amid a leave";
const AMID_A_FENCE: &str = "amid a fence";

#[test]
fn long_texts_come_back_whole_and_each_value_is_given_back() {
    assert!(plays(|child| child).has_left);
}

#[test]
fn a_process_that_exits_has_left() {
    assert!(plays(|child| child.env(ENDS, WITH_A_CLIENT)).has_left);
}

#[test]
fn an_exit_waits_for_a_leave_that_has_begun() {
    assert!(plays(|child| child.env(ENDS, AMID_A_LEAVE).env("FAKE_PMIX_LEAVE_MS", "300")).has_left);
}

#[test]
fn an_exit_waits_no_longer_for_a_server_that_does_not_answer() {
    for how in [WITH_A_CLIENT, AMID_A_LEAVE] {
        let played = plays(|child| child.env(ENDS, how).env("FAKE_PMIX_LEAVE_MS", "60000"));
        assert!(!played.has_left && played.took < WITHIN, "{how}: {:?}", played.took);
    }
}

#[test]
fn an_exit_leaves_not_beside_a_fence_that_does_not_end() {
    let played = plays(|child| child.env(ENDS, AMID_A_FENCE).env("FAKE_PMIX_SIZE", "2"));
    assert!(!played.has_left && played.took < WITHIN, "{:?}", played.took);
}

/// What came of a process.
struct Played {
    has_left: bool,
    took: Duration,
}

/// Runs this program as that process, which is to end well.
fn plays(with: impl Fn(&mut Command) -> &mut Command) -> Played {
    let folder = tempfile::tempdir().expect("a folder of our own");
    let folder = folder.path();
    let library = folder.join("libpmix.so.2");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_pmix.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("the C compiler that links this program").success());
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"));
    child.args(["--exact", "child", "--nocapture"]).env("STANDPIPE_PMIX", &library).env(CHILD, folder);
    child.env("FAKE_PMIX_SIZE", "1").env("PMIX_NAMESPACE", "fake").env("PMIX_RANK", "0");
    let begun = Instant::now();
    let output = with(&mut child).output().expect("this program again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Played { has_left: folder.join("left-job-0").exists(), took: begun.elapsed() }
}
