//! What cutting a block into pieces costs: before the replay, worker 1 pulls blocks of one size but of ever
//! more pieces from worker 0, which computes meanwhile; the others sleep.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use block_directory::{Directory, Pieces, Status, Words, addresses};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{job::Job, pieces::allocate, worker::Peers, worker_lines::Sweep};
use crate::{pattern, processor::burn};

/// Runs the sweep over blocks of about `block_bytes`; all workers must call this, and come out of it
/// together. Gives what was measured to the worker that did.
///
/// # Errors
/// If a worker dies meanwhile, an operation fails, or a byte pulled was wrong.
pub(crate) fn run(directory: &Directory<Job>, block_bytes: usize) -> Result<Vec<Sweep>> {
    let job = directory.words();
    let measured = match job.rank() {
        _ if job.size() <= READER => Vec::new(),
        OWNER => offer(directory, block_bytes).map(|()| Vec::new())?,
        READER => pull_all(directory, block_bytes)?,
        _ => Vec::new(),
    };
    job.barrier()?;
    directory.set_status(Status::Moving);
    // Nobody may begin, and perhaps end, while another still seems to be done.
    job.barrier()?;
    Ok(measured)
}

const OWNER: usize = 0;
const READER: usize = 1;
const PIECES: [usize; 6] = [1, 4, 16, 64, 256, 1024];
const ROUNDS: usize = 40;

/// Holds the blocks, and computes until they have been pulled.
fn offer(directory: &Directory<Job>, block_bytes: usize) -> Result<()> {
    let job = directory.words();
    let mut blocks = Vec::new();
    for count in counts(block_bytes) {
        let mut pieces = new_block(count, block_bytes);
        for (layer, piece) in (0..).zip(&mut pieces) {
            pattern::fill(count as u64, layer, piece);
        }
        job.publish(&name(count), &addresses(&pieces))?;
        blocks.push(pieces);
    }
    directory.set_status(Status::Computing);
    while directory.status(READER)? != Status::Done {
        burn(Duration::from_millis(1));
        // Needed only where blocks go by message and no thread of the library's own serves them.
        job.progress();
    }
    drop(blocks);
    Ok(())
}

fn pull_all(directory: &Directory<Job>, block_bytes: usize) -> Result<Vec<Sweep>> {
    let job = directory.words();
    let mut blocks = Vec::new();
    for count in counts(block_bytes) {
        let addresses = job.find(OWNER, &name(count))?;
        let sweep = Sweep { pieces: count, took_ns: Vec::with_capacity(ROUNDS) };
        blocks.push((sweep, addresses, new_block(count, block_bytes)));
    }
    // In turn rather than one after the other: what disturbs the machine disturbs all alike.
    for _ in 0..ROUNDS {
        for (sweep, addresses, pieces) in &mut blocks {
            let start = Instant::now();
            job.pull(OWNER, addresses, pieces)?;
            sweep.took_ns.push(start.elapsed().as_nanos() as u64);
        }
    }
    for (sweep, _, pieces) in &blocks {
        let id = sweep.pieces as u64;
        let wrong: u64 = (0..).zip(pieces).map(|(layer, piece)| pattern::mismatches(id, layer, piece)).sum();
        ensure!(wrong == 0, "{wrong} bytes of a block of {} pieces were wrong", sweep.pieces);
    }
    directory.set_status(Status::Done);
    Ok(blocks.into_iter().map(|(sweep, ..)| sweep).collect())
}

/// Into how many pieces a block is cut; a piece has a word at least.
fn counts(block_bytes: usize) -> impl Iterator<Item = usize> {
    PIECES.into_iter().filter(move |count| block_bytes / count >= size_of::<u64>())
}

fn new_block(count: usize, block_bytes: usize) -> Pieces {
    allocate(count, block_bytes / count, &mut ChaCha8Rng::seed_from_u64(count as u64))
}

fn name(count: usize) -> String {
    format!("block of {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_a_word_at_least_and_names_fit_addresses() {
        assert_eq!(counts(1 << 20).count(), PIECES.len());
        assert_eq!(counts(64).collect::<Vec<_>>(), [1, 4]);
        assert!(PIECES.iter().all(|count| count * size_of::<u64>() <= standpipe::VALUE_MAX));
    }
}
