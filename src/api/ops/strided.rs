//! Regular patterns: blocks at fixed distances, in any number of dimensions.

use engine::MemId;
use vm::Blocks;

use crate::api::node::Node;
use crate::api::ops::buffer::{GetBuffer, PutBuffer, source, target};
use crate::api::ops::event::Event;
use crate::api::ops::rma::{Rest, wraps};
use crate::api::ops::vector_indexed::{LOCAL, disjoint};
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::transport::peers::Peer;
use crate::transport::shm::{Lent, copy};

/// Blocks of `block` bytes, `counts[d]` of them along dimension `d` (the first varies fastest), their starts
/// `remote_strides[d]` and `local_strides[d]` bytes apart. Distances may be negative, and 0: blocks of a put
/// may lie over one another here, those of a get may not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strided<'a> {
    /// Bytes of one contiguous block.
    pub block: usize,
    /// Blocks along each dimension.
    pub counts: &'a [usize],
    /// Bytes from each block to the next along each dimension, at the peer. The first block lies at the place
    /// that the call names.
    pub remote_strides: &'a [i64],
    /// Bytes from each block to the next along each dimension, here.
    pub local_strides: &'a [isize],
    /// Where the first block begins here, in bytes from the start of the slice or buffer.
    pub local_start: usize,
}

/// A shape that fits: rows of blocks, and how many there are.
struct Rows<'a> {
    /// The blocks of a row.
    row: Blocks,
    count: usize,
    /// The dimensions in which rows lie.
    outer: Strided<'a>,
    /// Where the lowest block lies at the peer, and bytes from there to the highest one's end.
    lowest: Remote,
    span: u64,
    /// Where the first row's first block lies: in bytes from the lowest one there, and from the start here.
    first: (i64, isize),
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
        let too_long = |needed: usize| Error::Length {
            what: LOCAL,
            given: local_len as u64,
            expected: needed.max(local_len.saturating_add(1)) as u64,
        };
        // So many bytes that they cannot be counted are more than there are.
        let bytes = self.counts.iter().try_fold(self.block, |bytes, count| bytes.checked_mul(*count));
        bytes.ok_or_else(|| too_long(usize::MAX))?;
        let here = extent(self.local_strides.iter().map(|stride| *stride as i128), self.counts);
        let (first, last) = here.ok_or_else(|| too_long(usize::MAX))?;
        let start = self.local_start as i128;
        let end = start + last + self.block as i128;
        if start + first < 0 {
            let (what, expected) = ("bytes in `local_start`", (-first).min(u64::MAX.into()) as u64);
            return Err(Error::Length { what, given: self.local_start as u64, expected });
        }
        if end > local_len as i128 {
            return Err(too_long(usize::try_from(end).unwrap_or(usize::MAX)));
        }
        let there = extent(self.remote_strides.iter().map(|stride| i128::from(*stride)), self.counts);
        let at = i128::from(remote.place.offset);
        let in_space = |(first, last): &(i128, i128)| {
            at + first >= 0 && at + last + self.block as i128 <= i128::from(u64::MAX)
        };
        let (first, last) = there.filter(in_space).ok_or_else(|| wraps(remote, self.block))?;
        let lowest = remote.wrapping_plus(first as u64);
        // No address is higher than what an i64 counts, and no heap longer.
        let from_lowest = i64::try_from(-first).map_err(|_| wraps(remote, self.block))?;
        let span = (last - first) as u64 + self.block as u64;
        let first = (from_lowest, self.local_start as isize);
        Ok(Some(self.folded().split(lowest, span, first)))
    }

    /// The same shape, where blocks that touch their neighbours at both ends are one.
    fn folded(mut self) -> Strided<'a> {
        while let (Some((count, counts)), Some((there, remote_strides)), Some((here, local_strides))) =
            (self.counts.split_first(), self.remote_strides.split_first(), self.local_strides.split_first())
            && (*there, *here) == (self.block as i64, self.block as isize)
        {
            self = Strided { block: self.block * count, counts, remote_strides, local_strides, ..self };
        }
        self
    }

    /// The first dimension's blocks are a row's, if they lie forwards at both ends; the others say where rows
    /// begin.
    fn split(self, lowest: Remote, span: u64, first: (i64, isize)) -> Rows<'a> {
        let Strided { block, counts, remote_strides, local_strides, .. } = self;
        let (row, dims) = match (counts, remote_strides, local_strides) {
            ([count, ..], [there, ..], [here, ..]) if *there >= 0 && *here >= 0 => {
                (Blocks { block, count: *count, there: *there as u64, here: *here as usize }, 1)
            }
            _ => (Blocks { block, count: 1, there: 0, here: 0 }, 0),
        };
        let outer = Strided {
            counts: &counts[dims..],
            remote_strides: &remote_strides[dims..],
            local_strides: &local_strides[dims..],
            ..self
        };
        Rows { row, count: outer.counts.iter().product(), outer, lowest, span, first }
    }
}

