//! A kernel's rank: arrays in ordinary memory that peers put to, synchronisation, counting and recording.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use sim::recording::{Action, Array, Transfer};
use standpipe::{HandlerId, Mechanism, Node, Operation, Rank, Remote, Stats, launch::RANKS_MAX};

use super::{
    plan::WORD_BYTES,
    rank_lines::{Done, Line, RankResult},
    recorder::Recorder,
};
use measure::job_config;
use measure::json_lines::tell;

/// One rank of a kernel, with its node. For one thread.
#[derive(Debug)]
pub(super) struct Job {
    node: Node,
    signal: HandlerId,
    /// Signals of each peer that have come, and how many of them were used up.
    come: Arc<[AtomicU64]>,
    used: Vec<u64>,
    arrays: Vec<Array>,
    recorder: Option<Recorder>,
    spoil: bool,
    puts: u64,
    bytes: u64,
    put_ns: u64,
    started: Instant,
    told: Instant,
    run: Duration,
    counted: Stats,
}

/// Memory of the same length at every rank for the others to put to: part of an ordinary allocation, that the
/// kernel never gives back. Whatever a peer does at whatever time, its words stay words.
#[derive(Debug)]
pub(super) struct Inbox {
    words: &'static [AtomicU64],
    /// Where it lies at each rank.
    addrs: Vec<u64>,
}

/// Bytes of a page, as the models that replay recordings have it.
const PAGE_BYTES: usize = 4096;

/// So many words, 0, that begin with a page: recordings then touch the same pages wherever the allocator has
/// room.
fn zeros_from_a_page_on(words: usize) -> &'static [AtomicU64] {
    let slack = PAGE_BYTES / WORD_BYTES;
    let memory: Vec<AtomicU64> = (0..words + slack).map(|_| AtomicU64::new(0)).collect();
    let memory: &'static [AtomicU64] = memory.leak();
    let before = memory.as_ptr().addr().next_multiple_of(PAGE_BYTES) - memory.as_ptr().addr();
    &memory[before / WORD_BYTES..][..words]
}

impl Inbox {
    /// Copies the start of it out.
    pub(super) fn read(&self, into: &mut [u64]) {
        into.iter_mut().zip(self.words).for_each(|(word, from)| *word = from.load(Ordering::Relaxed));
    }
}

impl Job {
    /// Joins the job that the launcher started. With `record`, the steps from [`start`](Job::start) to
    /// [`stop`](Job::stop) are written to a file of this rank's in that directory. With `spoil`, the first
    /// put of rank 1 carries wrong words.
    ///
    /// # Errors
    /// If the job cannot be joined, or the file cannot be made.
    pub(super) fn join(record: Option<&Path>, spoil: bool) -> Result<Self> {
        let come: Arc<[AtomicU64]> = (0..RANKS_MAX).map(|_| AtomicU64::new(0)).collect();
        let counter = Arc::clone(&come);
        let config = job_config::config()?.handler(SIGNAL, move |call| {
            counter[call.from() as usize].fetch_add(1, Ordering::Release);
        });
        let node = Node::open(config).context("joining the kernel's job")?;
        let recorder = record.map(|directory| {
            Recorder::create(directory, node.rank() as usize).with_context(|| directory.display().to_string())
        });
        let now = Instant::now();
        Ok(Self {
            signal: node.handler(SIGNAL).expect("registered above"),
            used: vec![0; node.size() as usize],
            come,
            arrays: Vec::new(),
            recorder: recorder.transpose()?,
            spoil: spoil && node.rank() == 1,
            puts: 0,
            bytes: 0,
            put_ns: 0,
            started: now,
            told: now,
            run: Duration::ZERO,
            counted: node.stats(),
            node,
        })
    }

    /// This rank's number.
    #[must_use]
    pub(super) fn rank(&self) -> usize {
        self.node.rank() as usize
    }

    /// The number of ranks.
    #[must_use]
    pub(super) fn size(&self) -> usize {
        self.node.size() as usize
    }

    /// Makes an inbox of `words` words, as every rank does at the same time under the same name.
    ///
    /// # Errors
    /// If another rank does not.
    pub(super) fn inbox(&mut self, name: &str, words: usize) -> Result<Inbox> {
        let words = zeros_from_a_page_on(words);
        let addr = words.as_ptr().expose_provenance() as u64;
        self.arrays.push(Array { name: name.to_owned(), addr, len: size_of_val(words) as u64 });
        let directory = self.node.directory();
        directory.publish(&full_name(self.rank(), name), &addr.to_le_bytes())?;
        let find = |rank| {
            let bytes = directory.wait(&full_name(rank, name), PATIENCE)?;
            let addr = bytes.try_into().ok().with_context(|| format!("rank {rank}'s {name}"))?;
            Ok(u64::from_le_bytes(addr))
        };
        let addrs = (0..self.size()).map(find).collect::<Result<_>>()?;
        Ok(Inbox { words, addrs })
    }

    /// Says that puts will come out of this memory, which stays where it is.
    pub(super) fn owns<T>(&mut self, name: &str, memory: &[T]) {
        let addr = memory.as_ptr().addr() as u64;
        self.arrays.push(Array { name: name.to_owned(), addr, len: size_of_val(memory) as u64 });
    }

