//! One process of the study: it draws keys, sends each to whom it falls to, and sorts those that come.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use standpipe::{GlobalPtr, HeapArray, Node, Signal};

use super::plan::{Plan, Round, WIDTH};
use super::sort;
use crate::study::ranks::RankPlan;
use measure::job_config;
use measure::json_lines::tell;

/// A lost peer ends all waits but one; this ends that, too.
const PATIENCE: Duration = Duration::from_secs(60);

impl RankPlan for Plan {
    const NAME: &'static str = "isx";

    /// Runs a rank, telling on standard output what each sort came to.
    ///
    /// # Errors
    /// If the job cannot be joined, a peer is lost, too many keys fall to one process, or nobody listens.
    fn run(&self) -> Result<ExitCode> {
        let node = Node::open(job_config::config()?.timeout(PATIENCE)).context("joining the study's job")?;
        let sorter = Sorter::new(node, self)?;
        for round in 0..self.rounds {
            tell(&sorter.round(self, round)?)?;
        }
        sorter.node.barrier()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The words of a rank that others change: how many places of its room are taken, and how many have sent
/// their keys.
const RESERVED: usize = 0;
const ARRIVED: usize = 1;

/// A rank with room for the keys that fall to it.
struct Sorter {
    node: Node,
    room: HeapArray<u32>,
    words: HeapArray<u64>,
    /// Where each rank's room and words are.
    rooms: Vec<GlobalPtr<u32>>,
    notes: Vec<GlobalPtr<u64>>,
}

impl Sorter {
    fn new(node: Node, plan: &Plan) -> Result<Sorter> {
        let room = node.heap().alloc_zeroed::<u32>(usize::try_from(plan.room())?);
        let room = room.context("room for the keys that come")?;
        let words = node.heap().alloc_zeroed::<u64>(2).context("two words")?;
        let mut places = vec![[[0; 2]; 2]; node.size() as usize];
        node.world().all_gather(&[[room.ptr(0).to_words(), words.ptr(0).to_words()]], &mut places)?;
        let rooms = places.iter().map(|[room, _]| GlobalPtr::from_words(*room)).collect();
        let notes = places.iter().map(|[_, words]| GlobalPtr::from_words(*words)).collect();
        Ok(Sorter { node, room, words, rooms, notes })
    }

    fn round(&self, plan: &Plan, round: u32) -> Result<Round> {
        let keys = self.draw(plan, round)?;
        self.words.write(RESERVED, 0);
        self.words.write(ARRIVED, 0);
        self.node.barrier()?;
        let begun = Instant::now();
        let (mut ordered, begins) = sort::by_owner(&keys, self.node.size());
        let bucketed = begun.elapsed();
        if plan.spoil && self.node.rank() == 0 {
            ordered[0] ^= 1;
        }
        let came = self.exchange(plan, &ordered, &begins)?;
        let exchanged = begun.elapsed();
        let mut sorted = vec![0; came];
        self.room.read_slice(0, &mut sorted);
        sort::by_counting(&mut sorted, self.node.rank());
        let counted = begun.elapsed();
        self.node.barrier()?;
        let took = begun.elapsed();
        let ns = |time: Duration| time.as_nanos() as u64;
        Ok(Round {
            bucket_ns: ns(bucketed),
            exchange_ns: ns(exchanged - bucketed),
            sort_ns: ns(counted - exchanged),
            took_ns: ns(took),
            keys: sorted.len() as u64,
            misplaced: sort::misplaced(&sorted, self.node.rank()),
            hash_before: sort::hash(&keys),
            hash_after: sort::hash(&sorted),
        })
    }

    /// Keys as they fall, all equally likely.
    fn draw(&self, plan: &Plan, round: u32) -> Result<Vec<u32>> {
        let (rank, size) = (self.node.rank(), self.node.size());
        let end = size.checked_mul(WIDTH).context("as many keys as 32 bits hold")?;
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
        rng.set_stream(u64::from(round) << 32 | u64::from(rank));
        Ok((0..plan.keys).map(|_| rng.random_range(0..end)).collect())
    }

    /// Sends all keys: for each rank, places in its room are reserved by a fetch-add, and one put that
    /// signals fills them. Begins with the next rank, so that not all send to the same. Gives how many keys
    /// have come here.
    fn exchange(&self, plan: &Plan, ordered: &[u32], begins: &[usize]) -> Result<usize> {
        let (rank, size) = (self.node.rank(), self.node.size());
        for step in 1..=size {
            let to = ((u64::from(rank) + u64::from(step)) % u64::from(size)) as usize;
            let keys = &ordered[begins[to]..begins[to + 1]];
            let notes = self.notes[to];
            let at = self.node.fetch_add(notes.add(RESERVED), keys.len() as u64)?;
            let fits = at + keys.len() as u64 <= plan.room();
            ensure!(fits, "more keys fall to process {to} than the {} that it has room for", plan.room());
            let arrived = Signal::add(notes.add(ARRIVED), 1);
            self.node.put_signal_nbi(self.rooms[to].add(at as usize), keys, arrived)?;
        }
        self.node.wait_signal(self.words.ptr(ARRIVED), u64::from(size))?;
        Ok(usize::try_from(self.words.read(RESERVED))?)
    }
}
