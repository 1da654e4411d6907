//! The library itself: what layers are measured beside.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use layers::Copies;
use standpipe::{HandlerId, MEDIUM_MAX, Node, Payload, Rank};

use super::bench::Bench;
use super::memory::{Memory, Words, right};

/// Active Messages, and beyond a message's payload puts that tell.
pub(super) const AM: &str = "bare message";
/// Puts that tell, of any size.
pub(super) const PUT: &str = "bare put";

/// What came, and how much of it was received.
#[derive(Debug, Default)]
struct Inbox {
    came: AtomicU64,
    landed: AtomicU64,
    words: Words,
    payload: Mutex<Option<Payload>>,
}

impl Inbox {
    /// Registers the handler of that name.
    fn register(node: &Node, name: &str) -> Result<(Arc<Inbox>, HandlerId)> {
        let inbox = Arc::new(Inbox::default());
        let here = Arc::clone(&inbox);
        let handler = node.register("study layers", name, move |call| {
            here.words.note(&call.args());
            if !call.payload().is_empty() {
                let kept = call.take_payload().ok();
                *here.payload.lock().expect("nobody panics with it") = kept;
            }
            if let Some((_, landed)) = call.landed() {
                here.landed.fetch_add(landed, Ordering::Relaxed);
            }
            here.came.fetch_add(1, Ordering::Release);
        })?;
        node.world().barrier()?;
        Ok((inbox, handler))
    }

    fn wait(&self, node: &Node, received: u64) -> Result<()> {
        Ok(node.wait_until(|| self.came.load(Ordering::Acquire) > received)?)
    }
}

/// Active Messages.
pub(super) struct Messages {
    node: Node,
    memory: Memory,
    inbox: Arc<Inbox>,
    handler: HandlerId,
    received: u64,
}

impl Messages {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Messages> {
        let (inbox, handler) = Inbox::register(node, AM)?;
        let memory = Memory::new(node, longest)?;
        Ok(Messages { node: node.clone(), memory, inbox, handler, received: 0 })
    }
}

impl Bench for Messages {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        match size {
            0..=Words::BYTES => self.node.request(to, self.handler, self.memory.source_words(size))?,
            _ if size <= MEDIUM_MAX => {
                self.node.request_medium(to, self.handler, [0; 4], self.memory.source(size))?;
            }
            _ => put(&self.node, self.handler, to, &self.memory, size)?,
        }
        Ok(())
    }

    fn receive(&mut self, size: usize) -> Result<()> {
        self.inbox.wait(&self.node, self.received)?;
        self.received += 1;
        if size <= Words::BYTES {
            self.memory.take_words(&self.inbox.words, size);
        } else if size <= MEDIUM_MAX
            && let Some(payload) = self.inbox.payload.lock().expect("nobody panics with it").take()
        {
            // Read in place by a program.
            if self.memory.keeps() {
                self.memory.place(payload.len()).copy_from_slice(&payload);
            }
        }
        Ok(())
    }

    fn copies(&self) -> Copies {
        Copies::default()
    }

    fn landed(&self) -> u64 {
        self.inbox.landed.load(Ordering::Relaxed)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

fn put(node: &Node, handler: HandlerId, to: Rank, memory: &Memory, size: usize) -> Result<()> {
    let place = right().remote(to, memory.place_of(to));
    Ok(node.request_long(handler, [0; 4], place, memory.source(size))?)
}

/// Puts.
pub(super) struct Puts {
    node: Node,
    memory: Memory,
    inbox: Arc<Inbox>,
    handler: HandlerId,
    received: u64,
}

impl Puts {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Puts> {
        let (inbox, handler) = Inbox::register(node, PUT)?;
        let memory = Memory::new(node, longest)?;
        Ok(Puts { node: node.clone(), memory, inbox, handler, received: 0 })
    }
}

impl Bench for Puts {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        put(&self.node, self.handler, to, &self.memory, size)
    }

    fn receive(&mut self, _size: usize) -> Result<()> {
        self.inbox.wait(&self.node, self.received)?;
        self.received += 1;
        Ok(())
    }

    fn copies(&self) -> Copies {
        Copies::default()
    }

    fn landed(&self) -> u64 {
        self.inbox.landed.load(Ordering::Relaxed)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
