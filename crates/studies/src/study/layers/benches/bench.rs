//! What all benches are: one layer at one process.

use anyhow::Result;
use layers::Copies;
use standpipe::Rank;

use super::memory::Memory;

/// One layer at one process: messages to and from others.
///
/// All processes make the same benches in the same order. A message is as long as its receiver expects.
pub(in crate::study::layers) trait Bench {
    /// Sends `size` bytes of its source. Returns when the layer lets the source be used again.
    fn send(&mut self, to: Rank, size: usize) -> Result<()>;

    /// Waits until one more message of that size, of any sender, has come whole.
    fn receive(&mut self, size: usize) -> Result<()>;

    /// Sends a message and receives one, where the other does the same.
    fn exchange(&mut self, with: Rank, size: usize) -> Result<()> {
        self.send(with, size)?;
        self.receive(size)
    }

    /// Sends a message and waits for its answer, by the interface's own way to answer if it has one. The
    /// other process [serves](Bench::serve).
    fn round_trip(&mut self, with: Rank, size: usize) -> Result<()> {
        self.send(with, size)?;
        self.receive(size)
    }

    /// Answers a message as long as it is.
    fn serve(&mut self, with: Rank, size: usize) -> Result<()> {
        self.receive(size)?;
        self.send(with, size)
    }

    /// What the layer has copied.
    fn copies(&self) -> Copies;

    /// Bytes that lay in place when their message came: the library counts them as handled, and this process
    /// has copied none of them.
    fn landed(&self) -> u64 {
        0
    }

    /// The source, and the place where what comes of this sender lies, or has lain last.
    fn memory(&mut self) -> &mut Memory;
}
