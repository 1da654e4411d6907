//! The study's words and blocks on a Standpipe job.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use block_directory::{Layout, NodeWords, Pieces, Place, Words};
use standpipe::{Error, GetPiece, GlobalPtr, Mechanism, Node, Operation, PathReason, Rank, Remote, Stats};

use super::{worker::Peers, worker_lines::Done};

/// One worker's place in the job: its node, and the words of all.
#[derive(Debug)]
pub(crate) struct Job {
    node: Node,
    words: NodeWords,
}

impl Job {
    /// Lays out this worker's words, and waits until all workers have done so and know of each other's.
    ///
    /// # Errors
    /// If the heap has no room, or a worker does not come.
    pub(crate) fn join(node: &Node, layout: Layout) -> Result<Self> {
        let own = node.heap().alloc_zeroed::<u64>(layout.words()).context("the study's words")?;
        publish(node, WORDS, &own.ptr(0).to_words())?;
        let array = |rank: usize| {
            let place = find(node, rank, WORDS)?;
            anyhow::Ok(GlobalPtr::from_words(place.try_into().map_err(|_| anyhow!("worker {rank}'s words"))?))
        };
        let arrays = (0..node.size() as usize).map(array).collect::<Result<_>>()?;
        let job = Self { node: node.clone(), words: NodeWords::new(node, own, arrays) };
        job.barrier()?;
        Ok(job)
    }

    /// Lets all others find `words` under this worker's number and `name`.
    ///
    /// # Errors
    /// If there are too many, or the heap has no room.
    pub(crate) fn publish(&self, name: &str, words: &[u64]) -> Result<()> {
        publish(&self.node, name, words)
    }

    /// The words that worker `rank` published under `name`, waiting for them if need be.
    ///
    /// # Errors
    /// If that worker dies, or takes more than half a minute.
    pub(crate) fn find(&self, rank: usize, name: &str) -> Result<Vec<u64>> {
        find(&self.node, rank, name)
    }

    /// Waits for all workers to come here.
    ///
    /// # Errors
    /// If one dies, or takes more than half a minute.
    pub(crate) fn barrier(&self) -> Result<()> {
        Ok(self.node.within(PATIENCE).barrier()?)
    }

    /// Serves peers that wait for this worker, if any do.
    pub(crate) fn progress(&self) {
        while self.node.progress() {}
    }

    /// Bytes by mechanism, and operations by the reason for their path, of all that this worker did.
    #[must_use]
    pub(crate) fn counts(&self) -> Done {
        counts(&self.node)
    }

    /// The most bytes that were registered here at a time, so far.
    #[must_use]
    pub(crate) fn pinned_peak_bytes(&self) -> u64 {
        self.node.registrations().table.pinned_peak
    }
}

impl Words for Job {
    fn rank(&self) -> usize {
        self.words.rank()
    }

    fn size(&self) -> usize {
        self.words.size()
    }

    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
        self.words.read(at, words)
    }

    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error> {
        self.words.write(at, words)
    }

    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error> {
        self.words.compare_swap(at, expected, new)
    }
}

impl Peers for Job {
    fn pull(&self, owner: usize, addresses: &[u64], pieces: &mut Pieces) -> Result<(), Error> {
        pull(&self.node, owner as Rank, addresses, pieces)
    }

    fn lost(&self) -> Vec<usize> {
        self.node.lost_peers().into_iter().map(|rank| rank as usize).collect()
    }

    fn wait_until(&self, condition: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.node.wait_until(condition)
    }
}

/// Bytes by mechanism, and operations by the reason for their path, of all that this node did.
pub(super) fn counts(node: &Node) -> Done {
    let stats = node.stats();
    let mechanisms = Mechanism::ALL.map(|mechanism| (mechanism.name().to_owned(), moved(&stats, mechanism)));
    let reasons = PathReason::ALL.map(|why| (why.name().to_owned(), stats.why(why)));
    Done { mechanisms: mechanisms.into(), reasons: reasons.into() }
}

/// Copies pieces at these addresses of a peer's private memory, in one scatter get.
///
/// # Errors
/// What the get ends with.
pub(super) fn pull(node: &Node, owner: Rank, addresses: &[u64], pieces: &mut Pieces) -> Result<(), Error> {
    let remote = |address: u64| {
        // SAFETY: it is only read from. The owner neither frees nor changes the piece while this worker's pin
        // stands, which is from before the address was read until after the pull; should the owner break
        // that, the bytes are wrong, which the check that follows finds, and an address without memory is a
        // fault.
        unsafe { Remote::raw(owner, address) }
    };
    let mut list: Vec<GetPiece<'_>> = addresses
        .iter()
        .zip(pieces)
        .map(|(&address, piece)| GetPiece { from: remote(address), into: piece })
        .collect();
    node.get_list(&mut list)
}

/// Starting the last of a few dozen processes takes far less.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the words that [`Words`] speaks of.
const WORDS: &str = "words";

fn publish(node: &Node, name: &str, words: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(node.directory().publish(&full_name(node.rank() as usize, name), &bytes)?)
}

fn find(node: &Node, rank: usize, name: &str) -> Result<Vec<u64>> {
    let bytes = node.directory().wait(&full_name(rank, name), PATIENCE)?;
    Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn full_name(rank: usize, name: &str) -> String {
    format!("study kv: {name} of {rank}")
}

fn moved(stats: &Stats, mechanism: Mechanism) -> u64 {
    [Operation::Put, Operation::Get, Operation::Atomic]
        .into_iter()
        .map(|operation| stats.get(operation, mechanism).bytes)
        .sum()
}
