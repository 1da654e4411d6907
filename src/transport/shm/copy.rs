//! One-sided copies: plain copies for heaps, which are mapped, and cross-memory attach for all other memory.

mod attach;
mod granted;

use std::borrow::Cow;
use std::cell::Cell;
use std::marker::PhantomData;

use engine::{Direction, MemId, OpError, PathReason, Piece, Place};
use vm::{Blocks, Outside, SharedMemory};

pub(crate) use self::attach::{CopyError, heap_fault};
use self::attach::{attach, copy_mapped, in_space};
use crate::transport::peers::Near;

/// Local memory that a transfer borrows: to be read by a put, or written by a get, until `'a` ends. Parts of
/// memory that is to be written may be the same: they are only ever written one after the other, or by others
/// than this program.
#[derive(Clone, Copy)]
pub(crate) struct Lent<'a> {
    addr: usize,
    len: usize,
    direction: Direction,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Lent<'a> {
    /// The memory that a put takes.
    #[inline]
    pub(crate) fn source(from: &'a [u8]) -> Lent<'a> {
        let addr = from.as_ptr().expose_provenance();
        Lent { addr, len: from.len(), direction: Direction::Put, borrowed: PhantomData }
    }

    /// The memory that a get fills.
    #[inline]
    pub(crate) fn target(into: &'a mut [u8]) -> Lent<'a> {
        let addr = into.as_mut_ptr().expose_provenance();
        Lent { addr, len: into.len(), direction: Direction::Get, borrowed: PhantomData }
    }

    /// The memory that a put takes, by pointer.
    ///
    /// # Safety
    /// So many bytes are valid and initialised there until `'a` ends.
    #[inline]
    pub(crate) unsafe fn source_at(start: *const u8, len: usize) -> Lent<'a> {
        let start = if len == 0 { std::ptr::dangling() } else { start };
        Lent { addr: start.expose_provenance(), len, direction: Direction::Put, borrowed: PhantomData }
    }

    /// The memory that a get fills, by pointer.
    ///
    /// # Safety
    /// So many bytes are valid there until `'a` ends, and may be written; nobody else uses them meanwhile.
    #[inline]
    pub(crate) unsafe fn target_at(start: *mut u8, len: usize) -> Lent<'a> {
        let start = if len == 0 { std::ptr::dangling_mut() } else { start };
        Lent { addr: start.expose_provenance(), len, direction: Direction::Get, borrowed: PhantomData }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Whether it is read or written.
    #[inline]
    pub(crate) fn direction(self) -> Direction {
        self.direction
    }

    /// `len` bytes of it from `start` on.
    ///
    /// Panics where it has not as many.
    #[inline]
    pub(crate) fn part(self, start: usize, len: usize) -> Lent<'a> {
        assert!(start <= self.len && len <= self.len - start, "a part lies within the whole");
        Lent { addr: self.addr + start, len, ..self }
    }

    #[inline]
    fn place(self) -> Place {
        Place::new(MemId::Space, self.addr as u64)
    }
}

