//! Transfers to and from registered memory: one-sided on a hit, after a move on a miss, by message where
//! there is no room.
//!
//! A transfer goes in *parts*: as many pieces as are at hand, submitted as one operation of the transport.
//! Remote before local; a part in flight keeps its firehoses and registrations, a transfer that waits keeps
//! nothing of its peer's.

use super::by_grant::{WithoutKey, as_granted, without_key};
use super::state::{KeyedTransfer, OnComplete, Part};
use crate::limits::CHILDREN_MAX;
use crate::node::Node;
use crate::node::operations::Operations;
use crate::node::operations::op::OpKind;
use crate::node::operations::settling::Awaited;
use crate::node::registration::state::{CHUNK_BYTES, Registration, Waiter};
use crate::op_id::{OpId, OpKey};
use crate::path::{self, Access, Facts, Keys, Limits, Path};
use crate::registration::firehose::{Found, HoseId};
use crate::registration::{Key, RegId, Run, end_of};
use crate::wire::{self, Status};
use crate::{
    Direction, GrantId, KeyedPiece, Mechanism, MemId, OpError, Operation, Outcome, PathReason, Piece, Place,
    Rank, Submit, Tally, Transport,
};

/// Pieces, at most, of one part.
const PART_PIECES: usize = 32;

/// The next step of a transfer.
enum Next {
    /// Submit what has been gathered.
    Submit,
    /// Nothing, before something comes.
    Wait,
    /// Send this piece by message.
    ByMessage(Piece),
    /// Go on gathering.
    More,
}

pub(in crate::node) fn is_in_spaces(piece: &Piece) -> bool {
    piece.remote.mem == MemId::Space && piece.local.mem == MemId::Space
}

/// Whether a piece goes by key without being looked for: its remote end lies in the peer's space, or in a
/// grant.
pub(in crate::node) fn goes_as_given(piece: &Piece) -> bool {
    matches!(piece.remote.mem, MemId::Space | MemId::Grant(_)) && piece.local.mem == MemId::Space
}

/// The part of a piece that a firehose reaches.
struct Reached {
    /// The first byte of the peer's space that the key reaches, and where the piece begins there.
    base: u64,
    start: u64,
    /// Bytes from there to the end of what it reaches.
    room: u64,
    key: Key,
}

/// The firehose that reaches a place, if there is one.
fn find(registration: &Registration, peer: Rank, remote: Place) -> Found {
    match remote.in_grant() {
        None => registration.hoses.find(peer, registration.settings.bucket.index(remote.offset)),
        Some((grant, _)) => registration.hoses.find_granted(peer, grant),
    }
}

fn reach(registration: &Registration, hose: HoseId, remote: Place) -> Reached {
    if let Some((_, offset)) = remote.in_grant() {
        let (granted, key) = registration.hoses.reach_granted(hose).expect("it was found by a grant");
        let (base, room) = (granted.start, granted.len.saturating_sub(offset));
        return Reached { base, start: base.wrapping_add(offset), room, key };
    }
    let (run, key) = registration.hoses.reach(hose);
    let shift = registration.settings.bucket.bytes().trailing_zeros();
    // The end of the last bucket of all is 2^64: the differences wrap to what they should be.
    let room = (end_of(run) << shift).wrapping_sub(remote.offset);
    Reached { base: run.first << shift, start: remote.offset, room, key }
}

impl<T: Transport> Node<T> {
    /// Whether memory of this peer's space is reached by keys.
    pub(in crate::node) fn goes_by_key(&self, peer: Rank) -> bool {
        self.registration.is_some()
            && peer != self.core.rank
            && self.core.transport.is_keyed(peer)
            && !self.core.is_lost(peer)
    }

    /// The same piece with both ends in the processes' spaces, if it may go by key to this peer.
    pub(in crate::node) fn piece_in_spaces(&mut self, peer: Rank, piece: Piece) -> Option<Piece> {
        if is_in_spaces(&piece) {
            return Some(piece);
        }
        if self.goes_by_key(peer) { self.core.transport.in_spaces(peer, piece) } else { None }
    }

