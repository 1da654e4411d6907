//! Random histories of puts, gets, scatter lists and atomics between three ranks, against plain arrays.
//!
//! Operations on disjoint memory are in flight together; one that meets memory in use waits for everything
//! first. An operation is applied to the arrays when it starts, which is right because nobody else touches
//! its memory.

mod polled;

use std::ops::Range;

use conformance::Cluster;
use engine::node::Polled as Moved;
use engine::{Atomic, Direction, Inbox, MemId, OpId, Piece, Place, Rank};
use proptest::prelude::*;
use sim::{Costs, Reach};

use polled::Polled;

const RANKS: u32 = 3;
const MEMORIES: [MemId; 2] = [MemId::Space, MemId::Heap];
const BYTES: u64 = 20_000;
/// Words for atomics, few so that they meet.
const WORDS: u64 = 6;

/// Some bytes of a rank's memory: (rank, which memory, offset).
type Spot = (Rank, usize, u64);

#[derive(Clone, Debug)]
enum Act {
    /// Pieces: which memory and offset at the peer, which and where here, length.
    Transfer {
        rank: Rank,
        peer: Rank,
        put: bool,
        pieces: Vec<(usize, u64, usize, u64, u64)>,
    },
    Add {
        rank: Rank,
        peer: Rank,
        word: u64,
        add: u64,
    },
    /// Expects the word's real value (or one more), so that about half of them store.
    Swap {
        rank: Rank,
        peer: Rank,
        word: u64,
        off: u64,
        new: u64,
    },
    /// Some rounds of polling.
    Run {
        rounds: u8,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let rank = || 0..RANKS;
    let len = prop_oneof![0u64..64, 0u64..6000];
    let piece = (0usize..2, 0..BYTES, 0usize..2, 0..BYTES, len)
        .prop_map(|(m, at, n, to, len)| (m, at, n, to, len.min(BYTES - at).min(BYTES - to)));
    prop_oneof![
        6 => (rank(), rank(), any::<bool>(), proptest::collection::vec(piece, 0..8))
            .prop_map(|(rank, peer, put, pieces)| Act::Transfer { rank, peer, put, pieces }),
        2 => (rank(), rank(), 0..WORDS, any::<u64>())
            .prop_map(|(rank, peer, word, add)| Act::Add { rank, peer, word, add }),
        2 => (rank(), rank(), 0..WORDS, 0u64..2, any::<u64>())
            .prop_map(|(rank, peer, word, off, new)| Act::Swap { rank, peer, word, off, new }),
        3 => (0u8..20).prop_map(|rounds| Act::Run { rounds }),
    ]
}

/// How an operation under way uses memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Add,
}

struct Model {
    cluster: Polled,
    base: Vec<[Place; 2]>,
    bytes: Vec<[Vec<u8>; 2]>,
    used: Vec<(Rank, usize, Range<u64>, Use)>,
    /// Operations under way, with the old word where it is known.
    ops: Vec<(Rank, OpId, Option<u64>)>,
}

impl Model {
    fn new(costs: Costs, reach: Reach, seed: u64) -> Model {
        let mut cluster = Polled::new(RANKS, costs, reach, "delay,reorder", seed);
        let (mut base, mut bytes) = (Vec::new(), Vec::new());
        for rank in 0..RANKS {
            let places = [cluster.private(rank, BYTES as usize), cluster.heap(rank, BYTES as usize)];
            let fill =
                |seed: u64| (0..BYTES).map(|i| (i * 31 + seed * 7 + (i >> 8)) as u8).collect::<Vec<u8>>();
            let filled = [fill(u64::from(rank)), fill(u64::from(rank) + 50)];
            for (place, bytes) in places.iter().zip(&filled) {
                cluster.poke(rank, *place, bytes);
            }
            base.push(places);
            bytes.push(filled);
        }
        Model { cluster, base, bytes, used: Vec::new(), ops: Vec::new() }
    }

    fn place(&self, (rank, mem, at): Spot) -> Place {
        let place = self.base[rank as usize][mem];
        assert_eq!(place.mem, MEMORIES[mem]);
        place.plus(at)
    }

