//! Descriptors, as they lie in the program's memory.
//!
//! ```text
//! control segment   Next 0, NextHandle 8, SegCount 12 (16 bits), Control 14 (16 bits), Reserved 16,
//!                   ImmediateData 20, Length 24, Status 28
//! segments, 16 bytes each, from 32 on   address 0, handle 8, bytes 12
//! ```

use standpipe::AllMemory;

/// A descriptor lies at a multiple of this.
pub const ALIGNMENT: u64 = 64;
/// Segments that a descriptor may have, the remote one among them.
pub const SEGMENTS_MAX: usize = 252;
/// Bytes of the control segment.
pub const CONTROL_BYTES: u64 = 32;
/// Bytes of each other segment.
pub const SEGMENT_BYTES: u64 = 16;

/// Bits of a descriptor's status.
pub mod status {
    #![allow(missing_docs, reason = "they are VIPL's, by their names there")]
    pub const DONE: u32 = 1;
    pub const FORMAT: u32 = 2;
    pub const PROTECTION: u32 = 4;
    pub const LENGTH: u32 = 8;
    pub const PARTIAL: u32 = 0x10;
    pub const FLUSHED: u32 = 0x20;
    pub const TRANSPORT: u32 = 0x40;
    pub const RDMA_PROTECTION: u32 = 0x80;
    pub const REMOTE_DESCRIPTOR: u32 = 0x100;
    pub const ERRORS: u32 = 0x1fe;
    pub const SEND: u32 = 0;
    pub const RECEIVE: u32 = 0x1_0000;
    pub const WRITE: u32 = 0x2_0000;
    pub const REMOTE_WRITE: u32 = 0x3_0000;
    pub const READ: u32 = 0x4_0000;
    pub const IMMEDIATE: u32 = 0x8_0000;
}

const IMMEDIATE: u16 = 4;
const RESERVED: u16 = 0xfff0;

/// An address of this process's, as a pointer.
pub(super) fn pointer(addr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

/// The operation that a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Receive,
    Write,
    Read,
}

impl Operation {
    /// Its bits of the status.
    pub(super) const fn status(self) -> u32 {
        match self {
            Operation::Send => status::SEND,
            Operation::Receive => status::RECEIVE,
            Operation::Write => status::WRITE,
            Operation::Read => status::READ,
        }
    }
}

/// A segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) addr: u64,
    pub(super) handle: u32,
    pub(super) len: u32,
}

/// A descriptor as it was when it was posted.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) operation: Operation,
    pub(super) segments: Vec<Segment>,
    /// Where a remote operation goes.
    pub(super) remote: Option<Segment>,
    pub(super) immediate: Option<u32>,
    /// The sum of the segments' lengths.
    pub(super) bytes: u64,
    /// Why it cannot be processed, as status bits; 0: it can.
    pub(super) fault: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn segment_of(bytes: &[u8]) -> Segment {
    let addr = u64::from(u32_at(bytes, 0)) | u64::from(u32_at(bytes, 4)) << 32;
    Segment { addr, handle: u32_at(bytes, 8), len: u32_at(bytes, 12) }
}

impl Descriptor {
    /// Reads the descriptor at an address of the program's.
    pub(super) fn read(memory: AllMemory, at: u64, is_receive: bool, max_transfer: u64) -> Descriptor {
        let mut head = [0; CONTROL_BYTES as usize];
        memory.read(pointer(at), &mut head);
        let (count, control) = (usize::from(u16_at(&head, 12)), u16_at(&head, 14));
        let mut fault = 0;
        let operation = match (control & 3, is_receive) {
            (0, true) => Operation::Receive,
            (0, false) => Operation::Send,
            (1, false) => Operation::Write,
            (2, false) => Operation::Read,
            (_, is_receive) => {
                fault = status::FORMAT;
                if is_receive { Operation::Receive } else { Operation::Send }
            }
        };
        if control & RESERVED != 0 || u32_at(&head, 16) != 0 || count > SEGMENTS_MAX {
            fault |= status::FORMAT;
        }
        let count = if count > SEGMENTS_MAX { 0 } else { count };
        let mut bytes = vec![0; count * SEGMENT_BYTES as usize];
        if count > 0 {
            memory.read(pointer(at + CONTROL_BYTES), &mut bytes);
        }
        let mut segments: Vec<Segment> = bytes.chunks_exact(SEGMENT_BYTES as usize).map(segment_of).collect();
        let is_remote = matches!(operation, Operation::Write | Operation::Read);
        let remote = (is_remote && !segments.is_empty()).then(|| segments.remove(0));
        if is_remote && remote.is_none() {
            fault |= status::FORMAT;
        }
        let sum: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        // A receive's length is told when it is done.
        let is_wrong = operation != Operation::Receive && sum != u64::from(u32_at(&head, 24));
        if is_wrong || sum > max_transfer && operation != Operation::Receive {
            fault |= status::LENGTH;
        }
        let has_immediate = control & IMMEDIATE != 0 && operation != Operation::Read;
        let immediate = has_immediate.then(|| u32_at(&head, 20));
        Descriptor { operation, segments, remote, immediate, bytes: sum, fault }
    }

    /// Bytes that it takes in the program's memory.
    pub(super) fn own_bytes(&self) -> u64 {
        let segments = self.segments.len() + usize::from(self.remote.is_some());
        CONTROL_BYTES + SEGMENT_BYTES * segments as u64
    }
}

/// Tells a descriptor how it has ended.
pub(super) fn write_back(memory: AllMemory, at: u64, immediate: Option<u32>, bytes: u32, status: u32) {
    if let Some(immediate) = immediate {
        memory.write(pointer(at + 20), &immediate.to_le_bytes());
    }
    memory.write(pointer(at + 24), &bytes.to_le_bytes());
    memory.write(pointer(at + 28), &status.to_le_bytes());
}
