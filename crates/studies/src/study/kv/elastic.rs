//! The study's words and blocks among nodes that nobody launched together: workers find each other by cards
//! in a folder, one may die, and one more may come at any time and keep a dead one's share of the index.

use std::cell::RefCell;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use block_directory::{Layout, Pieces, Place, Words, read, write};
use serde::{Deserialize, Serialize};
use standpipe::{ConnectError, Error, GlobalPtr, HeapArray, Node, Rank, host};

use super::job;
use super::worker::Peers;
use super::worker_lines::Done;

/// What a worker leaves in the folder for the others. The address is a secret: the folder is the user's
/// alone.
#[derive(Debug, Serialize, Deserialize)]
struct Card {
    address: Vec<u8>,
    words: [u64; 2],
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy)]
enum Seat {
    /// It has not come.
    Empty,
    /// It is there: by this number, with its words there.
    Taken(Rank, GlobalPtr<u64>),
    /// It is dead, or has ended.
    Left,
}

/// One worker's place among the others.
#[derive(Debug)]
pub(crate) struct Elastic {
    node: Node,
    rank: usize,
    /// Workers that are there in the beginning.
    first: usize,
    /// Never freed: peers may read them for as long as this process lives.
    own: ManuallyDrop<HeapArray<u64>>,
    seats: RefCell<Vec<Seat>>,
    folder: PathBuf,
    begun_ns: u64,
}

/// Starting the last of a few dozen processes takes far less.
const PATIENCE: Duration = Duration::from_secs(30);

impl Elastic {
    /// Lays out this worker's words. Worker `rank` of the first waits until all of those know of each other;
    /// one that comes later meets those that are there.
    ///
    /// # Errors
    /// If the heap has no room, a card cannot be left, or a worker does not come within half a minute.
    pub(crate) fn join(node: &Node, rank: usize, layout: Layout, folder: &Path) -> Result<Elastic> {
        // One more: the number of the next request.
        let own = node.heap().alloc_zeroed::<u64>(layout.words() + 1).context("the study's words")?;
        let mut elastic = Elastic {
            node: node.clone(),
            rank,
            first: layout.shares,
            seats: RefCell::new(vec![Seat::Empty; layout.workers]),
            own: ManuallyDrop::new(own),
            folder: folder.to_owned(),
            begun_ns: 0,
        };
        let is_late = rank >= elastic.first;
        let card = Card {
            address: node.address().context("this worker's address")?.into_bytes().to_vec(),
            words: elastic.own.ptr(0).to_words(),
        };
        let leave =
            |elastic: &Elastic| elastic.leave(&format!("card-{rank}"), &serde_json::to_string(&card)?);
        if !is_late {
            leave(&elastic)?;
        }
        for other in (0..elastic.first).filter(|other| *other != rank) {
            elastic.await_file(&format!("card-{other}"))?;
            elastic.meet(other)?;
        }
        if is_late {
            // From now on the others may find it: it knows all of them.
            leave(&elastic)?;
        } else {
            elastic.leave(&format!("ready-{rank}"), "")?;
        }
        if rank == 0 {
            for other in 0..elastic.first {
                elastic.await_file(&format!("ready-{other}"))?;
            }
            elastic.leave(BEGUN, &host::monotonic_ns().to_string())?;
        }
        elastic.begun_ns = elastic.await_file(BEGUN)?.trim().parse().context("when the replay began")?;
        Ok(elastic)
    }

    /// Milliseconds since all of the first were ready.
    #[must_use]
    pub(crate) fn now_ms(&self) -> u64 {
        host::monotonic_ns().saturating_sub(self.begun_ns) / 1_000_000
    }

