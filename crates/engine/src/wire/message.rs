//! All messages, and the one place where they become words and come out of them again.

use super::am::{Am, stamp_of_token, stamp_to_token};
use super::atomics::{AtomicAsk, AtomicDone};
use super::chunk::{
    BounceAct, BounceAsk, Bounced, Chunk, ChunkDone, Signal, buffer_from_wire, buffer_to_wire,
};
use super::grants::{GrantAsk, GrantIs, KeyAsk, KeyIs};
use super::handlers::{HandlerAsk, HandlerIs};
use super::header::{Header, Kind, WireError};
use super::moves::{Move, Moved, Release};
use super::team::TeamMessage;
use crate::collective::TeamId;
use crate::registration::table::HolderId;
use crate::{Direction, Rank};

/// A message, but for its payload.
///
/// Peers are hostile. A field that is an `Option` because a peer may have written nonsense there says so. The
/// nonsense is `None`, which is never sent, and the message's handler knows how to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// For a handler of the program's.
    Am(Am),
    /// The handler of an Active Message with this stamp has run, and has not replied.
    AmDone {
        /// The stamp; 0 is none.
        stamp: u64,
    },
    /// The sender was sent an Active Message for a handler that it has not.
    AmRefused {
        /// The handler's number.
        handler: u32,
        /// The client of the receiver's node that sent it.
        client: u8,
    },
    /// Asks for a grant by the address of memory.
    GrantAsk(GrantAsk),
    /// Answers that.
    GrantIs(GrantIs),
    /// Asks for the key of a grant.
    KeyAsk(KeyAsk),
    /// Answers that.
    KeyIs(KeyIs),
    /// Asks for a change of a word in a grant.
    AtomicAsk(AtomicAsk),
    /// Answers that.
    AtomicDone(AtomicDone),
    /// Asks for a handler.
    HandlerAsk(HandlerAsk),
    /// Says whether it is there.
    HandlerIs(HandlerIs),
    /// Store the payload. Answered by [`Message::ChunkDone`].
    Put(Chunk),
    /// Store the payload, and then change a word. Answered by [`Message::ChunkDone`].
    PutSignal(Chunk, Signal),
    /// Send so many bytes. Answered by [`Message::ChunkDone`].
    Get(Chunk, u32),
    /// Answers a chunk: with the bytes as payload, if it is a get's and went well.
    ChunkDone(ChunkDone),
    /// Everyone has arrived at a barrier.
    BarrierOpen {
        /// Which one, from 1.
        epoch: u64,
    },
    /// The sender has given up a peer, and waits at no barrier with it any more.
    BarrierBroken {
        /// The peer. `None`: no rank at all.
        peer: Option<Rank>,
        /// Whether its process has ended.
        gone: bool,
    },
    /// Asks for firehoses.
    Move(Move),
    /// Gives them.
    Moved(Moved),
    /// Give back this firehose: its memory is not what it was.
    Revoke {
        /// The firehose, by its owner's name for it. `None`: none has such a name.
        holder: Option<HolderId>,
    },
    /// Give back firehoses that are idle.
    Recall {
        /// So many bytes of them.
        bytes: u64,
    },
    /// Firehoses are given back.
    Release(Release),
    /// Asks for something with a bounce buffer.
    Bounce(BounceAsk),
    /// A bounce buffer is given back.
    BounceGive {
        /// Where in the owner's heap it begins. `None`: it is none.
        buffer: Option<u64>,
    },
    /// The answer about a bounce buffer.
    Bounced(Bounced),
    /// Between members of a team.
    Team(TeamId, TeamMessage),
}

impl Message {
    /// The header's words, with so many bytes of payload behind them.
    #[inline]
    pub fn encode(&self, payload: usize) -> [u64; Header::WORDS] {
        self.header(payload).encode()
    }

    /// The message that these words are the header of, with so many bytes of payload behind them.
    ///
    /// # Errors
    /// They are no message's.
    #[inline(always)]
    pub fn decode(words: &[u64; Header::WORDS], payload: usize) -> Result<Message, WireError> {
        Message::of(&Header::decode(words, payload)?)
    }

