//! `standpipe-study kv`: starts the workers, listens to them, and tells what came of it.

use std::{env, process::ExitCode, sync::Arc};

use anyhow::{Context, Result, bail};
use block_directory::WORKERS_MAX;
use clap::Args;
use standpipe::launch::{End, Launch, Stream};

use super::{
    args::{FULL, KvArgs, SHORT},
    outcome::{Outcome, Record},
    part::Part,
    phased, phases,
    plan::Plan,
    progress::Progress,
    report::Report,
    statistics::{Statistics, favourite_share},
    worth::{self, WithoutPulling},
};
use crate::qemu::{self, VmArgs};
use crate::study::ranks::{self, RankPlan};
use crate::study::subcommand::Subcommand;
use measure::units::{bytes, counted, grouped};
use measure::{
    machine::{self, Load},
    report::output::{Output, OutputArgs},
    signals,
    table::{self, Layout},
    transport::{Chosen, TransportArgs, look_for},
    usage_error::UsageError,
};

/// `standpipe-study kv`.
pub(crate) static STUDY: Subcommand<StudyArgs> = Subcommand {
    name: Part::NAME,
    about: "Workers pull each other's key-value-cache blocks out of ordinary memory",
    checks_settings: true,
    run,
    rank: Some(ranks::run_plan::<Part>),
};

/// Arguments of `standpipe-study kv`.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    kv: KvArgs,
    /// Kill a worker when a third of the requests are served, and let another join when two thirds are
    #[arg(long)]
    phases: bool,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    vm: VmArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the study. The command fails if a byte was wrong, or a worker was lost.
///
/// # Errors
/// If the arguments do not fit together, the trace cannot be read, the workers cannot be started, or the
/// results cannot be written.
fn run(args: &StudyArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.transport.is_named()) {
        return ended;
    }
    let plan = args.kv.plan().map_err(UsageError::new)?;
    if args.phases && !(2..WORKERS_MAX as u64).contains(&args.kv.workers) {
        let most = WORKERS_MAX - 1;
        return Err(
            UsageError::new(format_args!("--phases wants 2 to {most} workers: one dies, one joins")).into()
        );
    }
    let chosen = args.transport.choose()?;
    let requests = args.kv.requests().map_err(anyhow::Error::from).map_err(UsageError::new)?;
    let (trace, favourite_share) = (Statistics::of(&requests), favourite_share(&requests));
    check_room(&args.kv, plan, trace.distinct_blocks as u64)?;
    tell_of_a_short_trace(&args.kv, trace.requests as u64);
    // Rather now than after half a minute.
    let output = Output::make(&args.output)?;
    look_for(&chosen.transport)?;
    machine::mind_load();
    machine::UNOPTIMISED.into_iter().for_each(signals::say);
    let requests = trace.requests as u64;
    let mut record = match args.phases {
        true => phases::replay(&args.kv, chosen.clone(), requests)?,
        false => replay(&args.kv, chosen.clone(), requests)?,
    };
    record.make_us = args.kv.compute_us as f64;
    if !args.phases && record.losses().is_none() {
        record.without_pulling = without_pulling(&args.kv, &chosen, &record)?;
    }
    let outcome = Outcome::of(&record);
    let report = Report { favourite_share, ..report(args, plan, &trace, &record, &outcome) };
    let layout = Layout::of_stdout();
    let phases = phased::grid(&outcome).map_or_else(String::new, |grid| format!("\n\n{}", grid.text(layout)));
    let load = Load::before().map(Load::words);
    let answer = outcome.verdict.as_ref().map(|verdict| format!("Is pulling worth it? {}", verdict.text()));
    let told = [load, answer].into_iter().flatten();
    let told: String = told.map(|text| table::wrapped(&text, layout) + "\n\n").collect();
    let short = short_form(&args.kv).map_or_else(String::new, |text| format!("\n\n{text}"));
    let text = format!("{told}{}{phases}{short}", outcome.table().text(layout));
    output.deliver(&report.html(), &text, &outcome)?;
    exit(&outcome, &record)
}

/// That this was the short form, and how to have the other, where it was.
fn short_form(args: &KvArgs) -> Option<String> {
    let (short, full) = (SHORT as u64, FULL as u64);
    args.is_short().then(|| format!("short form: {short} requests; --full replays {}", grouped(full)))
}

/// Refuses a cap that is more than this machine has, and blocks of all workers together that are.
fn check_room(args: &KvArgs, plan: Plan, different_blocks: u64) -> Result<(), UsageError> {
    let cap = plan.cap_bytes as u64;
    let holders = if plan.keep_copies { args.workers } else { 1 };
    let wanted = different_blocks.saturating_mul(plan.block_bytes() as u64).saturating_mul(holders);
    let held = cap.saturating_mul(args.workers).min(wanted);
    machine::check_room(cap.max(held), &format!("holding blocks with --cap {}", args.cap))
}

