//! Tests over real verbs: `tools/rdma-vm` boots a virtual machine whose kernel has soft-RoCE devices, and
//! runs there what was built here.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Failure, Run, run};
use crate::filters::each_names_a_test;
use crate::form::Form;
use crate::outcome::Outcome;

/// Makes the virtual machine; says `-h` how.
const VM: &str = "tools/rdma-vm";

/// Memory of the machine: the whole suite in one process keeps more than 2 GiB, as each of its endpoints
/// leaves some behind.
const MEMORY: &str = "6G";

/// Seconds for what it needs to be fetched and installed.
const PREPARE_LIMIT_S: u64 = 900;

/// Seconds for a build of all tests.
const BUILD_LIMIT_S: u64 = 1800;

/// Seconds for the machine to boot, and to end.
const BOOT_LIMIT_S: u32 = 60;

/// What is tested in the machine.
const PROVIDER: &str = "verbs;ofi_rxm";

/// A program that was built, what it is told, and what it finds in its environment: a program by its name in
/// `bin/`, tests of a crate by the crate's folder and their name, and the library's by their name alone.
pub(crate) struct Step {
    pub(crate) program: &'static str,
    pub(crate) args: &'static str,
    pub(crate) env: &'static str,
    pub(crate) limit_s: u32,
}

const fn step(program: &'static str, args: &'static str, limit_s: u32) -> Step {
    Step { program, args, env: "", limit_s }
}

/// Tests of the historic layers, whose jobs use the devices.
const fn layer(program: &'static str, args: &'static str, limit_s: u32) -> Step {
    Step { program, args, env: "STANDPIPE_TRANSPORT='ofi:verbs;ofi_rxm'", limit_s }
}

/// What the command measures while nothing at its target makes progress.
const fn alone(args: &'static str) -> Step {
    Step { program: "bin/standpipe", args, env: "STANDPIPE_PROGRESS=off", limit_s: 160 }
}

const SOME_CASES: &str = "STANDPIPE_TEST_CASES=scatter_lists_of_mixed_pieces,many_transfers_at_once,one_swap_wins,\
                          requests_are_replied_to,a_remote_fault_is_named_and_survived,everything_is_counted";

/// Heaps, page by page.
const HEAPS: &str = "--nocapture transport::ofi::tests::heaps::pages transport::ofi::tests::heaps::who_frees";

/// What was given up writes nothing later.
const SETTLES: &str = "--nocapture what_was_given_up_over_providers";

/// Each way to change memory, at both ends of transfers.
const CHANGES: &str = "--nocapture transport::ofi::tests::changes";

/// What is pinned, and what limits of that do: the others of these tests need no verbs.
const LIMITS: &str = "--nocapture providers_that_pin no_more_is_pinned";

/// All words, in all three cases of their target, and what else is measured over a network.
const WORDS: &str = "perf --transport 'ofi:verbs;ofi_rxm'";

/// One thing of each kind, in five minutes; the limits are more than twice what that takes beside a busy
/// process.
const SHORT: [Step; 14] = [
    step("fabric/two_processes", "", 30),
    step("fabric/loopback", "pieces_are messages_arrive", 40),
    Step {
        program: "standpipe",
        args: "--exact transport::ofi::tests::suite::the_suite_holds_by_message \
               transport::ofi::tests::suite::the_suite_holds_with_firehose",
        env: SOME_CASES,
        limit_s: 100,
    },
    step("standpipe", HEAPS, 50),
    Step { program: "standpipe", args: CHANGES, env: "STANDPIPE_CHANGE_ROUNDS=5", limit_s: 160 },
    Step { program: "limits", args: LIMITS, env: "STANDPIPE_TEST_ONLY_MEMLOCK=65536", limit_s: 100 },
    Step { program: "jobs", args: SETTLES, env: "STANDPIPE_TEST_SETTLE_S=20", limit_s: 160 },
    alone("perf put --size 8 --target busy --transport 'ofi:verbs;ofi_rxm' --json"),
    alone("perf get --size 8 --target busy --transport 'ofi:verbs;ofi_rxm' --json"),
    layer("layers-c/gam", "requests_go_over_a_network", 160),
    layer("layers-c/bip", "losses_over_a_network", 60),
    layer("layers-c/fm", "handlers_interleave_over_a_network", 60),
    layer("layers-c/pm", "the_pin_down_cache_is_seen_at_work_by_real_pins", 60),
    layer("layers-c/via", "data_goes_both_ways_over_a_network", 60),
];

/// Both studies over a network, as `--vm` runs them.
const FIREHOSE: &str =
    "firehose --transport 'ofi:verbs;ofi_rxm' --small --puts 10 --json --out /tmp/study-firehose";
const KV: &str = "kv --transport 'ofi:verbs;ofi_rxm' --strategy firehose --workers 2 --requests 4 --block-bytes 4K \
                  --layers 4 --cap 1M --json --out /tmp/study-kv";

const PINDOWN: &str =
    "pindown --transport 'ofi:verbs;ofi_rxm' --small --puts 100 --json --out /tmp/study-pindown";

