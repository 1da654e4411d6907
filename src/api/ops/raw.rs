//! Many pieces of memory by pointer: for faces in other languages, which check such things themselves.

use engine::{Direction, Rank};

use crate::api::node::Node;
use crate::api::ops::event::Event;
use crate::api::ops::rma::Rest;
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::transport::shm::Lent;

/// A piece of a transfer between a peer's memory and local memory by pointer.
#[derive(Clone, Copy, Debug)]
pub struct RawPiece {
    /// The peer's memory.
    pub remote: Remote,
    /// Where the local bytes begin.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// Puts and gets of pieces by pointer, as [`Node::put_list`] makes them: those of several peers, or with an
/// event of one.
///
/// # Safety
/// For all forms the bytes of each piece are valid memory, which this program may read, or write if they are
/// got into. They are so until the call returns, or, of forms with an event, until that has ended, or
/// `keeper` is given back or dropped. Nobody else writes them, nor reads what is got into; and what is put
/// from is initialised. Pieces that are got into do not lie over one another.
impl Node {
    /// Puts the pieces.
    ///
    /// # Errors
    /// As for [`Node::put_list`].
    ///
    /// # Safety
    /// See above: valid local memory until this returns.
    #[inline]
    pub unsafe fn put_raw(&self, pieces: &[RawPiece]) -> Result<(), Error> {
        // SAFETY: the caller's promise is that of this, too.
        unsafe { self.raw(Direction::Put, pieces) }
    }

    /// Gets into the pieces.
    ///
    /// # Errors
    /// As for [`Node::put_list`].
    ///
    /// # Safety
    /// See above: valid local memory until this returns.
    #[inline]
    pub unsafe fn get_raw(&self, pieces: &[RawPiece]) -> Result<(), Error> {
        // SAFETY: the caller's promise is that of this, too.
        unsafe { self.raw(Direction::Get, pieces) }
    }

    /// Moves pieces to their end. One in a mapped heap takes no list.
    ///
    /// # Safety
    /// As for [`lent`], until this returns.
    #[inline(always)]
    unsafe fn raw(&self, direction: Direction, pieces: &[RawPiece]) -> Result<(), Error> {
        // SAFETY: the caller's promise is that of `lent`, and nothing is used after the return.
        let lent = |piece| unsafe { lent(piece, direction) };
        if let [piece] = pieces {
            let (remote, local) = lent(piece);
            return if self.is_moved_mapped(remote, local) {
                Ok(())
            } else {
                self.place_out_of_line(remote, local)
            };
        }
        self.scatter(direction, pieces.iter().map(lent), &mut Rest::Awaited)
    }

    /// Starts a put of pieces of one peer. The event gives `keeper` back, which keeps their memory. The
    /// event's error may also be [`Error::Elsewhere`], where a piece is of another peer than the first.
    ///
    /// # Safety
    /// See above: valid local memory until `keeper` is given back or dropped.
    pub unsafe fn put_raw_nb<K: Send + 'static>(&self, pieces: &[RawPiece], keeper: K) -> Event<K> {
        // SAFETY: the caller's promise, for as long as the event has the keeper.
        unsafe { self.raw_nb(Direction::Put, pieces, keeper) }
    }

    /// Starts a get into pieces of one peer; as [`Node::put_raw_nb`].
    ///
    /// # Safety
    /// See above: valid local memory until `keeper` is given back or dropped.
    pub unsafe fn get_raw_nb<K: Send + 'static>(&self, pieces: &[RawPiece], keeper: K) -> Event<K> {
        // SAFETY: the caller's promise, for as long as the event has the keeper.
        unsafe { self.raw_nb(Direction::Get, pieces, keeper) }
    }

    /// # Safety
    /// As for [`lent`], until `keeper` is given back or dropped.
    unsafe fn raw_nb<K: Send + 'static>(
        &self,
        direction: Direction,
        pieces: &[RawPiece],
        keeper: K,
    ) -> Event<K> {
        let peer: Rank = pieces.first().map_or(self.rank(), |piece| piece.remote.peer());
        let mut op = None;
        let started = match pieces.iter().find(|piece| piece.remote.peer() != peer) {
            Some(other) => Err(Error::Elsewhere { peer: other.remote.peer(), expected: peer }),
            None => {
                // SAFETY: the caller's promise is that of `lent`, for as long as there is the keeper.
                let pieces = pieces.iter().map(|piece| unsafe { lent(piece, direction) });
                self.scatter(direction, pieces, &mut Rest::Started(&mut op))
            }
        };
        Event::new(self, peer, started.map(|()| op), keeper)
    }
}

/// # Safety
/// The piece's bytes are valid for that direction until `'a` ends, and used by nobody else in ways that it
/// forbids.
#[inline]
unsafe fn lent<'a>(piece: &RawPiece, direction: Direction) -> (Remote, Lent<'a>) {
    let local = match direction {
        // SAFETY: the caller promises that so many bytes are there, initialised.
        Direction::Put => unsafe { Lent::source_at(piece.start, piece.len) },
        // SAFETY: the caller promises that so many bytes are there, to be written.
        Direction::Get => unsafe { Lent::target_at(piece.start, piece.len) },
    };
    (piece.remote, local)
}
