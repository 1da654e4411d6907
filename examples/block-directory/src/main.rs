//! Every rank holds a few blocks in ordinary memory, and pulls all those of its peers.

use std::error::Error;
use std::time::Duration;

use block_directory::{Directory, Layout, NodeWords, Pieces, Store, addresses};
use standpipe::{Config, Exposure, GetPiece, GlobalPtr, Node, Rank, Remote};

/// Blocks of each rank.
const BLOCKS: usize = 16;
/// Pieces of a block.
const LAYERS: usize = 8;
const PIECE_BYTES: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::open(Config::from_env()?.exposure(Exposure::Everything))?;
    let (rank, size) = (node.rank() as usize, node.size() as usize);
    let layout = Layout::new(size, size * BLOCKS, BLOCKS, LAYERS);
    let directory = Directory::new(meet(&node, layout)?, layout);

    let mut store = Store::new(BLOCKS * LAYERS * PIECE_BYTES, BLOCKS);
    for id in (rank * BLOCKS..(rank + 1) * BLOCKS).map(|id| id as u64) {
        let pieces = block(id);
        let places = addresses(&pieces);
        let slot = store.insert(id, pieces, &mut &directory).expect("the store has room for all of them");
        directory.publish(id, slot, &places)?;
    }
    node.barrier()?;

    let mut pulled = 0;
    for id in (0..size * BLOCKS).map(|id| id as u64) {
        if store.get(id).is_some() {
            continue;
        }
        for location in directory.look_up(id)? {
            let Some(places) = directory.pin(location)? else { continue };
            let pieces = pull(&node, location.owner as Rank, &places)?;
            directory.unpin(location)?;
            assert!(pieces == block(id), "block {id} has other bytes here");
            pulled += 1;
        }
    }
    println!(
        "rank {rank} pulled {pulled} blocks of {} bytes, and all bytes were right",
        LAYERS * PIECE_BYTES
    );
    // Until then its own are wanted.
    node.barrier()?;
    Ok(())
}

/// Lays out this rank's words, and finds those of all.
fn meet(node: &Node, layout: Layout) -> Result<NodeWords, Box<dyn Error>> {
    let own = node.heap().alloc_zeroed::<u64>(layout.words())?;
    node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&own.ptr(0).to_words()))?;
    let find = |rank: Rank| {
        let words = node.directory().wait(&name(rank), Duration::from_secs(30))?;
        Ok::<_, Box<dyn Error>>(GlobalPtr::from_words(bytemuck::pod_read_unaligned(&words)))
    };
    let arrays = (0..node.size()).map(find).collect::<Result<_, _>>()?;
    Ok(NodeWords::new(node, own, arrays))
}

fn name(rank: Rank) -> String {
    format!("words of {rank}")
}

/// A block's bytes, which tell it from all others.
fn block(id: u64) -> Pieces {
    (0..LAYERS).map(|layer| vec![(id as usize * LAYERS + layer) as u8; PIECE_BYTES]).collect()
}

/// Gets the pieces that lie at `places` of a peer's memory, all at once.
fn pull(node: &Node, owner: Rank, places: &[u64]) -> Result<Pieces, standpipe::Error> {
    let mut pieces = vec![vec![0; PIECE_BYTES]; places.len()];
    let mut list: Vec<GetPiece<'_>> = Vec::new();
    for (&place, piece) in places.iter().zip(&mut pieces) {
        // SAFETY: it is only read from. The owner neither frees nor changes the piece while this rank's pin
        // stands, which is from before the address was read until after this get.
        let from = unsafe { Remote::raw(owner, place) };
        list.push(GetPiece { from, into: piece });
    }
    node.get_list(&mut list)?;
    drop(list);
    Ok(pieces)
}