const LAYERS: &str = "layers --transport 'ofi:verbs;ofi_rxm' --small --json --out /tmp/study-layers";
const BY_PM: &str =
    "pindown --layer pm --transport 'ofi:verbs;ofi_rxm' --small --puts 100 --json --out /tmp/study-pm";

/// Everything, which takes over an hour: the machine is emulated.
const LONG: [Step; 24] = [
    step("fabric/two_processes", "", 100),
    step("fabric/loopback", "", 300),
    step("fabric/aux_endpoints", "", 300),
    Step {
        program: "standpipe",
        args: "transport::ofi::tests::suite",
        env: "STANDPIPE_TEST_CASES=all",
        limit_s: 6000,
    },
    step("standpipe", HEAPS, 100),
    Step { program: "standpipe", args: CHANGES, env: "STANDPIPE_CHANGE_ROUNDS=1000", limit_s: 6000 },
    step("limits", "--nocapture", 600),
    Step { program: "jobs", args: SETTLES, env: "STANDPIPE_TEST_SETTLE_S=900", limit_s: 1200 },
    step("bin/standpipe", WORDS, 1200),
    step("bin/standpipe-study", FIREHOSE, 900),
    step("bin/standpipe-study", KV, 600),
    step("bin/standpipe-study", PINDOWN, 600),
    step("bin/standpipe-study", LAYERS, 600),
    step("bin/standpipe-study", BY_PM, 600),
    layer("layers/gam", "", 100),
    layer("layers/bip", "", 100),
    layer("layers/fm", "", 100),
    layer("layers/pm_mpi", "", 300),
    layer("layers/via", "", 100),
    layer("layers-c/gam", "", 3000),
    layer("layers-c/bip", "", 1500),
    layer("layers-c/fm", "", 1500),
    layer("layers-c/pm", "", 1500),
    layer("layers-c/via", "", 1500),
];

/// Builds the tests, boots the machine, and runs them there.
pub(crate) fn verbs(form: Form) -> Outcome {
    match form {
        Form::Short => over_verbs(form, &SHORT),
        Form::Long => over_verbs(form, &LONG),
    }
}

/// The same of these steps.
pub(crate) fn over_verbs(form: Form, steps: &[Step]) -> Outcome {
    if std::env::consts::ARCH != "x86_64" {
        return Outcome::Skipped("the virtual machine's kernel is one of x86-64".into());
    }
    let (prepared, why) = run(VM).arg("-P").limit_s(PREPARE_LIMIT_S).complaint();
    if let Err(failure) = prepared {
        let why = why.lines().last().map_or(failure.0, str::to_owned);
        return Outcome::Skipped(format!("no virtual machine with verbs: {why}"));
    }
    built(form, steps).and_then(|programs| in_machine(steps, &programs)).into()
}

/// Tests of the workspace, by name, and the programs that they start, with `bin/` before their names: all, or
/// those of these steps.
fn built(form: Form, steps: &[Step]) -> Result<BTreeMap<String, String>, Failure> {
    let build = run("cargo test --workspace --no-run --message-format=json");
    let build = match form {
        // As all other tests are, so that nothing is compiled twice.
        Form::Short => build,
        Form::Long => targets(steps).into_iter().fold(build.arg("--profile=emulated"), Run::arg),
    };
    let messages = build.limit_s(BUILD_LIMIT_S).output()?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// By which arguments Cargo builds no more than these steps need; by none, where one is a program: Cargo
/// builds programs for their packages' tests, and not by their names.
fn targets(steps: &[Step]) -> BTreeSet<String> {
    let target = |step: &Step| match step.program {
        program if program.starts_with("bin/") => None,
        "standpipe" => Some("--lib".to_owned()),
        program => Some(format!("--test={}", program.rsplit('/').next()?)),
    };
    steps.iter().map(target).collect::<Option<_>>().unwrap_or_default()
}

/// The name, as steps have it, and the path of what one of Cargo's messages tells of; programs have tests of
/// the same name as libraries'.
fn executable(message: &str) -> Option<(String, String)> {
    let (_, path) = message.split_once("\"executable\":\"")?;
    let (path, _) = path.split_once('"')?;
    let (folder, file) = path.rsplit_once('/')?;
    let of_program = message.contains("\"kind\":[\"bin\"]");
    let name = match folder.ends_with("/deps") {
        true if of_program => return None,
        true => of_crate(message).unwrap_or_default() + file.rsplit_once('-')?.0,
        false => format!("bin/{file}"),
    };
    Some((name, path.to_owned()))
}

/// The folder among the crates that a message's manifest lies in, with what parts it from a name.
fn of_crate(message: &str) -> Option<String> {
    let (_, manifest) = message.split_once("\"manifest_path\":\"")?;
    let (folder, _) = manifest.split_once("/Cargo.toml\"")?;
    let (_, name) = folder.rsplit_once("/crates/")?;
    Some(format!("{name}/"))
}

fn in_machine(steps: &[Step], programs: &BTreeMap<String, String>) -> Result<(), Failure> {
    for Step { program, args, .. } in steps.iter().filter(|step| !step.program.starts_with("bin/")) {
        let path = path_of(program, programs)?;
        let list = if args.contains("--exact") { "--list --exact" } else { "--list" };
        each_names_a_test(args, || run(&format!("{path} {list}")))?;
    }
    let limit_s: u32 = BOOT_LIMIT_S + steps.iter().map(|step| step.limit_s).sum::<u32>();
    let script = script(steps, programs)?;
    let failed = |error| Failure(format!("no temporary file: {error}"));
    // The machine sees this one's files.
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    std::fs::write(file.path(), script).map_err(failed)?;
    let machine = run(VM).arg("-m").arg(MEMORY).arg("-t").arg(limit_s.to_string());
    machine.arg("bash").arg(file.path()).limit_s(u64::from(limit_s) + 60).status()
}

fn path_of<'a>(program: &str, programs: &'a BTreeMap<String, String>) -> Result<&'a str, Failure> {
    programs.get(program).map(String::as_str).ok_or_else(|| Failure(format!("{program} was not built")))
}

