//! Sending messages in pieces.

use std::sync::atomic::Ordering;
use std::time::Duration;

use standpipe::Error;

use super::endpoint::{Fm, NODES_MAX};
use super::notices::Notice;
use super::outgoing::Begun;
use super::port::ends;
use super::runner::Runner;
use super::shared::{Counters, Peer};
use super::wire::{self, PACKET_MAX};

/// The bit that no address of a program's has: so a message that is sent is told from one that is received.
const SENDS: u64 = 1 << 63;
const SERIAL_BITS: u32 = 43;
const _: () = assert!((NODES_MAX as u64) << SERIAL_BITS <= SENDS);

/// How long one sleeps at a time that waits for room.
const NAP: Duration = Duration::from_millis(10);

/// A message that is being sent: from [`Fm::begin`] to [`Fm::end`]. Any thread may go on with it, one at a
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending(u64);

impl Sending {
    /// A number that names it; bit 63 is set.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`Sending::to_bits`] has given. Of any other number: a message that nobody sends.
    pub fn from_bits(bits: u64) -> Sending {
        Sending(bits)
    }

    fn new(recipient: u32, serial: u64) -> Sending {
        Sending(SENDS | u64::from(recipient) << SERIAL_BITS | serial)
    }

    /// Its recipient and its serial number, if it can be one.
    fn parts(self) -> Option<(usize, u64)> {
        let recipient = (self.0 & !SENDS) >> SERIAL_BITS;
        (self.0 & SENDS != 0).then_some((recipient as usize, self.0 & ((1 << SERIAL_BITS) - 1)))
    }
}

/// Why no message can be begun, now or later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// There is no such node.
    #[error("there is no node {}, in a job of {nodes}", .node.cast_signed())]
    NoSuchNode {
        /// The node; a C program may have written a number below 0.
        node: u64,
        /// How many there are.
        nodes: u32,
    },
    /// The node cannot be reached.
    #[error(transparent)]
    Connect(Error),
}

/// Why a piece is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It was ended, or never begun.
    #[error("no message that has been begun and not ended")]
    NotOpen,
    /// The piece is longer than what is left.
    #[error("a piece of {given} bytes, where {left} are left of the {announced} that were announced")]
    TooLong {
        /// Its length in bytes.
        given: u64,
        /// Bytes that the message may still have.
        left: u64,
        /// Bytes that it may have.
        announced: u64,
    },
}

/// What became of a packet.
#[derive(PartialEq, Eq)]
enum Departed {
    Yes,
    /// There is no credit for it.
    NoCredit,
    /// The recipient is lost: nobody will have it.
    Lost,
}

