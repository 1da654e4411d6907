//! The command line of `standpipe-study kernel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use standpipe::launch::RANKS_MAX;

use super::plan::{BitonicPlan, CannonPlan, Kernel};
use measure::units::{between, parse_size};

/// The kernels.
#[derive(Debug, Subcommand)]
pub enum KernelArgs {
    /// Multiply matrices by Cannon's algorithm: blocks go round a square of ranks, row by row
    Cannon(CannonArgs),
    /// Sort keys by bitonic sort: pairs of ranks exchange all their keys and keep half of them
    Bitonic(BitonicArgs),
}

/// Arguments of `standpipe-study kernel cannon`.
#[derive(Debug, Args)]
pub struct CannonArgs {
    /// Processes: 1, 4, 9 or another square
    #[arg(short = 'n', long = "ranks", default_value_t = 4, value_parser = between(1, RANKS_MAX))]
    ranks: u32,
    /// Rows, and columns, of the matrices
    #[arg(long, default_value_t = 1536, value_name = "ORDER", value_parser = between(1_u32, 65_536))]
    size: u32,
    /// Bytes of one put: a run of a row's 8-byte entries
    #[arg(long, default_value = "256", value_name = "BYTES", value_parser = parse_size)]
    put_bytes: usize,
    /// Products to compute and add up
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = between(1_u32, 1_000_000))]
    rounds: u32,
    /// As many puts as in the Firehose paper, 1.5 million: -n 4 --size 1000 --put-bytes 160 --rounds 10
    #[arg(long, conflicts_with_all = ["ranks", "size", "put_bytes", "rounds"])]
    paper: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Arguments of `standpipe-study kernel bitonic`.
#[derive(Debug, Args)]
pub struct BitonicArgs {
    /// Processes: a power of two
    #[arg(short = 'n', long = "ranks", default_value_t = 4, value_parser = between(1, RANKS_MAX))]
    ranks: u32,
    /// Keys of all processes together; a key has 8 bytes
    #[arg(long, default_value_t = 4 << 20, value_name = "KEYS", value_parser = between(1_u64, 1 << 36))]
    size: u64,
    /// Bytes of one put: a run of keys
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = parse_size)]
    put_bytes: usize,
    /// Sorts to do, each of other keys; at most 256
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = between(1, ROUNDS_MAX))]
    rounds: u32,
    /// As many puts as in the Firehose paper, 2.1 million: -n 4 --size 350000 --put-bytes 8 --rounds 2
    #[arg(long, conflicts_with_all = ["ranks", "size", "put_bytes", "rounds"])]
    paper: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A rank tells of all its sorts in one line, which the launcher cuts at 64 KiB.
const ROUNDS_MAX: u32 = 256;

/// What does not depend on the kernel.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Record every put, wait and computation to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Make the first put of rank 1 wrong: the result is then, too
    #[arg(long, hide = true)]
    pub spoil: bool,
}

impl KernelArgs {
    /// The kernel, checked.
    ///
    /// # Errors
    /// Which arguments do not fit together, in words.
    pub fn kernel(&self) -> Result<Kernel, String> {
        let count = |count: u64| usize::try_from(count).map_err(|_| format!("{count} are too many"));
        match self {
            Self::Cannon(CannonArgs { paper: true, .. }) => {
                CannonPlan::new(4, 1000, 160, 10).map(Kernel::Cannon)
            }
            Self::Cannon(CannonArgs { ranks, size, put_bytes, rounds, .. }) => {
                CannonPlan::new(*ranks as usize, *size as usize, *put_bytes, *rounds as usize)
                    .map(Kernel::Cannon)
            }
            Self::Bitonic(BitonicArgs { paper: true, .. }) => {
                BitonicPlan::new(4, 350_000, 8, 2).map(Kernel::Bitonic)
            }
            Self::Bitonic(BitonicArgs { ranks, size, put_bytes, rounds, .. }) => {
                BitonicPlan::new(*ranks as usize, count(*size)?, *put_bytes, *rounds as usize)
                    .map(Kernel::Bitonic)
            }
        }
    }

    /// What does not depend on the kernel.
    #[must_use]
    pub fn run(&self) -> &RunArgs {
        match self {
            Self::Cannon(args) => &args.run,
            Self::Bitonic(args) => &args.run,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        kernel: KernelArgs,
    }

    fn parse(words: &str) -> Result<KernelArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("kernel").chain(words.split_whitespace()))
            .map(|line| line.kernel)
    }

    fn kernel(words: &str) -> Kernel {
        parse(words).expect("good arguments").kernel().expect("they fit together")
    }

    #[test]
    fn the_papers_numbers_of_puts_are_met_by_what_the_help_says() {
        let (cannon, bitonic) = (kernel("cannon --paper"), kernel("bitonic --paper"));
        assert_eq!((cannon.puts(), bitonic.puts()), (1_500_000, 2_100_000));
        assert_eq!(cannon, kernel("cannon -n 4 --size 1000 --put-bytes 160 --rounds 10"));
        assert_eq!(bitonic, kernel("bitonic -n 4 --size 350000 --put-bytes 8 --rounds 2"));
        assert!(parse("cannon --paper --size 9").is_err() && parse("bitonic --paper -n 2").is_err());
    }

    #[test]
    fn defaults_fit_together_and_misfits_are_told() {
        assert_eq!((kernel("cannon").puts(), kernel("bitonic").puts()), (221_184, 1_572_864));
        assert!(parse("cannon -n 3").expect("a number").kernel().is_err());
        for bad in [
            "cannon -n 0",
            "cannon --rounds 0",
            "cannon --size 0",
            "bitonic --size 0",
            "bitonic --rounds 0",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