/// Runs every step, also after one failed. What `standpipe run` would tell libfabric is told to tests here.
fn script(steps: &[Step], programs: &BTreeMap<String, String>) -> Result<String, Failure> {
    let mut script = format!(
        "export STANDPIPE_TEST_PROVIDERS='{PROVIDER}' FI_UNIVERSE_SIZE=16 FI_OFI_RXM_USE_SRX=1 \
         FI_MR_CACHE_MAX_COUNT=0 RUST_BACKTRACE=0\nbad=0\n"
    );
    for Step { program, args, env, limit_s } in steps {
        let path = path_of(program, programs)?;
        let one = if program.starts_with("bin/") { "" } else { "--test-threads=1" };
        script += &format!(
            "echo \"== ${{SECONDS}} s: {program} {}\"\n{env} timeout --kill-after=5 {limit_s} '{path}' {args} {one} 2>&1 || {{\n\
             echo \"verbs: {program} FAILED: $?\"; bad=1; }}\n",
            args.replace('\'', "")
        );
    }
    Ok(script + "echo \"== ${SECONDS} s\"; exit $bad\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let name = |message: &str| executable(message).map(|(name, _)| name);
        let message = r#"{"reason":"compiler-artifact","executable":"/w/target/debug/deps/loop_back-e133","fresh":true}"#;
        assert_eq!(name(message).as_deref(), Some("loop_back"));
        let message = r#"{"manifest_path":"/w/crates/layers-c/Cargo.toml","executable":"/w/target/debug/deps/gam-e133"}"#;
        assert_eq!(name(message).as_deref(), Some("layers-c/gam"));
        let message = r#"{"manifest_path":"/w/Cargo.toml","executable":"/w/target/debug/deps/jobs-e133"}"#;
        assert_eq!(name(message).as_deref(), Some("jobs"));
        let program = r#"{"kind":["bin"],"executable":"/w/target/debug/standpipe"}"#;
        assert_eq!(name(program).as_deref(), Some("bin/standpipe"));
        assert_eq!(name(r#"{"kind":["bin"],"executable":"/w/target/debug/deps/standpipe-e133"}"#), None);
        assert_eq!(name(r#"{"executable":null}"#), None);
    }

    #[test]
    fn the_machine_takes_emulation_where_the_processor_has_more_registers_than_its_kernel() {
        let flags = tempfile::NamedTempFile::new().expect("a temporary file");
        let said = |text: &str| {
            std::fs::write(flags.path(), text).expect("ours");
            let mut machine =
                std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/rdma-vm"));
            // It ends at the kind of device, before it makes anything.
            machine.args(["-a", "uml", "-d", "nonesuch", "true"]).env("RDMA_VM_CPUINFO", flags.path());
            let output = machine.output().expect("bash is there");
            assert_eq!(output.status.code(), Some(125));
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        assert!(said("flags\t: fpu avx512f amx_bf16 amx_tile\n").contains("taking tcg"));
        assert!(!said("flags\t: fpu avx512f\n").contains("taking tcg"));
    }

    #[test]
    fn all_is_built_where_a_step_is_a_program() {
        assert!(targets(&LONG).is_empty(), "the command is a step of it");
        let tests = [step("layers/gam", "", 1), step("bursts", "", 1), step("standpipe", "", 1)];
        let wanted = ["--lib", "--test=bursts", "--test=gam"];
        assert_eq!(targets(&tests).into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_step_whose_program_is_missing_fails() {
        let mut programs: BTreeMap<String, String> = BTreeMap::new();
        assert!(script(&SHORT, &programs).is_err());
        for step in SHORT.iter().chain(&LONG) {
            programs.insert(step.program.to_owned(), "/bin/true".to_owned());
        }
        let script = script(&SHORT, &programs).expect("all are there");
        assert_eq!(script.matches("timeout").count(), SHORT.len());
        assert!(script.ends_with("exit $bad\n"));
    }
}
