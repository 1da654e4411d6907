//! The directory under real concurrency: threads stand for workers, a vector of atomics for their heaps.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use block_directory::{Directory, Layout, Place, Words};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use standpipe::Error;

/// A job in one process.
struct Job {
    heaps: Vec<Vec<AtomicU64>>,
    lost: Vec<AtomicBool>,
}

impl Job {
    fn new(layout: Layout) -> Arc<Self> {
        let heap = || (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            heaps: (0..layout.workers).map(|_| heap()).collect(),
            lost: (0..layout.workers).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    fn directory(self: &Arc<Self>, rank: usize, layout: Layout) -> Directory<Worker> {
        Directory::new(Worker { job: Arc::clone(self), rank }, layout)
    }
}

struct Worker {
    job: Arc<Job>,
    rank: usize,
}

impl Worker {
    fn heap(&self, rank: usize) -> Result<&[AtomicU64], Error> {
        if self.job.lost[rank].load(SeqCst) {
            Err(Error::PeerLost { peer: rank as u32 })
        } else {
            Ok(&self.job.heaps[rank])
        }
    }
}

impl Words for Worker {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.job.heaps.len()
    }

    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
        for (word, cell) in words.iter_mut().zip(&self.heap(at.rank)?[at.word..]) {
            *word = cell.load(SeqCst);
        }
        Ok(())
    }

    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error> {
        for (word, cell) in words.iter().zip(&self.heap(at.rank)?[at.word..]) {
            cell.store(*word, SeqCst);
        }
        Ok(())
    }

    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error> {
        let cell = &self.heap(at.rank)?[at.word];
        Ok(cell.compare_exchange(expected, new, SeqCst, SeqCst).unwrap_or_else(|found| found))
    }
}

#[test]
fn a_block_is_found_pinned_and_gone_after_recycling() {
    let layout = Layout::new(2, 100, 4, 3);
    let job = Job::new(layout);
    let (owner, reader) = (job.directory(0, layout), job.directory(1, layout));
    assert_eq!(reader.look_up(7), Ok(Vec::new()));
    assert_eq!(owner.publish(7, 2, &[10, 20, 30]), Ok(true));
    let location = reader.look_up(7).expect("nobody died")[0];
    assert_eq!(location.owner, 0);
    assert_eq!(reader.pin(location), Ok(Some(vec![10, 20, 30])));
    assert!(!owner.recycle(7, 2), "it is being read");
    assert_eq!(reader.unpin(location), Ok(()));
    assert!(!owner.recycle(7, 2), "it was read since the owner last asked");
    assert!(owner.recycle(7, 2));
    assert_eq!(reader.look_up(7), Ok(Vec::new()));
    assert_eq!(owner.publish(8, 2, &[11, 21, 31]), Ok(true));
    assert_eq!(reader.pin(location), Ok(None), "the slot holds another block now");
}

/// A get of an entry may find a word half changed.
#[test]
fn a_location_of_no_slot_is_no_block() {
    let layout = Layout::new(2, 100, 4, 3);
    let job = Job::new(layout);
    let (owner, reader) = (job.directory(0, layout), job.directory(1, layout));
    assert_eq!(owner.publish(7, 2, &[10, 20, 30]), Ok(true));
    // Slot 2 of the first generation.
    let its = |word: &&AtomicU64| word.load(SeqCst) == 3;
    let word = job.heaps.iter().flatten().find(its).expect("in the index");
    word.fetch_or(0xffff_0000, SeqCst);
    let location = reader.look_up(7).expect("nobody died")[0];
    assert_eq!(reader.pin(location), Ok(None));
}

