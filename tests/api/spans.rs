//! What a program's subscriber sees of the library's calls.

use super::spans_seen::spans_of;
use super::*;

#[test]
fn calls_that_wait_are_spans_with_what_they_are_about() {
    job(
        2,
        |_| Way::Message.config(),
        |node| {
            let mut mine = vec![0_u8; 100];
            let there = exchange_private(node, &mut mine);
            let seen = spans_of(|| {
                node.put_bytes(there, &[1; 60]).expect("put");
                node.world().all_reduce(&mut [1_u32; 5], standpipe::Reduction::Sum).expect("all come");
                node.barrier().expect("barrier");
            });
            let peer = 1 - node.rank();
            let expected = [
                format!("transfer peer={peer} direction=Put bytes=60"),
                "collective what=\"all-reduce\" members=2 bytes=20".to_owned(),
                "barrier".to_owned(),
            ];
            assert_eq!(seen, expected);
            assert!(node.latencies().get(standpipe::Timed::Put).sampled() > 0);
        },
    );
}

#[test]
fn opening_and_meeting_are_spans_and_what_is_there_already_is_none() {
    let mut nodes = Vec::new();
    let opened = spans_of(|| nodes.extend([alone(config()), alone(config())]));
    assert_eq!(opened, ["open rank=0 size=1", "open rank=0 size=1"]);
    let address = nodes[1].address().expect("a node that listens");
    let mut met = spans_of(|| assert_eq!(nodes[0].connect_to(&address).expect("peers"), 1));
    // Over the network the first word may be on its way for longer.
    met.retain(|span| !span.starts_with("reach "));
    assert_eq!(met, ["meet"]);
}

#[test]
fn the_first_contact_with_a_peer_is_a_span_and_no_other_is() {
    job(
        3,
        |_| config(),
        |node| {
            let peer = right_of(node);
            let seen = spans_of(|| {
                node.connect(peer).expect("it comes");
                node.connect(peer).expect("it is connected to");
            });
            assert_eq!(seen, [format!("connect peer={peer}")]);
        },
    );
}
