//! One worker of a replay during which workers die and join: what `standpipe-study kv --phases` starts.

use std::{
    ffi::OsString,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use block_directory::{Directory, Layout, Status};
use serde::{Deserialize, Serialize};
use standpipe::Node;

use super::{
    args::KvArgs,
    elastic::Elastic,
    statistics::Statistics,
    worker::{Worker, await_others},
    worker_lines::Line,
};
use measure::job_config;
use measure::json_lines::tell;

/// What such a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Guest {
    /// Its number; the one after those of --workers joins later.
    pub(super) rank: usize,
    /// Where workers find each other; an `OsString`, since serde refuses a path that is no UTF-8.
    pub(super) folder: OsString,
    pub(super) kv: KvArgs,
}

/// Serves requests that nobody has taken until there are none, telling on standard output of each, and stays
/// until the others need its blocks no more.
///
/// # Errors
/// If the others cannot be met, an operation fails for another reason than a peer's death, or nobody listens.
pub(super) fn run(args: &Guest) -> Result<ExitCode> {
    let plan = args.kv.plan().map_err(anyhow::Error::msg)?;
    let requests = args.kv.requests()?;
    let node = Node::open(job_config::config()?).context("opening a node")?;
    let blocks = Statistics::of(&requests).distinct_blocks;
    let layout = Layout::new(usize::try_from(args.kv.workers)?, blocks, plan.slots(), plan.layers).and_one();
    let elastic = Elastic::join(&node, args.rank, layout, Path::new(&args.folder))?;
    let before = elastic.counts();
    let (mut worker, begun) = (Worker::new(Directory::new(elastic, layout), plan), Instant::now());
    // That it is there.
    told(&mut worker)?;
    while let Some(number) = worker.directory().words().take_request(layout)? {
        let Some(request) = requests.get(number) else { break };
        worker.directory().words().look_around()?;
        worker.serve(request, |_| Ok(()))?;
        told(&mut worker)?;
    }
    wait_for_the_others(worker.directory(), begun.elapsed())?;
    tell(&Line::Done(worker.directory().words().counts().since(&before)))?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what was done since the last time.
fn told(worker: &mut Worker<Elastic>) -> Result<()> {
    let mut tick = worker.take_tick();
    let elastic = worker.directory().words();
    (tick.at_ms, tick.pinned_peak_bytes) = (elastic.now_ms(), elastic.pinned_peak_bytes());
    Ok(tell(&Line::Tick(tick))?)
}

/// Waits until every worker that lives, one that has joined late included, has served its last request.
fn wait_for_the_others(directory: &Directory<Elastic>, worked: Duration) -> Result<()> {
    directory.set_status(Status::Done);
    loop {
        await_others(directory, worked)?;
        directory.words().await_announced()?;
        if !directory.words().look_around()? {
            return Ok(());
        }
    }
}
