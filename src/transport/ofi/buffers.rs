//! Memory of this transport's own that is lent to the provider, and what for.
//!
//! It lies in shared memory that no reference points into. A buffer stays where it is, and is known by its
//! number: so that to lend one, and to have it back, moves nothing about.

use engine::Place;
use fabric::{Desc, Local};
use vm::SharedMemory;

use crate::base::limits::{FAR_MEDIUM_BYTES, FRAME_BYTES, LARGE_BYTES, SMALL_BYTES};

/// Bytes of payload that one message may have.
pub(super) const PAYLOAD_MAX: usize = FAR_MEDIUM_BYTES;

const _: () = assert!(FRAME_BYTES <= 16 << 10, "longer ones are beyond the eager limit of `rxm`");

/// The use of a buffer, and its size. There are as many as peers may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// A small part of a copy.
    Small,
    /// A large one.
    Large,
    /// A frame of messages.
    Frame,
}

impl Size {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Size::Frame => FRAME_BYTES,
            Size::Small => SMALL_BYTES,
            Size::Large => LARGE_BYTES,
        }
    }
}

/// One buffer, by its number. The caller that lends it gives it away until its operation has ended.
#[derive(Debug)]
pub(super) struct Buffer(u32);

impl Buffer {
    /// The provider's name for it.
    pub(super) fn token(&self) -> u64 {
        u64::from(self.0)
    }
}

/// Why a buffer was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A frame may come into it.
    Receive,
    /// It holds a frame.
    Send {
        /// To whom.
        rank: engine::Rank,
        /// Messages in it that answer atomics of that peer's.
        answers: u16,
    },
    /// It holds a part of a copy, by its number among those that are under way.
    Part(usize),
}

/// The kind of a buffer.
struct Room {
    memory: SharedMemory,
    at: u64,
    size: Size,
    desc: Desc,
    /// Its use.
    lent: Option<Purpose>,
}

impl Room {
    /// All of it.
    #[inline(always)]
    fn local(&self) -> Local {
        let addr = std::ptr::with_exposed_provenance_mut((self.memory.base_addr() + self.at) as usize);
        Local { addr, len: self.size.bytes(), desc: self.desc }
    }

    #[inline(always)]
    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.size.bytes(), "{INSIDE}");
        let at = self.at + at as u64;
        // A word takes no call.
        match <&[u8; 8]>::try_from(bytes) {
            Ok(word) => self.memory.copy_in(at, word),
            Err(_) => self.memory.copy_in(at, bytes),
        }
        .expect(INSIDE);
    }

    /// As [`Buffers::fill`].
    #[inline(always)]
    fn fill(&self, at: usize, from: Place, len: usize) {
        let from = std::ptr::with_exposed_provenance(from.offset as usize);
        // SAFETY: the engine hands on the pieces that it was given. This library gives it only pieces of a
        // `PieceList`, or of buffers that it keeps until the operation has ended: readable, and not written
        // meanwhile.
        self.put(at, unsafe { std::slice::from_raw_parts(from, len) });
    }
}

/// All buffers of an endpoint.
#[derive(Default)]
pub(super) struct Buffers {
    rooms: Vec<Room>,
    /// By size: those that are nobody's.
    free: [Vec<Buffer>; 3],
    /// How many are lent.
    lent: usize,
}

const INSIDE: &str = "no more is copied than the buffer's size";

impl Buffers {
    /// Makes `count` buffers of memory that has room for them.
    pub(super) fn make(&mut self, memory: &SharedMemory, desc: Desc, size: Size, count: u64) {
        for index in 0..count {
            let number = u32::try_from(self.rooms.len()).expect("so many would fill all memory");
            let at = index * size.bytes() as u64;
            self.rooms.push(Room { memory: memory.clone(), at, size, desc, lent: None });
            self.free[size as usize].push(Buffer(number));
        }
    }

    /// Whether one of this size is free.
    pub(super) fn has(&self, size: Size) -> bool {
        !self.free[size as usize].is_empty()
    }

    #[inline(always)]
    pub(super) fn take(&mut self, size: Size) -> Option<Buffer> {
        self.free[size as usize].pop()
    }

    #[inline(always)]
    pub(super) fn put_back(&mut self, buffer: Buffer) {
        let size = self.size(&buffer);
        self.free[size as usize].push(buffer);
    }

    #[inline(always)]
    pub(super) fn size(&self, buffer: &Buffer) -> Size {
        self.rooms[buffer.0 as usize].size
    }

    /// How many are lent.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// The provider is about to be given the first `len` bytes of a buffer, for this purpose; they are as it
    /// wants them.
    #[inline(always)]
    pub(super) fn lend(&mut self, buffer: &Buffer, len: usize, purpose: Purpose) -> Local {
        let room = &mut self.rooms[buffer.0 as usize];
        assert!(len <= room.size.bytes(), "{INSIDE}");
        room.lent = Some(purpose);
        self.lent += 1;
        Local { len, ..room.local() }
    }

    /// Gives a buffer away for good, to whoever has operations prepared with it.
    pub(super) fn give_away(&self, buffer: Buffer) -> Local {
        self.rooms[buffer.0 as usize].local()
    }

    /// The provider is done with the buffer that it calls so. `None`: it had none of that name.
    #[inline(always)]
    pub(super) fn returned(&mut self, token: u64) -> Option<(Buffer, Purpose)> {
        let purpose = self.rooms.get_mut(token as usize)?.lent.take()?;
        self.lent = self.lent.checked_sub(1).expect("a buffer comes back once");
        Some((Buffer(token as u32), purpose))
    }

    /// There is no provider any more.
    pub(super) fn forget_lent(&mut self) {
        self.rooms.iter_mut().for_each(|room| room.lent = None);
        self.lent = 0;
    }

    /// Copies `bytes` to offset `at`.
    #[inline(always)]
    pub(super) fn put(&self, buffer: &Buffer, at: usize, bytes: &[u8]) {
        self.rooms[buffer.0 as usize].put(at, bytes);
    }

    /// Copies from offset `at`.
    #[inline(always)]
    pub(super) fn get(&self, buffer: &Buffer, at: usize, bytes: &mut [u8]) {
        let room = &self.rooms[buffer.0 as usize];
        assert!(at + bytes.len() <= room.size.bytes(), "{INSIDE}");
        let at = room.at + at as u64;
        match <&mut [u8; 8]>::try_from(&mut *bytes) {
            Ok(word) => room.memory.copy_out(at, word),
            Err(_) => room.memory.copy_out(at, bytes),
        }
        .expect(INSIDE);
    }

    /// Copies `len` bytes to offset `at` from the local end of a copy that has not ended.
    #[inline(always)]
    pub(super) fn fill(&self, buffer: &Buffer, at: usize, from: Place, len: usize) {
        self.rooms[buffer.0 as usize].fill(at, from, len);
    }

    /// Copies `len` bytes from offset `at` to the local end of a copy that has not ended, nor been given up.
    #[inline(always)]
    pub(super) fn drain(&self, buffer: &Buffer, at: usize, to: Place, len: usize) {
        let to = std::ptr::with_exposed_provenance_mut(to.offset as usize);
        // SAFETY: the engine hands on the pieces that it was given. This library gives it only pieces of a
        // `PieceList`, or of buffers that it keeps until the operation has ended: writable, and referred to
        // by nothing else.
        self.get(buffer, at, unsafe { std::slice::from_raw_parts_mut(to, len) });
    }
}
