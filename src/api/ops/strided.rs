//! Regular patterns: blocks at fixed distances, in any number of dimensions.

use engine::MemId;
use vm::Blocks;

use crate::api::node::Node;
use crate::api::ops::event::{Buffer, Event};
use crate::api::ops::rma::{Rest, wraps};
use crate::api::ops::vector_indexed::{LOCAL, disjoint};
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::transport::peers::Peer;
use crate::transport::shm::{Lent, copy};

/// Blocks of `block` bytes, `counts[d]` of them along dimension `d` (the first varies fastest), their starts
/// `remote_strides[d]` and `local_strides[d]` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// Bytes of one contiguous block.
    pub block: usize,
    /// Blocks along each dimension.
    pub counts: &'a [usize],
    /// Bytes between neighbours along each dimension, at the peer.
    pub remote_strides: &'a [u64],
    /// Bytes between neighbours along each dimension, here; at least what the dimensions before it span.
    pub local_strides: &'a [usize],
}

/// A shape that fits: rows of blocks, and how many there are.
struct Rows<'a> {
    /// The blocks of a row.
    row: Blocks,
    count: usize,
    /// The dimensions in which rows lie.
    outer: Strided<'a>,
    /// Bytes from the first block's start to the last one's end at the peer.
    span: u64,
}

impl<'a> Strided<'a> {
    /// The shape as rows; `None` where there is nothing to move. The error says which length was given and
    /// which expected.
    fn rows(&self, remote: Remote, local_len: usize) -> Result<Option<Rows<'a>>, Error> {
        let dims = self.counts.len();
        for (what, strides) in [
            ("distances in `remote_strides`", self.remote_strides.len()),
            ("distances in `local_strides`", self.local_strides.len()),
        ] {
            if strides != dims {
                return Err(Error::Length { what, given: strides as u64, expected: dims as u64 });
            }
        }
        if self.block == 0 || self.counts.contains(&0) {
            return Ok(None);
        }
        let bytes = self.counts.iter().try_fold(self.block, |bytes, count| bytes.checked_mul(*count));
        let here = self
            .local_strides
            .iter()
            .zip(self.counts)
            .try_fold(self.block, |end, (stride, count)| end.checked_add(stride.checked_mul(count - 1)?));
        let needed = bytes.zip(here).map_or(usize::MAX, |(bytes, here)| bytes.max(here));
        if needed > local_len {
            return Err(Error::Length { what: LOCAL, given: local_len as u64, expected: needed as u64 });
        }
        let mut there = self.remote_strides.iter().zip(self.counts);
        let span = there.try_fold(self.block as u64, |end, (stride, count)| {
            end.checked_add(stride.checked_mul(*count as u64 - 1)?)
        });
        let span = span.filter(|span| remote.place.offset.checked_add(*span).is_some());
        let span = span.ok_or_else(|| wraps(remote, self.block))?;
        Ok(Some(self.folded().split(span)))
    }

    /// The same shape, where blocks that touch their neighbours at both ends are one.
    fn folded(mut self) -> Strided<'a> {
        while let (Some((count, counts)), Some((there, remote_strides)), Some((here, local_strides))) =
            (self.counts.split_first(), self.remote_strides.split_first(), self.local_strides.split_first())
            && (*there, *here) == (self.block as u64, self.block)
        {
            self = Strided { block: self.block * count, counts, remote_strides, local_strides };
        }
        self
    }

    /// The first dimension's blocks are a row's, the others say where rows begin.
    fn split(self, span: u64) -> Rows<'a> {
        let Strided { block, counts, remote_strides, local_strides } = self;
        let row = match (counts, remote_strides, local_strides) {
            ([count, ..], [there, ..], [here, ..]) => {
                Blocks { block, count: *count, there: *there, here: *here }
            }
            _ => Blocks { block, count: 1, there: 0, here: 0 },
        };
        let outer = Strided {
            counts: counts.get(1..).unwrap_or_default(),
            remote_strides: remote_strides.get(1..).unwrap_or_default(),
            local_strides: local_strides.get(1..).unwrap_or_default(),
            block,
        };
        Rows { row, count: outer.counts.iter().product(), outer, span }
    }
}

