//! `standpipe top` as a user calls it, on jobs that `standpipe run` started.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustix::termios::tcgetattr;
use serde_json::Value;
use standpipe::{Audience, Config, GrantName, Node, Remote};
use testbed::Terminal;

const RANKS: usize = 3;
const END: &str = "STANDPIPE_TEST_END";
const PATIENCE: Duration = Duration::from_secs(30);

/// A rank of the jobs below: puts into its own heap until told to end.
#[test]
fn child() {
    let Some(end) = std::env::var_os(END).map(PathBuf::from) else { return };
    let node = Node::open(Config::from_env().expect("good settings").heap_bytes(1 << 20)).expect("a node");
    let word = node.heap().alloc_zeroed::<u64>(1).expect("room for a word");
    node.barrier().expect("all ranks are there");
    println!("@@");
    let give_up = Instant::now() + 2 * PATIENCE;
    while !end.exists() && Instant::now() < give_up {
        for _ in 0..100 {
            node.put(word.ptr(0), 1).expect("put");
        }
        node.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A rank of two that grants memory, and tries what the other one has not granted.
#[test]
fn granting_child() {
    let Some(end) = std::env::var_os(END).map(PathBuf::from) else { return };
    let config = Config::from_env().expect("good settings").heap_bytes(1 << 20).attach_never();
    let node = Node::open(config).expect("a node");
    let grants = node.share_many(vec![vec![7_u8; 1000]; 3], Audience::ALL).expect("granted");
    let name = |rank| format!("a grant of rank {rank}");
    node.directory().publish(&name(node.rank()), &grants[0].name().to_bytes()).expect("published");
    if node.rank() == 1 {
        let told = node.directory().wait(&name(0), PATIENCE).expect("told by rank 0");
        let told = GrantName::from_bytes(told.try_into().expect("a name")).expect("a name");
        for _ in 0..2 {
            let put = node.put_bytes(Remote::granted(0, told), &[1; 8]);
            assert!(matches!(put, Err(standpipe::Error::NotGranted { .. })), "{put:?}");
        }
    }
    node.barrier().expect("all ranks are there");
    println!("@@");
    let give_up = Instant::now() + 2 * PATIENCE;
    while !end.exists() && Instant::now() < give_up {
        node.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn grants_and_refusals_are_shown_by_rank_and_by_peer() {
    let job = Job::running("top::granting_child", 2, "grants");
    let (out, err) = texts(&run_awake(&[&job.pid(), "--json", "--peers"]));
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("one object: {err}"));
    for (rank, denied, barred) in [(0, 2, 0), (1, 0, 2)] {
        let rank = &report["ranks"][rank];
        assert_eq!([&rank["grants"], &rank["granted_bytes"], &rank["grants_made"]], [3, 3000, 3], "{rank}");
        assert_eq!([&rank["denied"], &rank["barred"]], [denied, barred], "{rank}");
        assert_eq!([&rank["revocations_waited"], &rank["revocations_in_use"]], [0, 0], "{rank}");
    }
    assert_eq!([&report["totals"]["grants"], &report["totals"]["granted_bytes"]], [6, 6000]);
    let row = serde_json::json!({ "peer": 1, "denied": 2, "revocations_waited": 0, "revocations_in_use": 0 });
    assert_eq!(report["peers"]["grants"]["peers"], serde_json::json!([row]));

    let (out, _) = texts(&run_awake(&[&job.pid(), "--once", "--interval", "0.2"]));
    for part in ["granted B", "denied", "6.00k"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (out, _) = texts(&run_awake(&[&job.pid(), "--once", "--interval", "0.2", "--peers"]));
    assert!(out.contains("accesses that it refused a peer"), "{out}");
    let (out, err) = texts(&run(&[&job.pid(), "--openmetrics"]));
    let labels = labels(&out, &job.pid(), 0);
    for line in ["granted_bytes{L} 3000", "grants{L} 3", "denied_accesses_total{L} 2"] {
        let line = format!("standpipe_{}", line.replace('L', &labels));
        assert!(out.lines().any(|found| found == line), "{line}: {out}{err}");
    }
}

/// A node that nobody launched, in a process of its own.
#[test]
fn elastic_child() {
    let Some(end) = std::env::var_os(END).map(PathBuf::from) else { return };
    let node = Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node");
    node.address().expect("a node that listens");
    for _ in 0..16 {
        node.barrier().expect("it is alone");
    }
    println!("@@");
    let give_up = Instant::now() + 2 * PATIENCE;
    while !end.exists() && Instant::now() < give_up {
        node.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_node_that_nobody_launched_is_shown_by_top_and_doctor() {
    let end = std::env::temp_dir().join(format!("standpipe-top-{}-elastic", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "top::elastic_child", "--nocapture"]).env(END, &end);
    let mut launcher =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this program runs");
    let mut out = BufReader::new(launcher.stdout.take().expect("piped above"));
    assert!(out.by_ref().lines().map_while(Result::ok).any(|line| line.contains("@@")));
    let job = Job { launcher, _out: out, end };
    let output = run_awake(&[&job.pid(), "--json"]);
    let (out, err) = texts(&output);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("one object: {err}"));
    assert_eq!((report["launcher_pid"].to_string(), &report["size"]), (job.pid(), &1.into()));
    assert_eq!(report["totals"]["latencies"]["barrier"]["sampled"], 1);
    let (out, _) = texts(&run_awake(&[&job.pid(), "--once"]));
    assert!(out.contains(&format!(": a node of process {}, 1 running", job.pid())), "{out}");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let (out, _) = texts(&doctor.args(["doctor", "--json"]).output().expect("the command runs"));
    let told: Value = serde_json::from_str(&out).expect("an object");
    let checks = told["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["node"]["pid"] == job.launcher.id());
    let check = check.unwrap_or_else(|| panic!("the node is there: {out}"));
    assert_eq!(check["check"], "running node");
    let barrier = &check["node"]["calls"]["barrier"];
    assert_eq!(barrier["sampled"], 1);
    assert!(barrier["max_ns"].as_u64() > Some(0) && barrier["p50_ns"] == barrier["max_ns"], "{barrier}");
}

#[test]
fn the_help_explains_the_columns() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let output = command.args(["top", "--help"]).output().expect("the command runs");
    let help = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "handled (ran)",
        "cross-memory attach (cma)",
        "or are stuck",
        "PgDn, PgUp, j, k, Home and End",
        "other network namespaces",
        "malformed messages",
        "q or Ctrl-C",
        "p shows",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn ranks_that_have_not_opened_a_node_are_shown_with_their_processes() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.args(["run", "-n", "2", "--", "sh", "-c", "echo @@$$; sleep 60; true"]);
    let mut launcher = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut out = BufReader::new(launcher.stdout.take().expect("piped above"));
    let lines = out.by_ref().lines().map_while(Result::ok).take(2);
    let mut started: Vec<u32> = lines.filter_map(|line| line.strip_prefix("@@")?.parse().ok()).collect();
    let job = Job { launcher, _out: out, end: std::env::temp_dir().join("standpipe-top-no-node") };
    let report: Value = serde_json::from_str(&texts(&run(&[&job.pid(), "--json"])).0).expect("one object");
    let (text, _) = texts(&run(&[&job.pid(), "--once"]));
    kill_job(job);
    assert_eq!((&report["running"], &report["awaited"]), (&0.into(), &2.into()));
    let ranks = report["ranks"].as_array().expect("a list");
    let mut shown: Vec<u32> = ranks.iter().filter_map(|rank| rank["pid"].as_u64()?.try_into().ok()).collect();
    started.sort_unstable();
    shown.sort_unstable();
    assert_eq!(shown, started, "{report}");
    assert!(text.contains("0 running, 0 lost, 2 awaited (no node is open there)"), "{text}");
    assert!(started.iter().all(|pid| text.contains(&pid.to_string())), "{text}");
}

/// Ends a job whose ranks wait for no file.
fn kill_job(mut job: Job) {
    let _ = job.launcher.kill();
    drop(job);
}

/// A job under a launcher of its own.
struct Job {
    launcher: Child,
    /// What the ranks write; they would not like it closed.
    _out: BufReader<ChildStdout>,
    end: PathBuf,
}

impl Job {
    fn start(name: &str) -> Job {
        Job::of(RANKS, name)
    }

    fn of(ranks: usize, name: &str) -> Job {
        Job::running("top::child", ranks, name)
    }

    /// As many of that test.
    fn running(child: &str, ranks: usize, name: &str) -> Job {
        let end = std::env::temp_dir().join(format!("standpipe-top-{}-{name}", std::process::id()));
        let itself = std::env::current_exe().expect("a path");
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.args(["run", "-n", &ranks.to_string(), "--"]).arg(itself).args([
            "--exact",
            child,
            "--nocapture",
        ]);
        command.env(END, &end).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut launcher = command.spawn().expect("the command runs");
        let mut out = BufReader::new(launcher.stdout.take().expect("piped above"));
        let begun = out.by_ref().lines().map_while(Result::ok).filter(|line| line.contains("@@"));
        assert_eq!(begun.take(ranks).count(), ranks);
        Job { launcher, _out: out, end }
    }

    fn pid(&self) -> String {
        self.launcher.id().to_string()
    }

    fn end(&mut self) {
        std::fs::write(&self.end, "").expect("a file");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
        let _ = self.launcher.wait();
        let _ = std::fs::remove_file(&self.end);
    }
}

fn top(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("top").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    top(args).output().expect("the command runs")
}

/// What `command` says, again where the machine had so much else to do that a rank missed a look.
fn awake(mut command: Command) -> Output {
    let awake = |output: &Output| !texts(output).0.contains("silent");
    let mut outputs = (0..20).map(|_| command.output().expect("the command runs"));
    outputs.find(awake).expect("at some time all ranks get a core")
}

fn run_awake(args: &[&str]) -> Output {
    awake(top(args))
}

/// `standpipe top` under a limit that the shell sets.
fn limited(ulimit: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\"")]);
    command.args([env!("CARGO_BIN_EXE_standpipe"), "top"]).args(args).stdin(Stdio::null());
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn json_is_one_object_and_nothing_else() {
    let job = Job::start("json");
    let output = run_awake(&[&job.pid(), "--json"]);
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{err}");
    let report: Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(report["launcher_pid"].to_string(), job.pid());
    assert_eq!((&report["size"], &report["running"], &report["lost"]), (&3.into(), &3.into(), &0.into()));
    let ranks = report["ranks"].as_array().expect("a list");
    let mut puts = 0;
    for rank in ranks {
        let put = &rank["operations"][0];
        assert_eq!((&put["operation"], &put["mechanism"]), (&"put".into(), &"mapped".into()));
        assert!(put["per_second"].as_f64().expect("a number") > 1.0, "{put}");
        assert_eq!(put["bytes"].as_u64(), put["count"].as_u64().map(|count| 8 * count));
        puts += put["count"].as_u64().expect("a number");
    }
    assert_eq!(report["totals"]["operations"][0]["count"], puts);
    assert!(report["totals"]["registration"].is_null());
    let barrier = &report["totals"]["latencies"]["barrier"];
    assert_eq!(barrier["sampled"], RANKS);
    assert!(
        barrier["p50_ns"].as_u64() > Some(0) && barrier["p50_ns"].as_u64() <= barrier["max_ns"].as_u64(),
        "{barrier}"
    );

    let lines = run(&[&job.pid(), "--json", "--interval", "0.1", "--count", "3"]);
    let (out, _) = texts(&lines);
    let reports: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(reports.len(), 3);
}

#[test]
fn collectors_get_every_ranks_counts() {
    let job = Job::start("openmetrics");
    let output = run(&[&job.pid(), "--openmetrics"]);
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{err}");
    for rank in 0..RANKS {
        let labels = labels(&out, &job.pid(), rank);
        assert!(out.contains(&format!("\nstandpipe_up{{{labels}}} 1\n")), "{out}");
        let puts =
            format!("\nstandpipe_operations_total{{{labels},operation=\"put\",mechanism=\"mapped\"}} ");
        let count = out.split(&puts).nth(1).and_then(|rest| rest.lines().next()).expect("puts are counted");
        assert!(count.parse::<u64>().expect("a number") > 0, "{out}");
    }
    let labels = labels(&out, &job.pid(), 0);
    let barriers = format!("\nstandpipe_latency_seconds_count{{{labels},call=\"barrier\"}} 1\n");
    assert!(out.contains(&barriers) && out.contains("le=\"+Inf\""), "{out}");
    assert!(out.ends_with("\n# EOF\n"), "{out}");
}

/// The labels of a job's rank, without the program's name, which is the test's.
fn labels(out: &str, launcher: &str, rank: usize) -> String {
    let begin = format!("\",launcher=\"{launcher}\",program=\"");
    let (before, after) = out.split_once(&begin).expect("the job is there");
    let (id, program) = (before.rsplit('"').next(), after.split('"').next());
    format!("id=\"{}{begin}{}\",rank=\"{rank}\"", id.expect("before it"), program.expect("after it"))
}

/// A collector asks for all there is, and says of no job which.
#[test]
fn collectors_get_all_jobs_and_nodes() {
    let (one, other) = (Job::of(1, "metrics-one"), Job::of(2, "metrics-other"));
    let output = run(&["--openmetrics"]);
    // Other tests' jobs end meanwhile, which is told.
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for (job, ranks) in [(&one, 1), (&other, 2)] {
        assert!(!err.contains(&format!("of process {}:", job.pid())), "{err}");
        for rank in 0..ranks {
            let labels = labels(&out, &job.pid(), rank);
            assert!(out.contains(&format!("\nstandpipe_up{{{labels}}} 1\n")), "{out}");
        }
    }
    assert_eq!(out.matches("# EOF").count(), 1);
    drop((one, other));
    let gone = run(&["4194304", "--openmetrics"]);
    assert!(!gone.status.success(), "one that is named must be there");
}

#[test]
fn once_shows_every_rank_as_text() {
    let job = Job::start("once");
    let output = run_awake(&[&job.pid(), "--once", "--interval", "0.2"]);
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{err}");
    assert!(out.contains("3 ranks") && out.contains("map/s"), "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("running")).count(), 1 + RANKS, "{out}");
    assert!(!out.contains('\x1b'), "no terminal, no control codes: {out:?}");
}

#[test]
fn peers_of_shared_memory_are_a_line_and_an_empty_list() {
    let job = Job::start("peers");
    let (out, err) = texts(&run_awake(&[&job.pid(), "--once", "--interval", "0.2", "--peers", "2"]));
    assert!(err.is_empty(), "{err}");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(
        out.contains("rank 2, running, registers no memory: what it reaches its peers by needs none"),
        "{out}"
    );
    let (out, _) = texts(&run_awake(&[&job.pid(), "--json", "--peers"]));
    let report: Value = serde_json::from_str(&out).expect("one object");
    let peers = &report["peers"];
    assert_eq!((&peers["rank"], &peers["shown"]), (&0.into(), &true.into()), "{peers}");
    assert_eq!(peers["peers"].as_array().map(Vec::len), Some(0));
    assert_eq!((&peers["others"]["hits"], &report["size"]), (&0.into(), &3.into()));

    let output = run(&[&job.pid(), "--once", "--peers", "3"]);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.is_empty() && err.contains("there is no rank 3: the job has 3"), "{err}");
}

#[test]
fn p_shows_the_peers_of_the_rank_that_arrows_choose() {
    let job = Job::start("p");
    let (mut terminal, open) = terminal();
    let mut watching = top(&[&job.pid()]).stdin(open()).stdout(open()).spawn().expect("the command runs");
    until(&mut terminal, "peers of rank 0");
    terminal.write_all(b"\x1b[B").expect("a key");
    until(&mut terminal, "peers of rank 1");
    terminal.write_all(b"p").expect("a key");
    until(&mut terminal, "rank 1, running, registers no memory");
    until(&mut terminal, "p shows all ranks");
    terminal.write_all(b"\x1b[B").expect("a key");
    until(&mut terminal, "rank 2, running, registers no memory");
    terminal.write_all(b"p").expect("a key");
    until(&mut terminal, "map/s");
    terminal.write_all(b"q").expect("a key");
    until(&mut terminal, "\x1b[?1049l");
    assert!(watching.wait().expect("it ends").success());
}

#[test]
fn a_job_that_ends_ends_it() {
    let mut job = Job::start("ends");
    let watching = top(&[&job.pid(), "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    std::thread::sleep(Duration::from_millis(500));
    job.end();
    let output = watching.wait_with_output().expect("it ends");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("the job has ended"), "{err}");
    assert!(out.contains("left"), "{out}");
}

#[test]
fn a_job_of_more_ranks_than_descriptors_is_seen_whole_or_not_at_all() {
    let job = Job::of(24, "limit");
    let args = [&job.pid(), "--json", "--interval", "0.2", "--count", "1"];
    let (out, err) = texts(&awake(limited("-Sn 20", &args)));
    let report: Value = serde_json::from_str(&out).expect("one object");
    assert!(err.is_empty(), "{err}");
    assert!(
        report["ranks"].as_array().expect("a list").iter().all(|rank| rank["state"] == "running"),
        "{out}"
    );

    let output = limited("-n 20", &args).output().expect("the command runs");
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.is_empty() && err.contains("a job of 24 takes") && err.contains("20 are allowed"), "{err}");
}

#[test]
fn a_process_of_no_job_is_an_error_and_nothing_is_printed() {
    for args in [&["--json"][..], &[]] {
        let pid = std::process::id().to_string();
        let output = run(&[&[pid.as_str()], args].concat());
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(out.is_empty() && err.contains(&format!("process {pid} is of no job of yours")), "{err}");
    }
}

#[test]
fn a_process_in_another_network_namespace_is_said_to_be_there() {
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", "echo there; exec sleep 30"]).stdout(Stdio::piped());
    let Ok(mut other) = command.stderr(Stdio::null()).spawn() else {
        return testbed::skip("there is no unshare");
    };
    let mut line = String::new();
    BufReader::new(other.stdout.take().expect("piped above")).read_line(&mut line).expect("text");
    let output = run(&[&other.id().to_string()]);
    let _ = other.kill();
    other.wait().expect("its end");
    if line.trim() != "there" {
        return testbed::skip("no network namespace can be made");
    }
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), out.as_ref()), (Some(1), ""));
    assert!(err.contains("in another network namespace") && err.contains("nsenter"), "{err}");
}

