//! What lies between the nodes: lanes with messages in flight, and one-sided operations under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::{
    Atomic, Direction, Event, Header, Inbox, Lane, Nanos, OpError, OpId, Piece, Place, Rank, SendError,
};

use super::Settings;
use super::space::Space;
use crate::bench::Dice;

/// Steps that a message, or a part of a copy, takes at most.
const DELAY_MAX: u64 = 8;

struct Flying {
    due: Nanos,
    header: [u64; Header::WORDS],
    payload: Vec<u8>,
}

/// What a pending one-sided operation has still to do.
enum Work {
    Copy(Direction, Vec<Piece>),
    Atomic(Place, Atomic),
    Report(Result<u64, OpError>),
}

struct Pending {
    op: OpId,
    from: Rank,
    peer: Rank,
    due: Nanos,
    work: Work,
}

pub(super) struct World {
    settings: Settings,
    dice: Dice,
    clock: Nanos,
    spaces: Vec<Space>,
    /// By (receiver, sender, is a reply).
    lanes: BTreeMap<(Rank, Rank, bool), VecDeque<Flying>>,
    pending: Vec<Pending>,
    dead: BTreeSet<Rank>,
}

fn lane_key(to: Rank, from: Rank, lane: Lane) -> (Rank, Rank, bool) {
    (to, from, lane == Lane::Reply)
}

