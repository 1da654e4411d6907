//! What the study's processes are told to measure, and what they tell of it.

use serde::{Deserialize, Serialize};

/// What a job is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Layers, by their names, and what they are measured beside.
    pub(super) layers: Vec<String>,
    /// Bytes of a message, each.
    pub(super) sizes: Vec<usize>,
    /// Rounds, in each of which every layer has its turn with every size.
    pub(super) rounds: u32,
    /// Messages there and back that are timed together, of the smallest size.
    pub(super) turns: u32,
    /// Messages in a row that are timed together, of the smallest size.
    pub(super) burst: u32,
    /// The bytes of a burst of long messages.
    pub(super) burst_bytes: usize,
}

/// A burst has so many messages at least.
const BURST_MIN: usize = 4;

/// Overheads are taken of messages up to this size, which layers buffer, and of so many in a row, which none
/// keeps waiting for.
pub(super) const BUFFERED_MAX: usize = 4096;
pub(super) const BUFFERED: u32 = 8;

impl Plan {
    /// Messages there and back that are timed together.
    pub(super) fn turns_of(&self, size: usize) -> u32 {
        let fewer = 1 + size as u64 / BUFFERED_MAX as u64;
        ((u64::from(self.turns) / fewer) as u32).max(BURST_MIN as u32)
    }

    /// Messages in a row that are timed together.
    pub(super) fn burst_of(&self, size: usize) -> u32 {
        let most = self.burst_bytes / size.max(1);
        (most.clamp(BURST_MIN, BURST_MIN.max(self.burst as usize))) as u32
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    /// Half of a message there and back, in ns.
    Latency,
    /// A message in one call of many, in ns.
    OverheadSend,
    /// The same of taking a message that is there, in ns.
    OverheadReceive,
    /// From one message to the next of a burst, in ns.
    Gap,
    /// The same, where both send.
    GapBoth,
    /// The same, at one receiver of several senders.
    GapMany,
    /// Bytes that were copied at the sender for a byte that was sent.
    CopiesSend,
    /// The same at the receiver.
    CopiesReceive,
}

/// One figure of one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) layer: String,
    pub(super) size: usize,
    pub(super) measure: Measure,
    pub(super) value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::survive;

    #[test]
    fn long_messages_are_fewer_and_never_none() {
        let plan =
            Plan { layers: vec![], sizes: vec![], rounds: 1, turns: 500, burst: 1000, burst_bytes: 1 << 22 };
        assert_eq!((plan.turns_of(8), plan.turns_of(1 << 20)), (500, 4));
        assert_eq!([0, 8, 4096, 1 << 20, 1 << 30].map(|size| plan.burst_of(size)), [1000, 1000, 1000, 4, 4]);
    }

    #[test]
    fn figures_arrive() {
        let figure = |measure| Figure { layer: "gam".into(), size: 8, measure, value: 0.25 };
        survive(vec![figure(Measure::Latency), figure(Measure::CopiesReceive)]);
    }
}
