//! The library itself: what layers are measured beside.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use layers::Copies;
use standpipe::{Call, HandlerId, MEDIUM_MAX, Node, Payload, Rank};

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

/// Looks in a row that found nothing, after which this process gives its core away once.
const IDLE_MAX: u32 = 200;

impl Inbox {
    /// Registers the handler of that name.
    fn register(node: &Node, name: &str) -> Result<(Arc<Inbox>, HandlerId)> {
        let inbox = Arc::new(Inbox::default());
        let here = Arc::clone(&inbox);
        let handler = node.register("study layers", name, move |call| here.take(call))?;
        Ok((inbox, handler))
    }

    /// Takes a message that has come.
    fn take(&self, call: &mut Call<'_>) {
        self.words.note(&call.args());
        if call.payload_len() > 0 {
            let kept = call.take_payload().ok();
            *self.payload.lock().expect("nobody panics with it") = kept;
        }
        if let Some((_, landed)) = call.landed() {
            self.landed.fetch_add(landed, Ordering::Relaxed);
        }
        self.came.fetch_add(1, Ordering::Release);
    }

    /// Polls until another message has come, as the layers' receivers do: to sleep, and to be woken by each
    /// put, would cost as much as half of a put of 1 MiB.
    fn wait(&self, node: &Node, received: u64) -> Result<()> {
        let mut idle = 0_u32;
        while self.came.load(Ordering::Acquire) <= received {
            if node.progress() {
                continue;
            }
            idle += 1;
            if idle.is_multiple_of(IDLE_MAX) {
                let lost = node.lost_peers();
                ensure!(lost.is_empty(), "ranks {lost:?} are lost");
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Active Messages.
pub(super) struct Messages {
    node: Node,
    memory: Memory,
    inbox: Arc<Inbox>,
    handler: HandlerId,
    /// Takes a message and sends it back, as its reply.
    asked: HandlerId,
    received: u64,
}

impl Messages {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Messages> {
        let (inbox, handler) = Inbox::register(node, AM)?;
        let here = Arc::clone(&inbox);
        let asked = node.register("study layers", "a bare message that is answered", move |call| {
            // Counted before the requester can know of it.
            here.came.fetch_add(1, Ordering::Release);
            let replied = match call.take_payload() {
                Ok(payload) if !payload.is_empty() => call.reply_medium(handler, [0; 4], &payload),
                _ => call.reply(handler, call.args()),
            };
            replied.expect("the reply that the request is due");
        })?;
        node.world().barrier()?;
        let memory = Memory::new(node, longest)?;
        Ok(Messages { node: node.clone(), memory, inbox, handler, asked, received: 0 })
    }

    /// Sends a message to that handler.
    fn request(&self, to: Rank, handler: HandlerId, size: usize) -> Result<()> {
        match size {
            0..=Words::BYTES => self.node.request(to, handler, self.memory.source_words(size))?,
            _ if size <= MEDIUM_MAX => {
                self.node.request_medium(to, handler, [0; 4], self.memory.source(size))?;
            }
            _ => put(&self.node, handler, to, &self.memory, size)?,
        }
        Ok(())
    }
}

impl Bench for Messages {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        self.request(to, self.handler, size)
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

    /// By the message's own reply, as `standpipe perf am` has it; what is put comes back by another put.
    fn round_trip(&mut self, with: Rank, size: usize) -> Result<()> {
        let handler = if size <= MEDIUM_MAX { self.asked } else { self.handler };
        self.request(with, handler, size)?;
        self.receive(size)
    }

    fn serve(&mut self, with: Rank, size: usize) -> Result<()> {
        if size > MEDIUM_MAX {
            self.receive(size)?;
            return self.send(with, size);
        }
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
        node.world().barrier()?;
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

#[cfg(test)]
mod tests {
    use standpipe::{Config, Operation};

    use super::*;

    /// As `standpipe perf am` has it: beside it a layer that answers by a reply is measured fairly.
    #[test]
    fn a_bare_message_is_answered_by_its_reply() {
        let node = Node::open(Config::default()).expect("a job of one");
        let mut messages = Messages::open(&node, 4096).expect("it opens");
        for size in [8, 4096] {
            let before = node.stats().total(Operation::Reply).count;
            messages.round_trip(0, size).expect("it is answered");
            // Both sides are this one.
            messages.serve(0, size).expect("it was served");
            assert_eq!(node.stats().total(Operation::Reply).count, before + 1, "{size} bytes");
        }
        let requests = node.stats().total(Operation::Request).count;
        assert_eq!(requests, 2, "one each way would be four");
    }
}
