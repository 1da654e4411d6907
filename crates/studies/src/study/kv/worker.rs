//! What a worker does with a request: for each of its blocks in order, find it here, pull it from a peer, or
//! make it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use block_directory::{Directory, Location, Pieces, Status, Store, Words, addresses};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use standpipe::Error;

use super::{
    pieces::allocate,
    plan::Plan,
    trace::Request,
    worker_lines::{Pull, Tick},
};
use crate::{pattern, processor};

/// What a worker needs of its job.
pub(crate) trait Peers: Words {
    /// Copies the pieces of a block at `addresses` in `owner`'s private memory into `pieces`, in one scatter
    /// get.
    ///
    /// # Errors
    /// What the get ends with; `PeerLost` if the owner is dead.
    fn pull(&self, owner: usize, addresses: &[u64], pieces: &mut Pieces) -> Result<(), Error>;

    /// The workers known to be dead.
    fn lost(&self) -> Vec<usize>;

    /// Waits until `condition` holds, asking it again and again.
    ///
    /// # Errors
    /// What waiting ends with.
    fn wait_until(&self, condition: &mut dyn FnMut() -> bool) -> Result<(), Error>;
}

/// How long workers that are done wait for the others, beyond the time that they worked themselves: shares
/// are about alike.
const OTHERS_WITHIN: Duration = Duration::from_secs(600);

/// Waits until every worker that lives has served its requests; for as long as this one has `worked`, and ten
/// minutes.
///
/// # Errors
/// Who has not by then.
pub(crate) fn await_others<P: Peers>(directory: &Directory<P>, worked: Duration) -> Result<()> {
    await_others_within(directory, worked + OTHERS_WITHIN)
}

fn await_others_within<P: Peers>(directory: &Directory<P>, within: Duration) -> Result<()> {
    let begun = Instant::now();
    // A worker that cannot be reached is lost, and wants nothing any more.
    let serves = |rank: &usize| directory.status(*rank).is_ok_and(|status| status != Status::Done);
    let mut late = Vec::new();
    // Who once was done is not asked again: the words of one that has ended say nothing.
    directory.words().wait_until(&mut || {
        late = (0..directory.words().size()).filter(serves).collect();
        late.is_empty() || begun.elapsed() >= within
    })?;
    ensure!(
        late.is_empty(),
        "{} s after this worker workers {late:?} are not done",
        begun.elapsed().as_secs()
    );
    Ok(())
}

/// One worker: its store, the directory, and what it has counted since the last tick.
pub(crate) struct Worker<P> {
    directory: Directory<P>,
    store: Store,
    plan: Plan,
    lost: BTreeSet<usize>,
    rng: ChaCha8Rng,
    tick: Tick,
    evictions_told: u64,
}

