//! The paper's two programs, run on this machine and recorded, for the simulator to run again.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use sim::{
    Act, Direction,
    experiments::{Recorded, RecordedRank},
    recording::{Action, Trace, Transfer},
};

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Cannon,
    Bitonic,
}

impl Program {
    pub(super) const ALL: [Program; 2] = [Program::Cannon, Program::Bitonic];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Program::Cannon => "cannon",
            Program::Bitonic => "bitonic",
        }
    }

    /// The command line.
    pub(super) fn words(self, size: Size) -> Vec<&'static str> {
        let (entries, put_bytes, rounds) = match (self, size) {
            (Program::Cannon, Size::Paper) => ("1000", "160", "20"),
            (Program::Cannon, Size::Small) => ("200", "160", "20"),
            (Program::Cannon, Size::AllToAll) => ("200", "160", "10"),
            (Program::Bitonic, Size::Paper) => ("210000", "8", "10"),
            (Program::Bitonic, Size::Small) => ("10240", "8", "10"),
            (Program::Bitonic, Size::AllToAll) => ("35000", "8", "1"),
        };
        let name = self.name();
        vec!["kernel", name, "-n", "4", "--size", entries, "--put-bytes", put_bytes, "--rounds", rounds]
    }

    /// Runs it here on shared memory, its result verified, and gives what its ranks did on such hosts.
    ///
    /// # Errors
    /// If it cannot be run or its result is wrong, or what it recorded cannot be read.
    pub(super) fn record(self, size: Size, hosts: &Hosts, directory: &Path) -> Result<Recorded> {
        let file = directory.join(format!("{}.trace", self.name()));
        let status = Command::new(env::current_exe().context("this program's own file")?)
            .args(self.words(size))
            .arg("--record")
            .arg(&file)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("starting the program {}", self.name()))?;
        if !status.success() {
            bail!("recording the program {} failed: {status}", self.name());
        }
        read(&file, hosts).with_context(|| format!("reading what the program {} recorded", self.name()))
    }
}

/// How much a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Between two hosts, as many puts as in the paper.
    Paper,
    /// About twenty times fewer; of bitonic, whole pages.
    Small,
    /// About as many as that among four hosts.
    AllToAll,
}

/// Where ranks are taken to have run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hosts {
    /// Ranks of each host, which reach each other's memory by loads and stores.
    pub(super) ranks_each: u32,
    /// What these take, in ns a byte.
    pub(super) copy_ns_per_byte: f64,
}

impl Hosts {
    /// Adds a step. What goes to a rank of the same host is computing, and nothing that was computed around
    /// it is lost.
    fn add(&self, steps: &mut Vec<(u64, Act)>, rank: u32, compute_ns: u64, act: Act) {
        match act {
            Act::Transfer { peer, len, .. } if peer / self.ranks_each == rank / self.ranks_each => {
                let copying = (len as f64 * self.copy_ns_per_byte).round() as u64;
                match steps.last_mut() {
                    Some((_, Act::Compute(before))) => *before += compute_ns + copying,
                    _ => steps.push((compute_ns, Act::Compute(copying))),
                }
            }
            _ => steps.push((compute_ns, act)),
        }
    }
}

/// Reads a recording, whole.
fn read(file: &Path, hosts: &Hosts) -> Result<Recorded> {
    let trace = Trace::open(file)?;
    let mut recorded = Recorded::default();
    for (rank, header) in (0..).zip(&trace.header().ranks) {
        let mut ran = RecordedRank {
            memory: header.arrays.iter().map(|array| (array.addr, array.len)).collect(),
            steps: Vec::new(),
        };
        for step in trace.steps(rank) {
            let step = step?;
            hosts.add(&mut ran.steps, rank, step.compute_ns, act(step.action));
        }
        recorded.ranks.push(ran);
    }
    Ok(recorded)
}

fn act(action: Action) -> Act {
    let transfer = |direction, Transfer { peer, remote, local, len }| Act::Transfer {
        direction,
        peer,
        remote,
        local,
        len,
    };
    match action {
        Action::Put(put) => transfer(Direction::Put, put),
        Action::Get(get) => transfer(Direction::Get, get),
        Action::Barrier => Act::Barrier,
        Action::Signal { peer } => Act::Signal(peer),
        Action::Wait { peer } => Act::Wait(peer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_a_rank_of_the_same_host_is_computing() {
        let hosts = Hosts { ranks_each: 2, copy_ns_per_byte: 5.0 };
        let put = |peer| Act::Transfer { direction: Direction::Put, peer, remote: 0, local: 0, len: 8 };
        let mut steps = Vec::new();
        for (compute_ns, act) in
            [(100, put(1)), (7, put(1)), (3, put(2)), (2, put(1)), (0, Act::Barrier), (9, put(3))]
        {
            hosts.add(&mut steps, 0, compute_ns, act);
        }
        let kept = [
            (100, Act::Compute(40 + 47)),
            (3, put(2)),
            (2, Act::Compute(40)),
            (0, Act::Barrier),
            (9, put(3)),
        ];
        assert_eq!(steps, kept);
        let mut steps = Vec::new();
        Hosts { ranks_each: 1, ..hosts }.add(&mut steps, 0, 100, put(1));
        assert_eq!(steps, [(100, put(1))], "each rank on a host of its own");
    }
}
