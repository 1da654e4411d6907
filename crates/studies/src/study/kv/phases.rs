//! A replay during which a worker is killed and another joins: starts the workers, kills one, starts another,
//! and listens.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread,
};

use anyhow::{Context, Result, bail};
use standpipe::host;

use super::{
    args::KvArgs,
    elastic::{ANNOUNCED, BEGUN},
    elastic_worker::Guest,
    outcome::Record,
    part::Part,
    progress::Progress,
};
use crate::study::ranks::words;
use measure::{
    json_lines, scratch,
    signals::{self, Leftover},
    transport::Chosen,
};

/// The worker that is killed. It is not the first, which gives out the requests' numbers.
const VICTIM: usize = 1;

/// Runs the workers to their end. One is killed when a third of the requests are served, and another started
/// when two thirds are.
///
/// # Errors
/// If a process cannot be started, or none comes to its end.
pub(crate) fn replay(args: &KvArgs, chosen: Chosen, requests: u64) -> Result<Record> {
    let workers = usize::try_from(args.workers)?;
    let folder = scratch::folder().context("workers find each other in a folder")?;
    Leftover::Folder(folder.path().to_owned()).note();
    let progress = Progress::new(workers + 1, requests);
    let (told, heard) = channel();
    let mut guests = Guests { children: Vec::new(), told };
    for rank in 0..workers {
        guests.start(args, &chosen, rank, folder.path())?;
    }
    let (mut running, mut killed_ms, mut joined_ms) = (workers, None, None);
    let mut late = false;
    while running > 0 {
        let (rank, line) = heard.recv().context("all workers have been started by this very thread")?;
        let Some(line) = line else {
            running -= 1;
            continue;
        };
        if !progress.hear(rank, &line) {
            progress.show(&format!("[{rank}] {line}"));
        }
        if rank == workers && joined_ms.is_none() {
            joined_ms = tick_ms(&line);
        }
        let served = progress.served();
        if killed_ms.is_none() && 3 * served >= requests {
            guests.kill(VICTIM)?;
            killed_ms = since_begun_ms(folder.path());
        }
        if !late && 3 * served >= 2 * requests {
            fs::write(folder.path().join(ANNOUNCED), "").context("announcing another worker")?;
            guests.start(args, &chosen, workers, folder.path())?;
            (late, running) = (true, running + 1);
        }
    }
    let gave_up = guests.collect()?;
    let mut record = progress.finish();
    if record.done.iter().all(Option::is_none) {
        bail!("no worker came to its end");
    }
    (record.wanted, record.chosen, record.gave_up) = (requests, chosen, gave_up);
    (record.killed_ms, record.joined_ms) = (killed_ms, joined_ms);
    Ok(record)
}

/// When a worker told this, if it is a tick.
fn tick_ms(line: &str) -> Option<u64> {
    match json_lines::decode(line)? {
        super::worker_lines::Line::Tick(tick) => Some(tick.at_ms),
        _ => None,
    }
}

/// Milliseconds since all of the first workers were ready.
fn since_begun_ms(folder: &Path) -> Option<u64> {
    let begun: u64 = fs::read_to_string(folder.join(BEGUN)).ok()?.trim().parse().ok()?;
    Some(host::monotonic_ns().saturating_sub(begun) / 1_000_000)
}

/// Workers that run, by their numbers, and to whom their lines go; `None` is the end of a worker's.
struct Guests {
    children: Vec<Child>,
    told: Sender<(usize, Option<String>)>,
}

impl Guests {
    fn start(&mut self, args: &KvArgs, chosen: &Chosen, rank: usize, folder: &Path) -> Result<()> {
        let mut command = Command::new(env::current_exe().context("this program's own file")?);
        let part = Part::Guest(Guest { rank, folder: folder.as_os_str().to_owned(), kv: args.clone() });
        command.args(words(&part)?);
        // Nobody's rank, whatever this program was started by.
        command.envs(chosen.settings()).env("STANDPIPE_LAUNCHER", "none").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = signals::undisturbed(|| command.spawn()).context("starting a worker")?;
        let out = BufReader::new(child.stdout.take().context("it is piped")?);
        self.children.push(child);
        let told = self.told.clone();
        let listen = move || {
            // With nobody to tell there is nobody to listen for.
            for line in out.lines().map_while(Result::ok) {
                let _ = told.send((rank, Some(line)));
            }
            let _ = told.send((rank, None));
        };
        thread::Builder::new().name(format!("worker {rank}")).spawn(listen).context("a thread to listen")?;
        Ok(())
    }

    /// As `kill -9` does.
    fn kill(&mut self, rank: usize) -> Result<()> {
        self.children[rank].kill().context("killing a worker")
    }

    /// Which workers exited, rather than being killed, with a failure; to be called when all have ended.
    fn collect(&mut self) -> Result<Vec<bool>> {
        let gave_up = |child: &mut Child| {
            let status = child.wait().context("a worker's end")?;
            Ok(status.code().is_some_and(|code| code != 0))
        };
        self.children.iter_mut().map(gave_up).collect()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Most have ended, and been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
