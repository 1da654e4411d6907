//! Runs of bytes that are cut differently at the two ends of a transfer: vectors of them, and indexed blocks.

use std::ops::Range;

use engine::{Direction, Rank};

use crate::api::node::Node;
use crate::api::ops::buffer::{GetBuffer, PutBuffer, source, target};
use crate::api::ops::event::Event;
use crate::api::ops::rma::{Rest, wraps};
use crate::base::error::Error;
use crate::base::pointers::Remote;
use crate::transport::shm::Lent;

/// The unit of the local memory.
pub(crate) const LOCAL: &str = "bytes of local memory";

/// A run of bytes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRun {
    /// Its first byte.
    pub at: Remote,
    /// Its bytes.
    pub len: usize,
}

/// Blocks of one length at each end, anywhere: the bytes of the local ones, one after the other, are those of
/// the remote ones. The two lengths may differ, and then so do the numbers of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Indexed<'a> {
    /// Bytes of a block at the peer.
    pub remote_block: usize,
    /// Where the blocks lie at the peer, in bytes.
    pub remote_offsets: &'a [u64],
    /// Bytes of a block here.
    pub local_block: usize,
    /// Where the blocks lie here, in bytes.
    pub local_offsets: &'a [usize],
}

impl Indexed<'_> {
    /// Whether both ends have as many bytes, and lie where they may. The error names the values that do not
    /// fit.
    fn check(&self, remote: Remote, local_len: usize) -> Result<(), Error> {
        let bytes = |block: usize, blocks: usize| (block as u64).saturating_mul(blocks as u64);
        let there = bytes(self.remote_block, self.remote_offsets.len());
        let here = bytes(self.local_block, self.local_offsets.len());
        if there != here {
            return Err(Error::Length { what: "bytes in the local blocks", given: here, expected: there });
        }
        let block = self.remote_block as u64;
        for offset in self.remote_offsets {
            let end = remote.place.offset.checked_add(*offset).and_then(|start| start.checked_add(block));
            end.ok_or_else(|| wraps(remote.plus(*offset), self.remote_block))?;
        }
        let ends = self.local_offsets.iter().map(|offset| offset.saturating_add(self.local_block));
        match ends.max() {
            Some(end) if end > local_len => {
                Err(Error::Length { what: LOCAL, given: local_len as u64, expected: end as u64 })
            }
            _ => Ok(()),
        }
    }
}

/// Indexed and vector puts and gets: one call for all runs, as [`Node::put_list`] makes it. A length that
/// does not fit moves nothing.
impl Node {
    /// Puts blocks of `from` to blocks that lie at offsets from `to`.
    ///
    /// # Errors
    /// [`Error::Length`] where the two ends differ in bytes, or a block does not lie in `from`; for the rest
    /// as for [`Node::put_list`].
    pub fn put_indexed(&self, to: impl Into<Remote>, from: &[u8], shape: &Indexed<'_>) -> Result<(), Error> {
        self.indexed(to.into(), Lent::source(from), shape, &mut Rest::Awaited)
    }

    /// Gets blocks that lie at offsets from `from` into blocks of `into`.
    ///
    /// # Errors
    /// As for [`Node::put_indexed`]; besides [`Error::Overlap`] where blocks overlap in `into`.
    pub fn get_indexed(
        &self,
        from: impl Into<Remote>,
        into: &mut [u8],
        shape: &Indexed<'_>,
    ) -> Result<(), Error> {
        self.indexed(from.into(), Lent::target(into), shape, &mut Rest::Awaited)
    }

    /// Starts an indexed put from a buffer that the event gives back; as [`Node::put_nb`].
    pub fn put_indexed_nb<B: PutBuffer>(
        &self,
        to: impl Into<Remote>,
        mut buffer: B,
        shape: &Indexed<'_>,
    ) -> Event<B> {
        let (to, mut op) = (to.into(), None);
        let started = self.indexed(to, source(&mut buffer), shape, &mut Rest::Started(&mut op));
        Event::new(self, to.peer, started.map(|()| op), buffer)
    }

    /// Starts an indexed get into a buffer that the event gives back; as [`Node::put_nb`].
    pub fn get_indexed_nb<B: GetBuffer>(
        &self,
        from: impl Into<Remote>,
        mut buffer: B,
        shape: &Indexed<'_>,
    ) -> Event<B> {
        let (from, mut op) = (from.into(), None);
        let into = target(&mut buffer);
        let started = self.indexed(from, into, shape, &mut Rest::Started(&mut op));
        Event::new(self, from.peer, started.map(|()| op), buffer)
    }

