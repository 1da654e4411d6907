//! `standpipe perf`: the library beside the machine's own limits, in turn, in one run.

mod bandwidth;
pub mod case;
#[cfg(test)]
mod claims;
mod collectives;
mod completions;
mod flood;
pub mod flow;
mod flow_args;
mod memory;
mod messages;
mod misses;
mod pins;
pub mod placement;
pub mod row;
#[cfg(test)]
mod tests;
mod timing;
mod words;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use comfy_table::Cell;
use serde_json::{Value, json};
use standpipe::launch::{Launch, Stream};
use standpipe::limits::NEAR_MEDIUM_BYTES;
use standpipe::{Transport, host};

use self::case::{
    Case, Cores, Memory, Op, PROMISED, SHARED, Samples, Target, bound_for, far_bound, far_words,
    writes_by_itself,
};
use self::flow::Moves;
use self::flow_args::FlowArgs;
use self::placement::Placement;
use self::row::{Row, Verdict};
use crate::usage_error::UsageError;
use crate::{
    json_lines, machine, progress, signals,
    stdout::print,
    table::{self, Layout},
    transport,
    units::nanos,
    units::{at_least, parse_size},
};

/// The name of the hidden subcommand that runs one process of a measurement.
pub const SUBCOMMAND: &str = "perf-worker";

/// Grants that a node has, at most.
const GRANTS_MAX: usize = 1 << 20;

/// What to measure. Without an operation: everything that is promised, with its bound.
#[derive(Debug, Args)]
pub struct PerfArgs {
    /// The operation to measure; all that is promised if none is named
    #[arg(value_enum)]
    op: Option<Op>,
    /// Bytes of one piece, of a message's payload, or of each process in a collective; 64K is 65536
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<usize>,
    /// Pieces of a scattered get, or blocks of a strided put, or awaits of pending, or grants of share-many
    /// (1 or more); or processes of collectives, idle and open (2 to 256)
    #[arg(short, long, value_name = "N", value_parser = at_least(1_usize))]
    n: Option<usize>,
    /// Memory at the target
    #[arg(long, value_enum)]
    memory: Option<Memory>,
    /// What the target does meanwhile
    #[arg(long, value_enum)]
    target: Option<Target>,
    /// Put all processes on one core
    #[arg(long)]
    same_core: bool,
    #[command(flatten)]
    flow: FlowArgs,
    /// How the processes reach each other: shm, ofi or ofi:PROVIDER; over ofi only put, get, put-signal,
    /// flood and bandwidth, beside bare libfabric, miss and pin. Without it, as STANDPIPE_TRANSPORT says
    #[arg(long, value_name = "NAME", value_parser = transport::parse)]
    transport: Option<Transport>,
    /// Print one JSON object instead of a table: of the operation, or with the key `rows` of all of them
    #[arg(long)]
    json: bool,
}

/// What one process of a measurement is told.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The case, as JSON
    case: String,
}

