//! How many bytes a layer copies beside what the transfer itself moves.

use standpipe::Call;

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

/// A copy of a message's payload, for a layer that has no other memory for it.
pub(crate) fn copy_of_payload(call: &Call<'_>) -> Vec<u8> {
    let mut bytes = vec![0; call.payload_len()];
    call.read_payload(0, &mut bytes).expect("it has as many bytes as it says");
    bytes
}