    /// Puts blocks and forgets them: `from` may be reused at return, and [`Node::quiet`] says when the bytes
    /// are in place, and whether that failed.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_indexed`].
    pub fn put_indexed_nbi(
        &self,
        to: impl Into<Remote>,
        from: &[u8],
        shape: &Indexed<'_>,
    ) -> Result<(), Error> {
        self.indexed(to.into(), Lent::source(from), shape, &mut Rest::Forgotten)
    }

    /// Puts the bytes of `from`, one run after the other, to the runs `to`. Runs may be of several peers;
    /// sort them by peer.
    ///
    /// # Errors
    /// [`Error::Length`] where the two ends differ in bytes; for the rest as for [`Node::put_list`].
    pub fn put_vector(&self, to: &[RemoteRun], from: &[&[u8]]) -> Result<(), Error> {
        let here = || from.iter().map(|run| Lent::source(run));
        self.vector(Direction::Put, to, here, &mut Rest::Awaited)
    }

    /// Gets the bytes of the runs `from`, one after the other, into `into`; as [`Node::put_vector`].
    ///
    /// # Errors
    /// As for [`Node::put_vector`].
    pub fn get_vector(&self, from: &[RemoteRun], into: &mut [&mut [u8]]) -> Result<(), Error> {
        equal(from, into.iter().map(|run| run.len()))?;
        let pieces = Cut::new(there(from), into.iter_mut().map(|run| Lent::target(run)));
        self.scatter(Direction::Get, pieces, &mut Rest::Awaited)
    }

    /// Starts a put of parts of a buffer that the event gives back, of its bytes in these ranges, one after
    /// the other, to the runs `to`; as [`Node::put_nb`]. All runs are of one peer.
    ///
    /// The event's error may be [`Error::Elsewhere`], where runs are of several peers, and [`Error::Length`]
    /// as for [`Node::put_vector`], or where a range does not lie in the buffer.
    pub fn put_vector_nb<B: PutBuffer>(
        &self,
        to: &[RemoteRun],
        mut buffer: B,
        parts: &[Range<usize>],
    ) -> Event<B> {
        let mut op = None;
        let started = self.parts(to, source(&mut buffer), parts, &mut op);
        self.event_of(to, started.map(|()| op), buffer)
    }

    /// Starts a get of the runs `from` into parts of a buffer that the event gives back; as
    /// [`Node::put_vector_nb`].
    ///
    /// The event's error may also be [`Error::Overlap`], where ranges overlap.
    pub fn get_vector_nb<B: GetBuffer>(
        &self,
        from: &[RemoteRun],
        mut buffer: B,
        parts: &[Range<usize>],
    ) -> Event<B> {
        let mut op = None;
        let started = self.parts(from, target(&mut buffer), parts, &mut op);
        self.event_of(from, started.map(|()| op), buffer)
    }

    /// Puts and forgets, as [`Node::put_vector`] puts: the sources may be reused at return, and
    /// [`Node::quiet`] says when the bytes are in place, and whether that failed.
    ///
    /// # Errors
    /// Errors that show at once, as for [`Node::put_vector`].
    pub fn put_vector_nbi(&self, to: &[RemoteRun], from: &[&[u8]]) -> Result<(), Error> {
        let here = || from.iter().map(|run| Lent::source(run));
        self.vector(Direction::Put, to, here, &mut Rest::Forgotten)
    }

    fn indexed(
        &self,
        remote: Remote,
        local: Lent<'_>,
        shape: &Indexed<'_>,
        rest: &mut Rest<'_>,
    ) -> Result<(), Error> {
        shape.check(remote, local.len())?;
        let starts = shape.local_offsets.iter();
        if local.direction() == Direction::Get {
            disjoint(starts.clone().map(|start| (*start, shape.local_block)))?;
        }
        let there = shape.remote_offsets.iter().map(|offset| (remote.plus(*offset), shape.remote_block));
        let here = starts.map(|start| local.part(*start, shape.local_block));
        self.scatter(local.direction(), Cut::new(there, here), rest)
    }

    fn vector<'a, I: Iterator<Item = Lent<'a>>>(
        &self,
        direction: Direction,
        remote: &[RemoteRun],
        local: impl Fn() -> I,
        rest: &mut Rest<'_>,
    ) -> Result<(), Error> {
        equal(remote, local().map(Lent::len))?;
        self.scatter(direction, Cut::new(there(remote), local()), rest)
    }

