//! A transport for the tests of single parts: lanes with as much room as a test says, and nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::core::Core;
use crate::wire::Message;
use crate::{Atomic, Event, Header, Inbox, Lane, OpError, OpId, Place, Rank, SendError, Submit, Transport};

/// Lanes to peers.
#[derive(Default)]
pub(super) struct Lanes {
    /// Messages that a lane still takes. Where nothing is said it has no end.
    pub(super) room: BTreeMap<(Rank, Lane), usize>,
    /// Peers that cannot be reached.
    pub(super) cut_off: BTreeSet<Rank>,
    /// Messages that have gone, in turn.
    pub(super) sent: Vec<(Rank, Lane, Message)>,
    /// Atomics that have not been done: the test does them, and reports.
    pub(super) atomics: VecDeque<(OpId, Atomic)>,
}

/// Of rank 0 in a job of four.
pub(super) fn core() -> Core<Lanes> {
    core_of(0, 4)
}

pub(super) fn core_of(rank: Rank, size: u32) -> Core<Lanes> {
    Core::new(rank, size, Lanes::default())
}

impl Lanes {
    /// Messages that have gone since the last call.
    pub(super) fn take_sent(&mut self) -> Vec<(Rank, Lane, Message)> {
        std::mem::take(&mut self.sent)
    }
}

impl Transport for Lanes {
    fn send(
        &mut self,
        peer: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if self.cut_off.contains(&peer) {
            return Err(SendError::Failed(OpError::PeerLost { peer }));
        }
        if let Some(room) = self.room.get_mut(&(peer, lane)) {
            *room = room.checked_sub(1).ok_or(SendError::Busy)?;
        }
        let message = Message::decode(header, payload.len()).expect("the engine sends messages");
        self.sent.push((peer, lane, message));
        Ok(())
    }

    fn has_room(&mut self, peer: Rank, lane: Lane) -> bool {
        self.room.get(&(peer, lane)) != Some(&0)
    }

    fn poll(&mut self, _: &mut Inbox) -> Option<Event> {
        None
    }

    fn atomic(&mut self, op: OpId, _: Rank, _: Place, atomic: Atomic) -> Submit {
        self.atomics.push_back((op, atomic));
        Submit::Pending
    }

    fn payload_max(&self) -> usize {
        64
    }

    fn read(&mut self, _: Place, into: &mut [u8]) -> Result<(), OpError> {
        into.fill(0);
        Ok(())
    }

    fn write(&mut self, _: Place, _: &[u8]) -> Result<(), OpError> {
        Ok(())
    }
}