    /// Has an operation go by keys, of pieces between the processes' spaces.
    pub(in crate::node) fn start_keyed(
        &mut self,
        key: OpKey,
        (peer, direction): (Rank, Direction),
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
    ) {
        // A spare one that an earlier transfer has left, in most cases.
        let mut keyed =
            self.spare_keyed.pop().unwrap_or_else(|| Box::new(KeyedTransfer::new(peer, direction)));
        let (mut todo, mut pins) = (std::mem::take(&mut keyed.todo), std::mem::take(&mut keyed.pins));
        todo.clear();
        pins.clear();
        todo.extend(pieces.iter().rev().filter(|piece| piece.len > 0));
        *keyed = KeyedTransfer { todo, pins, on_complete, ..KeyedTransfer::new(peer, direction) };
        self.ops[key].kind = OpKind::Keyed(keyed);
        self.ready.push_back(key);
        self.run_actions();
    }

    /// Goes on with a transfer as far as it goes.
    pub(in crate::node) fn advance(&mut self, key: OpKey) {
        loop {
            let holds = self.mail.holds_back();
            let Some(keyed) = self.keyed(key) else { return };
            if keyed.error.is_some() || keyed.todo.is_empty() {
                if keyed.children == 0 {
                    self.end_keyed(key);
                }
                return;
            }
            if holds && keyed.direction == Direction::Put {
                self.mail.hold_put(key);
                return;
            }
            let mut part = self.spare_parts.pop().unwrap_or_default();
            let next = loop {
                match self.gather(key, &mut part) {
                    Next::More => {}
                    next => break next,
                }
            };
            if part.pieces.is_empty() {
                self.spare_parts.push(part);
            } else {
                self.submit_part(key, part);
            }
            match next {
                Next::Wait => return,
                Next::ByMessage(piece) => self.send_by_message(key, piece),
                Next::Submit | Next::More => {}
            }
        }
    }

    /// Adds one more piece to a part, if it is at hand.
    fn gather(&mut self, key: OpKey, part: &mut Part) -> Next {
        let Some(keyed) = self.keyed(key).filter(|_| part.pieces.len() < PART_PIECES) else {
            return Next::Submit;
        };
        let (peer, direction) = (keyed.peer, keyed.direction);
        let Some(&piece) = keyed.todo.last() else { return Next::Submit };
        let registration = self.registration.as_mut().expect("keyed transfers need one");
        let bucket = registration.settings.bucket;
        let hose = match find(registration, peer, piece.remote) {
            Found::Held(hose) => hose,
            found if part.pieces.is_empty() => return self.on_absent(key, piece, found),
            _ => return Next::Submit,
        };
        let Reached { base, start, room, key: remote_key } = reach(registration, hose, piece.remote);
        if room == 0 {
            // It is beyond the end of a grant, which its owner says.
            return if part.pieces.is_empty() { Next::ByMessage(piece) } else { Next::Submit };
        }
        let len = piece.len.min(room);
        // A piece that fits is copied whole, and never the beginning of one that does not.
        let (len, local) = if part.bytes + piece.len <= self.core.transport.unregistered_max(direction) {
            (len, None)
        } else {
            let wanted = bucket.index(piece.local.offset);
            let found = match registration.table.acquire(wanted) {
                None => acquire_once(registration, &self.ops, key, wanted),
                found => found,
            };
            match found {
                Some((reg, run)) => {
                    let to_edge =
                        (end_of(run) << bucket.bytes().trailing_zeros()).wrapping_sub(piece.local.offset);
                    (len.min(to_edge), Some(reg))
                }
                None if part.pieces.is_empty() => return self.on_unpinned(key, Piece { len, ..piece }),
                None => return Next::Submit,
            }
        };
        registration.counters.hits += 1;
        registration.hoses.acquire(hose);
        part.hoses.push(hose);
        part.locals.extend(local);
        part.bytes += len;
        let piece = Piece { remote: Place::new(MemId::Space, start), len, ..piece };
        part.pieces.push(KeyedPiece { piece, key: remote_key, base, local });
        self.take(key, len);
        Next::More
    }

