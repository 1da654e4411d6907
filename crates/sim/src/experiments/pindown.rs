//! PM's experiment: the bandwidth of puts whose memory is pinned already, of puts whose memory is not, and of
//! mixtures.

use engine::registration::{Settings, Strategy};

use super::pair::{Pair, Put};
use crate::costs::Costs;
use crate::replay::ReplayError;

/// What is measured.
#[derive(Clone, Debug)]
pub struct PinDown {
    /// The machine.
    pub costs: Costs,
    /// What the pin-down cache is made from.
    pub settings: Settings,
    /// Bytes of a put.
    pub len: u64,
    /// Puts that are timed for each point.
    pub puts: u64,
}

/// What was measured at one mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PinDownPoint {
    /// Puts that were to hit, in percent.
    pub wanted_percent: f64,
    /// Runs of the target's memory that were registered already, in percent of those asked for.
    pub hit_percent: f64,
    /// Bandwidth, in MB/s (10^6 bytes).
    pub mb_per_s: f64,
}

impl PinDown {
    /// Puts of 256 KiB on the machine of PM's paper. What the cache may keep is not known, and changes
    /// nothing here but how many places must be gone through until one is given up.
    pub fn paper() -> PinDown {
        let settings =
            Settings { run_max: 64, peers_bytes: 8 << 20, victims_bytes: 8 << 20, ..super::paper_settings() };
        PinDown { costs: Costs::myrinet_pm_1998(), settings, len: 256 << 10, puts: 1000 }
    }

    /// Measures one mixture: `hits` of 100 puts go from one place to one place, the others each from and to
    /// memory that the cache has given up since it was last used.
    ///
    /// # Errors
    /// If a put fails, which nothing makes it do.
    pub fn point(&self, hits: u64) -> Result<PinDownPoint, ReplayError> {
        let hits = hits.min(100);
        // Twice of all that may be pinned goes by before a place comes round again.
        let places = 2 * (self.settings.peers_bytes + self.settings.victims_bytes) / self.len;
        let bytes = (places + 1) * self.len;
        let mut pair = Pair::new(&self.costs, Strategy::PinDown, self.settings, bytes, bytes);
        let mut next = 0;
        let mut put = |index: u64| {
            let hit = (index + 1) * hits / 100 > index * hits / 100;
            let place = if hit { 0 } else { 1 + next % places };
            next += u64::from(!hit);
            Put { from: place * self.len, to: place * self.len, len: self.len }
        };
        let full = (places * 100).checked_div(100 - hits).unwrap_or(1);
        pair.put((0..full).map(&mut put))?;
        let before = pair.target_counters().table;
        let ran = pair.put((0..self.puts).map(&mut put))?;
        let after = pair.target_counters().table;
        let (found, pinned) = (after.hits - before.hits, after.registrations - before.registrations);
        Ok(PinDownPoint {
            wanted_percent: hits as f64,
            hit_percent: 100.0 * found as f64 / (found + pinned).max(1) as f64,
            mb_per_s: self.len as f64 * 1e3 / ran.transfers().mean_ns(),
        })
    }
}
