//! Launching: statuses, the first to fail, what becomes of the others, output, and jobs whose ranks join.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, Signal, getpid, kill_process};
use standpipe::bootstrap::{How, JobEnv, Membership, Notice, PeerHandles, PeerHandlesError};
use standpipe::launch::{End, Launch, LaunchError, Outcome, RANKS_MAX, Stream};

/// The ranks of most tests are this program again, running [`child`] alone.
const ROLE: &str = "LAUNCH_TEST_ROLE";
/// Tells a role's lines from those of the test harness around it.
const MARK: &str = "@@";

fn shell(script: &str) -> Launch {
    Launch::new("sh").arg("-c").arg(script)
}

fn role(name: &str) -> Launch {
    let this = std::env::current_exe().expect("a running program has a path");
    Launch::new(this).args(["--exact", "launch::child", "--nocapture"]).env(ROLE, name)
}

/// What the launcher said, and the lines of the ranks.
#[derive(Clone, Default)]
struct Heard {
    said: Arc<Mutex<Vec<String>>>,
    written: Arc<Mutex<Vec<(u32, String)>>>,
}

impl Heard {
    fn run(&self, launch: Launch) -> Outcome {
        let (said, written) = (Arc::clone(&self.said), Arc::clone(&self.written));
        let launch = launch.say(move |text| said.lock().expect("no panic").push(text.to_owned()));
        let launch = launch.on_line(move |rank, _, line| {
            let line = String::from_utf8_lossy(line).into_owned();
            written.lock().expect("no panic").push((rank, line));
        });
        launch.run().expect("the job starts")
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("no panic").clone()
    }

    /// What `rank` wrote; of a role's lines, those with the mark, without it.
    fn lines(&self, rank: u32) -> Vec<String> {
        let written = self.written.lock().expect("no panic");
        let lines = written.iter().filter(|(from, _)| *from == rank).map(|(_, line)| line);
        let is_role = written.iter().any(|(_, line)| line.contains(MARK));
        if is_role {
            lines.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())).collect()
        } else {
            lines.cloned().collect()
        }
    }
}

