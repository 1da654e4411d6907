//! What the two ends of a message say to each other, in PM's messages.

use crate::pm::MTU;

/// Bytes of a packet before its data.
const HEADER: usize = 40;

/// Bytes of data that a packet may have.
pub(super) const DATA_MAX: usize = MTU - HEADER;

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// A whole short message, whose data follow.
    Eager { tag: u32 },
    /// A long message waits for a receive.
    Request { tag: u32, send: u64, len: u64 },
    /// So much of it may be written from `handle` on; by pieces, where that is 0; nothing, where `len` is.
    Reply { send: u64, receive: u64, handle: u64, len: u64 },
    /// That has been written.
    Done { receive: u64, len: u64 },
    /// Some of it, which follows.
    Piece { receive: u64 },
    /// No more of it comes: its sender cannot send it.
    Failed { receive: u64 },
}

impl Packet {
    /// The packet in bytes, without data.
    pub(super) fn header(self) -> [u8; HEADER] {
        let words = match self {
            Packet::Eager { tag } => [1, tag.into(), 0, 0, 0],
            Packet::Request { tag, send, len } => [2, tag.into(), send, len, 0],
            Packet::Reply { send, receive, handle, len } => [3, send, receive, handle, len],
            Packet::Done { receive, len } => [4, receive, len, 0, 0],
            Packet::Piece { receive } => [5, receive, 0, 0, 0],
            Packet::Failed { receive } => [6, receive, 0, 0, 0],
        };
        let mut bytes = [0; HEADER];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&u64::to_le_bytes(word));
        }
        bytes
    }

    /// Reads a packet and its data; `None`: it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Packet, &[u8])> {
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let mut words = [0; HEADER / 8];
        for (word, from) in words.iter_mut().zip(header.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let packet = match words {
            [1, tag, 0, 0, 0] => Packet::Eager { tag: u32::try_from(tag).ok()? },
            [2, tag, send, len, 0] => Packet::Request { tag: u32::try_from(tag).ok()?, send, len },
            [3, send, receive, handle, len] => Packet::Reply { send, receive, handle, len },
            [4, receive, len, 0, 0] => Packet::Done { receive, len },
            [5, receive, 0, 0, 0] => Packet::Piece { receive },
            [6, receive, 0, 0, 0] => Packet::Failed { receive },
            _ => return None,
        };
        let may_have_data = matches!(packet, Packet::Eager { .. } | Packet::Piece { .. });
        (may_have_data || data.is_empty()).then_some((packet, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_were_written_and_others_refused() {
        let most = u64::MAX;
        for packet in [
            Packet::Eager { tag: u32::MAX },
            Packet::Request { tag: 0, send: most, len: most },
            Packet::Reply { send: most, receive: 1, handle: most, len: 2 },
            Packet::Done { receive: most, len: most },
            Packet::Piece { receive: most },
            Packet::Failed { receive: most },
        ] {
            let mut bytes = packet.header().to_vec();
            assert_eq!(Packet::parse(&bytes), Some((packet, &[][..])));
            assert_eq!(Packet::parse(&bytes[..HEADER - 1]), None);
            bytes.push(9);
            let has_data = matches!(packet, Packet::Eager { .. } | Packet::Piece { .. });
            assert_eq!(Packet::parse(&bytes), has_data.then_some((packet, &[9][..])));
        }
        for words in
            [[0, 0, 0, 0, 0], [7, 0, 0, 0, 0], [1, 1 << 32, 0, 0, 0], [1, 0, 0, 0, 1], [5, 0, 1, 0, 0]]
        {
            let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
            assert_eq!(Packet::parse(&bytes), None, "{words:?}");
        }
    }
}
