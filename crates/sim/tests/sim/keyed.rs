//! Registration and copies by key, at the transport: what is refused, what is noted, what is pinned.

use crate::drive::{piece, start_keyed, wait};
use engine::node::AmBody;
use engine::registration::RegisterError;
use engine::{
    AmSend, Atomic, Deregistering, Direction, Key, KeyedPiece, Lane, OpError, Outcome, Place, Rank, RegId,
    Registering, Transport,
};
use sim::{Access, Breach, Cluster, Costs, Faults, Plan, Step};

const PAGE: u64 = 4096;

fn reg(index: u32) -> RegId {
    RegId { index, generation: 0 }
}

/// Two ranks with 16 pages each.
struct Pair {
    cluster: Cluster,
    here: Place,
    there: Place,
    /// Where what rank 1 registers begins.
    base: u64,
}

impl Pair {
    fn new(costs: Costs, faults: &str) -> Pair {
        let faults: Faults = faults.parse().expect("the tests name real faults");
        let mut cluster = Cluster::new(Plan { faults, seed: 3, ..Plan::new(2, costs) });
        let [here, there] = [0, 1].map(|rank| cluster.map(rank, 16 * PAGE, Access::Full));
        cluster.poke(0, here, b"here").expect("it is mapped");
        cluster.poke(1, there, b"there").expect("it is mapped");
        Pair { cluster, here, there, base: there.offset }
    }

    fn register(&mut self, rank: Rank, reg: RegId, at: Place, len: u64) -> Key {
        match self.cluster.node(rank).transport().register(reg, at.offset, len) {
            Registering::Done(key) => key,
            other => panic!("{other:?} without faults"),
        }
    }

    fn copy(&mut self, direction: Direction, key: Key, local: Option<RegId>, len: u64) -> Outcome {
        let base = self.base;
        let pieces = [KeyedPiece { piece: piece(self.there, self.here, len), key, base, local }];
        let id = start_keyed(&mut self.cluster, 0, 1, direction, &pieces);
        wait(&mut self.cluster, 0, id)
    }

    fn bytes(&self, rank: Rank, place: Place) -> [u8; 5] {
        let mut bytes = [0; 5];
        self.cluster.peek(rank, place, &mut bytes).expect("it is mapped");
        bytes
    }

    fn breaches(&mut self) -> Vec<(Rank, Breach)> {
        let violations = self.cluster.take_violations();
        violations.iter().map(|violation| (violation.owner, violation.breach)).collect()
    }
}

/// GM, where every local end must be registered.
fn strict() -> Costs {
    Costs { unregistered_max_bytes: 0, ..Costs::myrinet_gm_2003() }
}

#[test]
fn registered_memory_is_reached_both_ways() {
    let mut pair = Pair::new(strict(), "");
    let (here, there) = (pair.here, pair.there);
    let key = pair.register(1, reg(0), there, PAGE);
    pair.register(0, reg(7), here, PAGE);
    assert_eq!(pair.copy(Direction::Get, key, Some(reg(7)), 5), Ok(0));
    assert_eq!(&pair.bytes(0, here), b"there");
    pair.cluster.poke(0, here, b"HERE.").expect("it is mapped");
    assert_eq!(pair.copy(Direction::Put, key, Some(reg(7)), 5), Ok(0));
    assert_eq!(&pair.bytes(1, there), b"HERE.");
    assert_eq!(pair.breaches(), []);
}

#[test]
fn what_is_not_registered_is_refused_at_either_end() {
    let mut pair = Pair::new(strict(), "");
    let (here, there) = (pair.here, pair.there);
    let key = pair.register(1, reg(0), there, PAGE);
    pair.register(0, reg(0), here, PAGE);
    let fault = Err(OpError::Fault { peer: 1, mem: there.mem, addr: there.offset, len: 8 });
    let local = |len| Err(OpError::LocalFault { mem: here.mem, addr: here.offset, len });

    assert_eq!(pair.copy(Direction::Put, Key(key.0 ^ 1), Some(reg(0)), 8), fault);
    assert_eq!(pair.breaches(), [(1, Breach::Unknown)]);
    let beyond = Err(OpError::Fault { peer: 1, mem: there.mem, addr: there.offset, len: PAGE + 1 });
    pair.register(0, reg(1), here, 2 * PAGE);
    assert_eq!(pair.copy(Direction::Put, key, Some(reg(1)), PAGE + 1), beyond);
    assert_eq!(pair.breaches(), [(1, Breach::Beyond)]);
    assert_eq!(pair.copy(Direction::Get, key, Some(reg(5)), 8), local(8));
    assert_eq!(pair.breaches(), [(0, Breach::Unknown)]);
    assert_eq!(pair.copy(Direction::Get, key, None, 8), local(8));
    assert_eq!(pair.breaches(), [(0, Breach::Unregistered)]);
    assert_eq!(pair.cluster.node(1).transport().deregister(reg(0)), Deregistering::Done);
    assert_eq!(pair.copy(Direction::Put, key, Some(reg(0)), 8), fault);
    assert_eq!(pair.breaches(), [(1, Breach::Revoked)]);
    assert_eq!((&pair.bytes(0, here), &pair.bytes(1, there)), (b"here\0", b"there"), "nothing was moved");
}

