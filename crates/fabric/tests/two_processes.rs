//! One-sided operations and messages between two processes, over every provider that works here. The
//! second process is this test binary again.

mod common;
#[path = "common/other.rs"]
mod other;

use common::{Memory, done, find, next, open, providers, run};
use fabric::{Completion, Endpoint, Hints, Op, Options, Peer, Post, Provider};
use other::Other;
use std::sync::mpsc::TryRecvError;

const KEY: u64 = 0xfee1;
const BYTES: usize = 300_000;

/// What the other process is asked for too.
fn provider(name: &str) -> Option<Provider> {
    find(name, Hints::default())
}

#[test]
fn the_other_process() {
    let Some(role) = other::role() else { return };
    let provider = provider(&role[0]).expect("the other side has it");
    let mut endpoint = open(&provider, &Options::default());
    let from = other::listen();
    let peer = other::meet(&mut endpoint, &from);
    let memory = Memory::registered(&mut endpoint, BYTES, KEY);
    let at = memory.at(0, peer);
    other::tell(&format!("{} {}", at.addr, at.key));
    echo(&mut endpoint, peer);
    while from.try_recv() != Err(TryRecvError::Disconnected) {
        assert_eq!(endpoint.poll(), Ok(None));
    }
    other::tell(&format!("{:?}", checksum(&memory.bytes())));
    endpoint.close().expect("nothing is left");
}

/// Sends one message back, and touches nothing else.
fn echo(endpoint: &mut Endpoint, peer: Peer) {
    let buffer = Memory::local(endpoint, 1000, 1);
    // SAFETY: the memory is leaked and nobody touches it until the completion.
    assert_eq!(unsafe { endpoint.receive(buffer.piece(), 1) }, Ok(Post::Posted));
    let Completion::Done { token: 1, op: Op::Receive, len } = next(endpoint, || ()) else {
        panic!("no message")
    };
    let back = |endpoint: &mut Endpoint| {
        // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
        unsafe { endpoint.send(buffer.part(0, len), peer, 2) }.expect("taken or busy")
    };
    assert_eq!(run(endpoint, back, || ()), done(2, Op::Send));
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

#[test]
fn everything_works_between_two_processes() {
    let mut seen = Vec::new();
    for name in &providers() {
        let Some(provider) = provider(name) else { continue };
        let full_name = provider.description().provider.clone();
        if !seen.contains(&full_name) {
            println!("over {full_name}");
            between_two(&provider, name);
            seen.push(full_name);
        }
    }
}

fn between_two(provider: &Provider, name: &str) {
    let mut endpoint = open(provider, &Options::default());
    let mut other = Other::start(&[name]);
    let peer = other.meet(&mut endpoint);
    let line = other.line();
    let (addr, key) = line.split_once(' ').expect("two numbers");
    let at =
        fabric::Remote { peer, addr: addr.parse().expect("a number"), key: key.parse().expect("a number") };
    message(&mut endpoint, peer);
    let [source, back] = [2, 3].map(|key| Memory::local(&mut endpoint, BYTES, key));
    source.fill(|at| (at * 13) as u8);
    // SAFETY: the memory is leaked and nobody touches it until the completion.
    let write = |e: &mut Endpoint| unsafe { e.write(source.piece(), at, 4) }.expect("taken or busy");
    assert_eq!(run(&mut endpoint, write, || ()), done(4, Op::Write));
    // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
    let read = |e: &mut Endpoint| unsafe { e.read(back.piece(), at, 5) }.expect("taken or busy");
    assert_eq!(run(&mut endpoint, read, || ()), done(5, Op::Read));
    let (sent, found) = (source.bytes(), back.bytes());
    assert_eq!(sent, found);
    let end = other.stop();
    assert_eq!(end, format!("{:?}", checksum(&found)), "what was read is what is there");
    assert!(other.end().success());
}

fn message(endpoint: &mut Endpoint, peer: Peer) {
    let [to, from] = [10, 11].map(|key| Memory::local(endpoint, 1000, key));
    to.fill(|at| (at + 5) as u8);
    // SAFETY: the memory is leaked and nobody touches it until the completion.
    assert_eq!(unsafe { endpoint.receive(from.piece(), 6) }, Ok(Post::Posted));
    // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
    let send = |e: &mut Endpoint| unsafe { e.send(to.part(0, 777), peer, 7) }.expect("taken or busy");
    let first = run(endpoint, send, || ());
    let both = [first, next(endpoint, || ())];
    assert!(both.contains(&done(7, Op::Send)), "{both:?}");
    assert!(both.contains(&Completion::Done { token: 6, op: Op::Receive, len: 777 }), "{both:?}");
    assert_eq!(from.bytes()[..777], to.bytes()[..777]);
}
