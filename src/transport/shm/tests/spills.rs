//! Memory that senders take of their receiver's control segment: no more than they need.

use conformance::Cluster;
use engine::node::{AmBody, Polled};
use engine::{AmSend, Inbox, Lane, Rank, SendError};

use super::cluster::{Setting, ShmCluster};
use crate::transport::shm::control::{Control, NEAR_PAYLOAD_MAX, PAYLOAD_MAX};

const SETTING: Setting = Setting { attach_never: false, fences_symmetric: false, polls: true };

const PAGE: usize = 4096;

/// Polls in vain after which nothing more comes. A consumer gives the room of what it took back by then.
const IDLE: u32 = 2048;

fn cluster(size: u32) -> ShmCluster {
    ShmCluster::new(size, SETTING)
}

/// Pages of rank 0's control segment that have memory: all, and those of spill areas.
fn resident(cluster: &ShmCluster) -> [usize; 2] {
    let control = cluster.control(0);
    let memory = control.memory();
    let mut pages = vec![0_u8; (memory.len() as usize).div_ceil(PAGE)];
    let start = std::ptr::with_exposed_provenance_mut(memory.base_addr() as usize);
    // SAFETY: the range is mapped while `control` is there, and the vector has a byte for each of its pages.
    let told = unsafe { libc::mincore(start, memory.len() as usize, pages.as_mut_ptr()) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    let spills_at = Control::least_bytes(cluster.size()) as usize / PAGE;
    let count = |pages: &[u8]| pages.iter().filter(|page| **page & 1 != 0).count();
    [count(&pages), count(&pages[spills_at..])]
}

fn try_send(cluster: &mut ShmCluster, from: Rank, payload: &[u8]) -> bool {
    let body = if payload.is_empty() { AmBody::Short } else { AmBody::Medium(payload) };
    let message = AmSend { peer: 0, lane: Lane::Request, handler: 0, args: [7; 4], body };
    match cluster.node(from).send_am(&message) {
        Ok(()) => true,
        Err(SendError::Busy) => false,
        Err(SendError::Failed(error)) => panic!("{error}"),
    }
}

/// How many messages rank 0 finds; each is replied to with as many bytes as it brought.
fn receive(cluster: &mut ShmCluster) -> usize {
    let (mut inbox, mut got, mut idle) = (Inbox::default(), 0, 0);
    while idle < IDLE {
        match cluster.node(0).poll(&mut inbox) {
            Polled::Deliver(delivery) => {
                got += 1;
                cluster.node(0).fetch_payload(&mut inbox);
                let body = AmBody::Medium(&inbox.payload);
                let (peer, lane) = (delivery.peer, Lane::Reply);
                let reply = AmSend { peer, lane, handler: 1, args: [7; 4], body };
                cluster.node(0).send_am(&reply).expect("a reply of any length has room");
            }
            Polled::Idle => idle += 1,
            _ => {}
        }
    }
    got
}

/// How many replies rank 1 finds.
fn take_replies(cluster: &mut ShmCluster) -> usize {
    let (mut inbox, mut got, mut idle) = (Inbox::default(), 0, 0);
    while idle < IDLE {
        match cluster.node(1).poll(&mut inbox) {
            Polled::Deliver(_) => got += 1,
            Polled::Idle => idle += 1,
            _ => {}
        }
    }
    got
}

/// The replies that nobody has taken yet keep no more than some requests waiting.
fn all_are_answered(cluster: &mut ShmCluster, sent: usize) {
    let mut answered = 0;
    while answered < sent {
        receive(cluster);
        let replies = take_replies(cluster);
        assert!(replies > 0, "nothing moves after {answered} of {sent}");
        answered += replies;
    }
}

#[test]
fn a_peer_that_sent_one_short_message_takes_three_pages() {
    const SENDERS: usize = 20;
    let mut cluster = cluster(SENDERS as u32 + 1);
    let before = resident(&cluster);
    for from in 1..=SENDERS as Rank {
        assert!(try_send(&mut cluster, from, &[]));
    }
    assert_eq!(receive(&mut cluster), SENDERS);
    let after = resident(&cluster);
    println!("{SENDERS} senders: {} pages", after[0] - before[0]);
    assert!(after[0] - before[0] <= 3 * SENDERS + 1, "{before:?}, then {after:?}");
    assert_eq!(after[1], 0, "spill areas have memory");
}

#[test]
fn spill_areas_take_memory_once_the_other_areas_are_full() {
    let mut cluster = cluster(2);
    let (long, longest) = (vec![1; PAYLOAD_MAX], vec![2; NEAR_PAYLOAD_MAX]);
    // As many as have room in turn, however often.
    for _ in 0..100 {
        assert!(try_send(&mut cluster, 1, &long));
        assert_eq!((receive(&mut cluster), take_replies(&mut cluster)), (1, 1));
    }
    assert_eq!(resident(&cluster)[1], 0);
    let mut sent = 0;
    while try_send(&mut cluster, 1, &long) {
        sent += 1;
    }
    assert!((16..=32).contains(&sent), "{sent} messages had room");
    let [_, spilled] = resident(&cluster);
    assert!(spilled > 0 && spilled <= (192 << 10) / PAGE + 1, "{spilled} pages");
    all_are_answered(&mut cluster, sent);
    for _ in 0..10 {
        let mut sent = 0;
        while try_send(&mut cluster, 1, &longest) {
            sent += 1;
        }
        assert!((3..=4).contains(&sent), "{sent} of the longest had room");
        all_are_answered(&mut cluster, sent);
    }
    assert_eq!(resident(&cluster)[1], spilled, "no more than the area has");
}

/// Two ranks that have talked, and have no spill areas at these of the two.
fn cluster_refused(at: &[Rank]) -> ShmCluster {
    let mut cluster = cluster(2);
    assert!(try_send(&mut cluster, 1, &[]));
    assert_eq!((receive(&mut cluster), take_replies(&mut cluster)), (1, 1));
    at.iter().for_each(|rank| cluster.refuse_spills(*rank, 1 - *rank));
    cluster
}

#[test]
fn where_the_system_refuses_spill_areas_the_others_carry_messages_of_any_length() {
    let mut cluster = cluster_refused(&[0, 1]);
    for bytes in [PAYLOAD_MAX, NEAR_PAYLOAD_MAX].into_iter().cycle().take(20) {
        let (mut sent, payload) = (0, vec![3; bytes]);
        while try_send(&mut cluster, 1, &payload) {
            sent += 1;
        }
        assert!((1..=8).contains(&sent), "{sent} of {bytes} bytes had room");
        all_are_answered(&mut cluster, sent);
    }
    assert_eq!(resident(&cluster)[1], 0, "nobody has touched a spill area");
}
