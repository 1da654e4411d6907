//! A parameter server: rank 0 has the weights of a model in its heap. Every rank gets them, computes how
//! wrong they are for its own part of the data, and puts that into a slot of its own at rank 0, with a
//! signal. When all have come rank 0 changes the weights, and signals a new version of them to all. Nobody
//! but rank 0 waits for all.
//!
//! ```text
//! cargo build --release --example parameter_server
//! cargo run --release -- run -n 4 -- target/release/examples/parameter_server
//! ```

use std::time::Duration;

use standpipe::{Config, GlobalPtr, Node, Rank, Signal};

const WEIGHTS: usize = 32;
/// Samples of each rank.
const SAMPLES: usize = 200;
const ROUNDS: u64 = 50;
const RATE: f64 = 0.05;

/// One sample, a line that passes through what is sought, and its value.
fn sample(rank: Rank, index: usize) -> ([f64; WEIGHTS], f64) {
    let mut state = u64::from(rank) << 32 | index as u64;
    let mut random = || {
        // A step of splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let inputs: [f64; WEIGHTS] = std::array::from_fn(|_| random());
    (inputs, inputs.iter().enumerate().map(|(at, input)| input * at as f64).sum())
}

/// How the weights are to change for one rank's samples.
fn gradient(rank: Rank, weights: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; WEIGHTS];
    for index in 0..SAMPLES {
        let (inputs, value) = sample(rank, index);
        let found: f64 = inputs.iter().zip(weights).map(|(input, weight)| input * weight).sum();
        sum.iter_mut().zip(inputs).for_each(|(sum, input)| *sum += (found - value) * input);
    }
    sum
}

/// Changes weights by the gradients of all ranks, in the order of the ranks: so the sums are the same to the
/// last bit.
fn apply(weights: &mut [f64], gradients: &[f64]) {
    let samples = (gradients.len() / WEIGHTS * SAMPLES) as f64;
    for gradient in gradients.chunks_exact(WEIGHTS) {
        weights
            .iter_mut()
            .zip(gradient)
            .for_each(|(weight, change)| *weight -= RATE * WEIGHTS as f64 / samples * change);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Config::from_env()?)?;
    let (me, size) = (node.rank(), node.size());

    // At each rank: the version of the weights that it has been told of. At rank 0 besides: the weights, a
    // slot a rank, and how many gradients have come.
    let version = node.heap().alloc_zeroed::<u64>(1)?;
    let weights = node.heap().alloc_zeroed::<f64>(WEIGHTS)?;
    let slots = node.heap().alloc_zeroed::<f64>(WEIGHTS * size as usize)?;
    let came = node.heap().alloc_zeroed::<u64>(1)?;
    let words = [
        version.ptr(0).to_words(),
        weights.ptr(0).to_words(),
        slots.ptr(0).to_words(),
        came.ptr(0).to_words(),
    ];
    node.directory().publish(&format!("model {me}"), bytemuck::bytes_of(&words))?;
    let find = |rank: Rank| -> Result<[[u64; 2]; 4], standpipe::DirectoryError> {
        let words = node.directory().wait(&format!("model {rank}"), Duration::from_secs(30))?;
        Ok(bytemuck::pod_read_unaligned(&words))
    };
    let [_, far_weights, far_slots, far_came] = find(0)?;
    let far_weights = GlobalPtr::<f64>::from_words(far_weights);
    let my_slot = GlobalPtr::<f64>::from_words(far_slots).add(me as usize * WEIGHTS);
    let far_came = GlobalPtr::<u64>::from_words(far_came);
    let versions = if me == 0 { (0..size).map(&find).collect::<Result<Vec<_>, _>>()? } else { Vec::new() };
    let versions: Vec<GlobalPtr<u64>> =
        versions.into_iter().map(|[at, ..]| GlobalPtr::from_words(at)).collect();

    for round in 0..ROUNDS {
        let mut now = [0.0; WEIGHTS];
        node.get_slice(far_weights, &mut now)?;
        node.put_signal(my_slot, &gradient(me, &now), Signal::add(far_came, 1))?;
        if me == 0 {
            node.wait_signal(came.ptr(0), (round + 1) * u64::from(size))?;
            apply(&mut now, &slots.to_vec());
            weights.write_slice(0, &now);
            for version in &versions {
                // A signal wakes who waits for it, also where there is nothing to put.
                node.put_signal_nbi::<u64>(*version, &[], Signal::add(*version, 1))?;
            }
            node.quiet()?;
        }
        node.wait_signal_from(0, version.ptr(0), round + 1)?;
    }

    let mut found = [0.0; WEIGHTS];
    node.get_slice(far_weights, &mut found)?;
    // The same by one rank alone.
    let mut alone = [0.0; WEIGHTS];
    for _ in 0..ROUNDS {
        let gradients: Vec<f64> = (0..size).flat_map(|rank| gradient(rank, &alone)).collect();
        apply(&mut alone, &gradients);
    }
    assert!(found == alone, "the server has other weights than one rank alone finds");
    let off = found.iter().enumerate().map(|(at, weight)| (weight - at as f64).abs()).fold(0.0, f64::max);
    println!("rank {me}: after {ROUNDS} rounds no weight is off by more than {off:.3}");
    // Nobody leaves while others may still get.
    node.barrier()?;
    Ok(())
}
