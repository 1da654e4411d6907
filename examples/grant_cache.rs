//! A cache that grants its blocks. Clients ask for a block's name by a message, and pull the block
//! themselves. The server takes back what it evicts, whoever is at it just then. A client that comes with an
//! old name gets an error, and never the bytes of another block.
//!
//! ```text
//! cargo build --release --example grant_cache
//! target/release/examples/grant_cache                      # starts clients, and kills one
//! cargo run --release -- run -n 4 -- target/release/examples/grant_cache # rank 0 serves the others
//! ```

use std::collections::{HashMap, VecDeque};
use std::error::Error as AnyError;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use standpipe::{Audience, Config, Error, Grant, GrantError, GrantName, Node, Rank, Remote};

/// Words of a block, each of which is the block's key.
const WORDS: usize = 4096;
/// Blocks that the cache has room for, of those that there could be.
const ROOM: usize = 32;
const KEYS: u64 = 100;
/// Blocks that a client pulls.
const PULLS: u64 = 500;

#[derive(Default)]
struct Cache {
    /// By their keys, the oldest first.
    blocks: VecDeque<(u64, Grant<Vec<u64>>)>,
    /// Blocks that were evicted. A client may still be at their memory.
    leaving: Vec<Grant<Vec<u64>>>,
    evicted: u64,
}

impl Cache {
    /// The name of a block, which is made if it is not there. It runs in a handler, and does not wait.
    fn name(&mut self, node: &Node, key: u64) -> Result<GrantName, GrantError> {
        if let Some((_, block)) = self.blocks.iter().find(|(known, _)| *known == key) {
            return Ok(block.name());
        }
        if self.blocks.len() == ROOM {
            self.evict()?;
        }
        // Memory that has left the cache is used again, if no client is at it any more.
        let idle = |(at, block): (usize, &mut Grant<_>)| Some((at, block.wait_idle(Duration::ZERO).ok()?));
        let mut memory = match self.leaving.iter_mut().enumerate().find_map(idle) {
            Some((at, memory)) => {
                drop(self.leaving.swap_remove(at));
                memory
            }
            None => vec![0; WORDS],
        };
        memory.fill(key);
        self.blocks.push_back((key, node.share(memory, Audience::ALL)?));
        Ok(self.blocks[self.blocks.len() - 1].1.name())
    }

    fn evict(&mut self) -> Result<(), GrantError> {
        let Some((_, block)) = self.blocks.pop_front() else { return Ok(()) };
        block.revoke()?; // bars all new use at once
        self.leaving.push(block);
        self.evicted += 1;
        Ok(())
    }
}

/// Pulls so many blocks from a server, by names that it knows or asks for.
fn pull(node: &Node, server: Rank, answer: &Mutex<Option<[u64; 4]>>, blocks: u64) -> Result<(), Error> {
    let ask = node.handler("block").expect("registered below");
    let (mut names, mut block) = (HashMap::new(), vec![0_u64; WORDS]);
    let mut random = u64::from(std::process::id());
    for _ in 0..blocks {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let key = (random >> 33) % KEYS;
        loop {
            if let Some(name) = names.get(&key) {
                let there = Remote::granted(server, *name);
                match node.get_bytes(there, bytemuck::cast_slice_mut(&mut block)) {
                    Ok(()) => break,
                    Err(Error::Revoked { .. }) => _ = names.remove(&key), // it was evicted: ask anew
                    Err(error) => return Err(error),
                }
            }
            node.request(server, ask, [key, 0, 0, 0])?;
            let heard = || answer.lock().expect("no panic").is_some() || !node.lost_peers().is_empty();
            node.wait_until(heard)?;
            let told = answer.lock().expect("no panic").take().ok_or(Error::PeerLost { peer: server })?;
            names.extend(GrantName::from_words([told[0], told[1]]).map(|name| (key, name)));
        }
        assert!(block.iter().all(|word| *word == key), "these are the bytes of another block");
    }
    Ok(())
}

/// Starts a client that nobody launched. It hears from its standard input how to reach this node.
fn start(node: &Node, blocks: u64) -> Result<Child, Box<dyn AnyError>> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut client = command.arg(blocks.to_string()).stdin(Stdio::piped()).spawn()?;
    client.stdin.take().expect("piped above").write_all(node.address()?.as_bytes())?;
    Ok(client)
}

fn main() -> Result<(), Box<dyn AnyError>> {
    let (cache, answer) = (Arc::new(Mutex::new(Cache::default())), Arc::new(Mutex::new(None)));
    let (its_cache, its_answer) = (Arc::clone(&cache), Arc::clone(&answer));
    let config = Config::from_env()?
        .handler("block", move |call| {
            let name = its_cache.lock().expect("no panic").name(&call.node(), call.args()[0]);
            let [id, len] = name.map_or([0; 2], GrantName::to_words);
            let to = call.node().handler("name").expect("registered below");
            let _ = call.reply(to, [id, len, 0, 0]); // a client that was killed hears nothing
        })
        .handler("name", move |call| *its_answer.lock().expect("no panic") = Some(call.args()));
    let node = Node::open(config)?;
    if let Some(blocks) = std::env::args().nth(1) {
        let mut address = Vec::new();
        std::io::stdin().read_to_end(&mut address)?;
        return Ok(pull(&node, node.connect_to(&address)?, &answer, blocks.parse()?)?);
    }
    if node.size() > 1 {
        if node.rank() > 0 {
            pull(&node, 0, &answer, PULLS)?;
        }
        node.barrier()?; // rank 0 serves meanwhile
    } else {
        let mut first = start(&node, u64::MAX)?;
        node.wait_until(|| cache.lock().expect("no panic").evicted > 100)?;
        let clients = [start(&node, PULLS)?, start(&node, PULLS)?];
        first.kill()?; // in the middle of whatever it does
        first.wait()?;
        for mut client in clients {
            assert!(client.wait()?.success()); // the library's thread serves meanwhile
        }
    }
    let mut cache = std::mem::take(&mut *cache.lock().expect("no panic"));
    (0..ROOM).try_for_each(|_| cache.evict())?;
    for block in &mut cache.leaving {
        block.wait_idle(Duration::from_secs(10))?;
    }
    println!("rank {}: {} blocks were granted, and taken back", node.rank(), cache.evicted);
    Ok(())
}
