//! Collectives beside the machine's own limits: a bounced cache line for small ones of two processes, a futex
//! barrier for small ones of more, and the copies that they cannot do without for large ones.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use standpipe::{GlobalPtr, Node, Reduction, Remote, Team};

use super::case::{Case, Memory, Op, SMALL_MAX, Samples, WORK_NS};
use super::memory::{Own, PATIENCE, REFUSED, Shared, Theirs};
use super::timing::{ROUNDS, SLOW_TURNS, TURNS, each};
use crate::bare;

/// Samples, where copies are what takes the time: each is of one collective. So many, as what lies in the
/// caches makes copies more than twice as fast in one as in the next.
const BULK_ROUNDS: usize = 200;

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

    /// Where what it comes to goes.
    fn result(&mut self) -> &mut [u8] {
        let result = if self.op == Op::Alltoall { &mut self.gotten } else { &mut self.given };
        bytemuck::cast_slice_mut(result.values())
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

/// The word of each side that crosses the other's.
const CROSSED: usize = 2;

fn beside_a_line(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let first = node.rank() == 0;
    let own = Shared::new(node, case)?;
    let word = bare::Word::new(node, Theirs::find(node, 0)?.note(1))?;
    let inbox = bare::Word::new(node, own.words.ptr(8 * CROSSED))?;
    let outbox = bare::Word::new(node, Theirs::find(node, 1 - node.rank())?.note(CROSSED))?;
    let (mut mine, mut limit, mut line) = (Vec::new(), Vec::new(), Vec::new());
    let work = bare::Work::of_ns(WORK_NS);
    let stop = || !node.lost_peers().is_empty();
    for round in 0..=ROUNDS as u64 {
        node.barrier()?;
        let start = 2 * round * u64::from(TURNS);
        let bounced = bare::bounce(word.get(), first, start, TURNS, stop);
        node.barrier()?;
        let bare = bare::crossing([inbox.get(), outbox.get()], start / 2, TURNS, work, stop);
        node.barrier()?;
        let took = ours.times(TURNS)?;
        if round > 0 {
            mine.push(each(took, TURNS));
            limit.push(each(bare, TURNS));
            line.push(each(bounced, TURNS));
        }
    }
    node.barrier()?;
    let name = "two words that cross, with 25 ns of work a side";
    Ok(Samples::new(name, TURNS, mine, limit).beside_line(line))
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

/// A copy that a process cannot do without, as plainly as it can be done: from where, and where it goes here.
struct Copy {
    from: Source,
    into: Range<usize>,
}

/// A part of what a process gives.
enum Source {
    /// In a heap: memcpy gets it.
    Mapped(bare::Mapped),
    /// In a peer's private memory, which nobody else can map: the kernel copies it.
    Attached(Remote),
    /// In this process's private memory.
    Own(Range<usize>),
}

impl Copy {
    /// All copies of this process, of broadcasts those of each root in turn.
    fn all(node: &Node, case: &Case, ours: &Ours) -> Result<Vec<Copy>> {
        let name = |rank: u32| format!("perf given {rank}");
        node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&ours.given.place()))?;
        let source = |rank: u32, part: Range<usize>| -> Result<Source> {
            let words = node.directory().wait(&name(rank), PATIENCE)?;
            let words: [u64; 2] =
                bytemuck::try_pod_read_unaligned(&words).ok().context("the peer published two words")?;
            let start = part.start as u64;
            Ok(match case.memory {
                Memory::Heap => {
                    let given = GlobalPtr::from_words(words).add(start as usize);
                    Source::Mapped(bare::mapped(node, given, part.len())?)
                }
                Memory::Private | Memory::Granted if rank == node.rank() => Source::Own(part),
                Memory::Private | Memory::Granted | Memory::OneGrant => {
                    Source::Attached(Own::part_of(rank, words, start))
                }
            })
        };
        parts(case, node.rank())
            .into_iter()
            .map(|(rank, part, into)| Ok(Copy { from: source(rank, part)?, into }))
            .collect()
    }

    fn once(&mut self, node: &Node, ours: &mut Ours) -> Result<()> {
        let into = self.into.clone();
        match &self.from {
            Source::Mapped(from) => _ = from.get(&mut ours.result()[into], 1),
            Source::Attached(from) => {
                bare::attach_get(node, &mut [(*from, &mut ours.result()[into])], 1)?.context(REFUSED)?;
            }
            Source::Own(part) => {
                let (given, gotten) = (ours.given.values(), ours.gotten.values());
                let from = &bytemuck::cast_slice(given)[part.clone()];
                bytemuck::cast_slice_mut::<_, u8>(gotten)[into].copy_from_slice(from);
            }
        }
        Ok(())
    }
}

/// What a process copies: of which rank, what part of that one's, and where to. Of broadcasts, what it would
/// copy of each root in turn: nothing of itself.
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

/// The limit is a copy of those bytes that a process cannot do without, made by all processes at once. What
/// it costs depends on where they lie: a buffer of its own that a core's cache holds would be copied faster
/// than any collective can be, whose bytes other cores have written, and which are as many as all processes
/// give and get. So the limit copies the same bytes of the same memories to the same places as the
/// collective, by memcpy out of heaps, and as the kernel does it out of private memory; it combines nothing,
/// and nobody waits for another. And all begin anew for each: a process that made several at once would find
/// in the caches what it copied just before, while those that wait for a core had not evicted it, which no
/// collective can.
fn beside_copies(node: &Node, case: &Case, ours: &mut Ours) -> Result<Samples> {
    let mut copies = Copy::all(node, case, ours)?;
    let (mut mine, mut limit) = (Vec::new(), Vec::new());
    for round in 0..=BULK_ROUNDS {
        let root = round % node.size() as usize;
        let is_made = |at: usize| case.op != Op::Broadcast || at == root;
        node.barrier()?;
        let begun = Instant::now();
        for (_, copy) in copies.iter_mut().enumerate().filter(|(at, _)| is_made(*at)) {
            copy.once(node, ours)?;
        }
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
    let name = match case.memory {
        Memory::Heap => "memcpy of the same bytes between the same heaps, by all at once",
        Memory::Private | Memory::Granted | Memory::OneGrant => {
            "process_vm_readv of the same bytes, by all at once"
        }
    };
    Ok(Samples::new(name, 1, mine, limit))
}