    /// The next piece's first bucket is not held.
    fn on_absent(&mut self, key: OpKey, piece: Piece, found: Found) -> Next {
        if let Some((grant, _)) = piece.remote.in_grant() {
            return self.on_absent_key(key, (piece, grant), found);
        }
        let registration = self.registration.as_mut().expect("keyed transfers need one");
        let run = registration.buckets(piece.remote.offset, piece.len.min(CHUNK_BYTES));
        let small = registration.small(self.core.transport.payload_max());
        let budget = registration.settings.peers_bytes;
        let Some(keyed) = self.keyed(key) else { return Next::Wait };
        let (peer, direction, children) = (keyed.peer, keyed.direction, keyed.children);
        let alone = keyed.todo.len() == 1 && children == 0;
        let keys = match found {
            Found::Asked(_) => Keys::Pending,
            // It was asked for, and not given.
            _ if std::mem::take(&mut keyed.asked) || budget == 0 => Keys::Refused,
            _ => Keys::Absent { pays: piece.len > small || self.is_worth_asking(peer, run) },
        };
        let facts = Facts {
            wanted: direction.into(),
            bytes: piece.len,
            alone,
            memory: MemId::Space,
            access: Access::Keys(keys),
            limits: Limits { small, ..Limits::default() },
        };
        let path = path::choose(&facts).path;
        match (path, found) {
            (Path::Awaited, Found::Asked(by)) => {
                self.await_move(by, key);
                return Next::Wait;
            }
            (Path::Chunks, _) if keys == Keys::Refused => {
                return Next::ByMessage(self.refused(peer, piece, run));
            }
            (Path::Chunks, _) if children >= CHILDREN_MAX => return Next::Wait,
            _ => {}
        }
        if let Some(registration) = &mut self.registration {
            registration.counters.misses += 1;
            registration.hoses.count_miss(peer);
        }
        let rides = match path {
            Path::Asked { rides } => rides,
            _ => return Next::ByMessage(piece),
        };
        let Some(keyed) = self.keyed(key) else { return Next::Wait };
        keyed.asked = true;
        if rides {
            keyed.todo.pop();
            keyed.children += 1;
            keyed.riding = Some(piece);
            self.count(key, Mechanism::Message, piece.len);
        }
        self.ask(peer, run, key, rides.then_some(piece));
        Next::Wait
    }

    /// The key of the grant that the next piece lies in is not held.
    fn on_absent_key(&mut self, key: OpKey, next: (Piece, GrantId), found: Found) -> Next {
        let weighs = self.core.transport.now().is_some();
        let payload_max = self.core.transport.payload_max();
        let (Some(registration), Some(OpKind::Keyed(keyed))) =
            (&mut self.registration, self.ops.get_mut(key).map(|op| &mut op.kind))
        else {
            return Next::Wait;
        };
        let peer = keyed.peer;
        let small = registration.small(payload_max);
        match without_key(registration, keyed, next, found, (small, weighs)) {
            WithoutKey::Await(by) => self.await_move(by, key),
            WithoutKey::Ask => self.ask_for_key(peer, next.1, key),
            WithoutKey::Message => return Next::ByMessage(next.0),
            WithoutKey::Wait => {}
        }
        Next::Wait
    }

    /// Whether to ask for what lies around a small piece, or to send that by message.
    fn is_worth_asking(&self, peer: Rank, wanted: Run) -> bool {
        let Some(registration) = self.registration.as_ref().filter(|_| self.core.transport.now().is_some())
        else {
            return true;
        };
        let bytes = u64::from(wanted.count) * registration.settings.bucket.bytes();
        registration.hoses.is_worth_asking(peer, bytes)
    }

    /// The part of a piece that was asked for, in `wanted`, and not given: it ends where something is held or
    /// asked for again.
    fn refused(&self, peer: Rank, piece: Piece, wanted: Run) -> Piece {
        let registration = self.registration.as_ref().expect("keyed transfers need one");
        let other = |bucket: &u64| registration.hoses.find(peer, *bucket) != Found::Miss;
        let end = (wanted.first + 1..end_of(wanted)).find(other).unwrap_or(end_of(wanted));
        let bytes =
            (end << registration.settings.bucket.bytes().trailing_zeros()).wrapping_sub(piece.remote.offset);
        Piece { len: piece.len.min(bytes), ..piece }
    }

