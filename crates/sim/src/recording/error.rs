//! What can be wrong with a trace.

use std::io;

use thiserror::Error;

/// Why a trace could not be read or written. Offsets are bytes from the start of the file.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The system refused to read or write.
    #[error("at byte {offset}: {source}")]
    Io {
        /// Where in the file.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not start as a trace does.
    #[error("at byte 0: not a trace of a kernel")]
    NotATrace,
    /// A trace of another version of the format.
    #[error("at byte {offset}: format version {found}; this program reads version {expected}")]
    Version {
        /// Where the version stands.
        offset: u64,
        /// The file's version.
        found: u16,
        /// The version that is understood.
        expected: u16,
    },
    /// The file ends before it should.
    #[error("at byte {offset}: the file ends, and {missing} bytes are missing")]
    Truncated {
        /// Where the file ends.
        offset: u64,
        /// How many bytes should follow, at least.
        missing: u64,
    },
    /// The file goes on after its last section.
    #[error("at byte {offset}: {extra} bytes too many")]
    Trailing {
        /// Where the last section ends.
        offset: u64,
        /// How many bytes follow.
        extra: u64,
    },
    /// The header cannot be decoded, or contradicts itself.
    #[error("at byte {offset}: the header {what}")]
    Header {
        /// Where the header starts.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Bytes that are no step, or a section with more or fewer steps than the header says.
    #[error("at byte {offset}, of rank {rank}: {what}")]
    Step {
        /// Where the step starts.
        offset: u64,
        /// Whose step it is.
        rank: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A step names a peer that the job does not have, or the rank itself.
    #[error("at byte {offset}, of rank {rank}: rank {peer} is no peer of it among {ranks} ranks")]
    Peer {
        /// Where the step starts.
        offset: u64,
        /// Whose step it is.
        rank: u32,
        /// The peer that it names.
        peer: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// A transfer reaches outside the arrays that the header lists.
    #[error(
        "at byte {offset}, of rank {rank}: {len} bytes at {addr:#x} of rank {owner} lie in none of its arrays"
    )]
    Outside {
        /// Where the step starts.
        offset: u64,
        /// Whose step it is.
        rank: u32,
        /// Whose memory the transfer names.
        owner: u32,
        /// The address.
        addr: u64,
        /// The length.
        len: u64,
    },
    /// The ranks' steps do not fit together: a replay would wait for ever, or leave signals over.
    #[error("at byte {offset}, where the steps of rank {rank} end: {what}")]
    Unmatched {
        /// Where the rank's section ends.
        offset: u64,
        /// The rank.
        rank: u32,
        /// What does not fit.
        what: String,
    },
}

impl TraceError {
    /// Bytes from the start of the file to where it is wrong.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match *self {
            Self::NotATrace => 0,
            Self::Io { offset, .. }
            | Self::Version { offset, .. }
            | Self::Truncated { offset, .. }
            | Self::Trailing { offset, .. }
            | Self::Header { offset, .. }
            | Self::Step { offset, .. }
            | Self::Peer { offset, .. }
            | Self::Outside { offset, .. }
            | Self::Unmatched { offset, .. } => offset,
        }
    }
}
