//! Puts and gets: one-sided where the transport can, by messages where it cannot.

use super::keyed;
use super::state::{HeldStart, OnComplete};
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::node::operations::settling::Awaited;
use crate::op_id::{OpId, OpKey};
use crate::path::{self, Access, Choice, Facts, Keys, Limits, Path, Wanted};
use crate::wire::Message;
use crate::{
    Direction, Mechanism, MemId, Nanos, OpError, Operation, PathReason, Piece, Place, Rank, Submit, Transport,
};

/// The pieces of a transfer by keys, as they lie in the processes' spaces.
enum InSpaces {
    AsGiven,
    /// Most transfers have one, and need no list.
    One(Piece),
    Many(Vec<Piece>),
}

impl InSpaces {
    fn of<'a>(&'a self, given: &'a [Piece]) -> &'a [Piece] {
        match self {
            InSpaces::AsGiven => given,
            InSpaces::One(piece) => std::slice::from_ref(piece),
            InSpaces::Many(pieces) => pieces,
        }
    }
}

impl<T: Transport> Node<T> {
    /// Ends a transfer whose bytes lie in place, once what comes after them is done.
    pub(in crate::node) fn conclude(&mut self, key: OpKey, peer: Rank, on_complete: Option<OnComplete>) {
        match on_complete {
            None => self.ops.finish(key, Ok(0)),
            Some(OnComplete::Notify(lane, am)) => {
                let told = self.mail.send_soon(&mut self.core, peer, lane, Message::Am(am));
                self.ops.finish(key, told.map(|()| 0));
            }
            Some(OnComplete::Signal(word, atomic)) => {
                self.ops[key].kind = OpKind::OneSided { peer, on_complete: None };
                self.start_atomic(key, peer, word, atomic);
            }
        }
    }

    /// Starts the puts and atomics that were held back, and have not ended since.
    pub(in crate::node) fn submit_held(&mut self, held: Vec<(OpKey, HeldStart)>) {
        for (key, start) in held {
            let waiting = self.ops.get(key).filter(|op| op.outcome.is_none());
            let Some(peer) = waiting.map(|op| op.kind.peer()) else { continue };
            match start {
                HeldStart::Atomic(word, atomic) => self.submit_atomic(key, peer, word, atomic),
                HeldStart::Put(pieces, on_complete) => {
                    let (choice, _) = self.path(peer, Direction::Put, &pieces, on_complete);
                    self.submit(key, peer, Direction::Put, &pieces, on_complete, choice);
                }
            }
        }
    }

    /// Starts a transfer that has a place among operations of all kinds.
    #[inline(never)]
    pub(in crate::node) fn start_transfer(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        deadline: Option<Nanos>,
        on_complete: Option<OnComplete>,
    ) -> OpId {
        let key = self.ops.insert(OpKind::OneSided { peer, on_complete: None }, deadline);
        self.start_as(key, (peer, direction), pieces, on_complete);
        OpId::of(key)
    }

    /// Starts a transfer as this operation, which may be another's part.
    pub(in crate::node) fn start_as(
        &mut self,
        key: OpKey,
        (peer, direction): (Rank, Direction),
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
    ) {
        if self.core.is_lost(peer) {
            return self.ops.finish(key, Err(OpError::PeerLost { peer }));
        }
        let (choice, in_spaces) = self.path(peer, direction, pieces, on_complete);
        if choice.path == Path::Registered {
            return self.start_keyed(key, (peer, direction), in_spaces.of(pieces), on_complete);
        }
        if direction == Direction::Put && self.mail.holds_back() {
            // A peer that looks at what is put may know of what this process did before.
            self.mail.hold_start(key, HeldStart::Put(pieces.to_vec(), on_complete));
        } else {
            self.submit(key, peer, direction, pieces, on_complete, choice);
        }
    }

    /// The path of a transfer, and its pieces as they lie in the processes' spaces, where they go by key and
    /// do not lie there as they are given.
    fn path(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
    ) -> (Choice, InSpaces) {
        let is_short = |piece: &Piece| self.cut_chunk(*piece).1.is_none();
        let wanted = match (direction, on_complete) {
            (Direction::Put, Some(OnComplete::Signal(word, _))) => Wanted::PutSignal {
                one_message: word.mem == MemId::Heap
                    && matches!(pieces, [piece] if is_short(piece))
                    && self.core.transport.signals_by_message(peer),
            },
            _ => direction.into(),
        };
        let (mut access, mut in_spaces) = (Access::No(PathReason::Network), InSpaces::AsGiven);
        if wanted != (Wanted::PutSignal { one_message: true }) {
            (access, in_spaces) = self.access(peer, pieces);
        }
        let direct_min = if access == Access::Direct { self.core.transport.direct_min(peer) } else { 0 };
        // A transfer by messages looks at its pieces one by one.
        let facts = Facts {
            wanted,
            bytes: pieces.iter().map(|piece| piece.len).fold(0, u64::saturating_add),
            alone: pieces.len() == 1,
            memory: MemId::Heap,
            access,
            limits: Limits { direct_min, ..Limits::default() },
        };
        (path::choose(&facts), in_spaces)
    }

