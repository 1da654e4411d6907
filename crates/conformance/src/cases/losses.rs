//! Ranks that die.

use engine::node::AmBody;
use engine::{AmSend, Atomic, Direction, Lane, MemId, OpError, OpId, Rank, SendError};

use super::copies::BOTH;
use crate::bench::{ANSWER, Bench, ECHO, Make, NOTE, pattern, piece};
use crate::cluster::Cluster;

const LEN: usize = 20_000;
const LOST: OpError = OpError::PeerLost { peer: 2 };

/// Starts transfers of rank 0 with `peer`, both ways.
fn start<C: Cluster>(bench: &mut Bench<C>, peer: Rank) -> Vec<OpId> {
    let transfers = (0..6).map(|index| {
        let here = bench.filled(0, MemId::Space, &pattern(index, LEN));
        let there = bench.memory(peer, MemId::Space, LEN);
        bench.node(0).transfer(peer, BOTH[index as usize % 2], &[piece(there, here, LEN)], None)
    });
    transfers.collect()
}

pub(crate) fn a_loss_amid_transfers_ends_those_with_the_lost<C: Cluster>(make: Make<'_, C>) {
    for rounds in [0, 1, 5, 30] {
        let mut bench = Bench::new(make, 3);
        let (living, dying) = (start(&mut bench, 1), start(&mut bench, 2));
        for _ in 0..rounds {
            bench.round();
        }
        bench.kill(2);
        for id in dying {
            let outcome = bench.outcome(0, id);
            assert!(matches!(outcome, Ok(0) | Err(LOST)), "{outcome:?} from a rank that died");
        }
        for id in living {
            assert_eq!(bench.outcome(0, id), Ok(0), "a transfer with a living rank failed");
        }
        assert_eq!(bench.node(0).in_flight(), 0);
    }
}

pub(crate) fn nothing_starts_with_the_lost<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let here = bench.memory(0, MemId::Space, 8);
    let there = bench.memory(2, MemId::Space, 8);
    let word = bench.memory(2, MemId::Heap, 8);
    bench.kill(2);
    bench.until("the loss to be known", |bench| bench.node(0).is_lost(2) && bench.node(1).is_lost(2));
    assert!(!bench.node(0).is_lost(1) && !bench.node(1).is_lost(0));
    for direction in BOTH {
        let id = bench.node(0).transfer(2, direction, &[piece(there, here, 8)], None);
        assert_eq!(bench.node(0).outcome(id), Some(Err(LOST)));
    }
    let id = bench.node(0).atomic(2, word, Atomic::fetch_add(1), None);
    assert_eq!(bench.node(0).outcome(id), Some(Err(LOST)));
    let message = AmSend { peer: 2, lane: Lane::Request, handler: NOTE, args: [0; 4], body: AmBody::Short };
    assert_eq!(bench.node(0).send_am(&message), Err(SendError::Failed(LOST)));
    let long = AmSend { body: AmBody::Long(there, 8), ..message };
    let id = bench.node(0).transfer_then_am(&[piece(there, here, 8)], &long, None);
    assert_eq!(bench.node(0).outcome(id), Some(Err(LOST)));
}

pub(crate) fn the_others_go_on<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 4);
    let message =
        |peer, tag| AmSend { peer, lane: Lane::Request, handler: ECHO, args: [tag; 4], body: AmBody::Short };
    // The rank that dies has lanes full of requests and replies, both ways.
    for rank in 0..4 {
        for peer in (0..4).filter(|peer| *peer == 2 || rank == 2) {
            while bench.node(rank).send_am(&message(peer, 99)).is_ok() {}
        }
    }
    bench.round();
    bench.kill(2);
    for (rank, peer) in [(0, 1), (1, 3), (3, 0)] {
        for tag in 0..50 {
            bench.send(rank, &message(peer, tag));
        }
    }
    let answered = |bench: &Bench<C>, rank: usize| {
        let living = bench.got[rank].iter().filter(|got| got.delivery.peer != 2);
        living.filter(|got| got.delivery.handler == u64::from(ANSWER)).count()
    };
    bench.until("the living to answer each other", |bench| {
        [0, 1, 3].into_iter().all(|r| answered(bench, r) == 50)
    });
    for (rank, peer) in [(0, 3), (3, 1), (1, 0)] {
        let bytes = pattern(1, LEN);
        let here = bench.filled(rank, MemId::Space, &bytes);
        let there = bench.memory(peer, MemId::Space, LEN);
        assert_eq!(bench.transfer(rank, peer, Direction::Put, &[piece(there, here, LEN)]), Ok(0));
        assert!(bench.bytes(peer, there, LEN) == bytes, "other bytes than were sent");
    }
}
