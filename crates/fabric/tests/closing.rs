//! Endpoints and auxiliary endpoints that are closed while something is on its way to them. A provider that
//! cannot do that takes the whole process with it, so each case runs in a process of its own.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{LIMIT, Memory, Pair, find, providers};
use fabric::{AuxEndpointId, Endpoint, Hints, Op, Options, Peer, Post, RemotePiece};

/// More than a socket and its buffers take at a time, so that a read arrives in parts.
const LEN: usize = 3 << 20;

/// Names the provider to the process that is started for a case.
const PROVIDER: &str = "STANDPIPE_TEST_CLOSES";

/// Runs the test `name` again in a process for each provider, which then finds its name.
fn in_a_process_each(name: &str) -> Option<String> {
    if let Ok(provider) = std::env::var(PROVIDER) {
        return Some(provider);
    }
    let mut seen = Vec::new();
    for provider in providers() {
        let Some(found) = find(&provider, hints()) else { continue };
        if seen.contains(&found.description().provider) {
            continue;
        }
        seen.push(found.description().provider.clone());
        let this = std::env::current_exe().expect("this program");
        // What hangs in the library is ended.
        let mut command = Command::new("timeout");
        command
            .arg((3 * LIMIT.as_secs()).to_string())
            .arg(this)
            .args([name, "--exact", "--nocapture"])
            .env(PROVIDER, &provider);
        // The child tells its skips past this program.
        command.stderr(Stdio::inherit());
        let output = command.output().expect("this program, which runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "over {provider}: {}: {said}", output.status);
    }
    None
}

fn hints() -> Hints {
    Hints { manual: true, delivery: true, ..Hints::default() }
}

fn pair(provider: &str) -> Option<Pair> {
    let provider = find(provider, hints())?;
    println!("over {}", provider.description().provider);
    Some(Pair::open(&provider, &Options::default()).expect("it was offered"))
}

/// Where a read is started.
fn post(
    a: &mut Endpoint,
    aux_endpoint: Option<AuxEndpointId>,
    local: &Memory,
    remote: &Memory,
    peer: Peer,
) -> Post {
    let at = remote.at(0, peer);
    let Some(aux_endpoint) = aux_endpoint else {
        // SAFETY: the memory is leaked, and nobody touches it until the endpoint is closed.
        return unsafe { a.read(local.piece(), at, 3) }.expect("taken or busy");
    };
    let remote = [RemotePiece { addr: at.addr, len: LEN, key: at.key }];
    let mut aux_endpoint = a.aux_endpoint(aux_endpoint).expect("it is open");
    // SAFETY: the memory is leaked, and nobody touches it until the auxiliary endpoint is closed.
    unsafe { aux_endpoint.read_pieces(&[local.piece()], peer, &remote, 3) }.expect("taken or busy")
}

/// Has one or two reads begin to arrive, as far as the round's number says.
fn begin_reads(
    pair: &mut Pair,
    aux_endpoint: Option<AuxEndpointId>,
    local: &Memory,
    target: &Memory,
    round: usize,
) {
    let poll = |a: &mut Endpoint| match aux_endpoint {
        Some(aux_endpoint) => {
            a.aux_endpoint(aux_endpoint).expect("it is open").poll().expect("the queue works")
        }
        None => a.poll().expect("the queue works"),
    };
    let start = Instant::now();
    let mut posted = 0;
    while posted <= round % 2 {
        assert!(start.elapsed() < LIMIT, "never taken");
        if post(&mut pair.a, aux_endpoint, local, target, pair.b_of_a) == Post::Posted {
            posted += 1;
        } else {
            let _ = poll(&mut pair.a);
            let _ = pair.b.poll();
        }
    }
    for _ in 0..round / 2 {
        let _ = pair.b.poll();
        let _ = poll(&mut pair.a);
    }
}

#[test]
fn an_outlet_closes_with_half_of_a_read_and_its_memory_is_touched_no_more() {
    let name = "an_outlet_closes_with_half_of_a_read_and_its_memory_is_touched_no_more";
    let Some(mut pair) = in_a_process_each(name).and_then(|provider| pair(&provider)) else { return };
    let target = Memory::registered(&mut pair.b, LEN, 1);
    for round in 0..16 {
        let local = Memory::local(&mut pair.a, LEN, 2 + round as u64);
        let aux_endpoint = match pair.a.open_aux_endpoint(&Options::default()) {
            Ok(aux_endpoint) => aux_endpoint,
            Err(error) => {
                println!("no more auxiliary endpoints after {round}: {error}");
                break;
            }
        };
        begin_reads(&mut pair, Some(aux_endpoint), &local, &target, round);
        pair.a.close_aux_endpoint(aux_endpoint).expect("it can be closed at any time");
        local.fill(|_| 3);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            let _ = pair.b.poll();
            let _ = pair.a.poll();
        }
        assert!(local.bytes().iter().all(|byte| *byte == 3), "written after it was closed");
    }
}

#[test]
fn an_endpoint_closes_with_half_of_a_read() {
    let name = "an_endpoint_closes_with_half_of_a_read";
    let Some(provider) = in_a_process_each(name) else { return };
    for round in 0..16 {
        let Some(mut pair) = pair(&provider) else { return };
        let target = Memory::registered(&mut pair.b, LEN, 1);
        let local = Memory::local(&mut pair.a, LEN, 2);
        begin_reads(&mut pair, None, &local, &target, round);
        drop(pair.a);
    }
}

#[test]
fn a_peer_is_forgotten_with_half_of_a_read() {
    let Some(provider) = in_a_process_each("a_peer_is_forgotten_with_half_of_a_read") else { return };
    for round in 0..16 {
        let Some(mut pair) = pair(&provider) else { return };
        let target = Memory::registered(&mut pair.b, LEN, 1);
        let local = Memory::local(&mut pair.a, LEN, 2);
        begin_reads(&mut pair, None, &local, &target, round);
        if let Err(error) = pair.a.remove_peer(pair.b_of_a) {
            return testbed::skip(&error);
        }
        for _ in 0..200 {
            let _ = pair.a.poll();
            let _ = pair.b.poll();
        }
    }
}

#[test]
fn an_endpoint_closes_while_messages_come() {
    let name = "an_endpoint_closes_while_messages_come";
    let Some(provider) = in_a_process_each(name) else { return };
    for round in 0..40_usize {
        let Some(mut pair) = pair(&provider) else { return };
        let from = Memory::local(&mut pair.b, 16 << 10, 1);
        let buffers: Vec<_> = (0..64).map(|at| Memory::local(&mut pair.a, 16 << 10, 2 + at)).collect();
        for (at, buffer) in buffers.iter().enumerate() {
            // SAFETY: the memory is leaked, and nobody touches it.
            assert_eq!(unsafe { pair.a.receive(buffer.piece(), at as u64) }, Ok(Post::Posted));
        }
        let start = Instant::now();
        let mut received = 0;
        while received < 1 + round % 9 {
            // SAFETY: the memory is leaked, and nobody writes it.
            let _ = unsafe { pair.b.send(from.piece(), pair.a_of_b, 7) }.expect("taken or busy");
            let _ = pair.b.poll();
            if round.is_multiple_of(3) || received == 0 {
                let came = pair.a.poll().expect("the queue works");
                received += usize::from(came.is_some_and(|it| it != common::done(7, Op::Send)));
            } else {
                received += 1;
            }
            assert!(start.elapsed() < LIMIT, "nothing comes");
        }
        drop(pair.a);
    }
}
