//! Jobs that other launchers have started: Open MPI's and MPICH's, and processes with variables such as
//! torchrun's.
//!
//! Launchers that are not installed are skipped, aloud.

#[path = "support/hosts.rs"]
mod hosts;
#[path = "support/mod.rs"]
mod support;
#[path = "launchers/variables.rs"]
mod variables;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hosts::{Host, address, hosts};
use standpipe::{Config, Error, GlobalPtr, Node, Remote};

/// The ranks of these tests are this program again, running [`child`] alone, in the role that this names.
const ROLE: &str = "LAUNCHERS_TEST_ROLE";
/// Tells a role's lines from those of the test harness around it.
const MARK: &str = "@@";
const RANKS: u32 = 4;
/// What the ranks of a job that meets by variables have in common.
const SECRET: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
/// How long the ranks wait for one that does not come.
const MEET: Duration = Duration::from_secs(2);

/// No call of a rank takes longer.
const CALL: Duration = Duration::from_secs(60);
/// No rank lives longer, whatever becomes of its launcher.
const LIFE: Duration = Duration::from_secs(180);

/// What a rank does; nothing where this program is the test.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    support::die_after(LIFE);
    match role.as_str() {
        // On one host a process that has closed its node opens another.
        "talk twice" => (0..2).for_each(|_| talk()),
        "talk once" => talk(),
        "talk" => {
            talk();
            let error = Node::open(Config::new()).expect_err("the launcher lets processes meet once");
            assert!(error.to_string().contains("a process opens one node"), "{error}");
        }
        "talk much" => talk_much(),
        "differ" => differ(),
        exits if exits.starts_with("exits") => exits_open(exits),
        "mourn" => mourn(),
        "absent" => absent(),
        "alone" => {
            let config = Config::from_env().expect("good settings");
            let error = Node::open(config).expect_err("no job can be made of this");
            println!("{MARK}{error}");
        }
        _ => {}
    }
}

/// Has more handlers than one text of a launcher's can tell of.
fn talk_much() {
    let config = Config::new().timeout(CALL);
    let config = (0..1000).fold(config, |config, number| config.handler(&format!("h{number}"), |_| {}));
    let node = Node::open(config).expect("a job");
    let last = node.handler("h999").expect("registered");
    for peer in 0..node.size() {
        node.request(peer, last, [0; 4]).expect("it has the handler");
    }
    node.barrier().expect("all come");
    println!("{MARK}rank {} of {}", node.rank(), node.size());
}

/// Asks all others; rank 0 leaves first.
fn talk() {
    let heard = Arc::new(AtomicU64::new(0));
    let hears = Arc::clone(&heard);
    let asked = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&asked);
    let config = Config::from_env()
        .expect("good settings")
        .timeout(CALL)
        .handler("ask", move |call| {
            let answer = call.node().handler("answer").expect("registered");
            let doubled = 2 * call.args()[0];
            call.reply(answer, [doubled; 4]).expect("the asker waits");
            counts.fetch_add(1, Ordering::Relaxed);
        })
        .handler("answer", move |call| {
            hears.fetch_add(call.args()[0], Ordering::Relaxed);
        });
    let node = Node::open(config).expect("a job");
    let ask = node.handler("ask").expect("registered");
    for peer in 0..node.size() {
        node.request(peer, ask, [u64::from(peer) + 1; 4]).expect("it is there");
    }
    let size = u64::from(node.size());
    node.wait_until(|| heard.load(Ordering::Relaxed) == size * (size + 1)).expect("all answer");
    exchange(&node);
    node.barrier().expect("all come");
    println!("{MARK}rank {} of {} heard {}", node.rank(), node.size(), heard.load(Ordering::Relaxed));
    if node.rank() == 0 {
        return;
    }
    // Rank 0 has left, and its process still tells the others of each other.
    let next = 1 + node.rank() % (node.size() - 1);
    let before = size * (size + 1);
    node.wait_until(|| node.lost_peers().contains(&0)).expect("its leave is told");
    node.request(next, ask, [1; 4]).expect("it is there");
    let is_over = || heard.load(Ordering::Relaxed) == before + 2 && asked.load(Ordering::Relaxed) == size + 1;
    node.wait_until(is_over).expect("it answers, and is answered");
}