#[test]
fn little_needs_no_registration_at_the_local_end() {
    let mut pair = Pair::new(Costs::myrinet_gm_2003(), "");
    let key = pair.register(1, reg(0), pair.there, 4 * PAGE);
    let max = pair.cluster.node(0).transport().unregistered_max(Direction::Put);
    assert_eq!(max, pair.cluster.costs().unregistered_max_bytes);
    assert_eq!(pair.copy(Direction::Put, key, None, max), Ok(0));
    assert!(pair.copy(Direction::Put, key, None, max + 1).is_err());
    assert_eq!(pair.breaches(), [(0, Breach::Unregistered)]);
}

#[test]
fn a_key_revoked_under_way_is_noticed_at_the_target() {
    let mut pair = Pair::new(strict(), "");
    let key = pair.register(1, reg(0), pair.there, PAGE);
    pair.register(0, reg(0), pair.here, PAGE);
    let (base, local) = (pair.base, Some(reg(0)));
    let pieces = [KeyedPiece { piece: piece(pair.there, pair.here, 4), key, base, local }];
    let id = start_keyed(&mut pair.cluster, 0, 1, Direction::Put, &pieces);
    pair.cluster.node(1).transport().deregister(reg(0));
    assert!(wait(&mut pair.cluster, 0, id).is_err());
    assert_eq!(pair.breaches(), [(1, Breach::Revoked)]);
    assert_eq!(&pair.bytes(1, pair.there), b"there");
}

#[test]
fn a_stale_registration_moves_stale_bytes() {
    let mut pair = Pair::new(strict(), "");
    let (here, there) = (pair.here, pair.there);
    let key = pair.register(1, reg(0), there, 2 * PAGE);
    pair.register(0, reg(0), here, PAGE);
    pair.cluster.map_at(1, there.offset, PAGE, Access::Full);
    let unmapped_at = pair.cluster.now();
    assert_eq!(pair.copy(Direction::Get, key, Some(reg(0)), 5), Ok(0));
    assert_eq!(&pair.bytes(0, here), b"there", "the card sees what lay there when it was pinned");
    assert_eq!(pair.breaches(), [(1, Breach::Stale { since: unmapped_at, knew: false })]);
    pair.cluster.poke(0, here, b"lost.").expect("it is mapped");
    assert_eq!(pair.copy(Direction::Put, key, Some(reg(0)), 5), Ok(0));
    assert_eq!(pair.bytes(1, there), [0; 5], "what is mapped now was not written");
    assert_eq!(pair.breaches().len(), 1);
    assert_eq!(pair.cluster.pinned(1), 2 * PAGE, "what is unmapped stays pinned");
    // The page beside it was not unmapped.
    (pair.there, pair.here) = (there.plus(PAGE), here);
    assert_eq!(pair.copy(Direction::Put, key, Some(reg(0)), 5), Ok(0));
    assert_eq!(&pair.bytes(1, there.plus(PAGE)), b"lost.");
    assert_eq!(pair.breaches(), []);
}

#[test]
fn read_only_memory_can_be_registered_but_not_written() {
    let mut pair = Pair::new(strict(), "");
    pair.cluster.map_at(1, pair.there.offset, PAGE, Access::Read);
    let key = pair.register(1, reg(0), pair.there, PAGE);
    pair.register(0, reg(0), pair.here, PAGE);
    assert!(matches!(pair.copy(Direction::Put, key, Some(reg(0)), 8), Err(OpError::Fault { peer: 1, .. })));
    assert_eq!(pair.copy(Direction::Get, key, Some(reg(0)), 8), Ok(0));
    assert_eq!(pair.breaches(), [], "rights are no matter of registration");
}

