//! `standpipe-study layers`: starts the jobs over each transport, and tells what came of them.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use standpipe::{Strategy, Transport};

use super::benches;
use super::display;
use super::outcome::{Outcome, Told};
use super::plan::{Figure, Plan};
use crate::qemu::{self, VmArgs};
use crate::study::ranks::{self, RankPlan};
use crate::study::subcommand::Subcommand;
use measure::progress::Bar;
use measure::report::output::{Output, OutputArgs};
use measure::transport::{self, Chosen, look_for};
use measure::units::{between, parse_size};
use measure::usage_error::UsageError;
use measure::{machine, signals};

/// `standpipe-study layers`.
pub(crate) static STUDY: Subcommand<LayersArgs> = Subcommand {
    name: Plan::NAME,
    about: "Historic communication layers side by side: latency, overheads, gap, bandwidth, copies, features",
    checks_settings: true,
    run,
    rank: Some(ranks::run_plan::<Plan>),
};

/// Arguments of `standpipe-study layers`.
#[derive(Debug, Args)]
pub(crate) struct LayersArgs {
    /// Layers, by their names; all of them without it. The bare library is always beside them
    #[arg(long, value_name = "LAYER,…", value_delimiter = ',')]
    layers: Vec<String>,
    /// Over what: shm, ofi:PROVIDER; all have their turn
    #[arg(long, value_name = "TRANSPORT,…", value_delimiter = ',', default_value = "shm,ofi:tcp",
          value_parser = transport::parse)]
    transport: Vec<Transport>,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "8,64,512,4K,64K,1M",
          value_parser = parse_size)]
    sizes: Vec<usize>,
    /// Rounds, in each of which every layer has its turn with every size; the one in the middle counts
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = between(1_u32, 1000))]
    rounds: u32,
    /// Processes that send to one at a time, where many do; 0 leaves that out
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = between(0_u32, 64))]
    senders: u32,
    /// Fewer messages and rounds: for a look, and for slow machines
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    vm: VmArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The longest message: what is sent and received lies in memory twice for each layer.
const SIZE_MAX: usize = 64 << 20;

/// Runs the study. It fails if a byte arrived otherwise than it was sent.
///
/// # Errors
/// If the arguments name what is not, a layer fails, or the results cannot be written.
fn run(args: &LayersArgs) -> Result<ExitCode> {
    if let Some(ended) = args.vm.run(&args.output, args.is_transport_named()) {
        return ended;
    }
    let plan = args.plan()?;
    let output = Output::make(&args.output)?;
    args.transport.iter().try_for_each(look_for)?;
    machine::mind_load();
    machine::UNOPTIMISED.into_iter().for_each(signals::say);
    let mut told = Vec::new();
    for transport in &args.transport {
        told.push(args.measure(&plan, transport)?);
    }
    let outcome = Outcome::of(&plan, args.senders, qemu::is_inside(), &told);
    display::show(&args.command(), &outcome).deliver(&output, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

impl LayersArgs {
    /// Runs the jobs over one transport: two processes, and then several that send to one.
    fn measure(&self, plan: &Plan, transport: &Transport) -> Result<Told> {
        let strategy = (*transport != Transport::Shm).then_some(Strategy::Firehose);
        let chosen = Chosen { transport: transport.clone(), strategy };
        let rounds = plan.rounds as usize;
        let mut figures: Vec<Figure> = Vec::new();
        let jobs: Vec<u32> = if self.senders > 0 { vec![2, 1 + self.senders] } else { vec![2] };
        // Of two processes rank 0 tells five or six figures a turn, of several one.
        let steps = |ranks: u32| {
            rounds * plan.layers.len() * plan.sizes.iter().map(|size| told_of(ranks, *size)).sum::<usize>()
        };
        let bar = Arc::new(Bar::new(
            jobs.iter().map(|ranks| steps(*ranks)).sum(),
            &format!("figures over {transport}"),
        ));
        for ranks in jobs {
            let told = ranks::run(&chosen, plan, ranks, &bar)?;
            figures.extend(told.into_iter().flatten());
        }
        Ok(Told { transport: transport.to_string(), figures })
    }

    fn plan(&self) -> Result<Plan, UsageError> {
        let known: Vec<&str> = benches::names().collect();
        if let Some(unknown) = self.layers.iter().find(|layer| !known.contains(&layer.as_str())) {
            let known = known.join(", ");
            return Err(UsageError::new(format!(
                "--layers {unknown}: there is no such layer; there are {known}"
            )));
        }
        if let Some(size) = self.sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
            return Err(UsageError::new(format!("--sizes {size}: messages have 1 to {SIZE_MAX} bytes")));
        }
        let is_wanted = |name: &&str| {
            benches::BARE.contains(name)
                || self.layers.is_empty()
                || self.layers.iter().any(|layer| layer == name)
        };
        let layers = known.into_iter().filter(is_wanted).map(str::to_owned).collect();
        let (turns, burst, burst_bytes) = if self.small { (50, 100, 1 << 20) } else { (500, 1000, 16 << 20) };
        let rounds = if self.small { self.rounds.min(3) } else { self.rounds };
        Ok(Plan { layers, sizes: self.sizes.clone(), rounds, turns, burst, burst_bytes })
    }

    /// Whether the command line names a transport that is not the usual ones.
    fn is_transport_named(&self) -> bool {
        self.transport != [Transport::Shm, Transport::Ofi { provider: Some("tcp".into()) }]
    }

    /// The command line that repeats the run.
    fn command(&self) -> String {
        let list = |words: Vec<String>| words.join(",");
        let sizes = list(self.sizes.iter().map(ToString::to_string).collect());
        let transports = list(self.transport.iter().map(ToString::to_string).collect());
        let mut command = format!(
            "standpipe-study layers --transport '{transports}' --sizes {sizes} --rounds {} --senders {}",
            self.rounds, self.senders
        );
        if !self.layers.is_empty() {
            command += &format!(" --layers {}", list(self.layers.clone()));
        }
        if self.small {
            command += " --small";
        }
        command + qemu::word()
    }
}

/// Figures that rank 0 tells of a turn.
fn told_of(ranks: u32, size: usize) -> usize {
    match ranks {
        2 if size <= super::plan::BUFFERED_MAX => 5,
        2 => 4,
        _ => 1,
    }
}