    /// Whether the path of a transfer is that of registered memory.
    pub(in crate::node) fn goes_registered(
        &mut self,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
    ) -> bool {
        self.path(peer, direction, pieces, None).0.path == Path::Registered
    }

    /// How the peer's ends of these pieces are reached, and where that is by key, the pieces in the
    /// processes' spaces, if they are given otherwise.
    fn access(&mut self, peer: Rank, pieces: &[Piece]) -> (Access, InSpaces) {
        if self.goes_by_key(peer)
            && let Some(found) = self.pieces_in_spaces(peer, pieces)
        {
            return (Access::Keys(Keys::Held), found);
        }
        match self.core.transport.reaches(peer, pieces) {
            Ok(()) => (Access::Direct, InSpaces::AsGiven),
            Err(why) => (Access::No(why), InSpaces::AsGiven),
        }
    }

    /// Pieces with both ends in the processes' spaces, or granted there. `None`: not all of them are.
    fn pieces_in_spaces(&mut self, peer: Rank, pieces: &[Piece]) -> Option<InSpaces> {
        if pieces.iter().all(keyed::goes_as_given) {
            return Some(InSpaces::AsGiven);
        }
        let mut find = |piece: &Piece| match piece.remote.mem {
            _ if keyed::goes_as_given(piece) => Some(*piece),
            // The peer's key for a grant says where that lies: the local end alone is looked for.
            MemId::Grant(_) => {
                let anywhere = Piece { remote: Place::new(MemId::Space, 0), ..*piece };
                let found = self.core.transport.in_spaces(peer, anywhere)?;
                Some(Piece { remote: piece.remote, ..found })
            }
            _ => self.core.transport.in_spaces(peer, *piece),
        };
        match pieces {
            [piece] => find(piece).map(InSpaces::One),
            _ => pieces.iter().map(find).collect::<Option<_>>().map(InSpaces::Many),
        }
    }

    /// Starts a transfer that does not go by key.
    fn submit(
        &mut self,
        key: OpKey,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
        Choice { path, why }: Choice,
    ) {
        if path != Path::Direct {
            self.core.counters.add_why(why.unwrap_or(PathReason::Network), 1);
            return self.by_message(key, peer, direction, pieces, on_complete);
        }
        match self.core.transport.copy(OpId::of(key), peer, direction, pieces) {
            Submit::Done(_) => self.conclude(key, peer, on_complete),
            Submit::Pending => {
                self.ops[key].kind = OpKind::OneSided { peer, on_complete: on_complete.map(Box::new) };
            }
            Submit::Failed(error) => self.ops.finish(key, Err(error)),
            // Since it was looked at.
            Submit::Unreachable(why) => {
                self.core.counters.add_why(why, 1);
                self.by_message(key, peer, direction, pieces, on_complete);
            }
        }
    }

    /// The rest of a copy goes by message.
    pub(in crate::node) fn on_unreachable(&mut self, id: OpId, why: PathReason) {
        let unreached = self.core.transport.take_unreached(id);
        let Some(op) = self.ops.under_way(id.key()) else {
            self.ops.has_settled(Awaited::Report(id), None);
            return;
        };
        let Some((direction, pieces)) = unreached else { return };
        let OpKind::OneSided { peer, on_complete } = &mut op.kind else { return };
        let (peer, on_complete) = (*peer, on_complete.take().map(|on_complete| *on_complete));
        self.core.counters.add_why(why, 1);
        self.by_message(id.key(), peer, direction, &pieces, on_complete);
    }

    fn by_message(
        &mut self,
        key: OpKey,
        peer: Rank,
        direction: Direction,
        pieces: &[Piece],
        on_complete: Option<OnComplete>,
    ) {
        let operation = match direction {
            Direction::Put => Operation::Put,
            Direction::Get => Operation::Get,
        };
        self.core.counters.add(operation, Mechanism::Message, pieces.iter().map(|p| p.len).sum());
        let transfer = self.new_transfer(peer, direction, pieces, on_complete);
        self.ops[key].kind = OpKind::ByMessage(transfer);
        self.pump(key);
    }
}
