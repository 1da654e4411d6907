//! PM: messages in its buffers, and remote writes between locked memory for what is longer.

use anyhow::Result;
use layers::Copies;
use layers::pm::{self, Context, Handle, LockBy, MTU, PmError, Started};
use standpipe::{Node, Rank};

use super::bench::Bench;
use super::memory::{Memory, right};

/// Bytes that may be locked where nothing is pinned.
const BUDGET_BYTES: u64 = 1 << 30;

/// A message that tells of a write is so long.
const NOTE: usize = 8;

pub(super) struct Pm {
    layer: pm::Pm,
    context: Context,
    memory: Memory,
    source: Handle,
    /// By rank, the handle of its place.
    places: Vec<Handle>,
}

impl Pm {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Pm> {
        let mut memory = Memory::new(node, longest)?;
        // Shared memory pins nothing, and moves bytes between any memory.
        let by = match node.provider() {
            Some(_) => LockBy::Pin,
            None => LockBy::Address { budget_bytes: BUDGET_BYTES },
        };
        let mut layer = pm::Pm::open(node.clone(), right(), by)?;
        let context = layer.open_context(0, true)?;
        // Locked once, as a program does that sends from the same memory again and again.
        let source = layer.lock(context, None, memory.source_start().cast_mut(), longest)?;
        let place = layer.lock(context, None, memory.place_start(), longest)?;
        let mut places = vec![0; node.size() as usize];
        node.world().all_gather(&[place.0], &mut places)?;
        let places = places.into_iter().map(Handle).collect();
        Ok(Pm { layer, context, memory, source, places })
    }

    /// Launches the first `size` bytes of the source as a message.
    fn message(&mut self, to: Rank, size: usize) -> Result<()> {
        let buffer = self.retried(|pm| pm.layer.send_buffer(pm.context, to.into(), size))?;
        // A program makes its message there.
        let made = if self.memory.keeps() { size } else { size.min(NOTE) };
        right().write(buffer, self.memory.source(made));
        Ok(self.layer.send(self.context)?)
    }

    /// Tries again, making progress, while there is no room.
    fn retried<T>(&mut self, mut act: impl FnMut(&mut Self) -> Result<T, PmError>) -> Result<T> {
        loop {
            match act(self) {
                Err(PmError::NoBuffers | PmError::Busy) => self.layer.progress(),
                other => return Ok(other?),
            }
        }
    }
}

impl Bench for Pm {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        if size <= MTU {
            return self.message(to, size);
        }
        let (source, place) = (self.source, self.places[to as usize]);
        self.retried(|pm| pm.layer.write(pm.context, to.into(), place, source, size))?;
        self.retried(|pm| pm.layer.is_done(pm.context, Started::Writes))?;
        self.message(to, NOTE)
    }

    fn receive(&mut self, size: usize) -> Result<()> {
        let (start, len) = self.retried(|pm| pm.layer.receive(pm.context))?;
        // Read in place by a program.
        if size <= MTU && self.memory.keeps() {
            right().read(start, self.memory.place(len));
        }
        Ok(self.layer.release(self.context)?)
    }

    fn copies(&self) -> Copies {
        self.layer.copies()
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