/// How far the first bytes of blocks lie from that of the first: the lowest and the highest. `None` where
/// that cannot be counted.
fn extent(strides: impl Iterator<Item = i128>, counts: &[usize]) -> Option<(i128, i128)> {
    strides.zip(counts).try_fold((0_i128, 0_i128), |(lowest, highest), (stride, count)| {
        let way = stride.checked_mul(*count as i128 - 1)?;
        Some((lowest.checked_add(way.min(0))?, highest.checked_add(way.max(0))?))
    })
}

impl Rows<'_> {
    /// (remote, local) byte offsets of a row's first block: from the lowest one there, from the start here.
    fn start(&self, mut index: usize) -> (u64, usize) {
        let (mut there, mut here) = self.first;
        for (d, count) in self.outer.counts.iter().enumerate() {
            let step = index % count;
            index /= count;
            // Blocks lie within what was found to fit, and so do their distances.
            there = there.wrapping_add(self.outer.remote_strides[d].wrapping_mul(step as i64));
            here = here.wrapping_add(self.outer.local_strides[d].wrapping_mul(step as isize));
        }
        (there as u64, here as usize)
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
    pub fn put_strided_nb<B: PutBuffer>(
        &self,
        to: impl Into<Remote>,
        mut buffer: B,
        shape: &Strided<'_>,
    ) -> Event<B> {
        let (to, mut op) = (to.into(), None);
        let started = self.strided(to, source(&mut buffer), shape, &mut Rest::Started(&mut op));
        Event::new(self, to.peer, started.map(|()| op), buffer)
    }

    /// Starts a strided get into a buffer that the event gives back; as [`Node::put_nb`].
    pub fn get_strided_nb<B: GetBuffer>(
        &self,
        from: impl Into<Remote>,
        mut buffer: B,
        shape: &Strided<'_>,
    ) -> Event<B> {
        let (from, mut op) = (from.into(), None);
        let into = target(&mut buffer);
        let started = self.strided(from, into, shape, &mut Rest::Started(&mut op));
        Event::new(self, from.peer, started.map(|()| op), buffer)
    }

    /// Puts blocks and forgets them: `from` may be reused at return, and [`Node::quiet`] says when the bytes
    /// are in place, and whether that failed.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_strided`].
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
            // More bytes than there is room for lie over one another: that need not be looked for.
            let bytes = block as u64 * (rows.row.count * rows.count) as u64;
            if bytes > local.len() as u64 {
                let given = local.len() as u64;
                return Err(Error::Length { what: LOCAL, given, expected: bytes });
            }
            disjoint(rows.blocks().map(|(_, here)| (here, block)))?;
        }
        let remote = rows.lowest;
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
        let pieces =
            rows.blocks().map(|(there, here)| (remote.wrapping_plus(there), local.part(here, block)));
        self.scatter(local.direction(), pieces, rest)
    }
}
