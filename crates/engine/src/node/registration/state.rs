//! A node's state of registration.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use slab::Slab;

use super::early_revocations::EarlyRevocations;
use super::revocations::{Revocations, TIME_PER_RIGHT};
use super::trace_spans::{MoveSpan, RecallSpan};
use crate::op_id::OpKey;
use crate::registration::firehose::Firehoses;
use crate::registration::table::{HolderId, Table};
use crate::registration::{ByPeer, PeerCounters, RegId, Run, Settings, TableCounters, end_of};
use crate::wire::{MoveId, Status};
use crate::{GrantId, Nanos, Rank};

/// Counts of the initiator's end, and those of the table at the owner's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCounters {
    /// Pieces of transfers whose peer's memory was held.
    pub hits: u64,
    /// Pieces whose peer's memory was not held: they had to be asked for, or went by message.
    pub misses: u64,
    /// Messages that asked.
    pub moves: u64,
    /// Puts whose data went with the asking.
    pub puts_in_moves: u64,
    /// Pieces that went by message because there was no room for their registration, or none that was worth
    /// making.
    pub bounced: u64,
    /// Rights given back because their owner wanted them.
    pub given_back: u64,
    /// Messages by which peers asked.
    pub served: u64,
    /// The counts of the table of this process's own memory.
    pub table: TableCounters,
}

/// A figure of [`RegistrationCounters`]: its name, which in `_bytes` is an amount of memory and else a number
/// of times, and its value.
type Figure = (&'static str, fn(&RegistrationCounters) -> u64);

impl RegistrationCounters {
    /// The figures that tables and collectors show, in this order.
    pub const FIGURES: &[Figure] = &[
        ("hits", |counters| counters.hits),
        ("misses", |counters| counters.misses),
        ("moves", |counters| counters.moves),
        ("served", |counters| counters.served),
        ("recalls", |counters| counters.table.recalls),
        ("evictions", |counters| counters.table.evictions),
        ("bounced", |counters| counters.bounced),
        ("refusals", |counters| counters.table.refusals),
        ("failures", |counters| counters.table.failures),
        ("stuck", |counters| counters.table.stuck),
        ("pinned_bytes", |counters| counters.table.pinned),
        ("pinned_peak_bytes", |counters| counters.table.pinned_peak),
        ("pinned_budget_bytes", |counters| counters.table.budget),
    ];
}

/// Bytes, at most, that one miss asks for: a longer piece is asked for and sent by and by, which keeps the
/// pipe full.
pub(in crate::node) const CHUNK_BYTES: u64 = 1 << 20;

/// A holder's time to answer is divided into so many looks. A longer gap between two looks counts as one, as
/// the answer may lie unread while this process is stopped or has much else to do.
const LOOKS_PER_RECALL: Nanos = 8;

/// The time in which answers are looked for.
#[derive(Default)]
struct AnswerClock {
    looked: Nanos,
    sum: Nanos,
}

impl AnswerClock {
    /// Its value if one looks now, as one does at least so often. Threads may have read the clock in another
    /// order.
    fn by(&self, now: Nanos, at_least: Nanos) -> Nanos {
        self.sum.saturating_add(now.saturating_sub(self.looked).min(at_least))
    }

    fn look(&mut self, now: Nanos, at_least: Nanos) {
        self.sum = self.by(now, at_least);
        self.looked = self.looked.max(now);
    }
}

/// Registration's part of a node.
pub(in crate::node) struct Registration {
    pub(in crate::node) settings: Settings,
    pub(in crate::node) table: Table,
    pub(in crate::node) hoses: Firehoses,
    /// Asked of peers, and not answered.
    pub(in crate::node) moves: Slab<PendingMove>,
    /// Asked by peers, and waiting for registrations.
    pub(in crate::node) serves: Slab<ServedMove>,
    /// By registration of this process, all that wait for it.
    pub(in crate::node) waiting: HashMap<RegId, Vec<Waiter>>,
    /// Moves asked for, in all: their tokens tell them apart.
    pub(in crate::node) serial: u32,
    /// Rights that are to be given back with the next message that asks the peer for others.
    pub(in crate::node) owed: BTreeMap<Rank, Vec<HolderId>>,
    /// Rights of peers' that are wanted back and are not here: they may come with the answer to a move that
    /// is under way.
    pub(in crate::node) early_revocations: EarlyRevocations,
    pub(in crate::node) revocations: Revocations,
    /// Peers that were asked to give back what they do not use, and have not answered; since when they are
    /// waited for, once anybody has looked.
    pub(in crate::node) recalled: BTreeMap<Rank, PendingRecall>,
    /// Somebody is waited for, and nobody has looked since when.
    pub(in crate::node) wants_time: bool,
    answer_clock: AnswerClock,
    pub(in crate::node) counters: RegistrationCounters,
    /// For encoding.
    pub(in crate::node) payload: Vec<u8>,
    pub(in crate::node) detach: Vec<HolderId>,
    /// The lists of moves that are over, for those to come: empty, and as many as were ever under way at
    /// once.
    pub(in crate::node) spare_moves: Vec<PendingMove>,
    pub(in crate::node) spare_holders: Vec<Vec<HolderId>>,
}

/// A peer that was asked to give back what it does not use.
pub(in crate::node) struct PendingRecall {
    /// Since when it is waited for, once anybody has looked.
    since: Option<Nanos>,
    span: RecallSpan,
}

/// A move that this process has asked for.
#[derive(Default)]
pub(in crate::node) struct PendingMove {
    pub(in crate::node) serial: u32,
    pub(in crate::node) peer: Rank,
    pub(in crate::node) runs: Vec<Run>,
    pub(in crate::node) waiters: Vec<OpKey>,
    /// The grant whose key it asks for, if it does: then it asks for no runs.
    pub(in crate::node) grant: Option<GrantId>,
    /// The operation whose data went with it.
    pub(in crate::node) rider: Option<OpKey>,
    /// Since when it is waited for, where it gives something up for so little that what it takes is to be
    /// known.
    pub(in crate::node) since: Option<Nanos>,
    pub(in crate::node) span: Option<MoveSpan>,
}

/// A move that a peer has asked for.
pub(in crate::node) struct ServedMove {
    pub(in crate::node) peer: Rank,
    pub(in crate::node) id: MoveId,
    pub(in crate::node) holders: Vec<HolderId>,
    /// Registrations that it waits for.
    pub(in crate::node) pending: usize,
    /// How its data fared.
    pub(in crate::node) status: Status,
    /// It asks for the key of a grant of so many bytes: 0, if that has none for the peer.
    pub(in crate::node) grant: Option<u64>,
}

/// An operation, or a move that a peer has asked for, that waits for a registration.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum Waiter {
    Op(OpKey),
    Serve(usize),
}

