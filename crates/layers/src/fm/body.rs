//! The bytes of a packet that has arrived.

use standpipe::Payload;

use super::wire::INLINE_MAX;

#[derive(Debug)]
pub(crate) enum Body {
    /// They came in the message's arguments.
    Inline([u8; INLINE_MAX], u8),
    /// Memory of the library's.
    Kept(Payload),
    /// A copy, where the library could lend no more.
    Copied(Vec<u8>),
}

impl Body {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Body::Inline(bytes, len) => &bytes[..usize::from(*len)],
            Body::Kept(payload) => payload,
            Body::Copied(bytes) => bytes,
        }
    }
}
