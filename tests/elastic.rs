//! Nodes that nobody launched, on one host: they meet at sockets, and share memory.

#[path = "support/meetings.rs"]
mod meetings;
#[path = "support/members.rs"]
mod members;
mod support;

use standpipe::bootstrap::Broker;
use standpipe::{AddressError, Error, GlobalPtr, MeetError, Node};

use members::{Member, config};

/// What the nodes of this program reach each other by.
const OVER: &str = "shm";

#[test]
fn child() {
    members::play();
}

#[test]
fn two_processes_reach_each_other() {
    meetings::two_processes_reach_each_other();
}

#[test]
fn two_processes_reach_each_other_by_message() {
    meetings::two_processes_reach_each_other_by_message();
}

#[test]
fn one_that_is_killed_is_lost_within_100_ms() {
    meetings::one_that_is_killed_is_lost_within_100_ms();
}

#[test]
fn whoever_waits_for_one_that_is_killed_is_told() {
    meetings::whoever_waits_for_one_that_is_killed_is_told();
}

#[test]
fn others_join_at_any_time_and_one_that_is_started_again_is_another() {
    meetings::others_join_at_any_time_and_one_that_is_started_again_is_another();
}

#[test]
fn many_that_come_and_go_at_once_are_each_heard_and_missed() {
    meetings::many_that_come_and_go_at_once_are_each_heard_and_missed();
}

#[test]
fn one_that_is_stopped_does_not_hold_up_who_calls_it() {
    meetings::one_that_is_stopped_does_not_hold_up_who_calls_it();
}

#[test]
fn other_handlers_make_no_peers() {
    meetings::other_handlers_make_no_peers();
}

#[test]
fn room_for_peers_ends_with_the_number() {
    meetings::room_for_peers_ends_with_the_number();
}

#[test]
fn what_is_no_address_is_told_by_name() {
    let here = Member::new(config());
    let whole = here.node.address().expect("a door").into_bytes();
    let bad = |bytes: &[u8]| match here.node.connect_to(bytes) {
        Err(MeetError::Address(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(&[]), AddressError::Length { len: 0 });
    assert!(matches!(bad(b"something else altogether"), AddressError::Foreign { .. }));
    assert!(matches!(bad(&whole[..whole.len() - 1]), AddressError::Damaged { .. }));
    assert!(matches!(here.node.connect_to(&whole), Err(MeetError::Oneself)));
    // A number that was never given is nobody's.
    let nobody = GlobalPtr::<u64>::new(1, 0);
    assert_eq!(here.node.get(nobody), Err(Error::NoSuchPeer { peer: 1, size: 1 }));
    assert!(!whole.is_empty() && format!("{:?}", here.node.address()) == "Ok(Address(..))");
}

#[test]
fn a_launched_job_has_no_door() {
    let broker = Broker::start(1).expect("a broker");
    let node = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    assert!(matches!(node.address(), Err(MeetError::InJob { size: 1 })));
    assert!(matches!(node.connect_to([]), Err(MeetError::InJob { size: 1 })));
}
