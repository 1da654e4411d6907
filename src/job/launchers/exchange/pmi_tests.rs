//! PMI as launchers were seen to speak it, and as none does.

use std::io::Read;

use super::*;

/// A launcher that says these things, each after the question that goes with it.
fn scripted(script: &'static [(&'static str, &'static str)]) -> (Line, std::thread::JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let launcher = std::thread::spawn(move || {
        for (ask, answer) in script {
            let mut heard = vec![0; ask.len()];
            theirs.read_exact(&mut heard).expect("a question");
            assert_eq!(String::from_utf8_lossy(&heard), *ask);
            // In two halves, as a stream may bring it.
            let (first, second) = answer.as_bytes().split_at(answer.len() / 2);
            theirs.write_all(first).expect("room");
            std::thread::sleep(Duration::from_millis(2));
            theirs.write_all(second).expect("room");
        }
    });
    (Line::new(ours.into()), launcher)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn pmi_1_is_spoken() {
    let (line, launcher) = scripted(&[
        (
            "cmd=init pmi_version=1 pmi_subversion=1\n",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        ),
        ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_1_0\n"),
        ("cmd=put kvsname=kvs_1_0 key=k value=v\n", "cmd=put_result rc=0 msg=success\n"),
        ("cmd=barrier_in\n", "cmd=barrier_out\n"),
        ("cmd=get kvsname=kvs_1_0 key=k\n", "cmd=get_result rc=0 msg=success value=v\n"),
        ("cmd=get kvsname=kvs_1_0 key=n\n", "cmd=get_result rc=-1 msg=key_n_not_found value=unknown\n"),
        ("cmd=finalize\n", "cmd=finalize_ack\n"),
    ]);
    let mut pmi = Pmi::greet(Version::One, line, (0, 1), "", soon()).expect("well spoken");
    assert_eq!(pmi.text_max(), 924, "what is left of 1,024 bytes");
    pmi.put("k", "v", soon()).expect("put");
    pmi.fence(soon()).expect("a fence");
    assert_eq!(pmi.get(0, "k", soon()).expect("it is there"), "v");
    let error = pmi.get(0, "n", soon()).expect_err("not there");
    assert!(error.to_string().contains("key_n_not_found"), "{error}");
    drop(pmi);
    launcher.join().expect("all was said");
}

#[test]
fn pmi_2_is_spoken() {
    let (line, launcher) = scripted(&[
        (
            "cmd=init pmi_version=2 pmi_subversion=0\n",
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n",
        ),
        (
            "    51cmd=fullinit;pmijobid=3.0;pmirank=0;threaded=FALSE;",
            "    50cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;",
        ),
        ("    26cmd=kvs-put;key=k;value=v;", "    26cmd=kvs-put-response;rc=0;"),
        ("    14cmd=kvs-fence;", "    28cmd=kvs-fence-response;rc=0;"),
        ("    27cmd=kvs-get;srcid=-1;key=k;", "    45cmd=kvs-get-response;found=TRUE;value=v;rc=0;"),
        ("    13cmd=finalize;", "    27cmd=finalize-response;rc=0;"),
    ]);
    let mut pmi = Pmi::greet(Version::Two, line, (0, 1), "3.0", soon()).expect("well spoken");
    pmi.put("k", "v", soon()).expect("put");
    pmi.fence(soon()).expect("a fence");
    assert_eq!(pmi.get(0, "k", soon()).expect("it is there"), "v");
    drop(pmi);
    launcher.join().expect("all was said");
}

const INIT_1: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
const INIT_2: &str = "cmd=init pmi_version=2 pmi_subversion=0\n";

