//! Fast Messages: one piece a message, received whole by its handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use layers::Copies;
use layers::fm::{self, Done};
use standpipe::{Node, Rank};

use super::bench::Bench;
use super::memory::{Memory, right};

/// The number of the only handler.
const HANDLER: u32 = 0;

/// Extractions that found nothing, after which one looks whether nodes are lost.
const IDLE_MAX: u32 = 1_000;

pub(super) struct Fm {
    layer: fm::Fm,
    memory: Memory,
    came: Arc<AtomicU64>,
    received: u64,
}

impl Fm {
    pub(super) fn open(node: &Node, longest: usize) -> Result<Fm> {
        let mut memory = Memory::new(node, longest)?;
        let came = Arc::new(AtomicU64::new(0));
        let (counting, right) = (Arc::clone(&came), right());
        let place = memory.place_start().expose_provenance();
        let layer = fm::Fm::open(node.clone(), move |incoming| {
            let mut at = place;
            let whole = incoming.announced().min(longest as u64);
            incoming.receive_with(whole, &mut |bytes| {
                right.write(std::ptr::with_exposed_provenance_mut(at), bytes);
                at += bytes.len();
            });
            counting.fetch_add(1, Ordering::Relaxed);
            Some(Done::Continue)
        })?;
        Ok(Fm { layer, memory, came, received: 0 })
    }
}

impl Bench for Fm {
    fn send(&mut self, to: Rank, size: usize) -> Result<()> {
        let message = loop {
            match self.layer.begin(to.into(), size as u64, HANDLER)? {
                Some(message) => break message,
                // There is no room, which extracting makes.
                None => _ = self.layer.extract(u64::MAX),
            }
        };
        self.layer.send_piece(message, self.memory.source(size))?;
        Ok(self.layer.end(message)?)
    }

    fn receive(&mut self, _size: usize) -> Result<()> {
        let mut idle = 0;
        while self.came.load(Ordering::Relaxed) <= self.received {
            if self.layer.extract(u64::MAX) > 0 {
                continue;
            }
            idle += 1;
            if idle % IDLE_MAX == 0 {
                let lost = (0..self.layer.nodes()).find(|node| self.layer.is_lost(*node));
                ensure!(lost.is_none(), "node {} is lost", lost.context("just found")?);
            }
        }
        self.received += 1;
        Ok(())
    }

    fn copies(&self) -> Copies {
        self.layer.copies()
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}
