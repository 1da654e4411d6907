//! `standpipe run`: starts a job's processes on this host.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use measure::{
    signals::complain,
    stdout::print,
    transport::{TRANSPORT, chosen, look_for, parse},
    units::{between, seconds},
    usage_error::UsageError,
};
use serde::Serialize;
use standpipe::Transport;
use standpipe::launch::{End, Launch, Outcome, RANKS_MAX, RankOutcome, unblock_signals};

/// The arguments of `standpipe run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// How many processes to start
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = between(1, RANKS_MAX))]
    ranks: u32,
    /// How the processes reach each other: shm, ofi or ofi:PROVIDER, such as ofi:tcp. Without it, as
    /// STANDPIPE_TRANSPORT says
    #[arg(long, value_name = "NAME", value_parser = parse)]
    transport: Option<Transport>,
    /// Put `[rank] ` in front of every line that a process writes; lines of different ranks then never mix
    #[arg(long)]
    tag_output: bool,
    /// Start nothing, and say how launchers start the program on these hosts: this command starts it on this
    /// one only
    #[arg(long, value_name = "HOST,…", conflicts_with_all = ["tag_output", "same_addresses", "keep_going", "json"])]
    hosts: Option<String>,
    /// Place the program, its libraries and its memory at the same addresses in all processes, for programs
    /// that send each other pointers (am.h, gam.h)
    #[arg(long)]
    same_addresses: bool,
    /// Let the others go on when one fails
    #[arg(long)]
    keep_going: bool,
    /// How long the others may take to end when one has failed, and all after Ctrl-C, before they are killed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,
    /// Print how the ranks ended as one JSON object; what they print goes to standard error then
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Starts the job and stays until it is over. The exit status is the worst of the ranks': see
/// [`Outcome::status`]; 127 where there is no such program, 126 where it cannot be run, 125 where the job
/// cannot be started otherwise.
pub(crate) fn run(args: RunArgs) -> ExitCode {
    let RunArgs { ranks, transport, tag_output, hosts, same_addresses, keep_going, grace, json, command } =
        args;
    if let Some(hosts) = hosts {
        complain(format_args!("{}", launchers(&hosts, ranks, &command)));
        return UsageError::STATUS.into();
    }
    // A parent process may have blocked signals that the job is to get.
    if let Err(error) = unblock_signals() {
        complain(format_args!("standpipe: signals that are blocked stay so: {error}"));
    }
    let transport = match given(transport) {
        Ok(transport) => transport,
        Err(error) => {
            complain(format_args!("standpipe: {error}"));
            return UsageError::STATUS.into();
        }
    };
    let mut words = command.into_iter();
    let program = words.next().expect("clap wants at least one");
    let launch = Launch::new(program)
        .args(words)
        .ranks(ranks)
        .tag_output(tag_output)
        .same_addresses(same_addresses)
        .stdout_to_stderr(json)
        .keep_going(keep_going)
        .grace(grace);
    let launch = transport.into_iter().fold(launch, |launch, name| launch.env(TRANSPORT, name.to_string()));
    match launch.run() {
        Ok(outcome) => {
            let said = if json { print(Report::of(&outcome).to_json()).map(drop) } else { Ok(()) };
            match said {
                Ok(()) => outcome.status().into(),
                Err(error) => {
                    complain(format_args!("standpipe: {:#}", anyhow::Error::from(error)));
                    outcome.status().max(1).into()
                }
            }
        }
        Err(error) => {
            complain(format_args!("standpipe: {error}"));
            error.status().into()
        }
    }
}

/// The transport that the option names, once it or that of the environment has been looked for: each rank
/// would fail by itself.
fn given(option: Option<Transport>) -> Result<Option<Transport>, UsageError> {
    let transport = chosen(option.as_ref()).map_err(UsageError::new)?;
    look_for(&transport)?;
    Ok(option)
}

/// How other launchers start a program on several hosts. Whichever of them does, its processes are one job.
fn launchers(hosts: &str, ranks: u32, command: &[OsString]) -> String {
    let command: Vec<_> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let (command, hosts) = (command.join(" "), quoted(hosts));
    let ways = [
        ("mpirun", "Open MPI", format!("mpirun -host {hosts} --map-by node -n {ranks} {command}")),
        ("mpiexec.hydra", "MPICH", format!("mpiexec.hydra -hosts {hosts} -n {ranks} {command}")),
        ("srun", "Slurm", format!("srun --mpi=pmix -w {hosts} -n {ranks} {command}")),
        (
            "torchrun",
            "PyTorch",
            format!(
                "torchrun, or anything that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and STANDPIPE_SECRET, starting {command}"
            ),
        ),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let line = |(program, name, way): &(&str, &str, String)| {
        let here = if is_here(program) { "installed here" } else { "not found here" };
        format!("  {way}\n      ({name}, {here})")
    };
    let ways: Vec<String> = ways.iter().map(line).collect();
    format!(
        "standpipe: run starts a program on this host only. On several, start it by one of these, as it stands:\n{}",
        ways.join("\n")
    )
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_-./:=@%+,".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    status: u8,
    first_failed: Option<u32>,
    interrupted: bool,
    output_lost: bool,
    ranks: Vec<RankReport>,
}

#[derive(Serialize)]
struct RankReport {
    rank: u32,
    pid: u32,
    status: u8,
    exit_code: Option<i32>,
    signal: Option<i32>,
    ended_by_launcher: bool,
}

impl Report {
    fn of(outcome: &Outcome) -> Self {
        Self {
            status: outcome.status(),
            first_failed: outcome.first_failed,
            interrupted: outcome.interrupted,
            output_lost: outcome.output_lost,
            ranks: outcome.ranks.iter().map(RankReport::of).collect(),
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, truth values and field names")
    }
}

impl RankReport {
    fn of(outcome: &RankOutcome) -> Self {
        let RankOutcome { rank, pid, end, ended_by_launcher } = *outcome;
        let (exit_code, signal) = match end {
            End::Exited(code) => (Some(code), None),
            End::Killed(signal) => (None, Some(signal)),
            _ => (None, None),
        };
        Self { rank, pid, status: end.status(), exit_code, signal, ended_by_launcher }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_cut_them() {
        assert_eq!(quoted("a-b_c/d.e:1,f"), "a-b_c/d.e:1,f");
        assert_eq!(quoted("a b;rm"), "'a b;rm'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
