//! A word goes around a ring. Every rank waits for it, adds its own number, and sets it at its right by a
//! signal. The next rank sees the signal whole, and wakes by it.
//!
//! ```text
//! cargo build --release --example ring
//! cargo run --release -- run -n 4 -- target/release/examples/ring
//! ```

use std::time::Duration;

use standpipe::{Config, GlobalPtr, Node, Signal, Until};

/// How often the word goes around.
const ROUNDS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Config::from_env()?)?;
    let (me, size) = (node.rank(), node.size());

    // A word in this rank's heap, and its address where the left neighbour looks for it.
    let inbox = node.heap().alloc_zeroed::<u64>(1)?;
    node.directory().publish(&format!("inbox {me}"), bytemuck::bytes_of(&inbox.ptr(0).to_words()))?;
    let name = format!("inbox {}", (me + 1) % size);
    let words = node.directory().wait(&name, Duration::from_secs(30))?;
    let right = GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&words));

    let set_right = |word| node.put_signal::<u8>(right, &[], Signal::set(right, word));

    // The word is never 0 once it is under way: it starts as 1.
    if me == 0 {
        set_right(1)?;
    }
    for round in 1..=ROUNDS {
        let word = node.wait_signal(inbox.ptr(0), Until::Ne(0))? + u64::from(me);
        inbox.write(0, 0);
        if me == 0 && round == ROUNDS {
            let expected = 1 + ROUNDS * u64::from(size) * u64::from(size - 1) / 2;
            println!("after {ROUNDS} rounds of {size} ranks the word is {word}; expected {expected}");
            assert_eq!(word, expected);
        } else {
            set_right(word)?;
        }
    }
    // Nobody leaves while others may still put.
    node.barrier()?;
    Ok(())
}