    fn is_free(&self, (rank, mem, at): Spot, len: u64, how: Use) -> bool {
        !self.used.iter().any(|(r, m, range, used)| {
            let overlap = (*r, *m) == (rank, mem) && at < range.end && range.start < at + len;
            overlap && (how != *used || how == Use::Write)
        })
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Transfer { rank, peer, put, pieces } => self.transfer(rank, peer, put, &pieces),
            Act::Add { rank, peer, word, add } => {
                let spot = (peer, 1, word * 8);
                if !self.is_free(spot, 8, Use::Add) {
                    self.drain();
                }
                let old = self.word(spot);
                self.set_word(spot, old.wrapping_add(add));
                // Other additions to this word may be under way: the old word is anyone's to see.
                self.start_atomic(rank, spot, Atomic::fetch_add(add), None, Use::Add);
            }
            Act::Swap { rank, peer, word, off, new } => {
                let spot = (peer, 1, word * 8);
                if !self.is_free(spot, 8, Use::Write) {
                    self.drain();
                }
                let old = self.word(spot);
                if off == 0 {
                    self.set_word(spot, new);
                }
                let swap = Atomic::compare_swap(old.wrapping_add(off), new);
                self.start_atomic(rank, spot, swap, Some(old), Use::Write);
            }
            Act::Run { rounds } => (0..rounds).for_each(|_| self.round()),
        }
    }

    fn transfer(&mut self, rank: Rank, peer: Rank, put: bool, list: &[(usize, u64, usize, u64, u64)]) {
        let (here, there) = if put { (Use::Read, Use::Write) } else { (Use::Write, Use::Read) };
        let free = |model: &Model, (m, at, n, to, len): (usize, u64, usize, u64, u64)| {
            model.is_free((peer, m, at), len, there) && model.is_free((rank, n, to), len, here)
        };
        if !list.iter().all(|piece| free(self, *piece)) {
            self.drain();
        }
        let mut pieces = Vec::new();
        for (m, at, n, to, len) in list.iter().copied() {
            let (remote, local) = ((peer, m, at), (rank, n, to));
            let same = peer == rank && m == n && at < to + len && to < at + len;
            // Pieces of one list that overlap would leave the order of their bytes open.
            if same || !free(self, (m, at, n, to, len)) {
                continue;
            }
            self.used.push((peer, m, at..at + len, there));
            self.used.push((rank, n, to..to + len, here));
            let (from, into) = if put { (local, remote) } else { (remote, local) };
            let (start, end) = (from.2 as usize, (from.2 + len) as usize);
            let moved = self.bytes[from.0 as usize][from.1][start..end].to_vec();
            let start = into.2 as usize;
            self.bytes[into.0 as usize][into.1][start..start + moved.len()].copy_from_slice(&moved);
            pieces.push(Piece::new(self.place(remote), self.place(local), len).expect("small offsets"));
        }
        let direction = if put { Direction::Put } else { Direction::Get };
        let id = self.cluster.node(rank).transfer(peer, direction, &pieces, None);
        self.ops.push((rank, id, None));
    }

    fn start_atomic(&mut self, rank: Rank, spot: Spot, atomic: Atomic, old: Option<u64>, how: Use) {
        self.used.push((spot.0, spot.1, spot.2..spot.2 + 8, how));
        let place = self.place(spot);
        let id = self.cluster.node(rank).atomic(spot.0, place, atomic, None);
        self.ops.push((rank, id, old));
    }

    fn word(&self, (rank, mem, at): Spot) -> u64 {
        let bytes = &self.bytes[rank as usize][mem][at as usize..at as usize + 8];
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn set_word(&mut self, (rank, mem, at): Spot, word: u64) {
        let bytes = &mut self.bytes[rank as usize][mem][at as usize..at as usize + 8];
        bytes.copy_from_slice(&word.to_ne_bytes());
    }

    fn round(&mut self) {
        let mut inbox = Inbox::default();
        for rank in 0..RANKS {
            while self.cluster.node(rank).poll(&mut inbox) != Moved::Idle {}
        }
        self.cluster.step();
    }

    /// Waits for every operation.
    fn drain(&mut self) {
        for (rank, id, old) in std::mem::take(&mut self.ops) {
            let outcome = (0..10_000).find_map(|_| {
                let outcome = self.cluster.node(rank).outcome(id);
                if outcome.is_none() {
                    self.round();
                }
                outcome
            });
            let word = outcome.expect("10,000 rounds are enough").expect("nothing here can fail");
            assert!(old.is_none_or(|old| old == word), "an atomic saw {word} where {old:?} was");
        }
        self.used.clear();
    }

    fn compare(&mut self) {
        self.drain();
        for rank in 0..RANKS {
            for (mem, id) in MEMORIES.into_iter().enumerate() {
                let mut found = vec![0; BYTES as usize];
                self.cluster.peek(rank, self.base[rank as usize][mem], &mut found);
                let wanted = &self.bytes[rank as usize][mem];
                let differs = (0..BYTES as usize).find(|i| found[*i] != wanted[*i]);
                assert_eq!(differs, None, "rank {rank}, {id:?}");
            }
        }
    }
}

/// All that have atomics.
const REACHES: [Reach; 5] = [Reach::Words, Reach::AtOnce, Reach::Everything, Reach::Heap, Reach::Stages];

/// Without optimisation a history takes some ten milliseconds.
const CASES: u32 = if cfg!(debug_assertions) { 100 } else { 2000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]
    #[test]
    fn histories_end_as_on_plain_arrays(
        seed: u64, reach in 0usize..5, lane_messages in 1..5u32, payload_max_bytes in 64usize..3000, acts in proptest::collection::vec(act(), 1..60),
    ) {
        let costs = Costs { lane_messages, payload_max_bytes, ..Costs::myrinet_gm_2003() };
        let mut model = Model::new(costs, REACHES[reach], seed);
        for act in acts {
            model.act(act);
        }
        model.compare();
    }
}
