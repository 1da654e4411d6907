//! Which victim goes first: the orders of giving registrations up, on what programs do.

use engine::registration::{Order, Settings, Strategy};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::pair::{Pair, Put};
use crate::costs::Costs;
use crate::replay::ReplayError;

/// Blocks in the order in which they are put to, by their numbers from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accesses {
    /// The numbers.
    pub blocks: Vec<u64>,
}

/// What an order came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Blocks that the initiator held, in percent of those put to.
    pub hit_percent: f64,
    /// Registrations that the owner made.
    pub registrations: u64,
}

impl Accesses {
    /// Goes over so many blocks again and again.
    pub fn scans(blocks: u64, times: u64) -> Accesses {
        Accesses { blocks: (0..times).flat_map(|_| 0..blocks).collect() }
    }

    /// Puts to few hot blocks at random, while every other put goes on with a scan over all others, which is
    /// never repeated.
    pub fn hot_and_scan(hot: u64, puts: u64, seed: u64) -> Accesses {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let block = |index| if index % 2 == 0 { rng.random_range(0..hot) } else { hot + index / 2 };
        Accesses { blocks: (0..puts).map(block).collect() }
    }

    /// Different blocks.
    pub fn footprint(&self) -> u64 {
        let mut blocks = self.blocks.clone();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.len() as u64
    }

    /// Puts to them in turn, a block being a bucket, where so many blocks may be pinned: three quarters of
    /// them for the peer, the rest for victims.
    ///
    /// # Errors
    /// If a put fails, which nothing makes it do.
    pub fn keep(&self, order: Order, pinned: u64) -> Result<Kept, ReplayError> {
        let settings = with_order(super::paper_settings(), order, pinned * BUCKET_BYTES);
        let last = self.blocks.iter().max().copied().unwrap_or(0);
        let bytes = (last + 1) * BUCKET_BYTES;
        let mut pair =
            Pair::new(&Costs::infiniband_modern(), Strategy::Firehose, settings, BUCKET_BYTES, bytes);
        let put = |block: &u64| Put { from: 0, to: block * BUCKET_BYTES, len: 8 };
        let ran = pair.put(self.blocks.iter().map(put))?;
        let registrations = pair.target_counters().table.registrations;
        Ok(Kept { hit_percent: ran.hit_percent(), registrations })
    }
}

/// The same settings with that order, and so many bytes that may be pinned: three quarters for peers, one for
/// victims.
pub fn with_order(settings: Settings, order: Order, pinned_bytes: u64) -> Settings {
    let victims_bytes = pinned_bytes / 4;
    Settings { order, victims_bytes, peers_bytes: pinned_bytes - victims_bytes, ..settings }
}

const BUCKET_BYTES: u64 = 4096;
