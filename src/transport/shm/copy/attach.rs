//! The copies themselves: by the kernel between processes, and between mapped memory and a process's own.

use engine::{Direction, MemId, OpError, PathReason, Piece, Place};
use rustix::io::Errno;
use vm::cma::{self, CmaError, Iov};

use crate::transport::peers::Near;

/// Why a one-sided copy did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// The peer's private memory cannot be attached, for this reason: all pieces are still to be copied.
    Unreachable(PathReason),
    /// It failed on the way.
    Failed(OpError),
}

impl From<OpError> for CopyError {
    fn from(error: OpError) -> CopyError {
        CopyError::Failed(error)
    }
}

/// # Safety
/// As for [`super::copy_pieces`].
pub(super) unsafe fn copy_mapped(peer: &Near, direction: Direction, piece: &Piece) -> Result<(), OpError> {
    let fault = || match piece.len {
        // Nothing is there to be touched, wherever it is.
        0 if !peer.is_lost() => Ok(()),
        len => Err(heap_fault(peer, piece.remote.offset, len)),
    };
    let end = piece.remote.offset.checked_add(piece.len);
    let heap = end.and_then(|end| peer.heap_up_to(end)).filter(|_| piece.remote.mem == MemId::Heap);
    let Some(heap) = heap else { return fault() };
    let (addr, len) = (piece.local.offset as usize, piece.len as usize);
    let copied = match direction {
        Direction::Put => {
            // SAFETY: the caller promises `len` readable bytes at this address; the address was exposed by
            // whoever borrowed them. They may lie in the heap itself.
            unsafe { heap.copy_in_from(piece.remote.offset, std::ptr::with_exposed_provenance(addr), len) }
        }
        Direction::Get => {
            // SAFETY: the caller promises `len` writable bytes at this address that nothing else refers to.
            unsafe { heap.copy_out_to(piece.remote.offset, std::ptr::with_exposed_provenance_mut(addr), len) }
        }
    };
    copied.or_else(|_| fault())
}

/// The error for an access to `len` bytes at `offset` of the peer's heap that is not allowed.
#[cold]
pub(crate) fn heap_fault(peer: &Near, offset: u64, len: u64) -> OpError {
    if peer.is_lost() {
        OpError::PeerLost { peer: peer.rank }
    } else {
        OpError::Fault { peer: peer.rank, mem: MemId::Heap, addr: offset, len }
    }
}

/// # Safety
/// As for [`super::copy_pieces`].
pub(super) unsafe fn attach(
    peer: &Near,
    direction: Direction,
    pieces: &[Piece],
    private: usize,
) -> Result<(), CopyError> {
    let Some(_reach) = peer.reach.by_number() else { return Err(ended(peer)) };
    let ends = |piece: &Piece| {
        let remote = Iov { addr: piece.remote.offset, len: piece.len };
        (remote, Iov { addr: piece.local.offset, len: piece.len })
    };
    let done = if let [piece] = pieces {
        let (remote, local) = ends(piece);
        // SAFETY: the local end is the caller's one piece, which it promises to be valid for this direction.
        unsafe { attach_list(peer, direction, &[remote], &[local]) }
    } else {
        let mut remote = Vec::with_capacity(private);
        let mut local = Vec::with_capacity(private);
        for (there, here) in in_space(pieces).map(ends) {
            extend(&mut remote, there);
            extend(&mut local, here);
        }
        // SAFETY: the local ends are those of the caller's pieces, which it promises to be valid for this
        // direction.
        unsafe { attach_list(peer, direction, &remote, &local) }
    };
    match done {
        // Then it may have been another process that had the number.
        _ if peer.reach.has_ended() => Err(ended(peer)),
        Ok(()) => Ok(()),
        Err(error) => Err(attach_error(peer, pieces, error)),
    }
}

/// The error for a peer whose process has ended, which the kernel tells before the launcher does. A process
/// that has heard of the loss must not find the heap alive.
#[cold]
pub(super) fn ended(peer: &Near) -> CopyError {
    peer.lose();
    OpError::PeerLost { peer: peer.rank }.into()
}