    /// The number of a request that nobody has taken; it is this worker's now. `None` if the worker that
    /// gives them out has ended: then all are taken.
    ///
    /// # Errors
    /// Any other failure of the atomic.
    pub(crate) fn take_request(&self, layout: Layout) -> Result<Option<usize>, Error> {
        let next = self.ptr(Place { rank: 0, word: layout.words() });
        match next.and_then(|next| self.node.fetch_add(next, 1)) {
            Ok(number) => Ok(usize::try_from(number).ok()),
            Err(Error::PeerLost { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks whether one more worker has come, and meets it; true if there is one that was not known.
    ///
    /// # Errors
    /// If its card cannot be read.
    pub(crate) fn look_around(&self) -> Result<bool> {
        let late = self.first;
        let known = late == self.rank || !matches!(self.seats.borrow()[late], Seat::Empty);
        if known || !self.folder.join(format!("card-{late}")).exists() {
            return Ok(false);
        }
        self.meet(late)?;
        Ok(true)
    }

    /// Waits for one more worker's card, if one has been announced: it is about to meet this one.
    ///
    /// # Errors
    /// If it leaves none within half a minute.
    pub(crate) fn await_announced(&self) -> Result<()> {
        if self.rank != self.first && self.folder.join(ANNOUNCED).exists() {
            self.await_file(&format!("card-{}", self.first))?;
        }
        Ok(())
    }

    /// Bytes by mechanism, and operations by the reason for their path, of all that this worker did.
    #[must_use]
    pub(crate) fn counts(&self) -> Done {
        job::counts(&self.node)
    }

    /// The most bytes that were registered here at a time, so far.
    #[must_use]
    pub(crate) fn pinned_peak_bytes(&self) -> u64 {
        self.node.registrations().table.pinned_peak
    }

    fn meet(&self, other: usize) -> Result<()> {
        let card =
            fs::read_to_string(self.folder.join(format!("card-{other}"))).context("a worker's card")?;
        let card: Card = serde_json::from_str(&card).context("a worker's card")?;
        let seat = match self.node.connect_to(&card.address) {
            Ok(number) => Seat::Taken(number, GlobalPtr::from_words(card.words).at(number)),
            // Gone, or about to go, and saying so.
            Err(ConnectError::Gone | ConnectError::Unreachable { .. } | ConnectError::Declined(_)) => {
                Seat::Left
            }
            Err(error) => return Err(error).with_context(|| format!("meeting worker {other}")),
        };
        self.seats.borrow_mut()[other] = seat;
        Ok(())
    }

    /// Leaves a file for the others, all of it or nothing.
    fn leave(&self, name: &str, text: &str) -> Result<()> {
        let beside = self.folder.join(format!(".{name}"));
        let leaving = || format!("leaving {name} for the other workers");
        fs::write(&beside, text).with_context(leaving)?;
        fs::rename(&beside, self.folder.join(name)).with_context(leaving)
    }

    fn await_file(&self, name: &str) -> Result<String> {
        let (begun, file) = (Instant::now(), self.folder.join(name));
        loop {
            match fs::read_to_string(&file) {
                Ok(text) => return Ok(text),
                Err(_) if begun.elapsed() < PATIENCE => {
                    while self.node.progress() {}
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => bail!("another worker has not left {name} within {PATIENCE:?}: {error}"),
            }
        }
    }

    fn ptr(&self, at: Place) -> Result<GlobalPtr<u64>, Error> {
        if at.rank == self.rank {
            return Ok(self.own.ptr(at.word));
        }
        match self.seats.borrow()[at.rank] {
            Seat::Taken(_, words) => Ok(words.add(at.word)),
            Seat::Empty | Seat::Left => Err(lost(at.rank)),
        }
    }
}

/// When all of the first were ready, by the clock that they share.
pub(super) const BEGUN: &str = "begun";
/// That one more worker is being started: who is done waits for it.
pub(super) const ANNOUNCED: &str = "announced";

fn lost(rank: usize) -> Error {
    Error::PeerLost { peer: rank as Rank }
}

impl Words for Elastic {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.seats.borrow().len()
    }

    fn read(&self, at: Place, words: &mut [u64]) -> Result<(), Error> {
        read(&self.node, self.ptr(at)?, words)
    }

    fn write(&self, at: Place, words: &[u64]) -> Result<(), Error> {
        write(&self.node, self.ptr(at)?, words)
    }

    fn compare_swap(&self, at: Place, expected: u64, new: u64) -> Result<u64, Error> {
        self.node.compare_swap(self.ptr(at)?, expected, new)
    }

    fn keeper(&self, share: usize) -> usize {
        let late = self.first;
        let seats = self.seats.borrow();
        let is_there = self.rank == late || matches!(seats[late], Seat::Taken(..));
        // Who joins was not there when a share was lost, and so begins with an empty one.
        if matches!(seats[share], Seat::Left) && is_there { late } else { share }
    }
}

impl Peers for Elastic {
    fn pull(&self, owner: usize, addresses: &[u64], pieces: &mut Pieces) -> Result<(), Error> {
        let seat = self.seats.borrow()[owner];
        match seat {
            Seat::Taken(number, _) => job::pull(&self.node, number, addresses, pieces),
            Seat::Empty | Seat::Left => Err(lost(owner)),
        }
    }

    fn lost(&self) -> Vec<usize> {
        let dead = self.node.lost_peers();
        let mut seats = self.seats.borrow_mut();
        for seat in seats.iter_mut() {
            if matches!(seat, Seat::Taken(number, _) if dead.contains(number)) {
                *seat = Seat::Left;
            }
        }
        (0..seats.len()).filter(|rank| matches!(seats[*rank], Seat::Left)).collect()
    }

    fn wait_until(&self, condition: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.node.wait_until(condition)
    }
}
