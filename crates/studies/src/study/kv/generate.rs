//! A trace like Mooncake's conversation trace, from a seed.
//!
//! Measured on the first 1,000 requests of the published trace (177 s), which this generator follows:
//!
//! - Requests arrive in bursts 3,053 ms apart, the number in a burst being Poisson with mean 16.95 (measured:
//!   mean 16.95, deviation 4.24, which is what Poisson would give).
//! - There are three kinds, told apart by their first block. *Chat* (48.6 %) shares one block of system
//!   prompt; the others are *tools* with a long fixed prompt: 12 blocks (36.1 %) and 5 blocks (15.3 %).
//! - Within a kind, lengths of prompts and answers follow the measured quantiles (`Quantiles`).
//! - A chat request is followed up with probability 0.345, 6 to 162 s later: its prompt is then the earlier
//!   prompt, the answer and a new message. (In the trace 85 of 486 chat requests follow one that is in it;
//!   probability and delay are corrected for the follow-ups that the trace's end cuts off.) The blocks of a
//!   conversation form a chain: whole blocks keep their id, the last, partly full one gets a new id when it
//!   grows.
//!
//! Nothing else is shared: every further block is new. Ids are numbered as they appear.

use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::trace::{BLOCK_TOKENS, Request};

/// The requests of one seed: an endless iterator, the same on every machine.
#[derive(Debug)]
pub(crate) struct Generator {
    rng: ChaCha8Rng,
    now_ms: u64,
    left_in_burst: u32,
    follow_ups: BinaryHeap<FollowUp>,
    system_prompts: [Vec<u64>; KINDS.len()],
    next_id: u64,
}

impl Generator {
    /// A generator that repeats itself for equal seeds.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        let mut generator = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now_ms: 0,
            left_in_burst: 0,
            follow_ups: BinaryHeap::new(),
            system_prompts: Default::default(),
            next_id: 0,
        };
        generator.left_in_burst = generator.poisson();
        generator
    }

    fn poisson(&mut self) -> u32 {
        // Knuth's product of uniforms; the mean is small.
        let limit = (-BURST_MEAN).exp();
        let mut product = self.uniform();
        let mut count = 0;
        while product > limit {
            product *= self.uniform();
            count += 1;
        }
        count
    }

    fn uniform(&mut self) -> f64 {
        self.rng.random()
    }

    fn draw(&mut self, quantiles: &Quantiles) -> u32 {
        let share = self.uniform();
        quantiles.at(share)
    }

    fn new_ids(&mut self, count: usize) -> impl Iterator<Item = u64> + use<> {
        let first = self.next_id;
        self.next_id += count as u64;
        first..self.next_id
    }

    /// A request of no earlier conversation.
    fn fresh(&mut self) -> Request {
        let mut share = self.uniform() * KINDS.iter().map(|kind| kind.weight).sum::<f64>();
        let index = KINDS.iter().position(|kind| {
            share -= kind.weight;
            share < 0.0
        });
        let index = index.unwrap_or(0);
        let kind = &KINDS[index];
        if self.system_prompts[index].is_empty() {
            self.system_prompts[index] = self.new_ids(kind.shared_blocks).collect();
        }
        let prefix = self.system_prompts[index].clone();
        let input_tokens = self.draw(&kind.input_tokens);
        let request = self.request(prefix, input_tokens, &kind.output_tokens);
        if kind.goes_on {
            self.maybe_follow_up(&request);
        }
        request
    }

    /// The next turn of a conversation: whole blocks of the earlier prompt, then new ones.
    fn next_turn(&mut self, earlier: &Request) -> Request {
        let message_tokens = self.draw(&MESSAGE_TOKENS);
        let input_tokens = earlier.input_tokens + earlier.output_tokens + message_tokens;
        let whole_blocks = (earlier.input_tokens / BLOCK_TOKENS) as usize;
        let prefix = earlier.hash_ids[..whole_blocks].to_vec();
        let request = self.request(prefix, input_tokens, &KINDS[0].output_tokens);
        self.maybe_follow_up(&request);
        request
    }

    fn request(&mut self, prefix: Vec<u64>, input_tokens: u32, output_tokens: &Quantiles) -> Request {
        let blocks = input_tokens.div_ceil(BLOCK_TOKENS) as usize;
        let mut hash_ids = prefix;
        hash_ids.extend(self.new_ids(blocks.saturating_sub(hash_ids.len())));
        Request { arrival_ms: self.now_ms, input_tokens, output_tokens: self.draw(output_tokens), hash_ids }
    }

    fn maybe_follow_up(&mut self, request: &Request) {
        if request.input_tokens < INPUT_TOKENS_MAX && self.uniform() < FOLLOW_UP_SHARE {
            let due_ms = self.now_ms + u64::from(self.draw(&THINK_MS));
            self.follow_ups.push(FollowUp { due_ms, earlier: request.clone() });
        }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.left_in_burst == 0 {
            self.now_ms += BURST_MS;
            self.left_in_burst = self.poisson();
        }
        self.left_in_burst -= 1;
        if self.follow_ups.peek().is_some_and(|follow_up| follow_up.due_ms <= self.now_ms) {
            let follow_up = self.follow_ups.pop().expect("peeked on the line above");
            return Some(self.next_turn(&follow_up.earlier));
        }
        Some(self.fresh())
    }
}

