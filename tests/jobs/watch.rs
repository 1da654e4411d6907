//! Looking at real jobs from outside: what a watcher sees is what the ranks count, and the job does not mind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{
    Heard, LIMIT, Private, config, eventually, heap_of, job_of, private_of, publish, role, say,
};
use rustix::process::{Pid, Signal, kill_process};
use standpipe::launch::Outcome;
use standpipe::watch::{How, Peers, RankView, RegistrationCounters, Snapshot, State, Watch, jobs};
use standpipe::{Mechanism, Node, Operation, Timed};

const RANKS: u32 = 3;
const PUT_BYTES: usize = 256;

#[test]
fn child() {
    let Some(role) = role() else { return };
    let (what, step) = role.split_once(' ').expect("what to do, and where to look for steps");
    match what {
        "busy" => busy(&Steps(step.into())),
        "idle" => idle(&Steps(step.into())),
        "absent" => absent(&Steps(step.into())),
        other => panic!("no such role: {other}"),
    }
}

/// Files that tell a job's ranks to go on.
struct Steps(PathBuf);

impl Steps {
    fn new(name: &str) -> Steps {
        let steps =
            Steps(std::env::temp_dir().join(format!("standpipe-watch-{}-{name}", std::process::id())));
        std::fs::create_dir_all(&steps.0).expect("a folder");
        steps
    }

    fn file(&self, step: &str) -> PathBuf {
        self.0.join(step)
    }

    fn take(&self, step: &str) {
        std::fs::write(self.file(step), "").expect("a file");
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

/// Puts to the neighbour's heap and private memory and sends messages until told to stop, then says what it
/// did.
fn busy(steps: &Steps) {
    let node = Node::open(config().handler("count", |_| {})).expect("a node");
    let counters = node.heap().alloc_zeroed::<u64>(64).expect("room");
    let private = Private::new(PUT_BYTES);
    publish(&node, "heap", counters.ptr(0).to_words());
    private.show(&node, "private");
    say(std::process::id());
    let right = (node.rank() + 1) % node.size();
    let (theirs, bytes) = (heap_of::<u64>(&node, right, "heap"), private_of(&node, right, "private"));
    let handler = node.handler("count").expect("registered above");
    while !steps.file("stop").exists() {
        for word in 0..64 {
            node.put(theirs.add(word), 1).expect("put");
        }
        node.fetch_add(theirs, 1).expect("added");
        node.put_bytes(bytes, &[1; PUT_BYTES]).expect("put");
        node.request(right, handler, [1, 0, 0, 0]).expect("sent");
        node.progress();
    }
    node.barrier().expect("all stop");
    node.wait_until(|| steps.file("end").exists()).expect("the end comes");
    say(format!("{:?}", node.stats()));
}

/// Does nothing until told to end.
fn idle(steps: &Steps) {
    let node = Node::open(config()).expect("a node");
    say(std::process::id());
    node.wait_until(|| steps.file("end").exists()).expect("the end comes");
}

/// Computes until told to end: makes no call that waits or makes progress.
fn absent(steps: &Steps) {
    let _node = Node::open(config()).expect("a node");
    say(std::process::id());
    while !steps.file("end").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a job in a role and watches it meanwhile.
fn watched(role: &str, watch: impl FnOnce(&Steps, &Heard, Watch)) -> (Heard, Outcome) {
    let (steps, heard) = (Steps::new(role), Heard::default());
    let outcome = std::thread::scope(|scope| {
        let job = scope.spawn(|| heard.run(job_of(RANKS, &format!("{role} {}", steps.path().display()))));
        // Whatever fails below, the ranks end.
        let _end = Ends(&steps);
        assert!(eventually(|| (0..RANKS).all(|rank| !heard.said(rank).is_empty())), "{}", heard.all());
        watch(&steps, &heard, attach(pid_of(&heard, 1)));
        steps.take("stop");
        steps.take("end");
        job.join().expect("no panic")
    });
    std::fs::remove_dir_all(steps.path()).expect("made above");
    (heard, outcome)
}

struct Ends<'a>(&'a Steps);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.take("stop");
        self.0.take("end");
    }
}

fn pid_of(heard: &Heard, rank: u32) -> u32 {
    heard.said(rank)[0].parse().expect("a process number")
}

/// Finds the job by one of its ranks, as a user would.
fn attach(pid: u32) -> Watch {
    let job = jobs().expect("/proc").into_iter().find(|job| job.has(pid)).expect("the job runs");
    assert_eq!((job.size(), job.launcher_pid()), (RANKS, std::process::id()));
    job.watch().expect("let in")
}

