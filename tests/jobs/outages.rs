//! Networks and hosts that fail: links that go down, and come up again or not; hosts that die at once, or
//! stop; delay.
//!
//! Hosts are network namespaces at a switch. Where none can be made, this is skipped, aloud.

use crate::support;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hosts::{Host, address, hosts};
use crate::support::{Private, eventually, heap_of, itself, private_of, publish, said, say};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, waitid};
use standpipe::{Config, Error, Node, Rank};

/// Ranks on each host.
const PER_HOST: usize = 2;

/// How long one call may take, and with what a busy machine adds to it.
const CALL: Duration = Duration::from_millis(300);
const CALL_MAX: Duration = Duration::from_secs(10);

/// How long the death of a host, which its system tells of, may stay unnoticed: a signal comes twice a
/// second, and who was never talked to is knocked at for four seconds.
const NOTICE_MAX: Duration = Duration::from_secs(15);

/// What the ranks of some tests allow for silence, and what is added to it by pulses and a busy machine.
const SILENCE_MS: &str = "3000";
const SILENCE_MAX: Duration = Duration::from_secs(12);

/// Hosts that processes reach each other from, which takes libfabric; `None`, said aloud, where that or they
/// cannot be had.
fn far_hosts(count: usize) -> Option<Vec<Host>> {
    if !testbed::has_time_for("what hosts and links do") {
        return None;
    }
    if let Err(error) = standpipe::network::look_for(None) {
        testbed::skip(&error);
        return None;
    }
    hosts(count)
}

/// Not a test: what the ranks do.
#[test]
fn child() {
    let Some(role) = support::role() else { return };
    let told = told_to_end();
    let config = Config::from_env().expect("good settings").heap_bytes(64 << 20).timeout(CALL_MAX);
    let node = Node::open(config).expect("a node");
    let watch = watch_losses(&node, &told);
    match role.as_str() {
        "idle" => idle(&node, &told),
        "work" => work(&node, &told),
        other => panic!("no role {other}"),
    }
    watch.join().expect("no panic");
    say("ends");
}

/// Becomes true when the test has said so, or is gone.
fn told_to_end() -> Arc<AtomicBool> {
    let told = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&told);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        hears.store(true, Ordering::SeqCst);
    });
    told
}

