//! The study's command line.

use clap::{ArgGroup, Args};
use standpipe::Transport;

use crate::qemu::VmArgs;
use measure::report::output::OutputArgs;
use measure::transport;
use measure::units::{between, parse_bytes};

/// Arguments of `standpipe-study firehose`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("network").args(["transport", "vm"]).multiple(true))]
pub(crate) struct FirehoseArgs {
    /// Puts that are timed for each point of a figure
    #[arg(long, default_value_t = 2000, value_parser = between(1_u64, 1_000_000))]
    pub(super) puts: u64,
    /// Puts: 100 at most; programs with about a twentieth of the puts, and a fifteenth of the memory in the
    /// figures: to see that it runs
    #[arg(long)]
    pub(super) small: bool,
    /// Decides to which places puts at random go
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Not in virtual time: two processes reach each other by ofi or ofi:PROVIDER, such as ofi:tcp, and each
    /// strategy is measured for real, beside what the simulator says with costs that are measured in the same
    /// run
    #[arg(long, value_name = "NAME", value_parser = transport::parse)]
    pub(super) transport: Option<Transport>,
    /// With --transport or --vm: how much memory may be registered at a time (4M; 256K with --small)
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "network")]
    pub(super) pin: Option<u64>,
    #[command(flatten)]
    pub(super) vm: VmArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}
