//! Collectives beside the machine's own limits: a bounced cache line for small ones of two processes, a futex barrier for
//! small ones of more, and the copies that they cannot do without for large ones.

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use standpipe::{GlobalPtr, Node, Reduction, Team, bare};

use super::case::{Case, Op, SMALL_MAX, Samples};
use super::memory::{Own, PATIENCE, Shared, Theirs};
use super::timing::{ROUNDS, SLOW_TURNS, TURNS, each};

/// Samples, where copies are what takes the time: each is of one collective.
const BULK_ROUNDS: usize = 45;

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

/// The copies that a process cannot do without, by memcpy alone.
enum Copies {
    /// Of the heaps of peers, to the process's own: the collective's own memory, at both ends.
    Mapped(Vec<Mapping>),
    /// Of private memory, which no peer can map: as many bytes, between two buffers as long as the collective's.
    Apart { bytes: usize, from: Vec<u8>, into: Vec<u8> },
}

/// A part of what a peer gives, and where it goes here.
struct Mapping {
    from: bare::Mapped,
    into: Range<usize>,
}

impl Copies {
    fn new(node: &Node, case: &Case, ours: &mut Ours) -> Result<Copies> {
        let Some(mine) = ours.given.ptr() else {
            let (from, into) = (vec![1; case.size], vec![0; case.size]);
            return Ok(Copies::Apart { bytes: copied(case), from, into });
        };
        let name = |rank: u32| format!("perf given {rank}");
        node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&mine.to_words()))?;
        let given = |rank: u32| -> Result<GlobalPtr<u8>> {
            let words = node.directory().wait(&name(rank), PATIENCE)?;
            let words =
                bytemuck::try_pod_read_unaligned(&words).ok().context("the peer published two words")?;
            Ok(GlobalPtr::from_words(words))
        };
        let mut copies = Vec::new();
        for (rank, part, into) in parts(case, node.rank()) {
            let from = bare::mapped(node, given(rank)?.add(part.start as u64), part.len())?;
            copies.push(Mapping { from, into });
        }
        Ok(Copies::Mapped(copies))
    }

    /// Does them all; of broadcasts those that there are when that one is the root.
    fn once(&mut self, ours: &mut Ours, root: u32) {
        match self {
            Copies::Apart { bytes, from, into } => {
                let mut left = *bytes;
                while left > 0 {
                    let len = left.min(from.len());
                    black_box(&mut *into)[..len].copy_from_slice(&black_box(&*from)[..len]);
                    left -= len;
                }
            }
            Copies::Mapped(copies) => {
                let into = if ours.op == Op::Alltoall { &mut ours.gotten } else { &mut ours.given };
                let into: &mut [u8] = bytemuck::cast_slice_mut(into.values());
                let only = (ours.op == Op::Broadcast).then_some(root as usize);
                for (_, copy) in
                    copies.iter().enumerate().filter(|(at, _)| only.is_none_or(|only| only == *at))
                {
                    copy.from.get(&mut into[copy.into.clone()], 1);
                }
            }
        }
    }
}

/// What a process copies out of heaps: of which rank, what part of that one's, and where to. Of broadcasts, what it would copy of
/// each root in turn: nothing of itself.
fn parts(case: &Case, me: u32) -> Vec<(u32, Range<usize>, Range<usize>)> {
    let (size, n) = (case.size, case.n as u32);
    let part = |rank: u32| size * rank as usize / case.n..size * (rank as usize + 1) / case.n;
    let after = |far: u32| (me + far) % n;
    match case.op {
        Op::Broadcast => (0..n)
            .map(|rank| if rank == me { 0..0 } else { 0..size })
            .zip(0..)
            .map(|(all, rank)| (rank, all.clone(), all))
            .collect(),
        // Its own part of all others', which the result takes the place of, and then the others' results.
        Op::Allreduce => {
            let gives = (1..n).map(|far| (after(far), part(me), part(me)));
            gives.chain((1..n).map(|far| (after(far), part(after(far)), part(after(far))))).collect()
        }
        _ => (0..n).map(|far| (after(far), part(me), part(after(far)))).collect(),
    }
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

/// The limit is memcpy of those bytes that a process cannot do without, made by all processes at once. What it costs depends on
/// where they lie: a buffer of its own that a core's cache holds would be copied faster than any collective can be, whose bytes
/// other cores have written, and which are as many as all processes give and get. So the limit copies the same bytes
/// of the same heaps to the same places as the collective, as far as there are heaps; it combines nothing, and nobody
/// waits for another. And all begin anew for each: a process that made several at once would find in the caches what it
/// copied just before, while those that wait for a core had not evicted it, which no collective can.
fn beside_copies(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let mut copies = Copies::new(node, case, ours)?;
    let (mut mine, mut limit) = (Vec::new(), Vec::new());
    for round in 0..=BULK_ROUNDS {
        node.barrier()?;
        let begun = Instant::now();
        copies.once(ours, round as u32 % node.size());
        node.barrier()?;
        let bare = begun.elapsed();
        let begun = Instant::now();
        ours.once()?;
        node.barrier()?;
        if round > 0 {
            mine.push(each(begun.elapsed(), 1));
            limit.push(each(bare, 1));
        }
    }
    let name = match copies {
        Copies::Mapped(_) => "memcpy of the same bytes between the same heaps, by all at once",
        Copies::Apart { .. } => "memcpy of what each must copy, all at once",
    };
    Ok(Samples::new(name, 1, mine, limit))
}
