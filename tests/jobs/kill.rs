//! Single ends: of a launcher, of a rank that others wait for; and a rank that is only stopped. `tests/storm`
//! has many, at random moments.

use crate::support;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};
use standpipe::host::monotonic_ns;
use standpipe::launch::End;
use standpipe::{Error, Node, ProgressThread};

use crate::support::{
    Heard, LIMIT, Private, config, eventually, heap_of, is_running, itself, job_of, look_up, network,
    private_of, publish, said, say,
};

/// Not a test: what the ranks and launchers of the tests do.
#[test]
fn child() {
    let Some(role) = support::role() else { return };
    match role.as_str() {
        "launcher" => launcher(),
        "works" => works(),
        "stops" => stops(),
        "waits" => waits(),
        "asks" => asks(),
        other => panic!("no role {other}"),
    }
}

/// Of a launcher that is to end.
const RANKS: u32 = 6;

/// A launcher in a process of its own, and its ranks, which work.
struct Launcher {
    child: Child,
    job: String,
    ranks: Vec<u32>,
}

impl Launcher {
    fn start() -> Launcher {
        let mut command = itself("launcher");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this program runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (mut job, mut ranks, mut ready) = (String::new(), Vec::new(), 0);
        while ready < RANKS {
            let line = lines.next().expect("all ranks get ready").expect("text");
            match said(&line).and_then(|text| text.split_once(' ')) {
                Some(("job", name)) => job = name.to_owned(),
                Some(("pid", pid)) => ranks.push(pid.parse().expect("a number")),
                Some(("ready", _)) => ready += 1,
                _ => {}
            }
        }
        // Nobody reads any more; the ranks say nothing more either until they end.
        std::thread::spawn(move || lines.for_each(drop));
        Launcher { child, job, ranks }
    }