/// Puts to and gets from memory of the next rank, in its heap and outside, and counts at rank 0.
fn exchange(node: &Node) {
    let (rank, size) = (u64::from(node.rank()), u64::from(node.size()));
    let heap = node.heap().alloc_zeroed::<u64>(1000).expect("room");
    let private = vec![rank + 1; 5000];
    let named = |rank: u64| format!("words {rank}");
    let address = private.as_ptr().expose_provenance() as u64;
    let [a, b] = heap.ptr(0).to_words();
    node.directory().publish(&named(rank), &[a, b, address].map(u64::to_le_bytes).concat()).expect("room");
    node.barrier().expect("all come");
    let next = (rank + 1) % size;
    let told = node.directory().wait(&named(next), Duration::from_secs(20)).expect("it is published");
    let word = |at: usize| u64::from_le_bytes(told[8 * at..][..8].try_into().expect("a word"));
    let theirs = GlobalPtr::<u64>::from_words([word(0), word(1)]);
    node.put_slice(theirs, &[rank + 10; 1000]).expect("it is there");
    let mut got = vec![0_u64; 5000];
    // SAFETY: the owner keeps the vector until the next barrier, and nobody writes to it.
    let remote = unsafe { Remote::raw(next as u32, word(2)) };
    node.get_bytes(remote, bytemuck::cast_slice_mut(&mut got)).expect("it is there");
    assert!(got.iter().all(|value| *value == next + 1), "{:?}", &got[..3]);
    node.barrier().expect("all come");
    assert_eq!(heap.read(999), (rank + size - 1) % size + 10);
    assert_eq!(private[0], rank + 1);
    node.barrier().expect("all come");
}

/// Says why the job is none: when it opens, or when its ranks first talk.
fn differ() {
    let config = Config::from_env().expect("good settings").timeout(Duration::from_secs(20));
    let error = match Node::open(config) {
        Err(error) => error.to_string(),
        Ok(node) => node.barrier().expect_err("the other does not understand").to_string(),
    };
    println!("{MARK}{error}");
}

/// A rank ends by itself with its node open, in one of several ways; the others hear of it.
fn exits_open(role: &str) {
    let node = Node::open(Config::new().timeout(Duration::from_secs(20))).expect("a job");
    node.barrier().expect("all come");
    let who = if role.ends_with('0') { 0 } else { 1 };
    // Rank 0 counts who comes to the barrier: whoever has not heard that all have would blame it.
    let met = |rank: u32| format!("rank {rank} has met all");
    if node.rank() == who {
        let others = (0..node.size()).filter(|rank| *rank != who);
        others.for_each(|rank| _ = node.directory().wait(&met(rank), 10 * MEET).expect("it has met all"));
    } else {
        node.directory().publish(&met(node.rank()), &[]).expect("room");
    }
    if node.rank() == who && role.contains("quietly") {
        // As `_exit` does: no function of `atexit` is called.
        panic!("{}", Command::new("true").exec());
    }
    if node.rank() == who {
        std::process::exit(i32::from(role.contains("badly")));
    }
    node.wait_until(|| node.lost_peers().contains(&who)).expect("its end is told");
    println!("{MARK}rank {} lost rank {who}", node.rank());
    // Their loss would be told in place of that one's to whoever has not heard yet. A launcher that ends all
    // takes more than a second for it.
    std::thread::sleep(Duration::from_secs(if role.contains("ending all") { 20 } else { 1 }));
    println!("{MARK}rank {} went on", node.rank());
}

/// Rank 1 is killed by itself; the others hear of it.
fn mourn() {
    let node = Node::open(Config::new().timeout(Duration::from_secs(20))).expect("a job");
    node.barrier().expect("all come");
    if node.rank() == 1 {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("it is ours");
    }
    let lost = node.barrier().expect_err("rank 1 does not come");
    // Whoever is on another host may hear first that rank 0 has left for that reason.
    assert!(matches!(lost, Error::PeerLost { peer: 0 | 1 }), "{lost}");
    println!("{MARK}rank {} lost a peer", node.rank());
    // Their loss would be told in place of rank 1's to whoever has not heard yet.
    std::thread::sleep(Duration::from_secs(1));
}

