//! A study's job: this very program in several processes, each of which tells what it did, a line at a time.

use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use standpipe::launch::{Launch, Stream};

use measure::progress::Bar;
use measure::transport::Chosen;
use measure::{json_lines, signals};

/// Runs `ranks` processes by their hidden subcommand, which gets the plan as JSON, and gives what each told.
/// `bar` is a step further with each line of rank 0.
///
/// # Errors
/// If they cannot be started, or one fails: which, and how, stands on standard error then.
pub(super) fn run<L>(
    chosen: &Chosen,
    subcommand: &str,
    plan: &impl Serialize,
    ranks: u32,
    bar: &Arc<Bar>,
) -> Result<Vec<Vec<L>>>
where
    L: DeserializeOwned + Send + 'static,
{
    let nothing = || (0..ranks).map(|_| Vec::new()).collect();
    let told: Arc<Mutex<Vec<Vec<L>>>> = Arc::new(Mutex::new(nothing()));
    let (heard, bar) = (Arc::clone(&told), Arc::clone(bar));
    let program = env::current_exe().context("this program's own file")?;
    let outcome = chosen
        .tell(Launch::new(program))
        .arg(subcommand)
        .arg(serde_json::to_string(plan)?)
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
