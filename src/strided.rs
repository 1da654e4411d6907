//! Regular patterns: blocks at fixed distances, in any number of dimensions.

use crate::error::Error;
use crate::global::Remote;
use crate::node::Node;
use crate::rma::{GetPiece, PutPiece, wraps};

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

impl Strided<'_> {
    /// (remote, local) byte offsets of all blocks. The error says which length was given and which expected.
    fn offsets(&self, remote: Remote, local_len: usize) -> Result<Vec<(u64, usize)>, Error> {
        let dims = self.counts.len();
        if self.remote_strides.len() != dims || self.local_strides.len() != dims {
            let given = self.remote_strides.len().min(self.local_strides.len());
            return Err(Error::Length { given: given as u64, expected: dims as u64 });
        }
        if self.block == 0 || self.counts.contains(&0) {
            return Ok(Vec::new());
        }
        let total = self.counts.iter().try_fold(1usize, |total, count| total.checked_mul(*count));
        let total =
            total.filter(|total| total.checked_mul(self.block).is_some_and(|bytes| bytes <= local_len));
        let Some(total) = total else {
            return Err(Error::Length { given: local_len as u64, expected: u64::MAX });
        };
        let mut offsets = Vec::with_capacity(total);
        for mut index in 0..total {
            let (mut there, mut here) = (Some(0u64), Some(0usize));
            for d in 0..dims {
                let step = index % self.counts[d];
                index /= self.counts[d];
                there = there.and_then(|o| o.checked_add(self.remote_strides[d].checked_mul(step as u64)?));
                here = here.and_then(|o| o.checked_add(self.local_strides[d].checked_mul(step)?));
            }
            let end = there.and_then(|o| remote.place.offset.checked_add(o)?.checked_add(self.block as u64));
            let (Some(there), Some(_)) = (there, end) else { return Err(wraps(remote, self.block)) };
            let fits = here.and_then(|o| o.checked_add(self.block)).filter(|end| *end <= local_len);
            let (Some(here), Some(_)) = (here, fits) else {
                let expected = here.and_then(|o| o.checked_add(self.block)).unwrap_or(usize::MAX) as u64;
                return Err(Error::Length { given: local_len as u64, expected });
            };
            offsets.push((there, here));
        }
        Ok(offsets)
    }
}

/// Strided puts and gets: one call for all blocks, as [`Node::put_list`] makes it.
impl Node {
    /// Puts the blocks of `from` that `shape` describes to where it says, from `to` on.
    ///
    /// # Errors
    /// [`Error::Length`] where the shape does not fit `from` or its parts differ in dimensions; for the rest as for
    /// [`Node::put_list`].
    pub fn put_strided(&self, to: impl Into<Remote>, from: &[u8], shape: &Strided<'_>) -> Result<(), Error> {
        let to = to.into();
        let offsets = shape.offsets(to, from.len())?;
        let pieces: Vec<PutPiece<'_>> = offsets
            .into_iter()
            .map(|(there, here)| PutPiece { to: to.plus(there), from: &from[here..here + shape.block] })
            .collect();
        self.put_list(&pieces)
    }

    /// Gets the blocks that `shape` describes, from `from` on, into `into`.
    ///
    /// # Errors
    /// As for [`Node::put_strided`]; besides [`Error::Length`] where blocks overlap in `into`.
    pub fn get_strided(
        &self,
        from: impl Into<Remote>,
        into: &mut [u8],
        shape: &Strided<'_>,
    ) -> Result<(), Error> {
        let from = from.into();
        let mut offsets = shape.offsets(from, into.len())?;
        // In rising order of their local place, the buffer can be split into the blocks' own parts.
        offsets.sort_unstable_by_key(|(_, here)| *here);
        let (mut rest, mut start) = (into, 0);
        let mut pieces = Vec::with_capacity(offsets.len());
        for (there, here) in offsets {
            let Some(gap) = here.checked_sub(start) else {
                return Err(Error::Length { given: here as u64, expected: start as u64 });
            };
            let (block, after) = std::mem::take(&mut rest)[gap..].split_at_mut(shape.block);
            pieces.push(GetPiece { from: from.plus(there), into: block });
            (rest, start) = (after, here + shape.block);
        }
        self.get_list(&mut pieces)
    }
}
