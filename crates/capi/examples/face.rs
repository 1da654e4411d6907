//! One call in a loop, by Rust. Prints nanoseconds of one, the median of 21 batches; of `open`, until the
//! first put has returned. `face.c` does the same by C, and `cargo xtask peers` runs the two in turns.
//!
//! ```text
//! standpipe run -n 2 -- face OPERATION [CALLS [BATCHES]]
//! ```

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use standpipe::{Config, GlobalPtr, HandlerId, Node};

const BATCHES: usize = 21;

/// The calls, so many.
fn calls(
    node: &Node,
    to: GlobalPtr<u64>,
    operation: &str,
    count: u64,
    answers: &AtomicU64,
) -> Result<(), Box<dyn Error>> {
    let mut words = [0_u64; 8];
    let wanted = Cell::new(0);
    match operation {
        "put" => (0..count).try_for_each(|i| node.put(to, i))?,
        "get" => (0..count).try_for_each(|_| node.get(to).map(|value| _ = black_box(value)))?,
        "add" => (0..count).try_for_each(|_| node.fetch_add(to, 1).map(|value| _ = black_box(value)))?,
        "put64" => (0..count).try_for_each(|_| node.put_slice(to, black_box(&words[..])))?,
        "get64" => (0..count).try_for_each(|_| node.get_slice(to, black_box(&mut words[..])))?,
        "message" => {
            let ping = HandlerId::of("", "ping");
            for _ in 0..count {
                wanted.set(answers.load(Ordering::Relaxed) + 1);
                node.request(to.peer(), ping, [0; 4])?;
                node.wait_until(|| answers.load(Ordering::Relaxed) == wanted.get())?;
            }
        }
        _ => return Err(format!("no operation {operation}").into()),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().unwrap_or_else(|| "put".into());
    let count = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let batches = arguments.next().map_or(Ok(BATCHES), |batches| batches.parse())?;
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let config = Config::from_env()?
        .handler("ping", |call| {
            let args = call.args();
            call.reply(HandlerId::of("", "pong"), args).expect("it is the only reply");
        })
        .handler("pong", move |_| counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    let node = Node::open(config)?;
    let mine = node.heap().alloc_zeroed::<u64>(8)?;
    let mut all = vec![0; 2 * node.size() as usize];
    node.world().all_gather(&mine.ptr(0).to_words(), &mut all)?;
    let at = 2 * ((node.rank() as usize + 1) % node.size() as usize);
    let to = GlobalPtr::<u64>::from_words([all[at], all[at + 1]]);
    node.put(to, 1)?;
    let opened = begun.elapsed().as_nanos() as f64;
    if node.rank() == 0 {
        let mut times = vec![opened];
        if operation != "open" {
            times.clear();
            for _ in 0..batches {
                let before = Instant::now();
                calls(&node, to, &operation, count, &answers)?;
                times.push(before.elapsed().as_nanos() as f64 / count as f64);
            }
            times.sort_by(f64::total_cmp);
        }
        println!("{:.2}", times[times.len() / 2]);
    }
    node.barrier()?;
    Ok(())
}
