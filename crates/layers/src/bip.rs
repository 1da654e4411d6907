//! BIP 0.92, *Basic Interface for Parallelism*: messages with tags, as close to the network as they go.
//!
//! Short messages, of at most [`SMALL_WORDS`] words, are buffered in their tag's queue at the receiver. Of a
//! longer one the receiver is told only where it lies; once a receive waits for it, the receiver gets it from
//! the sender's memory into its own buffer, without a copy between, and tells the sender. So a long send ends
//! when its message was received.
//!
//! Messages of one sender with one tag are received in the order sent, short and long ones mixed. A process
//! has one send under way at a time, and one receive for each tag.
//!
//! Faults are detected, and nothing recovers from them: a lost process ends every wait.

mod error;
mod features;
mod link;
mod receive;
mod send;
mod sends;
mod state;
mod tags;
mod waits;
mod window;
#[doc(hidden)]
pub mod wire;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use standpipe::{AllMemory, Node, Rank, Team};

use crate::Copies;
use link::{Link, NAME};
use state::{State, window_of};
use tags::Buffers;

pub use error::BipError;
pub use features::FEATURES;
pub use state::Counts;
pub use tags::Received;
pub use wire::SMALL_WORDS;

/// Buffers that a program may declare for a tag, at most.
pub const BUFFERS_MAX: u32 = 1 << 20;
/// Peers that a process tells at a time that it leaves: it looks after its messages in between.
const TOLD_AT_ONCE: usize = 64;
/// How long a process that leaves waits for what its node has under way.
const CLOSE: Duration = Duration::from_secs(5);

/// The buffers that a program declares for a tag, before it opens the layer: `bip_taginit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagBuffers {
    tag: u32,
    buffers: Buffers,
}

impl TagBuffers {
    /// For `tag`, `nbufs` short messages of `size` words.
    ///
    /// # Errors
    /// [`BipError::BadTag`] for a negative tag; [`BipError::BadBuffers`] unless there is at least one buffer
    /// of at least one word, and at most [`BUFFERS_MAX`] of them.
    pub fn new(tag: i32, nbufs: i32, size: i32) -> Result<TagBuffers, BipError> {
        let number = u32::try_from(tag).map_err(|_| BipError::BadTag { tag })?;
        let counts = u32::try_from(nbufs).ok().zip(u32::try_from(size).ok());
        match counts {
            Some((count @ 1..=BUFFERS_MAX, words @ 1..)) => {
                Ok(TagBuffers { tag: number, buffers: Buffers { count, words } })
            }
            _ => Err(BipError::BadBuffers { tag, nbufs, size, most: BUFFERS_MAX }),
        }
    }
}

/// A process's part in a BIP job.
///
/// Made for one thread, as BIP is: calls of several threads harm nothing, but which gets which message is
/// open. No call may be made in a handler.
#[derive(Debug)]
pub struct Bip {
    link: Link,
    world: Team,
    /// Whether this host has a core for each of its processes.
    has_cores: bool,
}

impl Bip {
    /// Opens the layer in every process of the job, which all call this; waits until they have. `tags` are
    /// the buffers that this process declares; of two for the same tag the later counts.
    ///
    /// # Errors
    /// [`BipError::Lost`] where a process ends before it has come; [`BipError::Node`] for whatever else the
    /// node refuses, such as a second layer of this kind in one process.
    pub fn open(node: Node, memory: AllMemory, tags: &[TagBuffers]) -> Result<Bip, BipError> {
        let declared: HashMap<u32, Buffers> = tags.iter().map(|of| (of.tag, of.buffers)).collect();
        let own = window_of(&declared);
        let mut windows = vec![0_u32; node.size() as usize];
        let link = Link::open(node.clone(), memory, State::new(declared, &windows))?;
        let world = node.world_of(NAME)?;
        // Ends once all have registered. A process that is through with it may send at once.
        world.all_gather(&[own], &mut windows)?;
        link.state().set_windows(&windows);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let has_cores = cores >= node.near_ranks().len();
        Ok(Bip { link, world, has_cores })
    }

    /// This process's number.
    pub fn mynode(&self) -> Rank {
        self.link.node.rank()
    }

    /// How many processes there are.
    pub fn numnodes(&self) -> u32 {
        self.link.node.size()
    }

    /// Bytes that the layer has copied here. A short message is copied once at each side. A long one is not,
    /// unless it is received after [`Bip::try_get_message`] had it got to be read in place: then once.
    pub fn copies(&self) -> Copies {
        self.link.state().copies
    }

    /// What has happened beside what was asked for.
    pub fn counts(&self) -> Counts {
        self.link.state().counts
    }

    /// Leaves the job with all others: waits until every process has called this or is lost, and goes on with
    /// a send that has not ended meanwhile. The others may then still receive what this process has sent, and
    /// their waits for what only it could do end. Every later call ends with an error.
    ///
    /// A receive that has not ended is withdrawn first: nothing is written to its buffer any more.
    pub fn leave(&self) {
        self.link.withdraw();
        let mut untold: VecDeque<Rank> = (0..self.numnodes()).filter(|rank| *rank != self.mynode()).collect();
        let mut all = self.world.barrier_nb();
        while !all.is_complete() && !matches!(self.link.advance(), Err(BipError::Node(_))) {
            for _ in 0..untold.len().min(TOLD_AT_ONCE) {
                if let Some(peer) = untold.pop_front()
                    && !self.link.tell_of_leaving(peer)
                {
                    untold.push_back(peer);
                }
            }
            // An error means that it cannot be waited for, and then it is over.
            if all.wait_at_most(Duration::from_millis(1)).is_err() {
                break;
            }
        }
        // Whatever has not ended by then has nobody that it could matter to.
        let _ = self.link.node.clone().close(CLOSE);
    }
}
