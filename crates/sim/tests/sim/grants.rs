//! Granted memory by keys of its own: who is given one, what it reaches, and when it is taken back.

use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{Direction, GrantId, Granted, Mechanism, MemId, OpError, Operation, Place, Rank, Rights};
use sim::{Access, Cluster, Costs, Faults, Plan, Reach, Step};

use crate::drive::{piece, wait};

const PAGE: u64 = 4096;
/// Bytes of a grant: no whole page.
const LEN: u64 = 3 * PAGE + 24;

/// A few ranks that register, with memory of 16 pages each, where a card reaches no private memory without.
struct Job {
    cluster: Cluster,
    memory: Place,
}

impl Job {
    fn new(settings: Settings, faults: &str) -> Job {
        let faults: Faults = faults.parse().expect("the tests name real faults");
        let costs = Costs::infiniband_modern();
        let plan =
            Plan { faults, reach: Reach::Heap, registration: Some(settings), seed: 5, ..Plan::new(3, costs) };
        let mut cluster = Cluster::new(plan);
        let memory = [0, 1, 2].map(|rank| cluster.map(rank, 16 * PAGE, Access::Full))[0];
        Job { cluster, memory }
    }

    fn grant(&mut self, at: u64, rights: Rights) -> GrantId {
        let granted = Granted { start: self.memory.offset + at, len: LEN, rights, to: None };
        self.cluster.node(1).grant(granted).expect("few are granted")
    }

    /// Puts or gets by a grant of rank 1's, and how many of the bytes went by key.
    fn go(
        &mut self,
        rank: Rank,
        direction: Direction,
        name: GrantId,
        at: u64,
        len: u64,
    ) -> (Result<u64, OpError>, u64) {
        let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
        let by_key =
            |job: &Job| job.cluster.view(rank).counters().get(operation, Mechanism::Registered).bytes;
        let before = by_key(self);
        let pieces = [piece(Place::granted(name, at), self.memory, len)];
        let id = self.cluster.node(rank).transfer(1, direction, &pieces, None);
        let outcome = wait(&mut self.cluster, rank, id);
        (outcome, by_key(self) - before)
    }

    /// Lets everything happen that happens by itself.
    fn settle(&mut self) {
        while self.cluster.step().is_some() {}
        for rank in 0..3 {
            self.cluster.node(rank).audit().expect("sound");
        }
        assert_eq!(self.cluster.take_violations(), []);
    }

    fn fill(&mut self, rank: Rank, at: u64, byte: u8) {
        let place = self.memory.plus(at);
        self.cluster.poke(rank, place, &[byte; LEN as usize]).expect("it is mapped");
    }

    fn byte(&self, rank: Rank, at: u64) -> u8 {
        let mut byte = [0];
        self.cluster.peek(rank, self.memory.plus(at), &mut byte).expect("it is mapped");
        byte[0]
    }
}

/// Pages as buckets, and so many bytes for peers.
fn budget(peers_bytes: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes,
        victims_bytes: 1 << 20,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Sieve,
        keep: Keep::Firehoses,
        put_in_move_max: 512,
        recall_within: 10_000_000_000,
    }
}

fn plenty() -> Settings {
    budget(1 << 20)
}

#[test]
fn a_grant_has_a_key_of_its_own() {
    let mut job = Job::new(plenty(), "");
    job.fill(1, 1000, 7);
    let names = [(); 2].map(|()| job.grant(1000, Rights::ReadWrite));
    for name in names {
        assert_eq!(job.go(0, Direction::Get, name, 0, LEN), (Ok(0), LEN));
        assert_eq!((job.byte(0, 0), job.byte(0, LEN - 1), job.byte(0, LEN)), (7, 7, 0));
    }
    job.fill(0, 0, 9);
    assert_eq!(job.go(0, Direction::Put, names[0], LEN - 8, 8), (Ok(0), 8));
    assert_eq!([LEN - 9, LEN - 8, LEN - 1, LEN].map(|at| job.byte(1, 1000 + at)), [7, 9, 9, 0]);
    // Two registrations of the same four pages, and none of a bucket.
    let table = job.cluster.view(1).registration_counters().table;
    assert_eq!((table.registrations, table.pinned), (2, 8 * PAGE));
    assert_eq!(job.cluster.view(0).registration_counters().misses, 2);
    job.settle();
}