/// Measures, and prints what came of it. A bound that does not hold is shown, and is no failure: the machine
/// may be busy.
///
/// # Errors
/// When a measurement cannot be made, or standard output fails.
pub fn run(args: &PerfArgs) -> Result<ExitCode> {
    let mut cases = cases(args).map_err(UsageError::new)?;
    let transport = transport::chosen(args.transport.as_ref()).map_err(UsageError::new)?;
    transport::refuse_unknown(&transport)?;
    if transport != Transport::Shm {
        cases = far_cases(&cases, args.op.is_some(), &transport).map_err(UsageError::new)?;
    } else if matches!(args.op, Some(Op::Miss | Op::Pin)) {
        return Err(UsageError::new(
            "nothing is registered within a host, pinned or missed: --transport ofi",
        )
        .into());
    }
    let missing = if args.op.is_none() && transport == Transport::Shm {
        leave_out_missing(&mut cases)
    } else {
        Vec::new()
    };
    transport::look_for(&transport)?;
    machine::mind_load();
    if let Some(warning) = machine::UNOPTIMISED {
        signals::complain(format_args!("standpipe: {warning}"));
    }
    let bar = progress::bar(cases.len() as u64, "{pos}/{len} {msg}");
    let mut rows = Vec::new();
    for case in &cases {
        bar.set_message(describe(case));
        let measured =
            || measure_over(case, &transport).with_context(|| format!("measuring {}", describe(case)));
        let row = measured()?;
        rows.push(if row.is_doubtful() { row.or(measured()?) } else { row });
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        print(to_json(&rows, args.op.is_some(), &missing)?)?;
    } else {
        let layout = Layout::of_stdout();
        let table = to_table(&rows, machine::is_busy());
        print(format_args!("{}\n{}", table.text(layout), legend(&rows, layout)))?;
        for text in rows.iter().flat_map(|row| [row.threads_in_words(), row.bytes_in_words()]).flatten() {
            print(table::wrapped(&text, layout))?;
        }
        for placement in &missing {
            print(table::wrapped(placement.missing(), layout))?;
        }
    }
    let of = |verdict| rows.iter().filter(|row| row.verdict == Some(verdict)).count();
    let (broken, unsteady) = (of(Verdict::Broken), of(Verdict::Unsteady));
    if broken + unsteady > 0 && !args.json {
        let busy = if machine::is_busy() { ", on a machine that others keep busy" } else { "" };
        let text = format!(
            "Of {} rows {broken} did not hold in this run, and {unsteady} were unsteady{busy}.",
            rows.len()
        );
        print(table::wrapped(&text, Layout::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes out cases between cores such as this host has not, and says which those are.
fn leave_out_missing(cases: &mut Vec<Case>) -> Vec<Placement> {
    let is_missing = |placement: &Placement| placement.pair().is_none();
    let missing: Vec<Placement> = Placement::ALL.into_iter().filter(is_missing).collect();
    cases.retain(|case| case.placement.is_none_or(|placement| !missing.contains(&placement)));
    missing
}

/// What the words of the table mean.
const LEGEND: &str = "ratio: our median by the limit's. bound: what the ratio is to stay within on an idle machine. A row holds, or \
                      is BROKEN; on a busy machine `beyond`. None changes the exit status.";

/// What stands under rows of several jobs besides.
const LEGEND_OF_JOBS: &str = "Some rows are measured in several jobs: times are medians over these. Such a row holds if its ratio is \
                              within the bound, and that of at least half of its jobs. If only one of both is so, it is unsteady. \
                              Beside the word stands how many jobs are within the bound, and their lowest and highest ratio.";

/// What stands under the table.
fn legend(rows: &[Row], layout: Layout) -> String {
    match rows.iter().any(|row| row.jobs > 1) {
        false => table::wrapped(LEGEND, layout),
        true => table::wrapped(&format!("{LEGEND} {LEGEND_OF_JOBS}"), layout),
    }
}

/// Runs one process of a measurement; rank 0 prints the samples.
///
/// # Errors
/// When the measurement cannot be made.
pub fn run_worker(args: &WorkerArgs) -> Result<ExitCode> {
    let case = serde_json::from_str(&args.case).context("the case")?;
    if let Some(samples) = worker::run(&case)? {
        json_lines::tell(&samples)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn cases(args: &PerfArgs) -> Result<Vec<Case>> {
    let Some(op) = args.op else {
        let composed = args.size.is_some() || args.n.is_some() || args.memory.is_some();
        if composed || args.target.is_some() || args.same_core || args.flow.is_given() {
            bail!("name the operation that these options are for: standpipe perf put --size 8");
        }
        return Ok(PROMISED.to_vec());
    };
    if args.memory.is_some() && !op.has_memory() {
        bail!(
            "--memory does not fit {}: it is for put, get, scatter, allreduce, alltoall and broadcast",
            op.name()
        );
    }
    if args.size.is_some() && !op.has_size() {
        bail!("--size does not fit {}: it moves no bytes of yours", op.name());
    }
    if args.target.is_some() && !op.is_one_sided() {
        bail!("--target does not fit {}: its processes all take part", op.name());
    }
    args.flow.fit(op)?;
    if op.flows() {
        return flowing(args, op);
    }
    let (size, n, memory) = match op {
        Op::Put | Op::Get => (8, 1, Memory::Heap),
        Op::Miss => (8, 1, Memory::Private),
        Op::Pin | Op::Grant => (64 << 10, 1, Memory::Private),
        Op::Scatter => (8192, 1024, Memory::Private),
        Op::Strided => (64, 1024, Memory::Heap),
        Op::Am | Op::Overhead => (0, 1, Memory::Heap),
        Op::PutSignal | Op::Atomic | Op::Completion => (8, 1, Memory::Heap),
        Op::CompletionFd | Op::TryRequest => (0, 1, Memory::Heap),
        Op::TakePayload => (1024, 1, Memory::Heap),
        Op::Pending => (8, 10_000, Memory::Private),
        Op::Allreduce | Op::Alltoall | Op::Broadcast => (8 << 20, 4, Memory::Heap),
        Op::Barrier | Op::Open => (0, 8, Memory::Heap),
        Op::ShareMany => (0, SHARED, Memory::Private),
        Op::Idle | Op::Flood | Op::Bandwidth => (0, 2, Memory::Heap),
    };
    let mut case = Case {
        op,
        size: args.size.unwrap_or(size),
        n: args.n.unwrap_or(n),
        memory: args.memory.unwrap_or(memory),
        target: args.target.unwrap_or(Target::Asleep),
        cores: if args.same_core { Cores::Shared } else { Cores::Apart },
        placement: None,
        bound: None,
        flow: None,
    };
    check(&case)?;
    if case.is_of_lines() || op == Op::CompletionFd {
        case.placement = nearest();
    }
    case.bound = match case {
        Case { op: Op::Am, size: 0, cores: Cores::Shared, .. } => Some(4.0),
        Case { op: Op::PutSignal, size: 8, cores: Cores::Shared, .. } => Some(4.0),
        Case { op: Op::Barrier, n: 2, cores: Cores::Shared, .. } => Some(4.0),
        Case { cores: Cores::Shared, .. } => None,
        _ => bound_for(&case),
    };
    Ok(vec![case])
}

/// The nearest that two cores of this host are to each other.
fn nearest() -> Option<Placement> {
    Placement::ALL.into_iter().find(|placement| placement.pair().is_some())
}

/// The cases of an operation that flows.
fn flowing(args: &PerfArgs, op: Op) -> Result<Vec<Case>> {
    if args.same_core {
        bail!("--same-core does not fit {}: its limit keeps both processors busy", op.name());
    }
    let mut cases = args.flow.cases(op, args.size)?;
    for case in &mut cases {
        case.n = args.n.unwrap_or(1);
        check(case)?;
        case.placement = nearest();
    }
    Ok(cases)
}

/// What can be measured over a network. Most bounds are shared memory's.
fn far_cases(cases: &[Case], named: bool, network: &Transport) -> Result<Vec<Case>> {
    let provider = match network {
        Transport::Ofi { provider } => provider.as_deref(),
        _ => None,
    };
    let moves = |case: &&Case| {
        (matches!(case.op, Op::Put | Op::Get | Op::Miss | Op::Pin | Op::PutSignal) || case.op.flows())
            && case.cores == Cores::Apart
            && case.placement != Some(Placement::Far)
            // The promises about grants are of the kernel's copies.
            && (named || !case.memory.is_granted())
    };
    let bounded = |case: &Case| Case { bound: far_bound(case, provider), placement: None, ..*case };
    let mut far: Vec<Case> = cases.iter().filter(moves).map(bounded).collect();
    if !named && provider.is_some_and(writes_by_itself) {
        far.retain(|case| case.bound.is_none());
        far.extend(far_words());
    }
    if named && cases.iter().any(|case| case.cores == Cores::Shared) {
        bail!("over a network nothing is measured on the same core: leave out --same-core");
    }
    if named && far.is_empty() {
        bail!(
            "over a network only put, get, miss, pin, put-signal, flood and bandwidth are measured, between two \
             cores; for all else say --transport shm, or unset {}",
            transport::TRANSPORT
        );
    }
    Ok(far)
}

fn check(case: &Case) -> Result<()> {
    let (op, size, n) = (case.op, case.size, case.n);
    if op.has_size() && size == 0 && !matches!(op, Op::Am | Op::Flood) {
        bail!("--size must be at least 1 for {}", op.name());
    }
    if op.is_collective() || matches!(op, Op::Idle | Op::Open) {
        if !(2..=256).contains(&n) {
            bail!("-n {n} processes: 2 to 256 can be measured");
        }
    } else if n != 1 && !matches!(op, Op::Scatter | Op::Strided | Op::Pending | Op::ShareMany) {
        bail!(
            "-n {n} does not fit {}: it counts pieces of scatter or strided, awaits of pending, grants of share-many, \
             or processes",
            op.name()
        );
    }
    if op == Op::ShareMany && n > GRANTS_MAX {
        bail!("-n {n} grants: a node has at most {GRANTS_MAX}");
    }
    if op.is_collective() && !size.is_multiple_of(8) || op == Op::Alltoall && !size.is_multiple_of(8 * n) {
        let of = if op == Op::Alltoall { 8 * n } else { 8 };
        bail!("--size {size}: {} of {n} is measured in multiples of {of} bytes", op.name());
    }
    if case.memory == Memory::Granted && !matches!(op, Op::Put | Op::Get | Op::Scatter) {
        bail!("--memory granted does not fit {}: put, get and scatter are measured by grants", op.name());
    }
    if case.memory == Memory::OneGrant && op != Op::Scatter {
        bail!("--memory one-grant does not fit {}: it has one piece, as --memory granted has", op.name());
    }
    if op == Op::Scatter && case.memory == Memory::Heap {
        bail!("scatter is measured on private memory");
    }
    let is_medium = case.flow.is_some_and(|flow| flow.moves == Moves::Medium);
    // Where the other process is far, the call itself refuses what is too long for that.
    if (is_medium || matches!(op, Op::Am | Op::TakePayload)) && size > NEAR_MEDIUM_BYTES {
        bail!("--size {size}: a message's payload has at most {NEAR_MEDIUM_BYTES} bytes");
    }
    // Both sides have a heap and pieces of it, and one side as much again to put from or get into; of a
    // collective all have what they give, what they get, and as much for the limit.
    let memories = if op.is_collective() { 4 * n } else { 3 * n.saturating_add(1) };
    Ok(machine::check_room(memories.saturating_mul(size) as u64, &format!("measuring {}", describe(case)))?)
}

/// Jobs that what two processes do with messages or words is measured in, each on a core of its own, each for
/// a fraction of a second. Where in the machine a job's rings happen to lie makes a third of its time, and
/// its limit's lines lie elsewhere again: so one job's ratio is a matter of luck, and the medians over all
/// jobs are not.
const PLACEMENTS: usize = 9;

/// Jobs of what depends on how the kernel wakes sleepers, which differs from one job to the next.
const MOODS: usize = 3;

/// Runs a case in jobs of its own.
///
/// # Errors
/// When the job cannot be started or ends without a result.
pub fn measure(case: &Case) -> Result<Row> {
    measure_over(case, &Transport::Shm)
}

fn measure_over(case: &Case, network: &Transport) -> Result<Row> {
    let jobs = match case.op {
        _ if *network != Transport::Shm => 1,
        _ if case.is_of_lines() => PLACEMENTS,
        Op::CompletionFd | Op::Flood => MOODS,
        Op::Barrier if case.cores == Cores::Apart => MOODS,
        _ => 1,
    };
    let rows = (0..jobs).map(|_| measure_once(case, network)).collect::<Result<Vec<Row>>>()?;
    Row::over_jobs(&rows).context("it was measured in no job")
}

fn measure_once(case: &Case, network: &Transport) -> Result<Row> {
    let settings: &[(&str, &str)] = match case.op {
        Op::Miss => &misses::SETTINGS,
        Op::Pin => &pins::SETTINGS,
        Op::Pending => &completions::SETTINGS,
        _ => &[],
    };
    measure_by(case, network, settings)
}

/// Runs a case in one job, whose ranks have these settings besides.
///
/// # Errors
/// As for [`measure`].
pub fn measure_by(case: &Case, network: &Transport, settings: &[(&str, &str)]) -> Result<Row> {
    let ranks = u32::try_from(case.processes())?;
    let (send, lines) = mpsc::channel();
    let launch = Launch::new(std::env::current_exe()?).arg(SUBCOMMAND).arg(serde_json::to_string(case)?);
    let launch = settings.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
    let outcome = launch
        .ranks(ranks)
        .env(transport::TRANSPORT, network.to_string())
        .env(worker::STARTED, host::monotonic_ns().to_string())
        .on_line(move |rank, stream, line| match stream {
            Stream::Stdout if rank == 0 => {
                let _ = send.send(String::from_utf8_lossy(line).into_owned());
            }
            _ if signals::ending() => {}
            _ => signals::complain(format_args!("[{rank}] {}", String::from_utf8_lossy(line))),
        })
        .say(signals::say)
        .run()?;
    let Some(line) = lines.try_iter().last() else {
        bail!("no result: the job ended with status {}", outcome.status());
    };
    let samples: Samples = serde_json::from_str(&line)?;
    Ok(Row { transport: network.to_string(), ..Row::new(case, &samples) })
}

/// A case in a few words.
pub fn describe(case: &Case) -> String {
    let mut words = vec![case.op.name().to_owned()];
    match case.op {
        Op::Put | Op::Get | Op::Miss | Op::Pin | Op::Grant => {
            words.push(format!("{} {}", bytes(case.size), name(&case.memory)))
        }
        Op::Scatter | Op::Strided => {
            words.push(format!("{} x {} {}", case.n, bytes(case.size), name(&case.memory)))
        }
        Op::Am if case.size > 0 => words.push(bytes(case.size)),
        Op::Am => words.push("round trip".to_owned()),
        Op::Overhead => words.push("of a message".to_owned()),
        Op::PutSignal => words.push(format!("{} round trip", bytes(case.size))),
        Op::Atomic => words.push("fetch-add".to_owned()),
        Op::Completion => words.push(format!("{} heap", bytes(case.size))),
        Op::CompletionFd => words.push("under tokio".to_owned()),
        Op::Pending => words.push(format!("{} awaits", case.n)),
        Op::ShareMany => words.push(format!("of {} grants, each", case.n)),
        Op::TryRequest => words.push("round trip".to_owned()),
        Op::TakePayload => words.push(format!("{} round trip", bytes(case.size))),
        Op::Allreduce | Op::Alltoall | Op::Broadcast => {
            words.push(format!("{} {} of {}", bytes(case.size), name(&case.memory), case.n));
        }
        Op::Flood | Op::Bandwidth => {
            let size = if case.size == 0 { "short".to_owned() } else { bytes(case.size) };
            words.extend(case.flow.iter().flat_map(|flow| flow.words(case.op == Op::Bandwidth, &size)));
        }
        Op::Barrier | Op::Idle | Op::Open => words.push(format!("of {}", case.n)),
    }
    match case.target {
        Target::Asleep => {}
        Target::Busy => words.push("(target busy)".to_owned()),
        Target::Serving => words.push("(target serving)".to_owned()),
    }
    if case.cores == Cores::Shared {
        words.push("(same core)".to_owned());
    }
    words.extend(case.placement.map(|placement| format!("({})", placement.name())));
    words.join(" ")
}

fn name(memory: &Memory) -> &'static str {
    match memory {
        Memory::Heap => "heap",
        Memory::Private => "private",
        Memory::Granted => "granted",
        Memory::OneGrant => "one grant",
    }
}

fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / 1_048_576),
    }
}

/// A bandwidth, of which small transfers have little.
fn rate(gbps: f64) -> String {
    if gbps < 0.95 { format!("{:.0} MB/s", 1e3 * gbps) } else { format!("{gbps:.1} GB/s") }
}

/// What a row measured, in the unit that suits it.
fn measured(op: Op, ns: f64) -> String {
    match op {
        // Nanoseconds of processor time in a second of waiting.
        Op::Idle => format!("{:.4} % of a core", ns / 1e7),
        _ => nanos(ns),
    }
}

/// One object: of the one operation that was asked for, or with `rows` of them all; and of build and machine
/// in either case.
fn to_json(rows: &[Row], one: bool, missing: &[Placement]) -> Result<Value> {
    let mut object = match rows {
        [row] if one => serde_json::to_value(row)?,
        rows => json!({ "rows": rows }),
    };
    object["build"] = machine::BUILD.into();
    object["busy"] = machine::is_busy().into();
    if !one {
        object["missing"] = serde_json::to_value(missing)?;
    }
    object["machine"] = machine::facts().into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
    object["machine"]["core_count"] = host::cores().into();
    object["machine"]["memory_bytes"] = host::memory_bytes().into();
    object["machine"]["load_average"] = machine::load_before().into();
    Ok(object)
}

fn to_table(rows: &[Row], busy: bool) -> table::Table {
    let mut table =
        table::plain(&["operation", "median", "p99", "limit", "its median", "ratio", "bound", ""]);
    for row in rows {
        let case = Case {
            op: Op::value_variants().iter().copied().find(|op| op.name() == row.op).unwrap_or(Op::Put),
            size: row.size,
            n: row.n,
            memory: row.memory,
            target: row.target,
            cores: row.cores,
            placement: row.placement,
            bound: row.bound,
            flow: row.flow,
        };
        let gbps = row.gbps.map_or(String::new(), |gbps| format!(" ({})", rate(gbps)));
        table.add_row(vec![
            Cell::new(describe(&case)),
            Cell::new(format!("{}{gbps}", measured(case.op, row.median_ns))),
            // One sample has no distribution.
            Cell::new(if row.samples > 1 { measured(case.op, row.p99_ns) } else { String::new() }),
            Cell::new(&row.limit_name),
            Cell::new(measured(case.op, row.limit_ns)),
            Cell::new(format!("{:.3}", row.ratio)),
            Cell::new(row.bound.map_or(String::new(), |bound| format!("<= {bound}"))),
            Cell::new(row.verdict_in_words(busy)),
        ]);
    }
    table
}
