//! Operations that were given up: their bytes may come until they settle, and never after.
//!
//! A put or an atomic is cancelled, is late, or its event is dropped. `quiet`, `fence` or a barrier waits for
//! it; the target stands still meanwhile, or not. Then the target's memory is given to somebody else, and
//! each byte that is found there later is one that the new owner wrote.

use crate::support;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Heard, Random, config, heap_of, job_of, look_up, network, publish, say};
use rustix::process::{Pid, Signal as Kill, kill_process};
use standpipe::launch::End;
use standpipe::{AtomicOp, Config, Error, GlobalPtr, HeapArray, Node, ProgressThread, Remote, Signal};

/// For how long each route goes on, where that is not [`SHORT`].
const SECONDS: &str = "STANDPIPE_TEST_SETTLE_S";
const SHORT: Duration = Duration::from_secs(8);
const SHORTEST: Duration = Duration::from_secs(2);

/// How long one job goes on: less than a test's process may live.
const JOB: Duration = Duration::from_secs(60);

const FOLDER: &str = "STANDPIPE_TEST_FOLDER";
const SEED: &str = "STANDPIPE_TEST_SETTLE_SEED";
const JOB_MS: &str = "STANDPIPE_TEST_SETTLE_JOB_MS";

/// Blocks of memory that are used in turn, and bytes of each: late bytes have some rounds to arrive in.
const BLOCKS: usize = 4;
const BLOCK: usize = 4 << 20;

/// What operations write; who reuses a block writes other bytes.
const PUT: u8 = 0xee;

/// What was given up has settled then, also where the target stood still.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// How long a target stands still.
const STILL: Duration = Duration::from_millis(8);

const LENGTHS: [usize; 7] = [8, 100, 4096, 5000, 64 << 10, 1 << 20, BLOCK];

/// Not a test: what the ranks do.
#[test]
fn child() {
    if support::role().is_none() {
        return;
    }
    let off = config().heap_bytes(64 << 20).timeout(Duration::from_secs(20));
    let config: Config = off.progress(ProgressThread::On);
    let node = Node::open(config).expect("a node");
    let folder = PathBuf::from(std::env::var(FOLDER).expect("set by the test"));
    if node.rank() == 1 {
        owner(&node, &folder.join("owner"))
    } else {
        initiator(&node, &folder.join("owner"))
    }
}

#[test]
fn what_was_given_up_by_message_writes_nothing_later() {
    rounds(&[("STANDPIPE_TRANSPORT", "shm"), ("STANDPIPE_ATTACH", "never")]);
}

#[test]
fn what_was_given_up_over_the_network_writes_nothing_later() {
    if let Some(network) = network() {
        rounds(&[("STANDPIPE_TRANSPORT", network)]);
    }
}

#[test]
fn what_was_given_up_where_memory_is_registered_writes_nothing_later() {
    if let Some(network) = network() {
        rounds(&[("STANDPIPE_TRANSPORT", network), ("STANDPIPE_STRATEGY", "firehose")]);
    }
}

#[test]
fn what_was_given_up_over_providers_that_are_named_writes_nothing_later() {
    let Ok(named) = std::env::var(testbed::PROVIDERS) else {
        return testbed::skip(format_args!("{} names no provider", testbed::PROVIDERS));
    };
    for provider in named.split(',') {
        rounds(&[("STANDPIPE_TRANSPORT", &format!("ofi:{provider}"))]);
    }
}

/// Jobs of two ranks, one after the other, until the time is over.
fn rounds(settings: &[(&str, &str)]) {
    let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().expect("a number"));
    let short = || if testbed::has_time_for("8 seconds of it instead of 2") { SHORT } else { SHORTEST };
    let (time, begun) = (seconds.map_or_else(short, Duration::from_secs), Instant::now());
    let (mut seed, mut done) = (0, 0);
    while begun.elapsed() < time {
        let left = JOB.min(time.saturating_sub(begun.elapsed()));
        done += one(settings, seed, left);
        seed += 1;
    }
    println!("{settings:?}: {done} rounds, no late byte");
    assert!(done > 0, "no round has ended");
}

/// One job. Returns how many rounds it made.
fn one(settings: &[(&str, &str)], seed: u64, time: Duration) -> u64 {
    let folder = tempfile::tempdir().expect("a folder of this job's own");
    let job = job_of(2, "settle").env(FOLDER, folder.path()).env(SEED, seed.to_string());
    let job = job.env(JOB_MS, time.as_millis().to_string());
    let job = settings.iter().fold(job, |job, (name, value)| job.env(*name, *value));
    let heard = Heard::default();
    let outcome = heard.run(job);
    let well = outcome.ranks.iter().all(|rank| rank.end == End::Exited(0));
    assert!(well, "{SEED}={seed} over {settings:?}: {outcome:?}\n{}", heard.all());
    heard.said(0).last().and_then(|text| text.parse().ok()).expect("rank 0 says how many rounds it made")
}