fn ends(outcome: &Outcome) -> Vec<End> {
    outcome.ranks.iter().map(|rank| rank.end).collect()
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Whether `condition` comes true within a few seconds.
fn eventually(condition: impl Fn() -> bool) -> bool {
    let give_up = Instant::now() + Duration::from_secs(5);
    while !condition() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn each_rank_is_told_its_number_and_the_size() {
    let heard = Heard::default();
    let outcome = heard.run(shell("echo $STANDPIPE_RANK of $STANDPIPE_SIZE; echo err >&2").ranks(3));
    assert_eq!((outcome.status(), outcome.first_failed), (0, None));
    for rank in 0..3 {
        let mut lines = heard.lines(rank);
        lines.sort();
        assert_eq!(lines, [format!("{rank} of 3"), "err".into()]);
    }
    assert!(heard.said().is_empty());
}

#[test]
fn streams_are_told_apart() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let launch = shell("echo out; echo err >&2").on_line(move |_, stream, line| {
        sink.lock().expect("no panic").push((stream, line.to_vec()));
    });
    launch.run().expect("the job starts");
    let mut seen = seen.lock().expect("no panic").clone();
    seen.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    assert_eq!(seen, [(Stream::Stdout, b"out".to_vec()), (Stream::Stderr, b"err".to_vec())]);
}

#[test]
fn the_rank_that_failed_is_named_before_those_that_lost_it() {
    for keep_going in [false, true] {
        let heard = Heard::default();
        let outcome = heard.run(role("leave-and-fail").ranks(4).keep_going(keep_going));
        assert_eq!(outcome.first_failed, Some(1), "{:?}", heard.said());
        assert!(heard.said()[0].starts_with("rank 1 "), "{:?}", heard.said());
        // Without that, ranks that have not ended by themselves by then are ended.
        let [first, second, ..] = ends(&outcome)[..] else { panic!("four ranks") };
        assert_eq!(second, End::Exited(3));
        assert!(!keep_going || first == End::Exited(4), "{outcome:?}");
    }
}

#[test]
fn a_rank_that_left_and_goes_on_is_not_waited_for_long() {
    let (heard, start) = (Heard::default(), Instant::now());
    let outcome = heard.run(role("leave-and-stay").ranks(2));
    assert_eq!(outcome.first_failed, Some(0), "{:?}", heard.said());
    assert_eq!(ends(&outcome), [End::Exited(4), End::Killed(15)]);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn keeping_going_the_worst_status_counts_and_all_failures_are_named() {
    let heard = Heard::default();
    let outcome = heard.run(shell("exit $STANDPIPE_RANK").ranks(4).keep_going(true));
    assert_eq!(ends(&outcome), [0, 1, 2, 3].map(End::Exited));
    assert_eq!(outcome.status(), 3);
    assert_eq!(heard.said().len(), 3);
    assert!(outcome.ranks.iter().all(|rank| !rank.ended_by_launcher));
}

#[test]
fn keeping_going_the_others_finish_their_work() {
    let heard = Heard::default();
    let script = "test $STANDPIPE_RANK = 1 && kill -9 $$; sleep 0.3; echo done";
    let outcome = heard.run(shell(script).ranks(2).keep_going(true));
    assert_eq!(ends(&outcome), [End::Exited(0), End::Killed(9)]);
    assert_eq!((outcome.status(), outcome.first_failed), (137, Some(1)));
    assert_eq!(heard.lines(0), ["done"]);
    let pid = outcome.ranks[1].pid;
    let named = format!("rank 1 (pid {pid}) was killed by signal 9 (SIGKILL); the others go on");
    assert_eq!(heard.said(), [named]);
}

#[test]
fn the_first_to_fail_is_named_and_the_others_are_ended() {
    let heard = Heard::default();
    let begun = Instant::now();
    let outcome = heard.run(shell("test $STANDPIPE_RANK = 2 && exit 7; exec sleep 60").ranks(4));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((outcome.status(), outcome.first_failed), (7, Some(2)));
    for rank in [0, 1, 3] {
        let rank = outcome.ranks[rank];
        assert_eq!((rank.end, rank.ended_by_launcher), (End::Killed(15), true));
    }
    let pid = outcome.ranks[2].pid;
    assert_eq!(heard.said(), [format!("rank 2 (pid {pid}) exited with status 7; ending the others")]);
}

#[test]
fn who_does_not_heed_sigterm_is_killed_after_the_grace_period() {
    let heard = Heard::default();
    let script =
        "test $STANDPIPE_RANK = 0 && { sleep 0.3; exit 1; }; trap '' TERM; while :; do sleep 0.1; done";
    let begun = Instant::now();
    let outcome = heard.run(shell(script).ranks(2).grace(Duration::from_millis(300)));
    assert!(begun.elapsed() >= Duration::from_millis(600), "not before the grace period is over");
    assert_eq!(ends(&outcome), [End::Exited(1), End::Killed(9)]);
    assert_eq!(outcome.status(), 1);
    assert!(heard.said()[1].contains("rank 1; killing"), "{:?}", heard.said());
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let script = "test $STANDPIPE_RANK = 0 && { sleep 0.3; exit 1; }; kill -STOP $$; sleep 60";
    let outcome = Heard::default().run(shell(script).ranks(2).grace(Duration::from_secs(60)));
    assert_eq!(outcome.ranks[1].end, End::Killed(15));
}

#[test]
fn what_a_rank_leaves_in_its_group_is_killed_however_it_ended() {
    for status in [0, 3] {
        let heard = Heard::default();
        let begun = Instant::now();
        let outcome = heard.run(shell(&format!("sleep 60 & echo $!; exit {status}")));
        assert!(begun.elapsed() < Duration::from_secs(5), "it does not hold the launcher up");
        assert_eq!(outcome.status(), status);
        let pid = heard.lines(0)[0].clone();
        assert!(eventually(|| !is_running(&pid)), "status {status}");
    }
}

#[test]
fn what_a_rank_leaves_in_another_group_is_left_alone() {
    let heard = Heard::default();
    let begun = Instant::now();
    let outcome = heard.run(shell("setsid sh -c 'echo $$; exec sleep 20' & sleep 0.3"));
    assert!(begun.elapsed() < Duration::from_secs(5), "it does not hold the launcher up");
    assert_eq!(outcome.status(), 0);
    let left = heard.lines(0)[0].parse().ok().and_then(Pid::from_raw).expect("a process number");
    kill_process(left, Signal::KILL).expect("what has left the rank's group goes on");
}

#[test]
fn what_cannot_be_started_is_named() {
    let missing = Launch::new("no-such-program-anywhere").ranks(2).run().expect_err("not there");
    assert!(matches!(&missing, LaunchError::NotFound { program } if program == "no-such-program-anywhere"));
    assert!(missing.to_string().contains("no-such-program-anywhere"));
    assert_eq!(missing.status(), 127);
    let unfit = Launch::new("/etc/passwd").run().expect_err("not a program");
    assert!(matches!(unfit, LaunchError::NotExecutable { .. }));
    assert_eq!(unfit.status(), 126);
}

#[test]
fn the_number_of_ranks_is_bounded() {
    for ranks in [0, RANKS_MAX + 1] {
        let error = shell("exit 0").ranks(ranks).run().expect_err("out of bounds");
        assert!(matches!(error, LaunchError::Broker(_)), "{error}");
        assert_eq!(error.status(), 125);
    }
}

#[test]
fn a_job_of_eight_joins_and_every_rank_reaches_every_other() {
    let heard = Heard::default();
    let begun = Instant::now();
    let outcome = heard.run(role("mesh").ranks(8));
    assert_eq!(outcome.status(), 0, "{:?}", heard.said());
    println!("8 processes started, joined, met and left in {:?}", begun.elapsed());
    for rank in 0..8 {
        let pids: Vec<String> = outcome.ranks.iter().map(|rank| rank.pid.to_string()).collect();
        assert_eq!(heard.lines(rank), [format!("launcher {}", std::process::id()), pids.join(" ")]);
    }
}

#[test]
fn a_killed_member_is_known_to_the_others_at_once() {
    let heard = Heard::default();
    let outcome = heard.run(role("watch").ranks(3).keep_going(true));
    assert_eq!(ends(&outcome), [End::Exited(0), End::Killed(9), End::Exited(0)]);
    let died: u128 = heard.lines(1)[0].parse().expect("a time");
    for rank in [0, 2] {
        let noticed: u128 = heard.lines(rank)[0].parse().expect("a time");
        let latency = Duration::from_nanos(u64::try_from(noticed - died).expect("not centuries"));
        println!("rank {rank} knew of the kill after {latency:?}");
        assert!(latency < Duration::from_secs(2));
    }
}

#[test]
fn a_rank_that_ends_without_joining_is_lost_to_who_waits_for_it() {
    let heard = Heard::default();
    let outcome = heard.run(role("wait-for-one").ranks(2).keep_going(true));
    assert_eq!(outcome.status(), 6);
    assert_eq!(heard.lines(0), ["Exited(6)"]);
}

#[test]
fn a_job_leaves_nothing_behind() {
    let heard = Heard::default();
    heard.run(shell("echo $STANDPIPE_JOB; grep -c standpipe-$STANDPIPE_JOB /proc/net/unix"));
    let lines = heard.lines(0);
    let job = &lines[0];
    assert_eq!((job.len(), lines[1].as_str()), (32, "1"), "the broker listened while the job ran");
    // A process that another thread is just starting has a copy of every descriptor until it is another
    // program.
    let sockets = || std::fs::read_to_string("/proc/net/unix").expect("Linux");
    assert!(eventually(|| !sockets().contains(job.as_str())));
    let shm = std::fs::read_dir("/dev/shm").expect("Linux").filter_map(Result::ok);
    assert!(shm.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().contains(job.as_str())));
}

#[test]
fn a_job_of_many_fits_into_few_descriptors() {
    // Two hundred ranks need some 1,500 file descriptors; the usual soft limit is 1,024.
    let heard = Heard::default();
    let outcome = heard.run(shell("ulimit -n").ranks(200));
    assert_eq!(outcome.status(), 0);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let theirs: Option<u64> = heard.lines(199)[0].parse().ok();
    assert!(theirs <= limit || limit.is_none());
}

/// Not a test: what the ranks of the tests above do.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let env = JobEnv::from_env().expect("well formed").expect("launched");
    match role.as_str() {
        "mesh" => mesh(&env),
        "watch" => watch(&env),
        "wait-for-one" => wait_for_one(&env),
        "leave-and-fail" => leave(&env, Duration::from_millis(50)),
        "leave-and-stay" => leave(&env, Duration::from_secs(60)),
        other => panic!("no role {other}"),
    }
    std::process::exit(0);
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn join(env: &JobEnv, on_notice: impl Fn(Notice) + Send + 'static) -> Membership {
    let file = File::open("/dev/null").expect("every system has it");
    Membership::join(env, [file.as_fd(); 3], soon(), Box::new(on_notice)).expect("let in")
}

/// Every rank hands over an event counter as its heap, counts up all others', and stays until all have
/// counted its own: so nobody leaves before everybody has met.
fn mesh(env: &JobEnv) {
    let control = File::open("/dev/null").expect("every system has it");
    let heap = eventfd(0, EventfdFlags::CLOEXEC).expect("an event counter");
    let job = Membership::join(env, [control.as_fd(), heap.as_fd(), heap.as_fd()], soon(), Box::new(|_| {}))
        .expect("let in");
    println!("{MARK}launcher {}", job.launcher_pid());
    let peers: Vec<PeerHandles> =
        (0..job.size()).map(|peer| job.connect(peer, soon()).expect("it joins")).collect();
    let pids: Vec<String> = peers.iter().map(|peer| peer.pid.to_string()).collect();
    println!("{MARK}{}", pids.join(" "));
    for peer in &peers {
        rustix::io::write(&peer.heap, &1u64.to_ne_bytes()).expect("a counter");
    }
    let mut met = 0;
    while met < u64::from(job.size()) {
        let mut count = [0; 8];
        rustix::io::read(&heap, &mut count).expect("a counter");
        met += u64::from_ne_bytes(count);
    }
}

/// Rank 1 leaves the job, and its process goes on for `after`. The others end at once when they hear of it.
fn leave(env: &JobEnv, after: Duration) {
    let (tell, told) = std::sync::mpsc::channel();
    let job = join(env, move |notice| {
        let _ = tell.send(notice);
    });
    if job.rank() == 1 {
        for peer in 0..job.size() {
            job.connect(peer, soon()).expect("it joins");
        }
        drop(job);
        std::thread::sleep(after);
        std::process::exit(3);
    }
    let lost = |notice| matches!(notice, Notice::Lost { rank: 1, .. });
    while !lost(told.recv_timeout(Duration::from_secs(20)).expect("rank 1 leaves")) {}
    std::process::exit(4);
}

fn now_ns() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos()
}

fn watch(env: &JobEnv) {
    let (tell, told) = std::sync::mpsc::channel();
    let job = join(env, move |notice| {
        let _ = tell.send((now_ns(), notice));
    });
    for peer in 0..job.size() {
        job.connect(peer, soon()).expect("it joins");
    }
    if job.rank() == 1 {
        std::thread::sleep(Duration::from_millis(100));
        println!("{MARK}{}", now_ns());
        kill_process(getpid(), Signal::KILL).expect("its own process");
    }
    let (at, notice) = loop {
        let (at, notice) = told.recv_timeout(Duration::from_secs(20)).expect("told");
        if matches!(notice, Notice::Lost { rank: 1, .. }) {
            break (at, notice);
        }
    };
    assert_eq!(notice, Notice::Lost { rank: 1, how: How::Killed(9) });
    println!("{MARK}{at}");
}

fn wait_for_one(env: &JobEnv) {
    if env.rank() == 1 {
        std::thread::sleep(Duration::from_millis(100));
        std::process::exit(6);
    }
    let job = join(env, |_| {});
    match job.connect(1, soon()) {
        Err(PeerHandlesError::Lost { peer: 1, how }) => println!("{MARK}{how:?}"),
        other => panic!("{other:?}"),
    }
}
