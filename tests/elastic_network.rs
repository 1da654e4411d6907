//! Nodes that nobody launched, over a network: on one host, and on hosts that are network namespaces. Where
//! there is no libfabric, or none can be made, that is skipped, aloud.

#[path = "support/hosts.rs"]
mod hosts;
#[path = "support/meetings.rs"]
mod meetings;
#[path = "support/members.rs"]
mod members;
mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use hosts::{Host, hosts};
use members::Other;
use rustix::process::Signal;
use standpipe::{Config, Listen, Node, Transport};
use support::{eventually, hex, itself, network};

/// What the nodes of this program reach each other by.
const OVER: &str = "ofi:tcp";

#[test]
fn child() {
    members::play();
}

/// Does what is to be tested, where there is a network.
fn over_network(case: fn()) {
    if network().is_some() {
        case();
    }
}

#[test]
fn where_no_network_can_be_opened_is_said_with_who_says_so() {
    over_network(|| {
        // Of a network that is for documents alone.
        let at = Listen::parse("192.0.2.1:0").expect("an address");
        let transport = Transport::parse(OVER).expect("a name");
        let node = Node::open(Config::new().listen(at).transport(transport)).expect("none is opened yet");
        let error = node.address().expect_err("no address of this host's").to_string();
        assert!(error.contains("at 192.0.2.1, as STANDPIPE_LISTEN says"), "{error}");
    });
}

#[test]
fn two_processes_reach_each_other() {
    over_network(meetings::two_processes_reach_each_other);
}

#[test]
fn two_processes_reach_each_other_by_message() {
    over_network(meetings::two_processes_reach_each_other_by_message);
}

#[test]
fn one_that_is_killed_is_lost_within_100_ms() {
    over_network(meetings::one_that_is_killed_is_lost_within_100_ms);
}

#[test]
fn one_that_is_killed_is_lost_though_a_child_of_its_lives_on() {
    over_network(meetings::one_that_is_killed_is_lost_though_a_child_of_its_lives_on);
}

#[test]
fn whoever_waits_for_one_that_is_killed_is_told() {
    over_network(meetings::whoever_waits_for_one_that_is_killed_is_told);
}

#[test]
fn others_join_at_any_time_and_one_that_is_started_again_is_another() {
    over_network(meetings::others_join_at_any_time_and_one_that_is_started_again_is_another);
}

#[test]
fn many_that_come_and_go_at_once_are_each_heard_and_missed() {
    over_network(meetings::many_that_come_and_go_at_once_are_each_heard_and_missed);
}

#[test]
fn one_that_is_stopped_does_not_hold_up_who_calls_it() {
    over_network(meetings::one_that_is_stopped_does_not_hold_up_who_calls_it);
}

#[test]
fn colliding_handlers_make_no_peers() {
    over_network(meetings::colliding_handlers_make_no_peers);
}

#[test]
fn only_what_is_exposed_is_reached() {
    over_network(meetings::only_what_is_exposed_is_reached);
}

#[test]
fn room_for_peers_ends_with_the_number() {
    over_network(meetings::room_for_peers_ends_with_the_number);
}

/// A node on one of the hosts. What it reaches others by is what it finds: `shm`, the default, where they are
/// on its host.
fn start_at(host: &Host, settings: &[(&str, &str)]) -> Other {
    let mut command = host.command(&itself("found"));
    command.envs(settings.iter().copied());
    Other::start_by(command)
}

/// All that one node can do with the memory of another, whose number it knows.
fn do_well(one: &mut Other, peer: &str, other: &mut Other, value: u64) {
    let word = other.array + 8;
    assert_eq!(one.order(&format!("put {peer} {word} {value}"), "put"), "Ok(())");
    assert_eq!(one.order(&format!("get {peer} {word}"), "got"), format!("Ok({value})"));
    assert_eq!(one.order(&format!("add {peer} {word}"), "added"), format!("Ok({value})"));
    assert_eq!(other.order("read 1", "word"), (value + 1).to_string());
    assert_eq!(one.order(&format!("ask {peer} 5"), "ask"), "Ok(())");
}

fn connect(one: &mut Other, other: &Other) -> String {
    let order = format!("connect {}", hex(&other.address));
    one.order(&order, "peer")
}

#[test]
fn nodes_of_several_hosts_meet_and_are_near_or_far() {
    let (Some(_), Some(hosts)) = (network(), hosts(2)) else { return };
    let (mut here, mut beside, mut there) =
        (start_at(&hosts[0], &[]), start_at(&hosts[0], &[]), start_at(&hosts[1], &[]));
    assert_eq!(connect(&mut here, &beside), "1");
    do_well(&mut here, "1", &mut beside, 10);
    assert_eq!(connect(&mut here, &there), "2");
    do_well(&mut here, "2", &mut there, 20);
    // Whoever is far goes on while those who are near do, and the other way round.
    do_well(&mut here, "1", &mut beside, 30);
    assert_eq!(connect(&mut there, &here), "1");
    do_well(&mut there, "1", &mut here, 40);
    assert_eq!(connect(&mut there, &beside), "2");
    do_well(&mut there, "2", &mut beside, 50);
    assert_eq!(connect(&mut beside, &here), "1");
    do_well(&mut beside, "1", &mut here, 60);

    // One is killed, and started again on the same host: it is another.
    let killed = Instant::now();
    there.signal(Signal::KILL);
    assert!(eventually(|| here.order("lost", "lost") == "[2]"));
    println!("missed on the other host after {:?}", killed.elapsed());
    assert!(eventually(|| beside.order("lost", "lost") == "[2]"));
    let old = std::mem::replace(&mut there, start_at(&hosts[1], &[]));
    assert!(connect(&mut here, &old).starts_with("not: the node that gave the address is gone"));
    assert_eq!(connect(&mut here, &there), "3");
    assert_eq!(old.array, there.array);
    let word = old.array + 8;
    let lost = "Err(peer 2 is lost)";
    assert_eq!(here.order(&format!("put 2 {word} 9"), "put"), lost);
    assert_eq!(here.order(&format!("get 2 {word}"), "got"), lost);
    assert_eq!(there.order("read 1", "word"), "0");
    do_well(&mut here, "3", &mut there, 70);
    do_well(&mut here, "1", &mut beside, 80);
    // In order, too.
    writeln!(there.orders, "end").expect("it reads");
    assert!(eventually(|| here.order("lost", "lost") == "[2, 3]"));
}

#[test]
fn nodes_behind_a_link_that_stays_down_are_lost_within_what_silence_is_allowed() {
    let (Some(_), Some(hosts)) = (network(), hosts(2)) else { return };
    let settings = [("STANDPIPE_SILENCE_MS", "3000")];
    let (mut here, mut there) = (start_at(&hosts[0], &settings), start_at(&hosts[1], &settings));
    assert_eq!(connect(&mut here, &there), "1");
    do_well(&mut here, "1", &mut there, 10);
    hosts[1].set_link(false);
    let begun = Instant::now();
    for node in [&mut here, &mut there] {
        assert!(eventually(|| node.order("lost", "lost") == "[1]"));
    }
    println!("both have given each other up after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(12));
    let answer = connect(&mut here, &there);
    assert!(answer.starts_with("not: "), "{answer}");
    hosts[1].set_link(true);
    assert!(eventually(|| !connect(&mut here, &there).starts_with("not: ")));
}