/// Memory that is given away and taken back.
struct Area {
    heap: HeapArray<u8>,
    private: Vec<u8>,
}

impl Area {
    /// The first bytes of a block, of the heap or of private memory.
    fn block(&mut self, heap: bool, block: usize, len: usize) -> &mut [u8] {
        let all = if heap { self.heap.as_ptr() } else { self.private.as_mut_ptr() };
        // SAFETY: the block lies in memory that is there as long as `self`. Nobody writes there: that is what
        // this test is about, and a write would be seen as a byte of another value.
        unsafe { std::slice::from_raw_parts_mut(all.add(block * BLOCK), len) }
    }
}

/// The rank whose memory is written: it does what it is told by a socket, and a thread of its node serves.
fn owner(node: &Node, at: &Path) {
    let heap = node.heap().alloc_zeroed::<u8>(BLOCKS * BLOCK).expect("room");
    let words = node.heap().alloc_zeroed::<u64>(BLOCKS).expect("room");
    let mut area = Area { heap, private: vec![0; BLOCKS * BLOCK] };
    publish(node, "heap", area.heap.ptr(0).to_words());
    publish(node, "words", words.ptr(0).to_words());
    let private = area.private.as_mut_ptr().expose_provenance() as u64;
    publish(node, "private", [private, u64::from(std::process::id())]);
    let listener = UnixListener::bind(at).expect("a socket");
    node.barrier().expect("all come");
    let (mut stream, _) = listener.accept().expect("the other connects");
    let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    for line in lines {
        let line = line.expect("a line");
        let number = |at: usize| line.split(' ').nth(at).and_then(|it| it.parse().ok()).expect("a number");
        let answer = match line.split(' ').next().expect("a word") {
            "barrier" => node.barrier().map_or_else(|error| error.to_string(), |()| "ok".into()),
            "word" => words.read(number(1)).to_string(),
            "fill" => {
                area.block(number(1) == 1, number(2), number(3)).fill(number(4) as u8);
                "ok".into()
            }
            "check" => {
                let (found, wanted) = (area.block(number(1) == 1, number(2), number(3)), number(4) as u8);
                let wrong = found.iter().position(|byte| *byte != wanted);
                let count = found.iter().filter(|byte| **byte != wanted).count();
                wrong.map_or("ok".into(), |at| format!("{count} of {}, {} at {at}", found.len(), found[at]))
            }
            _ => break,
        };
        writeln!(stream, "{answer}").expect("the other reads");
    }
}

/// What the initiator knows of the other.
struct Target<'a> {
    node: &'a Node,
    heap: GlobalPtr<u8>,
    words: GlobalPtr<u64>,
    private: u64,
    pid: Pid,
    stream: BufReader<UnixStream>,
}

impl Target<'_> {
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.stream.get_mut(), "{what}").expect("the other reads");
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the other answers");
        line.trim().to_owned()
    }

    fn place(&self, heap: bool, block: usize) -> Remote {
        if heap {
            return self.heap.add(block * BLOCK).into();
        }
        // SAFETY: it lies in the other's memory, which is there until it is told to end.
        unsafe { Remote::raw(1, self.private + (block * BLOCK) as u64) }
    }
}

fn initiator(node: &Node, at: &Path) {
    let number = |name| std::env::var(name).expect("set").parse::<u64>().expect("a number");
    let (mut random, time) = (Random::new(number(SEED)), Duration::from_millis(number(JOB_MS)));
    let [private, pid] = look_up(node, 1, "private");
    let (heap, words) = (heap_of(node, 1, "heap"), heap_of(node, 1, "words"));
    node.barrier().expect("all come");
    let stream = BufReader::new(UnixStream::connect(at).expect("the other listens"));
    let pid = Pid::from_raw(pid as i32).expect("a process");
    let mut target = Target { node, heap, words, private, pid, stream };
    let mut filled: [Option<(String, String, String)>; BLOCKS] = [const { None }; BLOCKS];
    let (begun, mut done) = (Instant::now(), 0_u64);
    while begun.elapsed() < time {
        let block = done as usize % BLOCKS;
        if let Some((what, wanted, given)) = filled[block].take() {
            let found: String = target.ask(&what);
            assert_eq!(
                found,
                wanted,
                "round {done}, of what round {} gave up: {given}",
                done - BLOCKS as u64
            );
        }
        filled[block] = Some(round(&mut target, &mut random, block, (done % 200) as u8));
        done += 1;
    }
    target.ask("barrier-less end");
    say(done);
}

