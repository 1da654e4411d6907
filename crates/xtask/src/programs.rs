//! The workspace's test programs, run one by one elsewhere than cargo runs them: in terminals, and without
//! libfabric.

use crate::command::{Failure, Run, run};
use crate::filters::each_names_a_test;
use crate::outcome::Outcome;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::{LONG as LONG_FORM, SKIPS, Terminal};

/// Letters in a line of small and large terminals. One of [`COMMON`] is where [`bare`] runs.
const WIDTHS: [u16; 2] = [60, 200];
const COMMON: u16 = 80;

/// The commands' packages.
const COMMANDS: [&str; 2] = ["standpipe-cli", "standpipe-study"];

/// The packages that print for people.
const PRINT: [&str; 4] = [COMMANDS[0], COMMANDS[1], "standpipe-measure", "standpipe-studies"];

/// The commands' test programs, and tests of theirs that run jobs for long and print through pipes: the
/// commonest terminal is enough for them.
const OF_COMMANDS: &str = "commands";
const LONG: [&str; 9] = [
    "gups::",
    "isx::",
    "kernel::",
    "rendezvous::",
    "signals::",
    "sim::",
    "studies::",
    "study_kv::",
    "tune::",
];

/// Tests that count or measure for long and print nothing.
const COUNTING: [&str; 4] = ["kernels::product", "kv::generate", "study::isx::sort", "measured"];

/// The library's test programs that launch jobs, and the tests of theirs that are about that.
const LAUNCH: [(&str, &[&str]); 3] =
    [("jobs", &["launch::", "launch_signals::"]), ("launch_join", &[]), ("launchers", &[])];

/// More than any of the programs takes.
const LIMIT: Duration = Duration::from_secs(300);

/// Far more than all tests take.
const ALL_LIMIT_S: u64 = 3600;

/// All tests, with what takes long: what CI runs.
pub(crate) fn tests() -> Outcome {
    let all = run("cargo test --workspace --no-fail-fast").env(LONG_FORM, "1");
    all.limit_s(ALL_LIMIT_S).status().into()
}

/// The commands' tests in small and large terminals: nothing that is tested depends on how wide one is.
pub(crate) fn terminals() -> Outcome {
    let all = || -> Result<(), Failure> {
        let programs = built()?;
        let prints = |program: &&Program| PRINT.contains(&program.package.as_str());
        let prints: Vec<&Program> = programs.iter().filter(prints).collect();
        let of_commands = |program: &&&Program| program.name == OF_COMMANDS;
        each_is_in_one(&LONG, prints.iter().filter(of_commands))?;
        each_is_in_one(&COUNTING, prints.iter())?;
        let wanted = WIDTHS.iter().flat_map(|columns| prints.iter().map(|program| (*program, *columns)));
        for (program, columns) in wanted {
            let long: &[&str] = if program.name == OF_COMMANDS { &LONG } else { &[] };
            let skips = COUNTING.iter().chain(long).flat_map(|skip| ["--skip", skip]);
            program.run(Command::new(&program.path).args(skips), columns)?;
        }
        Ok(())
    };
    all().into()
}

/// Where no libfabric is: the variable keeps programs from the system's and from the one compiled in.
const NOWHERE: (&str, &str) = ("STANDPIPE_LIBFABRIC", "/no/such/libfabric.so.1");

/// The tests of the commands and of launching where there is no libfabric, in a terminal.
pub(crate) fn bare() -> Outcome {
    let all = || -> Result<(), Failure> {
        let programs = built()?;
        let command = command_built()?;
        let info = hiding(&command).arg("info").output();
        let info = info.map_err(|error| Failure(format!("{}: {error}", command.display())))?;
        if !String::from_utf8_lossy(&info.stdout).contains("libfabric cannot be loaded") {
            let said = String::from_utf8_lossy(&info.stderr).into_owned();
            return Err(Failure(format!(
                "`standpipe info` does not miss libfabric: {}: {said}",
                info.status
            )));
        }
        let launches = |program: &Program| match program.package.as_str() {
            "standpipe" => LAUNCH.iter().find(|(name, _)| *name == program.name).map(|(_, tests)| *tests),
            package => PRINT.contains(&package).then_some::<&[&str]>(&[]),
        };
        // One by one: some start jobs of two dozen ranks, and look at the clock.
        for (program, tests) in programs.iter().filter_map(|program| Some((program, launches(program)?))) {
            each_names_a_test(&tests.join(" "), || program.list())?;
            program.run(hiding(&program.path).args(tests), COMMON)?;
        }
        Ok(())
    };
    all().into()
}