/// Pieces of one transfer whose local ends are borrowed memory: every local place is an address in this
/// process that is valid for the transfer's direction until `'a` ends.
pub(crate) struct PieceList<'a> {
    /// The only piece, as long as there is no more than one: most transfers have one, and need no list.
    one: Option<Piece>,
    many: Vec<Piece>,
    direction: Direction,
    /// Whether the peer's end of any lies in a grant.
    has_granted: bool,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> PieceList<'a> {
    /// An empty list of pieces that go this way.
    #[inline]
    pub(crate) fn new(direction: Direction) -> PieceList<'a> {
        PieceList { one: None, many: Vec::new(), direction, has_granted: false, borrowed: PhantomData }
    }

    /// Adds a piece between `remote` and `local`. `None` where the remote end would wrap.
    #[inline]
    pub(crate) fn push(&mut self, remote: Place, local: Lent<'a>) -> Option<()> {
        assert_eq!(self.direction, local.direction, "all pieces of a list go one way");
        let piece = Piece::new(remote, local.place(), local.len as u64)?;
        self.has_granted |= matches!(remote.mem, MemId::Grant(_));
        if self.one.is_none() && self.many.is_empty() {
            self.one = Some(piece);
            return Some(());
        }
        if let Some(first) = self.one.take() {
            self.many = SPARE.try_with(Cell::take).unwrap_or_default();
            self.many.push(first);
        }
        self.many.push(piece);
        Some(())
    }

    /// The list of the same pieces of a put, from a copy of what they take.
    pub(crate) fn copied<'b>(&self, copy: &'b mut Vec<u8>) -> PieceList<'b> {
        assert_eq!(self.direction, Direction::Put, "what a get fills is not copied");
        for piece in self.pieces() {
            let (addr, len) = (piece.local.offset as usize, piece.len as usize);
            // SAFETY: the list's invariant: `len` bytes that are borrowed for reading until `'a` ends.
            copy.extend_from_slice(unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance(addr), len)
            });
        }
        let (mut rest, mut list) = (Lent::source(copy), PieceList::new(Direction::Put));
        for piece in self.pieces() {
            let len = piece.len as usize;
            list.push(piece.remote, rest.part(0, len)).expect("no remote end wraps in this list");
            rest = rest.part(len, rest.len - len);
        }
        list
    }

    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece] {
        if self.one.is_some() { self.one.as_slice() } else { &self.many }
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether the peer's end of any piece lies in a grant.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        self.has_granted
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces().iter().map(|piece| piece.len).sum()
    }

    /// Copies all pieces to or from memory of a near peer now that it has granted: known grants cover all
    /// addresses.
    pub(crate) fn by_address(&self, peer: &Near) -> Result<(), CopyError> {
        // SAFETY: the list's invariant is what such a copy asks for as well, and `'a` has not ended.
        unsafe { granted::copy(peer, self.direction, self.pieces()) }
    }

    /// Copies all pieces to or from the private memory of a near peer now, or what it has granted, which can
    /// be attached.
    pub(crate) fn by_attach(&self, peer: &Near) -> Result<(), CopyError> {
        if self.has_granted {
            // SAFETY: the list's invariant is what such a copy asks for as well, and `'a` has not ended.
            return unsafe { granted::copy(peer, self.direction, self.pieces()) };
        }
        // SAFETY: the list's invariant is what `attach` asks for, and `'a` has not ended.
        unsafe { attach(peer, self.direction, self.pieces(), self.pieces().len()) }
    }
}