#[test]
fn todays_hydras_pmi_1_is_spoken() {
    let (line, launcher) = scripted(&[
        (INIT_1, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"),
        ("cmd=get_maxes\n", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=kvs_9516_0_831436391_vm\n"),
        ("cmd=put kvsname=kvs_9516_0_831436391_vm key=k value=v\n", "cmd=put_result rc=0\n"),
        ("cmd=barrier_in\n", "cmd=barrier_out tag=0\n"),
        ("cmd=get kvsname=kvs_9516_0_831436391_vm key=k\n", "cmd=get_result rc=0 value=v\n"),
        ("cmd=get kvsname=kvs_9516_0_831436391_vm key=n\n", "cmd=get_result rc=1\n"),
        ("cmd=finalize\n", "cmd=finalize_ack rc=0\n"),
    ]);
    let mut pmi = Pmi::greet(Version::One, line, (0, 1), "", soon()).expect("well spoken");
    let longest = put_one(&pmi.space, "standpipe-2-1023-10", &"v".repeat(pmi.text_max())).len() + 1;
    assert!(longest <= 1024, "Slurm reads no more of a question than that: {longest}");
    pmi.put("k", "v", soon()).expect("put");
    pmi.fence(soon()).expect("a fence");
    assert_eq!(pmi.get(0, "k", soon()).expect("it is there"), "v");
    let error = pmi.get(0, "n", soon()).expect_err("not there");
    assert!(error.to_string().contains("cmd=get_result rc=1"), "{error}");
    drop(pmi);
    launcher.join().expect("all was said");
}

/// A launcher that is asked for one protocol, and for the other after that: which it speaks in the end.
fn falls_back(from: Version, script: &'static [(&'static str, &'static str)]) -> Version {
    let (line, launcher) = scripted(script);
    let pmi = Pmi::greet(from, line, (0, 1), "", soon()).expect("well spoken in the end");
    let version = pmi.version;
    drop(pmi);
    launcher.join().expect("all was said");
    version
}

#[test]
fn a_protocol_that_is_refused_or_half_spoken_gives_way_to_the_other() {
    const FULL: &str = "    38cmd=fullinit;pmirank=0;threaded=FALSE;";
    const ONE: [(&str, &str); 4] = [
        (INIT_1, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
        ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_1_0\n"),
        ("cmd=finalize\n", "cmd=finalize_ack\n"),
    ];
    const AGREED: (&str, &str) = (INIT_2, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    const REFUSED: (&str, &str) = (INIT_2, "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n");
    const ITS_OWN: (&str, &str) = (INIT_2, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
    for half in [
        &[REFUSED][..],
        &[ITS_OWN],
        &[AGREED, (FULL, "    43cmd=fullinit-response;rc=14;errmsg=no PMI 2;")],
        &[AGREED, (FULL, "cmd=unknown_command rc=-1\n")],
        &[AGREED, (FULL, "sorry, no")],
    ] {
        assert_eq!(falls_back(Version::Two, [half, &ONE].concat().leak()), Version::One, "{half:?}");
    }
    let two: &[_] = &[
        (INIT_1, "cmd=response_to_init rc=1 pmi_version=2 pmi_subversion=0\n"),
        AGREED,
        (FULL, "    50cmd=fullinit-response;rc=0;rank=0;size=1;appnum=0;"),
        ("    13cmd=finalize;", "    27cmd=finalize-response;rc=0;"),
    ];
    assert_eq!(falls_back(Version::One, two), Version::Two);
}

#[test]
fn a_launcher_that_speaks_neither_is_an_error_that_has_its_answer() {
    let said = |from, script| {
        let (line, launcher) = scripted(script);
        let error = Pmi::greet(from, line, (0, 1), "", soon()).err().expect("nothing to agree on");
        drop(launcher);
        error.to_string()
    };
    for from in [Version::One, Version::Two] {
        let init = if from == Version::One { INIT_1 } else { INIT_2 };
        let nonsense: &'static [(&str, &str)] = vec![(init, "HTTP/1.1 400 Bad Request\n")].leak();
        let error = said(from, nonsense);
        assert!(error.contains("HTTP/1.1 400 Bad Request") && error.contains("cmd=init"), "{error}");
    }
    // It ends at what it has agreed to, as Intel's does.
    let agreed = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
    let error = said(Version::Two, vec![(INIT_2, agreed)].leak());
    assert!(error.contains("STANDPIPE_LAUNCHER=pmi1"), "{error}");
    // It refuses both.
    let (one, two) = ("cmd=response_to_init rc=1 pmi_version=9\n", "cmd=response_to_init rc=2\n");
    let error = said(Version::One, vec![(INIT_1, one), (INIT_2, two)].leak());
    assert!(error.contains("pmi_version=9"), "{error}");
}

#[test]
fn a_launcher_that_is_silent_once_it_has_refused_one_protocol_is_not_waited_for_long() {
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let launcher = std::thread::spawn(move || {
        theirs.read_exact(&mut [0; INIT_1.len()]).expect("a question");
        theirs.write_all(b"cmd=response_to_init rc=1 pmi_version=9\n").expect("room");
        theirs.read_exact(&mut [0; INIT_2.len()]).expect("another question");
        theirs
    });
    let begun = Instant::now();
    let error = Pmi::greet(Version::One, Line::new(ours.into()), (0, 1), "", soon());
    let error = error.err().expect("nothing to agree on").to_string();
    assert!(error.contains("pmi_version=9"), "{error}");
    assert!(begun.elapsed() < 5 * SECOND_WITHIN, "{:?}", begun.elapsed());
    launcher.join().expect("it was asked for both");
}

#[test]
fn an_answer_too_short_for_a_length_is_an_error_at_once() {
    for answer in ["no\n", "12\n", "    3\n", "\n", "x"] {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        theirs.write_all(answer.as_bytes()).expect("room");
        let begun = Instant::now();
        let error = Line::new(ours.into()).ask_two("cmd=x;", "x-response", soon()).err();
        let said = error.expect("no answer at all");
        assert!(
            matches!(&said, ExchangeError::Answer { answer: shown, .. } if shown == answer.trim_end()),
            "{answer:?}: {said}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{answer:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn nonsense_and_silence_are_errors() {
    let (mut line, launcher) = scripted(&[("     6cmd=x;", "abcdef")]);
    let nonsense = line.ask_two("cmd=x;", "x-response", soon());
    assert!(matches!(nonsense, Err(ExchangeError::Answer { .. })));
    drop((line, launcher));
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let mut line = Line::new(ours.into());
    let silence = line.ask_one("cmd=init", "", Instant::now() + Duration::from_millis(20));
    assert!(matches!(silence, Err(ExchangeError::Timeout { .. })));
    drop(theirs);
    assert!(matches!(line.ask_one("cmd=init", "", soon()), Err(ExchangeError::Io { .. })));
}
