//! Auxiliary endpoints: endpoints of the same domain from which copies are started, and which can be closed
//! by themselves.

mod common;

use common::{LIMIT, Memory, Pair, done, find, open, providers};
use fabric::{
    AuxEndpointId, Completion, Endpoint, Error, Hints, Op, Options, Peer, Post, RemotePiece, Until,
};
use std::time::{Duration, Instant};

const LEN: usize = 3 << 20;

/// Runs a test over every provider there is that says when a write has arrived.
fn over_all(test: impl Fn(Pair)) {
    let mut seen = Vec::new();
    for name in &providers() {
        let hints = Hints { manual: true, delivery: true, ..Hints::default() };
        let Some(provider) = find(name, hints) else { continue };
        let full_name = provider.description().provider.clone();
        if !seen.contains(&full_name) {
            println!("over {full_name}");
            seen.push(full_name);
            test(Pair::open(&provider, &Options::default()).expect("it was offered"));
        }
    }
}

/// Posts a copy of all of `local` at an auxiliary endpoint.
fn post(
    a: &mut Endpoint,
    aux_endpoint: AuxEndpointId,
    op: Op,
    local: &Memory,
    remote: &Memory,
    peer: Peer,
) -> Post {
    let at = remote.at(0, peer);
    let remote = [RemotePiece { addr: at.addr, len: LEN, key: at.key }];
    let mut aux_endpoint = a.aux_endpoint(aux_endpoint).expect("it is open");
    // SAFETY: the memory is leaked, and nobody touches it until the copy has ended or its auxiliary endpoint
    // is closed.
    let posted = unsafe {
        match op {
            Op::Read => aux_endpoint.read_pieces(&[local.piece()], peer, &remote, 3),
            _ => aux_endpoint.write_pieces(&[local.piece()], peer, &remote, Until::Delivered, 3),
        }
    };
    posted.expect("taken or busy")
}

/// Copies, with the target polled all the while or not at all; `None` if that has not ended after `limit`.
fn copy(
    pair: &mut Pair,
    aux_endpoint: AuxEndpointId,
    op: Op,
    memory: (&Memory, &Memory),
    polls: bool,
    limit: Duration,
) -> Option<Completion> {
    let (start, mut taken) = (Instant::now(), false);
    while start.elapsed() < limit {
        taken = taken || post(&mut pair.a, aux_endpoint, op, memory.0, memory.1, pair.b_of_a) == Post::Posted;
        assert_eq!(pair.a.poll(), Ok(None), "what an auxiliary endpoint does is told there");
        if polls {
            assert_eq!(pair.b.poll(), Ok(None));
        }
        if let Some(completion) =
            pair.a.aux_endpoint(aux_endpoint).expect("it is open").poll().expect("the queue works")
        {
            return Some(completion);
        }
    }
    assert!(taken, "it was never taken");
    None
}

#[test]
fn outlets_copy_to_and_from_what_a_peers_endpoint_has_registered() {
    over_all(|mut pair| {
        let target = Memory::registered(&mut pair.b, LEN, 1);
        let (source, back) = (Memory::local(&mut pair.a, LEN, 2), Memory::local(&mut pair.a, LEN, 3));
        source.fill(|at| (at * 7 + at / 256) as u8);
        let [first, second] =
            [0; 2].map(|_| pair.a.open_aux_endpoint(&Options::default()).expect("one more"));
        assert_eq!(
            copy(&mut pair, first, Op::Write, (&source, &target), true, LIMIT),
            Some(done(3, Op::Write))
        );
        assert!(target.bytes() == source.bytes());
        assert_eq!(copy(&mut pair, second, Op::Read, (&back, &target), true, LIMIT), Some(done(3, Op::Read)));
        assert!(back.bytes() == source.bytes());
        pair.a.close_aux_endpoint(first).expect("nothing is under way");
        assert_eq!(pair.a.close_aux_endpoint(first), Err(Error::NoAuxEndpoint { index: 0 }));
        let third = pair.a.open_aux_endpoint(&Options::default()).expect("one more");
        assert!(pair.a.aux_endpoint(first).is_err() && third != first);
        pair.a.close().expect("auxiliary endpoints are closed with it");
    });
}

#[test]
fn a_closed_outlet_touches_no_memory_and_the_others_go_on() {
    over_all(|mut pair| {
        if pair.a.description().provider.starts_with("verbs") {
            return testbed::skip("the device serves peers, whether or not the target is polled");
        }
        let target = Memory::registered(&mut pair.b, LEN, 1);
        target.fill(|_| 1);
        for op in [Op::Read, Op::Write] {
            let local = Memory::local(&mut pair.a, LEN, 10 + op as u64);
            local.fill(|_| 2);
            let aux_endpoint = pair.a.open_aux_endpoint(&Options::default()).expect("one more");
            let other = pair.a.open_aux_endpoint(&Options::default()).expect("one more");
            // Both are connected: the provider holds nothing back.
            let warm = Memory::local(&mut pair.a, LEN, 20 + op as u64);
            for aux_endpoint in [aux_endpoint, other] {
                copy(&mut pair, aux_endpoint, Op::Read, (&warm, &target), true, LIMIT).expect("it ends");
            }
            assert_eq!(post(&mut pair.a, other, Op::Read, &warm, &target, pair.b_of_a), Post::Posted);
            let ended =
                copy(&mut pair, aux_endpoint, op, (&local, &target), false, Duration::from_millis(300));
            assert_eq!(ended, None, "the target is not polled");
            pair.a.close_aux_endpoint(aux_endpoint).expect("it can be closed at any time");
            let before = local.bytes();
            local.fill(|_| 3);
            let start = Instant::now();
            let mut read = None;
            while read.is_none() || start.elapsed() < Duration::from_millis(500) {
                let _ = pair.b.poll();
                read =
                    read.or(pair.a.aux_endpoint(other).expect("it is open").poll().expect("the queue works"));
                assert!(start.elapsed() < LIMIT, "the other auxiliary endpoint does not go on");
            }
            assert_eq!(read, Some(done(3, Op::Read)));
            assert!(local.bytes().iter().all(|byte| *byte == 3), "written after it was closed");
            assert!(target.bytes().iter().all(|byte| [1, 2].contains(byte)), "read after it was closed");
            assert!(before.iter().all(|byte| [1, 2].contains(byte)));
        }
    });
}

#[test]
fn sleeping_heeds_outlets() {
    for name in ["tcp;ofi_rxm", "tcp"] {
        let hints = Hints { manual: true, delivery: true, ..Hints::default() };
        let Some(provider) = find(name, hints) else { continue };
        let mut endpoint = open(&provider, &Options { wait: true, ..Options::default() });
        let aux_endpoint =
            endpoint.open_aux_endpoint(&Options { wait: true, ..Options::default() }).expect("one more");
        let fds = [
            std::os::fd::AsRawFd::as_raw_fd(&endpoint.wait_fd().expect("asked for")),
            std::os::fd::AsRawFd::as_raw_fd(
                &endpoint.aux_endpoint(aux_endpoint).expect("open").wait_fd().expect("asked for"),
            ),
        ];
        assert_ne!(fds[0], fds[1]);
        endpoint.try_wait().expect("both wait");
    }
}
