//! Messages of simulated nodes, and the lanes that they take.

use engine::wire::{self, BounceAct};
use engine::{Header, Lane, Nanos, Rank};

use crate::causality::CausalHistory;

/// A message on its way, or waiting to be taken.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
    /// How many processes had these ranks before those that it is from and for.
    pub(crate) incarnations: (u32, u32),
    pub(crate) lane: Lane,
    /// Its place in the world's traffic.
    pub(crate) traffic: u32,
    /// Whether it is on its way or waits to be taken.
    pub(crate) is_open: bool,
    /// When its last byte left the sender; [`Nanos::MAX`]: it gathers.
    pub(crate) left: Nanos,
    pub(crate) header: [u64; Header::WORDS],
    /// Not given back: as a message that was taken, it has room for one to come.
    pub(crate) payload: Vec<u8>,
    /// Changes to memory that its receiver's program learns of by it.
    pub(crate) told: CausalHistory,
}

impl Message {
    /// Whether its receiver stores bytes when it takes the message, which its sender may have given up.
    pub(crate) fn stores(&self) -> bool {
        match wire::Message::decode(&self.header, self.payload.len()) {
            Ok(wire::Message::Put(_) | wire::Message::PutSignal(..)) => true,
            Ok(wire::Message::Move(asked)) => asked.rider.is_some(),
            Ok(wire::Message::Bounce(asked)) => asked.act == BounceAct::Drain,
            _ => false,
        }
    }
}

/// The messages of one lane from one rank to another.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The place of the replies' lane the other way, once it was looked for.
    pub(crate) replies: Option<u32>,
    /// Sent and not taken.
    pub(crate) held: u32,
    /// Whether the sender has found it full since.
    pub(crate) found_full: bool,
    /// When the last one arrives.
    pub(crate) last: Nanos,
}

/// A lane among those from one rank.
pub(crate) fn lane_number(to: Rank, lane: Lane) -> usize {
    to as usize * 2 + usize::from(lane == Lane::Reply)
}

/// The lane has no place in the world's traffic yet.
pub(crate) const NEVER_USED: u32 = u32::MAX;
