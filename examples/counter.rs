//! A shared counter hands out work: every rank takes the next number by one fetch-add on a word of rank 0,
//! which does nothing for it. Fast ranks take more.
//!
//! ```text
//! cargo build --release --example counter
//! cargo run --release -- run -n 4 -- target/release/examples/counter
//! ```

use std::time::Duration;

use standpipe::{Config, GlobalPtr, Node};

/// Pieces of work.
const PIECES: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Config::from_env()?)?;

    // Two words at rank 0: the next piece, and the sum of all results.
    let words = node.heap().alloc_zeroed::<u64>(2)?;
    if node.rank() == 0 {
        node.directory().publish("words", bytemuck::bytes_of(&words.ptr(0).to_words()))?;
    }
    let found = node.directory().wait("words", Duration::from_secs(30))?;
    let next = GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&found));
    let sum = next.add(1);

    // All begin together, or the first would be done before the last has started.
    node.barrier()?;
    let mut done = 0;
    loop {
        let piece = node.fetch_add(next, 1)?;
        if piece >= PIECES {
            break;
        }
        node.fetch_add(sum, divisors(piece + 1))?;
        done += 1;
    }
    println!("rank {} did {done} of {PIECES} pieces", node.rank());

    node.barrier()?;
    if node.rank() == 0 {
        let expected: u64 = (1..=PIECES).map(|d| PIECES / d).sum();
        println!("the numbers up to {PIECES} have {} divisors; expected {expected}", words.read(1));
        assert_eq!(words.read(1), expected);
    }
    node.barrier()?;
    Ok(())
}

/// How many numbers divide `n`, found the slow way.
fn divisors(n: u64) -> u64 {
    (1..=n).filter(|d| n.is_multiple_of(*d)).count() as u64
}
