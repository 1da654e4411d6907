//! The limits of places: how many operations may hold what at a time, in one table that the code takes its
//! numbers from, and that `tests/bursts` goes through.
//!
//! Only what is under way holds a place. An operation that finds none waits in turn for the end of another,
//! or goes another way at once.

use engine::limits;

/// Parts of copies by key with one peer under way: in small buffers, in large ones, and from or to the
/// caller's memory.
pub const SMALL_PARTS: usize = 64;
/// See [`SMALL_PARTS`].
pub const LARGE_PARTS: usize = 8;
/// See [`SMALL_PARTS`].
pub const DIRECT_PARTS: usize = 64;

/// Bytes of a small buffer: longer copies go straight from or to the caller's memory, where they can.
pub const SMALL_BYTES: usize = 4 << 10;

/// Bytes of a large buffer.
pub const LARGE_BYTES: usize = 64 << 10;

/// Bytes of a part in the caller's memory, at most. The ends of parts show that the network carries them. A
/// part that has ended is not begun anew where another copy by the same connection is given up.
pub const DIRECT_BYTES: usize = 1 << 20;

/// Peers with copies under way that auxiliary endpoints carry at once; copies with others go through buffers.
pub const AUX_ENDPOINTS: usize = 8;

/// The same where the provider pins: each auxiliary endpoint is an endpoint of its own, with queues and
/// buffers, 83 MiB over soft-RoCE.
pub const PINNED_AUX_ENDPOINTS: usize = 2;

/// Peers whose long puts come in by an endpoint of their own each; those of others go through buffers.
pub const LANDINGS: usize = 64;
/// The same where the provider pins.
pub const PINNED_LANDINGS: usize = 2;
/// Operations that an auxiliary endpoint takes at once.
pub const AUX_ENDPOINT_DEPTH: u32 = 128;

/// Operations and waiting buffers that the endpoint takes at once.
pub const DEPTH: u32 = 4096;

/// Buffers that wait for messages over a network, of any peer.
pub const RECEIVES: usize = 64;

/// Credits of one lane over a network: each for 128 bytes of messages that are under way or wait at their
/// receiver, 512 KiB in all. That is as much as 4,096 short messages take, or 63 of the longest.
pub const CREDITS: u16 = 4096;

/// Bytes of a frame of messages over libfabric before the first of them, and of each of these before its
/// payload: `docs/WIRE.md` draws both.
pub const FRAME_HEAD_BYTES: usize = 32;
/// See [`FRAME_HEAD_BYTES`].
pub const FRAME_MESSAGE_BYTES: usize = 64;

/// Bytes of payload that one message over libfabric may have.
pub const FAR_MEDIUM_BYTES: usize = 8 << 10;

/// Bytes that one frame may have: as many as the longest message takes, and a little more.
pub const FRAME_BYTES: usize =
    (FRAME_HEAD_BYTES + FRAME_MESSAGE_BYTES + FAR_MEDIUM_BYTES).next_multiple_of(64);

/// Atomics of one process on words of another over a network that may be under way.
pub const ASKS: usize = 16;

/// Answers to one peer on their way out, at most. It may have some of them while the provider still has to
/// say so.
pub const ANSWERS: usize = 4 * ASKS;

/// Messages of one lane between processes of one host.
pub const RING_SLOTS: usize = 128;

/// Bytes of payload of a message between processes of one host, at most.
pub const NEAR_MEDIUM_BYTES: usize = 64 << 10;

/// Bounce buffers of a process, whoever has them.
pub const BOUNCE_BUFFERS: usize = 16;

/// Names that one rank keeps of the directory.
pub const ENTRIES: u64 = 1024;

/// A kind of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The things that take one.
    pub name: &'static str,
    /// How many there are.
    pub places: usize,
}

/// All kinds of places that operations on a peer's memory, messages, collectives and the directory go
/// through.
pub const LIMITS: [Limit; 21] = [
    limit("parts in small buffers", SMALL_PARTS),
    limit("parts in large buffers", LARGE_PARTS),
    limit("parts in the caller's memory", DIRECT_PARTS),
    limit("prepared small copies", fabric::PREPARED_MAX),
    limit("pieces of one of libfabric's operations", fabric::PIECES_MAX),
    limit("peers with an auxiliary endpoint", AUX_ENDPOINTS),
    limit("peers with an auxiliary endpoint that is pinned", PINNED_AUX_ENDPOINTS),
    limit("peers whose long puts come in apart", LANDINGS),
    limit("peers whose long puts come in apart, pinned", PINNED_LANDINGS),
    limit("operations at an auxiliary endpoint", AUX_ENDPOINT_DEPTH as usize),
    limit("operations at the endpoint", DEPTH as usize),
    limit("buffers that wait for messages", RECEIVES),
    limit("short messages of a lane over a network", CREDITS as usize),
    limit("atomics on a peer's words over a network", ASKS),
    limit("messages of a ring", RING_SLOTS),
    limit("chunks of a transfer", limits::WINDOW),
    limit("parts of a transfer by keys", limits::CHILDREN_MAX),
    limit("bounce buffers of a transfer", limits::BOUNCES_MAX as usize),
    limit("bounce buffers", BOUNCE_BUFFERS),
    limit("bounce buffers of a peer, and collectives ahead of a member", limits::BOUNCE_BUFFERS_OF_PEER_MAX),
    limit("names that a rank keeps", ENTRIES as usize),
];

const _: () = assert!(limits::BOUNCE_BUFFERS_OF_PEER_MAX == limits::AHEAD as usize, "one row is of both");

const fn limit(name: &'static str, places: usize) -> Limit {
    Limit { name, places }
}
