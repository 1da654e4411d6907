//! The study's command line.

use clap::{ArgGroup, Args};
use standpipe::Transport;

use crate::qemu::VmArgs;
use measure::report::output::OutputArgs;
use measure::transport;
use measure::units::parse_bytes;

/// Arguments of `standpipe-study pindown`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("network").args(["transport", "vm"]).multiple(true))]
pub(crate) struct PinDownArgs {
    /// Puts that are timed at each hit ratio
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(super) puts: u64,
    /// Not in virtual time: two processes reach each other by ofi or ofi:PROVIDER, such as ofi:tcp, beside
    /// what the simulator says with costs that are measured in the same run
    #[arg(long, value_name = "NAME", value_parser = transport::parse)]
    pub(super) transport: Option<Transport>,
    /// With --transport or --vm: how much memory may be registered at a time (16M; 1M with --small)
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "network")]
    pub(super) pin: Option<u64>,
    /// With --transport or --vm: through a historic layer's own interface, beside what the paper says
    #[arg(long, value_name = "LAYER", value_parser = ["pm"], requires = "network")]
    pub(super) layer: Option<String>,
    /// Fewer ratios, and with --transport or --vm shorter puts: to see that it runs
    #[arg(long)]
    pub(super) small: bool,
    #[command(flatten)]
    pub(super) vm: VmArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}
