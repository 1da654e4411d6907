//! Auxiliary endpoints that do not carry what they took, to a peer that is heard from.

use std::time::{Duration, Instant};

use conformance::Cluster;
use engine::{Direction, OpError, OpId, Piece, Place};
use fabric::Provider;

use super::cluster::OfiCluster;
use super::endings::{ample, fill, held, holds, lent, outcome, over_each, setting, start, until};
use crate::base::limits::DIRECT_PARTS;

/// How silent rank 1 may be, so far as rank 0 goes by that.
const SILENCE: Duration = Duration::from_secs(5);

/// Two ranks, of which rank 0 has memory of rank 1 held, and waits for it no longer than this.
fn pair_with_silence(provider: &Provider) -> (OfiCluster, Place, Place) {
    let mut cluster = OfiCluster::new(2, setting(provider, ample()));
    let (here, there) = held(&mut cluster, 1);
    cluster.transport(0).links.get_mut(1).expect("they talk").life.silence_max = Some(SILENCE);
    (cluster, here, there)
}

#[test]
fn an_outlet_that_ends_nothing_is_given_up_for_another() {
    if !testbed::has_time_for("an outlet until it is doubted") {
        return;
    }
    over_each(|provider| {
        for direction in lent(provider).iter().copied() {
            let (mut cluster, here, there) = pair_with_silence(provider);
            let (from, rank) = if direction == Direction::Put { (here, 0) } else { (there, 1) };
            fill(&mut cluster, rank, from, 9);
            cluster.transport(0).endpoint.script.swallow_aux_endpoints = 1;
            // More than may be under way: some wait.
            let ids = [(); DIRECT_PARTS + 3].map(|()| start(&mut cluster, 1, direction, here, there));
            until(&mut cluster, &[0, 1], |cluster| cluster.transport(0).endpoint_pool.closed > 0);
            assert!(ids.iter().all(|id| !cluster.node(0).is_done(*id)));
            assert!(cluster.transport(0).links.get(1).expect("they talk").copying.doubts_aux_endpoints);
            for id in ids {
                assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
            }
            assert!(holds(&mut cluster, 0, here, 9) && holds(&mut cluster, 1, there, 9));
            assert!(!cluster.transport(0).links.get(1).expect("they talk").copying.doubts_aux_endpoints);
            assert_eq!((cluster.transport(0).endpoint_pool.closed, cluster.node(0).is_lost(1)), (1, false));
        }
    });
}

#[test]
fn copies_that_no_outlet_ends_end_with_an_error_and_cost_no_peer() {
    if !testbed::has_time_for("two outlets until they are doubted") {
        return;
    }
    over_each(|provider| {
        let (mut cluster, here, there) = pair_with_silence(provider);
        cluster.transport(0).endpoint.script.swallow_aux_endpoints = 2;
        let ids: Vec<OpId> =
            lent(provider).iter().map(|direction| start(&mut cluster, 1, *direction, here, there)).collect();
        for id in ids {
            assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Err(OpError::Timeout { peer: 1 }));
        }
        assert_eq!((cluster.transport(0).endpoint_pool.closed, cluster.node(0).is_lost(1)), (2, false));
        // Few bytes go as ever.
        let piece = Piece::new(there, here, 8).expect("it does not wrap");
        let id = cluster.node(0).transfer(1, Direction::Put, &[piece], None);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        // And so do long copies, when the network carries them again.
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
        assert!(!cluster.transport(0).links.get(1).expect("they talk").copying.doubts_aux_endpoints);
    });
}

#[test]
fn an_outlet_for_a_peer_that_hangs_is_not_doubted() {
    over_each(|provider| {
        let (mut cluster, here, there) = pair_with_silence(provider);
        let id = start(&mut cluster, 1, Direction::Get, here, there);
        let since = Instant::now();
        until(&mut cluster, &[0], |_| since.elapsed() > Duration::from_secs(3));
        assert_eq!((cluster.transport(0).endpoint_pool.closed, cluster.node(0).is_lost(1)), (0, false));
        assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
    });
}

#[test]
fn an_outlet_that_loses_its_connection_costs_no_peer() {
    over_each(|provider| {
        for direction in lent(provider).iter().copied() {
            let mut cluster = OfiCluster::new(2, setting(provider, ample()));
            let (here, there) = held(&mut cluster, 1);
            let (from, rank) = if direction == Direction::Put { (here, 0) } else { (there, 1) };
            fill(&mut cluster, rank, from, 9);
            cluster.transport(0).endpoint.script.fail_aux_endpoint = true;
            let id = start(&mut cluster, 1, direction, here, there);
            assert_eq!(outcome(&mut cluster, &[0, 1], 0, id), Ok(0));
            assert!(holds(&mut cluster, 0, here, 9) && holds(&mut cluster, 1, there, 9));
            assert_eq!((cluster.transport(0).endpoint_pool.closed, cluster.node(0).is_lost(1)), (1, false));
        }
    });
}