/// Makes sure that each filter names a test of one of these programs.
fn each_is_in_one<'a>(
    filters: &[&str],
    programs: impl Iterator<Item = &'a &'a Program> + Clone,
) -> Result<(), Failure> {
    let named = |filter: &str| programs.clone().any(|of| each_names_a_test(filter, || of.list()).is_ok());
    match filters.iter().find(|filter| !named(filter)) {
        Some(filter) => Err(Failure(format!("no test of any program has {filter:?} in its name"))),
        None => Ok(()),
    }
}

/// A command that runs `program` where no libfabric is found.
fn hiding(program: &Path) -> Command {
    let mut command = Command::new(program);
    // What is skipped for want of it is as it should be.
    command.env(NOWHERE.0, NOWHERE.1).env_remove(SKIPS);
    command
}

/// A test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    name: String,
    path: PathBuf,
    /// Where cargo runs it.
    folder: PathBuf,
}

impl Program {
    /// Lists its tests.
    fn list(&self) -> Run {
        run("").arg(&self.path).arg("--list")
    }

    /// Runs it by `command` in a terminal, and shows what it says if it fails.
    fn run(&self, command: &mut Command, columns: u16) -> Result<(), Failure> {
        let terminal = Terminal { limit: LIMIT, ..Terminal::of(columns) };
        let start = Instant::now();
        let mut said = Vec::new();
        let ended = terminal.run(command.current_dir(&self.folder), |bytes| said.extend_from_slice(bytes));
        let failed = |how: String| {
            println!("{}", String::from_utf8_lossy(&said).replace("\r\n", "\n"));
            Failure(format!("{} in {columns} columns: {how}", self.name))
        };
        match ended {
            Ok(status) if status.success() => {
                println!("{} in {columns} columns: {:.1?}", self.name, start.elapsed());
                Ok(())
            }
            Ok(status) => Err(failed(status.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Builds all test programs, and the programs that they start, and returns what cargo tells of them. It
/// builds with the features that all of the workspace has, as `cargo test --workspace` does, so that nothing
/// is built twice.
fn told() -> Result<String, Failure> {
    run("cargo test --workspace --no-run --message-format=json").output()
}

fn built() -> Result<Vec<Program>, Failure> {
    let programs = programs(&told()?);
    // A name that changes must not leave a check that passes without it.
    for name in LAUNCH.iter().map(|(name, _)| name).chain([&OF_COMMANDS]) {
        if !programs.iter().any(|program| program.name == *name) {
            return Err(Failure(format!("there is no test program {name}")));
        }
    }
    Ok(programs)
}

/// The command, as its own tests start it.
fn command_built() -> Result<PathBuf, Failure> {
    let path = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_command = message["target"]["name"] == "standpipe" && message["target"]["kind"][0] == "bin";
        (is_command && message["profile"]["test"] == false).then_some(())?;
        Some(PathBuf::from(message["executable"].as_str()?))
    };
    let told = told()?;
    told.lines().find_map(path).ok_or_else(|| Failure("cargo built no program standpipe".into()))
}

/// The test programs of which cargo tells, one JSON object a line.
fn programs(told: &str) -> Vec<Program> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        // `path+file:///…/crates/cli#standpipe-cli@0.1.0`, or without a name that the folder has already.
        let (place, id) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = id.split_once('@').map_or_else(|| place.rsplit('/').next(), |(name, _)| Some(name))?;
        Some(Program {
            package: package.to_owned(),
            name: message["target"]["name"].as_str()?.to_owned(),
            path: message["executable"].as_str()?.into(),
            folder,
        })
    };
    told.lines().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_test_programs() {
        let told = "{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///s/crates/cli#standpipe-cli@0.1.0\",\
            \"manifest_path\":\"/s/crates/cli/Cargo.toml\",\"target\":{\"name\":\"words\"},\"profile\":{\"test\":true},\
            \"executable\":\"/s/target/debug/deps/words-1\"}\n\
            {\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///s/crates/cli#standpipe-cli@0.1.0\",\
            \"manifest_path\":\"/s/crates/cli/Cargo.toml\",\"target\":{\"name\":\"standpipe\"},\"profile\":{\"test\":false},\
            \"executable\":\"/s/target/debug/standpipe\"}\nnonsense\n";
        let words = Program {
            package: "standpipe-cli".into(),
            name: "words".into(),
            path: "/s/target/debug/deps/words-1".into(),
            folder: "/s/crates/cli".into(),
        };
        assert_eq!(programs(told), [words]);
        let root = told.replace("crates/cli#standpipe-cli@0.1.0", "standpipe#0.1.0");
        assert_eq!(programs(&root)[0].package, "standpipe");
    }
}
