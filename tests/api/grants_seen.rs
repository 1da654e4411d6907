//! What is counted of grants.

use std::collections::BTreeMap;
use std::time::Duration;

use standpipe::{Audience, Error, GrantError, GrantName, Node, Remote, Rights};

use super::{Way, alone, ask, config, job, tell};

/// Those of the node's plain counters that tell of grants, and what it says of them by its methods.
fn counted(node: &Node) -> BTreeMap<&'static str, u64> {
    let stats = node.stats();
    let methods = [
        ("grants", stats.grants()),
        ("granted_bytes", stats.granted_bytes()),
        ("grants_made", stats.grants_made()),
        ("denied", stats.denied()),
        ("barred", stats.barred()),
        ("revocations_waited", stats.revocations_waited()),
        ("revocations_in_use", stats.revocations_in_use()),
    ];
    let told: BTreeMap<_, _> = stats.scalars().collect();
    for (key, value) in methods {
        assert_eq!(told.get(key), Some(&value), "{key}");
    }
    methods.into_iter().filter(|(_, value)| *value > 0).collect()
}

/// The grants that there are, their bytes, and how many were ever made.
fn grants(node: &Node) -> [u64; 3] {
    let stats = node.stats();
    [stats.grants(), stats.granted_bytes(), stats.grants_made()]
}

#[test]
fn grants_and_their_bytes_are_counted_as_they_come_and_go() {
    let node = alone(config());
    assert_eq!(counted(&node), BTreeMap::new());
    let mut first = node.grant(vec![1_u8; 100], Rights::ReadWrite, Audience::ALL).expect("granted");
    let all = node.share_many([vec![2_u64; 10], vec![3; 20]], Audience::ALL).expect("granted");
    assert_eq!(grants(&node), [3, 340, 3]);
    first.repoint(vec![4; 100], Duration::ZERO).expect("nobody is there");
    assert_eq!(grants(&node), [3, 340, 3]);
    first.revoke().expect("it is granted");
    assert_eq!(grants(&node), [2, 240, 3]);
    assert_eq!(first.revoke(), Err(GrantError::Revoked { grant: first.name().id() }));
    drop((first, all));
    assert_eq!(grants(&node), [0, 0, 3]);
    // A list of which one cannot be granted leaves nothing behind.
    assert!(matches!(node.share_many([vec![2_u8; 10], Vec::new()], Audience::ALL), Err(GrantError::Empty)));
    assert_eq!(grants(&node)[..2], [0, 0]);
    assert!(!counted(&node).contains_key("revocations_waited"), "nobody was there");
}

#[test]
fn collectors_are_told_how_many_there_are_now() {
    let node = alone(config());
    let kept = node.share(vec![1_u8; 100], Audience::ALL).expect("granted");
    drop(node.share(vec![1_u8; 11], Audience::ALL).expect("granted"));
    let text = node.open_metrics(&[]);
    for line in [
        "# TYPE standpipe_grants gauge",
        "standpipe_grants{rank=\"0\"} 1",
        "# TYPE standpipe_granted_bytes gauge",
        "# UNIT standpipe_granted_bytes bytes",
        "standpipe_granted_bytes{rank=\"0\"} 100",
        "standpipe_grants_made_total{rank=\"0\"} 2",
        "standpipe_denied_accesses_total{rank=\"0\"} 0",
        "standpipe_barred_accesses_total{rank=\"0\"} 0",
        "standpipe_revocations_waited_total{rank=\"0\"} 0",
        "standpipe_revocations_in_use_total{rank=\"0\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    drop(kept);
}

#[test]
fn refusals_are_counted_where_they_are_made_and_where_they_are_met() {
    for way in [Way::Attach, Way::Message] {
        job(
            2,
            |_| way.config(),
            |node| {
                let other = 1 - node.rank();
                let grant = node.share(vec![7_u8; 100], Audience::ALL).expect("granted");
                let gone = node.share(vec![7_u8; 100], Audience::ALL).expect("granted");
                tell(node, "grant", grant.name().to_words());
                tell(node, "gone", gone.name().to_words());
                drop(gone);
                node.barrier().expect("both have revoked");
                let [there, gone] = ["grant", "gone"].map(|what| {
                    Remote::granted(other, GrantName::from_words(ask(node, what, other)).expect("a name"))
                });
                let mut into = [0; 8];
                node.get_bytes(there, &mut into).expect("it is granted");
                assert_eq!(node.stats().barred(), 0);
                assert!(matches!(node.get_bytes(gone, &mut into), Err(Error::Revoked { .. })));
                assert!(matches!(node.put_bytes(there, &into), Err(Error::NotGranted { .. })));
                assert!(matches!(node.get_bytes(there.plus(93), &mut into), Err(Error::Fault { .. })));
                assert_eq!(node.stats().barred(), 3);
                node.barrier().expect("both have tried");
                let counted = counted(node);
                assert_eq!((counted["grants"], counted["granted_bytes"]), (1, 100));
                if way == Way::Message {
                    assert_eq!(counted["denied"], 3, "the owner was asked each time");
                }
            },
        );
    }
}
