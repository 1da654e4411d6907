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

/// The source of a bench's messages, and the place for those that come.
#[derive(Debug)]
pub(in crate::study::layers) struct Memory {
    source: Vec<u8>,
    place: Vec<u8>,
    /// By rank, the address of its place.
    places: Vec<u64>,
}

impl Memory {
    /// For messages of at most so many bytes. All processes of the job call it.
    pub(super) fn new(node: &Node, longest: usize) -> Result<Memory> {
        let (source, mut place) = (vec![0; longest], vec![0; longest]);
        let own = place.as_mut_ptr().expose_provenance() as u64;
        let mut places = vec![0; node.size() as usize];
        node.world().all_gather(&[own], &mut places)?;
        Ok(Memory { source, place, places })
    }

    /// The right to name this memory, here and at its peers.
    pub(super) fn right() -> AllMemory {
        // SAFETY: benches use it for sources and places alone, of this process and of the job's others, which
        // are this program: they stay where they are until the barrier after the last message, and their
        // owners look at them while nobody writes there.
        unsafe { AllMemory::promised() }
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

    /// Makes the source one that this number tells from others.
    pub(super) fn fill(&mut self, seed: u64) {
        self.source.iter_mut().zip(0..).for_each(|(byte, at)| *byte = expected(seed, at));
    }

    /// Whether so many bytes from a source of that number have come.
    pub(super) fn has(&self, seed: u64, size: usize) -> bool {
        self.place[..size].iter().zip(0..).all(|(byte, at)| *byte == expected(seed, at))
    }
}

fn expected(seed: u64, at: u64) -> u8 {
    // Neighbours differ, and so do places that are a page, or a message's longest piece, apart.
    (seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_other_numbers_differ_from_the_first_byte_on_and_from_page_to_page() {
        assert_ne!(expected(1, 0), expected(2, 0));
        let page = |start: u64| (start..start + 64).map(|at| expected(7, at)).collect::<Vec<u8>>();
        assert_ne!(page(0), page(4096));
        assert_ne!(page(0), page(8192));
    }
}
