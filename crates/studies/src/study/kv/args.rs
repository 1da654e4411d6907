//! The study's command line.

use std::{ffi::OsString, path::Path, time::Duration};

use block_directory::WORKERS_MAX;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{
    generate::Generator,
    plan::Plan,
    trace::{self, Request, TraceError},
};
use measure::units::{between, parse_bytes};

/// Arguments of `standpipe-study kv`; its workers get the same.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub(crate) struct KvArgs {
    /// Worker processes, at most 32
    #[arg(long, short = 'n', default_value_t = 4, value_parser = between(1, WORKERS_MAX as u64))]
    pub workers: u64,
    /// Requests to replay, in Mooncake's JSON-lines format; without it, a trace with the same statistics is
    /// generated
    // An `OsString`, since serde refuses a path that is no UTF-8.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<OsString>,
    /// Seed of the generated trace
    #[arg(long, default_value_t = 1, conflicts_with = "trace")]
    pub seed: u64,
    /// Requests to replay: the first of the trace file (all of it without this), or this many generated ones
    /// (100, which takes seconds)
    #[arg(long, value_name = "K", value_parser = between(1_u64, 10_000_000))]
    pub requests: Option<u64>,
    /// Replay 1000 generated requests, as many as the measured trace has: a minute of processor time
    #[arg(long, conflicts_with_all = ["requests", "trace"])]
    pub full: bool,
    /// Memory for blocks that each worker may use
    #[arg(long, default_value = "256M", value_name = "BYTES", value_parser = parse_bytes)]
    pub cap: u64,
    /// Size of a block
    #[arg(long, default_value = "1M", value_name = "BYTES", value_parser = parse_bytes)]
    pub block_bytes: u64,
    /// Pieces that a block consists of: one allocation for each layer of the model
    #[arg(long, default_value_t = 64, value_parser = between(1_u64, 65_536))]
    pub layers: u64,
    /// Processor time that making a block takes, in microseconds
    #[arg(long, default_value_t = 3000, value_name = "US", value_parser = between(0_u64, 60_000_000))]
    pub compute_us: u64,
    /// Keep pulled blocks, so that a block may have several holders
    #[arg(long)]
    pub keep_copies: bool,
    /// Make blocks that other workers hold, rather than pull them
    #[arg(long, hide = true)]
    pub no_pulls: bool,
    /// Only serve the requests: measure nothing before, and compare no byte
    #[arg(long, hide = true)]
    pub only_serve: bool,
}

impl KvArgs {
    /// The workers' part of the arguments, checked.
    ///
    /// # Errors
    /// Which arguments do not fit together, in words.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(self.layers) {
            return Err(format!(
                "a block of {} bytes cannot be cut into {} equal pieces",
                self.block_bytes, self.layers
            ));
        }
        if self.cap < self.block_bytes {
            return Err(format!("a cap of {} bytes holds no block of {} bytes", self.cap, self.block_bytes));
        }
        let bytes = |count: u64| usize::try_from(count).map_err(|_| format!("{count} bytes are too many"));
        Ok(Plan {
            layers: bytes(self.layers)?,
            piece_bytes: bytes(self.block_bytes / self.layers)?,
            cap_bytes: bytes(self.cap)?,
            compute: Duration::from_micros(self.compute_us),
            keep_copies: self.keep_copies,
            pulls: !self.no_pulls,
            examines: !self.only_serve,
        })
    }

    /// The requests to replay.
    ///
    /// # Errors
    /// If the trace file cannot be read, or a line of it.
    pub(crate) fn requests(&self) -> Result<Vec<Request>, TraceError> {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        match &self.trace {
            None => {
                let requests = if self.full { FULL } else { SHORT };
                Ok(Generator::new(self.seed).take(self.requests.map_or(requests, count)).collect())
            }
            Some(file) => {
                let mut requests = trace::read(Path::new(file))?;
                requests.truncate(self.requests.map_or(usize::MAX, count));
                Ok(requests)
            }
        }
    }

    /// Whether nothing says how many requests there are to be.
    #[must_use]
    pub(crate) fn is_short(&self) -> bool {
        !self.full && self.requests.is_none() && self.trace.is_none()
    }

    /// The same arguments as words of a command line; parsing them gives an equal value, where the path is
    /// UTF-8.
    #[must_use]
    pub(crate) fn to_words(&self) -> Vec<String> {
        let mut words: Vec<String> = [
            ("--workers", self.workers),
            ("--cap", self.cap),
            ("--block-bytes", self.block_bytes),
            ("--layers", self.layers),
            ("--compute-us", self.compute_us),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value.to_string()])
        .collect();
        if let Some(requests) = self.requests {
            words.extend(["--requests".to_owned(), requests.to_string()]);
        }
        if self.full {
            words.push("--full".to_owned());
        }
        words.extend(match &self.trace {
            Some(trace) => ["--trace".to_owned(), trace.display().to_string()],
            None => ["--seed".to_owned(), self.seed.to_string()],
        });
        if self.keep_copies {
            words.push("--keep-copies".to_owned());
        }
        if self.no_pulls {
            words.push("--no-pulls".to_owned());
        }
        if self.only_serve {
            words.push("--only-serve".to_owned());
        }
        words
    }
}