    /// Waits for all ranks, and counts from then on.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(super) fn start(&mut self) -> Result<()> {
        self.node.barrier()?;
        self.counted = self.node.stats();
        self.started = Instant::now();
        self.told = self.started;
        if let Some(recorder) = &mut self.recorder {
            recorder.restart();
        }
        Ok(())
    }

    /// Waits for all ranks, and counts no more.
    ///
    /// # Errors
    /// If a rank is lost, or the recording cannot be written.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.barrier()?;
        self.run = self.started.elapsed();
        Ok(())
    }

    /// Puts words into a peer's inbox, `at` words from its start; they are there at return.
    ///
    /// # Errors
    /// If the peer is lost, or the recording cannot be written.
    pub(super) fn put(&mut self, peer: usize, inbox: &Inbox, at: usize, from: &[u64]) -> Result<()> {
        let (rank, room) = (self.rank(), inbox.words.len());
        ensure!(peer != rank && peer < inbox.addrs.len(), "rank {rank} puts to rank {peer}");
        let fits = at.checked_add(from.len()).is_some_and(|end| end <= room);
        ensure!(fits, "{} words at {at} of an inbox of {room}", from.len());
        let remote = inbox.addrs[peer] + (at * WORD_BYTES) as u64;
        // SAFETY: the address comes from the peer, which runs this very program and made its inbox as long as
        // this one, so the check above keeps the bytes within it. Its words are atomic, have no invalid
        // value, are read by a peer that expects them to change, and are never freed.
        let to = unsafe { Remote::raw(peer as Rank, remote) };
        let wrong: Vec<u64>;
        let bytes = if std::mem::take(&mut self.spoil) {
            wrong = from.iter().map(|word| !word).collect();
            bytemuck::cast_slice(&wrong)
        } else {
            bytemuck::cast_slice(from)
        };
        let compute_ns = self.computed_ns();
        let start = Instant::now();
        self.node.put_bytes(to, bytes)?;
        let end = Instant::now();
        self.put_ns += (end - start).as_nanos() as u64;
        self.puts += 1;
        self.bytes += bytes.len() as u64;
        if end - self.told >= INTERVAL {
            self.told = end;
            tell(&Line::Puts(self.puts))?;
        }
        let (local, len) = (from.as_ptr().addr() as u64, bytes.len() as u64);
        self.write(compute_ns, Action::Put(Transfer { peer: peer as u32, remote, local, len }))
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// If a rank is lost, or the recording cannot be written.
    pub(super) fn barrier(&mut self) -> Result<()> {
        let compute_ns = self.computed_ns();
        self.node.barrier()?;
        self.write(compute_ns, Action::Barrier)
    }

    /// Waits until a peer calls this for this rank, too. What the peer put here before is then in its inbox.
    ///
    /// # Errors
    /// If the peer is lost, or the recording cannot be written.
    pub(super) fn meet(&mut self, peer: usize) -> Result<()> {
        let compute_ns = self.computed_ns();
        self.node.request(peer as Rank, self.signal, [0; 4])?;
        self.write(compute_ns, Action::Signal { peer: peer as u32 })?;
        let compute_ns = self.computed_ns();
        self.used[peer] += 1;
        let here = || self.come[peer].load(Ordering::Acquire) >= self.used[peer];
        let lost = || self.node.lost_peers().contains(&(peer as Rank));
        self.node.wait_until(|| here() || lost())?;
        if !here() {
            bail!("rank {peer} is lost");
        }
        self.write(compute_ns, Action::Wait { peer: peer as u32 })
    }

    /// Ends the recording, leaves the job once all ranks do, and gives what this one did.
    ///
    /// # Errors
    /// If a rank is lost, or the recording cannot be written.
    pub(super) fn finish(self, result: RankResult) -> Result<Done> {
        let steps = self.recorder.map(Recorder::finish).transpose().context(RECORDING)?;
        let stats = self.node.stats();
        // The heap carries nothing of the kernel's.
        let mechanisms = [Mechanism::Cma, Mechanism::Message].into_iter().map(|mechanism| {
            let bytes = |stats: &Stats| stats.get(Operation::Put, mechanism).bytes;
            (mechanism.name().to_owned(), bytes(&stats) - bytes(&self.counted))
        });
        let mechanisms: BTreeMap<_, _> = mechanisms.filter(|(_, bytes)| *bytes > 0).collect();
        self.node.barrier()?;
        Ok(Done {
            puts: self.puts,
            bytes: self.bytes,
            put_ns: self.put_ns,
            run_ns: self.run.as_nanos() as u64,
            mechanisms,
            result,
            arrays: self.arrays,
            steps: steps.unwrap_or(0),
        })
    }

    fn computed_ns(&self) -> u64 {
        self.recorder.as_ref().map_or(0, Recorder::computed_ns)
    }

    fn write(&mut self, compute_ns: u64, action: Action) -> Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        recorder.write(compute_ns, action).context(RECORDING)
    }
}

const SIGNAL: &str = "kernel signal";
const RECORDING: &str = "writing the recording";
/// Starting the last of a few dozen processes takes far less.
const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(200);

fn full_name(rank: usize, name: &str) -> String {
    format!("kernel: {name} of {rank}")
}
