//! A task awaits a channel that a handler fills: `standpipe run -n 3 -- target/release/examples/channel`.

use standpipe::{Config, Node};

#[tokio::main(flavor = "current_thread")] // any executor will do
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let config = Config::from_env()?.handler("hear", move |call| _ = sender.send(call.args()[0]));
    let node = Node::open(config)?;
    let (next, hear) = ((node.rank() + 1) % node.size(), node.handler("hear").expect("registered above"));
    node.request(next, hear, [7, 0, 0, 0])?;
    assert_eq!(heard.recv().await, Some(7)); // a wait of tokio's: the handler runs meanwhile

    let array = node.heap().alloc_from(&[1_u64, 2, 3, 4])?;
    let got = node.get_nb(array.ptr(0), vec![0_u64; 4]).await; // the buffer comes back either way
    assert_eq!(got, (Ok(()), vec![1, 2, 3, 4]));
    node.world().barrier_nb().await.0?;
    Ok(())
}