thread_local! {
    /// The last list's memory, for the next one: a transfer allocates nothing once its thread has made one as
    /// long.
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

/// Copies one piece to or from the private memory of a near peer now, or what it has granted, which can be
/// attached.
#[inline]
pub(crate) fn by_attach(peer: &Near, remote: Place, local: Lent<'_>) -> Result<(), CopyError> {
    let piece = Piece { remote, local: local.place(), len: local.len as u64 };
    if remote.in_grant().is_some() {
        // SAFETY: the local end is memory borrowed for this direction until this returns.
        return unsafe { granted::copy(peer, local.direction, &[piece]) };
    }
    // SAFETY: the local end is memory borrowed for this direction until this returns.
    unsafe { attach(peer, local.direction, &[piece], 1) }
}

/// Copies one piece to or from memory of a near peer now whose address a known grant covers.
pub(crate) fn by_address(peer: &Near, remote: Place, local: Lent<'_>) -> Result<(), CopyError> {
    let piece = Piece { remote, local: local.place(), len: local.len as u64 };
    // SAFETY: the local end is memory borrowed for this direction until this returns.
    unsafe { granted::copy(peer, local.direction, &[piece]) }
}

/// Copies one piece to or from the heap of a near peer now.
#[inline]
pub(crate) fn in_heap(peer: &Near, remote: Place, local: Lent<'_>) -> Result<(), OpError> {
    let piece = Piece { remote, local: local.place(), len: local.len as u64 };
    // SAFETY: the local end is memory borrowed for this direction until this returns.
    unsafe { copy_mapped(peer, local.direction, &piece) }
}

/// Copies bytes between a heap, from `offset` on, and local memory now.
#[inline]
pub(crate) fn bytes(heap: &SharedMemory, offset: u64, local: Lent<'_>) -> Result<(), Outside> {
    match local.direction {
        Direction::Put => {
            let addr = std::ptr::with_exposed_provenance(local.addr);
            // SAFETY: so many bytes there are borrowed for reading until this returns.
            unsafe { heap.copy_in_from(offset, addr, local.len) }
        }
        Direction::Get => {
            let addr = std::ptr::with_exposed_provenance_mut(local.addr);
            // SAFETY: memory borrowed for writing until this returns, and by nobody else.
            unsafe { heap.copy_out_to(offset, addr, local.len) }
        }
    }
}

/// Copies blocks between a heap, from `offset` on, and local memory now.
#[inline]
pub(crate) fn blocks(
    heap: &SharedMemory,
    offset: u64,
    local: Lent<'_>,
    blocks: Blocks,
) -> Result<(), Outside> {
    match local.direction {
        Direction::Put => {
            let addr = std::ptr::with_exposed_provenance(local.addr);
            // SAFETY: so many bytes there are borrowed for reading until this returns.
            unsafe { heap.copy_in_blocks_from(offset, addr, local.len, blocks) }
        }
        Direction::Get => {
            let addr = std::ptr::with_exposed_provenance_mut(local.addr);
            // SAFETY: memory borrowed for writing until this returns, and by nobody else.
            unsafe { heap.copy_out_blocks_to(offset, addr, local.len, blocks) }
        }
    }
}

/// Copies all pieces to or from `peer`: heap pieces as memory, all others in as few system calls as their
/// list allows.
///
/// # Safety
/// For a put every piece's local place must be [`MemId::Space`] with an address and length that this process
/// may read. For a get it must be memory that it may write and that nothing else refers to meanwhile.
pub(crate) unsafe fn copy_pieces(
    peer: &Near,
    direction: Direction,
    pieces: &[Piece],
) -> Result<(), CopyError> {
    if pieces.iter().any(|piece| piece.remote.in_grant().is_some()) {
        // SAFETY: the caller promises the local ends of all pieces for this direction, until this returns.
        return unsafe { granted::copy(peer, direction, pieces) };
    }
    let private = in_space(pieces).count();
    if private > 0 {
        // SAFETY: the caller's promise about all pieces covers these.
        unsafe { attach(peer, direction, pieces, private) }?;
    }
    for piece in pieces.iter().filter(|piece| piece.remote.mem != MemId::Space) {
        // SAFETY: the caller's promise about all pieces covers this one.
        unsafe { copy_mapped(peer, direction, piece) }?;
    }
    Ok(())
}

/// These pieces, with each peer's end where it is reached best.
pub(super) fn best_of<'a>(known: &Near, pieces: &'a [Piece]) -> Cow<'a, [Piece]> {
    let best = |piece: &Piece| Piece { remote: known.best(piece.remote, piece.len as usize), ..*piece };
    match pieces.iter().position(|piece| best(piece) != *piece) {
        Some(at) => pieces[..at].iter().copied().chain(pieces[at..].iter().map(best)).collect(),
        None => pieces.into(),
    }
}

/// Whether copies reach a near peer's ends of all pieces, from these local ends.
pub(super) fn reaches(known: &Near, pieces: &[Piece]) -> Result<(), PathReason> {
    // A local end in the heap may change under us, and is nobody's to borrow: it is read piece by piece.
    if pieces.iter().any(|piece| piece.local.mem != MemId::Space) {
        return Err(PathReason::NotOffered);
    }
    let unreached = |piece: &Piece| match known.best(piece.remote, piece.len as usize).mem {
        MemId::Heap | MemId::Control => Ok(()),
        memory @ (MemId::Space | MemId::Grant(_)) => known.reach.attach_to(memory),
    };
    pieces.iter().try_for_each(unreached)
}
