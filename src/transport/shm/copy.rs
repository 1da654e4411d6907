//! One-sided copies: plain copies for heaps, which are mapped, and cross-memory attach for all other memory.

use std::cell::Cell;
use std::marker::PhantomData;

use engine::{Direction, Mechanism, MemId, OpError, Piece, Place, Why, choose};
use vm::cma::{self, CmaError, Iov};

use super::peers::Peer;

/// Pieces of one transfer whose local ends are borrowed memory: every local place is an address in this process that
/// is valid for the transfer's direction until `'a` ends.
pub(crate) struct PieceList<'a> {
    /// The only piece, as long as there is no more than one: most transfers have one, and need no list.
    one: Option<Piece>,
    many: Vec<Piece>,
    direction: Direction,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> PieceList<'a> {
    /// An empty list of pieces to be put.
    pub(crate) fn put(capacity: usize) -> PieceList<'a> {
        PieceList::new(Direction::Put, capacity)
    }

    /// An empty list of pieces to be got.
    pub(crate) fn get(capacity: usize) -> PieceList<'a> {
        PieceList::new(Direction::Get, capacity)
    }

    #[inline]
    fn new(direction: Direction, capacity: usize) -> PieceList<'a> {
        let mut many = Vec::new();
        if capacity > 1 {
            many = SPARE.try_with(Cell::take).unwrap_or_default();
            many.reserve(capacity);
        }
        PieceList { one: None, many, direction, borrowed: PhantomData }
    }

    /// Adds a piece that goes from `from` to `remote`. `None` where the remote end would wrap.
    pub(crate) fn push_put(&mut self, remote: Place, from: &'a [u8]) -> Option<()> {
        assert_eq!(self.direction, Direction::Put, "a list of gets takes no source");
        self.push(remote, from.as_ptr().expose_provenance(), from.len())
    }

    /// Adds a piece that comes from `remote` to `into`. `None` where the remote end would wrap.
    pub(crate) fn push_get(&mut self, remote: Place, into: &'a mut [u8]) -> Option<()> {
        assert_eq!(self.direction, Direction::Get, "a list of puts takes no target");
        self.push(remote, into.as_mut_ptr().expose_provenance(), into.len())
    }

    fn push(&mut self, remote: Place, addr: usize, len: usize) -> Option<()> {
        let local = Place::new(MemId::Space, addr as u64);
        let piece = Piece::new(remote, local, len as u64)?;
        if self.one.is_none() && self.many.is_empty() {
            self.one = Some(piece);
        } else {
            self.many.extend(self.one.take());
            self.many.push(piece);
        }
        Some(())
    }

    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece] {
        if self.one.is_some() { self.one.as_slice() } else { &self.many }
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Copies all pieces to or from `peer` now. Returns the bytes that each mechanism used has moved.
    pub(crate) fn copy(
        &self,
        peer: &Peer,
    ) -> Result<impl Iterator<Item = (Mechanism, u64)> + use<>, CopyError> {
        // SAFETY: the list's invariant is what `copy_pieces` asks for, and `'a` has not ended.
        let slowest = unsafe { copy_pieces(peer, self.direction, self.pieces()) }?;
        let moved = [(Mechanism::Mapped, self.bytes(false)), (slowest, self.bytes(true))];
        Ok(moved.into_iter().filter_map(|(mechanism, bytes)| Some((mechanism, bytes?))))
    }

    /// Bytes of all pieces in private memory, or of all others; `None` where there is no such piece.
    fn bytes(&self, private: bool) -> Option<u64> {
        let of_kind = self.pieces().iter().filter(|piece| (piece.remote.mem == MemId::Space) == private);
        of_kind.map(|piece| piece.len).reduce(|sum, len| sum + len)
    }
}

thread_local! {
    /// The last list's memory, for the next one: a transfer allocates nothing once its thread has made one as long.
    static SPARE: Cell<Vec<Piece>> = const { Cell::new(Vec::new()) };
}

/// Lists longer than this are not kept for the next.
const SPARE_MAX: usize = 1 << 16;

impl Drop for PieceList<'_> {
    fn drop(&mut self) {
        let mut pieces = std::mem::take(&mut self.many);
        if (1..=SPARE_MAX).contains(&pieces.capacity()) {
            pieces.clear();
            // A thread that is ending has no use for it any more.
            let _ = SPARE.try_with(|spare| spare.set(pieces));
        }
    }
}

/// Why a one-sided copy did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// The peer's private memory cannot be attached, for this reason: all pieces are still to be copied.
    Unreachable(Why),
    /// It failed on the way.
    Failed(OpError),
}

impl From<OpError> for CopyError {
    fn from(error: OpError) -> CopyError {
        CopyError::Failed(error)
    }
}

/// Puts one piece now.
#[inline]
pub(crate) fn put_one(peer: &Peer, remote: Place, from: &[u8]) -> Result<Mechanism, CopyError> {
    let local = Place::new(MemId::Space, from.as_ptr().expose_provenance() as u64);
    let piece = Piece { remote, local, len: from.len() as u64 };
    // SAFETY: the local end is a slice borrowed for reading until this returns.
    unsafe { copy_pieces(peer, Direction::Put, &[piece]) }
}

/// Gets one piece now.
#[inline]
pub(crate) fn get_one(peer: &Peer, remote: Place, into: &mut [u8]) -> Result<Mechanism, CopyError> {
    let local = Place::new(MemId::Space, into.as_mut_ptr().expose_provenance() as u64);
    let piece = Piece { remote, local, len: into.len() as u64 };
    // SAFETY: the local end is a slice borrowed for writing until this returns.
    unsafe { copy_pieces(peer, Direction::Get, &[piece]) }
}

