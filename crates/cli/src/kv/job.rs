//! The study's words and blocks on a Standpipe job.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use standpipe::{
    Error, GetPiece, GlobalPtr, HeapArray, Mechanism, Node, Operation, Rank, Remote, Stats, Why,
};

use super::{
    directory::{Layout, Place, Words},
    store::Pieces,
    worker::Peers,
};

/// One worker's place in the job: its node, its own words, and where the others' words are.
#[derive(Debug)]
pub struct Job {
    node: Node,
    own: HeapArray<u64>,
    arrays: Vec<GlobalPtr<u64>>,
}

impl Job {
    /// Lays out this worker's words, and waits until all workers have done so and know of each other's.
    ///
    /// # Errors
    /// If the heap has no room, or a worker does not come.
    pub fn join(node: &Node, layout: Layout) -> Result<Self> {
        let own = node.heap().alloc_zeroed::<u64>(layout.words()).context("the study's words")?;
        let place = own.ptr(0).to_words().map(u64::to_le_bytes);
        node.directory().publish(&array_name(node.rank()), place.as_flattened())?;
        let find = |rank| {
            let place = node.directory().wait(&array_name(rank), JOIN_WITHIN)?;
            let (words, _) = place.as_chunks();
            let words: [[u8; 8]; 2] = words.try_into().context("the place of a worker's words")?;
            Ok(GlobalPtr::from_words(words.map(u64::from_le_bytes)))
        };
        let arrays = (0..node.size()).map(find).collect::<Result<_>>()?;
        node.within(JOIN_WITHIN).barrier()?;
        Ok(Self { node: node.clone(), own, arrays })
    }

    /// Bytes by mechanism, and operations by the reason for their path, of all that this worker did; those that are
    /// zero are left out.
    #[must_use]
    pub fn counts(&self) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
        let stats = self.node.stats();
        let mechanisms =
            Mechanism::ALL.map(|mechanism| (mechanism.name().to_owned(), moved(&stats, mechanism)));
        let reasons = Why::ALL.map(|why| (why.name().to_owned(), stats.why(why)));
        let counted = |&(_, count): &(String, u64)| count > 0;
        (mechanisms.into_iter().filter(counted).collect(), reasons.into_iter().filter(counted).collect())
    }

    fn ptr(&self, at: Place) -> GlobalPtr<u64> {
        self.arrays[at.rank].add(at.word as u64)
    }
}

impl Words for Job {
    fn rank(&self) -> usize {
        self.node.rank() as usize
    }

    fn size(&self) -> usize {
        self.node.size() as usize
    }

    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
        if at.rank == self.rank() {
            self.own.read_slice(at.word, words);
            return Ok(());
        }
        match words {
            [word] => *word = self.node.get(self.ptr(at))?,
            words => self.node.get_slice(self.ptr(at), words)?,
        }
        Ok(())
    }

    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error> {
        if at.rank == self.rank() {
            self.own.write_slice(at.word, words);
            return Ok(());
        }
        match words {
            [word] => self.node.put(self.ptr(at), *word),
            words => self.node.put_slice(self.ptr(at), words),
        }
    }

    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error> {
        self.node.compare_swap(self.ptr(at), expected, new)
    }
}

impl Peers for Job {
    fn pull(&self, owner: usize, addresses: &[u64], pieces: &mut Pieces) -> Result<(), Error> {
        let remote = |address: u64| {
            // SAFETY: it is only read from. The owner neither frees nor changes the piece while this worker's pin
            // stands, which is from before the address was read until after the pull; should the owner break that,
            // the bytes are wrong, which the check that follows finds, and an address without memory is a fault.
            unsafe { Remote::raw(owner as Rank, address) }
        };
        let mut list: Vec<GetPiece<'_>> = addresses
            .iter()
            .zip(pieces)
            .map(|(&address, piece)| GetPiece { from: remote(address), into: piece })
            .collect();
        self.node.get_list(&mut list)
    }

    fn lost(&self) -> Vec<usize> {
        self.node.lost_peers().into_iter().map(|rank| rank as usize).collect()
    }

    fn wait_until(&self, condition: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.node.wait_until(condition)
    }
}

/// Starting the last of a few dozen processes takes far less.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

fn array_name(rank: Rank) -> String {
    format!("study kv: words of {rank}")
}

fn moved(stats: &Stats, mechanism: Mechanism) -> u64 {
    [Operation::Put, Operation::Get, Operation::Atomic]
        .into_iter()
        .map(|operation| stats.get(operation, mechanism).bytes)
        .sum()
}