impl Rows<'_> {
    /// (remote, local) byte offsets of a row's first block.
    fn start(&self, mut index: usize) -> (u64, usize) {
        let (mut there, mut here) = (0, 0);
        for (d, count) in self.outer.counts.iter().enumerate() {
            let step = index % count;
            index /= count;
            there += self.outer.remote_strides[d] * step as u64;
            here += self.outer.local_strides[d] * step;
        }
        (there, here)
    }

    /// (remote, local) byte offsets of all blocks.
    fn blocks(&self) -> impl Iterator<Item = (u64, usize)> + Clone {
        (0..self.count).flat_map(move |row| {
            let (there, here) = self.start(row);
            (0..self.row.count).map(move |i| (there + self.row.there * i as u64, here + self.row.here * i))
        })
    }
}

/// Strided puts and gets: one call for all blocks, as [`Node::put_list`] makes it. A shape that does not fit
/// moves nothing.
impl Node {
    /// Puts the blocks of `from` that `shape` describes to where it says, from `to` on.
    ///
    /// # Errors
    /// [`Error::Length`] where the shape does not fit `from` or its parts differ in dimensions; for the rest
    /// as for [`Node::put_list`].
    pub fn put_strided(&self, to: impl Into<Remote>, from: &[u8], shape: &Strided<'_>) -> Result<(), Error> {
        self.strided(to.into(), Lent::source(from), shape, &mut Rest::Awaited)
    }

    /// Gets the blocks that `shape` describes, from `from` on, into `into`.
    ///
    /// # Errors
    /// As for [`Node::put_strided`]; besides [`Error::Overlap`] where blocks overlap in `into`.
    pub fn get_strided(
        &self,
        from: impl Into<Remote>,
        into: &mut [u8],
        shape: &Strided<'_>,
    ) -> Result<(), Error> {
        self.strided(from.into(), Lent::target(into), shape, &mut Rest::Awaited)
    }

    /// Starts a strided put from a buffer that the event gives back; as [`Node::put_nb`].
    pub fn put_strided_nb<B: Buffer>(
        &self,
        to: impl Into<Remote>,
        buffer: B,
        shape: &Strided<'_>,
    ) -> Event<B> {
        let (to, mut op) = (to.into(), None);
        let started = self.strided(to, Lent::source(buffer.bytes()), shape, &mut Rest::Started(&mut op));
        Event::new(self, to.peer, started.map(|()| op), buffer)
    }

    /// Starts a strided get into a buffer that the event gives back; as [`Node::put_nb`].
    pub fn get_strided_nb<B: Buffer>(
        &self,
        from: impl Into<Remote>,
        mut buffer: B,
        shape: &Strided<'_>,
    ) -> Event<B> {
        let (from, mut op) = (from.into(), None);
        let into = Lent::target(buffer.bytes_mut());
        let started = self.strided(from, into, shape, &mut Rest::Started(&mut op));
        Event::new(self, from.peer, started.map(|()| op), buffer)
    }

    /// Puts blocks and forgets them: `from` may be reused at return, and [`Node::quiet`] says when the bytes
    /// are in place, and whether that failed.
    ///
    /// # Errors
    /// Those that show at once, as for [`Node::put_strided`].
    pub fn put_strided_nbi(
        &self,
        to: impl Into<Remote>,
        from: &[u8],
        shape: &Strided<'_>,
    ) -> Result<(), Error> {
        self.strided(to.into(), Lent::source(from), shape, &mut Rest::Forgotten)
    }

    fn strided(
        &self,
        remote: Remote,
        local: Lent<'_>,
        shape: &Strided<'_>,
        rest: &mut Rest<'_>,
    ) -> Result<(), Error> {
        let Some(rows) = shape.rows(remote, local.len())? else { return Ok(()) };
        let block = rows.row.block;
        if local.direction() == engine::Direction::Get {
            disjoint(rows.blocks().map(|(_, here)| (here, block)))?;
        }
        // One look tells that the whole of it may be accessed.
        if remote.place.mem == MemId::Heap
            && let Peer::Near(near) = self.connected(remote.peer)?
            && let Some(heap) = near.heap_up_to(remote.place.offset + rows.span)
        {
            for row in 0..rows.count {
                let (there, here) = rows.start(row);
                let rest = local.part(here, local.len() - here);
                let copied = copy::blocks(heap, remote.place.offset + there, rest, rows.row);
                copied.map_err(|_| wraps(remote, block))?;
            }
            let bytes = block * rows.row.count * rows.count;
            self.count(local.direction(), engine::Mechanism::Mapped, bytes as u64);
            return Ok(());
        }
        let pieces = rows.blocks().map(|(there, here)| (remote.plus(there), local.part(here, block)));
        self.scatter(local.direction(), pieces, rest)
    }
}
