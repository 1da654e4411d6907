//! Messages that gather: when they leave, and that they never do where their sender does not go on.

use crate::drive::wait;
use engine::node::AmBody;
use engine::{AmSend, Inbox, Lane};
use sim::{Cluster, Costs, Plan, Step};

fn gathering() -> Costs {
    Costs { gathers: true, ..Costs::infiniband_modern() }
}

fn cluster(costs: Costs) -> Cluster {
    Cluster::new(Plan { handlers: 1, ..Plan::new(2, costs) })
}

/// Has rank 0 send rank 1 so many messages of so many bytes, numbered.
fn flood(cluster: &mut Cluster, messages: u64, bytes: usize) {
    let payload = vec![7; bytes];
    for number in 0..messages {
        let body = if bytes == 0 { AmBody::Short } else { AmBody::Medium(&payload) };
        let message = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [number; 4], body };
        cluster.node(0).send_am(&message).expect("the lane has room");
    }
}

/// The numbers of the messages that rank 1 takes until nothing happens any more.
fn taken(cluster: &mut Cluster) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(step) = cluster.step() {
        if let Step::Deliver(1, _) = step {
            numbers.push(cluster.inbox().args()[0]);
        }
    }
    numbers
}

#[test]
fn a_burst_takes_two_send_overheads() {
    let costs = gathering();
    let mut together = cluster(costs.clone());
    flood(&mut together, 20, 0);
    assert_eq!(together.time_of(0), costs.send_overhead_ns, "the first has left, and no other");
    together.node(0).poll(&mut Inbox::default());
    assert_eq!(together.time_of(0), 2 * costs.send_overhead_ns);
    assert_eq!(taken(&mut together), (0..20).collect::<Vec<_>>());
    let mut apart = cluster(Costs { gathers: false, ..costs.clone() });
    flood(&mut apart, 20, 0);
    assert_eq!(apart.time_of(0), 20 * costs.send_overhead_ns);
    assert_eq!(taken(&mut apart), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_lone_message_waits_for_nothing() {
    let costs = gathering();
    let took = |costs: Costs| {
        let mut cluster = cluster(costs);
        let id = cluster.node(0).barrier(None);
        cluster.node(1).barrier(None);
        wait(&mut cluster, 0, id).expect("both come");
        cluster.now()
    };
    assert_eq!(took(costs.clone()), took(Costs { gathers: false, ..costs }));
}

#[test]
fn what_gathers_waits_for_its_senders_poll() {
    let mut cluster = cluster(gathering());
    flood(&mut cluster, 3, 0);
    cluster.mute(0);
    assert_eq!(taken(&mut cluster), [0], "the first was on its way");
    cluster.unmute(0);
    assert_eq!(taken(&mut cluster), [1, 2]);
}

#[test]
fn what_has_gathered_goes_with_its_sender() {
    for restarts in [false, true] {
        let mut cluster = cluster(gathering());
        flood(&mut cluster, 3, 0);
        cluster.mute(0);
        assert_eq!(taken(&mut cluster), [0]);
        if restarts {
            cluster.restart(0);
        } else {
            cluster.kill(0);
        }
        assert_eq!(taken(&mut cluster), []);
        // Another process of the rank has room for as many as the one before had.
        if restarts {
            flood(&mut cluster, gathering().lane_messages.into(), 0);
            assert_eq!(taken(&mut cluster).len(), gathering().lane_messages as usize);
        }
    }
}

#[test]
fn a_full_frame_waits_for_no_poll() {
    let mut cluster = cluster(gathering());
    // Seven of a KiB each fit a frame, with their headers.
    flood(&mut cluster, 20, 1024);
    cluster.mute(0);
    assert_eq!(taken(&mut cluster), (0..15).collect::<Vec<_>>(), "one alone, and two frames");
    cluster.unmute(0);
    assert_eq!(taken(&mut cluster), (15..20).collect::<Vec<_>>());
}

#[test]
fn a_frame_takes_the_cards_fixed_time_once() {
    let costs = Costs { receive_overhead_ns: 0, ..gathering() };
    let arrival = |messages: u64| {
        let mut cluster = cluster(costs.clone());
        flood(&mut cluster, messages, 0);
        loop {
            match cluster.step().expect("all arrive") {
                Step::Deliver(1, _) if cluster.inbox().args()[0] == messages - 1 => return cluster.now(),
                _ => {}
            }
        }
    };
    let frame = |messages: u64| costs.card_ns((messages - 1) * costs.header_bytes);
    assert_eq!(arrival(21) - arrival(11), frame(20) - frame(10));
}