impl World {
    pub(super) fn new(size: u32, settings: Settings) -> World {
        World {
            settings,
            dice: Dice::new(settings.seed),
            clock: 0,
            spaces: (0..size).map(|_| Space::new()).collect(),
            lanes: BTreeMap::new(),
            pending: Vec::new(),
            dead: BTreeSet::new(),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock
    }

    pub(super) fn space(&mut self, rank: Rank) -> &mut Space {
        &mut self.spaces[rank as usize]
    }

    pub(super) fn is_dead(&self, rank: Rank) -> bool {
        self.dead.contains(&rank)
    }

    /// Time passes, and whatever pending operations are due for is done.
    pub(super) fn step(&mut self) {
        self.clock += 1;
        for index in 0..self.pending.len() {
            if self.pending[index].due <= self.clock {
                self.work(index);
            }
        }
    }

    /// Ends a rank: its memory is out of reach, and the last of what it has sent is lost.
    pub(super) fn kill(&mut self, rank: Rank) {
        self.dead.insert(rank);
        self.lanes.retain(|(to, _, _), _| *to != rank);
        for ((_, from, _), lane) in &mut self.lanes {
            if *from == rank {
                lane.truncate(self.dice.below(lane.len() as u64 + 1) as usize);
            }
        }
    }

    fn delay(&mut self) -> Nanos {
        self.clock + self.dice.below(DELAY_MAX)
    }

    pub(super) fn send(
        &mut self,
        from: Rank,
        to: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        assert!(payload.len() <= self.settings.payload_max, "{} bytes in one message", payload.len());
        if to as usize >= self.spaces.len() {
            return Err(SendError::Failed(OpError::PeerLost { peer: to }));
        }
        let (due, full) = (self.delay(), self.settings.lane_messages);
        let queue = self.lanes.entry(lane_key(to, from, lane)).or_default();
        if queue.len() >= full {
            return Err(SendError::Busy);
        }
        queue.push_back(Flying { due, header: *header, payload: payload.to_vec() });
        Ok(())
    }

    fn has_room(&self, to: Rank, from: Rank, lane: Lane) -> bool {
        self.lanes.get(&lane_key(to, from, lane)).is_none_or(|q| q.len() < self.settings.lane_messages)
    }

    /// Takes a message that has arrived at `rank`. Which of the lanes that have one goes first is left to the
    /// dice.
    pub(super) fn receive(&mut self, rank: Rank, inbox: &mut Inbox) -> Option<Event> {
        let ready: Vec<_> = self
            .lanes
            .range((rank, 0, false)..=(rank, Rank::MAX, true))
            .filter(|(_, queue)| queue.front().is_some_and(|message| message.due <= self.clock))
            .map(|(key, _)| *key)
            .filter(|(_, from, reply)| *reply || self.has_room(*from, rank, Lane::Reply))
            .collect();
        let key = *ready.get(self.dice.below(ready.len().max(1) as u64) as usize)?;
        let message = self.lanes.get_mut(&key)?.pop_front()?;
        *inbox = Inbox { header: message.header, payload: message.payload };
        let lane = if key.2 { Lane::Reply } else { Lane::Request };
        Some(Event::Message { peer: key.1, lane })
    }

    /// Copies one piece; `Err` names the end that was at fault.
    pub(super) fn copy(
        &mut self,
        rank: Rank,
        peer: Rank,
        direction: Direction,
        piece: &Piece,
    ) -> Result<(), OpError> {
        let len = piece.len as usize;
        let local = OpError::LocalFault { mem: piece.local.mem, addr: piece.local.offset, len: piece.len };
        let remote =
            OpError::Fault { peer, mem: piece.remote.mem, addr: piece.remote.offset, len: piece.len };
        let (from, to) = match direction {
            Direction::Put => ((rank, piece.local, local), (peer, piece.remote, remote)),
            Direction::Get => ((peer, piece.remote, remote), (rank, piece.local, local)),
        };
        let bytes = self.space(from.0).readable(from.1, len).ok_or(from.2)?.to_vec();
        self.space(to.0).writable(to.1, len).ok_or(to.2)?.copy_from_slice(&bytes);
        Ok(())
    }

    pub(super) fn apply(&mut self, peer: Rank, word: Place, atomic: Atomic) -> Result<u64, OpError> {
        let fault = OpError::Fault { peer, mem: word.mem, addr: word.offset, len: 8 };
        self.space(peer).apply(word, atomic).ok_or(fault)
    }

    pub(super) fn start_copy(
        &mut self,
        op: OpId,
        from: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) {
        let due = self.delay();
        let pieces = pieces.iter().filter(|piece| piece.len > 0).copied().collect();
        self.pending.push(Pending { op, from, peer, due, work: Work::Copy(direction, pieces) });
    }

    pub(super) fn start_atomic(&mut self, op: OpId, from: Rank, peer: Rank, word: Place, atomic: Atomic) {
        let due = self.delay();
        self.pending.push(Pending { op, from, peer, due, work: Work::Atomic(word, atomic) });
    }

    pub(super) fn abandon(&mut self, op: OpId, from: Rank) {
        let abandoned = self.pending.iter_mut().filter(|pending| (pending.op, pending.from) == (op, from));
        abandoned.for_each(|pending| pending.work = Work::Report(Ok(0)));
    }

    /// The next report of a pending operation of `rank`.
    pub(super) fn completed(&mut self, rank: Rank) -> Option<Event> {
        let clock = self.clock;
        let index = self.pending.iter().position(|pending| {
            pending.from == rank && pending.due <= clock && matches!(pending.work, Work::Report(_))
        })?;
        let Pending { op, work: Work::Report(result), .. } = self.pending.swap_remove(index) else {
            unreachable!("the position's predicate asks for a report")
        };
        Some(Event::Completed { op, result })
    }

    /// Copies half of what is left, in any order.
    fn copy_half(
        &mut self,
        rank: Rank,
        peer: Rank,
        direction: Direction,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), OpError> {
        for _ in 0..pieces.len().div_ceil(2) {
            let piece = pieces.swap_remove(self.dice.below(pieces.len() as u64) as usize);
            self.copy(rank, peer, direction, &piece)?;
        }
        Ok(())
    }

    /// Does the next part of a pending operation. With a dead peer nothing happens any more, not even a
    /// report.
    fn work(&mut self, index: usize) {
        let (from, peer) = (self.pending[index].from, self.pending[index].peer);
        if self.is_dead(peer) || self.is_dead(from) {
            return;
        }
        let due = self.delay();
        let work = std::mem::replace(&mut self.pending[index].work, Work::Report(Ok(0)));
        let next = match work {
            Work::Copy(direction, mut pieces) if !pieces.is_empty() => {
                match self.copy_half(from, peer, direction, &mut pieces) {
                    Ok(()) => Work::Copy(direction, pieces),
                    Err(error) => Work::Report(Err(error)),
                }
            }
            Work::Copy(..) => Work::Report(Ok(0)),
            Work::Atomic(word, atomic) => Work::Report(self.apply(peer, word, atomic)),
            report @ Work::Report(_) => {
                self.pending[index].work = report;
                return;
            }
        };
        self.pending[index].work = next;
        self.pending[index].due = due;
    }
}
