//! Generic Active Messages: words in requests, and stores for what is longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use anyhow::Result;
use layers::Copies;
use layers::gam::{self, Arguments, Function, Program};
use standpipe::{Node, Rank};

use super::bench::Bench;
use super::memory::{Memory, Words, right};

/// The program's functions. A message has come whole.
const CAME: Function = 0x1000;
/// A part of one has.
const PART: Function = 0x1001;
/// A message has come whole, and wants its words back.
const ASKED: Function = 0x1002;

/// The layer, whose program has it itself, to reply.
type Layer = gam::Gam<Counting>;

#[derive(Default)]
struct Counting {
    came: AtomicU64,
    landed: AtomicU64,
    words: Words,
    layer: OnceLock<Weak<Layer>>,
}

impl Program for Counting {
    fn has_function(&self, function: Function) -> bool {
        [CAME, PART, ASKED].contains(&function)
    }

    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>) {
        match arguments {
            Arguments::Words(words) => self.words.note(words),
            Arguments::Memory { len, .. } => _ = self.landed.fetch_add(len as u64, Ordering::Relaxed),
            _ => {}
        }
        if function == PART {
            return;
        }
        if function == ASKED
            && let Some(layer) = self.layer.get().and_then(Weak::upgrade)
        {
            layer.reply(from.into(), CAME, &arguments).expect("the reply that the request is due");
        }
        self.came.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Gam {
    layer: Arc<Layer>,
    memory: Memory,
    received: u64,
}

impl Gam {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Gam> {
        let layer = Arc::new(Layer::new(node.clone(), right(), Counting::default())?);
        layer.program().layer.get_or_init(|| Arc::downgrade(&layer));
        layer.join()?;
        Ok(Gam { layer, memory: Memory::new(node, longest)?, received: 0 })
    }

    fn request(&self, to: Rank, function: Function, size: usize) -> Result<()> {
        let words = self.memory.source_words(size);
        let used = size.div_ceil(8);
        Ok(self.layer.request(to.into(), function, &Arguments::Words(&words[..used]))?)
    }
}

impl Bench for Gam {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        if size <= Words::BYTES {
            return self.request(to, CAME, size);
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

    /// Words come back by the reply to their request, a store by another store.
    fn round_trip(&mut self, with: Rank, size: usize) -> Result<()> {
        match size <= Words::BYTES {
            true => self.request(with, ASKED, size)?,
            false => self.send(with, size)?,
        }
        self.receive(size)
    }

    fn serve(&mut self, with: Rank, size: usize) -> Result<()> {
        self.receive(size)?;
        if size <= Words::BYTES { Ok(()) } else { self.send(with, size) }
    }

    fn copies(&self) -> Copies {
        self.layer.copies()
    }

    fn landed(&self) -> u64 {
        self.layer.program().landed.load(Ordering::Relaxed)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
