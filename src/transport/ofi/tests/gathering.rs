//! Messages that gather in frames: how many frames they take, and what these carry.

use std::time::Instant;

use engine::{Event, Header, Inbox, Lane, Rank, Transport as _};

use super::cluster::{LIMIT, OfiCluster};
use super::endings::{over_each, setting};
use crate::transport::ofi::buffers::Size;
use crate::transport::ofi::frame::{FRAME_HEAD_BYTES, LETTER_BYTES};
use crate::transport::ofi::transport::OfiTransport;

fn send(transport: &mut OfiTransport, number: u64, payload: &[u8]) {
    assert_eq!(transport.send(1, Lane::Request, &[number; Header::WORDS], payload), Ok(()));
}

/// Lets both ranks make progress until `done`; rank 1 takes no message.
fn until(cluster: &mut OfiCluster, done: impl Fn(&mut OfiCluster) -> bool) {
    let start = Instant::now();
    while !done(cluster) {
        assert!(start.elapsed() < LIMIT, "it does not end");
        [0, 1].into_iter().for_each(|rank| cluster.transport(rank).progress());
    }
}

/// Two ranks that have been introduced, with nothing on its way out.
fn cluster(cluster: OfiCluster) -> OfiCluster {
    let mut cluster = cluster;
    until(&mut cluster, |cluster| [0, 1].into_iter().all(|rank| cluster.transport(rank).sending == 0));
    cluster
}

/// The next messages that come to a rank: as many.
fn take(cluster: &mut OfiCluster, rank: Rank, count: usize) -> Vec<u64> {
    let (start, mut inbox, mut numbers) = (Instant::now(), Inbox::default(), Vec::new());
    while numbers.len() < count {
        assert!(start.elapsed() < LIMIT, "{} of {count} have come", numbers.len());
        if let Some(Event::Message { .. }) = cluster.transport(rank).poll(&mut inbox) {
            numbers.push(inbox.header[0]);
        }
        cluster.transport(1 - rank).progress();
    }
    numbers
}

#[test]
fn a_lone_message_leaves_at_once_and_many_share_frames() {
    const MANY: u64 = 1000;
    over_each(|provider| {
        let mut cluster = cluster(OfiCluster::new(2, setting(provider, None)));
        let transport = cluster.transport(0);
        send(transport, 0, &[]);
        assert_eq!(transport.sending, 1, "it is with the provider");
        (1..MANY).for_each(|number| send(transport, number, &[]));
        transport.send_frames_that_gather();
        let each = (Size::Frame.bytes() - FRAME_HEAD_BYTES) / LETTER_BYTES;
        assert_eq!(transport.sending, 1 + (MANY as usize - 1).div_ceil(each));
        assert_eq!(take(&mut cluster, 1, MANY as usize), (0..MANY).collect::<Vec<u64>>());
    });
}

#[test]
fn credits_are_owed_until_the_provider_takes_them() {
    over_each(|provider| {
        let mut cluster = cluster(OfiCluster::new(2, setting(provider, None)));
        let header = [7; Header::WORDS];
        for _ in 0..9 {
            assert_eq!(cluster.transport(1).send(0, Lane::Request, &header, &[]), Ok(()));
        }
        take(&mut cluster, 0, 9);
        let owed = |cluster: &mut OfiCluster| {
            cluster.transport(0).links.get(1).expect("they talk").arrivals[0].owed()
        };
        cluster.transport(0).endpoint.script.connects = true;
        send(cluster.transport(0), 1, &[]);
        for _ in 0..5 {
            cluster.transport(0).progress();
            assert_eq!(owed(&mut cluster), 9, "nothing has gone");
        }
        cluster.transport(0).endpoint.script.connects = false;
        until(&mut cluster, |cluster| owed(cluster) == 0);
        assert_eq!(take(&mut cluster, 1, 1), [1]);
    });
}

#[test]
fn a_payload_ends_with_zeros_whatever_the_frame_held_before() {
    over_each(|provider| {
        let mut cluster = cluster(OfiCluster::new(2, setting(provider, None)));
        send(cluster.transport(0), 0, &[0xff; 100]);
        take(&mut cluster, 1, 1);
        until(&mut cluster, |cluster| cluster.transport(0).sending == 0);
        let transport = cluster.transport(0);
        transport.endpoint.script.connects = true;
        send(transport, 1, &[5]);
        let link = transport.links.get(1).expect("they talk");
        let frame = link.waiting.unsent.back().expect("nothing goes out");
        let mut last = [1; 8];
        transport.endpoint.buffers.get(&frame.buffer, FRAME_HEAD_BYTES + LETTER_BYTES, &mut last);
        assert_eq!((frame.len, last), (FRAME_HEAD_BYTES + LETTER_BYTES + 8, [5, 0, 0, 0, 0, 0, 0, 0]));
    });
}