#[test]
fn pinning_takes_its_owners_processor_and_is_counted() {
    let mut pair = Pair::new(strict(), "");
    let there = pair.there;
    pair.register(1, reg(0), there, 3 * PAGE);
    assert_eq!(pair.cluster.time_of(1), 3 * 40_000, "40 us a page");
    pair.register(1, reg(1), there.plus(3 * PAGE), 10);
    assert_eq!((pair.cluster.pinned(1), pair.cluster.pinned(0)), (4 * PAGE, 0));
    pair.cluster.node(1).transport().deregister(reg(0));
    assert_eq!(pair.cluster.time_of(1), 4 * 40_000 + 3 * 6_000_000, "6 ms a page");
    assert_eq!((pair.cluster.pinned(1), pair.cluster.pinned_peak(1)), (PAGE, 4 * PAGE));
    assert_eq!(pair.cluster.time_of(0), 0);
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let mut pair = Pair::new(Costs { pinnable_bytes: 4 * PAGE, ..strict() }, "");
    let (at, nic) = (pair.there.offset, pair.cluster.node(1).transport());
    assert_eq!(nic.register(reg(0), at, 5 * PAGE), Registering::Failed(RegisterError::Limit));
    assert_eq!(nic.register(reg(0), at + 15 * PAGE, 2 * PAGE), Registering::Failed(RegisterError::Fault));
    assert!(matches!(nic.register(reg(0), at, 4 * PAGE), Registering::Done(_)));
}

#[test]
fn translations_that_the_card_lacks_take_time() {
    let costs = Costs { table_entries: 8, table_miss_ns: 1_000_000, ..strict() };
    let mut pair = Pair::new(costs, "");
    let key = pair.register(1, reg(0), pair.there, 16 * PAGE);
    pair.register(0, reg(0), pair.here, 16 * PAGE);
    let time = |pair: &mut Pair, len| {
        let before = pair.cluster.time_of(0);
        assert_eq!(pair.copy(Direction::Put, key, Some(reg(0)), len), Ok(0));
        (pair.cluster.time_of(0) - before) / 1_000_000
    };
    assert_eq!(time(&mut pair, 8), 2, "one page at each end");
    assert_eq!(time(&mut pair, 8), 0);
    assert_eq!(time(&mut pair, 16 * PAGE), 2 * 16 - 2, "but for the pages that are known");
    assert_eq!(time(&mut pair, 16 * PAGE), 2 * 16, "16 pages in a table of 8 drive each other out");
}

/// Gets from rank 1 by `key` at rank 0, and returns whether rank 0 should have known better.
fn get_is_avoidable(pair: &mut Pair, key: Key) -> bool {
    assert_eq!(pair.copy(Direction::Get, key, None, 8), Ok(0));
    let violations = pair.cluster.take_violations();
    assert!(matches!(violations[..], [violation] if matches!(violation.breach, Breach::Stale { .. })));
    violations[0].is_avoidable()
}

/// A message from one rank to another, which its program takes.
fn tell(cluster: &mut Cluster, from: Rank, to: Rank) {
    let note = AmSend { peer: to, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    cluster.node(from).send_am(&note).expect("the lane is empty");
    while !matches!(cluster.step().expect("the message arrives"), Step::Deliver(rank, _) if rank == to) {}
}

/// Ranks of which 1 has registered a page and then mapped another in its place; its key.
fn changed(size: u32) -> (Pair, Key) {
    let mut cluster = Cluster::new(Plan { handlers: 1, ..Plan::new(size, Costs::myrinet_gm_2003()) });
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, 16 * PAGE, Access::Full));
    let mut pair = Pair { cluster, here, there, base: there.offset };
    let key = pair.register(1, reg(0), there, PAGE);
    tell(&mut pair.cluster, 1, 0);
    pair.cluster.map_at(1, there.offset, PAGE, Access::Full);
    (pair, key)
}

#[test]
fn a_stale_access_is_wrong_once_its_initiator_could_have_heard() {
    let (mut pair, key) = changed(3);
    assert!(!get_is_avoidable(&mut pair, key), "the message was sent before the change");
    tell(&mut pair.cluster, 2, 0);
    assert!(!get_is_avoidable(&mut pair, key), "rank 2 knows nothing of it");
    tell(&mut pair.cluster, 1, 2);
    assert!(!get_is_avoidable(&mut pair, key), "rank 2 knows, and has told nobody");
    tell(&mut pair.cluster, 2, 0);
    assert!(get_is_avoidable(&mut pair, key));
}

#[test]
fn words_and_barriers_tell_of_changes_too() {
    let (mut pair, key) = changed(3);
    let word = pair.cluster.heap(2, 16);
    let add = |pair: &mut Pair, rank, word| {
        let id = pair.cluster.node(rank).atomic(2, word, Atomic::fetch_add(1), None);
        assert!(wait(&mut pair.cluster, rank, id).is_ok());
    };
    add(&mut pair, 1, word);
    add(&mut pair, 0, word.plus(8));
    assert!(!get_is_avoidable(&mut pair, key), "that was another word");
    add(&mut pair, 0, word);
    assert!(get_is_avoidable(&mut pair, key));

    let (mut pair, key) = changed(3);
    let waits = [0, 1, 2].map(|rank| (rank, pair.cluster.node(rank).barrier(None)));
    for (rank, id) in waits {
        assert_eq!(wait(&mut pair.cluster, rank, id), Ok(0));
    }
    assert!(get_is_avoidable(&mut pair, key));
}
