//! Calls of the provider that fail, one at a time; and keys of processes that are no more.

use std::time::{Duration, Instant};

use conformance::Cluster;
use engine::{AmBody, AmSend, Atomic, Direction, Inbox, Lane, OpError, OpId, Outcome, Piece};
use fabric::{Endpoint, Errno, Error, Options, RemotePiece, Until};
use vm::Segment;

use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use super::suite::firehose;
use crate::transport::ofi::buffers::{Purpose, Size};
use crate::transport::ofi::endpoint::{Ended, NetEndpoint};
use crate::transport::ofi::script::Script;

const LEN: usize = 100_000;

/// After how many operations one fails.
const AFTER: [u32; 9] = [0, 1, 2, 3, 5, 8, 13, 30, 80];

/// Rank 0 copies to and from two others, counts and tells, while one of its operations fails. Only the peer
/// of that one may be lost, and nothing is left of it.
fn holds(registered: bool, script: impl Fn(u32) -> Script) {
    for provider in providers() {
        let mut cost = 0;
        for after in AFTER {
            let registration = registered.then(|| firehose(4096, 4096));
            let provider = &provider;
            let setting = Setting {
                provider,
                registration,
                confirms: false,
                registers_local: false,
                pins: false,
                send_timeout: LIMIT,
            };
            let mut cluster = OfiCluster::new(3, setting);
            let (here, word) = (cluster.private(0, LEN), [1, 2].map(|peer| cluster.heap(peer, 8)));
            let there = [1, 2].map(|peer| cluster.private(peer, LEN));
            let transport = cluster.transport(0);
            transport.endpoint.script = script(after);
            // Scripts are not asked about slots: small copies go as all others do.
            transport.copies.small_max = [0; 2];
            let mut started: Vec<(u32, OpId)> = Vec::new();
            for peer in [1, 2] {
                let at = peer as usize - 1;
                for direction in [Direction::Put, Direction::Get] {
                    for len in [64, 3000, LEN as u64] {
                        let piece = Piece::new(there[at], here, len).expect("it does not wrap");
                        started.push((peer, cluster.node(0).transfer(peer, direction, &[piece], None)));
                    }
                }
                let add = |cluster: &mut OfiCluster| {
                    cluster.node(0).atomic(peer, word[at], Atomic::fetch_add(1), None)
                };
                started.extend((0..20).map(|_| (peer, add(&mut cluster))));
                let note =
                    AmSend { peer, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
                let _ = cluster.node(0).send_am(&note);
            }
            let outcomes: Vec<(u32, Outcome)> =
                started.into_iter().map(|(peer, id)| (peer, outcome(&mut cluster, id))).collect();
            let lost: Vec<u32> = [1, 2].into_iter().filter(|peer| cluster.node(0).is_lost(*peer)).collect();
            assert!(lost.len() <= 1, "one operation failed, after {after}, and {lost:?} are lost");
            for (peer, outcome) in outcomes {
                let fits = outcome.is_ok() || outcome == Err(OpError::PeerLost { peer }) && lost == [peer];
                assert!(fits, "after {after}, with {lost:?} lost: {outcome:?} with {peer}");
            }
            // The ends of copies with a peer that is lost come with the next polls.
            let (start, mut inbox) = (Instant::now(), Inbox::default());
            while cluster.node(0).references() != (0, 0) {
                assert!(start.elapsed() < LIMIT, "after {after}: {:?}", cluster.node(0).references());
                cluster.node(0).poll(&mut inbox);
            }
            cost += lost.len();
        }
        assert!(cost > 0, "nothing has failed");
    }
}

fn outcome(cluster: &mut OfiCluster, id: OpId) -> Outcome {
    let (start, mut inbox) = (Instant::now(), Inbox::default());
    loop {
        if let Some(outcome) = cluster.node(0).outcome(id) {
            return outcome;
        }
        assert!(start.elapsed() < LIMIT, "it does not end");
        (0..3).for_each(|rank| _ = cluster.node(rank).poll(&mut inbox));
        cluster.step();
    }
}

#[test]
fn one_operation_that_is_refused_costs_one_peer_at_most() {
    for registered in [false, true] {
        holds(registered, |after| Script { refuse_after: Some(after), ..Script::default() });
    }
}

#[test]
fn one_operation_that_fails_costs_one_peer_at_most() {
    for registered in [false, true] {
        holds(registered, |after| Script { fail_after: Some(after), ..Script::default() });
    }
}

/// As where little more memory may be locked than opening takes.
#[test]
fn a_port_that_cannot_receive_does_not_open_and_says_so_soon() {
    for provider in providers() {
        let scripts = [
            Script { refuse_memory: true, ..Script::default() },
            Script { refuse_receives: true, ..Script::default() },
        ];
        for script in scripts {
            let endpoint = Endpoint::open(&provider, &Options::default()).expect("the provider was offered");
            let description = endpoint.description().clone();
            let mut endpoint = NetEndpoint::over(endpoint, description).expect("an open endpoint");
            endpoint.script = script;
            let begun = Instant::now();
            let refused = endpoint.equip().err();
            let no_memory = |error: Error| matches!(error, Error::Call { errno: Errno::ENOMEM, .. });
            assert!(refused.is_some_and(no_memory), "it opens, and would receive nothing");
            assert!(begun.elapsed() < LIMIT / 20, "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn whoever_lacks_memory_asks_for_it_now_and_then() {
    for provider in providers() {
        let mut endpoint = NetEndpoint::open(&provider, false).expect("the provider was offered");
        endpoint.script.refuse_memory = true;
        let begun = Instant::now();
        (0..10_000).for_each(|_| assert!(endpoint.take(Size::Large).is_none(), "there is no memory"));
        let most = 1 + begun.elapsed().as_millis() / 100;
        assert!(
            u128::from(endpoint.script.memory_refused) <= most,
            "{} tries",
            endpoint.script.memory_refused
        );
        endpoint.script.refuse_memory = false;
        while endpoint.take(Size::Large).is_none() {
            assert!(begun.elapsed() < LIMIT, "it is never asked for again");
        }
    }
}

/// How many bytes of rank 0's memory a peer may use, and whether it is still counted.
fn given(cluster: &mut OfiCluster, peer: u32) -> (u64, bool) {
    let by_peer = cluster.node(0).registration_by_peer();
    let its = by_peer.peers.iter().find(|(rank, _)| *rank == peer);
    (its.map_or(0, |(_, counters)| counters.given), its.is_some())
}

#[test]
fn what_a_peer_that_dies_held_is_taken_back() {
    for provider in providers() {
        let setting = Setting {
            provider: &provider,
            registration: Some(firehose(4096, 0)),
            confirms: false,
            registers_local: false,
            pins: false,
            send_timeout: LIMIT,
        };
        let mut cluster = OfiCluster::new(3, setting);
        let there = cluster.private(0, LEN);
        for peer in [1, 2] {
            let here = cluster.private(peer, LEN);
            let piece = Piece::new(there, here, LEN as u64).expect("it does not wrap");
            let id = cluster.node(peer).transfer(0, Direction::Get, &[piece], None);
            let (start, mut inbox) = (Instant::now(), Inbox::default());
            while cluster.node(peer).outcome(id).is_none() {
                assert!(start.elapsed() < LIMIT, "it does not end");
                (0..3).for_each(|rank| _ = cluster.node(rank).poll(&mut inbox));
            }
        }
        assert!([1, 2].iter().all(|peer| given(&mut cluster, *peer).0 >= LEN as u64), "both hold it");
        cluster.crash(1);
        let (start, mut inbox) = (Instant::now(), Inbox::default());
        while !cluster.node(0).is_lost(1) {
            assert!(start.elapsed() < LIMIT, "it is not missed");
            [0, 2].into_iter().for_each(|rank| _ = cluster.node(rank).poll(&mut inbox));
            cluster.step();
        }
        assert_eq!(given(&mut cluster, 1), (0, false));
        assert!(given(&mut cluster, 2).0 >= LEN as u64, "the other's is its own");
        assert_eq!(cluster.node(0).registration_by_peer().gone.given, 0);
    }
}

/// Writes with this key; whether the provider says that it went well.
fn writes(
    endpoint: &mut NetEndpoint,
    target: &mut NetEndpoint,
    address: &[u8],
    (addr, key): (u64, u64),
    byte: u8,
) -> bool {
    let peer = endpoint.add_peer(address, None).expect("its own address");
    let start = Instant::now();
    let remote = [RemotePiece { addr, len: 64, key }];
    let mut buffer = endpoint.take(Size::Small);
    loop {
        if let Some(lent) = buffer.take() {
            endpoint.buffers.put(&lent, 0, &[byte; 64]);
            match endpoint.write(peer, &remote, (lent, 64), Until::Delivered, Purpose::Part(0)) {
                Ok(()) => {}
                Err(kept) if kept.busy => buffer = Some(kept.buffer),
                Err(_) => return false,
            }
        }
        if let Some(ended) = endpoint.poll() {
            return matches!(ended, Ended::Buffer { result: Ok(_), .. });
        }
        let _ = target.poll();
        assert!(start.elapsed() < LIMIT, "it does not end");
    }
}

#[test]
fn a_write_by_an_old_key_never_reaches_the_process_that_comes_after() {
    for provider in providers() {
        // The worst that may happen: what was registered lies at the same address in the new process.
        let memory = Segment::create("standpipe-test", 4096).expect("memory");
        let base = memory.memory().base_addr();
        let open = || NetEndpoint::open(&provider, false).expect("the provider was offered");
        let register = |endpoint: &mut NetEndpoint| {
            let region = endpoint.register(base, 4096).expect("it is there");
            (region.remote_addr, region.key)
        };
        let holds = |byte: u8| {
            let mut found = [0; 64];
            memory.memory().copy_out(0, &mut found).expect("inside");
            found == [byte; 64]
        };
        let (mut holder, mut old) = (open(), open());
        let (address, key) = (Box::<[u8]>::from(old.address()), register(&mut old));
        assert!(writes(&mut holder, &mut old, &address, key, 1) && holds(1));
        drop(old);
        let mut new = open();
        let (address, its) = (Box::<[u8]>::from(new.address()), register(&mut new));
        assert_ne!(its.1, key.1, "keys are drawn");
        assert!(!writes(&mut holder, &mut new, &address, key, 2), "nobody has that key");
        // What was refused does not come later either.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            let _ = (holder.poll(), new.poll());
        }
        assert!(holds(1), "a write by an old key reached a new process");
        assert!(writes(&mut open(), &mut new, &address, its, 3) && holds(3));
    }
}
