//! The jobs: roles of the library's own test of launchers, and what their ranks say.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::environment::{Environment, Family, on};
use super::hosts::{Host, address};
use crate::command::written;
use crate::outcome::Outcome;

/// Seconds for a job, of which many ranks on few cores take most.
const LIMIT_S: u32 = 180;

/// What a rank says begins so.
const MARK: &str = "@@";

/// Ranks of a small job, and of a large one at most.
const FEW: usize = 4;
const MANY: usize = 32;

/// Memory that each rank of a large job should find, in KiB.
const RANK_KIB: usize = 128 << 10;

/// What ranks do.
#[derive(Clone, Copy)]
enum Kind {
    /// All ask all others, put and get.
    Talk,
    /// They have a thousand handlers.
    Handlers,
    /// That one exits with its node open.
    Exits(usize),
}

/// A job, and what of the environment its ranks find besides.
pub(super) struct Job {
    pub(super) name: &'static str,
    kind: Kind,
    large: bool,
    vars: &'static [&'static str],
    /// Only under these launchers.
    only: Option<Family>,
}

const fn job(name: &'static str, kind: Kind) -> Job {
    Job { name, kind, large: false, vars: &[], only: None }
}

pub(super) const JOBS: [Job; 7] = [
    job("four ranks", Kind::Talk),
    Job { large: true, ..job("many ranks", Kind::Talk) },
    job("a thousand handlers", Kind::Handlers),
    job("rank 0 exits", Kind::Exits(0)),
    job("rank 1 exits", Kind::Exits(1)),
    Job { vars: &["SLURM_JOB_ID=7", "SLURM_STEP_ID=0"], ..job("in a Slurm allocation", Kind::Talk) },
    Job { vars: &["STANDPIPE_LAUNCHER=pmi2"], only: Some(Family::Hydra), ..job("PMI 2 by name", Kind::Talk) },
];

impl Job {
    /// Whether it means anything under such a launcher.
    pub(super) fn suits(&self, family: Family) -> bool {
        self.only.is_none_or(|only| only == family)
    }

    fn role(&self) -> String {
        match self.kind {
            Kind::Talk => "talk once".to_owned(),
            Kind::Handlers => "talk much".to_owned(),
            Kind::Exits(who) => format!("exits {who}"),
        }
    }

    fn ranks(&self) -> usize {
        if self.large { (available_kib() / RANK_KIB / 2 * 2).clamp(FEW, MANY) } else { FEW }
    }

    /// What its ranks say, in order.
    fn said(&self, ranks: usize) -> Vec<String> {
        let heard = ranks * (ranks + 1);
        let mut said: Vec<String> = match self.kind {
            Kind::Talk => (0..ranks).map(|rank| format!("rank {rank} of {ranks} heard {heard}")).collect(),
            Kind::Handlers => (0..ranks).map(|rank| format!("rank {rank} of {ranks}")).collect(),
            Kind::Exits(who) => {
                let tells = |rank| [format!("rank {rank} lost rank {who}"), format!("rank {rank} went on")];
                (0..ranks).filter(|rank| *rank != who).flat_map(tells).collect()
            }
        };
        said.sort();
        said
    }

    /// Runs it on these hosts.
    pub(super) fn run(
        &self,
        launcher: &Environment,
        hosts: &[Host],
        folder: &Path,
        program: &Path,
    ) -> Outcome {
        let agent = match agent(hosts, folder) {
            Ok(agent) => agent,
            Err(error) => return Outcome::Failed(format!("no script for ssh: {error}")),
        };
        let ranks = self.ranks();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &LIMIT_S.to_string()]).args(on(&hosts[0], &address(0)));
        command.args(launcher.words(ranks, hosts.len(), &agent)).args(["env", "STANDPIPE_HEAP=16M"]);
        command.args(["STANDPIPE_LIBFABRIC=bundled", &format!("LAUNCHERS_TEST_ROLE={}", self.role())]);
        command.args(self.vars).arg(program).args(["--exact", "child", "--nocapture"]);
        let output = match written(command.stdin(Stdio::null()).current_dir(folder)) {
            Ok(output) => output,
            Err(error) => return Outcome::Failed(format!("it did not start: {error}")),
        };
        let [out, complaint] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        let mut lines: Vec<String> =
            out.lines().filter_map(|line| Some(line.split_once(MARK)?.1.trim().to_owned())).collect();
        lines.sort();
        if output.status.success() && lines == self.said(ranks) {
            return Outcome::Passed;
        }
        let why = complaint.lines().find(|line| line.contains("a job: ") || line.contains("rror"));
        let why = why.or(complaint.lines().last()).unwrap_or_default();
        Outcome::Failed(format!(
            "{}, {} of {} lines: {why}",
            output.status,
            lines.len(),
            self.said(ranks).len()
        ))
    }
}

/// What a launcher takes for ssh: `AGENT [-OPTION…] HOST COMMAND…`.
fn agent(hosts: &[Host], folder: &Path) -> std::io::Result<PathBuf> {
    let ways = hosts.iter().enumerate().map(|(number, host)| {
        let quoted: Vec<String> = on(host, &address(number)).iter().map(|word| format!("'{word}'")).collect();
        format!("{}) exec {} sh -c \"$*\";;\n", address(number), quoted.join(" "))
    });
    let ways: String = ways.collect();
    let script = format!(
        "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n{ways}\
         *) echo \"no host $host\" >&2; exit 255;;\nesac\n"
    );
    let path = folder.join("agent");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Memory that the kernel could give now.
fn available_kib() -> usize {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