    /// The next piece's local end is not registered.
    fn on_unpinned(&mut self, key: OpKey, piece: Piece) -> Next {
        let Some(keyed) = self.keyed(key) else { return Next::Wait };
        let old = std::mem::take(&mut keyed.pins);
        let failed = std::mem::replace(&mut keyed.pinned, true);
        let registration = self.registration.as_mut().expect("keyed transfers need one");
        if old.iter().any(|reg| registration.table.is_pending(*reg)) {
            // One of several was settled.
            if let Some(keyed) = self.keyed(key) {
                keyed.pins = old;
            }
            return Next::Wait;
        }
        old.into_iter().for_each(|reg| registration.table.release(reg));
        let most = registration.settings.bucket.bytes() * u64::from(registration.settings.run_max);
        let wanted = registration.buckets(piece.local.offset, piece.len.min(CHUNK_BYTES.min(most)));
        let mut pins = Vec::new();
        if failed || registration.table.pin(wanted, &mut pins).is_err() {
            if let Some(keyed) = self.keyed(key) {
                keyed.pinned = false;
            }
            self.actions_due = true;
            return Next::ByMessage(Piece { len: piece.len.min(CHUNK_BYTES.min(most)), ..piece });
        }
        let mut waits = false;
        for reg in &pins {
            if registration.table.is_pending(*reg) {
                waits = true;
                registration.waiting.entry(*reg).or_default().push(Waiter::Op(key));
            }
        }
        if let Some(keyed) = self.keyed(key) {
            keyed.pins = pins;
        }
        if !waits {
            return Next::More;
        }
        self.actions_due = true;
        Next::Wait
    }

    fn submit_part(&mut self, parent: OpKey, mut part: Box<Part>) {
        self.count(parent, Mechanism::Registered, part.bytes);
        let Some(keyed) = self.keyed(parent) else { return };
        keyed.children += 1;
        let (peer, direction) = (keyed.peer, keyed.direction);
        part.peer = peer;
        let key = self.ops.insert_child(OpKind::Part(part), parent);
        let OpKind::Part(part) = &self.ops[key].kind else { unreachable!("inserted above") };
        match self.core.transport.copy_keyed(OpId::of(key), peer, direction, &part.pieces) {
            Submit::Pending => {}
            Submit::Done(_) => self.on_part(key, Ok(0)),
            Submit::Failed(error) => self.on_part(key, Err(error)),
            Submit::Unreachable(why) => self.on_part(key, Err(OpError::Unsupported { peer, why })),
        }
    }

    /// A part is over: neither end is touched by it any more.
    pub(in crate::node) fn on_part(&mut self, key: OpKey, result: Outcome) {
        let Some(op) = self.ops.remove(key) else { return };
        let OpKind::Part(mut part) = op.kind else { return };
        self.ops.has_settled(Awaited::Report(OpId::of(key)), None);
        let result = result.map_err(|error| as_granted(self.registration.as_deref(), &part, error));
        self.let_go(part.hoses.drain(..), part.locals.drain(..));
        part.pieces.clear();
        part.bytes = 0;
        self.spare_parts.push(part);
        if let Some(parent) = op.parent {
            self.on_child(parent, result);
        }
        self.run_actions();
    }

    fn let_go(&mut self, hoses: impl IntoIterator<Item = HoseId>, locals: impl IntoIterator<Item = RegId>) {
        hoses.into_iter().for_each(|hose| self.release_hose(hose));
        if let Some(registration) = &mut self.registration {
            locals.into_iter().for_each(|reg| registration.table.release(reg));
        }
    }

    /// Counts bytes of a transfer where they go, and the transfer where the first of them do.
    fn count(&mut self, key: OpKey, mechanism: Mechanism, bytes: u64) {
        let Some(keyed) = self.keyed(key) else { return };
        let operation = if keyed.direction == Direction::Put { Operation::Put } else { Operation::Get };
        let count = u64::from(!std::mem::replace(&mut keyed.counted, true));
        self.core.counters.add_many(operation, mechanism, Tally { count, bytes });
    }

    /// Sends a piece by message, for want of room.
    fn send_by_message(&mut self, parent: OpKey, piece: Piece) {
        self.take(parent, piece.len);
        self.count(parent, Mechanism::Message, piece.len);
        let Some(keyed) = self.keyed(parent) else { return };
        keyed.children += 1;
        let (peer, direction) = (keyed.peer, keyed.direction);
        let mut since = None;
        if let Some(registration) = &mut self.registration {
            registration.counters.bounced += 1;
            let is_small = piece.len <= registration.small(self.core.transport.payload_max());
            since = self.core.transport.now().filter(|_| is_small);
        }
        self.core.counters.add_why(PathReason::NoRoom, 1);
        let mut transfer = self.new_transfer(peer, direction, &[piece], None);
        transfer.since = since;
        let key = self.ops.insert_child(OpKind::ByMessage(transfer), parent);
        self.pump(key);
    }

