//! Generic Active Messages: words in requests, and stores for what is longer.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use layers::Copies;
use layers::gam::{self, Arguments, Function, Program};
use standpipe::{Node, Rank};

use super::bench::Bench;
use super::memory::{Memory, Words};

/// The program's only function: a message has come whole.
const CAME: Function = 0x1000;
/// A part of one has.
const PART: Function = 0x1001;

#[derive(Debug, Default)]
struct Counting {
    came: AtomicU64,
    words: Words,
}

impl Program for Counting {
    fn has_function(&self, function: Function) -> bool {
        [CAME, PART].contains(&function)
    }

    fn call(&self, function: Function, _from: Rank, arguments: Arguments<'_>) {
        if function == CAME {
            if let Arguments::Words(words) = arguments {
                self.words.note(words);
            }
            self.came.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(super) struct Gam {
    layer: gam::Gam<Counting>,
    memory: Memory,
    received: u64,
}

impl Gam {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Gam> {
        let layer = gam::Gam::new(node.clone(), Memory::right(), Counting::default())?;
        layer.join()?;
        Ok(Gam { layer, memory: Memory::new(node, longest)?, received: 0 })
    }
}

impl Bench for Gam {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        if size <= Words::BYTES {
            let words = self.memory.source_words(size);
            let used = size.div_ceil(8);
            return Ok(self.layer.request(to.into(), CAME, &Arguments::Words(&words[..used]))?);
        }
        // The program cuts, as the interface wants it.
        for start in (0..size).step_by(gam::MAX_SIZE) {
            let len = (size - start).min(gam::MAX_SIZE);
            let from = self.memory.source_start().wrapping_add(start);
            let to_addr = self.memory.place_of(to) + start as u64;
            let function = if start + len == size { CAME } else { PART };
            self.layer.store(to.into(), from, to_addr, len as i64, (function, 0))?;
        }
        Ok(())
    }

    fn receive(&mut self, size: usize) -> Result<()> {
        while self.layer.program().came.load(Ordering::Relaxed) <= self.received {
            self.layer.poll_idle()?;
        }
        self.received += 1;
        if size <= Words::BYTES {
            self.memory.take_words(&self.layer.program().words, size);
        }
        Ok(())
    }

    fn copies(&self) -> Copies {
        self.layer.copies()
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
