//! A small message-passing interface on PM, with the protocol of MPICH-PM.
//!
//! A short message goes at once, and is copied at its receiver. Of a long one only a *request* goes, with its
//! length. The receive that matches it locks its memory and *replies* with the handle. The sender locks its
//! own, *writes*, waits until that is done, and says so (*done*); both unlock, and the pin-down cache keeps
//! the memory for the next time \[the flow: recalled\].
//!
//! Sends that hold what receives need, in a circle over processes, would stop for ever. The cure is that of
//! the MPICH-PM papers: sends and receives have shares of their own, and what cannot lock waits in a delayed
//! queue. A message longer than a share goes in parts. Where even a whole share cannot be locked, as others
//! have locked the memory or nothing is registered here, it goes in pieces through PM's buffers.

mod messages;
mod outbox;
mod packet;
mod pool;
mod receives;
mod sends;

use std::collections::{HashMap, VecDeque};

use standpipe::Rank;

use self::messages::{Receive, Send, Unexpected};
use self::packet::Packet;
use self::pool::Pool;
use super::{Context, Handle, Pm, PmError};

/// Messages of at most so many bytes are sent at once.
pub const EAGER_MAX: usize = 4096;

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its sender.
    pub source: Rank,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub len: usize,
}

/// A send or a receive that was begun, until its result has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request(u64);

/// How much went in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MpiCounters {
    /// Messages that went at once.
    pub eager: u64,
    /// Parts of messages that were written to their place.
    pub written: u64,
    /// Parts of messages that went in pieces.
    pub in_pieces: u64,
    /// Operations that waited in a delayed queue: each once for each part that it waited with.
    pub delayed: u64,
    /// Packets of peers that fitted nothing.
    pub refused: u64,
}

/// The interface of one process, on a context that nobody else uses. All calls take the PM that the context
/// is of.
pub struct Mpi {
    context: Context,
    next: u64,
    /// Packets that no buffer was free for.
    outbox: VecDeque<(Rank, Vec<u8>)>,
    sends: HashMap<u64, Send>,
    send_pool: Pool,
    /// In the order in which they were posted.
    receives: Vec<Receive>,
    receive_pool: Pool,
    unexpected: VecDeque<Unexpected>,
    ended: HashMap<u64, Result<Status, PmError>>,
    counters: MpiCounters,
    broken: Option<PmError>,
}

impl Mpi {
    /// Begins, with so many bytes that sends, and receives, may have locked at a time.
    pub fn new(context: Context, send_bytes: u64, receive_bytes: u64) -> Mpi {
        Mpi {
            context,
            next: 1,
            outbox: VecDeque::new(),
            sends: HashMap::new(),
            send_pool: Pool::new(send_bytes),
            receives: Vec::new(),
            receive_pool: Pool::new(receive_bytes),
            unexpected: VecDeque::new(),
            ended: HashMap::new(),
            counters: MpiCounters::default(),
            broken: None,
        }
    }

    /// How much went in which way.
    pub fn counters(&self) -> MpiCounters {
        self.counters
    }

    /// The result of a send or receive, once it has ended; makes progress. `None`: not yet. A message longer
    /// than its receive ends that with [`PmError::Invalid`], and one that its sender cannot send with
    /// [`PmError::Io`]; a lost peer ends all with [`PmError::Reset`]. A request whose result has been taken,
    /// or which is none, gives [`PmError::Invalid`].
    pub fn test(&mut self, pm: &mut Pm, request: Request) -> Option<Result<Status, PmError>> {
        if !self.ended.contains_key(&request.0) {
            self.progress(pm);
        }
        let result = self.ended.remove(&request.0).or_else(|| self.broken.map(Err));
        result.or_else(|| (!self.is_under_way(request.0)).then_some(Err(PmError::Invalid)))
    }

    fn is_under_way(&self, id: u64) -> bool {
        self.sends.contains_key(&id) || self.receives.iter().any(|receive| receive.id == id)
    }

    /// Waits for the result of a send or receive.
    ///
    /// # Errors
    /// As [`Mpi::test`] tells.
    pub fn wait(&mut self, pm: &mut Pm, request: Request) -> Result<Status, PmError> {
        loop {
            if let Some(result) = self.test(pm, request) {
                return result;
            }
        }
    }

    /// Goes on with everything: takes packets, grants and writes parts. Never waits.
    pub fn progress(&mut self, pm: &mut Pm) {
        self.take_packets(pm);
        self.grant(pm);
        self.write_parts(pm);
        self.finish_writes(pm);
        self.send_pieces(pm);
        self.empty_outbox(pm);
    }

    fn take_packets(&mut self, pm: &mut Pm) {
        loop {
            let (at, len) = match pm.receive(self.context) {
                Ok(received) => received,
                Err(PmError::NoBuffers) => return,
                // A message that PM has refused is none of this protocol's.
                Err(PmError::Io) => continue,
                Err(error) => {
                    self.broken = Some(error);
                    return;
                }
            };
            let from = pm.sender(self.context);
            let mut bytes = vec![0; len];
            pm.memory.read(at, &mut bytes);
            let is_released = pm.release(self.context).is_ok();
            debug_assert!(is_released, "it was received above");
            let is_taken = match (Packet::parse(&bytes), from) {
                (Some((packet, data)), Some(from)) => self.take(pm, from, packet, data),
                _ => false,
            };
            self.counters.refused += u64::from(!is_taken);
        }
    }

    /// Acts on a packet: whether it fits anything.
    fn take(&mut self, pm: &mut Pm, from: Rank, packet: Packet, data: &[u8]) -> bool {
        match packet {
            Packet::Eager { tag } => self.take_eager(pm, from, tag, data),
            Packet::Request { tag, send, len } => self.take_request(pm, from, tag, (send, len)),
            Packet::Reply { send, receive, handle, len } => {
                self.take_reply(from, send, receive, Handle(handle), len)
            }
            Packet::Done { receive, len } => self.take_done(pm, from, receive, len),
            Packet::Piece { receive } => self.take_piece(pm, from, receive, data),
            Packet::Failed { receive } => self.take_failed(pm, from, receive),
        }
    }
}