impl Fm {
    /// Begins a message of at most `announced` bytes, for the handler of that number at `recipient`. `None`:
    /// not now, as another message to that node has not been ended, or because in a handler there is no room
    /// for the whole message, which might have to be waited for. In a handler do not try again before it has
    /// returned. A message to a node that is lost is thrown away.
    ///
    /// Any thread and handlers may call this. It waits for the first contact with a node only.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn begin(&self, recipient: u64, announced: u64, handler: u32) -> Result<Option<Sending>, BeginError> {
        let no_such_node = || BeginError::NoSuchNode { node: recipient, nodes: self.port().nodes() };
        let rank = u32::try_from(recipient).map_err(|_| no_such_node())?;
        let peer = self.port().shared.peers.get(rank as usize).ok_or_else(no_such_node)?;
        if !peer.has_contact.load(Ordering::Relaxed) && !self.make_contact(rank, peer)? {
            return Ok(None);
        }
        let opener = Runner::current().map_or(0, |current| current.run);
        let begun = self.try_begin(rank, peer, (announced, handler), opener);
        if begun.is_some() {
            return Ok(begun);
        }
        // In a handler only what moves by itself can help.
        if opener == 0 {
            self.extract(u64::MAX);
        } else {
            self.port().node.progress();
            self.port().return_credits_due();
        }
        Ok(self.try_begin(rank, peer, (announced, handler), opener))
    }

    /// Makes the first contact: `false` where the node does not answer yet.
    #[cold]
    fn make_contact(&self, rank: u32, peer: &Peer) -> Result<bool, BeginError> {
        match self.port().node.connect(rank) {
            Ok(()) => {}
            Err(Error::PeerLost { .. }) => self.port().lose(rank),
            Err(Error::Timeout { .. }) => return Ok(false),
            Err(error) => return Err(BeginError::Connect(error)),
        }
        peer.has_contact.store(true, Ordering::Relaxed);
        Ok(true)
    }

    fn try_begin(
        &self,
        rank: u32,
        peer: &Peer,
        (announced, handler): (u64, u32),
        opener: u64,
    ) -> Option<Sending> {
        let serial = peer.outgoing.open(Begun { handler, announced, opener }, SERIAL_BITS)?;
        if opener != 0 && !peer.is_lost.load(Ordering::Relaxed) {
            let Some(packets) = self.reserve(peer, announced) else {
                peer.outgoing.close(&peer.credits);
                return None;
            };
            peer.outgoing.reserve(packets);
        }
        Some(Sending::new(rank, serial))
    }

    /// Takes the credits for a whole message, so that its sender never waits for any.
    fn reserve(&self, peer: &Peer, announced: u64) -> Option<u32> {
        let (packets, most) = (announced.div_ceil(PACKET_MAX as u64).max(1), peer.credits.most_at_once());
        let Some(few) = u32::try_from(packets).ok().filter(|packets| *packets <= most) else {
            self.port().shared.notices.add(Notice::TooLong { packets, most });
            return None;
        };
        peer.credits.take(few).then_some(few)
    }

    /// Sends a piece: waits while the receiver has no room, and extracts meanwhile, except in a handler. Its
    /// bytes may be reused at return.
    ///
    /// # Errors
    /// [`SendError`]: then nothing of it is sent.
    pub fn send_piece(&self, message: Sending, piece: &[u8]) -> Result<(), SendError> {
        let mut rest = piece;
        loop {
            rest = &rest[self.offer(message, rest)?..];
            if rest.is_empty() {
                return Ok(());
            }
            self.wait_for_room(message);
        }
    }

    /// Sends as much of a piece as the receiver has room for: how many bytes. The rest is to be offered after
    /// [`Fm::wait_for_room`]. Runs no handler. Waits only while the lane to the node is full, which empties
    /// when that node next makes a call.
    ///
    /// # Errors
    /// [`SendError`]: then nothing of it is sent.
    pub fn offer(&self, message: Sending, piece: &[u8]) -> Result<usize, SendError> {
        let (rank, peer) = self.open_message(message)?;
        let outgoing = &peer.outgoing;
        let announced = outgoing.announced();
        let left = announced.saturating_sub(outgoing.total());
        let given = piece.len() as u64;
        if given > left {
            return Err(SendError::TooLong { given, left, announced });
        }
        let mut taken = 0;
        while taken < piece.len() {
            match self.offer_packet(rank, peer, &piece[taken..]) {
                (_, Departed::NoCredit) => break,
                (bytes, Departed::Yes) => taken += bytes,
                (_, Departed::Lost) => {
                    outgoing.unstage(0);
                    outgoing.throw_away((piece.len() - taken) as u64);
                    return Ok(piece.len());
                }
            }
        }
        Ok(taken)
    }

    /// Sends a packet that is full, or the message's last one; or keeps the bytes for it.
    #[inline]
    fn offer_packet(&self, rank: u32, peer: &Peer, piece: &[u8]) -> (usize, Departed) {
        let outgoing = &peer.outgoing;
        let left = outgoing.announced().saturating_sub(outgoing.total());
        let before = outgoing.staged_len();
        if before == 0 && (piece.len() >= PACKET_MAX || piece.len() as u64 == left) {
            let packet = &piece[..piece.len().min(PACKET_MAX)];
            let is_last = packet.len() as u64 == left;
            return (packet.len(), self.depart(rank, peer, packet, is_last));
        }
        let bytes = piece.len().min(PACKET_MAX.saturating_sub(before));
        outgoing.stage(&piece[..bytes]);
        let is_last = bytes as u64 == left;
        let is_due = is_last || before + bytes == PACKET_MAX;
        let departed = if is_due { self.depart_staged(rank, peer, is_last) } else { Departed::Yes };
        if departed == Departed::NoCredit {
            // They are offered again, when there may be one.
            outgoing.unstage(before);
            return (0, departed);
        }
        Counters::add(&self.port().shared.counters.copied_sent, bytes as u64);
        (bytes, departed)
    }

    fn depart_staged(&self, rank: u32, peer: &Peer, is_last: bool) -> Departed {
        let departed = self.depart(rank, peer, &peer.outgoing.staged(), is_last);
        if departed != Departed::NoCredit {
            peer.outgoing.unstage(0);
        }
        departed
    }

    /// Sends a packet, if there is a credit for it.
    fn depart(&self, rank: u32, peer: &Peer, packet: &[u8], is_last: bool) -> Departed {
        if peer.is_lost.load(Ordering::Relaxed) {
            return Departed::Lost;
        }
        let is_reserved = peer.outgoing.has_reserved();
        if !is_reserved && !peer.credits.take(1) {
            return Departed::NoCredit;
        }
        let (first, position) = peer.outgoing.place();
        let owed = peer.credits.take_owed();
        let (args, is_inline) = wire::packet_args(first, position, is_last, owed, packet);
        let sent = if is_inline {
            self.port().node.request(rank, self.port().packets, args)
        } else {
            self.port().node.request_medium(rank, self.port().packets, args, packet)
        };
        if let Err(error) = sent {
            if ends(&error) {
                self.port().lose(rank);
                return Departed::Lost;
            }
            // Its lane stays full for as long as it makes no call.
            peer.credits.still_owed(owed);
            peer.credits.untake(u32::from(!is_reserved));
            return Departed::NoCredit;
        }
        peer.outgoing.packet_left(packet.len(), is_last);
        Departed::Yes
    }

    /// Waits until there may be room for more of a message, or its recipient is lost. Extracts meanwhile,
    /// except in a handler.
    pub fn wait_for_room(&self, message: Sending) {
        let Some((rank, _)) = message.parts() else { return };
        let Some(peer) = self.port().shared.peers.get(rank) else { return };
        let rank = rank as u32;
        let has_credit = || peer.outgoing.has_reserved() || peer.credits.has_any();
        let is_over = || has_credit() || peer.is_lost.load(Ordering::Relaxed);
        let may_extract = !self.in_handler();
        while !is_over() {
            let has_moved =
                if may_extract { self.extract(u64::MAX) > 0 } else { self.port().node.progress() };
            self.port().return_credits_due();
            // What moves may be others' alone.
            if has_moved && self.port().node.is_lost(rank) {
                return self.port().lose(rank);
            }
            if has_moved || is_over() {
                continue;
            }
            let can_take = || may_extract && self.port().shared.has_queued();
            if can_take() {
                // Another thread extracts.
                std::thread::yield_now();
            }
            // It is asked again after a nap, and says nothing of one that has passed.
            let _ = self.port().node.within(NAP).wait_until(|| is_over() || can_take());
            self.port().look_for_lost();
        }
    }

    /// Ends a message, which may be shorter than was announced. Waits as [`Fm::send_piece`] does.
    ///
    /// # Errors
    /// [`SendError::NotOpen`].
    pub fn end(&self, message: Sending) -> Result<(), SendError> {
        loop {
            let (rank, peer) = self.open_message(message)?;
            if peer.outgoing.is_over() || self.depart_staged(rank, peer, true) != Departed::NoCredit {
                peer.outgoing.close(&peer.credits);
                return Ok(());
            }
            self.wait_for_room(message);
        }
    }

    #[inline]
    fn open_message(&self, message: Sending) -> Result<(u32, &Peer), SendError> {
        let (rank, serial) = message.parts().ok_or(SendError::NotOpen)?;
        let peer = self.port().shared.peers.get(rank).filter(|peer| peer.outgoing.is_open_as(serial));
        Ok((rank as u32, peer.ok_or(SendError::NotOpen)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_from_an_address() {
        for (recipient, serial) in [(0, 1), (NODES_MAX - 1, (1 << SERIAL_BITS) - 1)] {
            let message = Sending::new(recipient, serial);
            assert_eq!(message.parts(), Some((recipient as usize, serial)));
            assert_eq!(Sending::from_bits(message.to_bits()), message);
        }
        assert_eq!(Sending::from_bits(0x7fff_ffff_f000).parts(), None);
    }
}
