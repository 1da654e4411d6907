//! BIP: short messages into the receiver's queue, long ones got by the receiver from where they lie.

use anyhow::{Result, ensure};
use layers::Copies;
use layers::bip;
use standpipe::{Node, Rank};

use super::bench::Bench;
use super::memory::{Memory, right};

const TAG: i32 = 1;

/// BIP counts words of so many bytes.
const WORD: usize = 4;

/// Short messages that wait at a receiver at most before their senders do.
const BUFFERS: i32 = 64;

pub(super) struct Bip {
    layer: bip::Bip,
    memory: Memory,
}

impl Bip {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Bip> {
        let buffers = bip::TagBuffers::new(TAG, BUFFERS, bip::SMALL_WORDS as i32)?;
        let layer = bip::Bip::open(node.clone(), right(), &[buffers])?;
        Ok(Bip { layer, memory: Memory::new(node, longest.next_multiple_of(WORD))? })
    }
}

/// Bytes in words.
fn words(size: usize) -> Result<i32> {
    Ok(i32::try_from(size.div_ceil(WORD))?)
}

impl Bench for Bip {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        Ok(self.layer.send(to.cast_signed(), TAG, self.memory.source_start(), words(size)?)?)
    }

    fn receive(&mut self, size: usize) -> Result<()> {
        let received = self.layer.recv(TAG, self.memory.place_start(), words(size)?)?;
        let came = received.words as usize;
        ensure!(came == size.div_ceil(WORD), "{came} words came for {size} bytes");
        Ok(())
    }

    /// A long message waits for its receiver, so that both receive before they wait for their own.
    fn exchange(&mut self, with: Rank, size: usize) -> Result<()> {
        let sent = self.layer.isend(with.cast_signed(), TAG, self.memory.source_start(), words(size)?)?;
        self.receive(size)?;
        Ok(self.layer.swait(sent)?)
    }

    fn copies(&self) -> Copies {
        self.layer.copies()
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
