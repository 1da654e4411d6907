//! Cannon's matrix multiply (1969): ranks on a square grid hold blocks of both factors. The blocks are moved
//! to where each rank has a pair that belongs together; then all multiply, move the left factor's blocks one
//! rank to the left and the right factor's one rank up, and so on until each has met all. Blocks move row by
//! row, by small puts.

use anyhow::Result;

use super::{
    job::{Inbox, Job},
    plan::CannonPlan,
    product::{self, Claim, Factor, Verdict},
};

/// Computes this rank's block of the product, and judges it.
///
/// # Errors
/// If a peer is lost, or the recording cannot be written.
pub(super) fn run(job: &mut Job, plan: &CannonPlan) -> Result<Verdict> {
    let grid = Grid { width: plan.grid, row: job.rank() / plan.grid, column: job.rank() % plan.grid };
    let entries = plan.block * plan.block;
    let mut a = Moving::new(job, "a", entries)?;
    let mut b = Moving::new(job, "b", entries)?;
    let mut product = vec![0.0; entries];
    let at = (grid.row * plan.block, grid.column * plan.block);
    job.start()?;
    for round in 0..plan.rounds {
        product::fill(&mut a.block, plan.block, Factor::A, round, at.0, at.1);
        product::fill(&mut b.block, plan.block, Factor::B, round, at.0, at.1);
        for place in 0..plan.grid {
            let (left, up) = if place == 0 { (grid.row, grid.column) } else { (1, 1) };
            a.send(job, plan, (left > 0).then(|| grid.left(left)))?;
            b.send(job, plan, (up > 0).then(|| grid.up(up)))?;
            // Whoever puts the next blocks has seen everyone here, and so nobody still needs the blocks
            // before these: two inboxes in turn are enough.
            job.barrier()?;
            a.take(left > 0);
            b.take(up > 0);
            product::multiply_add(&a.block, &b.block, &mut product, plan.block);
        }
    }
    job.stop()?;
    let claim = Claim { entries: &product, width: plan.block, order: plan.order(), at, rounds: plan.rounds };
    Ok(claim.verify())
}

/// A rank's place among the others.
#[derive(Debug, Clone, Copy)]
struct Grid {
    width: usize,
    row: usize,
    column: usize,
}

impl Grid {
    /// The rank `by` columns to the left, going round; `by` is at most the grid's width.
    fn left(self, by: usize) -> usize {
        self.row * self.width + (self.column + self.width - by) % self.width
    }

    /// The rank `by` rows above, going round.
    fn up(self, by: usize) -> usize {
        (self.row + self.width - by) % self.width * self.width + self.column
    }
}

/// This rank's block of a factor, and where the next one arrives.
#[derive(Debug)]
struct Moving {
    block: Vec<f64>,
    inboxes: [Inbox; 2],
    turn: usize,
}

impl Moving {
    fn new(job: &mut Job, name: &str, entries: usize) -> Result<Self> {
        let block = vec![0.0; entries];
        job.owns(name, &block);
        let inboxes = [
            job.inbox(&format!("arriving {name}, even"), entries)?,
            job.inbox(&format!("arriving {name}, odd"), entries)?,
        ];
        Ok(Self { block, inboxes, turn: 0 })
    }

    /// Puts the block where the peer, if there is one, takes it after the next barrier.
    fn send(&self, job: &mut Job, plan: &CannonPlan, peer: Option<usize>) -> Result<()> {
        let Some(peer) = peer else { return Ok(()) };
        let words: &[u64] = bytemuck::cast_slice(&self.block);
        for (row, line) in words.chunks_exact(plan.block).enumerate() {
            for (at, run) in line.chunks(plan.put_words).enumerate() {
                let place = row * plan.block + at * plan.put_words;
                job.put(peer, &self.inboxes[self.turn % 2], place, run)?;
            }
        }
        Ok(())
    }

    /// Takes the block that arrived, if one did, and turns to the other inbox.
    fn take(&mut self, arrived: bool) {
        if arrived {
            self.inboxes[self.turn % 2].read(bytemuck::cast_slice_mut(&mut self.block));
        }
        self.turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_meet_belong_together() {
        for width in [1, 2, 3, 5] {
            let mut met = vec![vec![false; width]; width * width];
            for rank in 0..width * width {
                let (row, column) = (rank / width, rank % width);
                // Follow the blocks that start here: which column of A, and which row of B, is where after
                // `place`.
                for place in 0..width {
                    let grid = Grid { width, row, column };
                    let a = grid.left((row + place) % width);
                    let b = grid.up((column + place) % width);
                    assert!(
                        !std::mem::replace(&mut met[a][column], true),
                        "rank {a} meets column {column} once"
                    );
                    let (there, here) = ((a % width + a / width + place) % width, column);
                    assert_eq!(there, here, "the inner index of A at rank {a}");
                    assert_eq!(
                        (b / width + b % width + place) % width,
                        row,
                        "the inner index of B at rank {b}"
                    );
                }
            }
        }
    }
}