/// A turn of a conversation that is still to come; the earliest is the greatest.
#[derive(Debug, PartialEq, Eq)]
struct FollowUp {
    due_ms: u64,
    earlier: Request,
}

impl Ord for FollowUp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Ties go by the last id, which no two conversations share: equal seeds must give equal traces.
        let key = |turn: &Self| (turn.due_ms, turn.earlier.hash_ids.last().copied());
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for FollowUp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

const BURST_MS: u64 = 3053;
const BURST_MEAN: f64 = 16.95;
const FOLLOW_UP_SHARE: f64 = 0.345;
/// Conversations do not grow past the longest prompt of the trace.
const INPUT_TOKENS_MAX: u32 = 121_290;

/// One kind of request.
struct Kind {
    /// Its share among requests that follow no other.
    weight: f64,
    /// Blocks of system prompt that all requests of the kind begin with.
    shared_blocks: usize,
    input_tokens: Quantiles,
    output_tokens: Quantiles,
    /// Whether the user comes back.
    goes_on: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        weight: 401.0,
        shared_blocks: 1,
        input_tokens: Quantiles([891, 901, 997, 2640, 8514, 16_704, 27_129, 45_918, 89_831, 120_626]),
        output_tokens: Quantiles([1, 48, 111, 269, 396, 510, 606, 676, 929, 2000]),
        goes_on: true,
    },
    Kind {
        weight: 361.0,
        shared_blocks: 12,
        input_tokens: Quantiles([6164, 6167, 6169, 6201, 6648, 7045, 7391, 7718, 9023, 9679]),
        output_tokens: Quantiles([3, 3, 3, 3, 3, 27, 33, 38, 51, 191]),
        goes_on: false,
    },
    Kind {
        weight: 153.0,
        shared_blocks: 5,
        input_tokens: Quantiles([2958, 3025, 3106, 3130, 3155, 3262, 4107, 4262, 4488, 4989]),
        output_tokens: Quantiles([14, 15, 17, 18, 20, 22, 23, 24, 29, 33]),
        goes_on: false,
    },
];

/// Tokens that a follow-up adds besides the earlier prompt and answer.
const MESSAGE_TOKENS: Quantiles = Quantiles([0, 0, 0, 4, 13, 192, 2822, 4495, 14_958, 36_333]);
/// From a request to its follow-up.
const THINK_MS: Quantiles =
    Quantiles([6109, 27_482, 39_694, 58_014, 79_390, 119_084, 149_619, 161_831, 161_831, 161_831]);

/// A distribution as measured: its values at the shares [`SHARES`], straight lines between them.
#[derive(Debug, Clone, Copy)]
struct Quantiles([u32; SHARES.len()]);

const SHARES: [f64; 10] = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0];