#[test]
fn a_system_that_refuses_is_named_and_is_no_end_of_the_job() {
    let job = Job::start("refused");
    let mut watching = top(&[&job.pid(), "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut out = BufReader::new(watching.stdout.take().expect("piped above"));
    assert!(out.read_line(&mut String::new()).expect("it begins") > 0);
    // Who may have no descriptors may not poll one either.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Pid::from_raw(watching.id() as i32), Resource::Nofile, none).expect("our own child");
    std::io::copy(&mut out, &mut std::io::sink()).expect("it ends");
    let output = watching.wait_with_output().expect("it ends");
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot be waited for") && !err.contains("has ended"), "{err}");
}

/// A terminal that is wide enough: our end, and what opens the other.
fn terminal() -> (File, impl Fn() -> File) {
    let terminal = Terminal::of(100).open().expect("a terminal");
    let near = terminal.near.try_clone().expect("a descriptor");
    (near, move || terminal.far().expect("the other end"))
}

#[test]
fn the_last_picture_of_a_count_stays_on_the_terminal() {
    let job = Job::start("count");
    let (mut terminal, open) = terminal();
    let mut command = top(&[&job.pid(), "--count", "2", "--interval", "0.1"]);
    let watching = command.stdin(open()).stdout(open()).stderr(Stdio::piped()).spawn();
    // Nobody but the child holds the other end now, so that its end ends the reading.
    drop(command);
    let seen = all(&mut terminal);
    let (_, left) = seen.split_once("\x1b[?1049l").expect("it gives the terminal back");
    assert!(left.contains("map/s") && left.contains("3 running"), "{left:?}");
    assert!(
        !seen.contains('…'),
        "it fits this terminal, however wide that is which the test runs in: {seen:?}"
    );
    let output = watching.and_then(Child::wait_with_output).expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "the job goes on: {output:?}");
}

#[test]
fn keys_leave_and_the_terminal_is_as_before() {
    let job = Job::start("keys");
    for key in [b"q", b"\x03"] {
        let (mut terminal, open) = terminal();
        let side = open();
        let before = format!("{:?}", tcgetattr(&side).expect("a terminal"));
        let mut watching = top(&[&job.pid()]).stdin(open()).stdout(open()).spawn().expect("the command runs");
        let mut seen = until(&mut terminal, "q leaves");
        assert!(seen.contains("\x1b[?1049h") && seen.contains("map/s"), "{seen:?}");
        assert_ne!(format!("{:?}", tcgetattr(&side).expect("a terminal")), before);
        terminal.write_all(key).expect("a key");
        seen += &until(&mut terminal, "\x1b[?1049l");
        assert!(watching.wait().expect("it ends").success());
        assert_eq!(format!("{:?}", tcgetattr(&side).expect("a terminal")), before);
        assert!(seen.contains("\x1b[?25h"), "the cursor is back");
    }
}

/// Reads what appears on a terminal until nobody can write there any more, which the system calls an error.
fn all(terminal: &mut File) -> String {
    let mut seen = Vec::new();
    let _ = terminal.read_to_end(&mut seen);
    String::from_utf8_lossy(&seen).into_owned()
}

/// Reads what appears on a terminal up to some text.
fn until(terminal: &mut File, text: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut some = [0; 4096];
        let len = terminal.read(&mut some).expect("somebody writes");
        seen.extend_from_slice(&some[..len]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}