/// Requests that are generated unless the user says how many: a first look that takes seconds.
pub(super) const SHORT: usize = 100;

/// Requests of the full form: as many as the measured trace has.
pub(super) const FULL: usize = 1000;

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        kv: KvArgs,
    }

    fn parse(words: &str) -> Result<KvArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("kv").chain(words.split_whitespace())).map(|line| line.kv)
    }

    #[test]
    fn defaults_make_a_plan() {
        let args = parse("").expect("no argument is needed");
        let plan = args.plan().expect("the defaults fit together");
        assert_eq!((plan.block_bytes(), plan.slots()), (1 << 20, 256));
    }

    #[test]
    fn the_short_form_is_for_those_who_say_nothing_of_requests() {
        for (text, short, requests) in
            [("", true, SHORT), ("--full", false, FULL), ("--requests 7", false, 7)]
        {
            let args = parse(text).expect("good arguments");
            assert_eq!(args.is_short(), short, "{text}");
            assert_eq!(args.requests().expect("generated").len(), requests, "{text}");
        }
        assert!(!parse("--trace a").expect("good arguments").is_short());
    }

    #[test]
    fn workers_and_repeated_runs_get_equal_arguments() {
        let text = "--workers 7 --trace a.jsonl --requests 12 --cap 3M --layers 8 --keep-copies --no-pulls --only-serve";
        for text in [text, "", "--seed 9", "--full"] {
            let args = parse(text).expect("good arguments");
            assert_eq!(parse(&args.to_words().join(" ")).expect("what we wrote"), args);
            let told = serde_json::to_string(&args).expect("numbers, and a path");
            assert_eq!(serde_json::from_str::<KvArgs>(&told).expect("what we wrote"), args);
        }
    }

    #[test]
    fn workers_get_a_path_that_is_no_utf_8() {
        let mut args = parse("").expect("good arguments");
        args.trace = Some(OsString::from_vec(b"/tmp/\xff.jsonl".to_vec()));
        let told = serde_json::to_string(&args).expect("numbers, and a path");
        assert_eq!(serde_json::from_str::<KvArgs>(&told).expect("what we wrote"), args);
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused_in_words() {
        let refused =
            |text: &str| parse(text).expect("each alone is good").plan().expect_err("they do not fit");
        assert_eq!(refused("--layers 3"), "a block of 1048576 bytes cannot be cut into 3 equal pieces");
        assert_eq!(refused("--cap 1K"), "a cap of 1024 bytes holds no block of 1048576 bytes");
        for text in [
            "--workers 0",
            "--workers 33",
            "--cap 1X",
            "--cap -1",
            "--cap 99999999999G",
            "--layers 0",
            "--trace a --seed 9",
            "--full --requests 7",
            "--full --trace a",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