pub(super) fn in_space(pieces: &[Piece]) -> impl Iterator<Item = &Piece> {
    pieces.iter().filter(|piece| piece.remote.mem == MemId::Space)
}

/// Adds a run to those of one end: to the last one, where it goes on there. The kernel takes so many runs a
/// call.
#[inline]
fn extend(runs: &mut Vec<Iov>, next: Iov) {
    match runs.last_mut() {
        Some(last) if last.addr.checked_add(last.len) == Some(next.addr) => last.len += next.len,
        _ => runs.push(next),
    }
}

/// # Safety
/// `local` as for [`super::copy_pieces`].
pub(super) unsafe fn attach_list(
    peer: &Near,
    direction: Direction,
    remote: &[Iov],
    local: &[Iov],
) -> Result<(), CmaError> {
    let pid = peer.reach.pid;
    match (direction, peer.reach.memory()) {
        // SAFETY: the caller promises local memory that may be read.
        (Direction::Put, None) => unsafe { cma::write_to(pid, remote, local) },
        // SAFETY: the same promise; the descriptor is of the peer's memory only.
        (Direction::Put, Some(memory)) => unsafe { memory.write(remote, local) },
        // SAFETY: the caller promises local memory that may be written and is not referred to otherwise.
        (Direction::Get, _) => unsafe { cma::read_from(pid, remote, local) },
    }
}

#[cold]
pub(super) fn attach_error(known: &Near, pieces: &[Piece], error: CmaError) -> CopyError {
    let peer = known.rank;
    let failed = match error {
        CmaError::Fault { done, .. } => {
            let (place, len) =
                piece_at(pieces, done).map_or((space(0), 0), |piece| (piece.remote, piece.len));
            OpError::Fault { peer, mem: place.mem, addr: place.offset, len }
        }
        CmaError::LocalFault { done, .. } => {
            let (place, len) = piece_at(pieces, done).map_or((0, 0), |piece| (piece.local.offset, piece.len));
            OpError::LocalFault { mem: MemId::Space, addr: place, len }
        }
        CmaError::Gone if known.reach.has_ended() => return ended(known),
        // Only its first thread has ended, without which the kernel does not find its memory by its number.
        CmaError::Gone => return CopyError::Unreachable(known.reach.lose_attach(Errno::PERM)),
        // Rights were there when the peer was introduced. Bytes that earlier calls for a long list have
        // copied do no harm: they are copied once more.
        CmaError::Denied { errno } => return CopyError::Unreachable(known.reach.lose_attach(errno)),
        _ => OpError::Protocol { peer, what: "cross-memory attach failed in a way that no kernel documents" },
    };
    CopyError::Failed(failed)
}

const fn space(addr: u64) -> Place {
    Place::new(MemId::Space, addr)
}

/// The piece of private memory that the byte after `done` of them belongs to.
fn piece_at(pieces: &[Piece], mut done: u64) -> Option<&Piece> {
    pieces.iter().filter(|piece| piece.remote.mem != MemId::Heap).find(|piece| {
        let within = done < piece.len;
        done = done.saturating_sub(piece.len);
        within
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_are_one_and_a_byte_is_found_in_its_piece() {
        let lens = [3, 0, 5, 2];
        let remote = [100, 103, 103, 200];
        let mut runs = Vec::new();
        let pieces: Vec<Piece> = remote
            .iter()
            .zip(lens)
            .map(|(addr, len)| {
                extend(&mut runs, Iov { addr: *addr, len });
                Piece::new(Place::new(MemId::Space, *addr), Place::new(MemId::Space, 7), len)
                    .expect("no wrap")
            })
            .collect();
        assert_eq!(runs, [Iov { addr: 100, len: 8 }, Iov { addr: 200, len: 2 }]);
        let of = |done| piece_at(&pieces, done).map(|piece| (piece.remote.offset, piece.len));
        assert_eq!(
            [of(0), of(2), of(3), of(8)],
            [Some((100, 3)), Some((100, 3)), Some((103, 5)), Some((200, 2))]
        );
        assert_eq!(of(10), None);
    }
}