impl Registration {
    pub(in crate::node) fn new(settings: Settings, ranks: u32) -> Registration {
        let table = Table::new(settings, ranks);
        // The bytes that its owner would let any rank hold that holds nothing yet.
        let limit = table.limit(0);
        Registration {
            table,
            hoses: Firehoses::new(settings.order, settings.bucket.bytes(), limit),
            settings,
            moves: Slab::new(),
            serves: Slab::new(),
            serial: 0,
            waiting: HashMap::new(),
            owed: BTreeMap::new(),
            early_revocations: EarlyRevocations::default(),
            revocations: Revocations::default(),
            recalled: BTreeMap::new(),
            wants_time: false,
            answer_clock: AnswerClock::default(),
            counters: RegistrationCounters::default(),
            payload: Vec::new(),
            detach: Vec::new(),
            spare_moves: Vec::new(),
            spare_holders: Vec::new(),
        }
    }

    /// Whether a peer may ask for this run: it is no longer than what one miss asks for, wherever its bytes
    /// begin, and lies in the address space. Beyond, the same memory would have another name, under which
    /// nobody revokes it.
    pub(in crate::node) fn may_ask(&self, run: Run) -> bool {
        let bucket = self.settings.bucket;
        u64::from(run.count) <= CHUNK_BYTES / bucket.bytes() + 2 && end_of(run) - 1 <= bucket.index(u64::MAX)
    }

    /// Bytes, at most, of a piece that can ride in a move, and for which it is weighed whether to ask for
    /// room.
    pub(in crate::node) fn small(&self, payload_max: usize) -> u64 {
        u64::from(self.settings.put_in_move_max).min(payload_max as u64 / 4)
    }

    /// Lists in `detach` what a move to `peer` gives up: what is owed, and what makes room.
    pub(in crate::node) fn give_up_for(&mut self, peer: Rank, most: usize) {
        let detach = &mut self.detach;
        detach.clear();
        if let Some(mut owed) = self.owed.remove(&peer) {
            if owed.len() > most {
                self.owed.insert(peer, owed.split_off(most));
            }
            detach.append(&mut owed);
        }
        self.hoses.make_room(peer, most, detach);
    }

    /// Whether a move to `peer` has not been answered.
    pub(in crate::node) fn asks(&self, peer: Rank) -> bool {
        self.moves.iter().any(|(_, asked)| asked.peer == peer)
    }

    /// The rights of `peer`'s that were revoked, have not come, and can come no more.
    pub(in crate::node) fn never_coming(&mut self, peer: Rank) -> Vec<HolderId> {
        if !self.early_revocations.has(peer) {
            return Vec::new();
        }
        let under_way = self.moves.iter().filter(|(_, asked)| asked.peer == peer);
        let oldest =
            under_way.map(|(_, asked)| asked.serial).max_by_key(|serial| self.serial.wrapping_sub(*serial));
        self.early_revocations.over(peer, oldest)
    }

    /// A peer gives a right up by itself, or was never given it. `false`: it has no such right.
    pub(in crate::node) fn give_up(&mut self, peer: Rank, holder: HolderId) -> bool {
        match self.revocations.give_up(peer, holder) {
            true => self.table.detach_reserving(peer, holder),
            false => self.table.detach(peer, holder),
        }
    }

