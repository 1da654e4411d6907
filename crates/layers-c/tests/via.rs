//! VIA from C: connections, descriptors, memory, and every code, status and error that VIPL names.

mod support;

use std::path::PathBuf;

use support::{Job, Programs, Ran, STRICT};

/// A program of `tests/via/`, as strictly compiled as the headers are.
fn program(programs: &Programs, name: &str) -> PathBuf {
    let path = support::folder("tests/via").join(format!("{name}.c"));
    let text = std::fs::read_to_string(&path).expect("the program is there");
    let include = format!("-I{}", support::folder("tests/via").display());
    let flags: Vec<&str> = STRICT
        .iter()
        .copied()
        .chain(["-D_GNU_SOURCE", "-Wno-unused-variable", "-Wno-unused-function", "-g", &include])
        .collect();
    programs.compile_text(&format!("{name}.c"), &text, &flags)
}

/// Settings by which a job's processes reach each other over a network, where there is such a thing.
fn network() -> Option<(&'static str, &'static str)> {
    support::network().map(|transport| ("STANDPIPE_TRANSPORT", transport))
}

fn job(ranks: u32, args: &[&str], env: &[(&str, &str)]) -> Job {
    let job = args.iter().fold(Job::of(ranks), |job, arg| job.arg(*arg));
    env.iter().fold(job, |job, (name, value)| job.env(name, value))
}

/// Runs a program of `tests/via/` in each way; all ranks must end well.
fn run(name: &str, ranks: u32, ways: &[&[&str]], env: &[(&str, &str)]) -> Vec<Ran> {
    let programs = Programs::new();
    let program = program(&programs, name);
    ways.iter().map(|args| job(ranks, args, env).run_well(&program)).collect()
}

/// The three reliability levels.
const LEVELS: [&[&str]; 3] = [&["1"], &["2"], &["4"]];

#[test]
fn data_goes_both_ways() {
    run("data", 2, &LEVELS, &[]);
}

#[test]
fn data_goes_both_ways_over_a_network() {
    let Some(network) = network() else { return };
    run("data", 2, &LEVELS, &[network]);
}

#[test]
fn clients_and_servers_connect() {
    run("connect", 2, &[&[]], &[]);
}

#[test]
fn clients_and_servers_connect_over_a_network() {
    let Some(network) = network() else { return };
    run("connect", 2, &[&[]], &[network]);
}

#[test]
fn equals_connect() {
    run("equals", 2, &[&[]], &[]);
}

#[test]
fn equals_connect_over_a_network() {
    let Some(network) = network() else { return };
    run("equals", 2, &[&[]], &[network]);
}

#[test]
fn every_status_arises() {
    run("statuses", 2, &LEVELS[1..], &[]);
}

#[test]
fn every_status_arises_over_a_network() {
    let Some(network) = network() else { return };
    run("statuses", 2, &LEVELS[1..], &[network]);
}

#[test]
fn memory_is_protected() {
    run("rdma", 2, &LEVELS, &[]);
}

#[test]
fn memory_is_protected_over_a_network() {
    let Some(network) = network() else { return };
    run("rdma", 2, &LEVELS, &[network]);
}

#[test]
fn every_error_beside_calls_arises() {
    run("errors", 2, &[&["near"]], &[("STANDPIPE_TRANSPORT", "shm")]);
}

#[test]
fn every_error_beside_calls_arises_over_a_network() {
    let Some(network) = network() else { return };
    run("errors", 2, &[&["far"]], &[network]);
}

#[test]
fn handlers_are_called() {
    run("queues", 2, &[&[]], &[]);
}

#[test]
fn handlers_are_called_over_a_network() {
    let Some(network) = network() else { return };
    run("queues", 2, &[&[]], &[network]);
}

#[test]
fn sends_end_while_the_receiver_computes() {
    run("computing", 2, &LEVELS[1..], &[]);
}

#[test]
fn sends_end_while_the_receiver_computes_over_a_network() {
    let Some(network) = network() else { return };
    run("computing", 2, &LEVELS[1..], &[network]);
}

fn is_lost(env: &[(&str, &str)]) {
    let programs = Programs::new();
    let program = program(&programs, "lost");
    let ran = job(2, &[], env).keep_going().run(&program);
    assert!(ran.says("rank 0 goes on"), "{ran:#?}");
}

#[test]
fn a_dead_peer_breaks_its_connections() {
    is_lost(&[]);
}

