//! Senders that turn hot and cold again.

use conformance::Cluster;
use engine::node::{AmBody, Polled};
use engine::{AmSend, Inbox, Lane, Rank};

use super::cluster::{Setting, ShmCluster};

const POLLING: Setting = Setting { attach_never: false, fences_symmetric: false, polls: true };

fn send(cluster: &mut ShmCluster, from: Rank, number: u64) {
    let message = AmSend { peer: 0, lane: Lane::Request, handler: 0, args: [number; 4], body: AmBody::Short };
    cluster.node(from).send_am(&message).expect("the lane has room");
}

/// What rank 0 finds: sender and number.
fn receive(cluster: &mut ShmCluster) -> Vec<(Rank, u64)> {
    let (mut inbox, mut got) = (Inbox::default(), Vec::new());
    let mut idle = 0;
    while idle < 4 {
        match cluster.node(0).poll(&mut inbox) {
            Polled::Deliver(delivery) => got.push((delivery.peer, inbox.args()[0])),
            Polled::Progressed | Polled::Local(_) | Polled::Acknowledged(_) | Polled::Refused(_) => {}
            Polled::Idle => idle += 1,
        }
    }
    got
}

#[test]
fn fewer_senders_may_be_hot_after_a_sleep_than_before() {
    let mut cluster = ShmCluster::new(4, POLLING);
    // All of them hot, and every place of the turn left in turn.
    for last in 1..4 {
        for number in 0..4 {
            for from in 1..4 {
                send(&mut cluster, from, number);
            }
            assert_eq!(receive(&mut cluster).len(), 3);
        }
        send(&mut cluster, last, 4);
        assert_eq!(receive(&mut cluster), [(last, 4)]);
        cluster.node(0).transport().prepare_sleep();
        // Then one of them alone.
        for number in 5..10 {
            send(&mut cluster, 1, number);
            assert_eq!(receive(&mut cluster), [(1, number)]);
        }
        cluster.node(0).transport().prepare_sleep();
    }
}
