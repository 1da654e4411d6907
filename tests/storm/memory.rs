//! What a process of the storm lets others do things to: for each thread of each other process a *slot* of
//! its own, so that whoever writes there knows what it must find.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{GlobalPtr, Heap, HeapArray, Node};

use crate::support::{Private, Random};

/// Processes of a storm, those that come later included.
pub(crate) const IDS: usize = 24;
/// Threads of each that work.
pub(crate) const THREADS: usize = 2;
pub(crate) const SLOTS: usize = IDS * THREADS;
/// Bytes of each of a slot's three areas.
pub(crate) const AREA: usize = 4 * 4096;
/// What the areas lie in: the heap, an ordinary vector, memory that is mapped anew now and then.
pub(crate) const AREAS: usize = 3;
pub(crate) const HEAP: usize = 0;
pub(crate) const PRIVATE: usize = 1;
pub(crate) const MAPPED: usize = 2;

/// Words of a slot.
pub(crate) const WORDS: usize = 16;
/// What they are for: an unsigned word, two signed ones of four bytes, one of eight.
pub(crate) const WORD: usize = 0;
pub(crate) const HALVES: usize = 1;
pub(crate) const SIGNED: usize = 2;
/// How many notes have come from the slot's thread.
pub(crate) const NOTED: usize = 3;
/// Letters that have come from the process, and those that were read.
pub(crate) const COUNTER: usize = 4;
pub(crate) const READ: usize = 5;
/// To this all threads of one process add.
pub(crate) const COMMON: usize = 6;
/// To this everybody adds (in the first slot).
pub(crate) const EVERYBODY: usize = 7;
/// The word in which the process's passers count.
pub(crate) const PASSED: usize = 8;
/// The two in which the process names what it grants, in its own slot.
pub(crate) const GRANTED: usize = 9;

/// Letters of a process that have room at a time, and bytes of each.
pub(crate) const CELLS: usize = 8;
pub(crate) const CELL: usize = 256;

/// The number of a thread's slot at everybody.
pub(crate) fn slot(id: usize, thread: usize) -> usize {
    id * THREADS + thread
}

/// The bytes of a letter: they depend on the sender and the letter's number.
pub(crate) fn letter(sender: usize, number: u64) -> Vec<u8> {
    let seed = (sender as u64) << 40 | number;
    filled(seed, 16 + Random::new(seed).below(CELL - 16))
}

/// Bytes that nobody would write by accident.
pub(crate) fn filled(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A sum of bytes by which two ends compare what has arrived.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Where a process's memory is, as others are told: plain numbers.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Of each slot's area in the heap.
    heap: Vec<u64>,
    words: u64,
    private: u64,
    mapped: u64,
    letters: u64,
    private_letters: u64,
}

impl Places {
    pub(crate) fn parse(text: &str) -> Places {
        let mut numbers = text.split(',').map(|word| word.parse().expect("a number"));
        let mut next = || numbers.next().expect("as many numbers as are said");
        let (words, private, mapped, letters, private_letters) = (next(), next(), next(), next(), next());
        Places { heap: numbers.collect(), words, private, mapped, letters, private_letters }
    }

    pub(crate) fn area(&self, area: usize, slot: usize) -> u64 {
        match area {
            HEAP => self.heap[slot],
            PRIVATE => self.private + (slot * AREA) as u64,
            _ => self.mapped + (2 * slot * AREA) as u64,
        }
    }

    /// The owner has made the slot's area in its heap anew.
    pub(crate) fn move_heap(&mut self, slot: usize, offset: u64) {
        self.heap[slot] = offset;
    }

    pub(crate) fn word<T>(&self, peer: u32, slot: usize, word: usize) -> GlobalPtr<T> {
        GlobalPtr::new(peer, self.words + ((slot * WORDS + word) * 8) as u64)
    }

    /// Where a letter of a process goes: every other one to the heap, and to private memory.
    pub(crate) fn cell(&self, sender: usize, number: u64) -> (bool, u64) {
        let (in_heap, at) = cell(sender, number);
        (in_heap, at as u64 + if in_heap { self.letters } else { self.private_letters })
    }
}

fn cell(sender: usize, number: u64) -> (bool, usize) {
    let at = (sender * CELLS + (number % CELLS as u64) as usize) * CELL;
    (number.is_multiple_of(2), at)
}

/// Addresses kept for memory that comes and goes: each slot has two places there, of which one is mapped at a
/// time, and nothing else ever lies in the other.
struct Mapped {
    first: u64,
    /// Which of its two places a slot has, a bit each.
    second: AtomicU64,
}

