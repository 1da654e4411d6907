//! Nodes whose peer writes anything into its own ledger: what it has granted, and what it is using.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::Rank;
use vm::{Segment, SharedMemory};

use crate::transport::peers::Ledgers;
use crate::{
    Audience, Config, Error, Foreign, Grant, GrantError, Mechanism, Memory, Node, Operation, Remote, Rights,
};

/// What a call may wait, and beyond which it has not ended with that, however busy the machine.
const TIMEOUT: Duration = Duration::from_secs(10);
const SLACK: Duration = Duration::from_secs(20);

/// Where in a ledger things lie, as its head draws it.
const LINE: u64 = 64;
const HEAD_WORDS: u64 = 4 * LINE / 8;
const ANNOUNCED_MAX_AT: u64 = 3 * LINE;
const FIRST_WORD_AT: u64 = 4 * LINE;
const WATCHED_AT: u64 = 256 * LINE;
const TABLE_AT: u64 = 384 * LINE;

/// Bytes of the memory that is granted.
const BYTES: usize = 8192;

/// Two nodes that nobody launched, each with the number that the other has for it.
struct Pair {
    honest: Node,
    hostile: Node,
    of_hostile: Rank,
    of_honest: Rank,
}

impl Pair {
    fn new() -> Pair {
        let open =
            || Node::open_in(Config::new().heap_bytes(4 << 20).timeout(TIMEOUT), None).expect("a node");
        let (honest, hostile) = (open(), open());
        let meet =
            |one: &Node, other: &Node| one.connect_to(other.address().expect("it listens")).expect("let in");
        let (of_hostile, of_honest) = (meet(&honest, &hostile), meet(&hostile, &honest));
        Pair { honest, hostile, of_hostile, of_honest }
    }

    /// The hostile one's ledger, which it writes itself.
    fn ledger(&self) -> &SharedMemory {
        self.hostile.core.peers.own().ledger.memory()
    }

    /// The word that announces a use of the honest one's grants, in an epoch.
    fn announcement(&self, epoch: u64) -> u64 {
        epoch << 16 | u64::from(self.of_honest)
    }
}

fn words() -> &'static [AtomicU64] {
    Vec::leak((0..BYTES / 8).map(|_| AtomicU64::new(7)).collect())
}

fn grant<K: Send + 'static>(node: &Node, memory: &'static [AtomicU64], keeper: K) -> Grant<Foreign<K>> {
    let start = memory.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: the memory is never freed, and this process uses it by atomics alone.
    let memory = unsafe { Foreign::new(start, BYTES, keeper) };
    node.grant(memory, Rights::ReadWrite, Audience::ALL).expect("granted")
}

/// Words of pseudo-random numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    fn word(&mut self) -> u64 {
        match self.below(5) {
            0 => u64::MAX - self.below(9),
            1 => self.below(10),
            2 => 1 << 63 | self.below(1 << 40),
            3 => self.below(1 << 48) << 16 | self.below(3),
            _ => self.below(1 << 47),
        }
    }
}

/// Writes something into the ledger of one whose first line grants that memory: never an address that is
/// mapped, but for the memory's own.
fn scribble(ledger: &SharedMemory, dice: &mut Dice, memory: u64) {
    let store = |at: u64, value: u64| ledger.store(at, value).expect("inside");
    match dice.below(8) {
        0 => store(8 + 8 * dice.below(HEAD_WORDS - 1), dice.word()),
        1 => store(WATCHED_AT, dice.word()),
        2 => store(FIRST_WORD_AT + LINE * dice.below(8), dice.word()),
        3 => store(TABLE_AT, dice.word()),
        // Nothing is mapped at so low and so high addresses.
        4 => store(TABLE_AT + 8, [memory, 4096, u64::MAX - 9000, 1 << 63][dice.below(4) as usize]),
        5 => store(TABLE_AT + 16, [BYTES as u64, 0, 1 << 63, u64::MAX][dice.below(4) as usize]),
        6 => {
            let terms = ledger.load::<u64>(TABLE_AT + 24).expect("inside");
            store(TABLE_AT + 24, terms ^ 1 << dice.below(64));
        }
        _ => store(TABLE_AT + 32 + 8 * dice.below(4), dice.word()),
    }
}

