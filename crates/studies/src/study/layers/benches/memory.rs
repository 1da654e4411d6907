//! What a bench sends from, and where what comes to it lies: ordinary memory of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use standpipe::{AllMemory, Node, Rank};

/// Words that came in a message, for whoever waits for it.
#[derive(Debug, Default)]
pub(super) struct Words([AtomicU64; 4]);

impl Words {
    /// The longest message that goes in words.
    pub(super) const BYTES: usize = 32;

    /// Notes those of a message, before it is counted.
    pub(super) fn note(&self, words: &[u64]) {
        self.0.iter().zip(words).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
    }

    /// The bytes of the last.
    pub(super) fn bytes(&self) -> [u8; Words::BYTES] {
        bytemuck::cast(self.0.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

/// The right to name the memory that studies of layers move bytes between, here and at its peers.
pub(crate) fn right() -> AllMemory {
    // SAFETY: they use it for their sources and places alone, of this process and of the job's others, which
    // are this program: these stay where they are until the barrier after the last message, and their owners
    // look at them while nobody writes there.
    unsafe { AllMemory::promised() }
}

/// The source of a bench's messages, and the place for those that come.
#[derive(Debug)]
pub(in crate::study::layers) struct Memory {
    source: Vec<u8>,
    place: Vec<u8>,
    /// By rank, the address of its place.
    places: Vec<u64>,
    /// Whether messages that are made or read in the layer's own memory go from the source and to the place
    /// all the same, for whoever looks at them.
    keeps: bool,
}

impl Memory {
    /// For messages of at most so many bytes. All processes of the job call it.
    pub(super) fn new(node: &Node, longest: usize) -> Result<Memory> {
        let (source, mut place) = (vec![0; longest], vec![0; longest]);
        let own = place.as_mut_ptr().expose_provenance() as u64;
        let mut places = vec![0; node.size() as usize];
        node.world().all_gather(&[own], &mut places)?;
        Ok(Memory { source, place, places, keeps: false })
    }

    pub(super) fn source(&self, size: usize) -> &[u8] {
        &self.source[..size]
    }

    /// The first bytes of the source as words, and zeroes after them.
    pub(super) fn source_words(&self, size: usize) -> [u64; 4] {
        let mut bytes = [0; Words::BYTES];
        bytes[..size].copy_from_slice(self.source(size));
        bytemuck::cast(bytes)
    }

    /// Takes a message that came in words.
    pub(super) fn take_words(&mut self, words: &Words, size: usize) {
        self.place(size).copy_from_slice(&words.bytes()[..size]);
    }

    pub(super) fn source_start(&self) -> *const u8 {
        self.source.as_ptr()
    }

    pub(super) fn place(&mut self, size: usize) -> &mut [u8] {
        &mut self.place[..size]
    }

    pub(super) fn place_start(&mut self) -> *mut u8 {
        self.place.as_mut_ptr()
    }

    /// Where messages to that rank are to lie.
    pub(super) fn place_of(&self, rank: Rank) -> u64 {
        self.places[rank as usize]
    }

    /// Makes the source one that this number tells from others, and empties the place. From now on
    /// [`Memory::keeps`].
    pub(super) fn fill(&mut self, seed: u64) {
        self.source.iter_mut().zip(0..).for_each(|(byte, at)| *byte = expected(seed, at));
        self.place.iter_mut().zip(0..).for_each(|(byte, at)| *byte = !expected(seed, at));
        self.keeps = true;
    }

    /// Nobody looks any more.
    pub(super) fn let_go(&mut self) {
        self.keeps = false;
    }

    /// Whether somebody looks at what comes. If not, messages in the layer's own memory are used there, as
    /// its interface has it.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Whether so many bytes from a source of that number have come.
    pub(super) fn has(&self, seed: u64, size: usize) -> bool {
        self.place[..size].iter().zip(0..).all(|(byte, at)| *byte == expected(seed, at))
    }
}

fn expected(seed: u64, at: u64) -> u8 {
    // Neighbours differ, and so do places that are a page, or a message's longest piece, apart.
    let mixed = (at ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(seed: u64, start: u64) -> Vec<u8> {
        (start..start + 64).map(|at| expected(seed, at)).collect()
    }

    #[test]
    fn sources_of_other_numbers_differ_and_so_do_pieces_of_one() {
        let sizes = [8, 9, 64, 512, 4096, 65_536, 65_537, 1 << 20];
        for (index, size) in sizes.iter().enumerate() {
            assert!(sizes[..index].iter().all(|other| some(*other, 0) != some(*size, 0)), "{size}");
        }
        for start in [1, 8, 4096, 8192, 65_536, 262_144] {
            assert_ne!(some(7, 0), some(7, start), "{start} bytes apart");
        }
    }
}