impl Mapped {
    fn new() -> Mapped {
        let len = SLOTS * 2 * AREA;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing away from anybody.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED, "there are addresses left");
        let mapped = Mapped { first: first.expose_provenance() as u64, second: AtomicU64::new(0) };
        (0..SLOTS).for_each(|slot| mapped.fix(mapped.place(slot, false), true));
        mapped
    }

    fn place(&self, slot: usize, second: bool) -> u64 {
        self.first + ((2 * slot + usize::from(second)) * AREA) as u64
    }

    /// Maps a place anew, all zeroes, or unmaps it and keeps its addresses.
    fn fix(&self, place: u64, usable: bool) {
        let protection = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let at = std::ptr::with_exposed_provenance_mut(place as usize);
        // SAFETY: one of this mapping's places, in which nothing of this process's lies and no reference
        // points.
        let result = unsafe { libc::mmap(at, AREA, protection, flags, -1, 0) };
        assert_eq!(result, at, "mapping anew what is mapped");
    }

    /// Gives a slot fresh memory, at its other place if `moves`; says where.
    fn renew(&self, slot: usize, moves: bool) -> u64 {
        let second = self.second.load(Ordering::SeqCst) >> slot & 1 == 1;
        let next = second != moves;
        if moves {
            self.fix(self.place(slot, second), false);
            self.second.fetch_xor(1 << slot, Ordering::SeqCst);
        }
        self.fix(self.place(slot, next), true);
        self.place(slot, next)
    }
}

const _: () = assert!(SLOTS <= 64, "a bit for each slot");

/// A process's memory.
pub(crate) struct Memory {
    heap: Mutex<Vec<Option<HeapArray<u8>>>>,
    pub(crate) words: HeapArray<u64>,
    letters: HeapArray<u8>,
    /// Never freed: others write there until this process has ended.
    private: &'static Private,
    private_letters: &'static Private,
    mapped: Mapped,
}

impl Memory {
    pub(crate) fn new(node: &Node) -> Memory {
        let area = || node.heap().alloc_zeroed::<u8>(AREA).expect("room");
        Memory {
            heap: Mutex::new((0..SLOTS).map(|_| Some(area())).collect()),
            words: node.heap().alloc_zeroed(SLOTS * WORDS).expect("room"),
            letters: node.heap().alloc_zeroed(IDS * CELLS * CELL).expect("room"),
            private: Box::leak(Box::new(Private::new(SLOTS * AREA))),
            private_letters: Box::leak(Box::new(Private::new(IDS * CELLS * CELL))),
            mapped: Mapped::new(),
        }
    }

    /// Where everything is, for [`Places::parse`].
    pub(crate) fn places(&self) -> String {
        let first = [
            self.words.ptr(0).offset(),
            self.private.addr(),
            self.mapped.first,
            self.letters.ptr(0).offset(),
            self.private_letters.addr(),
        ];
        let heap = self.heap.lock().expect("no panic");
        let arrays = heap.iter().map(|array| array.as_ref().expect("allocated").ptr(0).offset());
        first.into_iter().chain(arrays).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Frees a slot's area and makes it anew, all zeroes; says where.
    pub(crate) fn renew(&self, heap: &Heap<'_>, area: usize, slot: usize, moves: bool) -> u64 {
        if area == MAPPED {
            return self.mapped.renew(slot, moves);
        }
        let mut arrays = self.heap.lock().expect("no panic");
        arrays[slot] = None;
        let array = heap.alloc_zeroed::<u8>(AREA).expect("room");
        arrays[slot].insert(array).ptr(0).offset()
    }

    /// The checksum of a part of an area that is not mapped anew.
    pub(crate) fn sum(&self, area: usize, slot: usize, at: usize, len: usize) -> u64 {
        let mut bytes = vec![0; len];
        if area == HEAP {
            let arrays = self.heap.lock().expect("no panic");
            arrays[slot].as_ref().expect("allocated").read_slice(at, &mut bytes);
        } else {
            let first = slot * AREA + at;
            bytes.iter_mut().zip(first..).for_each(|(byte, at)| *byte = self.private.byte(at));
        }
        checksum(&bytes)
    }

    /// A letter of a process, as it lies here.
    pub(crate) fn letter(&self, sender: usize, number: u64, len: usize) -> Vec<u8> {
        let (in_heap, at) = cell(sender, number);
        let mut bytes = vec![0; len];
        if in_heap {
            self.letters.read_slice(at, &mut bytes);
        } else {
            bytes.iter_mut().zip(at..).for_each(|(byte, at)| *byte = self.private_letters.byte(at));
        }
        bytes
    }

    pub(crate) fn word(&self, slot: usize, word: usize) -> u64 {
        self.words.read(slot * WORDS + word)
    }
}
