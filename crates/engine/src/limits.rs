//! The places that operations take in the engine, and how many there are of each kind.
//!
//! Only what is under way holds a place. An operation that finds none waits in turn for the end of one, or
//! goes another way at once.

/// Chunks of one transfer by messages under way at a time.
pub const WINDOW: usize = 8;

/// Parts and pieces by message of one transfer by keys under way at a time, at most, before one more goes by
/// message that is not worth asking for.
pub const CHILDREN_MAX: usize = 16;

/// Bounces of one transfer at a time.
pub const BOUNCES_MAX: u8 = 3;

/// Bounce buffers that one peer may have at a time.
pub const BOUNCE_BUFFERS_OF_PEER_MAX: usize = 4;

/// Bounces of transfers that have ended, of one peer, at most, so that one more transfer with it may have
/// any.
pub const ORPHANED_BOUNCES_MAX: u32 = 4;

/// Collectives that a member may be ahead of another with what it sends to that one.
pub const AHEAD: u64 = 4;

/// Messages of one collective from a member to one that has not come to it, at most, by any algorithm.
pub const EARLY_MESSAGES: u64 = 4;