/// Rank 3 never opens a node; the others say what comes of it.
fn absent() {
    let rank = ["PMIX_RANK", "PMI_RANK", "RANK"].iter().find_map(|name| std::env::var(name).ok());
    if rank.as_deref() == Some("3") {
        // Unless it is killed by a launcher that has had enough.
        return std::thread::sleep(MEET * 3);
    }
    let begun = Instant::now();
    let error = Node::open(Config::from_env().expect("good settings")).expect_err("rank 3 does not come");
    let took = begun.elapsed();
    // Open MPI counts whole seconds, and a rank that hears of it from another is not the last.
    assert!(took < MEET * 3, "{took:?}");
    println!("{MARK}{error}");
    // A launcher ends the others when the first of them fails.
    std::thread::sleep(MEET);
}

/// This program, and how it comes to play a role.
fn role() -> (String, [&'static str; 3]) {
    let this = std::env::current_exe().expect("a running program has a path");
    (this.to_str().expect("a plain path").to_owned(), ["--exact", "child", "--nocapture"])
}

/// A process that does not outlive its test.
struct Started(Option<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(command: &mut Command) -> std::io::Result<Started> {
    command.spawn().map(|child| Started(Some(child)))
}

/// Runs to its end, or fails after a minute.
fn finish(mut started: Started, what: &str) -> Output {
    let mut child = started.0.take().expect("taken once");
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("our child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("our child");
            let output = child.wait_with_output().expect("our child");
            panic!("{what} does not end:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("our child")
}

/// The lines of a role, sorted.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())).collect();
    lines.sort();
    lines
}

/// A command without the variables of whatever launcher runs this test.
fn command(program: &str, role: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["PMI", "OMPI_", "STANDPIPE_", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command.env("STANDPIPE_MEET_MS", if role == "absent" { MEET } else { 30 * MEET }.as_millis().to_string());
    command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs all ranks under a launcher; `None`, said aloud, where it is not installed.
///
/// Each has a folder of its own for what lasts as long as it does: Open MPI 4.1.4 makes one folder for all
/// jobs of a user, and fails when another job makes or removes it at the same time.
fn launched(launcher: &str, args: &[&str], name: &str) -> Option<Output> {
    let (program, child) = role();
    let folder = tempfile::tempdir().expect("a folder of our own");
    let mut command = command(launcher, name);
    command.env("TMPDIR", folder.path());
    let count = RANKS.to_string();
    command.args(args).args(["-n", &count, &program]).args(child);
    match start(&mut command) {
        Ok(started) => Some(finish(started, launcher)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            testbed::skip(format_args!("{launcher} is not installed"));
            None
        }
        Err(error) => panic!("cannot start {launcher}: {error}"),
    }
}

const OPEN_MPI: (&str, &[&str]) = ("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]);
const HYDRA: (&str, &[&str]) = ("mpiexec.hydra", &[]);
const HYDRA_PMI_2: (&str, &[&str]) = ("mpiexec.hydra", &["-env", "STANDPIPE_LAUNCHER", "pmi2"]);

fn all_talk(launcher: &str, args: &[&str]) {
    let Some(output) = launched(launcher, args, "talk twice") else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let heard: Vec<String> = (0..2 * RANKS).map(|line| format!("rank {} of 4 heard 20", line / 2)).collect();
    assert_eq!(lines(&output), heard);
}

/// All who came have an error that says what they waited for.
fn misses_rank_3(said: &[String]) {
    assert_eq!(said.len(), 3, "{said:?}");
    let by_time = |line: &String| line.contains("in time") || line.contains("TIMEOUT");
    assert!(said.iter().any(by_time), "{said:?}");
    println!("{said:?}");
}

#[test]
fn who_waits_for_a_process_that_never_comes_is_told() {
    for (launcher, args) in [OPEN_MPI, HYDRA, HYDRA_PMI_2] {
        if let Some(output) = launched(launcher, args, "absent") {
            misses_rank_3(&lines(&output));
        }
    }
    let ranks = by_variables("absent");
    let said: Vec<String> = ranks.into_iter().flat_map(|rank| lines(&finish(rank, "a rank"))).collect();
    misses_rank_3(&said);
}

#[test]
fn open_mpi_starts_a_job() {
    all_talk(OPEN_MPI.0, OPEN_MPI.1);
}

#[test]
fn hydra_starts_a_job_by_pmi_1() {
    all_talk(HYDRA.0, HYDRA.1);
}

#[test]
fn hydra_starts_a_job_by_pmi_2() {
    all_talk(HYDRA_PMI_2.0, HYDRA_PMI_2.1);
}

#[test]
fn one_that_exits_with_its_node_open_is_lost_to_the_others() {
    for (launcher, args) in [OPEN_MPI, HYDRA, HYDRA_PMI_2] {
        for who in [0, 1] {
            let Some(output) = launched(launcher, args, &format!("exits {who}")) else { continue };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let told = |rank| [format!("rank {rank} lost rank {who}"), format!("rank {rank} went on")];
            let all: Vec<String> = (0..RANKS).filter(|rank| *rank != who).flat_map(told).collect();
            assert_eq!(lines(&output), all, "{launcher}");
        }
    }
}

/// As the table of docs/PROCESS.md has it.
#[test]
fn under_hydra_the_others_go_on_however_one_ends_by_itself() {
    for (launcher, args) in [HYDRA, HYDRA_PMI_2] {
        for (how, status) in [("quietly", 0), ("badly", 1)] {
            let Some(output) = launched(launcher, args, &format!("exits {how} 1")) else { continue };
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{how}: {said}");
            let told = |rank| [format!("rank {rank} lost rank 1"), format!("rank {rank} went on")];
            assert_eq!(lines(&output), [0, 2, 3].map(told).concat(), "{how}: {said}");
        }
    }
}

#[test]
fn under_open_mpi_all_are_ended_where_one_ends_without_a_leave_or_badly() {
    let (launcher, args) = OPEN_MPI;
    for how in ["quietly", "badly"] {
        let role = format!("exits {how}, ending all, 1");
        let Some(output) = launched(launcher, args, &role) else { continue };
        let lines = lines(&output);
        assert!(!output.status.success(), "{how}: {lines:?}");
        assert!(!lines.iter().any(|line| line.ends_with("went on")), "{how}: {lines:?}");
    }
}

/// Starts two ranks at each host.
fn at_hosts(hosts: &[Host], name: &str) -> Vec<Started> {
    let (program, args) = role();
    let start_rank = |rank: u32| {
        let [nsenter, enter @ ..] = hosts[rank as usize / 2].enter();
        let mut command = command(&nsenter, name);
        command.args(enter).arg(&program).args(args);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        command.env("MASTER_ADDR", address(0)).env("MASTER_PORT", "29500");
        command.env("STANDPIPE_SECRET", "5a".repeat(32));
        start(&mut command).expect("nsenter, which has run before")
    };
    (0..RANKS).map(start_rank).collect()
}

/// Hosts that processes reach each other from, which takes libfabric; `None`, said aloud, where that or they
/// cannot be had.
fn far_hosts(count: usize) -> Option<Vec<Host>> {
    if let Err(error) = standpipe::network::look_for(None) {
        testbed::skip(&error);
        return None;
    }
    hosts(count)
}

/// A PMIx that gives long texts back otherwise than they were put, as that of Open MPI 5.0.11 does.
#[test]
fn what_does_not_fit_into_a_text_of_pmix_is_told_in_several() {
    let Some(hosts) = far_hosts(2) else { return };
    let folder = std::env::temp_dir().join(format!("standpipe-launchers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    let library = folder.join("libpmix.so.2");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/pmix/tests/fake_pmix.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("the C compiler that links this program").success());
    let (program, args) = role();
    let start_rank = |rank: usize| {
        let [nsenter, enter @ ..] = hosts[rank].enter();
        let mut command = command(&nsenter, "talk much");
        command.args(enter).arg(&program).args(args).env("PMIX_NAMESPACE", "fake");
        command.env("PMIX_RANK", rank.to_string()).env("STANDPIPE_PMIX", &library);
        command.env("FAKE_PMIX", &folder).env("FAKE_PMIX_SIZE", "2");
        start(&mut command).expect("nsenter, which has run before")
    };
    let outputs = [0, 1].map(start_rank).map(|rank| finish(rank, "a rank"));
    std::fs::remove_dir_all(&folder).expect("it is ours");
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(lines(output), [format!("rank {rank} of 2")]);
    }
}

#[test]
fn processes_of_two_hosts_make_one_job() {
    let Some(hosts) = far_hosts(2) else { return };
    for (rank, child) in at_hosts(&hosts, "talk").into_iter().enumerate() {
        let output = finish(child, "a rank");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(lines(&output), [format!("rank {rank} of 4 heard 20")]);
    }
}

#[test]
fn ranks_of_both_hosts_hear_of_one_that_is_killed() {
    let Some(hosts) = far_hosts(2) else { return };
    for (rank, child) in at_hosts(&hosts, "mourn").into_iter().enumerate() {
        let output = finish(child, "a rank");
        if rank != 1 {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(lines(&output), [format!("rank {rank} lost a peer")]);
        }
    }
}

/// Two ranks, the second of which has another libfabric than the first: what each says. They are on two hosts
/// or, as `within` says, on one, and reach each other by the network all the same.
fn with_two_libraries(hosts: &[Host], within: bool, name: &str, transport: &str) -> [Vec<String>; 2] {
    let (program, args) = role();
    let start_rank = |rank: usize| {
        let [nsenter, enter @ ..] = hosts[if within { 0 } else { rank }].enter();
        let mut command = command(&nsenter, name);
        command.args(enter).arg(&program).args(args);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("MASTER_ADDR", address(0));
        command.env("MASTER_PORT", "29500").env("STANDPIPE_SECRET", SECRET);
        command.env("STANDPIPE_LIBFABRIC", ["libfabric.so.1", "bundled"][rank]);
        command.env("STANDPIPE_TRANSPORT", transport);
        start(&mut command).expect("nsenter, which has run before")
    };
    [0, 1].map(start_rank).map(|rank| {
        let output = finish(rank, "a rank");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines(&output)
    })
}

#[test]
fn ranks_of_two_libfabrics_are_told_so_and_talk_by_what_the_error_names() {
    let Some(hosts) = far_hosts(2) else { return };
    if !cfg!(feature = "bundled") {
        return testbed::skip("one libfabric only: the other comes with the feature `bundled`");
    }
    let version = standpipe::network::library().expect("it was found").version;
    if !version.starts_with("1.17") {
        return testbed::skip(format_args!("libfabric {version} speaks as the one that is compiled in"));
    }
    let remedy = "STANDPIPE_TRANSPORT='ofi:tcp;ofi_rxm' at both";
    for transport in ["shm", "ofi:tcp"] {
        for said in with_two_libraries(&hosts, false, "differ", transport) {
            let named = [remedy, "\"tcp;ofi_rxm\" of libfabric 1.17", "\"tcp\" of libfabric 1."];
            assert!(said.len() == 1 && named.iter().all(|part| said[0].contains(part)), "{said:?}");
        }
    }
    // Of one host's only those who reach the other find out.
    let said = with_two_libraries(&hosts, true, "differ", "ofi").concat();
    assert!(said.iter().any(|line| line.contains(remedy)), "{said:?}");
    assert!(said.iter().all(|line| line.contains(remedy) || line.contains("is lost")), "{said:?}");
    for within in [false, true] {
        let said = with_two_libraries(&hosts, within, "talk once", "ofi:tcp;ofi_rxm").concat();
        assert_eq!(said, [0, 1].map(|rank| format!("rank {rank} of 2 heard 6")));
    }
}

/// Starts processes as torchrun does.
fn by_variables(name: &str) -> Vec<Started> {
    let (program, args) = role();
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("loopback").port();
    let start_rank = |rank: u32| {
        let mut command = command(&program, name);
        command.args(args).env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500");
        command.env("STANDPIPE_PORT", port.to_string()).env("STANDPIPE_SECRET", "5a".repeat(32));
        start(&mut command).expect("this program again")
    };
    (0..RANKS).map(start_rank).collect()
}

#[test]
fn variables_such_as_torchruns_make_a_job() {
    for (rank, child) in by_variables("talk twice").into_iter().enumerate() {
        let output = finish(child, "a rank");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(lines(&output), [(); 2].map(|()| format!("rank {rank} of 4 heard 20")));
    }
}

#[test]
fn the_others_hear_of_one_that_is_killed() {
    for (rank, child) in by_variables("mourn").into_iter().enumerate() {
        let output = finish(child, "a rank");
        if rank == 1 {
            assert_eq!(output.status.signal(), Some(9));
        } else {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(lines(&output), [format!("rank {rank} lost a peer")]);
        }
    }
}
