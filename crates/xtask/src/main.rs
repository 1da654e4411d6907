//! Standpipe's named development checks: `cargo xtask NAME`.
//!
//! Each check passes, fails, or says aloud why it was skipped; only a failure makes the command fail.
#![forbid(unsafe_code)]

mod abi;
mod beside;
mod bursts;
mod c_library;
mod changes;
mod checks;
mod ci;
mod command;
mod deb;
mod debian;
mod filters;
mod form;
mod fresh;
mod fuzz;
mod hits;
mod install;
mod invariants;
mod launchers;
mod lookups;
mod mallocs;
mod mutate;
mod nightly;
mod outcome;
mod peers;
mod products;
mod programs;
mod provider_hits;
mod real_storms;
mod storms;
mod tree;
mod verbs;

use clap::Parser;
use form::Form;
use std::path::PathBuf;
use std::process::ExitCode;

/// Standpipe's named development checks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Check {
    /// Formatting, clippy and documentation, all without warnings.
    Lint,
    /// Model-check the lock-free structures: every interleaving loom can reach.
    Loom,
    /// Run what Miri can reach under Miri, which finds undefined behaviour (nightly).
    Miri,
    /// Run the tests under ThreadSanitizer, which finds data races (nightly).
    Tsan,
    /// Run the tests under AddressSanitizer, which finds wrong accesses (nightly).
    Asan,
    /// Feed hostile bytes to everything that parses what a peer wrote (nightly, C++ compiler).
    Fuzz {
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only this target.
        #[arg(long)]
        target: Option<String>,
    },
    /// Count what a hit costs, in the registration tables and over libfabric, and compare with the last
    /// committed figures (valgrind).
    Hits,
    /// Time finding a registration among 100,000, beside UCX's cache and one random memory access (libucx-dev
    /// for the former).
    Lookups,
    /// Time malloc in a program with the preloaded library, beside Debian's mimalloc (libmimalloc2.0) and the
    /// system's own.
    Mallocs,
    /// Break each invariant of the engine on purpose, one at a time, and show that the simulator's storms, or
    /// the part's own tests, notice it.
    Mutate {
        /// Only those with this in their words (docs/INVARIANTS.md).
        #[arg(default_value = "")]
        only: String,
    },
    /// Let the simulator's storms loose on ever new seeds, on one core.
    Storms {
        /// For how long.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Let storms of real processes loose on ever new seeds: all that there is to call, while processes are
    /// killed, leave and join.
    RealStorms {
        /// For how long.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Let storms loose on processes of which every second one is another commit's: what goes between them
    /// must not have changed.
    Beside {
        /// The other commit, whose storm is built in a clone of its own under `target/`.
        commit: String,
    },
    /// Burst beyond each limit of places: each operation and size, by one thread and by many, over links that
    /// are there, and that are not, by each route.
    Bursts {
        /// Over verbs alone, in the virtual machine of `verbs`.
        #[arg(long)]
        verbs: bool,
    },
    /// Change memory in every way at both ends of transfers, over pins of the kernel's and over libfabric's
    /// providers.
    Changes {
        /// How often in each way, over each.
        #[arg(long, default_value_t = 20_000)]
        rounds: u32,
    },
    /// Run small and large jobs under today's Open MPI, MPICH and Intel MPI and under Debian's, on one host
    /// and on two (needs root, python3 and the network).
    Launchers,
    /// Run peers of other projects and us in turns on the same work, and write docs/PEERS.md (python3, the
    /// network; a C compiler for MPICH).
    Peers {
        /// Print a JSON object in place of the table.
        #[arg(long)]
        json: bool,
    },
    /// Run all tests, with what takes long and `cargo test` leaves out.
    Tests,
    /// Run the commands' tests in small and large terminals.
    Terminals,
    /// Run the tests of the commands and of launching in a terminal where there is no libfabric (needs root).
    Bare,
    /// Run tests over real verbs, in a virtual machine with soft-RoCE devices (QEMU, which it installs if it
    /// may).
    Verbs {
        /// Only one thing of each kind, in four minutes.
        #[arg(long)]
        short: bool,
    },
    /// All of the above in short forms, and a table of how they went.
    Ci {
        /// Only these of them; `patient` may run beside others.
        #[arg(long)]
        part: Option<ci::Part>,
    },
    /// Build both commands, the C library and the historic layers' library in release, and put them below a
    /// folder, into its bin, lib and include.
    Install {
        /// The folder; ~/.local without this.
        #[arg(long)]
        prefix: Option<PathBuf>,
        /// Build without optimisations, which takes less time.
        #[arg(long)]
        debug: bool,
    },
    /// Build three Debian packages: the C library, what programs need that use it, and both commands.
    Deb {
        /// Where the packages are put; target/deb without this.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Build without optimisations, which takes less time.
        #[arg(long)]
        debug: bool,
        /// Also install, use and remove them in a minimal Debian, which debootstrap makes (needs root).
        #[arg(long)]
        check: bool,
        /// Where that Debian is, or is to be made; target/debian-12-c without this.
        #[arg(long)]
        debootstrap: Option<PathBuf>,
    },
    /// Compare what C programs rely on, functions with their types and structs, with the committed dump
    /// (libabigail's abidw and abidiff).
    Abi {
        /// Write the dump anew instead.
        #[arg(long)]
        write: bool,
    },
    /// Clone HEAD, and run the README's first commands there as a newcomer would, with nothing in Cargo's
    /// cache.
    Fresh {
        /// Do it inside a minimal Debian in this folder, made by debootstrap if it is not there yet (needs
        /// root).
        #[arg(long)]
        debootstrap: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let (name, outcome) = match Check::parse() {
        Check::Lint => ("lint", checks::lint()),
        Check::Loom => ("loom", checks::loom()),
        Check::Miri => ("miri", nightly::miri(Form::Long)),
        Check::Tsan => ("tsan", nightly::tsan(Form::Long)),
        Check::Asan => ("asan", nightly::asan(Form::Long)),
        Check::Mutate { only } => ("mutate", mutate::mutate(&only)),
        Check::Storms { minutes, seed } => ("storms", storms::storms(minutes, seed)),
        Check::RealStorms { minutes, seed } => ("real-storms", real_storms::real_storms(minutes, seed)),
        Check::Beside { commit } => ("beside", beside::beside(&commit)),
        Check::Bursts { verbs } => ("bursts", bursts::bursts(verbs)),
        Check::Changes { rounds } => ("changes", changes::changes(rounds)),
        Check::Fuzz { seconds, target } => ("fuzz", fuzz::run(seconds, target.as_deref())),
        Check::Lookups => ("lookups", lookups::lookups()),
        Check::Mallocs => ("mallocs", mallocs::mallocs(&command::target())),
        Check::Hits => ("hits", hits::hits()),
        Check::Launchers => ("launchers", launchers::launchers()),
        Check::Peers { json } => ("peers", peers::peers(json)),
        Check::Tests => ("tests", programs::tests()),
        Check::Terminals => ("terminals", programs::terminals()),
        Check::Bare => ("bare", programs::bare()),
        Check::Verbs { short: true } => ("verbs", verbs::verbs(Form::Short)),
        Check::Verbs { short: false } => ("verbs", verbs::verbs(Form::Long)),
        Check::Install { prefix, debug } => ("install", install::install(prefix.as_deref(), debug)),
        Check::Deb { out, debug, check, debootstrap } => {
            ("deb", deb::deb(out.as_deref(), debug, check.then_some(debootstrap.as_deref())))
        }
        Check::Abi { write } => ("abi", abi::abi(write)),
        Check::Fresh { debootstrap: None } => ("fresh", fresh::here()),
        Check::Fresh { debootstrap: Some(dir) } => ("fresh", fresh::in_debian(&dir)),
        Check::Ci { part } => return ci::run(part),
    };
    outcome.announce(name);
    outcome.exit_code()
}