    fn parts(
        &self,
        remote: &[RemoteRun],
        local: Lent<'_>,
        parts: &[Range<usize>],
        op: &mut Option<engine::OpId>,
    ) -> Result<(), Error> {
        let peer = self.peer_of(remote);
        if let Some(other) = remote.iter().find(|run| run.at.peer != peer) {
            return Err(Error::Elsewhere { peer: other.at.peer, expected: peer });
        }
        if let Some(end) = parts.iter().map(|part| part.end).max().filter(|end| *end > local.len()) {
            return Err(Error::Length { what: LOCAL, given: local.len() as u64, expected: end as u64 });
        }
        if local.direction() == Direction::Get {
            disjoint(parts.iter().map(|part| (part.start, part.len())))?;
        }
        let here =
            || parts.iter().filter(|part| !part.is_empty()).map(|part| local.part(part.start, part.len()));
        self.vector(local.direction(), remote, here, &mut Rest::Started(op))
    }

    /// The peer of the first run; this rank where there is none.
    fn peer_of(&self, runs: &[RemoteRun]) -> Rank {
        runs.first().map_or(self.rank(), |run| run.at.peer)
    }

    fn event_of<B: Send + 'static>(
        &self,
        runs: &[RemoteRun],
        started: Result<Option<engine::OpId>, Error>,
        buffer: B,
    ) -> Event<B> {
        Event::new(self, self.peer_of(runs), started, buffer)
    }
}

fn there(runs: &[RemoteRun]) -> impl Iterator<Item = (Remote, usize)> {
    runs.iter().map(|run| (run.at, run.len))
}

/// Whether both ends have as many bytes, and no remote run goes beyond the end of the address space.
fn equal(remote: &[RemoteRun], local: impl Iterator<Item = usize>) -> Result<(), Error> {
    let wrapped = |run: &&RemoteRun| run.at.place.offset.checked_add(run.len as u64).is_none();
    if let Some(run) = remote.iter().find(wrapped) {
        return Err(wraps(run.at, run.len));
    }
    let sum = |sum: u64, len: usize| sum.saturating_add(len as u64);
    let expected = remote.iter().map(|run| run.len).fold(0, sum);
    let given = local.fold(0, sum);
    let what = "bytes in the local runs";
    if given == expected { Ok(()) } else { Err(Error::Length { what, given, expected }) }
}

/// Whether blocks (start, length) do not lie over one another. Allocates only where they are not in order.
pub(crate) fn disjoint(blocks: impl Iterator<Item = (usize, usize)> + Clone) -> Result<(), Error> {
    let after = |(start, len): (usize, usize)| start.saturating_add(len);
    if blocks.clone().filter(|block| block.1 > 0).is_sorted_by(|a, b| after(*a) <= b.0) {
        return Ok(());
    }
    let mut blocks: Vec<(usize, usize)> = blocks.filter(|block| block.1 > 0).collect();
    blocks.sort_unstable();
    match blocks.windows(2).find(|pair| after(pair[0]) > pair[1].0) {
        Some(pair) => Err(Error::Overlap { start: pair[1].0 as u64, end: after(pair[0]) as u64 }),
        None => Ok(()),
    }
}

/// The pieces of two lists of runs of as many bytes: each as long as both of its runs go on.
struct Cut<'a, R, L> {
    remote: R,
    local: L,
    there: (Remote, usize),
    here: Lent<'a>,
}

impl<'a, R: Iterator<Item = (Remote, usize)>, L: Iterator<Item = Lent<'a>>> Cut<'a, R, L> {
    fn new(remote: R, local: L) -> Cut<'a, R, L> {
        let nothing = Remote::from(crate::base::pointers::GlobalPtr::<u8>::new(0, 0));
        Cut { remote, local, there: (nothing, 0), here: Lent::source(&[]) }
    }
}

impl<'a, R: Iterator<Item = (Remote, usize)>, L: Iterator<Item = Lent<'a>>> Iterator for Cut<'a, R, L> {
    type Item = (Remote, Lent<'a>);

    #[inline]
    fn next(&mut self) -> Option<(Remote, Lent<'a>)> {
        while self.there.1 == 0 {
            self.there = self.remote.next()?;
        }
        while self.here.len() == 0 {
            self.here = self.local.next()?;
        }
        let ((remote, there), here) = (self.there, self.here);
        let len = there.min(here.len());
        self.there = (remote.plus(len as u64), there - len);
        self.here = here.part(len, here.len() - len);
        Some((remote, here.part(0, len)))
    }
}