    /// One child less: a part, a piece by message, data that rode in a move, or a bounce.
    pub(in crate::node) fn on_child(&mut self, parent: OpKey, result: Outcome) {
        let Some(keyed) = self.keyed(parent) else { return };
        assert!(keyed.children > 0, "a part ends once");
        keyed.children -= 1;
        if let Err(error) = result {
            keyed.error.get_or_insert(error);
        }
        self.ready.push_back(parent);
    }

    /// The data that rode in a move has arrived, or not.
    pub(in crate::node) fn on_ridden(&mut self, op: OpKey, peer: Rank, status: Option<Status>) {
        let Some(keyed) = self.keyed(op) else {
            self.ops.has_settled(Awaited::Ridden(op), Some(peer));
            return;
        };
        let Some(piece) = keyed.riding.take() else { return };
        let result = wire::chunk_result(status, peer, Direction::Put, piece.remote, piece.len).map(|()| 0);
        self.on_child(op, result);
    }

    fn end_keyed(&mut self, key: OpKey) {
        self.count(key, Mechanism::Registered, 0);
        let Some(keyed) = self.keyed(key) else { return };
        let (peer, error, on_complete) = (keyed.peer, keyed.error, keyed.on_complete.take());
        let pins = std::mem::take(&mut keyed.pins);
        self.let_go([], pins);
        self.actions_due = true;
        match error {
            None => self.conclude(key, peer, on_complete),
            Some(error) => self.ops.finish(key, Err(error)),
        }
    }

    /// Lets go of what a transfer holds that ends before its time; its parts go on without it. Adds what can
    /// still write of it to `awaited`.
    pub(in crate::node) fn abandon_keyed(&mut self, key: OpKey, awaited: &mut Vec<Awaited>) {
        self.count(key, Mechanism::Registered, 0);
        let Some(keyed) = self.keyed(key) else { return };
        awaited.extend(keyed.riding.map(|_| Awaited::Ridden(key)));
        let pins = std::mem::take(&mut keyed.pins);
        self.let_go([], pins);
        let children: Vec<OpKey> =
            self.ops.iter().filter(|(_, op)| op.parent == Some(key)).map(|(child, _)| child).collect();
        for child in children {
            if matches!(self.ops[child].kind, OpKind::Part(_)) {
                self.ops[child].parent = None;
                let writes = self.core.transport.abandon(OpId::of(child));
                awaited.extend(writes.then_some(Awaited::Report(OpId::of(child))));
            } else {
                self.abandon_transfer(child, awaited);
                self.ops.finish(child, Ok(0));
                self.ops.remove(child);
            }
        }
    }

    /// Takes bytes off a transfer's next piece.
    fn take(&mut self, key: OpKey, len: u64) {
        let Some(keyed) = self.keyed(key) else { return };
        let Some(piece) = keyed.todo.pop() else { return };
        if len < piece.len {
            keyed.todo.push(Piece {
                remote: piece.remote.plus(len),
                local: piece.local.plus(len),
                len: piece.len - len,
            });
        }
        (keyed.asked, keyed.pinned) = (false, false);
    }

    /// A transfer by keys that is not over.
    pub(in crate::node) fn keyed(&mut self, key: OpKey) -> Option<&mut KeyedTransfer> {
        match self.ops.get_mut(key) {
            Some(op) if op.outcome.is_none() => match &mut op.kind {
                OpKind::Keyed(keyed) => Some(keyed),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Refers to what a transfer has had registered for itself, if it covers the bucket.
#[cold]
fn acquire_once(
    registration: &mut Registration,
    ops: &Operations,
    key: OpKey,
    bucket: u64,
) -> Option<(RegId, Run)> {
    let Some(OpKind::Keyed(keyed)) = ops.get(key).map(|op| &op.kind) else { return None };
    keyed.pins.iter().find_map(|reg| registration.table.acquire_once(*reg, bucket))
}