#[test]
fn the_dead_lose_their_pins_and_their_blocks() {
    let layout = Layout::new(3, 100, 4, 1);
    let job = Job::new(layout);
    let [owner, reader, third] = [0, 1, 2].map(|rank| job.directory(rank, layout));
    let id = (0..).find(|&id| third.publish(id, 0, &[5]).is_ok_and(|yes| yes)).expect("room for one");
    let location = reader.look_up(id).expect("nobody died")[0];
    assert!(owner.publish(50, 0, &[9]).expect("nobody died"));
    let pinned = reader.look_up(50).expect("nobody died")[0];
    assert!(reader.pin(pinned).expect("nobody died").is_some());
    job.lost[2].store(true, SeqCst);
    assert_eq!(reader.pin(location), Err(Error::PeerLost { peer: 2 }));
    job.lost[1].store(true, SeqCst);
    assert!(!owner.recycle(50, 0) && !owner.recycle(50, 0), "the dead reader's pin is still there");
    owner.release(0..layout.slots, 1);
    assert!(!owner.recycle(50, 0), "it was wanted lately");
    assert!(owner.recycle(50, 0));
}

#[test]
fn ids_that_collide_are_told_apart_and_a_full_index_says_so() {
    let layout = Layout { workers: 1, shares: 1, entries: 8, slots: 16, layers: 1 };
    let directory = Job::new(layout).directory(0, layout);
    let published: BTreeSet<u64> = (0..12u64)
        .filter(|&id| directory.publish(id * 1000, id as usize, &[id]).expect("one's own words"))
        .collect();
    assert_eq!(published.len(), layout.entries);
    for id in 0..12u64 {
        let locations = directory.look_up(id * 1000).expect("one's own words");
        assert_eq!(locations.len(), usize::from(published.contains(&id)), "block {id}");
        for location in locations {
            assert_eq!(directory.pin(location), Ok(Some(vec![id])));
        }
    }
    assert_eq!(directory.publish(u64::MAX, 12, &[1]), Ok(false), "the one id that has no key");
    assert_eq!(directory.look_up(u64::MAX), Ok(Vec::new()));
}

/// Blocks' memory: the owner writes the block's id on storing and wipes it on recycling. A reader that finds
/// anything but the id it asked for, between pin and unpin, would have pulled wrong bytes.
#[test]
fn what_is_pinned_never_changes() {
    const WORKERS: usize = 4;
    const STEPS: usize = 20_000;
    const WIPED: u64 = u64::MAX;
    let layout = Layout::new(WORKERS, 40, 4, 1);
    let job = Job::new(layout);
    let memory: Vec<AtomicU64> = (0..WORKERS * layout.slots).map(|_| AtomicU64::new(WIPED)).collect();
    let worker = |rank: usize| {
        let directory = job.directory(rank, layout);
        let mut rng = ChaCha8Rng::seed_from_u64(rank as u64);
        let mut held: Vec<Option<u64>> = vec![None; layout.slots];
        let (mut pulled, mut recycled) = (0u64, 0u64);
        for _ in 0..STEPS {
            let (slot, id) = (rng.random_range(0..layout.slots), rng.random_range(0..40));
            let address = rank * layout.slots + slot;
            match held[slot] {
                Some(old) if directory.recycle(old, slot) => {
                    memory[address].store(WIPED, SeqCst);
                    held[slot] = None;
                    recycled += 1;
                }
                None if !held.contains(&Some(id)) => {
                    memory[address].store(id, SeqCst);
                    directory.publish(id, slot, &[address as u64]).expect("nobody dies");
                    held[slot] = Some(id);
                }
                _ => {}
            }
            for location in directory.look_up(id).expect("nobody dies") {
                let Some(addresses) = directory.pin(location).expect("nobody dies") else { continue };
                let cell = &memory[addresses[0] as usize];
                assert_eq!(cell.load(SeqCst), id);
                thread::yield_now();
                assert_eq!(cell.load(SeqCst), id);
                directory.unpin(location).expect("nobody dies");
                pulled += 1;
            }
        }
        (pulled, recycled)
    };
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|rank| scope.spawn(move || worker(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no assertion failed")).collect()
    });
    assert!(counts.iter().all(|&(pulled, recycled)| pulled > 100 && recycled > 100), "{counts:?}");
}
