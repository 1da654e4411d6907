//! `standpipe top`: a running job, as it is now and again a second later.

mod latency;
mod metrics;
mod peers;
mod report;
mod screen;
mod text;

use std::io;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use measure::signals;
use measure::stdout::{self, Reader};
use measure::table::{Layout, is_screen};
use measure::units::{at_least, seconds};
use standpipe::watch::{Job, Snapshot, jobs};

use crate::elsewhere::{self, Far};

use self::peers::{WithPeers, lines};
use self::report::Report;
use self::screen::{Screen, Showing, Wish};

const INTERVAL: Duration = Duration::from_secs(1);
/// The job does a little for each look; more often than this nobody reads.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const UNSEEN: &str = "cannot look at the job any more";

/// Arguments of `standpipe top`.
#[derive(Debug, Args)]
#[command(after_help = text::COLUMNS)]
pub(crate) struct TopArgs {
    /// The launcher or any process of the job, or of a node that nobody launched; needed where several run
    #[arg(value_name = "PID", value_parser = at_least(1_u32))]
    pid: Option<u32>,
    /// Time between two looks: 1 unless given, 0.1 at least
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    interval: Option<Duration>,
    /// Show this many looks, each an interval after the one before, and leave
    #[arg(long, value_name = "N", value_parser = at_least(1_u64))]
    count: Option<u64>,
    /// Show one interval as text and leave
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Print one JSON object and nothing else; with --interval or --count, one on each line
    #[arg(long)]
    json: bool,
    /// Print one look as OpenMetrics text, for collectors, and leave: what each rank has counted since it
    /// began, of all jobs unless one is named
    #[arg(long, conflicts_with_all = ["json", "count", "interval", "peers"])]
    openmetrics: bool,
    /// Show how one rank registers memory with each of its peers: rank 0 unless given. On a terminal p does
    /// so, and back
    #[arg(long, value_name = "RANK", num_args = 0..=1, default_missing_value = "0", value_parser = at_least(0_u32))]
    peers: Option<u32>,
}