    #[inline(always)]
    fn header(&self, payload: usize) -> Header {
        let only = |kind, word| Header { args: [word, 0, 0, 0], ..Header::new(kind) };
        match self {
            Message::Am(am) => am.header(payload),
            Message::AmDone { stamp } => {
                Header { token: stamp_to_token(*stamp), ..Header::new(Kind::AmDone) }
            }
            Message::AmRefused { handler, client } => {
                Header { client: *client, len: *handler, ..Header::new(Kind::AmRefused) }
            }
            Message::GrantAsk(ask) => ask.header(),
            Message::GrantIs(answer) => answer.header(),
            Message::KeyAsk(ask) => ask.header(payload),
            Message::KeyIs(answer) => answer.header(),
            Message::AtomicAsk(ask) => ask.header(),
            Message::AtomicDone(answer) => answer.header(),
            Message::HandlerAsk(ask) => ask.header(),
            Message::HandlerIs(answer) => answer.header(),
            Message::Put(chunk) => chunk.header(Kind::PutChunk, payload as u32),
            Message::PutSignal(chunk, signal) => signal.header(chunk.header(Kind::PutSignal, payload as u32)),
            Message::Get(chunk, len) => chunk.header(Kind::GetChunk, *len),
            Message::ChunkDone(done) => done.header(payload),
            Message::BarrierOpen { epoch } => only(Kind::BarrierOpen, *epoch),
            Message::BarrierBroken { peer, gone } => {
                let args = [narrow_to_wire(*peer), u64::from(*gone), 0, 0];
                Header { args, ..Header::new(Kind::BarrierBroken) }
            }
            Message::Move(ask) => ask.header(payload),
            Message::Moved(moved) => moved.header(payload),
            Message::Revoke { holder } => only(Kind::Revoke, narrow_to_wire(holder.map(|holder| holder.0))),
            Message::Recall { bytes } => only(Kind::Recall, *bytes),
            Message::Release(release) => release.header(),
            Message::Bounce(ask) => ask.header(),
            Message::BounceGive { buffer } => only(Kind::BounceGive, buffer_to_wire(*buffer)),
            Message::Bounced(bounced) => bounced.header(),
            Message::Team(team, message) => message.header(*team, payload),
        }
    }

    #[inline(always)]
    fn of(header: &Header) -> Result<Message, WireError> {
        let [first, second, ..] = header.args;
        Ok(match header.kind {
            Kind::AmShort | Kind::AmMedium | Kind::AmLong => Message::Am(Am::of(header)?),
            Kind::AmDone => Message::AmDone { stamp: stamp_of_token(header.token) },
            Kind::AmRefused => Message::AmRefused { handler: header.len, client: header.client },
            Kind::GrantAsk => Message::GrantAsk(GrantAsk::of(header)),
            Kind::GrantIs => Message::GrantIs(GrantIs::of(header)),
            Kind::KeyAsk => Message::KeyAsk(KeyAsk::of(header)),
            Kind::KeyIs => Message::KeyIs(KeyIs::of(header)),
            Kind::AtomicAsk => Message::AtomicAsk(AtomicAsk::of(header)),
            Kind::AtomicDone => Message::AtomicDone(AtomicDone::of(header)),
            Kind::HandlerAsk => Message::HandlerAsk(HandlerAsk::of(header)),
            Kind::HandlerIs => Message::HandlerIs(HandlerIs::of(header)),
            Kind::PutChunk => Message::Put(Chunk::of(header)),
            Kind::PutSignal => Message::PutSignal(Chunk::of(header), Signal::of(header)),
            Kind::GetChunk => Message::Get(Chunk::of(header), header.len),
            Kind::PutDone => Message::ChunkDone(ChunkDone::of(header, Direction::Put)),
            Kind::GetData => Message::ChunkDone(ChunkDone::of(header, Direction::Get)),
            Kind::BarrierOpen => Message::BarrierOpen { epoch: first },
            Kind::BarrierBroken => {
                Message::BarrierBroken { peer: Rank::try_from(first).ok(), gone: second != 0 }
            }
            Kind::Move => Message::Move(Move::of(header)),
            Kind::Moved => Message::Moved(Moved::of(header)),
            Kind::Revoke => Message::Revoke { holder: u32::try_from(first).ok().map(HolderId) },
            Kind::Recall => Message::Recall { bytes: first },
            Kind::Release => Message::Release(Release::of(header)),
            Kind::BounceTake => Message::Bounce(BounceAsk::of(header, BounceAct::Take)),
            Kind::BounceFill => Message::Bounce(BounceAsk::of(header, BounceAct::Fill)),
            Kind::BounceDrain => Message::Bounce(BounceAsk::of(header, BounceAct::Drain)),
            Kind::BounceGive => Message::BounceGive { buffer: buffer_from_wire(first) },
            Kind::Bounced => Message::Bounced(Bounced::of(header)),
            Kind::TeamWord
            | Kind::TeamData
            | Kind::TeamOffer
            | Kind::TeamTaken
            | Kind::TeamConfirmed
            | Kind::TeamDoubted
            | Kind::TeamUpheld
            | Kind::TeamPace
            | Kind::TeamBroken => Message::Team(TeamId(header.token), TeamMessage::of(header)),
        })
    }
}

/// A number of 32 bits in a word of 64; what has none stands beyond them.
const fn narrow_to_wire(number: Option<u32>) -> u64 {
    match number {
        Some(number) => number as u64,
        None => u64::MAX,
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
