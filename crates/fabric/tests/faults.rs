//! What comes back when a peer cannot do what is asked of it: a bad key, memory that is not there, a dead
//! peer.
//!
//! Only providers that Standpipe may use between processes are held to it: `sockets` and `net` are no longer
//! developed.

mod common;
#[path = "common/other.rs"]
mod other;

use common::{LIMIT, Memory, done, find, next, open};
use fabric::{
    Access, Completion, Endpoint, Failure, Hints, Local, Op, Options, Peer, Post, RemotePiece, Until,
};
use other::Other;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

const KEY: u64 = 77;
const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 256 << 20;

#[test]
fn the_other_process() {
    let Some(role) = other::role() else { return };
    let provider = find(&role[1], hints()).expect("the other side has it");
    let mut endpoint = open(&provider, &Options::default());
    let from = other::listen();
    let peer = other::meet(&mut endpoint, &from);
    match role[0].as_str() {
        "small" => {
            let memory = Memory::registered(&mut endpoint, SMALL_BYTES, KEY);
            other::tell(&memory.at(0, peer).addr.to_string());
        }
        "space" => {
            // SAFETY: this role is to die, or to do whatever it does, when a peer reaches what is not there.
            let space = unsafe { endpoint.register(std::ptr::null_mut(), 1 << 47, Access::ALL, KEY) };
            space.expect("any address will do");
            other::tell(&forbidden_page().to_string());
        }
        "close" => return close_while_written(endpoint, peer, &from),
        role => panic!("no such role: {role}"),
    }
    while from.try_recv() != Err(TryRecvError::Disconnected) {
        let _ = endpoint.poll();
    }
}

/// A page of which no byte can be read or written, and which stays so.
fn forbidden_page() -> u64 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a new mapping, at a place that the kernel chooses, that is never given back.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), 4 << 20, ProtFlags::empty(), MapFlags::PRIVATE) };
    page.expect("address space") as u64
}

fn hints() -> Hints {
    Hints { delivery: true, manual: true, ..Hints::default() }
}

/// The other process in a role, at the provider of that name, and this side's endpoint.
struct Scene {
    endpoint: Endpoint,
    peer: Peer,
    other: Other,
}

impl Scene {
    fn open(role: &str, name: &str) -> Option<Scene> {
        let mut endpoint = open(&find(name, hints())?, &Options::default());
        let mut other = Other::start(&[role, name]);
        let peer = other.meet(&mut endpoint);
        Some(Scene { endpoint, peer, other })
    }

    fn number(&mut self) -> u64 {
        self.other.line().parse().expect("a number")
    }

    fn post(&mut self, op: Op, local: Local, addr: u64, key: u64) -> Post {
        let (peer, remote) = (self.peer, [RemotePiece { addr, len: local.len, key }]);
        // SAFETY: the memory is leaked, and nobody touches it.
        let post = unsafe {
            match op {
                Op::Read => self.endpoint.read_pieces(&[local], peer, &remote, 3),
                _ => self.endpoint.write_pieces(&[local], peer, &remote, Until::Delivered, 3),
            }
        };
        post.expect("taken or busy")
    }

    /// Writes or reads, and waits for how that ends; `None` if it has not after `limit`.
    fn ends(&mut self, op: Op, local: Local, addr: u64, key: u64, limit: Duration) -> Option<Completion> {
        let (start, mut taken) = (Instant::now(), false);
        while start.elapsed() < limit {
            taken = taken || self.post(op, local, addr, key) == Post::Posted;
            if let Some(completion) = self.endpoint.poll().expect("the queue works") {
                return Some(completion);
            }
        }
        None
    }

