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
};

use crate::kernels::trace::{Action, Trace, Transfer};

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

    /// The command line: as many puts as in the paper, or twenty times fewer.
    pub(super) const fn words(self, small: bool) -> &'static [&'static str] {
        match (self, small) {
            (Program::Cannon, false) => &["kernel", "cannon", "--paper"],
            (Program::Bitonic, false) => &["kernel", "bitonic", "--paper"],
            (Program::Cannon, true) => {
                &["kernel", "cannon", "-n", "4", "--size", "200", "--put-bytes", "160", "--rounds", "10"]
            }
            (Program::Bitonic, true) => {
                &["kernel", "bitonic", "-n", "4", "--size", "35000", "--put-bytes", "8"]
            }
        }
    }

    /// Runs it here on shared memory, its result verified, and gives what it did.
    ///
    /// # Errors
    /// If it cannot be run or its result is wrong, or what it recorded cannot be read.
    pub(super) fn record(self, small: bool, directory: &Path) -> Result<Recorded> {
        let file = directory.join(format!("{}.trace", self.name()));
        let status = Command::new(env::current_exe().context("this program's own file")?)
            .args(self.words(small))
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
        read(&file).with_context(|| format!("reading what the program {} recorded", self.name()))
    }
}

/// Reads a recording, whole.
fn read(file: &Path) -> Result<Recorded> {
    let trace = Trace::open(file)?;
    let mut recorded = Recorded::default();
    for (rank, header) in (0..).zip(&trace.header().ranks) {
        let mut ran = RecordedRank {
            memory: header.arrays.iter().map(|array| (array.addr, array.len)).collect(),
            steps: Vec::new(),
        };
        for step in trace.steps(rank) {
            let step = step?;
            ran.steps.push((step.compute_ns, act(step.action)));
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
