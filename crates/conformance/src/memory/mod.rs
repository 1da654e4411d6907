//! A transport inside one thread: the reference for what the engine asks of one, and the engine's own test
//! bed.
//!
//! Lanes hold few messages, so that they are full all the time. A seed decides how long each message and each
//! one-sided copy takes, and in which order they arrive where the contract leaves the order open.

mod space;
mod transport;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Counters, MemId, Nanos, Node, Place, Rank};

use crate::bench::Dice;
use crate::cluster::{Cluster, HANDLERS};
use space::Access;
pub use transport::MemoryTransport;
use world::World;

/// How a one-sided part of the transport works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSided {
    /// Not at all: everything goes by message.
    Off,
    /// Complete at submission, but only for heap memory.
    HeapOnly,
    /// Complete at submission.
    Immediate,
    /// Complete later, with an event.
    Pending,
    /// Complete later, but only for heap memory, which has bounce buffers.
    Staged,
}

impl OneSided {
    /// Every way.
    pub const ALL: [OneSided; 5] =
        [OneSided::Off, OneSided::HeapOnly, OneSided::Immediate, OneSided::Pending, OneSided::Staged];
}

/// What a seed does not decide.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Decides every delay.
    pub seed: u64,
    /// Copies.
    pub copies: OneSided,
    /// Atomics.
    pub atomics: OneSided,
    /// Messages that each lane holds.
    pub lane_messages: usize,
    /// Bytes of payload that each message holds.
    pub payload_max: usize,
}

/// Nodes over memory transports.
pub struct MemoryCluster {
    nodes: Vec<Node<MemoryTransport>>,
    world: Rc<RefCell<World>>,
    /// Who will learn of whose loss, and when.
    news: Vec<(Nanos, Rank, Rank)>,
    dice: Dice,
}

impl MemoryCluster {
    /// `size` nodes with nothing in their memories.
    pub fn new(size: u32, settings: Settings) -> MemoryCluster {
        let world = Rc::new(RefCell::new(World::new(size, settings)));
        let node =
            |rank| Node::new(rank, size, HANDLERS, MemoryTransport::new(rank, settings, Rc::clone(&world)));
        MemoryCluster {
            nodes: (0..size).map(node).collect(),
            news: Vec::new(),
            dice: Dice::new(settings.seed ^ 0x0dd5),
            world,
        }
    }

    fn map(&mut self, rank: Rank, mem: MemId, len: usize, access: Access) -> Place {
        self.world.borrow_mut().space(rank).map(mem, len, access)
    }
}

impl Cluster for MemoryCluster {
    type Transport = MemoryTransport;

    fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn node(&mut self, rank: Rank) -> &mut Node<MemoryTransport> {
        &mut self.nodes[rank as usize]
    }

    fn private(&mut self, rank: Rank, len: usize) -> Place {
        self.map(rank, MemId::Space, len, Access::Full)
    }

    fn heap(&mut self, rank: Rank, len: usize) -> Place {
        self.map(rank, MemId::Heap, len, Access::Full)
    }

    fn inaccessible(&mut self, rank: Rank) -> Option<Place> {
        Some(self.map(rank, MemId::Space, 4096, Access::None))
    }

    fn read_only(&mut self, rank: Rank) -> Option<Place> {
        Some(self.map(rank, MemId::Space, 4096, Access::Read))
    }

    fn peek(&mut self, rank: Rank, from: Place, into: &mut [u8]) {
        let mut world = self.world.borrow_mut();
        let bytes = world.space(rank).readable(from, into.len()).expect("the place was allocated");
        into.copy_from_slice(bytes);
    }

    fn poke(&mut self, rank: Rank, to: Place, from: &[u8]) {
        let mut world = self.world.borrow_mut();
        world.space(rank).writable(to, from.len()).expect("the place was allocated").copy_from_slice(from);
    }

    fn step(&mut self) {
        self.world.borrow_mut().step();
        let now = self.now();
        for index in (0..self.news.len()).rev() {
            let (due, to, lost) = self.news[index];
            if due <= now {
                self.news.swap_remove(index);
                self.nodes[to as usize].lose(lost);
            }
        }
    }

    fn kill(&mut self, rank: Rank) {
        self.world.borrow_mut().kill(rank);
        for to in (0..self.size()).filter(|to| *to != rank) {
            let due = self.now() + self.dice.below(20);
            self.news.push((due, to, rank));
        }
    }

    fn now(&self) -> Nanos {
        self.world.borrow().now()
    }

    fn counters(&mut self, rank: Rank) -> Counters {
        let node = self.node(rank);
        let mut counters = node.counters().clone();
        counters.merge(node.transport().counters());
        counters
    }
}
