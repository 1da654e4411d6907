//! Collectives beside the machine's own limits: a bounced cache line for small ones of two processes, a futex barrier for
//! small ones of more, and the copies that they cannot do without for large ones.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use standpipe::{Node, Reduction, Team, bare};

use super::case::{Case, Op, SMALL_MAX, Samples};
use super::memory::{Own, Shared, Theirs};
use super::timing::{ROUNDS, SLOW_TURNS, TURNS, each};

/// Collectives of one sample, where copies are what takes the time.
const BULK_TURNS: u32 = 3;
const BULK_ROUNDS: usize = 15;

/// Measures one collective; all processes of the job call it.
///
/// # Errors
/// Whatever the library says.
pub(super) fn measure(node: &Node, case: &Case) -> Result<Option<Samples>> {
    let mut ours = Ours::new(node, case)?;
    let samples = match case.size <= SMALL_MAX {
        true if case.is_of_lines() => beside_a_line(node, case, &mut ours),
        true => beside_a_futex(node, case, &mut ours),
        false => beside_copies(node, case, &mut ours),
    }?;
    Ok((node.rank() == 0).then_some(samples))
}

/// A collective, and the memory that it works on at this process.
struct Ours {
    node: Node,
    team: Team,
    op: Op,
    given: Own,
    gotten: Own,
    /// The next root: each in turn, since a root need wait for nobody.
    root: u32,
}

impl Ours {
    fn new(node: &Node, case: &Case) -> Result<Ours> {
        let words = case.size.div_ceil(8);
        let gotten = vec![0; if case.op == Op::Alltoall { words } else { 0 }];
        let own = |words: &[u64]| Own::new(node, case.memory, words);
        let (given, gotten) = (own(&vec![1; words])?, own(&gotten)?);
        Ok(Ours { node: node.clone(), team: node.world(), op: case.op, given, gotten, root: 0 })
    }

    fn once(&mut self) -> Result<()> {
        match self.op {
            Op::Allreduce => self.team.all_reduce(self.given.values(), Reduction::Max)?,
            Op::Alltoall => self.team.all_to_all(self.given.values(), self.gotten.values())?,
            Op::Broadcast => {
                self.team.broadcast(self.given.values(), self.root)?;
                self.root = (self.root + 1) % self.team.size();
            }
            _ => self.node.barrier()?,
        }
        Ok(())
    }

    fn times(&mut self, times: u32) -> Result<Duration> {
        let begun = Instant::now();
        for _ in 0..times {
            self.once()?;
        }
        Ok(begun.elapsed())
    }
}

fn beside_a_line(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let first = node.rank() == 0;
    let _mine = first.then(|| Shared::new(node, case)).transpose()?;
    let word = bare::Word::new(node, Theirs::find(node, 0)?.note(1))?;
    let (mut mine, mut limit) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS as u64 {
        node.barrier()?;
        let start = 2 * round * u64::from(TURNS);
        let bare = bare::bounce(word.get(), first, start, TURNS, || !node.lost_peers().is_empty());
        node.barrier()?;
        let took = ours.times(TURNS)?;
        if round > 0 {
            mine.push(each(took, TURNS));
            limit.push(each(bare, TURNS));
        }
    }
    node.barrier()?;
    Ok(Samples::new("a cache line bounced there and back", TURNS, mine, limit))
}

fn beside_a_futex(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let _mine = (node.rank() == 0).then(|| Shared::new(node, case)).transpose()?;
    let theirs = Theirs::find(node, 0)?;
    let (arrived, round) = (bare::Word::new(node, theirs.note(1))?, bare::Word::new(node, theirs.note(2))?);
    let (mut mine, mut limit) = (Vec::new(), Vec::new());
    for sample in 0..=ROUNDS / 2 {
        node.barrier()?;
        let bare = bare::futex_barrier(arrived.get(), round.get(), u64::from(node.size()), SLOW_TURNS);
        node.barrier()?;
        let took = ours.times(SLOW_TURNS)?;
        if sample > 0 {
            mine.push(each(took, SLOW_TURNS));
            limit.push(each(bare, SLOW_TURNS));
        }
    }
    node.barrier()?;
    Ok(Samples::new("a futex barrier of as many", SLOW_TURNS, mine, limit))
}

/// Bytes that a process must copy, on the average: what it gets of others, and what it moves in its own memory.
fn copied(case: &Case) -> usize {
    let others = case.size - case.size / case.n;
    match case.op {
        // A part of all that is given, and then all parts of the result.
        Op::Allreduce => 2 * others,
        Op::Broadcast => others,
        _ => case.size,
    }
}

fn beside_copies(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let (from, mut into) = (vec![1u8; case.size], vec![0u8; case.size]);
    let mut copies = |times: u32| -> Result<Duration> {
        let begun = Instant::now();
        for _ in 0..times {
            let mut left = copied(case);
            while left > 0 {
                let len = left.min(case.size);
                black_box(&mut into)[..len].copy_from_slice(&black_box(&from)[..len]);
                left -= len;
            }
        }
        node.barrier()?;
        Ok(begun.elapsed())
    };
    let (mut mine, mut limit) = (Vec::new(), Vec::new());
    for round in 0..=BULK_ROUNDS {
        node.barrier()?;
        let bare = copies(BULK_TURNS)?;
        let begun = Instant::now();
        ours.times(BULK_TURNS)?;
        node.barrier()?;
        if round > 0 {
            mine.push(each(begun.elapsed(), BULK_TURNS));
            limit.push(each(bare, BULK_TURNS));
        }
    }
    Ok(Samples::new("memcpy of what each must copy, all at once", BULK_TURNS, mine, limit))
}