    /// Signals the launcher, and waits until it has ended and nothing is left of the job.
    fn ends_by(mut self, signal: Signal) -> ExitStatus {
        assert!(self.ranks.iter().all(|pid| is_running(*pid)));
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
        let begun = Instant::now();
        let mut status = None;
        assert!(eventually(|| {
            status = self.child.try_wait().expect("ours to wait for");
            status.is_some() && !self.ranks.iter().any(|pid| is_running(*pid))
        }));
        println!("nothing ran {:?} after {signal:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5));
        let mut sockets = String::new();
        std::fs::File::open("/proc/net/unix")
            .and_then(|mut file| file.read_to_string(&mut sockets))
            .expect("Linux");
        assert!(!sockets.contains(&self.job), "the job's socket is left");
        status.expect("waited for")
    }
}

/// What the launchers of the tests do: run a job that works for longer than any of them lives.
fn launcher() {
    std::process::exit(job_of(RANKS, "works").run().expect("the job starts").status().into());
}

/// The ranks of that job put, get and meet, until they end with their launcher.
fn works() {
    say(format!("job {}", std::env::var("STANDPIPE_JOB").expect("launched")));
    say(format!("pid {}", std::process::id()));
    let node = Node::open(config()).expect("a node");
    let private = Private::new(20_000);
    private.show(&node, "private");
    node.barrier().expect("nobody is killed yet");
    say(format!("ready {}", node.rank()));
    let next = private_of(&node, (node.rank() + 1) % node.size(), "private");
    let (begun, mut bytes) = (Instant::now(), vec![node.rank() as u8; 20_000]);
    while begun.elapsed() < LIMIT {
        let mut work = || {
            node.put_bytes(next, &bytes)?;
            node.get_bytes(next, &mut bytes)?;
            node.barrier()
        };
        match work() {
            // One may end before the others.
            Ok(()) | Err(Error::PeerLost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    assert_eq!(Launcher::start().ends_by(Signal::KILL).signal(), Some(9));
}

#[test]
fn a_launcher_told_to_end_takes_its_ranks_along() {
    assert_eq!(Launcher::start().ends_by(Signal::TERM).code(), Some(128 + 15));
}

#[test]
fn a_stopped_rank_is_waited_for_and_does_not_hold_up_the_others() {
    Heard::default().run_well(job_of(3, "stops"));
}

/// How long the ranks wait for one that is stopped.
const SHORT: Duration = Duration::from_millis(200);

/// Rank 0 stops rank 2, does with it what can be done, works with rank 1, and lets rank 2 go on.
fn stops() {
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let config = config()
        .handler("ask", |call| {
            let answer = call.node().handler("answer").expect("registered");
            call.reply(answer, call.args()).expect("reply");
        })
        .handler("answer", move |call| {
            counted.fetch_add(call.args()[0], Ordering::SeqCst);
        });
    let node = Node::open(config).expect("a node");
    let heap = node.heap().alloc_zeroed::<u64>(4).expect("room");
    let private = Private::from(&[5; 100]);
    publish(&node, "heap", heap.ptr(0).to_words());
    private.show(&node, "private");
    publish(&node, "pid", [u64::from(std::process::id()), 0]);
    for peer in 0..3 {
        node.connect(peer).expect("connected");
    }
    node.barrier().expect("barrier");
    if node.rank() == 1 {
        assert!(matches!(node.within(Duration::ZERO).barrier(), Err(Error::WaitTimeout { .. })));
        node.put(heap_of::<u64>(&node, 0, "heap").add(3), 1).expect("put");
    }
    if node.rank() == 0 {
        // Rank 2 may be the one to tell rank 1 that the barrier is open.
        node.wait_until(|| heap.read(3) == 1).expect("rank 1 has passed it");
        let pid = look_up(&node, 2, "pid")[0] as i32;
        let pid = Pid::from_raw(pid).expect("a process");
        kill_process(pid, Signal::STOP).expect("a process of the same user");
        let state =
            || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
        assert!(eventually(|| state().contains(") T ")), "stopped: {}", state());
        with_a_stopped_peer(&node, &answers);
        kill_process(pid, Signal::CONT).expect("a process of the same user");
        node.put(heap_of::<u64>(&node, 2, "heap").add(2), 1).expect("put");
        node.wait_until(|| answers.load(Ordering::SeqCst) == 11).expect("the late answer");
    }
    // It must not arrive at the barrier before it is stopped.
    while node.rank() == 2 && heap.read(2) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // This is the barrier that rank 0 has begun.
    node.barrier().expect("barrier");
    let (words, byte) = if node.rank() == 0 { ([0; 2], 5) } else { ([7, 9], 6) };
    assert_eq!((&heap.to_vec()[..2], private.byte(50)), (&words[..], byte));
    assert_eq!(node.lost_peers(), []);
    node.barrier().expect("barrier");
}

fn with_a_stopped_peer(node: &Node, answers: &AtomicU64) {
    for peer in [2, 1] {
        let (heap, private) = (heap_of::<u64>(node, peer, "heap"), private_of(node, peer, "private"));
        node.put(heap, 7).expect("put");
        assert_eq!((node.get(heap), node.fetch_add(heap.add(1), 9)), (Ok(7), Ok(0)));
        node.put_bytes(private.plus(50), &[6]).expect("put");
        let mut bytes = [0; 100];
        node.get_bytes(private, &mut bytes).expect("get");
        assert_eq!((bytes[49], bytes[50]), (5, 6));
    }
    let ask = node.handler("ask").expect("registered");
    node.request(2, ask, [1, 0, 0, 0]).expect("there is room");
    node.request(1, ask, [10, 0, 0, 0]).expect("there is room");
    node.wait_until(|| answers.load(Ordering::SeqCst) == 10).expect("rank 1 answers");
    let begun = Instant::now();
    let told = |waited: Result<(), Error>| waited.expect_err("in vain").to_string();
    let said = told(node.within(SHORT).wait_until(|| answers.load(Ordering::SeqCst) > 10));
    assert_eq!(said, "the deadline passed while waiting for a condition");
    let said = told(node.within(SHORT).barrier());
    assert_eq!(said, "the deadline passed while waiting for all ranks to come to the barrier");
    let full = loop {
        // Rank 2 takes nothing out of its ring.
        if let Err(error) = node.within(SHORT).request(2, ask, [0; 4]) {
            break error;
        }
    };
    assert_eq!(full, Error::Timeout { peer: 2, unattended: false });
    let waited = begun.elapsed();
    assert!((SHORT * 3..SHORT * 3 + LIMIT / 2).contains(&waited), "three waits of {SHORT:?} took {waited:?}");
}

/// Each of these waits for rank 0, which is killed meanwhile.
const WAITS: [&str; 6] = ["nothing", "barrier", "get", "put", "lane", "condition"];

#[test]
fn whoever_waits_for_a_rank_that_is_killed_is_told() {
    let heard = Heard::default();
    let outcome = heard.run(job_of(WAITS.len() as u32, "waits").keep_going(true));
    for (rank, wait) in outcome.ranks.iter().zip(WAITS) {
        let expected = if wait == "nothing" { End::Killed(9) } else { End::Exited(0) };
        assert_eq!(rank.end, expected, "who waits for {wait}\n{}", heard.all());
    }
    let time = |rank: usize| heard.said(rank as u32)[0].parse::<u64>().expect("a time");
    for (rank, wait) in WAITS.iter().enumerate().skip(1) {
        let told = Duration::from_nanos(time(rank).saturating_sub(time(0)));
        println!("who waits for {wait} is told after {told:?}");
        assert!(told < Duration::from_secs(2), "who waits for {wait} was told after {told:?}");
    }
}

/// Each of these never stops asking for something of rank 0's, which is killed meanwhile.
const ASKS: [&str; 6] = ["nothing", "barrier", "get", "put", "atomic", "messages"];

#[test]
fn whoever_asks_a_rank_over_the_network_that_is_killed_is_told() {
    let Some(network) = network() else { return };
    let heard = Heard::default();
    let job = job_of(ASKS.len() as u32, "asks").env("STANDPIPE_TRANSPORT", network);
    let outcome = heard.run(job.keep_going(true));
    for (rank, ask) in outcome.ranks.iter().zip(ASKS) {
        let expected = if ask == "nothing" { End::Killed(9) } else { End::Exited(0) };
        assert_eq!(rank.end, expected, "who asks for {ask}\n{}", heard.all());
    }
    let time = |rank: usize| heard.said(rank as u32)[0].parse::<u64>().expect("a time");
    for (rank, ask) in ASKS.iter().enumerate().skip(1) {
        let told = Duration::from_nanos(time(rank).saturating_sub(time(0)));
        println!("who asks for {ask} is told after {told:?}");
        assert!(told < Duration::from_secs(2), "who asks for {ask} was told after {told:?}");
    }
}

/// Rank 0 is killed while all others are at it.
fn asks() {
    let node = Node::open(config().handler("ask", |_| ())).expect("a node");
    let private = Private::new(1 << 20);
    let [word, begun] = [(); 2].map(|()| node.heap().alloc_zeroed::<u64>(1).expect("room"));
    private.show(&node, "private");
    publish(&node, "word", word.ptr(0).to_words());
    publish(&node, "begun", begun.ptr(0).to_words());
    let ask = node.handler("ask").expect("registered");
    let (remote, word) = (private_of(&node, 0, "private"), heap_of::<u64>(&node, 0, "word"));
    node.barrier().expect("all are there");
    if node.rank() != 0 {
        node.fetch_add(heap_of::<u64>(&node, 0, "begun"), 1).expect("rank 0 waits for that");
    } else {
        node.wait_until(|| begun.read(0) == ASKS.len() as u64 - 1).expect("they all begin");
        std::thread::sleep(Duration::from_millis(300));
        say(monotonic_ns());
        kill_process(getpid(), Signal::KILL).expect("its own process");
    }
    let mut bytes = vec![0; 1 << 20];
    let error = loop {
        let result = match ASKS[node.rank() as usize] {
            "barrier" => node.barrier(),
            "get" => node.get_bytes(remote, &mut bytes),
            "put" => node.put_bytes(remote, &bytes),
            "atomic" => node.fetch_add(word, 1).map(drop),
            _ => node.request(0, ask, [0; 4]),
        };
        if let Err(error) = result {
            break error;
        }
    };
    assert_eq!(error, Error::PeerLost { peer: 0 });
    say(monotonic_ns());
    assert_eq!(node.lost_peers(), [0]);
    // The others have not gone: their loss would be told in place of rank 0's.
    std::thread::sleep(Duration::from_millis(500));
}

/// Rank 0 does nothing until all others wait for it, and is killed then.
fn waits() {
    let config = config().attach_never().progress(ProgressThread::Off).timeout(LIMIT);
    let node = Node::open(config.handler("ask", |_| ())).expect("a node");
    let private = Private::new(1 << 20);
    let about_to = node.heap().alloc_zeroed::<u64>(1).expect("room");
    private.show(&node, "private");
    publish(&node, "about to wait", about_to.ptr(0).to_words());
    let ask = node.handler("ask").expect("registered");
    if node.rank() == 0 {
        while about_to.read(0) < WAITS.len() as u64 - 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        say(monotonic_ns());
        kill_process(getpid(), Signal::KILL).expect("its own process");
    }
    let remote = private_of(&node, 0, "private");
    node.fetch_add(heap_of::<u64>(&node, 0, "about to wait"), 1).expect("fetch-add");
    let result = match WAITS[node.rank() as usize] {
        "barrier" => node.barrier(),
        "get" => node.get_bytes(remote, &mut vec![0; 1 << 20]),
        "lane" => (0..).find_map(|_| node.request(0, ask, [0; 4]).err()).map_or(Ok(()), Err),
        "put" => node.put_bytes(remote, &vec![1; 1 << 20]),
        _ => node.wait_until(|| node.lost_peers() == [0]).and_then(|()| node.request(0, ask, [0; 4])),
    };
    assert_eq!(result, Err(Error::PeerLost { peer: 0 }));
    say(monotonic_ns());
    // The others have not gone: their loss would be told in place of rank 0's.
    std::thread::sleep(Duration::from_millis(500));
}