/// Watches a job until it ends, the user leaves, or as often as asked.
///
/// # Errors
/// If there is no job to choose, it cannot be watched (any more), or standard output or the terminal fails.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    let jobs = jobs().context("cannot look for jobs in /proc")?;
    let far = if args.pid.is_none() { elsewhere::found() } else { Vec::new() };
    if args.openmetrics {
        let shown = match args.pid {
            Some(_) => vec![look_once(&choose(jobs, args.pid, &far)?)?],
            None => look_at_all(&jobs),
        };
        for one in &far {
            signals::complain(format_args!("standpipe: {}", one.sentence()));
        }
        print(metrics::text(&shown).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let job = choose(jobs, args.pid, &far)?;
    let mut watch = job.watch().context("cannot watch the job")?;
    if let Some(rank) = args.peers.filter(|rank| *rank >= watch.size()) {
        bail!("there is no rank {rank}: the job has {}, from 0 on", watch.size());
    }
    let interval = args.interval.unwrap_or(INTERVAL);
    let single = args.once || args.json && args.interval.is_none() && args.count.is_none();
    let count = if single { Some(1) } else { args.count };
    let report =
        |before: &Snapshot, now: &Snapshot| Report { far: far.clone(), ..Report::of(&job, before, now) };
    let mut view = View::open(args)?;
    let mut before = watch.look().context(UNSEEN)?;
    if let View::Screen(screen) = &mut view {
        screen.draw(&report(&before, &before))?;
    }
    for shown in 1.. {
        if !before.ended && view.wait(Instant::now() + interval)? == Wish::Leave {
            return Ok(ExitCode::SUCCESS);
        }
        let now = watch.look().context(UNSEEN)?;
        let report = report(&before, &now);
        if view.show(&report)? == Wish::Leave {
            return Ok(ExitCode::SUCCESS);
        }
        if now.ended || Some(shown) == count {
            return view.close(&report).map(|()| ExitCode::SUCCESS);
        }
        before = now;
    }
    unreachable!("nobody looks so often")
}

/// A job as it is now.
fn look_once(job: &Job) -> Result<Report> {
    let now = job.watch().context("cannot watch the job")?.look().context(UNSEEN)?;
    Ok(Report::of(job, &now, &now))
}

/// All jobs as they are now, at the same time: some may be stopped. Standard error
/// names each that cannot be looked at.
fn look_at_all(jobs: &[Job]) -> Vec<Report> {
    let looks: Vec<_> = std::thread::scope(|scope| {
        let thread = |job| std::thread::Builder::new().spawn_scoped(scope, move || look_once(job));
        let threads: Vec<_> = jobs.iter().map(thread).collect();
        let end = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("looking does not panic");
        // Where there could be no more threads, this one looks.
        let looks = jobs.iter().zip(threads).map(|(job, thread)| thread.map_or_else(|_| look_once(job), end));
        looks.collect()
    });
    let seen = jobs.iter().zip(looks).filter_map(|(job, look)| {
        let told = |error| {
            signals::complain(format_args!(
                "standpipe: {} of process {}: {error:#}",
                job.program(),
                job.launcher_pid()
            ))
        };
        look.map_err(told).ok()
    });
    seen.filter(|report| !report.ended).collect()
}

/// The job that `pid` is of, or the only one there is.
fn choose(mut jobs: Vec<Job>, pid: Option<u32>, far: &[Far]) -> Result<Job> {
    if let Some(pid) = pid {
        // A launcher may be a rank of another job.
        let launched = jobs.iter().position(|job| job.launcher_pid() == pid);
        return match launched.or_else(|| jobs.iter().position(|job| job.has(pid))) {
            Some(index) => Ok(jobs.swap_remove(index)),
            None if elsewhere::is_in_another_network(pid) => bail!(
                "process {pid} is in another network namespace (a container, perhaps), and no node there can be seen from here; \
                 to look there: {}",
                elsewhere::way_there(pid, &format!("top {pid}"))
            ),
            None => bail!("process {pid} is of no job of yours on this host{}", listed(&jobs, far)),
        };
    }
    match jobs.len() {
        0 if !far.is_empty() => {
            bail!("no job of yours runs in this network namespace; in others:{}", listed(&jobs, far))
        }
        0 => bail!(
            "no job of yours runs on this host, and no node that others can come to; start one with `standpipe run -n 4 -- PROGRAM`, and look again while \
             it runs"
        ),
        1 => Ok(jobs.remove(0)),
        several => {
            bail!("{several} jobs of yours run on this host; say which, by a PID{}", listed(&jobs, far))
        }
    }
}

fn listed(jobs: &[Job], far: &[Far]) -> String {
    let line = |job: &Job| {
        let what = if job.is_launched() { format!("{} ranks", job.size()) } else { "a node".to_owned() };
        format!("\n  standpipe top {:<8} {what} of {}", job.launcher_pid(), job.program())
    };
    jobs.iter().map(line).chain(far.iter().map(Far::line)).collect()
}

/// Where it is shown.
enum View {
    Screen(Screen),
    /// Of all ranks, or of the peers of one.
    Text(Option<u32>),
    Json(Option<u32>),
}

impl View {
    fn open(args: &TopArgs) -> Result<View> {
        Ok(match args {
            TopArgs { json: true, .. } => View::Json(args.peers),
            TopArgs { once: false, .. } if is_screen(&io::stdout()) => {
                View::Screen(Screen::open(Showing::of(args.peers)).context("cannot take over the terminal")?)
            }
            _ => View::Text(args.peers),
        })
    }

    /// Lets time pass until then.
    fn wait(&mut self, until: Instant) -> Result<Wish> {
        match self {
            View::Screen(screen) => Ok(screen.wait(until)?),
            View::Text(_) | View::Json(_) => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Ok(Wish::Stay)
            }
        }
    }

    fn show(&mut self, report: &Report) -> Result<Wish> {
        match self {
            View::Screen(screen) => screen.draw(report).map(|()| Wish::Stay).map_err(Into::into),
            View::Text(peers) => print(&lines(report, *peers, Layout::of_stdout()).join("\n")),
            View::Json(peers) => print(&serde_json::to_string(&WithPeers::of(report, *peers))?),
        }
    }

    /// Leaves the last figures where they can be read, and says so if the job is over.
    fn close(self, report: &Report) -> Result<()> {
        if let View::Screen(screen) = self {
            let peers = screen.showing().peers();
            drop(screen);
            print(&lines(report, peers, Layout::of_stdout()).join("\n"))?;
        }
        if report.ended {
            signals::complain(format_args!("standpipe: the job has ended"));
        }
        Ok(())
    }
}

/// Whoever has read enough wants to leave.
fn print(text: &str) -> Result<Wish> {
    Ok(match stdout::print(text)? {
        Reader::Listens => Wish::Stay,
        Reader::Gone => Wish::Leave,
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        short if short < INTERVAL_MIN => Err("0.1 at least".to_owned()),
        long if long > Duration::from_secs(86_400) => Err("a day at most".to_owned()),
        interval => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_neither_too_short_nor_without_end() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "0.09", "NaN", "1e9", "often"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_jobs_it_says_what_to_do() {
        let error = choose(Vec::new(), None, &[]).expect_err("nothing to choose").to_string();
        assert!(error.contains("standpipe run"), "{error}");
        let error = choose(Vec::new(), Some(1), &[]).expect_err("nothing to choose").to_string();
        assert!(error.contains("process 1"), "{error}");
    }
}
