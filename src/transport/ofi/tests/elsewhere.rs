//! Private memory that another copy of the library in this process watches: nobody would tell of its changes
//! here, so each operation registers it for itself, and peers go by message.

use conformance::Cluster;
use engine::{Direction, Inbox, MemId, Piece, Place};
use vm::Monitor;

use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use super::suite::firehose;
use crate::transport::mr_invalidation::tests::area::Area;
use crate::transport::mr_invalidation::tests::rows::bytes_of;
use crate::transport::mr_invalidation::{ChangeSource, apply_changes};

const PAGES: u64 = 256;
const ROUNDS: u8 = 4;

#[test]
fn what_another_copy_watches_is_registered_for_each_operation() {
    let another = match Monitor::another() {
        Ok(another) if Monitor::of_process().is_ok() => another,
        _ => return testbed::skip("no monitor of memory"),
    };
    for provider in providers() {
        let setting = Setting {
            provider: &provider,
            registration: Some(firehose(1024, 1024)),
            confirms: false,
            registers_local: true,
            pins: false,
            send_timeout: LIMIT,
        };
        let mut cluster = OfiCluster::new(2, setting);
        (0..2).for_each(|rank| cluster.transport(rank).memory = ChangeSource::watched());
        let (here, there, got) = (Area::new(PAGES), Area::new(PAGES), Area::new(PAGES));
        for round in 1..=ROUNDS {
            another.watch(here.addr, here.len).expect("nobody watches it yet");
            here.fill(round);
            run(&mut cluster, 0, Direction::Put, &here, &there);
            assert!(bytes_of(&there).iter().all(|byte| *byte == round), "round {round}");
            // Nobody tells of that here.
            here.map_anew();
        }
        let counters = cluster.node(0).registration_counters();
        assert!(counters.table.once >= u64::from(ROUNDS), "{counters:?}");
        assert_eq!((counters.table.failures, counters.bounced), (0, 0), "none went by message");
        assert_eq!(cluster.node(0).references(), (0, 0));
        // The owner's is watched by nobody else: it was registered once and for all.
        let owner = cluster.node(1).registration_counters();
        assert_eq!((owner.table.once, owner.table.failures), (0, 0), "{owner:?}");

        // What peers want of such memory goes by message: none keeps a key.
        another.watch(here.addr, here.len).expect("nobody watches it yet");
        here.fill(77);
        run(&mut cluster, 1, Direction::Get, &got, &here);
        assert!(bytes_of(&got).iter().all(|byte| *byte == 77));
        assert!(cluster.node(0).rights_given(1).is_empty());
        assert!(cluster.node(1).registration_counters().bounced > 0);
    }
}

fn run(cluster: &mut OfiCluster, rank: u32, direction: Direction, here: &Area, there: &Area) {
    let place = |area: &Area| Place::new(MemId::Space, area.addr);
    let piece = Piece::new(place(there), place(here), here.len).expect("it does not wrap");
    apply_changes(cluster.node(rank));
    let op = cluster.node(rank).transfer(1 - rank, direction, &[piece], None);
    let (start, mut inbox) = (std::time::Instant::now(), Inbox::default());
    while cluster.node(rank).outcome(op).map(|outcome| outcome.expect("all is there")).is_none() {
        assert!(start.elapsed() < LIMIT, "it does not end");
        for rank in 0..2 {
            apply_changes(cluster.node(rank));
            cluster.node(rank).poll(&mut inbox);
        }
    }
}
