//! How long the calls of a node took, in few figures.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use standpipe::{Latencies, Latency, Timed};

/// The shares of the calls by whose longest a kind is described, by name.
pub(crate) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

/// How long calls of one kind took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Times {
    /// Calls that were timed.
    pub(crate) sampled: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
}

/// How long calls took, kind by kind, of those kinds that were timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calls(pub(crate) Vec<(Timed, Times)>);

impl Times {
    fn of(latency: &Latency) -> Times {
        let ns = |(_, share)| latency.quantile(share).map_or(0, |time| time.as_nanos() as u64);
        let [p50_ns, p99_ns, max_ns] = QUANTILES.map(ns);
        Times { sampled: latency.sampled(), p50_ns, p99_ns, max_ns }
    }

    /// In the order of [`QUANTILES`].
    pub(crate) fn quantiles_ns(&self) -> [u64; QUANTILES.len()] {
        [self.p50_ns, self.p99_ns, self.max_ns]
    }
}

impl Calls {
    pub(crate) fn of(latencies: &Latencies) -> Calls {
        let all = Timed::ALL.into_iter().map(|what| (what, Times::of(latencies.get(what))));
        Calls(all.filter(|(_, times)| times.sampled > 0).collect())
    }
}

impl Serialize for Calls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (what, times) in &self.0 {
            map.serialize_entry(what.name(), times)?;
        }
        map.end()
    }
}
