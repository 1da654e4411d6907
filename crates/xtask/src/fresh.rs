//! What a newcomer sees: the README's first commands, in a clean clone, with an empty Cargo cache.

use crate::command::{self, Failure, root, run};
use crate::debian;
use crate::outcome::Outcome;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::Terminal;

/// A newcomer's terminal, and for how long a command may run in it: a first build, on a slow and busy
/// machine.
const TERMINAL: Terminal = Terminal { columns: 100, rows: 30, limit: Duration::from_secs(2 * 3600) };

/// Only what the README says is needed, and what HTTPS needs.
const DEBIAN_PACKAGES: &str = "gcc,libc6-dev,ca-certificates";

/// The name of the clone inside whatever folder stands for the new machine.
const CLONE: &str = "standpipe";

/// The newcomer's home inside a Debian folder.
const HOME: &str = "home/newcomer";

/// In a temporary folder of this machine, with its toolchain and libraries.
pub(crate) fn here() -> Outcome {
    let all = || -> Result<(), Failure> {
        let machine =
            tempfile::tempdir().map_err(|error| Failure(format!("no temporary folder: {error}")))?;
        clone_into(machine.path())?;
        let home = machine.path().display();
        let path = std::env::var("PATH").unwrap_or_default();
        let rustup = rustup_home();
        try_all(machine.path(), |command| {
            let mut env = Command::new("env");
            env.arg("--ignore-environment")
                .arg("TERM=xterm")
                .arg(format!("PATH={path}"))
                .arg(format!("HOME={home}"))
                .arg(format!("RUSTUP_HOME={rustup}"))
                .arg(format!("CARGO_HOME={home}/cargo"))
                .args(["sh", "-euc", command])
                .current_dir(machine.path().join(CLONE));
            env
        })
    };
    all().into()
}

/// How this machine reaches the network: its name servers, and the certificates that it trusts.
const NETWORK: [&str; 2] = ["etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"];

/// In `machine`, a Debian with a C compiler and a copy of this machine's stable toolchain, and nothing else.
pub(crate) fn in_debian(machine: &Path) -> Outcome {
    if let Err(missing) = debian::can_be_made() {
        return missing.into();
    }
    let all = || -> Result<(), Failure> {
        debian::make(machine, DEBIAN_PACKAGES)?;
        let toolchain = run("rustc --print sysroot").output()?;
        run("rm -rf").arg(machine.join("opt/rust")).arg(machine.join(HOME)).status()?;
        run("cp -a").arg(toolchain.trim()).arg(machine.join("opt/rust")).status()?;
        for file in NETWORK {
            run("cp -L").arg(Path::new("/").join(file)).arg(machine.join(file)).status()?;
        }
        fs::create_dir(machine.join(HOME)).map_err(|error| Failure(format!("its home: {error}")))?;
        clone_into(&machine.join(HOME))?;
        try_all(&machine.join(HOME), |command| in_chroot(machine, command))
    };
    all().into()
}

/// Runs the README's commands in a terminal, each as `prepare` has it, and says what each has taken; `home`
/// is the newcomer's.
fn try_all(home: &Path, prepare: impl Fn(&str) -> Command) -> Result<(), Failure> {
    let mut taken = Vec::new();
    let mut before = disk(home)?;
    for line in readme_commands()? {
        println!("$ {line}");
        let (start, processor) = (Instant::now(), command::processor());
        let mut out = std::io::stdout();
        let status = TERMINAL.run(&prepare(&line), |said| {
            // Nobody may be reading any more.
            let _ = out.write_all(said).and_then(|()| out.flush());
        });
        let (clock, processor) = (start.elapsed(), command::processor() - processor);
        let after = disk(home)?;
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        taken.push(format!(
            "{line}: {:.1} minutes by the clock, {:.1} of processor; {:.1} GiB of disk",
            minutes(clock),
            minutes(processor),
            (after - before) / GIB
        ));
        before = after;
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(Failure(format!("`{line}`: {status}"))),
            Err(error) => return Err(Failure(format!("`{line}`: {error}"))),
        }
    }
    println!("{}", taken.join("\n"));
    Ok(())
}

const GIB: f64 = (1_u64 << 30) as f64;

/// Bytes of disk that all below a folder takes.
fn disk(folder: &Path) -> Result<f64, Failure> {
    let said = run("du --summarize --block-size=1").arg(folder).output()?;
    let bytes = said.split_whitespace().next().and_then(|bytes| bytes.parse().ok());
    bytes.ok_or_else(|| Failure(format!("du said {said:?}")))
}

/// Runs `command` in the clone, seeing only `machine`'s files.
fn in_chroot(machine: &Path, command: &str) -> Command {
    let path = "/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    debian::enter(machine, path, "/home/newcomer", &format!("cd /{HOME}/{CLONE}; {command}"))
}

fn clone_into(home: &Path) -> Result<(), Failure> {
    run("git clone --quiet --no-local").arg(root()).arg(home.join(CLONE)).status()
}

fn rustup_home() -> String {
    let home = || std::env::var("HOME").map(|home| format!("{home}/.rustup"));
    std::env::var("RUSTUP_HOME").or_else(|_| home()).unwrap_or_default()
}

/// The README's commands, as committed.
fn readme_commands() -> Result<Vec<String>, Failure> {
    let commands = first_commands(&run("git show HEAD:README.md").output()?);
    if commands.is_empty() {
        return Err(Failure("the README has no ```sh block with commands".into()));
    }
    Ok(commands)
}

/// The lines of the first `sh` block of a Markdown text, comments left out.
fn first_commands(markdown: &str) -> Vec<String> {
    let block =
        markdown.lines().skip_while(|line| *line != "```sh").skip(1).take_while(|line| *line != "```");
    let commands = block.map(|line| line.split(" #").next().unwrap_or_default().trim());
    commands.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_block_of_commands_only() {
        let readme = "# Name\n```rust\nfn x() {}\n```\n\n```sh\n# try it\ncargo run   # a minute\n\ncargo test\n```\n\
            ```sh\ncargo add standpipe\n```\n";
        assert_eq!(first_commands(readme), ["cargo run", "cargo test"]);
        assert_eq!(first_commands("# Name\n"), [""; 0]);
    }

    #[test]
    fn the_first_command_is_the_short_study_in_a_package_that_is_there() {
        let readme = fs::read_to_string(root().join("README.md")).expect("it stands in the repository");
        assert_eq!(first_commands(&readme)[0], "cargo run --profile quick -p standpipe-study -- kv");
        let metadata = run("cargo metadata --no-deps --format-version 1").output().expect("Cargo");
        let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
        let packages = metadata["packages"].as_array().expect("a list");
        let study = packages.iter().find(|package| package["name"] == "standpipe-study");
        let targets = study.and_then(|package| package["targets"].as_array()).expect("the package is there");
        assert_eq!(targets.iter().filter(|target| target["kind"][0] == "bin").count(), 1);
    }

    #[test]
    fn cargo_knows_which_program_the_former_first_command_runs() {
        let metadata = run("cargo metadata --no-deps --format-version 1").output().expect("Cargo");
        let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
        let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
        let members = list(&metadata["workspace_default_members"]);
        let packages = list(&metadata["packages"]);
        let default = packages.iter().filter(|package| members.contains(&package["id"]));
        let runs: Vec<_> =
            default.filter_map(|package| package["default_run"].as_str().map(str::to_owned)).collect();
        assert_eq!(runs, ["standpipe"], "`cargo run` wants to know which of several programs");
    }
}
