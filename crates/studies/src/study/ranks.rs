//! A study's job: this very program in several processes, each of which tells what it did, a line at a time.
//!
//! Each process has the command line `rank NAME PLAN`, which no help names. The list of studies says what
//! runs for a name; the plan is JSON of a type of the study's own.

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use standpipe::launch::{Launch, Stream};

use measure::progress::Bar;
use measure::transport::Chosen;
use measure::{json_lines, signals};

/// The hidden subcommand that runs a process of a job.
pub(super) const SUBCOMMAND: &str = "rank";

/// The orders of a process of a job.
pub(crate) trait RankPlan: Serialize + DeserializeOwned {
    /// The name by which the list of studies has what runs such a plan.
    const NAME: &'static str;

    /// Does what the plan says, telling on standard output what comes of it.
    ///
    /// # Errors
    /// If it cannot be done, or nobody listens.
    fn run(&self) -> Result<ExitCode>;
}

/// The function that runs a plan, which is given as JSON.
pub(crate) type RunPlan = fn(&str) -> Result<ExitCode>;

/// Reads a plan and runs it.
///
/// # Errors
/// If it is no such plan, and what running it ends with.
pub(crate) fn run_plan<P: RankPlan>(plan: &str) -> Result<ExitCode> {
    let plan: P = serde_json::from_str(plan).context("the plan")?;
    plan.run()
}

/// The command line of a process that runs this plan, without the program.
///
/// # Errors
/// If the plan is nothing that JSON can say.
pub(crate) fn words<P: RankPlan>(plan: &P) -> Result<[String; 3]> {
    let plan =
        serde_json::to_string(plan).with_context(|| format!("the plan of a process of {}", P::NAME))?;
    Ok([SUBCOMMAND.to_owned(), P::NAME.to_owned(), plan])
}

/// Runs `ranks` processes by the plan, and gives what each told. `bar` is a step further with each line of
/// rank 0.
///
/// # Errors
/// If they cannot be started, or one fails: which, and how, stands on standard error then.
pub(super) fn run<L>(chosen: &Chosen, plan: &impl RankPlan, ranks: u32, bar: &Arc<Bar>) -> Result<Vec<Vec<L>>>
where
    L: DeserializeOwned + Send + 'static,
{
    let nothing = || (0..ranks).map(|_| Vec::new()).collect();
    let told: Arc<Mutex<Vec<Vec<L>>>> = Arc::new(Mutex::new(nothing()));
    let (heard, bar) = (Arc::clone(&told), Arc::clone(bar));
    let program = env::current_exe().context("this program's own file")?;
    let outcome = chosen
        .tell(Launch::new(program))
        .args(words(plan)?)
        .ranks(ranks)
        .say(signals::say)
        .on_line(move |rank, stream, line| {
            let text = String::from_utf8_lossy(line);
            match json_lines::decode(&text).filter(|_| stream == Stream::Stdout) {
                Some(line) => {
                    heard.lock().unwrap_or_else(PoisonError::into_inner)[rank as usize].push(line);
                    if rank == 0 {
                        bar.step();
                    }
                }
                None => signals::say(&format!("[{rank}] {text}")),
            }
        })
        .run()?;
    if let Some(rank) = outcome.ranks.iter().find(|rank| rank.end.is_failure()) {
        bail!("a process of the job failed: {}", rank.end);
    }
    Ok(std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner)))
}
