//! Questions and answers by Active Messages: every rank asks every other for the length of a text; the
//! handler that runs there replies, and the handler of the reply counts it.
//!
//! ```text
//! cargo build --release --example ask
//! cargo run --release -- run -n 4 -- target/release/examples/ask
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Config, Node};

/// Questions to each other rank.
const QUESTIONS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sum, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (sum_at_reply, answers_at_reply) = (Arc::clone(&sum), Arc::clone(&answers));
    let config = Config::from_env()?
        .handler("how long", |call| {
            let length = call.payload().len() as u64;
            let answer = call.node().handler("so long").expect("registered below");
            if let Err(error) = call.reply(answer, [length, 0, 0, 0]) {
                eprintln!("rank {} gets no answer: {error}", call.from());
            }
        })
        .handler("so long", move |call| {
            sum_at_reply.fetch_add(call.args()[0], Ordering::Relaxed);
            answers_at_reply.fetch_add(1, Ordering::Release);
        });
    let node = Node::open(config)?;

    let how_long = node.handler("how long").expect("registered above");
    for n in 0..QUESTIONS {
        let text = vec![b'x'; n as usize % 100];
        for peer in (0..node.size()).filter(|peer| *peer != node.rank()) {
            node.request_medium(peer, how_long, [0; 4], &text)?;
        }
    }
    // Waiting makes progress: the others' questions are answered here too.
    let asked = QUESTIONS * u64::from(node.size() - 1);
    node.wait_until(|| answers.load(Ordering::Acquire) == asked)?;
    println!("rank {}: {asked} answers, {} characters", node.rank(), sum.load(Ordering::Relaxed));
    assert_eq!(sum.load(Ordering::Relaxed), asked / 100 * (0..100).sum::<u64>());

    // Nobody leaves while others may still ask.
    node.barrier()?;
    Ok(())
}