impl Quantiles {
    /// The value that the share `share` (0 to 1) of all values lies below.
    fn at(&self, share: f64) -> u32 {
        let upper = SHARES.partition_point(|&edge| edge < share).clamp(1, SHARES.len() - 1);
        let (from, to) = (SHARES[upper - 1], SHARES[upper]);
        let (low, high) = (f64::from(self.0[upper - 1]), f64::from(self.0[upper]));
        (low + (high - low) * (share - from) / (to - from)).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kv::{
        statistics::{Spread, Statistics},
        trace,
    };

    /// Measured on the first 1,000 requests of the published trace.
    fn reference() -> Statistics {
        let spread = |mean, p10, p50, p90| Spread { mean, p10, p50, p90 };
        Statistics {
            requests: 1000,
            span_s: 177.098,
            rate_per_s: 5.647,
            bursts: 59,
            input_tokens: spread(9792.0, 2111.0, 6557.0, 19_771.0),
            output_tokens: spread(199.1, 3.0, 34.0, 534.0),
            blocks: 19_686,
            distinct_blocks: 12_207,
            reuse_share: 0.380,
            reuse_share_1000: 0.283,
            reuse_distance: spread(102.5, 1.0, 3.0, 415.0),
            known_prefix_blocks: spread(7.479, 1.0, 5.0, 12.0),
            first_block_shares: vec![0.486, 0.361, 0.153],
            broken_chains: 0,
        }
    }

    fn generated(seed: u64, requests: usize) -> Vec<Request> {
        Generator::new(seed).take(requests).collect()
    }

    #[test]
    fn generated_traces_have_the_statistics_of_the_real_one() {
        let real = reference();
        // The mean over many traces, so that one seed's luck decides nothing.
        let traces: Vec<Statistics> = (0..20).map(|seed| Statistics::of(&generated(seed, 1000))).collect();
        let near = |name: &str, tolerance: f64, of: &dyn Fn(&Statistics) -> f64| {
            let (want, got) = (of(&real), traces.iter().map(of).sum::<f64>() / traces.len() as f64);
            assert!((got - want).abs() <= tolerance * want, "{name}: {got:.3}, in the real trace {want:.3}");
        };
        near("rate", 0.05, &|s| s.rate_per_s);
        near("bursts", 0.05, &|s| s.bursts as f64);
        near("mean input", 0.1, &|s| s.input_tokens.mean);
        near("median input", 0.1, &|s| s.input_tokens.p50);
        near("long inputs", 0.1, &|s| s.input_tokens.p90);
        near("mean output", 0.1, &|s| s.output_tokens.mean);
        near("long outputs", 0.1, &|s| s.output_tokens.p90);
        near("blocks", 0.1, &|s| s.blocks as f64);
        near("reuse", 0.1, &|s| s.reuse_share);
        near("reuse in a small cache", 0.1, &|s| s.reuse_share_1000);
        near("known prefix", 0.15, &|s| s.known_prefix_blocks.mean);
        near("reuse distance", 0.25, &|s| s.reuse_distance.mean);
        near("first kind", 0.05, &|s| s.first_block_shares[0]);
        near("second kind", 0.05, &|s| s.first_block_shares[1]);
        near("third kind", 0.08, &|s| s.first_block_shares[2]);
    }

    #[test]
    fn ids_are_chains_of_prefixes_and_every_request_is_a_line_of_a_trace() {
        let requests = generated(7, 3000);
        let stats = Statistics::of(&requests);
        assert_eq!((stats.broken_chains, stats.first_block_shares.len()), (0, 3));
        let lines: Vec<String> =
            requests.iter().map(|request| serde_json::to_string(request).expect("plain data")).collect();
        assert_eq!(trace::parse("generated", lines.join("\n").as_bytes()).expect("a good trace"), requests);
    }

    #[test]
    fn a_seed_decides_everything() {
        assert_eq!(generated(42, 500), generated(42, 500));
        assert_ne!(generated(42, 500), generated(43, 500));
    }

    #[test]
    fn quantiles_are_met_at_their_shares() {
        let quantiles = KINDS[0].input_tokens;
        assert_eq!((quantiles.at(0.0), quantiles.at(0.5), quantiles.at(1.0)), (891, 8514, 120_626));
        assert_eq!(quantiles.at(0.625), (8514 + 16_704) / 2);
    }
}