/// Ends the scribbling when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Puts, gets and lists by the name and within it, each of which ends with what the ledger or its owner says.
fn use_grant(node: &Node, there: Remote, dice: &mut Dice) -> bool {
    let len = [8, 100, BYTES][dice.below(3) as usize];
    let (at, mut buffer) = (dice.below((BYTES - len) as u64 + 1), vec![7; len]);
    let begun = Instant::now();
    let done = match dice.below(2) {
        0 => node.get_bytes(there.plus(at), &mut buffer),
        _ => node.put_bytes(there.plus(at), &buffer),
    };
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    match done {
        Ok(()) => true,
        Err(
            Error::Revoked { .. } | Error::NotGranted { .. } | Error::Fault { memory: Memory::Granted, .. },
        ) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_initiator_survives_whatever_the_owner_says_it_grants() {
    let pair = Pair::new();
    let memory = words();
    let granted = grant(&pair.hostile, memory, ());
    let there = Remote::granted(pair.of_hostile, granted.name());
    let saved: Vec<u64> =
        (0..TABLE_AT / 8 + 8).map(|at| pair.ledger().load(8 * at).expect("inside")).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(9);
            let start = memory.as_ptr().expose_provenance() as u64;
            while !over.load(Ordering::SeqCst) {
                for (at, value) in (0..).zip(&saved) {
                    pair.ledger().store(8 * at, *value).expect("inside");
                }
                for _ in 0..4 {
                    scribble(pair.ledger(), &mut dice, start);
                    std::thread::yield_now();
                }
            }
        });
        let (_over, mut dice, mut ends) = (Over(&over), Dice(5), [0_u64; 2]);
        while ends.iter().any(|count| *count < 20) {
            ends[usize::from(use_grant(&pair.honest, there, &mut dice))] += 1;
        }
    });
    for (at, value) in (0..).zip(&saved) {
        pair.ledger().store(8 * at, *value).expect("inside");
    }
    let by_kernel = || pair.honest.stats().get(Operation::Get, Mechanism::Cma).count;
    let before = by_kernel();
    pair.honest.get_bytes(there, &mut [0; 8]).expect("it is granted");
    assert!(by_kernel() > before, "it goes on as before");
}

#[test]
fn memory_comes_back_or_its_user_is_named_whatever_a_peer_announces() {
    let pair = Pair::new();
    let memory = words();
    let all = [
        // Epochs from the past, from now and from the future, and the last there can be.
        (pair.announcement(0), 1, pair.of_honest != 0),
        (pair.announcement(1), 1, true),
        (pair.announcement(1 << 40), 1, false),
        (pair.announcement(u64::MAX >> 16), 1, false),
        // Of others, of nobody.
        (pair.announcement(1) ^ 1, 1, false),
        (u64::MAX, u64::MAX, false),
        (0, u64::MAX, false),
        // More words than there are, and none that counts: the peer lies, and may be at the memory.
        (pair.announcement(1), u64::MAX, true),
        (pair.announcement(1), 0, false),
    ];
    for (word, count, is_used) in all {
        let mut granted = grant(&pair.honest, memory, ());
        pair.ledger().store(FIRST_WORD_AT, word).expect("inside");
        pair.ledger().store(ANNOUNCED_MAX_AT, count).expect("inside");
        granted.revoke().expect("it is granted");
        for within in [Duration::ZERO, Duration::from_millis(2)] {
            let begun = Instant::now();
            let back = granted.wait_idle(within);
            assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
            let expected = GrantError::StillInUse { grant: granted.name().id(), peer: pair.of_hostile };
            match back {
                Err(error) => assert_eq!((error, is_used), (expected, true), "{word:#x} of {count}"),
                Ok(_) => {
                    assert!(!is_used, "{word:#x} of {count}");
                    break;
                }
            }
        }
        pair.ledger().store(FIRST_WORD_AT, 0_u64).expect("inside");
        if is_used {
            granted.wait_idle(TIMEOUT).expect("it is at nothing any more");
        }
    }
}

#[test]
fn memory_that_a_peer_says_it_is_at_is_kept_when_it_is_dropped_and_not_for_ever() {
    let pair = Pair::new();
    let (memory, kept) = (words(), Arc::new(()));
    let count = || Arc::strong_count(&kept);
    pair.ledger().store(FIRST_WORD_AT, pair.announcement(1)).expect("inside");
    pair.ledger().store(ANNOUNCED_MAX_AT, u64::MAX).expect("inside");
    for _ in 0..100 {
        drop(grant(&pair.honest, memory, Arc::clone(&kept)));
    }
    assert_eq!(count(), 101);
    // While it is at all of them, others come and go.
    let mut other = pair.honest.share(vec![1_u8], [pair.of_hostile]).expect("granted");
    other.revoke().expect("it is granted");
    assert!(matches!(other.wait_idle(Duration::ZERO), Err(GrantError::StillInUse { .. })));
    pair.ledger().store(FIRST_WORD_AT, 0_u64).expect("inside");
    let begun = Instant::now();
    while count() > 1 {
        assert!(begun.elapsed() < SLACK, "{} are kept", count() - 1);
        drop(pair.honest.share(vec![1_u8], Audience::ALL).expect("granted"));
    }
    assert_eq!(other.wait_idle(TIMEOUT), Ok(vec![1]));
}

/// Its grants are reached by message then, and its own uses are messages.
#[test]
fn what_is_no_ledger_is_not_looked_at() {
    let own = &Pair::new().honest.core.peers.own().ledger.clone();
    let file = Segment::create("no ledger", TABLE_AT + LINE).expect("a segment");
    assert!(Ledgers::open(own, file.fd()).is_none());
    assert!(Ledgers::open(own, own.fd()).is_some());
}