/// Whether a rank did all that the busy ones do, at more than a crawl.
fn is_busy(now: &RankView, before: &RankView) -> bool {
    let rates = now.rates_since(before);
    let rate = |operation, mechanism| rates.get(operation, mechanism).operations;
    let mapped = rates.get(Operation::Put, Mechanism::Mapped);
    // Every such put is of a word; private memory goes by whatever way this host allows.
    assert!(
        mapped.operations == 0.0 || (7.9..8.1).contains(&(mapped.bytes / mapped.operations)),
        "{mapped:?}"
    );
    let private = rate(Operation::Put, Mechanism::Cma) + rate(Operation::Put, Mechanism::Message);
    assert_eq!(now.registration(), RegistrationCounters::default());
    assert!(now.peers().is_none_or(|peers| *peers == Peers::default()), "{:?}", now.peers());
    mapped.operations > 1000.0
        && private > 10.0
        && rate(Operation::Atomic, Mechanism::Mapped) > 10.0
        && rate(Operation::Request, Mechanism::Message) > 10.0
        && now.peers().is_some()
        && now.away().is_some_and(|away| away < Duration::from_secs(2))
}

fn look(watch: &mut Watch) -> Snapshot {
    watch.look().expect("the launcher is sane")
}

/// Looks until nothing changes any more.
fn settled(watch: &mut Watch) -> Snapshot {
    let mut before = look(watch);
    let give_up = Instant::now() + LIMIT;
    loop {
        std::thread::sleep(Duration::from_millis(150));
        let now = look(watch);
        let same = before.ranks.iter().zip(&now.ranks).all(|(before, now)| before.stats() == now.stats());
        if same && now.ranks.iter().all(|rank| rank.state == State::Running) {
            return now;
        }
        assert!(Instant::now() < give_up, "still changing: {now:?}");
        before = now;
    }
}

#[test]
fn rates_appear_and_totals_are_the_ranks_own() {
    let mut last = None;
    let (heard, outcome) = watched("busy", |steps, _, mut watch| {
        // On a machine with much else to do a rank may miss a look.
        assert!(eventually(|| {
            let before = look(&mut watch);
            std::thread::sleep(Duration::from_millis(300));
            let now = look(&mut watch);
            now.ranks.iter().zip(&before.ranks).all(|(now, before)| is_busy(now, before))
        }));
        steps.take("stop");
        last = Some((settled(&mut watch), watch));
    });
    let (seen, mut watch) = last.expect("watched");
    assert_eq!(outcome.status(), 0, "{}", heard.all());
    let end = look(&mut watch);
    assert!(end.ended);
    for (rank, (seen, end)) in (0..).zip(seen.ranks.iter().zip(&end.ranks)) {
        assert_eq!(format!("{:?}", seen.stats()), heard.said(rank)[1]);
        assert_eq!(end.stats(), seen.stats(), "as its last words had it");
        let [put, barrier] =
            [Timed::Put, Timed::Barrier].map(|what| end.latencies().expect("shown").get(what).clone());
        assert!(put.quantile(0.5).is_some_and(|median| median < LIMIT) && barrier.sampled() == 1, "{put:?}");
        assert_eq!(end.state, State::Over(How::Left));
    }
}

#[test]
fn a_rank_that_has_never_made_progress_is_away_for_as_long_as_that_is_seen() {
    const TIME: Duration = Duration::from_millis(1500);
    watched("absent", |_, _, mut watch| {
        let started = Instant::now();
        assert!(eventually(|| {
            let all_since = |rank: &RankView, time| rank.away().is_some_and(|away| away >= time);
            let now = look(&mut watch);
            assert!(
                now.ranks.iter().all(|rank| !all_since(rank, started.elapsed())),
                "longer than it is seen"
            );
            now.ranks.iter().all(|rank| rank.state == State::Running && all_since(rank, TIME))
        }));
        assert!(started.elapsed() >= TIME);
    });
}

#[test]
fn a_stopped_rank_is_silent_and_the_others_are_not() {
    let (heard, outcome) = watched("idle", |_, heard, mut watch| {
        assert!(eventually(|| look(&mut watch).ranks.iter().all(|rank| rank.state == State::Running)));
        let stopped = Pid::from_raw(pid_of(heard, 2) as i32).expect("a process");
        kill_process(stopped, Signal::STOP).expect("our own process");
        let expected = [State::Running, State::Running, State::Silent];
        assert!(eventually(|| look(&mut watch).ranks.iter().map(|rank| rank.state).eq(expected)));
        kill_process(stopped, Signal::CONT).expect("our own process");
        assert!(eventually(|| look(&mut watch).ranks[2].state == State::Running));
        kill_process(stopped, Signal::KILL).expect("our own process");
        assert!(eventually(|| look(&mut watch).ranks[2].state == State::Over(How::Killed(9))));
    });
    assert_eq!(outcome.status(), 128 + 9, "{}", heard.all());
}