#[test]
fn a_dead_peer_breaks_its_connections_over_a_network() {
    let Some(network) = network() else { return };
    is_lost(&[network]);
}

#[test]
fn misuse_has_its_codes() {
    run("misuse", 1, &[&[]], &[]);
}

#[test]
fn what_cannot_be_opened_is_told_of() {
    let text = "#include <vipl.h>\nint main(void) { VIP_NIC_HANDLE nic; \
                return VipOpenNic(\"nic0\", &nic) != VIP_ERROR_RESOURCE; }\n";
    let programs = Programs::new();
    let program = programs.compile_text("no_network.c", text, &STRICT);
    let ran = job(2, &[], &[("STANDPIPE_TRANSPORT", "ofi:none_such")]).run_well(&program);
    assert!(ran.says("standpipe: VipOpenNic: "), "{ran:#?}");
}

#[test]
fn both_spellings_are_one() {
    let programs = Programs::new();
    let path = support::folder("tests/via/spellings.c");
    let text = std::fs::read_to_string(&path).expect("the program is there");
    for (name, flags) in [
        ("spellings.c", &["-std=gnu89"][..]),
        ("spellings.c", &["-std=c11"]),
        ("spellings.c", &["-std=gnu89", "-DVIPL095"]),
        ("spellings.cc", &["-std=c++17", "-Wno-invalid-offsetof"]),
        ("spellings.cc", &["-std=c++17", "-DVIPL095"]),
    ] {
        let flags: Vec<&str> = STRICT.iter().chain(flags).copied().collect();
        let ran = Job::of(1).run_well(&programs.compile_text(name, &text, &flags));
        assert!(ran.says("both are one"), "{flags:?}: {ran:#?}");
    }
}

/// Clients that read and write a counter of the server's by RDMA, one at a time.
fn locks(env: &[(&str, &str)], clients: u32) {
    let programs = Programs::new();
    let program = programs.compile("via_locks.c", &["-O1", "-Wall", "-Werror"]);
    let ran = job(clients + 1, &["50"], env).run_well(&program);
    assert!(ran.says(&format!("the counter is {0} of {0}: right", 50 * clients)), "{ran:#?}");
}

#[test]
fn a_lock_server_lets_one_in_at_a_time() {
    (1..=3).for_each(|clients| locks(&[], clients));
}

#[test]
fn a_lock_server_lets_one_in_at_a_time_over_a_network() {
    let Some(network) = network() else { return };
    locks(&[network], 2);
}

#[test]
fn sends_follow_each_other_without_waiting() {
    run("flood", 2, &LEVELS, &[]);
}

#[test]
fn sends_follow_each_other_without_waiting_over_a_network() {
    let Some(network) = network() else { return };
    run("flood", 2, &LEVELS, &[network]);
}

#[test]
fn each_thread_may_have_its_own_vi() {
    run("threads", 2, &LEVELS[1..], &[]);
}

#[test]
fn each_thread_may_have_its_own_vi_over_a_network() {
    let Some(network) = network() else { return };
    run("threads", 2, &LEVELS[1..], &[network]);
}

#[test]
fn hosts_names_find_whichever_process_waits() {
    run("by_hand", 2, &[&[]], &[]);
}

/// Processes that nobody launched find each other in the folder of their user's session, and leave it empty.
#[test]
fn processes_started_by_hand_find_each_other() {
    let programs = Programs::new();
    let program = program(&programs, "by_hand");
    let session = tempfile::tempdir().expect("there is room");
    let folder = session.path().to_str().expect("it is a text");
    let run = |who: &'static str| {
        let env = [("XDG_RUNTIME_DIR", folder)];
        support::run_alone_with(&program, &[who], std::process::Stdio::null(), &env)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| run("server"));
        let client = run("client");
        let server = server.join().expect("it runs");
        for (who, ran) in [("server", &server), ("client", &client)] {
            let text = format!("server: {}client: {}", support::text(&server), support::text(&client));
            assert!(ran.status.success(), "{who}: {text}");
            assert!(support::text(ran).contains(&format!("the {who} is done")), "{text}");
        }
    });
    let left = std::fs::read_dir(session.path().join("standpipe-via")).expect("it was made");
    assert_eq!(left.count(), 0, "each process removes what it has left");
}

#[test]
fn closing_ends_the_waits_of_other_threads() {
    run("closing", 1, &[&[]], &[]);
}