    /// A peer answers that it uses a revoked right no more. `false`: none was revoked.
    pub(in crate::node) fn answered(&mut self, peer: Rank, holder: HolderId) -> bool {
        match self.revocations.answered(peer, holder) {
            Some(true) => self.table.free_name(holder),
            Some(false) => _ = self.table.detach(peer, holder),
            None => return false,
        }
        true
    }

    /// Forgets what was revoked of a peer that is gone, and all that it held.
    pub(in crate::node) fn drop_holder(&mut self, peer: Rank) {
        self.table.drop_peer(peer);
        let given_up = self.revocations.drop_holder(peer);
        given_up.into_iter().for_each(|holder| self.table.free_name(holder));
        if let Some(recalled) = self.recalled.remove(&peer) {
            recalled.span.lost();
        }
    }

    /// A peer is asked to give so many bytes back, of those that it does not use.
    pub(in crate::node) fn recall(&mut self, peer: Rank, bytes: u64) {
        let recalled = || PendingRecall { since: None, span: RecallSpan::begin(peer, bytes) };
        self.recalled.entry(peer).or_insert_with(recalled);
        self.wants_time = true;
    }

    /// A peer has answered that it gave back what it could.
    pub(in crate::node) fn recall_answered(&mut self, peer: Rank) {
        if let Some(recalled) = self.recalled.remove(&peer) {
            recalled.span.answered();
        }
        self.table.recall_answered(peer);
    }

    /// The holders that have not given back a right that was revoked.
    pub(in crate::node) fn owing(&self) -> BTreeSet<Rank> {
        self.revocations.owing()
    }

    /// Begins to wait for each peer that is not waited for yet. Says which peers have had `recall_within` to
    /// answer while answers were looked for, as they have just been or not, and when to look for the next.
    pub(in crate::node) fn late(&mut self, now: Nanos, looked: bool) -> (Vec<Rank>, Option<Nanos>) {
        self.wants_time = false;
        let within = self.settings.recall_within;
        let at_least = (within / LOOKS_PER_RECALL).max(TIME_PER_RIGHT);
        // A peer that is waited for from now on has nothing of the time since the last look.
        let since = self.answer_clock.by(now, at_least);
        if looked {
            self.answer_clock.look(now, at_least);
        }
        let clock = self.answer_clock.sum;
        let table = &self.table;
        // A peer that has given back as much by itself has answered.
        self.recalled.retain(|peer, recalled| {
            let owes = table.owes(*peer);
            if !owes {
                recalled.span.answered();
            }
            owes
        });
        let ends_of =
            |recalled: &mut PendingRecall| recalled.since.get_or_insert(since).saturating_add(within);
        let recalled = self.recalled.iter_mut().map(|(peer, recalled)| (*peer, ends_of(recalled)));
        let (mut late, mut next) = (Vec::new(), None);
        for (peer, ends) in self.revocations.ends(since, within).chain(recalled) {
            if ends <= clock {
                late.push(peer);
            } else {
                let at = now.saturating_add((ends - clock).min(at_least));
                next = Some(next.map_or(at, |n: Nanos| n.min(at)));
            }
        }
        (late, next)
    }

    /// Pieces of transfers that were held.
    pub(in crate::node) fn hits(&self) -> u64 {
        self.counters.hits + self.hoses.recent_hits()
    }

    /// Counts of both ends, peer by peer.
    pub(in crate::node) fn by_peer(&self) -> ByPeer {
        let ((ours, mut gone), (theirs, gone_too)) = (self.hoses.counters(), self.table.peer_counters());
        gone += gone_too;
        let mut peers: BTreeMap<Rank, PeerCounters> = BTreeMap::new();
        ours.chain(theirs).for_each(|(rank, counters)| *peers.entry(rank).or_default() += counters);
        ByPeer { peers: peers.into_iter().collect(), gone }
    }

    /// Whether what is counted of each peer makes what is counted in all.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(in crate::node) fn audit_by_peer(&self) -> Result<(), String> {
        let RegistrationCounters { misses, moves, served, .. } = self.counters;
        let hits = self.hits();
        let ((ours, mut gone), (theirs, gone_too)) = (self.hoses.counters(), self.table.peer_counters());
        gone += gone_too;
        let mut sum = gone;
        ours.chain(theirs).for_each(|(_, counters)| sum += counters);
        let recalls = self.table.counters().recalls;
        let counted = PeerCounters { hits, misses, moves, served, recalls, ..sum };
        if sum == counted {
            Ok(())
        } else {
            Err(format!("of all peers together {sum:?} is counted, by the node {counted:?}"))
        }
    }

    /// The buckets that hold `len` bytes from `offset` on.
    pub(in crate::node) fn buckets(&self, offset: u64, len: u64) -> Run {
        let (first, last) = (
            self.settings.bucket.index(offset),
            self.settings.bucket.index(offset.saturating_add(len.max(1) - 1)),
        );
        Run { first, count: u32::try_from(last - first + 1).unwrap_or(u32::MAX) }
    }
}