#[test]
fn what_is_beyond_its_end_or_not_to_be_done_goes_by_message_and_is_refused() {
    let mut job = Job::new(plenty(), "");
    let [both, read] = [Rights::ReadWrite, Rights::Read].map(|rights| job.grant(0, rights));
    assert_eq!(job.go(0, Direction::Get, both, 0, 8), (Ok(0), 8));
    let beyond = Place::granted(both, LEN);
    let fault = |len| OpError::Fault { peer: 1, mem: beyond.mem, addr: beyond.offset, len };
    assert_eq!(job.go(0, Direction::Get, both, LEN, 1), (Err(fault(1)), 0));
    assert_eq!(job.go(0, Direction::Put, both, LEN - 8, 16), (Err(fault(8)), 8));
    assert_eq!(job.go(0, Direction::Get, read, 0, 8), (Ok(0), 0), "a key would let it write");
    let (outcome, _) = job.go(0, Direction::Put, read, 0, 8);
    assert!(matches!(outcome, Err(OpError::NotGranted { grant, .. }) if grant == read));
    job.settle();
}

#[test]
fn memory_is_idle_when_every_key_for_it_is_closed() {
    for faults in ["", "register-slow"] {
        let mut job = Job::new(plenty(), faults);
        let name = job.grant(0, Rights::ReadWrite);
        for rank in [0, 2] {
            assert_eq!(job.go(rank, Direction::Get, name, 0, LEN), (Ok(0), LEN));
        }
        let node = job.cluster.node(1);
        assert!(node.is_grant_idle(name) && node.revoke(name).is_some());
        assert!(!node.is_grant_idle(name) && node.grant_holder(name) == Some(2));
        while !job.cluster.view(1).is_grant_idle(name) {
            job.cluster.step().expect("the holders give it back");
        }
        assert_eq!((job.cluster.pinned(1), job.cluster.view(1).rights_given(0)), (0, vec![]));
        for direction in [Direction::Put, Direction::Get] {
            let (outcome, by_key) = job.go(0, direction, name, 0, 8);
            assert!(matches!(outcome, Err(OpError::Revoked { grant, .. }) if grant == name), "{outcome:?}");
            assert_eq!(by_key, 0);
        }
        job.settle();
    }
}

#[test]
fn a_name_that_is_repointed_has_another_key() {
    let mut job = Job::new(plenty(), "");
    job.fill(1, 0, 1);
    job.fill(1, 5 * PAGE, 2);
    let name = job.grant(0, Rights::ReadWrite);
    for (at, byte) in [(0, 1), (5 * PAGE, 2), (0, 1)] {
        let start = job.memory.offset + at;
        job.cluster.node(1).repoint(name, start).expect("it is granted");
        // Who has not heard of it may go to the old memory still.
        job.settle();
        assert_eq!(job.go(0, Direction::Get, name, 0, LEN), (Ok(0), LEN));
        assert_eq!(job.byte(0, LEN - 1), byte);
        assert!(job.cluster.view(1).is_grant_idle(name), "nobody is at what it named before");
    }
}

/// Its holder is silent, and loses its connection before the key is closed.
#[test]
fn a_holder_that_does_not_answer_is_given_up() {
    let mut job = Job::new(Settings { recall_within: 1_000_000, ..plenty() }, "");
    let name = job.grant(0, Rights::ReadWrite);
    assert_eq!(job.go(0, Direction::Get, name, 0, LEN), (Ok(0), LEN));
    job.settle();
    job.cluster.mute(0);
    job.cluster.node(1).revoke(name).expect("it is granted");
    assert!(!job.cluster.view(1).is_grant_idle(name));
    while !job.cluster.view(1).is_grant_idle(name) {
        let step = job.cluster.step().expect("its time ends");
        assert!(!matches!(step, Step::Polled(0)));
    }
    assert!(job.cluster.view(1).is_lost(0) && job.cluster.pinned(1) == 0);
}

#[test]
fn without_room_it_goes_by_message() {
    for (peers, by_key) in [(0, 0), (3 * PAGE, 0), (4 * PAGE, LEN)] {
        let mut job = Job::new(budget(peers), "");
        job.fill(1, 0, 3);
        let name = job.grant(0, Rights::ReadWrite);
        assert_eq!(job.go(0, Direction::Get, name, 0, LEN), (Ok(0), by_key), "{peers}");
        assert_eq!((job.byte(0, LEN - 1), job.byte(0, LEN)), (3, 0));
        job.settle();
    }
}

#[test]
fn memory_that_is_unmapped_is_told_as_the_grants() {
    let mut job = Job::new(plenty(), "");
    let name = job.grant(0, Rights::ReadWrite);
    assert_eq!(job.go(0, Direction::Get, name, 0, LEN), (Ok(0), LEN));
    let at = job.memory.offset;
    job.cluster.unmap(1, at, PAGE);
    job.cluster.node(1).invalidate(at, PAGE);
    job.settle();
    let (outcome, _) = job.go(0, Direction::Get, name, 0, LEN);
    assert!(matches!(outcome, Err(OpError::Fault { peer: 1, mem: MemId::Grant(_), .. })), "{outcome:?}");
}
