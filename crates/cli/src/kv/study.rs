//! `standpipe study kv`: starts the workers, listens to them, and tells what came of it.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use standpipe::launch::{Launch, Stream};

use super::{
    args::KvArgs,
    outcome::{Outcome, Record, bytes, grouped},
    plan::Plan,
    progress::Progress,
    report::Report,
    statistics::Statistics,
    worker_process::SUBCOMMAND,
};
use crate::machine;

/// Arguments of `standpipe study kv`.
#[derive(Debug, Args)]
pub struct StudyArgs {
    #[command(flatten)]
    kv: KvArgs,
    /// Directory for report.html and result.json
    #[arg(long, default_value = "out", value_name = "DIR")]
    out: PathBuf,
    /// Print the result as one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs the study. The command fails if a byte was wrong, or a worker died.
///
/// # Errors
/// If the arguments do not fit together, the trace cannot be read, the workers cannot be started, or the results
/// cannot be written.
pub fn run(args: &StudyArgs) -> Result<ExitCode> {
    let plan = args.kv.plan().map_err(anyhow::Error::msg)?;
    let trace = Statistics::of(&args.kv.requests()?);
    // Rather now than after half a minute.
    fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let record = replay(&args.kv, trace.requests as u64)?;
    let outcome = Outcome::of(&record);
    let report = report(args, plan, &trace, &record, &outcome);
    let page = write(&args.out, "report.html", &report.html())?;
    write(&args.out, "result.json", &serde_json::to_string_pretty(&outcome)?)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&outcome)?)?;
    } else {
        writeln!(out, "{}\n\nreport: {}", outcome.table(), page.display())?;
    }
    verdict(&outcome)
}

/// Runs the workers to their end.
fn replay(args: &KvArgs, requests: u64) -> Result<Record> {
    let workers = usize::try_from(args.workers)?;
    let progress = Arc::new(Progress::new(workers, requests));
    let listener = Arc::clone(&progress);
    let teller = Arc::clone(&progress);
    let outcome = Launch::new(env::current_exe().context("this program's own file")?)
        .arg(SUBCOMMAND)
        .args(args.to_words())
        .ranks(u32::try_from(workers)?)
        .keep_going(true)
        .say(move |text| teller.show(text))
        .on_line(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line);
            if stream != Stream::Stdout || !listener.hear(rank as usize, &line) {
                listener.show(&format!("[{rank}] {line}"));
            }
        })
        .run()?;
    let record = progress.finish();
    if record.done.iter().all(Option::is_none) {
        let how: Vec<String> = outcome.ranks.iter().map(|rank| rank.end.to_string()).collect();
        bail!("no worker came to its end: the first {}", how.first().map_or("never started", String::as_str));
    }
    Ok(record)
}

fn verdict(outcome: &Outcome) -> Result<ExitCode> {
    if outcome.mismatched_bytes > 0 {
        bail!("{} of {} bytes pulled were wrong", outcome.mismatched_bytes, outcome.verified_bytes);
    }
    if outcome.workers_lost > 0 {
        bail!("{} of {} workers died", outcome.workers_lost, outcome.workers);
    }
    Ok(ExitCode::SUCCESS)
}

fn report<'a>(
    args: &StudyArgs,
    plan: Plan,
    trace: &'a Statistics,
    record: &'a Record,
    outcome: &'a Outcome,
) -> Report<'a> {
    let row = |what: &str, value: String| (what.to_owned(), value);
    let copies = if plan.keep_copies { "kept" } else { "used and dropped" };
    Report {
        outcome,
        record,
        trace,
        trace_name: match &args.kv.trace {
            Some(file) => file.display().to_string(),
            None => format!("generated from seed {}", args.kv.seed),
        },
        setup: vec![
            row("workers", outcome.workers.to_string()),
            row("memory for blocks, each", bytes(plan.cap_bytes as u64)),
            row("a block", bytes(plan.block_bytes() as u64)),
            row("pieces of a block", format!("{} of {}", plan.layers, bytes(plan.piece_bytes as u64))),
            row("computing a block takes", format!("{} µs", grouped(plan.compute.as_micros() as u64))),
            row("blocks pulled are", copies.to_owned()),
        ],
        machine: machine::facts(),
        command: format!("standpipe study kv {}", args.kv.to_words().join(" ")),
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
