//! What a trace is like: the numbers a report opens with, and by which the generator is held to the real
//! trace.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::trace::Request;

/// A trace in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Statistics {
    /// Requests in the trace.
    pub requests: usize,
    /// From the first arrival to the last, in seconds.
    pub span_s: f64,
    /// Requests a second over that span.
    pub rate_per_s: f64,
    /// Distinct arrival times: requests come in bursts.
    pub bursts: usize,
    /// Tokens of the prompts.
    pub input_tokens: Spread,
    /// Tokens of the answers.
    pub output_tokens: Spread,
    /// Blocks that requests name.
    pub blocks: usize,
    /// Different blocks among them.
    pub distinct_blocks: usize,
    /// Share of the blocks that an earlier request, or the same, named before: the hit rate of an endless
    /// cache.
    pub reuse_share: f64,
    /// Hit rate of a cache of 1,000 blocks that drops the least recently used.
    pub reuse_share_1000: f64,
    /// Requests between one use of a block and the next.
    pub reuse_distance: Spread,
    /// Leading blocks of a request that were named before.
    pub known_prefix_blocks: Spread,
    /// Shares of requests by their first block (a common system prompt), largest first.
    pub first_block_shares: Vec<f64>,
    /// Blocks that follow different blocks in different requests: none, if ids are chains of prefixes.
    pub broken_chains: usize,
}

/// The middle and the ends of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// A tenth of the values are below.
    pub p10: f64,
    /// Half of the values are below.
    pub p50: f64,
    /// Nine tenths of the values are below.
    pub p90: f64,
}

impl Statistics {
    /// Measures a trace. All zeros for an empty one.
    #[must_use]
    pub(crate) fn of(requests: &[Request]) -> Self {
        let first_ms = requests.first().map_or(0, |request| request.arrival_ms);
        let last_ms = requests.last().map_or(0, |request| request.arrival_ms);
        let span_s = (last_ms - first_ms) as f64 / 1e3;
        let reuse = Reuse::of(requests);
        let blocks = requests.iter().map(|request| request.hash_ids.len()).sum();
        Self {
            requests: requests.len(),
            span_s,
            rate_per_s: ratio(requests.len() as f64, span_s),
            bursts: requests.iter().map(|request| request.arrival_ms).collect::<BTreeSet<_>>().len(),
            input_tokens: Spread::of(requests.iter().map(|request| request.input_tokens.into())),
            output_tokens: Spread::of(requests.iter().map(|request| request.output_tokens.into())),
            blocks,
            distinct_blocks: reuse.parents.len(),
            reuse_share: ratio((blocks - reuse.parents.len()) as f64, blocks as f64),
            reuse_share_1000: lru_share(requests, 1000),
            reuse_distance: Spread::of(reuse.distances.iter().copied()),
            known_prefix_blocks: Spread::of(reuse.known_prefixes.iter().copied()),
            first_block_shares: first_block_shares(requests),
            broken_chains: reuse.broken_chains,
        }
    }
}

/// Blocks that [`favourite_share`] is about.
pub(crate) const FAVOURITES: usize = 20;

/// Of all uses of blocks named before, the share that is of the [`FAVOURITES`] blocks named most: what many
/// prompts begin with.
#[must_use]
pub(crate) fn favourite_share(requests: &[Request]) -> f64 {
    let mut uses: BTreeMap<u64, u64> = BTreeMap::new();
    for id in requests.iter().flat_map(|request| &request.hash_ids) {
        *uses.entry(*id).or_default() += 1;
    }
    let mut again: Vec<u64> = uses.into_values().map(|uses| uses - 1).collect();
    again.sort_unstable_by(|one, other| other.cmp(one));
    let favourites: u64 = again.iter().take(FAVOURITES).sum();
    ratio(favourites as f64, again.iter().sum::<u64>() as f64)
}

impl Spread {
    fn of(values: impl Iterator<Item = u64>) -> Self {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let at = |share: f64| {
            values.get(((values.len().max(1) - 1) as f64 * share) as usize).map_or(0.0, |&v| v as f64)
        };
        Self {
            mean: ratio(values.iter().sum::<u64>() as f64, values.len() as f64),
            p10: at(0.1),
            p50: at(0.5),
            p90: at(0.9),
        }
    }
}