impl<P: Peers> Worker<P> {
    /// A worker that holds nothing yet.
    pub(crate) fn new(directory: Directory<P>, plan: Plan) -> Self {
        let rank = directory.words().rank() as u64;
        Self {
            directory,
            store: Store::new(plan.cap_bytes, plan.slots()),
            plan,
            lost: BTreeSet::new(),
            rng: ChaCha8Rng::seed_from_u64(rank),
            tick: Tick::default(),
            evictions_told: 0,
        }
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Directory<P> {
        &self.directory
    }

    /// Serves a request: afterwards each of its blocks has been used here once. `told` is called after every
    /// block.
    ///
    /// # Errors
    /// Any failed operation, unless by the loss of a peer, which only costs blocks; and what `told` returns.
    pub(crate) fn serve(
        &mut self,
        request: &Request,
        mut told: impl FnMut(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.bury_the_dead();
        for &id in &request.hash_ids {
            if self.store.get(id).is_some() {
                self.tick.local_hits += 1;
            } else if let Some(pieces) = self.pull(id)? {
                if self.plan.keep_copies {
                    self.keep(id, pieces)?;
                }
            } else {
                let pieces = self.make(id);
                self.keep(id, pieces)?;
            }
            told(self)?;
        }
        self.tick.requests += 1;
        Ok(())
    }

    /// What was done since the last tick was taken; what the store counts is not in it yet.
    pub(crate) fn tick(&self) -> &Tick {
        &self.tick
    }

    /// What was done since the last call.
    pub(crate) fn take_tick(&mut self) -> Tick {
        self.tick.stored_bytes = self.store.used_bytes() as u64;
        self.tick.evictions = self.store.evictions() - self.evictions_told;
        self.evictions_told = self.store.evictions();
        std::mem::take(&mut self.tick)
    }

    /// Pulls a block from any worker that holds it; `None` if there is none.
    fn pull(&mut self, id: u64) -> Result<Option<Pieces>, Error> {
        if !self.plan.pulls {
            return Ok(None);
        }
        let mut locations = unless_lost(self.directory.look_up(id))?.unwrap_or_default();
        locations.retain(|location| !self.lost.contains(&location.owner));
        locations.shuffle(&mut self.rng);
        for location in locations {
            if let Some(pieces) = self.pull_from(id, location)? {
                return Ok(Some(pieces));
            }
            self.tick.stale += 1;
        }
        Ok(None)
    }

    fn pull_from(&mut self, id: u64, location: Location) -> Result<Option<Pieces>, Error> {
        let owner = location.owner;
        let mut pieces = allocate(self.plan.layers, self.plan.piece_bytes, &mut self.rng);
        let computing = unless_lost(self.directory.status(owner))? == Some(Status::Computing);
        let Some(addresses) = unless_lost(self.directory.pin(location))?.flatten() else { return Ok(None) };
        let (start, before) = (Instant::now(), processor::time());
        let pulled = self.directory.words().pull(owner, &addresses, &mut pieces);
        let (took, busy) = (start.elapsed(), processor::time().saturating_sub(before));
        unless_lost(self.directory.unpin(location))?;
        if unless_lost(pulled)?.is_none() {
            return Ok(None);
        }
        let bytes = self.plan.block_bytes() as u64;
        let (took_ns, processor_ns) = (took.as_nanos() as u64, busy.as_nanos() as u64);
        self.tick.pulls.push(Pull { owner, took_ns, processor_ns, bytes, computing });
        if self.plan.examines {
            self.tick.mismatched_bytes +=
                (0..).zip(&pieces).map(|(layer, piece)| pattern::mismatches(id, layer, piece)).sum::<u64>();
            self.tick.verified_bytes += bytes;
        }
        Ok(Some(pieces))
    }

    /// Computes a block, as a model would, for want of anyone who holds it.
    fn make(&mut self, id: u64) -> Pieces {
        self.directory.set_status(Status::Computing);
        let mut pieces = allocate(self.plan.layers, self.plan.piece_bytes, &mut self.rng);
        for (layer, piece) in (0..).zip(&mut pieces) {
            pattern::fill(id, layer, piece);
        }
        processor::burn(self.plan.compute);
        self.directory.set_status(Status::Moving);
        self.tick.made += 1;
        pieces
    }

    /// Stores a block and tells the others. Without room for it, it is used once and dropped.
    fn keep(&mut self, id: u64, pieces: Pieces) -> Result<(), Error> {
        let addresses = addresses(&pieces);
        match self.store.insert(id, pieces, &mut &self.directory) {
            Ok(slot) => {
                unless_lost(self.directory.publish(id, slot, &addresses))?;
            }
            Err(_) => self.tick.not_stored += 1,
        }
        Ok(())
    }

    /// Gives back the pins of workers that died since the last call.
    fn bury_the_dead(&mut self) {
        for dead in self.directory.words().lost() {
            if self.lost.insert(dead) {
                self.directory.release(self.store.slots().map(|(slot, _)| slot), dead);
            }
        }
    }
}

/// Takes the loss of a peer for `None`: what it held is gone, and that is all.
fn unless_lost<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::PeerLost { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use block_directory::{Layout, Place};

    /// Worker 0; worker 1, which says this of itself, and the last of it for ever; and a dead one.
    struct First {
        own: Cell<u64>,
        told: RefCell<Vec<Status>>,
    }

    fn first(told: &[Status]) -> Directory<First> {
        let told = RefCell::new(told.iter().rev().copied().collect());
        let directory = Directory::new(First { own: Cell::new(0), told }, Layout::new(3, 1, 1, 1));
        directory.set_status(Status::Done);
        directory
    }

    impl Words for First {
        fn rank(&self) -> usize {
            0
        }

        fn size(&self) -> usize {
            3
        }

        fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
            match at.rank {
                0 => words.fill(self.own.get()),
                1 => {
                    let mut told = self.told.borrow_mut();
                    let status = if told.len() > 1 { told.pop() } else { told.last().copied() };
                    words.fill(status.expect("one at least") as u64);
                }
                _ => return Err(Error::PeerLost { peer: 2 }),
            }
            Ok(())
        }

        fn write(&self, _: Place, words: &[u64]) -> Result<(), Error> {
            self.own.set(words[0]);
            Ok(())
        }

        fn compare_swap(&self, _: Place, expected: u64, _: u64) -> Result<u64, Error> {
            Ok(expected)
        }
    }

    impl Peers for First {
        fn pull(&self, _: usize, _: &[u64], _: &mut Pieces) -> Result<(), Error> {
            Ok(())
        }

        fn lost(&self) -> Vec<usize> {
            vec![2]
        }

        fn wait_until(&self, condition: &mut dyn FnMut() -> bool) -> Result<(), Error> {
            while !condition() {
                std::thread::yield_now();
            }
            Ok(())
        }
    }

    #[test]
    fn a_worker_that_is_never_done_is_not_waited_for_without_end() {
        let directory = first(&[Status::Computing]);
        let error = await_others_within(&directory, Duration::from_millis(20)).expect_err("one is not done");
        assert_eq!(error.to_string(), "0 s after this worker workers [1] are not done");
    }

    #[test]
    fn what_a_worker_says_after_it_was_done_counts_for_nothing() {
        let directory = first(&[Status::Computing, Status::Done, Status::Moving]);
        await_others_within(&directory, Duration::from_secs(60)).expect("all were done");
    }
}
