//! What stands before the sections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::TraceError;

/// How a trace starts.
pub const MAGIC: [u8; 8] = *b"SPKTRACE";
/// The version of the format that this program writes and reads: of the header and of all sections. Raise it
/// by one with every change of them. Files of another version are refused with both numbers.
pub const VERSION: u16 = 1;
/// The longest header that is read: enough for thousands of ranks with dozens of arrays each.
pub const HEADER_BYTES_MAX: u32 = 16 << 20;
/// Bytes before the header.
pub(super) const PREAMBLE_BYTES: usize = 14;
const VERSION_OFFSET: usize = 8;
const LENGTH_OFFSET: usize = 10;

/// What a trace is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The kernel's name.
    pub kernel: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, u64>,
    /// What there is of each rank; the number of ranks is this list's length.
    pub ranks: Vec<RankHeader>,
}

/// What there is of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankHeader {
    /// All memory that its own and its peers' transfers name.
    pub arrays: Vec<Array>,
    /// Steps in its section.
    pub steps: u64,
    /// Bytes of its section.
    pub bytes: u64,
}

/// One allocation of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// What the kernel calls it.
    pub name: String,
    /// Its address in the rank's address space when it was recorded.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Array {
    /// Whether `len` bytes at `addr` lie in this array.
    #[must_use]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr)
            .and_then(|start| start.checked_add(len))
            .is_some_and(|end| end <= self.len)
    }
}

impl Header {
    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Where each rank's section starts, and then where the last one ends.
    ///
    /// # Errors
    /// If the header, which ends at byte `end`, promises more than a file can hold or what no kernel has.
    pub(super) fn sections(&self, end: u64) -> Result<Vec<u64>, TraceError> {
        let wrong = |what: String| TraceError::Header { offset: PREAMBLE_BYTES as u64, what };
        if self.ranks.is_empty() || u32::try_from(self.ranks.len()).is_err() {
            return Err(wrong(format!("lists {} ranks", self.ranks.len())));
        }
        let mut starts = vec![end];
        let mut at = end;
        for (rank, header) in self.ranks.iter().enumerate() {
            if let Some(array) =
                header.arrays.iter().find(|array| array.addr.checked_add(array.len).is_none())
            {
                return Err(wrong(format!("has an array `{}` of rank {rank} that wraps around", array.name)));
            }
            at = at
                .checked_add(header.bytes)
                .ok_or_else(|| wrong(format!("gives rank {rank} {} bytes", header.bytes)))?;
            starts.push(at);
        }
        Ok(starts)
    }

    /// Everything before the sections.
    ///
    /// # Errors
    /// If it is longer than [`HEADER_BYTES_MAX`].
    pub(super) fn encode(&self) -> Result<Vec<u8>, TraceError> {
        let body = postcard::to_stdvec(self).expect("writing numbers and text to memory cannot fail");
        let length = u32::try_from(body.len()).ok().filter(|length| *length <= HEADER_BYTES_MAX);
        let too_long = || TraceError::Header {
            offset: PREAMBLE_BYTES as u64,
            what: format!("is {} bytes long, more than {HEADER_BYTES_MAX}", body.len()),
        };
        let length = length.ok_or_else(too_long)?;
        Ok([&MAGIC[..], &VERSION.to_le_bytes(), &length.to_le_bytes(), &body].concat())
    }

    /// Reads a header's bytes, without those before it.
    pub(super) fn decode(body: &[u8]) -> Result<Self, TraceError> {
        let wrong = |what: &str| TraceError::Header { offset: PREAMBLE_BYTES as u64, what: what.to_owned() };
        match postcard::take_from_bytes(body) {
            Ok((header, [])) => Ok(header),
            Ok((_, rest)) => {
                Err(wrong(&format!("is followed by {} bytes that belong to nothing", rest.len())))
            }
            Err(error) => Err(wrong(&format!("cannot be decoded: {error}"))),
        }
    }
}

/// Reads what stands before the header: gives the header's length.
pub(super) fn decode_preamble(preamble: &[u8; PREAMBLE_BYTES]) -> Result<u32, TraceError> {
    if preamble[..VERSION_OFFSET] != MAGIC {
        return Err(TraceError::NotATrace);
    }
    let found = u16::from_le_bytes([preamble[VERSION_OFFSET], preamble[VERSION_OFFSET + 1]]);
    if found != VERSION {
        return Err(TraceError::Version { offset: VERSION_OFFSET as u64, found, expected: VERSION });
    }
    let length = preamble[LENGTH_OFFSET..].try_into().expect("four bytes are left of the preamble");
    let length = u32::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        let what = format!("is said to be {length} bytes long, more than {HEADER_BYTES_MAX}");
        return Err(TraceError::Header { offset: LENGTH_OFFSET as u64, what });
    }
    Ok(length)
}
