//! Ranks that die and are other processes' from then on.

use engine::node::AmBody;
use engine::{AmSend, Direction, Lane, MemId, OpError, OpId, Rank, SendError};

use super::copies::BOTH;
use crate::bench::{ANSWER, Bench, ECHO, Make, NOTE, pattern, piece};
use crate::cluster::Cluster;

const LEN: usize = 20_000;
const LOST: OpError = OpError::PeerLost { peer: 2 };

/// What messages carry that were meant for the old process, or come from it.
const OLD: u64 = 1;
const NEW: u64 = 2;

fn message(peer: Rank, handler: u32, tag: u64) -> AmSend<'static> {
    AmSend { peer, lane: Lane::Request, handler, args: [tag; 4], body: AmBody::Short }
}

/// Starts transfers and fills lanes between rank 2 and the others.
fn start<C: Cluster>(bench: &mut Bench<C>) -> Vec<(Rank, OpId)> {
    let mut ops = Vec::new();
    for (rank, index) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
        let here = bench.filled(rank, MemId::Space, &pattern(index, LEN));
        let there = bench.memory(2, MemId::Space, LEN);
        let way = BOTH[index as usize % 2];
        ops.push((rank, bench.node(rank).transfer(2, way, &[piece(there, here, LEN)], None)));
        while bench.node(rank).send_am(&message(2, ECHO, OLD)).is_ok() {}
        while bench.node(2).send_am(&message(rank, ECHO, OLD)).is_ok() {}
        bench.node(2).transfer(rank, way, &[piece(here, there, LEN)], None);
    }
    ops
}

/// Waits until rank 0 and rank 1 have been told that rank 2 is another process, and know of no more.
fn meet<C: Cluster>(bench: &mut Bench<C>) {
    for rank in [0, 1] {
        bench.until("the return to be known", |bench| {
            if bench.node(rank).incarnation_of(2) == 0 {
                return false;
            }
            assert!(bench.node(rank).is_lost(2), "nobody has taken note of the new process");
            assert_eq!(bench.node(rank).send_am(&message(2, NOTE, OLD)), Err(SendError::Failed(LOST)));
            bench.node(rank).take_replaced() == Some(2)
        });
        assert_eq!(bench.node(rank).take_replaced(), None);
        assert!(!bench.node(rank).is_lost(2));
    }
}

pub(crate) fn nothing_of_the_old_process_reaches_or_leaves_the_new<C: Cluster>(make: Make<'_, C>) {
    for rounds in [0, 1, 5, 30] {
        let mut bench = Bench::new(make, 3);
        let ops = start(&mut bench);
        for _ in 0..rounds {
            bench.round();
        }
        if !bench.restart(2) {
            return;
        }
        let memory: Vec<_> = (0..4).map(|_| bench.memory(2, MemId::Space, LEN)).collect();
        meet(&mut bench);
        let seen: Vec<usize> = bench.got.iter().map(Vec::len).collect();
        for (rank, id) in ops {
            let outcome = bench.outcome(rank, id);
            assert!(matches!(outcome, Ok(0) | Err(LOST)), "{outcome:?} from a rank that died");
        }
        bench.settle();
        let late = |bench: &Bench<C>, rank: usize| bench.got[rank][seen[rank]..].to_vec();
        for rank in [0, 1] {
            let from_it = late(&bench, rank).into_iter().find(|got| got.delivery.peer == 2);
            assert!(from_it.is_none(), "rank {rank} was handed {from_it:?} when it had met the new process");
        }
        assert!(bench.got[2].is_empty(), "the new process was handed {:?}", bench.got[2]);
        for place in memory {
            assert!(bench.bytes(2, place, LEN) == [0; LEN], "something was written into the new process");
        }
    }
}

pub(crate) fn a_rank_that_returns_is_a_peer_like_any_other<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    start(&mut bench);
    bench.round();
    for process in 1..3 {
        if !bench.restart(2) {
            return;
        }
        // It asks before the others know of it.
        for _ in 0..20 {
            bench.send(2, &message(0, ECHO, NEW));
        }
        bench.until("rank 0 to hear of it", |bench| bench.node(0).incarnation_of(2) == process);
        assert_eq!(bench.node(0).take_replaced(), Some(2));
        bench.until("rank 1 to hear of it", |bench| bench.node(1).incarnation_of(2) == process);
        assert_eq!(bench.node(1).take_replaced(), Some(2));
        for (rank, peer) in [(0, 2), (2, 1), (1, 2), (2, 0), (0, 1)] {
            for _ in 0..20 {
                bench.send(rank, &message(peer, ECHO, NEW));
            }
            let bytes = pattern(u64::from(10 * rank + peer), LEN);
            let here = bench.filled(rank, MemId::Space, &bytes);
            let (there, back) =
                (bench.memory(peer, MemId::Space, LEN), bench.memory(rank, MemId::Space, LEN));
            assert_eq!(bench.transfer(rank, peer, Direction::Put, &[piece(there, here, LEN)]), Ok(0));
            assert_eq!(bench.transfer(rank, peer, Direction::Get, &[piece(there, back, LEN)]), Ok(0));
            assert!(bench.bytes(rank, back, LEN) == bytes, "other bytes than were sent");
        }
        let answered = |bench: &Bench<C>| {
            let new = bench.got[2].iter().filter(|got| got.args == [NEW; 4]);
            new.filter(|got| got.delivery.handler == u64::from(ANSWER)).count()
        };
        bench.until("all of its requests to be answered", |bench| answered(bench) == 60);
    }
}