/// Starts something with a block, gives it up, and has the block given to somebody else once it has settled.
/// Returns how the block is to be looked at later, what is to be found then, and what was done.
fn round(target: &mut Target<'_>, random: &mut Random, block: usize, byte: u8) -> (String, String, String) {
    let (heap, len) = (random.below(2) == 0, LENGTHS[random.below(LENGTHS.len())]);
    let (how, what) = (random.below(3), random.below(8));
    let still = random.below(4) == 0;
    let pause = Duration::from_micros(random.below(400) as u64);
    let given = format!("{what} of {len} B, heap {heap}, by {how} after {pause:?}, stood still {still}");
    let goes_on = still.then(|| {
        kill_process(target.pid, Kill::STOP).expect("it is this test's");
        let pid = target.pid;
        std::thread::spawn(move || {
            std::thread::sleep(STILL);
            kill_process(pid, Kill::CONT).expect("it is this test's");
        })
    });
    give_up(target, (what, how), (heap, block, len), pause);
    let settles = random.below(5);
    let said = settle(target, settles, goes_on.is_some());
    if let Some(thread) = goes_on {
        thread.join().expect("no panic");
    }
    let looked_at = if what == 0 {
        let word = target.ask(&format!("word {block}"));
        (format!("word {block}"), word, given)
    } else {
        let at = format!("{} {block} {len} {byte}", u8::from(heap));
        assert_eq!(target.ask(&format!("fill {at}")), "ok");
        (format!("check {at}"), "ok".into(), format!("{given}, then waited for by {settles}"))
    };
    // Not before the block is somebody else's: the call above alone has to have waited.
    settles_soon(target.node, settles, said);
    looked_at
}

/// Starts an operation, and has it end before its time, if that is not over.
fn give_up(
    target: &Target<'_>,
    (what, how): (usize, usize),
    (heap, block, len): (bool, usize, usize),
    pause: Duration,
) {
    let (node, place) = (target.node, target.place(heap, block));
    // Of the time that the calls may take only what they do themselves is of interest.
    let late = node.within(pause);
    let bytes = vec![PUT; len];
    let word = target.words.add(block);
    match (what, how) {
        (0, 0) => drop(late.fetch_add(word, 1)),
        (0, 1) => drop(late.fetch_nb(word, AtomicOp::Add, 1)),
        (0, _) => drop(node.fetch_nb(word, AtomicOp::Add, 1).cancel()),
        (1, 0) => drop(late.put_signal(place, &bytes, Signal::add(word, 1))),
        (1, 1) => drop(late.put_signal_nb(place, bytes, Signal::add(word, 1))),
        (1, _) => {
            let event = node.put_signal_nb(place, bytes, Signal::add(word, 1));
            std::thread::sleep(pause);
            drop(event.cancel());
        }
        (_, 0) => drop(late.put_bytes(place, &bytes)),
        (_, 1) => drop(late.put_nb(place, bytes)),
        (_, _) => {
            let event = node.put_nb(place, bytes);
            std::thread::sleep(pause);
            let (_, mut bytes) = event.cancel();
            // The buffer is this process's again, whatever still moves.
            bytes.fill(0xdd);
        }
    }
}

/// Waits for what was given up. Returns what the call said.
fn settle(target: &mut Target<'_>, how: usize, still: bool) -> Result<(), Error> {
    let node = target.node;
    // Some of them tell that something was late: what they wait for they have waited for then.
    let said = match how {
        0 => node.quiet(),
        1 => node.quiet_with(1),
        2 => node.fence(),
        3 => node.fence_with(1),
        // Its main thread is told of the barrier, which stands still, too.
        _ if still => node.quiet(),
        _ => {
            writeln!(target.stream.get_mut(), "barrier").expect("the other reads");
            // Of what had failed before the barrier hears first, and has to be called again.
            let met = node.barrier().or_else(|_| node.barrier());
            let mut line = String::new();
            target.stream.read_line(&mut line).expect("the other answers");
            assert_eq!(line.trim(), "ok", "the other at the barrier");
            met
        }
    };
    assert!(node.lost_peers().is_empty(), "the other is lost");
    said
}

/// Has all that failed told, until a call says that nothing is under way: it comes soon.
fn settles_soon(node: &Node, how: usize, said: Result<(), Error>) {
    let deadline = Instant::now() + SETTLES_WITHIN;
    let mut failed = Vec::from_iter(said.err());
    while let Err(error) = node.within(SETTLES_WITHIN).quiet() {
        failed.push(error);
        assert!(Instant::now() < deadline, "it does not settle, waited for by {how}: {failed:?}");
    }
}
