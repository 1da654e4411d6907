//! Bursts of more copies to one peer than may be under way, while its connection is not there yet, or not any
//! more.

use std::time::{Duration, Instant};

use conformance::Cluster;
use engine::{Direction, Inbox, OpId, Piece, Place};
use fabric::Provider;

use super::cluster::{LIMIT, OfiCluster, Setting, audit_places, providers};
use crate::transport::contract::{NodeTransport as _, Rest};
use crate::transport::ofi::buffers::Size;
use crate::transport::ofi::link::{DIRECT, PARTS};

/// No burst takes longer.
const SOON: Duration = Duration::from_secs(20);

/// Just too long for a small buffer.
const LONG: usize = Size::Small.bytes() + 1;

const BOTH: [Direction; 2] = [Direction::Put, Direction::Get];

/// Over each provider, between ranks that know each other's heaps; no auxiliary endpoint is open.
fn over_each(test: impl Fn(&mut OfiCluster, [Place; 2])) {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let (mut cluster, memory) = met(&provider);
        test(&mut cluster, memory);
    }
}

/// Room for the longest burst of long copies.
const ROOM: usize = 10 * PARTS[DIRECT] * LONG;

fn met(provider: &Provider) -> (OfiCluster, [Place; 2]) {
    let (confirms, registers_local, pins, send_timeout) = (false, false, false, LIMIT);
    let setting = Setting { provider, registration: None, confirms, registers_local, pins, send_timeout };
    let mut cluster = OfiCluster::new(2, setting);
    let memory = [cluster.private(0, ROOM), cluster.heap(1, ROOM)];
    while !cluster.transport(0).knows_heap(1) {
        step(&mut cluster);
    }
    (cluster, memory)
}

fn step(cluster: &mut OfiCluster) {
    let mut inbox = Inbox::default();
    (0..2).for_each(|rank| _ = cluster.node(rank).poll(&mut inbox));
    cluster.step();
    audit_places(cluster.transport(0));
}

/// Starts so many copies of `len` bytes each, side by side.
fn start(
    cluster: &mut OfiCluster,
    [here, there]: [Place; 2],
    direction: Direction,
    count: usize,
    len: usize,
) -> Vec<OpId> {
    let at = |number: usize| (number * len) as u64;
    let piece = |number| Piece::new(there.plus(at(number)), here.plus(at(number)), len as u64);
    let pieces = (0..count).map(|number| piece(number).expect("it does not wrap"));
    pieces.map(|piece| cluster.node(0).transfer(1, direction, &[piece], None)).collect()
}

/// Lets both go on until all these are over, and well.
fn end(cluster: &mut OfiCluster, ids: Vec<OpId>) {
    let (begun, of) = (Instant::now(), ids.len());
    for (number, id) in ids.into_iter().enumerate() {
        let outcome = loop {
            if let Some(outcome) = cluster.node(0).outcome(id) {
                break outcome;
            }
            assert!(begun.elapsed() < SOON, "copy {number} of {of} does not end");
            step(cluster);
        };
        assert_eq!(outcome, Ok(0), "copy {number} of {of}");
    }
}

/// A whole burst, each byte of which is looked at.
fn burst(cluster: &mut OfiCluster, memory: [Place; 2], direction: Direction, count: usize, len: usize) {
    let [from, to] = if direction == Direction::Put { [0, 1] } else { [1, 0] };
    let bytes: Vec<u8> = (0..count * len).map(|at| (at * 7 + at / 256 + count) as u8).collect();
    cluster.poke(from, memory[from as usize], &bytes);
    cluster.poke(to, memory[to as usize], &vec![0; count * len]);
    let ids = start(cluster, memory, direction, count, len);
    end(cluster, ids);
    let mut found = vec![0; count * len];
    cluster.peek(to, memory[to as usize], &mut found);
    assert!(found == bytes, "other bytes than were sent");
    assert_eq!(cluster.transport(0).links.get(1).expect("they talk").copying.parts, [0; 3]);
}

#[test]
fn more_long_copies_at_once_than_may_be_under_way_connect_their_outlet() {
    for direction in BOTH {
        for count in [PARTS[DIRECT] - 1, PARTS[DIRECT], PARTS[DIRECT] + 1, 10 * PARTS[DIRECT]] {
            over_each(|cluster, memory| burst(cluster, memory, direction, count, LONG));
        }
    }
}

#[test]
fn buffers_that_could_not_wait_for_messages_do_when_the_provider_takes_them() {
    over_each(|cluster, _| {
        cluster.transport(1).endpoint.script.refuse_receives = true;
        let begun = Instant::now();
        while !cluster.transport(1).endpoint.lacks_receives() {
            cluster.transport(0).ping(1);
            step(cluster);
            assert!(begun.elapsed() < SOON, "no message comes");
        }
        assert_eq!(cluster.transport(1).prepare_sleep(), Rest::Nap, "nothing would wake it");
        cluster.transport(1).endpoint.script.refuse_receives = false;
        while cluster.transport(1).endpoint.lacks_receives() {
            cluster.transport(1).look_at_clock();
            assert!(begun.elapsed() < SOON, "they do not wait");
        }
    });
}

#[test]
fn after_an_outlet_was_closed_the_next_one_connects_under_a_burst() {
    over_each(|cluster, memory| {
        burst(cluster, memory, Direction::Get, 1, LONG);
        let given_up = start(cluster, memory, Direction::Get, 1, LONG)[0];
        // The peer's provider is not called.
        (0..20).for_each(|_| _ = cluster.node(0).poll(&mut Inbox::default()));
        cluster.node(0).cancel(given_up);
        assert_eq!(cluster.transport(0).endpoint_pool.closed, 1);
        while cluster.transport(0).links.get(1).expect("they talk").copying.suspect {
            step(cluster);
        }
        for direction in BOTH {
            burst(cluster, memory, direction, PARTS[DIRECT] + 1, LONG);
        }
    });
}

#[test]
fn more_copies_through_buffers_than_may_be_under_way_wait_for_the_connection_to_come_back() {
    for (size, len) in [(Size::Small, Size::Small.bytes()), (Size::Large, Size::Large.bytes())] {
        over_each(|cluster, memory| {
            cluster.transport(0).endpoint_pool.refuses = true;
            for direction in BOTH {
                let count = PARTS[size as usize] + 1;
                cluster.transport(0).endpoint.script.connects = true;
                let ids = start(cluster, memory, direction, count, len);
                (0..10).for_each(|_| step(cluster));
                assert!(ids.iter().all(|id| !cluster.node(0).is_done(*id)));
                cluster.transport(0).endpoint.script.connects = false;
                end(cluster, ids);
                burst(cluster, memory, direction, count, len);
            }
        });
    }
}