    /// Waits until operations with the peer succeed again: the provider connects anew, by itself, and until
    /// it has, some still fail.
    fn comes_back(&mut self, op: Op, local: Local, addr: u64) {
        let start = Instant::now();
        while self.ends(op, local, addr, KEY, LIMIT) != Some(done(3, op)) {
            assert!(start.elapsed() < LIMIT, "the connection does not come back");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs a test over each provider of TCP that there is.
fn over_tcp(role: &str, test: impl Fn(&str, &dyn Fn() -> Scene)) {
    let mut seen = Vec::new();
    for name in ["tcp", "tcp;ofi_rxm", "net"] {
        let Some(provider) = find(name, hints()) else { continue };
        let full_name = &provider.description().provider;
        if !seen.contains(full_name) {
            println!("over {full_name}");
            test(full_name, &|| Scene::open(role, name).expect("it was there just now"));
            seen.push(full_name.clone());
        }
    }
}

fn failure(ended: Option<Completion>, op: Op) -> Failure {
    match ended {
        Some(Completion::Failed { operation: Some((3, failed)), failure }) if failed == op => failure,
        other => panic!("{other:?} is no failure of {op:?}"),
    }
}

#[test]
fn what_no_registration_allows_ends_in_an_error_and_the_target_lives() {
    over_tcp("small", |name, scene| {
        for (op, len) in [(Op::Write, 8), (Op::Write, 1000), (Op::Read, 8), (Op::Read, 1000)] {
            for (what, offset, key) in [
                ("a bad key", 0, KEY + 1),
                ("half outside", SMALL_BYTES as u64 - 4, KEY),
                ("far outside", 1 << 40, KEY),
            ] {
                let mut scene = scene();
                let addr = scene.number();
                let memory = Memory::local(&mut scene.endpoint, len, 1);
                let ended = scene.ends(op, memory.piece(), addr + offset, key, LIMIT);
                println!("{name}, {op:?} of {len} bytes, {what}: {}", failure(ended, op));
                scene.comes_back(op, memory.piece(), addr);
                assert!(scene.other.end().success(), "the target lives on");
            }
        }
    });
}

#[test]
fn operations_with_a_peer_that_dies_end_in_errors() {
    const IN_FLIGHT: usize = 8;
    over_tcp("small", |name, scene| {
        for op in [Op::Write, Op::Read] {
            let mut scene = scene();
            let addr = scene.number();
            let memory = Memory::local(&mut scene.endpoint, SMALL_BYTES, 1);
            assert_eq!(scene.ends(op, memory.piece(), addr, KEY, LIMIT), Some(done(3, op)));
            scene.other.pause();
            for _ in 0..IN_FLIGHT {
                assert_eq!(scene.post(op, memory.piece(), addr, KEY), Post::Posted);
            }
            assert_eq!(scene.endpoint.poll(), Ok(None), "nobody answers");
            scene.other.child.kill().expect("our child");
            scene.other.wait();
            let start = Instant::now();
            let mut failures = Vec::new();
            while failures.len() < IN_FLIGHT {
                failures.push(failure(Some(next(&mut scene.endpoint, || ())), op));
            }
            println!("{name}, {op:?}: {} after {:?}", failures[0], start.elapsed());
            assert_eq!(scene.endpoint.in_flight(), 0);
            scene.endpoint.close().expect("nothing is left");
        }
    });
}

/// A connection that cannot be made is no error: what is posted stays busy, and the caller must have a
/// deadline.
#[test]
fn a_peer_that_was_dead_before_the_first_word_keeps_posts_busy() {
    over_tcp("small", |name, scene| {
        let mut scene = scene();
        let addr = scene.number();
        scene.other.child.kill().expect("our child");
        scene.other.wait();
        let memory = Memory::local(&mut scene.endpoint, 8, 1);
        let ended = scene.ends(Op::Write, memory.piece(), addr, KEY, Duration::from_secs(1));
        println!("{name}: {ended:?}, {} in flight", scene.endpoint.in_flight());
        assert!(!matches!(ended, Some(Completion::Done { .. })), "nobody can have done it");
        scene.endpoint.close().expect("nothing is left");
    });
}

/// Why one key for the whole address space does not do, although these providers pin nothing: they believe
/// what was registered.
#[test]
fn of_memory_that_is_registered_but_not_there_no_error_comes_back() {
    if !testbed::has_time_for("a fault of the provider's own") {
        return;
    }
    over_tcp("space", |name, scene| {
        let mut harmless = true;
        for op in [Op::Write, Op::Read] {
            for len in [8, 1 << 20] {
                let mut scene = scene();
                let page = scene.number();
                let memory = Memory::local(&mut scene.endpoint, len, 1);
                let ended = scene.ends(op, memory.piece(), page, KEY, Duration::from_secs(1));
                std::thread::sleep(Duration::from_millis(200));
                let target = scene.other.child.try_wait().expect("our child");
                println!("{name}, {op:?} of {len} bytes: {ended:?}; the target: {target:?}");
                harmless &= target.is_none() && matches!(ended, Some(Completion::Failed { .. }));
            }
        }
        assert!(!harmless, "{name} gives errors now, so that one key could cover everything");
    });
}

/// On providers in software, closing a registration does not stop a write that has begun to arrive.
#[test]
fn what_has_begun_to_arrive_goes_on_after_closing() {
    if !testbed::has_time_for("a fault of the provider's own") {
        return;
    }
    over_tcp("close", |name, scene| {
        let mut scene = scene();
        let addr = scene.number();
        let memory = Memory::local(&mut scene.endpoint, LARGE_BYTES, 1);
        memory.fill(|_| 1);
        while scene.post(Op::Write, memory.piece(), addr, KEY) == Post::Busy {
            assert_eq!(scene.endpoint.poll(), Ok(None));
        }
        let mut numbers = [0_u64; 2];
        std::thread::scope(|scope| {
            let Scene { endpoint, other, .. } = &mut scene;
            let reader = scope.spawn(|| numbers = [(); 2].map(|()| other.line().parse().expect("a number")));
            while !reader.is_finished() {
                let _ = endpoint.poll();
            }
        });
        let [at_close, later] = numbers;
        println!("{name}: {at_close} MiB were missing when it was closed, {later} a second later");
        if at_close == 0 {
            return testbed::skip("everything had arrived before it could be closed");
        }
        assert!(later < at_close, "{name} stops what is under way now: the notes on closing can say so");
    });
}

/// Closes the registration when the first bytes of a write have arrived, and says how many MiB are still
/// missing, then and a second later.
fn close_while_written(mut endpoint: Endpoint, peer: Peer, from: &Receiver<String>) {
    let memory = Memory::registered(&mut endpoint, LARGE_BYTES, KEY);
    other::tell(&memory.at(0, peer).addr.to_string());
    let missing = || (0..LARGE_BYTES).step_by(1 << 20).filter(|at| memory.byte(*at) == 0).count();
    while memory.byte(0) == 0 {
        assert_eq!(endpoint.poll(), Ok(None));
    }
    other::tell(&missing().to_string());
    endpoint.deregister(memory.region.as_ref().expect("registered").id).expect("open");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let _ = endpoint.poll();
    }
    other::tell(&missing().to_string());
    let _ = from.recv_timeout(LIMIT);
}
