//! How many bytes a layer copies beside what the transfer itself moves.

/// Bytes that a layer has copied at this process, counted where it copies them.
///
/// Only the layer's own copies: the transport's are in [`standpipe::Node::stats`], by mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Of messages that this process sent.
    pub sent: u64,
    /// Of messages that this process received.
    pub received: u64,
}
