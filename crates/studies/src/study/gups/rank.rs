//! One process of the study: it holds a share of the table, and makes its part of the updates.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use standpipe::{AtomicOp, Config, Error, GlobalPtr, HandlerId, HeapArray, MEDIUM_MAX, Node};

use super::plan::{LOOKAHEAD, Plan, Turn, Way};
use super::sequence::Sequence;
use super::table::{self, Shares};
use crate::study::ranks::RankPlan;
use measure::job_config;
use measure::json_lines::tell;

/// A lost peer ends all waits; this is for what nobody thought of.
const PATIENCE: Duration = Duration::from_secs(120);

const _: () = assert!(LOOKAHEAD * 8 <= MEDIUM_MAX, "all of a batch may go to one process");

impl RankPlan for Plan {
    const NAME: &'static str = "gups";

    /// Runs a rank, telling on standard output what each turn came to.
    ///
    /// # Errors
    /// If the job cannot be joined, a peer is lost, an operation fails, or nobody listens.
    fn run(&self) -> Result<ExitCode> {
        let taken = Arc::new(Taken::default());
        let node = Node::open(taken.handlers(job_config::config()?.timeout(PATIENCE)))
            .context("joining the study's job")?;
        let mut updater = Updater::new(node, self, taken)?;
        for (words, way) in self.turns() {
            tell(&updater.turn(self, words, way)?)?;
        }
        updater.node.barrier()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What handlers know: where this rank's share begins, and how many updates they have made.
#[derive(Debug, Default)]
struct Taken {
    share: OnceLock<GlobalPtr<u64>>,
    updates: AtomicU64,
}

impl Taken {
    fn handlers(self: &Arc<Self>, config: Config) -> Config {
        let [one, many] = [Arc::clone(self), Arc::clone(self)];
        config
            .handler("update", move |call| {
                one.take(&call.node(), call.args()[1], [call.args()[0]].iter().copied())
            })
            .handler("updates", move |call| {
                let numbers = call.payload().as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
                many.take(&call.node(), call.args()[1], numbers);
            })
    }

    /// Makes updates of this rank's share of a table of so many words.
    fn take(&self, node: &Node, words: u64, numbers: impl ExactSizeIterator<Item = u64>) {
        let share = *self.share.get().expect("nobody sends before all have laid theirs out");
        let (shares, count) = (Shares::new(words, node.size()), numbers.len() as u64);
        for number in numbers {
            let word = share.add(shares.place(number).1 as usize);
            node.update_nbi(word, AtomicOp::Xor, number).expect("it lies in this rank's own heap");
        }
        self.updates.fetch_add(count, Ordering::Release);
    }
}

/// Reads a word of each page of all shares: that the system maps memory when it is first accessed is no part
/// of an update.
fn map(node: &Node, begins: &[GlobalPtr<u64>], words: u64) -> Result<(), Error> {
    const PAGE_WORDS: usize = 512;
    for begin in begins {
        for at in (0..words).step_by(PAGE_WORDS) {
            node.get(begin.add(at as usize))?;
        }
    }
    Ok(())
}

/// A rank that makes updates.
struct Updater {
    node: Node,
    share: HeapArray<u64>,
    /// Where each rank's share begins.
    begins: Vec<GlobalPtr<u64>>,
    taken: Arc<Taken>,
    /// Updates that others have been sent messages about, and this rank has been, in all turns so far.
    sent: Vec<u64>,
    batches: Vec<Vec<u64>>,
    handlers: [HandlerId; 2],
}

impl Updater {
    fn new(node: Node, plan: &Plan, taken: Arc<Taken>) -> Result<Updater> {
        let largest = Shares::new(plan.words_max(), node.size()).each();
        let share = node.heap().alloc_zeroed::<u64>(largest).context("this rank's share of the table")?;
        taken.share.set(share.ptr(0)).expect("it is set here only");
        let mut begins = vec![[0; 2]; node.size() as usize];
        node.world().all_gather(&[share.ptr(0).to_words()], &mut begins)?;
        let handler = |name| node.handler(name).context("registered at open");
        let begins: Vec<GlobalPtr<u64>> = begins.into_iter().map(GlobalPtr::from_words).collect();
        if plan.is_shared {
            map(&node, &begins, largest as u64)?;
        }
        Ok(Updater {
            begins,
            sent: vec![0; node.size() as usize],
            batches: vec![Vec::with_capacity(LOOKAHEAD); node.size() as usize],
            handlers: [handler("update")?, handler("updates")?],
            taken,
            share,
            node,
        })
    }

    /// All updates of a table, and what they came to here.
    fn turn(&mut self, plan: &Plan, words: u64, way: Way) -> Result<Turn> {
        let (rank, size) = (self.node.rank(), self.node.size());
        let (shares, updates) = (Shares::new(words, size), plan.updates_of(words, way));
        table::fill(&self.share, shares.of(rank), way);
        let place = |rank: u32| (u128::from(updates) * u128::from(rank) / u128::from(size)) as u64;
        let (first, mut count) = (place(rank), place(rank + 1) - place(rank));
        if plan.spoil && rank == 0 {
            count = count.saturating_sub(1);
        }
        let mut numbers = Sequence::after(first);
        self.node.barrier()?;
        let begun = Instant::now();
        while count > 0 {
            let some = count.min(LOOKAHEAD as u64) as usize;
            count -= some as u64;
            match way {
                Way::Put => numbers = self.put(shares, numbers, some)?,
                Way::Atomic => numbers = self.combine(shares, numbers, some)?,
                Way::Message => self.send(shares, numbers.by_ref().take(some))?,
                Way::Batches => self.send_batches(shares, numbers.by_ref().take(some))?,
            }
        }
        self.settle(way)?;
        let took_ns = begun.elapsed().as_nanos() as u64;
        let own = shares.of(rank);
        let mut words_here = vec![0; (own.end - own.start) as usize];
        self.share.read_slice(0, &mut words_here);
        Ok(Turn { words, way, took_ns, wrong: table::wrong(&words_here, own, shares, way, updates) })
    }

    #[inline]
    fn word(&self, shares: Shares, number: u64) -> GlobalPtr<u64> {
        let (rank, at) = shares.place(number);
        self.begins[rank as usize].add(at as usize)
    }

    // By itself and with the sequence at hand, as `combine`, so that an update stores nothing besides: see
    // `Node::update_nbi`.
    #[inline(never)]
    fn put(&self, shares: Shares, mut numbers: Sequence, some: usize) -> Result<Sequence, Error> {
        for number in numbers.by_ref().take(some) {
            self.node.put_nbi(self.word(shares, number), &[number])?;
        }
        self.node.quiet().map(|()| numbers)
    }

    #[inline(never)]
    fn combine(&self, shares: Shares, mut numbers: Sequence, some: usize) -> Result<Sequence, Error> {
        for number in numbers.by_ref().take(some) {
            self.node.update_nbi(self.word(shares, number), AtomicOp::Xor, number)?;
        }
        self.node.quiet().map(|()| numbers)
    }

    /// Updates of this rank's own share are made at once, as the original does.
    fn send(&mut self, shares: Shares, numbers: impl Iterator<Item = u64>) -> Result<(), Error> {
        let (rank, [handler, _]) = (self.node.rank(), self.handlers);
        for number in numbers {
            match shares.place(number) {
                (to, at) if to == rank => self.own(at, number)?,
                (to, _) => {
                    self.node.request(to, handler, [number, shares.words, 0, 0])?;
                    self.sent[to as usize] += 1;
                }
            }
        }
        Ok(())
    }

    fn send_batches(&mut self, shares: Shares, numbers: impl Iterator<Item = u64>) -> Result<(), Error> {
        let (rank, [_, handler]) = (self.node.rank(), self.handlers);
        for number in numbers {
            match shares.place(number) {
                (to, at) if to == rank => self.own(at, number)?,
                (to, _) => self.batches[to as usize].push(number),
            }
        }
        for (to, batch) in (0..).zip(&mut self.batches).filter(|(_, batch)| !batch.is_empty()) {
            let bytes = bytemuck::cast_slice(batch);
            self.node.request_medium(to, handler, [0, shares.words, 0, 0], bytes)?;
            self.sent[to as usize] += batch.len() as u64;
            batch.clear();
        }
        Ok(())
    }

    fn own(&self, at: u64, number: u64) -> Result<(), Error> {
        self.node.update_nbi(self.begins[self.node.rank() as usize].add(at as usize), AtomicOp::Xor, number)
    }

    /// Waits until all updates of all ranks are made. Messages say nothing of their end: so all tell each
    /// other how many there are.
    fn settle(&self, way: Way) -> Result<(), Error> {
        if matches!(way, Way::Message | Way::Batches) {
            let mut coming = vec![0; self.sent.len()];
            self.node.world().all_to_all(&self.sent, &mut coming)?;
            let coming: u64 = coming.iter().sum();
            self.node.wait_until(|| self.taken.updates.load(Ordering::Acquire) >= coming)?;
        }
        self.node.barrier()
    }
}
