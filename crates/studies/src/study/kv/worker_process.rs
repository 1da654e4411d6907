//! One worker of the study as a process of its own: what `standpipe-study kv` starts.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use block_directory::{Directory, Layout, Status};
use standpipe::Node;

use super::{
    args::KvArgs,
    job::Job,
    statistics::Statistics,
    sweep,
    worker::{Worker, await_others},
    worker_lines::{Line, Tick},
    yardsticks,
};
use measure::job_config;
use measure::json_lines::tell;

/// Serves this worker's share of the requests, telling on standard output what it does, and stays until the
/// others need its blocks no more.
///
/// # Errors
/// If the job cannot be joined, an operation fails for another reason than a peer's death, or nobody listens.
pub(super) fn run(args: &KvArgs) -> Result<ExitCode> {
    let plan = args.plan().map_err(anyhow::Error::msg)?;
    let requests = args.requests()?;
    let node = Node::open(job_config::config()?).context("joining the study's job")?;
    let (rank, size) = (node.rank() as usize, node.size() as usize);
    let layout = Layout::new(size, Statistics::of(&requests).distinct_blocks, plan.slots(), plan.layers);
    let job = Job::join(&node, layout)?;
    let directory = Directory::new(job, layout);
    if plan.pulls && plan.examines {
        let sweep = sweep::run(&directory, plan.block_bytes())?;
        if !sweep.is_empty() {
            tell(&Line::Sweep(sweep))?;
        }
        if let Some(yardsticks) = yardsticks::run(&directory, &plan)? {
            tell(&Line::Yardsticks(yardsticks))?;
        }
    }
    let before = directory.words().counts();
    let (mut teller, begun) = (Teller::new(), Instant::now());
    let mut worker = Worker::new(directory, plan);
    for request in requests.iter().skip(rank).step_by(size) {
        worker.serve(request, |worker| {
            let pinned = worker.directory().words().pinned_peak_bytes();
            if teller.is_due(worker.tick()) { teller.tell(worker.take_tick(), pinned) } else { Ok(()) }
        })?;
    }
    let pinned = worker.directory().words().pinned_peak_bytes();
    teller.tell(worker.take_tick(), pinned)?;
    // Until then this worker's blocks may be wanted.
    worker.directory().set_status(Status::Done);
    await_others(worker.directory(), begun.elapsed())?;
    tell(&Line::Done(worker.directory().words().counts().since(&before)))?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what was done, a few times a second.
struct Teller {
    start: Instant,
    last: Instant,
}

impl Teller {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, last: start }
    }

    fn is_due(&self, tick: &Tick) -> bool {
        tick.pulls.len() >= PULLS_MAX || self.last.elapsed() >= INTERVAL
    }

    fn tell(&mut self, mut tick: Tick, pinned_peak_bytes: u64) -> Result<()> {
        self.last = Instant::now();
        tick.pinned_peak_bytes = pinned_peak_bytes;
        tick.at_ms = u64::try_from((self.last - self.start).as_millis())?;
        Ok(tell(&Line::Tick(tick))?)
    }
}

const INTERVAL: Duration = Duration::from_millis(200);
/// Keeps a line well below the length at which the launcher cuts it.
const PULLS_MAX: usize = 500;