/// Says who is lost as soon as that is known.
fn watch_losses(node: &Node, told: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (node, told) = (node.clone(), Arc::clone(told));
    std::thread::spawn(move || {
        let mut known = Vec::new();
        while !told.load(Ordering::SeqCst) {
            let lost = node.lost_peers();
            if lost != known {
                say(format!("lost {lost:?}"));
                known = lost;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

/// Has never talked to anybody.
fn idle(_node: &Node, told: &AtomicBool) {
    say("ready");
    while !told.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Puts to, gets from and counts at all others, and says what comes of it.
fn work(node: &Node, told: &AtomicBool) {
    let words = node.heap().alloc_zeroed::<u64>(64).expect("room");
    let private = Private::from(&[7; 50_000]);
    publish(node, "words", words.ptr(0).to_words());
    private.show(node, "private");
    let others: Vec<Rank> = (0..node.size()).filter(|rank| *rank != node.rank()).collect();
    let targets: Vec<_> = others
        .iter()
        .map(|rank| (*rank, heap_of::<u64>(node, *rank, "words"), private_of(node, *rank, "private")))
        .collect();
    node.barrier().expect("nothing has failed yet");
    say("ready");
    let hurried = node.within(CALL);
    let mut bytes = vec![0; 50_000];
    while !told.load(Ordering::SeqCst) {
        for (rank, words, private) in &targets {
            let begun = Instant::now();
            let slot = words.add(node.rank() as usize);
            let result = hurried
                .put(slot, 5)
                .and_then(|()| hurried.get(slot))
                .and_then(|got| hurried.fetch_add(words.add(63), 1).map(|_| got))
                .and_then(|got| hurried.get_bytes(*private, &mut bytes).map(|()| got));
            match result {
                Ok(got) => {
                    assert!(got == 5 && bytes.iter().all(|byte| *byte == 7), "what rank {rank} keeps for us");
                    say(format!("peer {rank} ok"));
                }
                Err(Error::Timeout { .. }) => say(format!("peer {rank} late")),
                Err(Error::PeerLost { peer }) => {
                    assert_eq!(peer, *rank);
                    say(format!("peer {rank} lost"));
                }
                Err(error) => panic!("with rank {rank}: {error}"),
            }
            let took = begun.elapsed();
            assert!(took < CALL_MAX, "calls with rank {rank} took {took:?}");
            bytes.fill(0);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Others may be at it still, as this process has not left.
    std::mem::forget((words, private));
}

/// One rank, which does not outlive its test.
struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Started {
    fn start(host: &Host, role: &str, env: &[(&str, String)]) -> Started {
        let this = itself(role);
        let [nsenter, enter @ ..] = host.enter();
        let mut command = Command::new(nsenter);
        command.args(enter).arg(std::env::current_exe().expect("this program")).args(this.get_args());
        for (name, _) in std::env::vars_os() {
            if ["PMI", "OMPI_", "STANDPIPE_", "SLURM_"]
                .iter()
                .any(|it| name.to_string_lossy().starts_with(it))
            {
                command.env_remove(name);
            }
        }
        command.envs(this.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.envs(env.iter().map(|(name, value)| (*name, value)));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("nsenter, which has run before");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (hears, from) = (Arc::clone(&lines), BufReader::new(child.stdout.take().expect("piped")));
        std::thread::spawn(move || {
            for line in from.lines().map_while(Result::ok) {
                if let Some(text) = said(&line) {
                    hears.lock().expect("no panic").push((Instant::now(), text.to_owned()));
                }
            }
        });
        let stdin = child.stdin.take();
        Started { child, stdin, lines }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our child");
    }

    fn end(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        let mut status = None;
        assert!(eventually(|| {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        }));
        status.expect("it has ended")
    }
}

/// A job with [`PER_HOST`] ranks on each host.
struct Job(Vec<Started>);

impl Job {
    fn start(hosts: &[Host], role: &str, env: &[(&str, &str)]) -> Job {
        // The last host is the switch.
        let size = (hosts.len() - 1) * PER_HOST;
        let rank = |rank: usize| {
            let mut all = vec![
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", size.to_string()),
                ("MASTER_ADDR", address(0)),
                ("MASTER_PORT", "29500".to_owned()),
                ("STANDPIPE_SECRET", "5a".repeat(32)),
            ];
            all.extend(env.iter().map(|(name, value)| (*name, (*value).to_owned())));
            Started::start(&hosts[rank / PER_HOST], role, &all)
        };
        let job = Job((0..size).map(rank).collect());
        for rank in 0..size {
            job.hears(rank, "ready", Duration::from_secs(60));
        }
        job
    }

    fn size(&self) -> usize {
        self.0.len()
    }

    /// Whether a rank has said this since.
    fn has_said(&self, rank: usize, text: &str, since: Instant) -> bool {
        let lines = self.0[rank].lines.lock().expect("no panic");
        lines.iter().any(|(at, line)| *at >= since && line == text)
    }

    /// The ranks whose processes have ended, and how.
    fn ended(&self) -> Vec<(usize, WaitIdStatus)> {
        let how = |started: &Started| {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(Pid::from_child(&started.child)), options).expect("our child")
        };
        self.0.iter().enumerate().filter_map(|(rank, started)| Some((rank, how(started)?))).collect()
    }

    /// Waits until a rank says this, from now on or before.
    fn hears(&self, rank: usize, text: &str, within: Duration) {
        self.hears_since(rank, text, Instant::now().checked_sub(LIFE).expect("it has run so long"), within);
    }

    fn hears_since(&self, rank: usize, text: &str, since: Instant, within: Duration) {
        let begun = Instant::now();
        while !self.has_said(rank, text, since) {
            if begun.elapsed() > within {
                let lines = self.0[rank].lines.lock().expect("no panic");
                let last: Vec<&String> = lines.iter().rev().take(20).map(|(_, line)| line).collect();
                let ended = self.ended();
                panic!("rank {rank} has not said {text:?} within {within:?}, but {last:?}; ended: {ended:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All of `ranks` do well with each other from now on.
    fn do_well(&self, ranks: &[usize], within: Duration) {
        let now = Instant::now();
        for rank in ranks {
            for peer in ranks.iter().filter(|peer| *peer != rank) {
                self.hears_since(*rank, &format!("peer {peer} ok"), now, within);
            }
        }
    }

    /// No rank of these has lost anybody.
    fn nobody_is_lost(&self) {
        for (rank, started) in self.0.iter().enumerate() {
            let lines = started.lines.lock().expect("no panic");
            let lost = lines.iter().find(|(_, line)| line.starts_with("lost"));
            assert_eq!(lost, None, "rank {rank}");
        }
    }

    fn signal_host(&self, host: usize, signal: Signal) {
        for started in &self.0[host * PER_HOST..][..PER_HOST] {
            started.signal(signal);
        }
    }

    fn end(mut self, ranks: &[usize]) {
        for rank in ranks {
            // All are told before any is waited for: the lowest of a host ends last.
            drop(self.0[*rank].stdin.take());
        }
        for rank in ranks {
            let status = self.0[*rank].end();
            assert!(status.success(), "rank {rank}: {status}");
        }
    }
}

/// No test has run for so long.
const LIFE: Duration = Duration::from_secs(100);

fn ranks_of(host: usize) -> Vec<usize> {
    (host * PER_HOST..(host + 1) * PER_HOST).collect()
}

#[test]
fn a_host_that_dies_is_noticed_by_those_who_never_talked_to_it() {
    for victim in 0..3 {
        let Some(hosts) = far_hosts(3) else { return };
        let job = Job::start(&hosts, "idle", &[]);
        let survivors: Vec<usize> = (0..job.size()).filter(|rank| rank / PER_HOST != victim).collect();
        job.nobody_is_lost();
        job.signal_host(victim, Signal::KILL);
        let begun = Instant::now();
        for rank in &survivors {
            job.hears(*rank, &format!("lost {:?}", ranks_of(victim)), NOTICE_MAX);
        }
        println!("host {victim} was missed by all after {:?}", begun.elapsed());
        job.end(&survivors);
    }
}

#[test]
fn survivors_of_a_host_that_dies_at_work_go_on() {
    for strategy in ["bounce", "firehose"] {
        let Some(hosts) = far_hosts(3) else { return };
        let job = Job::start(&hosts, "work", &[("STANDPIPE_STRATEGY", strategy)]);
        job.do_well(&[0, 1, 2, 3, 4, 5], NOTICE_MAX);
        job.signal_host(1, Signal::KILL);
        let begun = Instant::now();
        let survivors = [0, 1, 4, 5];
        for rank in survivors {
            job.hears(rank, "lost [2, 3]", NOTICE_MAX);
        }
        println!("the host was missed by all after {:?}", begun.elapsed());
        job.do_well(&survivors, NOTICE_MAX);
        job.end(&survivors);
    }
}

#[test]
fn a_link_that_comes_up_again_costs_nobody() {
    let Some(hosts) = far_hosts(2) else { return };
    let job = Job::start(&hosts, "work", &[]);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    hosts[1].set_link(false);
    let down = Instant::now();
    for (rank, peer) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
        job.hears_since(rank, &format!("peer {peer} late"), down, NOTICE_MAX);
    }
    job.do_well(&[0, 1], NOTICE_MAX);
    job.do_well(&[2, 3], NOTICE_MAX);
    std::thread::sleep(Duration::from_secs(3).saturating_sub(down.elapsed()));
    hosts[1].set_link(true);
    let up = Instant::now();
    // What was not answered is sent again after up to twice the time.
    job.do_well(&[0, 1, 2, 3], Duration::from_secs(30));
    println!("down for {:?}; all is well {:?} later", up - down, up.elapsed());
    job.nobody_is_lost();
    job.end(&[0, 1, 2, 3]);
}

#[test]
fn a_link_that_flutters_is_put_up_with() {
    let Some(hosts) = far_hosts(2) else { return };
    let job = Job::start(&hosts, "work", &[]);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    for _ in 0..12 {
        hosts[1].set_link(false);
        std::thread::sleep(Duration::from_millis(50));
        hosts[1].set_link(true);
        std::thread::sleep(Duration::from_millis(250));
    }
    job.do_well(&[0, 1, 2, 3], Duration::from_secs(30));
    job.nobody_is_lost();
    job.end(&[0, 1, 2, 3]);
}

#[test]
fn ranks_behind_a_link_that_stays_down_are_lost_within_what_silence_is_allowed() {
    let Some(hosts) = far_hosts(2) else { return };
    let job = Job::start(&hosts, "work", &[("STANDPIPE_SILENCE_MS", SILENCE_MS)]);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    hosts[1].set_link(false);
    let begun = Instant::now();
    for (rank, lost) in [(0, [2, 3]), (1, [2, 3]), (2, [0, 1]), (3, [0, 1])] {
        job.hears(rank, &format!("lost {lost:?}"), SILENCE_MAX);
    }
    println!("both sides have given each other up after {:?}", begun.elapsed());
    job.do_well(&[0, 1], NOTICE_MAX);
    job.do_well(&[2, 3], NOTICE_MAX);
    job.end(&[0, 1, 2, 3]);
}

#[test]
fn a_host_that_stops_is_waited_for_and_holds_up_nobody() {
    let Some(hosts) = far_hosts(2) else { return };
    let job = Job::start(&hosts, "work", &[]);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    job.signal_host(1, Signal::STOP);
    let stopped = Instant::now();
    for (rank, peer) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        job.hears_since(rank, &format!("peer {peer} late"), stopped, NOTICE_MAX);
    }
    job.do_well(&[0, 1], NOTICE_MAX);
    job.signal_host(1, Signal::CONT);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    job.nobody_is_lost();
    job.end(&[0, 1, 2, 3]);
}

#[test]
fn a_host_that_stops_for_too_long_is_lost_and_told_so() {
    let Some(hosts) = far_hosts(2) else { return };
    let job = Job::start(&hosts, "work", &[("STANDPIPE_SILENCE_MS", SILENCE_MS)]);
    job.do_well(&[0, 1, 2, 3], NOTICE_MAX);
    job.signal_host(1, Signal::STOP);
    for rank in [0, 1] {
        job.hears(rank, "lost [2, 3]", SILENCE_MAX);
    }
    job.signal_host(1, Signal::CONT);
    for rank in [2, 3] {
        job.hears(rank, "lost [0, 1]", NOTICE_MAX);
    }
    job.do_well(&[0, 1], NOTICE_MAX);
    job.do_well(&[2, 3], NOTICE_MAX);
    job.end(&[0, 1, 2, 3]);
}

#[test]
fn delay_is_waited_for() {
    let Some(hosts) = far_hosts(2) else { return };
    if hosts[1].delay("20ms").is_none() {
        return testbed::skip("this kernel, or this user, has no `tc qdisc add … netem delay`");
    }
    let job = Job::start(&hosts, "work", &[]);
    // Several round trips, of 20 ms each.
    job.do_well(&[0, 1, 2, 3], Duration::from_secs(30));
    job.nobody_is_lost();
    job.end(&[0, 1, 2, 3]);
}
