//! The Firehose paper's three figures: what a put takes, by its size, and by how much memory puts go to.

use engine::registration::{Settings, Strategy};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::pair::{Pair, Put};
use crate::costs::Costs;
use crate::replay::{Ran, ReplayError};

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Bandwidth in MB/s (10^6 bytes) by bytes of a put, always to the same place.
    BandwidthBySize,
    /// Bandwidth in MB/s of puts of 64 KiB to random places, by MiB of the memory that they go to.
    BandwidthByWorkingSet,
    /// Time in µs until a put of 8 bytes to a random place is known to be complete, by MiB of that memory.
    RoundTripByWorkingSet,
}

impl Shape {
    /// All of them, in the paper's order.
    pub const ALL: [Shape; 3] =
        [Shape::BandwidthBySize, Shape::BandwidthByWorkingSet, Shape::RoundTripByWorkingSet];

    /// Whether more is better.
    pub fn is_bandwidth(self) -> bool {
        self != Shape::RoundTripByWorkingSet
    }
}

/// One strategy's line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The strategy.
    pub strategy: Strategy,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The machine.
    pub costs: Costs,
    /// What strategies are made from.
    pub settings: Settings,
    /// Bytes of a put, in [`Shape::BandwidthBySize`].
    pub sizes: Vec<u64>,
    /// Bytes of the memory that puts go to: whole puts of 64 KiB.
    pub working_sets: Vec<u64>,
    /// Puts that are timed for each point; five times as many where not all of the working set can be pinned:
    /// there a single page that is unpinned a little earlier or later takes as long as hundreds of puts.
    pub puts: u64,
    /// Decides the random places.
    pub seed: u64,
}

impl Figures {
    /// What the paper shows, with working sets up to one and a half times what the machine can pin.
    pub fn paper() -> Figures {
        let mib = [1, 64, 128, 192, 256, 320, 384, 448, 480, 512, 544, 576, 608, 640, 704, 768, 896];
        Figures {
            costs: Costs::myrinet_gm_2003(),
            settings: super::paper_settings(),
            sizes: (3..=20).map(|shift| 1 << shift).collect(),
            working_sets: mib.map(|mib: u64| mib << 20).to_vec(),
            puts: 2000,
            seed: 1,
        }
    }

    /// The points along the bottom of a figure, as its unit has them.
    pub fn bottom(&self, shape: Shape) -> Vec<f64> {
        match shape {
            Shape::BandwidthBySize => self.sizes.iter().map(|size| *size as f64).collect(),
            _ => self.working_sets.iter().map(|bytes| *bytes as f64 / MIB).collect(),
        }
    }

    /// M: where the curves bend, in bytes of the working set.
    pub fn knee(&self) -> u64 {
        self.settings.peers_bytes
    }

    /// M + MAXVICTIM: all that the target pins, in bytes.
    pub fn budget(&self) -> u64 {
        self.settings.peers_bytes + self.settings.victims_bytes
    }

    /// Measures one strategy's line; `each` is called after each point.
    ///
    /// # Errors
    /// If a put fails, which nothing makes it do.
    pub fn curve(
        &self,
        shape: Shape,
        strategy: Strategy,
        mut each: impl FnMut(),
    ) -> Result<Curve, ReplayError> {
        let mut point = |index: usize, x: f64| {
            let y = match shape {
                Shape::BandwidthBySize => self.same_place(strategy, self.sizes[index])?,
                Shape::BandwidthByWorkingSet => {
                    let ran = self.random(strategy, self.working_sets[index], LARGE)?;
                    LARGE as f64 * 1e3 / ran.transfers().mean_ns()
                }
                Shape::RoundTripByWorkingSet => {
                    self.random(strategy, self.working_sets[index], SMALL)?.transfers().mean_ns() / 1e3
                }
            };
            each();
            Ok((x, y))
        };
        let points: Result<_, _> =
            self.bottom(shape).into_iter().enumerate().map(|(index, x)| point(index, x)).collect();
        Ok(Curve { strategy, points: points? })
    }

    /// MB/s of puts of `len` bytes to one place.
    fn same_place(&self, strategy: Strategy, len: u64) -> Result<f64, ReplayError> {
        let mut pair = Pair::new(&self.costs, strategy, self.settings, len, len);
        let put = Put { from: 0, to: 0, len };
        pair.put([put])?;
        let ran = pair.put(std::iter::repeat_n(put, SAME_PLACE_PUTS))?;
        Ok(len as f64 * 1e3 / ran.transfers().mean_ns())
    }

    /// Puts of `len` bytes to random places in so many bytes, once each place has been put to.
    ///
    /// # Errors
    /// If a put fails, which nothing makes it do.
    pub fn random(&self, strategy: Strategy, working_set: u64, len: u64) -> Result<Ran, ReplayError> {
        let mut pair = Pair::new(&self.costs, strategy, self.settings, LARGE, working_set);
        let stride = len.max(self.settings.bucket.bytes());
        let at = |place: u64| Put { from: 0, to: place * stride, len };
        let places = working_set / stride;
        pair.put((0..places).map(at))?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let pinnable = working_set + LARGE <= self.budget();
        let puts = if pinnable { self.puts } else { 5 * self.puts };
        pair.put((0..puts).map(|_| at(rng.random_range(0..places))))
    }
}

/// Where a line is ahead of another, and where it is not: the values along the bottom.
pub fn ahead(shape: Shape, line: &Curve, of: &Curve) -> (Vec<f64>, Vec<f64>) {
    let (mut ahead, mut behind) = (Vec::new(), Vec::new());
    for (mine, other) in line.points.iter().zip(&of.points) {
        let is_ahead = if shape.is_bandwidth() { mine.1 > other.1 } else { mine.1 < other.1 };
        if is_ahead { ahead.push(mine.0) } else { behind.push(mine.0) }
    }
    (ahead, behind)
}

const MIB: f64 = 1024.0 * 1024.0;
const LARGE: u64 = 64 << 10;
const SMALL: u64 = 8;
/// Each takes as long as the one before.
const SAME_PLACE_PUTS: usize = 20;
