//! The memory that processes of a measurement share.

use std::time::Duration;

use anyhow::{Context, Result};
use standpipe::{Audience, Foreign, GlobalPtr, Grant, GrantName, HeapArray, Node, Remote, Rights};

use super::case::{Case, Memory};
use crate::bare;

/// How long anything may be waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no limit for private memory.
pub(super) const REFUSED: &str = "the kernel refuses cross-memory attach, so it has no limit here";

/// Memory of rank 1 that rank 0 reaches.
pub(super) struct Shared {
    pub(super) heap: HeapArray<u8>,
    pub(super) private: Vec<Vec<u8>>,
    /// The grants of the pieces, by which they are named, if they are to be.
    _grants: Vec<Grant<Foreign<()>>>,
    /// Heap words: where the private pieces lie; then what both sides pass notes with.
    pub(super) words: HeapArray<u64>,
}

/// The first of the notes that a ring of lines takes.
pub(super) const LINES_NOTE: usize = 16;

const NOTES: usize = LINES_NOTE + bare::LINES_WORDS / 8;

/// Bytes from one piece of a block to the next, between which others lie.
const fn apart(size: usize) -> usize {
    size + 64
}

/// Bytes from one slot of a flood to the next.
pub(super) const fn slot_bytes(size: usize) -> usize {
    size.next_multiple_of(64)
}

impl Shared {
    pub(super) fn new(node: &Node, case: &Case) -> Result<Shared> {
        let heap = node.heap().alloc_from(&vec![1u8; case.heap_bytes().max(64)])?;
        let words = node.heap().alloc_zeroed(NOTES * 8 + 3 * case.n)?;
        let private: Vec<Vec<u8>> = match case.memory {
            // One allocation of all pieces, which do not touch each other.
            Memory::OneGrant => vec![vec![1; case.n * apart(case.size)]],
            _ => (0..case.n).map(|i| vec![i as u8; case.size.max(64)]).collect(),
        };
        for index in 0..case.n {
            let piece = match case.memory {
                Memory::OneGrant => private[0][index * apart(case.size)..].as_ptr(),
                _ => private[index].as_ptr(),
            };
            words.write(NOTES * 8 + index, piece.expose_provenance() as u64);
        }
        let mut grants = Vec::new();
        if case.memory.is_granted() {
            let all = private.iter().map(|piece| {
                let len = if case.memory == Memory::OneGrant { piece.len() } else { case.size };
                // SAFETY: the piece is granted as long as it lives, and this process reads it no more.
                unsafe { Foreign::new(piece.as_ptr().cast_mut(), len, ()) }
            });
            grants = node.grant_many(all, Rights::ReadWrite, Audience::ALL)?;
            for (index, grant) in grants.iter().enumerate() {
                words.write_slice(NOTES * 8 + case.n + 2 * index, &grant.name().to_words());
            }
        }
        let found = [heap.ptr(0).to_words(), words.ptr(0).to_words()];
        node.directory().publish(&format!("perf {}", node.rank()), bytemuck::cast_slice(&found))?;
        Ok(Shared { heap, _grants: grants, private, words })
    }
}

/// Words of this process's own that its collectives work on.
pub(super) enum Own {
    Heap(HeapArray<u64>),
    Private(Vec<u64>),
}

impl Own {
    pub(super) fn new(node: &Node, memory: Memory, words: &[u64]) -> Result<Own> {
        Ok(match memory {
            Memory::Heap => Own::Heap(node.heap().alloc_from(words)?),
            Memory::Private | Memory::Granted | Memory::OneGrant => Own::Private(words.to_vec()),
        })
    }

    /// Where they lie, for peers to read: the words of a pointer into a heap, and otherwise an address in the
    /// second.
    pub(super) fn place(&self) -> [u64; 2] {
        match self {
            Own::Heap(array) => array.ptr(0).to_words(),
            Own::Private(words) => [0, words.as_ptr().expose_provenance() as u64],
        }
    }

    /// A peer's private memory from this byte on, to be read: its place is as [`Own::place`] says there.
    pub(super) fn part_of(rank: u32, place: [u64; 2], start: u64) -> Remote {
        // SAFETY: it is read for measuring alone, and the peer keeps the memory until the last barrier.
        unsafe { Remote::raw(rank, place[1] + start) }
    }

    pub(super) fn values(&mut self) -> &mut [u64] {
        match self {
            // SAFETY: peers have a pointer to the array at most to read there (`Own::place`), so that none
            // but this borrow's holder writes, and the array lives as long as the borrow.
            Own::Heap(array) => unsafe { std::slice::from_raw_parts_mut(array.as_ptr(), array.len()) },
            Own::Private(words) => words,
        }
    }
}

/// What a peer shares, as seen from here.
pub(super) struct Theirs {
    pub(super) heap: GlobalPtr<u8>,
    pub(super) words: GlobalPtr<u64>,
}

impl Theirs {
    pub(super) fn find(node: &Node, rank: u32) -> Result<Theirs> {
        let found = node.directory().wait(&format!("perf {rank}"), PATIENCE)?;
        let [heap, words]: [[u64; 2]; 2] =
            bytemuck::try_pod_read_unaligned(&found).ok().context("the peer published four words")?;
        Ok(Theirs { heap: GlobalPtr::from_words(heap), words: GlobalPtr::from_words(words) })
    }

    /// A word alone on its cache line.
    pub(super) fn note(&self, index: usize) -> GlobalPtr<u64> {
        self.words.add(8 * index)
    }

    /// The same pieces by their grants, of which there may be one for all.
    pub(super) fn granted(&self, node: &Node, case: &Case) -> Result<Vec<Remote>> {
        let n = case.n;
        if case.memory == Memory::OneGrant {
            let mut name = [0; 2];
            node.get_slice(self.words.add(NOTES * 8 + n), &mut name)?;
            let name = GrantName::from_words(name).context("the peer has granted no memory")?;
            let first = Remote::granted(self.words.peer(), name);
            return Ok((0..n).map(|index| first.plus((index * apart(case.size)) as u64)).collect());
        }
        let mut names = vec![0; 2 * n];
        node.get_slice(self.words.add(NOTES * 8 + n), &mut names)?;
        let name = |words: &[u64]| GrantName::from_words([words[0], words[1]]);
        let names: Option<Vec<GrantName>> = names.chunks_exact(2).map(name).collect();
        let names = names.context("the peer has granted no pieces")?;
        Ok(names.into_iter().map(|name| Remote::granted(self.words.peer(), name)).collect())
    }

    pub(super) fn private(&self, node: &Node, n: usize) -> Result<Vec<Remote>> {
        let mut addrs = vec![0; n];
        node.get_slice(self.words.add(NOTES * 8), &mut addrs)?;
        // SAFETY: the peer keeps these pieces for measuring alone until the last barrier, and never reads
        // them.
        Ok(addrs.into_iter().map(|addr| unsafe { Remote::raw(self.words.peer(), addr) }).collect())
    }
}
