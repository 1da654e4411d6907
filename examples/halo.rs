//! A halo exchange: heat spreads over a plate whose rows lie at all ranks. Before each step a rank puts its
//! first and last row beside its neighbours' rows, each with a signal; a neighbour waits for the signal, and
//! then computes with what is there. There is no barrier: ranks are as far apart as their neighbours let
//! them.
//!
//! ```text
//! cargo build --release --example halo
//! cargo run --release -- run -n 4 -- target/release/examples/halo
//! ```

use std::time::Duration;

use standpipe::{Config, GlobalPtr, Node, Rank, Signal};

const WIDTH: usize = 64;
/// Rows of each rank.
const ROWS: usize = 16;
const STEPS: u64 = 200;

/// Where neighbours put their rows: two for the row above, two for the row below. A neighbour may be one step
/// ahead of this rank, but never two; so the rows of even and odd steps lie apart.
fn slot(below: bool, step: u64) -> usize {
    (2 * usize::from(below) + (step % 2) as usize) * WIDTH
}

/// A neighbour, and what this rank puts into there.
struct Neighbour {
    rank: Rank,
    rows: GlobalPtr<f64>,
    signals: GlobalPtr<u64>,
}

/// One step for a row between two others. The ends of a row keep their heat.
fn step(above: &[f64], row: &[f64], below: &[f64]) -> Vec<f64> {
    let mut next = row.to_vec();
    for at in 1..WIDTH - 1 {
        next[at] = 0.25 * (above[at] + below[at] + row[at - 1] + row[at + 1]);
    }
    next
}

/// The plate at the beginning: the rows from `first` on.
fn plate(first: usize, rows: usize) -> Vec<Vec<f64>> {
    let heat = |row: usize, column: usize| ((row * 31 + column * 17) % 100) as f64;
    (first..first + rows).map(|row| (0..WIDTH).map(|column| heat(row, column)).collect()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Config::from_env()?)?;
    let (me, size) = (node.rank(), node.size());

    let rows = node.heap().alloc_zeroed::<f64>(4 * WIDTH)?;
    // Rows that have come from above, and from below.
    let signals = node.heap().alloc_zeroed::<u64>(2)?;
    let words = [rows.ptr(0).to_words(), signals.ptr(0).to_words()];
    node.directory().publish(&format!("halo {me}"), bytemuck::bytes_of(&words))?;
    let meet = |rank: Rank| -> Result<Neighbour, standpipe::DirectoryError> {
        let words = node.directory().wait(&format!("halo {rank}"), Duration::from_secs(30))?;
        let [rows, signals]: [[u64; 2]; 2] = bytemuck::pod_read_unaligned(&words);
        Ok(Neighbour { rank, rows: GlobalPtr::from_words(rows), signals: GlobalPtr::from_words(signals) })
    };
    let above = me.checked_sub(1).map(meet).transpose()?;
    let below = Some(me + 1).filter(|rank| *rank < size).map(meet).transpose()?;

    let mut mine = plate(me as usize * ROWS, ROWS);
    for at in 0..STEPS {
        // To the one above, this rank's first row is the one below, and the other way round.
        if let Some(above) = &above {
            let signal = Signal::add(above.signals.add(1), 1);
            node.put_signal(above.rows.add(slot(true, at)), &mine[0], signal)?;
        }
        if let Some(below) = &below {
            node.put_signal(below.rows.add(slot(false, at)), &mine[ROWS - 1], Signal::add(below.signals, 1))?;
        }
        // Where there is no neighbour, the outermost row is its own.
        let (mut halo_above, mut halo_below) = (mine[0].clone(), mine[ROWS - 1].clone());
        if let Some(above) = &above {
            node.wait_signal_from(above.rank, signals.ptr(0), at + 1)?;
            rows.read_slice(slot(false, at), &mut halo_above);
        }
        if let Some(below) = &below {
            node.wait_signal_from(below.rank, signals.ptr(1), at + 1)?;
            rows.read_slice(slot(true, at), &mut halo_below);
        }
        mine = (0..ROWS)
            .map(|row| {
                let above = if row == 0 { &halo_above } else { &mine[row - 1] };
                let below = mine.get(row + 1).unwrap_or(&halo_below);
                step(above, &mine[row], below)
            })
            .collect();
    }

    // The same by one rank alone, to the last bit.
    let mut all = plate(0, ROWS * size as usize);
    for _ in 0..STEPS {
        let at = |row: usize| &all[row.min(all.len() - 1)];
        all = (0..all.len()).map(|row| step(at(row.saturating_sub(1)), at(row), at(row + 1))).collect();
    }
    assert!(mine == all[me as usize * ROWS..][..ROWS], "the halo exchange computed something else");
    println!("rank {me}: {STEPS} steps of {ROWS} rows, as one rank alone computes them");
    // Nobody leaves while others may still put.
    node.barrier()?;
    Ok(())
}
