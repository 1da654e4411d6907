//! Copies to and from what near peers have granted: by what their ledgers say, under an announcement. The
//! memory is named by the grant, or by an address that a known grant covers.
//!
//! The [ledger](crate::transport::shm::ledger) says what the owner relies on. A copy goes in chunks, and the
//! grants of each are looked at anew before it: so an owner that takes memory back waits for one chunk at
//! most.

use engine::{Direction, MemId, OpError, PathReason, Piece, Place};
use vm::cma::{CmaError, Iov};

use super::attach::{CopyError, attach_error, attach_list, copy_mapped, ended};
use crate::transport::peers::Near;
use crate::transport::shm::ledger::Look;

/// Bytes, at most, that a chunk moves.
const CHUNK_BYTES: u64 = 1 << 20;
/// Pieces, at most, of a chunk: the kernel takes no more in one call.
const CHUNK_PIECES: usize = vm::cma::IOV_MAX;

/// A chunk: parts of pieces, and where they lie at the peer and here.
#[derive(Default)]
struct Chunk {
    parts: Vec<Piece>,
    remote: Vec<Iov>,
    local: Vec<Iov>,
    bytes: u64,
}

impl Chunk {
    fn clear(&mut self) {
        self.parts.clear();
        self.remote.clear();
        self.local.clear();
        self.bytes = 0;
    }

    fn is_full(&self) -> bool {
        self.bytes >= CHUNK_BYTES || self.parts.len() >= CHUNK_PIECES
    }
}

/// Copies all pieces, some of which lie in grants of the peer's, which can be attached.
///
/// # Safety
/// As for [`super::copy_pieces`].
pub(super) unsafe fn copy(peer: &Near, direction: Direction, pieces: &[Piece]) -> Result<(), CopyError> {
    // Lists come here whether or not the kernel lets us attach.
    peer.reach.attach_to(MemId::Grant(0)).map_err(CopyError::Unreachable)?;
    let Some(ledgers) = &peer.ledgers else { return Err(CopyError::Unreachable(PathReason::Granted)) };
    if !ledgers.theirs.watches(peer.place) {
        return Err(CopyError::Unreachable(PathReason::Granted));
    }
    let announced = ledgers.own.announce(peer.rank, ledgers.theirs.epoch());
    let Some(announced) = announced else { return Err(CopyError::Unreachable(PathReason::Granted)) };
    // After that: a node that has closed looks at announcements as well.
    let Some(_reach) = peer.reach.by_number() else { return Err(ended(peer)) };
    if let [piece] = pieces
        && piece.len <= CHUNK_BYTES
    {
        let found = find(peer, direction, *piece)?;
        if found.mem != MemId::Space {
            // SAFETY: the caller promises its one piece's local end for this direction, until this returns.
            return unsafe { copy_mapped(peer, direction, &Piece { remote: found, ..*piece }) }
                .map_err(Into::into);
        }
        let ends = [found.offset, piece.local.offset].map(|addr| Iov { addr, len: piece.len });
        // SAFETY: the caller promises its one piece's local end for this direction.
        let done = unsafe { attach_list(peer, direction, &ends[..1], &ends[1..]) };
        return end(peer, pieces, done);
    }
    let mut chunk = Chunk::default();
    for piece in pieces {
        let mut rest = *piece;
        while rest.len > 0 {
            let len = rest.len.min(CHUNK_BYTES - chunk.bytes.min(CHUNK_BYTES - 1));
            let part = Piece { len, ..rest };
            rest = Piece { remote: rest.remote.plus(len), local: rest.local.plus(len), len: rest.len - len };
            let found = find(peer, direction, part)?;
            if found.mem != MemId::Space {
                // SAFETY: a part of a piece of the caller's, which it promises for this direction.
                unsafe { copy_mapped(peer, direction, &Piece { remote: found, ..part }) }?;
                if chunk.parts.is_empty() {
                    announced.renew(peer.rank, ledgers.theirs.epoch());
                }
                continue;
            }
            chunk.parts.push(part);
            chunk.remote.push(Iov { addr: found.offset, len });
            chunk.local.push(Iov { addr: part.local.offset, len });
            chunk.bytes += len;
            if chunk.is_full() {
                // SAFETY: parts of the caller's pieces, which it promises for this direction.
                unsafe { send(peer, direction, &mut chunk) }?;
                announced.renew(peer.rank, ledgers.theirs.epoch());
            }
        }
    }
    // SAFETY: parts of the caller's pieces, which it promises for this direction.
    unsafe { send(peer, direction, &mut chunk) }
}

/// Copies a chunk, and empties it.
///
/// # Safety
/// Its local ends as for [`super::copy_pieces`].
unsafe fn send(peer: &Near, direction: Direction, chunk: &mut Chunk) -> Result<(), CopyError> {
    if chunk.parts.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller promises the chunk's local ends for this direction, until this returns.
    let done = unsafe { attach_list(peer, direction, &chunk.remote, &chunk.local) };
    let ended = end(peer, &chunk.parts, done);
    chunk.clear();
    ended
}

/// Where a piece's peer's end lies now: in its space, or in its heap.
fn find(peer: &Near, direction: Direction, piece: Piece) -> Result<Place, CopyError> {
    let rank = peer.rank;
    let ledgers = peer.ledgers.as_ref().ok_or(CopyError::Unreachable(PathReason::Granted))?;
    let Some((grant, offset)) = piece.remote.in_grant() else {
        let best = peer.best(piece.remote, piece.len as usize);
        if best.mem != MemId::Space || peer.reach.attach().is_ok() {
            return Ok(best);
        }
        // By the grant that is known to cover the address, if that still stands for it.
        let named = peer.by_address.find(direction, best.offset, piece.len);
        let named = named.ok_or(CopyError::Unreachable(PathReason::Granted))?;
        if ledgers.theirs.look(named, piece.len, direction, peer.place) == Look::At(best.offset) {
            return Ok(best);
        }
        peer.by_address.forget(named);
        return Err(CopyError::Unreachable(PathReason::Granted));
    };
    match ledgers.theirs.look(piece.remote, piece.len, direction, peer.place) {
        Look::At(addr) => Ok(peer.best(Place::new(MemId::Space, addr), piece.len as usize)),
        Look::Unknown => Err(CopyError::Unreachable(PathReason::Granted)),
        Look::Revoked => Err(OpError::Revoked { peer: rank, grant, offset, len: piece.len }.into()),
        Look::NotGranted => {
            let rights = direction.into();
            Err(OpError::NotGranted { peer: rank, grant, rights, offset, len: piece.len }.into())
        }
        Look::Beyond => {
            let Place { mem, offset } = piece.remote;
            Err(OpError::Fault { peer: rank, mem, addr: offset, len: piece.len }.into())
        }
    }
}

/// The result of a copy by the kernel of these parts.
fn end(peer: &Near, parts: &[Piece], done: Result<(), CmaError>) -> Result<(), CopyError> {
    match done {
        // Then it may have been another process that had the number.
        _ if peer.reach.has_ended() => Err(ended(peer)),
        Ok(()) => Ok(()),
        Err(error) => Err(attach_error(peer, parts, error)),
    }
}