/// Copies all pieces to or from `peer`: heap pieces as memory, all others in as few system calls as their list
/// allows. Returns the slowest mechanism used.
///
/// # Safety
/// For a put every piece's local place must be [`MemId::Space`] with an address and length that this process may
/// read; for a get, memory that it may write and that nothing else refers to meanwhile.
pub(crate) unsafe fn copy_pieces(
    peer: &Peer,
    direction: Direction,
    pieces: &[Piece],
) -> Result<Mechanism, CopyError> {
    let private = pieces.iter().filter(|piece| piece.remote.mem == MemId::Space).count();
    let mut slowest = Mechanism::Mapped;
    if private > 0 {
        let (mechanism, why) = choose::mechanism(MemId::Space, peer.attach());
        if mechanism == Mechanism::Message {
            return Err(CopyError::Unreachable(why));
        }
        slowest = mechanism;
        // SAFETY: the caller's promise about all pieces covers these.
        unsafe { attach(peer, direction, pieces, private) }?;
    }
    if private < pieces.len() {
        for piece in pieces.iter().filter(|piece| piece.remote.mem != MemId::Space) {
            // SAFETY: the caller's promise about all pieces covers this one.
            unsafe { copy_mapped(peer, direction, piece) }?;
        }
    }
    Ok(slowest)
}

/// # Safety
/// As for [`copy_pieces`].
unsafe fn copy_mapped(peer: &Peer, direction: Direction, piece: &Piece) -> Result<(), CopyError> {
    let fault = || match peer.is_far() {
        true => CopyError::Unreachable(Why::Network),
        false => heap_fault(peer, piece.remote.offset, piece.len).into(),
    };
    let end = piece.remote.offset.checked_add(piece.len).ok_or_else(fault)?;
    let heap = peer.heap_up_to(end).filter(|_| piece.remote.mem == MemId::Heap).ok_or_else(fault)?;
    let (addr, len) = (piece.local.offset as usize, piece.len as usize);
    let copied = match direction {
        Direction::Put => {
            // SAFETY: the caller promises `len` readable bytes at this address; the address was exposed by whoever
            // borrowed them. They lie outside every mapping of ours, of which no slice exists.
            let from = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(addr), len) };
            heap.copy_in(piece.remote.offset, from)
        }
        Direction::Get => {
            // SAFETY: the caller promises `len` writable bytes at this address that nothing else refers to.
            let into =
                unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(addr), len) };
            heap.copy_out(piece.remote.offset, into)
        }
    };
    copied.map_err(|_| fault())
}

/// The error for an access to `len` bytes at `offset` of the peer's heap that is not allowed.
#[cold]
pub(crate) fn heap_fault(peer: &Peer, offset: u64, len: u64) -> OpError {
    if peer.is_lost() {
        OpError::PeerLost { peer: peer.rank }
    } else {
        OpError::Fault { peer: peer.rank, mem: MemId::Heap, addr: offset, len }
    }
}

/// # Safety
/// As for [`copy_pieces`].
unsafe fn attach(
    peer: &Peer,
    direction: Direction,
    pieces: &[Piece],
    private: usize,
) -> Result<(), CopyError> {
    if peer.is_lost() {
        return Err(OpError::PeerLost { peer: peer.rank }.into());
    }
    let ends = |piece: &Piece| {
        let remote = Iov { addr: piece.remote.offset, len: piece.len };
        (remote, Iov { addr: piece.local.offset, len: piece.len })
    };
    let done = if let [piece] = pieces {
        let (remote, local) = ends(piece);
        // SAFETY: the local end is the caller's one piece, which it promises to be valid for this direction.
        unsafe { attach_list(peer.pid, direction, &[remote], &[local]) }
    } else {
        let mut remote = Vec::with_capacity(private);
        let mut local = Vec::with_capacity(private);
        for (there, here) in pieces.iter().filter(|piece| piece.remote.mem == MemId::Space).map(ends) {
            remote.push(there);
            local.push(here);
        }
        // SAFETY: the local ends are those of the caller's pieces, which it promises to be valid for this direction.
        unsafe { attach_list(peer.pid, direction, &remote, &local) }
    };
    done.map_err(|error| attach_error(peer, error))
}

/// # Safety
/// `local` as for [`copy_pieces`].
unsafe fn attach_list(pid: u32, direction: Direction, remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    match direction {
        // SAFETY: the caller promises local memory that may be read.
        Direction::Put => unsafe { cma::write_to(pid, remote, local) },
        // SAFETY: the caller promises local memory that may be written and is not referred to otherwise.
        Direction::Get => unsafe { cma::read_from(pid, remote, local) },
    }
}

#[cold]
fn attach_error(known: &Peer, error: CmaError) -> CopyError {
    let peer = known.rank;
    let failed = match error {
        CmaError::Fault { addr, len, .. } => OpError::Fault { peer, mem: MemId::Space, addr, len },
        CmaError::LocalFault { addr, len, .. } => OpError::LocalFault { mem: MemId::Space, addr, len },
        CmaError::Gone => {
            // The kernel knows before the launcher tells. Whoever has heard of the loss must not find the heap alive.
            known.lose();
            OpError::PeerLost { peer }
        }
        // Rights were there when the peer was introduced. What earlier calls for a long list have copied does no harm:
        // it is copied once more.
        CmaError::Denied { errno } => return CopyError::Unreachable(known.lose_attach(errno)),
        _ => OpError::Protocol { peer, what: "cross-memory attach failed in a way that no kernel documents" },
    };
    CopyError::Failed(failed)
}