fn tell_of_a_short_trace(args: &KvArgs, there: u64) {
    if let (Some(file), Some(wanted)) = (&args.trace, args.requests)
        && wanted > there
    {
        let there = counted(there, "request");
        signals::complain(format_args!(
            "standpipe: {} has {there}, fewer than the {wanted} asked for",
            file.display()
        ));
    }
}

/// Runs the workers to their end.
fn replay(args: &KvArgs, chosen: Chosen, requests: u64) -> Result<Record> {
    let workers = usize::try_from(args.workers)?;
    let progress = Arc::new(Progress::new(workers, requests));
    let listener = Arc::clone(&progress);
    let teller = Arc::clone(&progress);
    let job = Launch::new(env::current_exe().context("this program's own file")?);
    let outcome = chosen
        .tell(job)
        .args(ranks::words(&Part::Worker(args.clone()))?)
        .ranks(u32::try_from(workers)?)
        .keep_going(true)
        .say(move |text| teller.show(&format!("standpipe: {text}")))
        .on_line(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line);
            if stream != Stream::Stdout || !listener.hear(rank as usize, &line) {
                listener.show(&format!("[{rank}] {line}"));
            }
        })
        .run()?;
    let mut record = progress.finish();
    if record.done.iter().all(Option::is_none) {
        let how: Vec<String> = outcome.ranks.iter().map(|rank| rank.end.to_string()).collect();
        bail!("no worker came to its end: the first {}", how.first().map_or("never started", String::as_str));
    }
    record.wanted = requests;
    record.chosen = chosen;
    record.gave_up = outcome.ranks.iter().map(|rank| matches!(rank.end, End::Exited(_))).collect();
    Ok(record)
}

/// The first of the requests by turns without pulling and with it; `None` where those would be fewer than the
/// workers.
fn without_pulling(args: &KvArgs, chosen: &Chosen, replayed: &Record) -> Result<Option<WithoutPulling>> {
    let compared = worth::compared(usize::try_from(replayed.wanted)?);
    if compared < replayed.ticks.len() || replayed.ticks.len() < 2 {
        return Ok(None);
    }
    let requests = compared as u64;
    let mut passes = Vec::new();
    for pulling in worth::PASSES {
        let args = KvArgs {
            requests: Some(requests),
            full: false,
            no_pulls: !pulling,
            only_serve: true,
            ..args.clone()
        };
        passes.extend(replay(&args, chosen.clone(), requests)?.pass(pulling));
    }
    Ok(WithoutPulling::of(requests, passes))
}

/// The exit status of a run that was delivered.
fn exit(outcome: &Outcome, record: &Record) -> Result<ExitCode> {
    if outcome.mismatched_bytes > 0 {
        bail!("{} of {} bytes pulled were wrong", outcome.mismatched_bytes, outcome.verified_bytes);
    }
    // One that was to be killed is no failure.
    let wanted = usize::from(record.killed_ms.is_some());
    match record.losses() {
        Some(losses) if outcome.workers_lost > wanted => bail!("{losses}"),
        _ if wanted > record.joined_ms.iter().count() => bail!("the worker that was to join did not come"),
        _ => {}
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
    let form = short_form(&args.kv).map(|text| row("form", text));
    Report {
        outcome,
        record,
        trace,
        trace_name: match &args.kv.trace {
            Some(file) => file.display().to_string(),
            None => format!("generated from seed {}", args.kv.seed),
        },
        favourite_share: 0.0,
        keep_copies: plan.keep_copies,
        setup: Vec::from_iter(form)
            .into_iter()
            .chain([
                row("build", outcome.build.to_owned()),
                row(
                    "load average after it",
                    outcome.load_average.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}")),
                ),
                row("workers", outcome.workers.to_string()),
                row("reached by", record.chosen.to_string()),
                row("memory for blocks, each", bytes(plan.cap_bytes as u64)),
                row("a block", bytes(plan.block_bytes() as u64)),
                row("pieces of a block", format!("{} of {}", plan.layers, bytes(plan.piece_bytes as u64))),
                row("computing a block takes", format!("{} µs", grouped(plan.compute.as_micros() as u64))),
                row("blocks pulled are", copies.to_owned()),
            ])
            .collect(),
        machine: machine::facts(),
        command: command(args, &record.chosen),
    }
}

/// The command line that repeats a run.
fn command(args: &StudyArgs, chosen: &Chosen) -> String {
    let phases = args.phases.then(|| "--phases".to_owned());
    let words = [args.kv.to_words(), chosen.words(), Vec::from_iter(phases)].concat();
    format!("standpipe-study kv {}{}", words.join(" "), qemu::word())
}