/// How requests share blocks.
#[derive(Default)]
struct Reuse {
    parents: BTreeMap<u64, Option<u64>>,
    distances: Vec<u64>,
    known_prefixes: Vec<u64>,
    broken_chains: usize,
}

impl Reuse {
    fn of(requests: &[Request]) -> Self {
        let mut reuse = Self::default();
        let mut last_used: BTreeMap<u64, u64> = BTreeMap::new();
        for (now, request) in (0..).zip(requests) {
            let known = request.hash_ids.iter().take_while(|&id| last_used.contains_key(id)).count();
            reuse.known_prefixes.push(known as u64);
            let mut parent = None;
            for &id in &request.hash_ids {
                if *reuse.parents.entry(id).or_insert(parent) != parent {
                    reuse.broken_chains += 1;
                }
                reuse.distances.extend(last_used.insert(id, now).map(|before| now - before));
                parent = Some(id);
            }
        }
        reuse
    }
}

fn lru_share(requests: &[Request], cap_blocks: usize) -> f64 {
    let mut cache = lru::LruCache::unbounded();
    let (mut hits, mut blocks) = (0, 0);
    for &id in requests.iter().flat_map(|request| &request.hash_ids) {
        blocks += 1;
        hits += u32::from(cache.put(id, ()).is_some());
        if cache.len() > cap_blocks {
            cache.pop_lru();
        }
    }
    ratio(f64::from(hits), f64::from(blocks))
}

fn first_block_shares(requests: &[Request]) -> Vec<f64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for id in requests.iter().filter_map(|request| request.hash_ids.first()) {
        *counts.entry(*id).or_default() += 1;
    }
    let mut shares: Vec<f64> =
        counts.values().map(|&count| ratio(count as f64, requests.len() as f64)).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    shares
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::trace;

    #[test]
    fn favourites_are_the_blocks_named_most() {
        let request =
            |id: u64| Request { arrival_ms: 0, input_tokens: 1, output_tokens: 1, hash_ids: vec![id] };
        // Twenty blocks three times each, one twice, and some once.
        let ids = (0..60).map(|index| index % 20).chain([20, 20]).chain(21..90);
        let share = favourite_share(&ids.map(request).collect::<Vec<_>>());
        assert!((share - 40.0 / 41.0).abs() < 1e-9, "{share}");
        assert_eq!(favourite_share(&[]), 0.0);
    }

    #[test]
    fn the_real_excerpt_has_the_numbers_counted_by_hand() {
        let text = include_str!("../../../tests/data/mooncake_first_150.jsonl");
        let requests = trace::parse("mooncake_first_150.jsonl", text.as_bytes()).expect("a good trace");
        let stats = Statistics::of(&requests);
        // Counted from the same file by a separate script.
        assert_eq!((stats.requests, stats.blocks, stats.distinct_blocks), (150, 2803, 2057));
        assert_eq!((stats.bursts, stats.broken_chains, stats.span_s), (10, 0, 27.482));
        assert_eq!((stats.input_tokens.p50, stats.known_prefix_blocks.p50), (6522.0, 1.0));
        assert_eq!((stats.reuse_share * 1e4).round(), 2661.0);
    }

    #[test]
    fn an_empty_trace_divides_nothing_by_nothing() {
        let stats = Statistics::of(&[]);
        assert_eq!((stats.requests, stats.rate_per_s, stats.reuse_share), (0, 0.0, 0.0));
    }

    #[test]
    fn a_block_with_two_parents_breaks_its_chain() {
        let request =
            |hash_ids: Vec<u64>| Request { arrival_ms: 0, input_tokens: 1, output_tokens: 1, hash_ids };
        let stats = Statistics::of(&[request(vec![0, 1, 2]), request(vec![0, 3, 2]), request(vec![0, 1])]);
        assert_eq!((stats.broken_chains, stats.distinct_blocks, stats.blocks), (1, 4, 8));
        assert_eq!(stats.reuse_distance.p50, 1.0);
    }
}
