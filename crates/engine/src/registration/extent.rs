//! The memory of a grant, as a registration has it.

use super::{Run, Settings};
use crate::GrantId;

/// The exact bytes that a grant names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) grant: GrantId,
    /// The first byte's address in its owner's space, and how many bytes there are: one at least.
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Extent {
    /// The buckets of `1 << shift` bytes that it touches.
    pub(crate) fn buckets(&self, shift: u32) -> Run {
        let (first, last) = (self.start >> shift, (self.start + (self.len - 1)) >> shift);
        Run { first, count: (last - first + 1) as u32 }
    }

    /// As [`Extent::buckets`], of the size that a node is set to.
    pub(crate) fn buckets_of(&self, settings: &Settings) -> Run {
        self.buckets(settings.bucket.bytes().trailing_zeros())
    }
}
