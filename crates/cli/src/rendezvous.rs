//! `standpipe rendezvous`: a place where nodes that nobody launched find each other by name.

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use anyhow::Result;
use clap::Args;
use measure::stdout::print;
use measure::usage_error::UsageError;
use serde::Serialize;
use standpipe::rendezvous::{Registry, Visit};

/// Arguments of `standpipe rendezvous`.
#[derive(Debug, Args)]
pub(crate) struct RendezvousArgs {
    /// Where to listen: an address of this host, or `[::]` for all (`0.0.0.0` for those of IPv4), and a port,
    /// 0 for a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7300")]
    listen: String,
    /// Print one JSON object a line: where it listens, then what happens
    #[arg(long)]
    json: bool,
}

/// The first line.
#[derive(Serialize)]
struct Listening {
    listening: String,
}

/// Lines that wait to be printed, at most; others are dropped.
const UNREAD_MAX: usize = 1024;

/// Serves until it is ended by a signal.
///
/// # Errors
/// If there is no secret, or nobody can listen there.
pub(crate) fn run(args: &RendezvousArgs) -> Result<ExitCode> {
    let registry = Registry::open(&args.listen).map_err(UsageError::new)?;
    let listening = registry.address()?.to_string();
    let line = format!("listening at {listening}");
    print(if args.json { serde_json::to_string(&Listening { listening })? } else { line })?;
    let json = args.json;
    // Whether anybody reads it or not, nodes are to find each other: what nobody reads is not waited for.
    let (told, lines) = sync_channel(UNREAD_MAX);
    std::thread::Builder::new().name("standpipe-tells".into()).spawn(move || {
        lines.into_iter().for_each(|line: String| _ = print(line));
    })?;
    let failed = registry.serve(move |visit| {
        let line = if json { serde_json::to_string(visit).unwrap_or_default() } else { text(visit) };
        let _ = told.try_send(line);
    });
    Err(failed.into())
}

/// The event, for people.
fn text(visit: &Visit) -> String {
    match visit {
        Visit::Left { name, from } => format!("{name:?}: left by {from}"),
        Visit::Found { name, from } => format!("{name:?}: found by {from}"),
        Visit::Withdrawn { name, from } => format!("{name:?}: withdrawn by {from}"),
        Visit::Stranger { from, why } => format!("{from} was sent away: {why}"),
        other => format!("{other:?}"),
    }
}
