//! A storm: all ranks put, get, ask and meet at random, every byte verified, while ranks are killed at random
//! moments.
//!
//! `STANDPIPE_TEST_SEED=N` repeats the choices of a run; `STANDPIPE_TEST_STORM_S=300` goes on for so many
//! seconds.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use standpipe::host::monotonic_ns;
use standpipe::launch::End;
use standpipe::{Error, GetPiece, GlobalPtr, HandlerId, HeapArray, Node, PutPiece, Rank, Remote};

use crate::support::{
    Heard, Private, Random, config, eventually, heap_of, is_running, job_of, network, pattern, private_of,
    publish, say,
};

pub(crate) const RANKS: u32 = 6;
/// Kills go on for so long.
const ROUGH: Duration = Duration::from_secs(5);
/// After them the work goes on a little.
const CALM: Duration = Duration::from_secs(1);
/// No single call may take longer, on a machine that has other things to do too.
const CALL_MAX: Duration = Duration::from_secs(10);
/// How long a loss may stay unnoticed here; the promise is 100 ms, on a machine that is not overloaded.
const NOTICE_MAX: Duration = Duration::from_secs(2);

/// How long the ranks work once all are there.
pub(crate) const WORK_MS: &str = "STANDPIPE_TEST_WORK_MS";
pub(crate) const SEED: &str = "STANDPIPE_TEST_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn survivors_of_a_storm_of_kills_go_on_among_themselves() {
    storms(&[]);
}

#[test]
fn so_they_do_over_the_network() {
    let Some(network) = network() else { return };
    storms(&[("STANDPIPE_TRANSPORT", network)]);
}

#[test]
fn so_they_do_where_memory_is_registered() {
    let Some(network) = network() else { return };
    // Hardly any at a time, so that it changes hands.
    let settings = [("STANDPIPE_STRATEGY", "firehose"), ("STANDPIPE_PIN", "512K")];
    storms(&[&[("STANDPIPE_TRANSPORT", network)], &settings[..]].concat());
}

/// Storms with these settings for as long as is asked for, one at least.
fn storms(settings: &[(&str, &str)]) {
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let time = Duration::from_secs(number("STANDPIPE_TEST_STORM_S").unwrap_or(0));
    let mut seeds = Random::new(seed);
    let begun = Instant::now();
    // The first storm has the seed itself, so that any storm of a long run can be had alone.
    let mut next = seed;
    loop {
        println!("{SEED}={next}");
        storm(next, settings);
        next = seeds.next();
        if begun.elapsed() >= time {
            return;
        }
    }
}

fn storm(seed: u64, settings: &[(&str, &str)]) {
    let shm_before = names_in("/dev/shm");
    let heard = Heard::default();
    let job = job_of(RANKS, "storm")
        .keep_going(true)
        .env(WORK_MS, (ROUGH + CALM).as_millis().to_string())
        .env(SEED, seed.to_string());
    let job = settings.iter().fold(job, |job, (name, value)| job.env(name, value));
    let running = {
        let heard = heard.clone();
        std::thread::spawn(move || heard.run(job))
    };
    let all_ready = || (0..RANKS).all(|rank| word(&heard, rank, "ready").is_some());
    assert!(eventually(all_ready), "not all came:\n{}", heard.all());
    let killed = kill_some(&heard, seed, monotonic_ns() + ROUGH.as_nanos() as u64);
    let outcome = running.join().expect("the launcher does not panic");

    for rank in 0..RANKS {
        let expected = if killed.contains_key(&rank) { End::Killed(9) } else { End::Exited(0) };
        assert_eq!(outcome.ranks[rank as usize].end, expected, "rank {rank}\n{}", heard.all());
        assert!(!is_running(outcome.ranks[rank as usize].pid), "rank {rank} still runs");
    }
    assert!(!killed.is_empty(), "a storm without a kill");
    check_losses(&heard, &killed);
    let job = word(&heard, 0, "job").expect("every rank says it");
    assert!(eventually(|| !file("/proc/net/unix").contains(&job)), "the job's socket is left");
    let ours =
        |name: &String| name.contains(&job) || name.contains("standpipe") && !shm_before.contains(name);
    assert!(!names_in("/dev/shm").iter().any(ours), "shared memory is left");
    assert!(!names_in("/tmp").iter().any(|name| name.contains(&job)), "a file is left");
}

/// Kills up to all but two ranks; says when each was killed.
fn kill_some(heard: &Heard, seed: u64, until_ns: u64) -> BTreeMap<Rank, u64> {
    let mut random = Random::new(seed ^ 0xdead);
    let mut killed = BTreeMap::new();
    let pause_ms_max = (ROUGH.as_millis() as usize * 2 / (RANKS as usize - 1)).max(1);
    while killed.len() < RANKS as usize - 2 {
        std::thread::sleep(Duration::from_millis(random.below(pause_ms_max) as u64));
        if monotonic_ns() >= until_ns {
            break;
        }
        let victim = random.below(RANKS as usize) as Rank;
        if killed.contains_key(&victim) {
            continue;
        }
        let pid = word(heard, victim, "pid").and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        killed.insert(victim, monotonic_ns());
        // A rank that has ended by itself has failed, as will be seen.
        let _ = kill_process(pid.expect("every rank says it"), Signal::KILL);
    }
    killed
}

/// Every survivor has noticed every kill, in time, and nothing else.
fn check_losses(heard: &Heard, killed: &BTreeMap<Rank, u64>) {
    let mut worst = Duration::ZERO;
    for rank in (0..RANKS).filter(|rank| !killed.contains_key(rank)) {
        let said = heard.said(rank);
        let lost = said.iter().filter_map(|line| line.strip_prefix("lost "));
        let lost: BTreeMap<Rank, u64> = lost
            .map(|line| line.split_once(' ').expect("a rank and a time"))
            .map(|(rank, ns)| (rank.parse().expect("a rank"), ns.parse().expect("a time")))
            .collect();
        assert!(lost.keys().eq(killed.keys()), "rank {rank} noticed {lost:?} of {killed:?}\n{}", heard.all());
        let delays = lost.iter().map(|(rank, ns)| Duration::from_nanos(ns.saturating_sub(killed[rank])));
        worst = worst.max(delays.max().unwrap_or_default());
        println!("rank {rank}: {}", word(heard, rank, "did").expect("survivors say what they did"));
    }
    println!("{} of {RANKS} ranks killed; the slowest notice took {worst:?}", killed.len());
    assert!(worst < NOTICE_MAX, "a loss went unnoticed for {worst:?}");
}

/// What `rank` has said after a certain word.
fn word(heard: &Heard, rank: Rank, word: &str) -> Option<String> {
    let said = heard.said(rank);
    said.iter().find_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned())
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).expect("Linux has it")
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Bytes of each of a rank's places, at each of the others: in the heap, and in private memory.
const PLACE: usize = 20_000;

/// One rank's work.
struct Storm {
    node: Node,
    random: Random,
    peers: Vec<Peer>,
    answers: Arc<Vec<AtomicU64>>,
    ask: HandlerId,
    broken: bool,
    done: u64,
    slowest: Duration,
}

/// A peer, and what must lie in this rank's places there.
struct Peer {
    rank: Rank,
    heap: GlobalPtr<u8>,
    private: Remote,
    word: GlobalPtr<u64>,
    flags: GlobalPtr<u64>,
    in_heap: Vec<u8>,
    in_private: Vec<u8>,
    added: u64,
    asked: u64,
    lost: bool,
}

/// What peers write to.
struct Target {
    _heap: HeapArray<u8>,
    _private: Private,
    flags: HeapArray<u64>,
}

/// What a rank of the storm does.
pub(crate) fn rank() {
    let job = std::env::var("STANDPIPE_JOB").expect("launched");
    say(format!("job {job}"));
    say(format!("pid {}", std::process::id()));
    let (mut storm, target) = Storm::open();
    let stop_watching = storm.watch_losses();
    storm.node.barrier().expect("nobody is killed yet");
    say(format!("ready {}", storm.node.rank()));
    let end_ns = monotonic_ns() + 1_000_000 * number(WORK_MS).expect("set by the test");
    while monotonic_ns() < end_ns {
        for _ in 0..20 {
            storm.step();
        }
        storm.meet();
    }
    storm.finish(&target);
    stop_watching();
    // Only now may others leave, which is a loss too.
    storm.wait_for_all(&target, 2);
    say(format!("did {} calls, the slowest in {:?}", storm.done, storm.slowest));
}

impl Storm {
    fn open() -> (Storm, Target) {
        let size: usize = RANKS as usize;
        let answers: Arc<Vec<AtomicU64>> = Arc::new((0..size).map(|_| AtomicU64::new(0)).collect());
        let answered = Arc::clone(&answers);
        let config = config().timeout(CALL_MAX).handler("ask", |call| {
            let n = call.args()[0];
            assert!(call.payload() == pattern(n, call.payload().len()), "a question of rank {}", call.from());
            let answer = call.node().handler("answer").expect("registered");
            match call.reply_medium(answer, [n, 0, 0, 0], &pattern(n + 1, 500)) {
                Ok(()) | Err(Error::PeerLost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        });
        let config = config.handler("answer", move |call| {
            let n = call.args()[0];
            assert!(call.payload() == pattern(n + 1, 500), "an answer of rank {}", call.from());
            answered[call.from() as usize].fetch_max(n, Ordering::SeqCst);
        });
        let node = Node::open(config).expect("a node");
        let heap = node.heap().alloc_zeroed::<u8>(PLACE * size).expect("room");
        let words = node.heap().alloc_zeroed::<u64>(3 * size).expect("room");
        let private = Private::new(PLACE * size);
        publish(&node, "heap", heap.ptr(0).to_words());
        publish(&node, "words", words.ptr(0).to_words());
        private.show(&node, "private");
        let peers =
            (0..RANKS).filter(|rank| *rank != node.rank()).map(|rank| Peer::meet(&node, rank)).collect();
        let random = Random::new(number(SEED).expect("set by the test") + u64::from(node.rank()));
        let ask = node.handler("ask").expect("registered");
        let (broken, done, slowest) = (false, 0, Duration::ZERO);
        let storm = Storm { node, random, peers, answers, ask, broken, done, slowest };
        (storm, Target { _heap: heap, _private: private, flags: words })
    }

    /// Says as soon as it can when a peer is known to be lost, until told to stop.
    fn watch_losses(&self) -> impl FnOnce() + use<> {
        let node = self.node.clone();
        let (stop, stopped) = channel::<()>();
        let watch = std::thread::spawn(move || {
            let mut told = Vec::new();
            loop {
                let stops =
                    stopped.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Disconnected);
                let lost = node.lost_peers();
                for rank in lost.iter().filter(|rank| !told.contains(*rank)) {
                    say(format!("lost {rank} {}", monotonic_ns()));
                }
                if stops {
                    return;
                }
                told = lost;
            }
        });
        move || {
            drop(stop);
            watch.join().expect("no panic");
        }
    }

    /// One operation with one of the others, as it comes.
    fn step(&mut self) {
        let index = self.random.below(self.peers.len());
        let kind = self.random.below(7);
        let begun = Instant::now();
        let (node, random, peer) = (&self.node, &mut self.random, &mut self.peers[index]);
        let result = match kind {
            0 => peer.put_one(node, random),
            1 => peer.get_one(node, random),
            2 => peer.scatter(node, random),
            3 => peer.gather(node, random),
            4 => peer.put_private_later(node, random),
            5 => peer.add(node),
            _ => peer.ask(node, random, self.ask, &self.answers),
        };
        match result {
            Ok(()) => assert!(!peer.lost, "rank {} was lost, and now answers", peer.rank),
            Err(Error::PeerLost { peer: lost }) => {
                assert_eq!(lost, peer.rank);
                peer.lost = true;
            }
            Err(error) => panic!("operation {kind} with rank {}: {error}", peer.rank),
        }
        self.took(begun);
        self.node.progress();
    }

    /// A barrier, which can be passed as long as all live.
    fn meet(&mut self) {
        let begun = Instant::now();
        match self.node.barrier() {
            Ok(()) => assert!(!self.broken, "a barrier cannot be passed without all"),
            Err(Error::PeerLost { .. }) => self.broken = true,
            Err(error) => panic!("a barrier: {error}"),
        }
        self.took(begun);
    }

    fn took(&mut self, begun: Instant) {
        let took = begun.elapsed();
        assert!(took < CALL_MAX + CALM, "a call took {took:?}");
        self.slowest = self.slowest.max(took);
        self.done += 1;
    }

    /// The survivors look once more at all they have put.
    fn finish(&mut self, target: &Target) {
        self.wait_for_all(target, 1);
        for peer in self.peers.iter().filter(|peer| !peer.lost) {
            let (mut heap, mut private) = (vec![0; PLACE], vec![0; PLACE]);
            node_ok(self.node.get_slice(peer.heap, &mut heap), peer.rank);
            node_ok(self.node.get_bytes(peer.private, &mut private), peer.rank);
            assert!(
                heap == peer.in_heap && private == peer.in_private,
                "what rank {} keeps for us",
                peer.rank
            );
        }
    }

    fn wait_for_all(&mut self, target: &Target, phase: u64) {
        let (me, lost) = (u64::from(self.node.rank()), self.node.lost_peers());
        for peer in &mut self.peers {
            peer.lost |= lost.contains(&peer.rank);
            if !peer.lost {
                node_ok(self.node.put(peer.flags.add(me as usize), phase), peer.rank);
            }
        }
        let come = |peer: &Peer| peer.lost || target.flags.read(RANKS as usize + peer.rank as usize) >= phase;
        self.node.wait_until(|| self.peers.iter().all(come)).expect("the survivors all come");
    }
}

/// Nobody is killed any more.
fn node_ok(result: Result<(), Error>, rank: Rank) {
    result.unwrap_or_else(|error| panic!("after the storm, rank {rank}: {error}"));
}

impl Peer {
    fn meet(node: &Node, rank: Rank) -> Peer {
        let place = u64::from(node.rank()) * PLACE as u64;
        let words: GlobalPtr<u64> = heap_of(node, rank, "words");
        Peer {
            rank,
            heap: heap_of::<u8>(node, rank, "heap").add(place as usize),
            private: private_of(node, rank, "private").plus(place),
            word: words.add(node.rank() as usize),
            flags: words.add(RANKS as usize),
            in_heap: vec![0; PLACE],
            in_private: vec![0; PLACE],
            added: 0,
            asked: 0,
            lost: false,
        }
    }

    fn put_one(&mut self, node: &Node, random: &mut Random) -> Result<(), Error> {
        let (at, len) = range(random);
        let bytes = pattern(random.next(), len);
        let to_heap = random.below(2) == 0;
        let (to, kept) = if to_heap {
            (Remote::from(self.heap.add(at)), &mut self.in_heap)
        } else {
            (self.private.plus(at as u64), &mut self.in_private)
        };
        node.put_bytes(to, &bytes)?;
        kept[at..at + len].copy_from_slice(&bytes);
        Ok(())
    }

    fn get_one(&mut self, node: &Node, random: &mut Random) -> Result<(), Error> {
        let (at, len) = range(random);
        let mut got = vec![0; len];
        if random.below(2) == 0 {
            node.get_slice(self.heap.add(at), &mut got)?;
            assert!(got == self.in_heap[at..at + len], "the heap of rank {} at {at}", self.rank);
        } else {
            node.get_bytes(self.private.plus(at as u64), &mut got)?;
            assert!(got == self.in_private[at..at + len], "private memory of rank {} at {at}", self.rank);
        }
        Ok(())
    }

    /// Pieces that do not overlap, heap and private memory by turns.
    fn scatter(&mut self, node: &Node, random: &mut Random) -> Result<(), Error> {
        let cuts = cuts(random);
        let bytes = pattern(random.next(), PLACE);
        let pieces: Vec<PutPiece<'_>> = cuts
            .iter()
            .map(|(heap, at, end)| PutPiece { to: self.at(*heap, *at), from: &bytes[*at..*end] })
            .collect();
        node.put_list(&pieces)?;
        for (heap, at, end) in cuts {
            let kept = if heap { &mut self.in_heap } else { &mut self.in_private };
            kept[at..end].copy_from_slice(&bytes[at..end]);
        }
        Ok(())
    }

    fn gather(&mut self, node: &Node, random: &mut Random) -> Result<(), Error> {
        let cuts = cuts(random);
        let mut parts: Vec<Vec<u8>> = cuts.iter().map(|(_, at, end)| vec![0; end - at]).collect();
        let mut pieces: Vec<GetPiece<'_>> = cuts
            .iter()
            .zip(&mut parts)
            .map(|((heap, at, _), into)| GetPiece { from: self.at(*heap, *at), into })
            .collect();
        node.get_list(&mut pieces)?;
        for ((heap, at, end), part) in cuts.iter().zip(parts) {
            let kept = if *heap { &self.in_heap } else { &self.in_private };
            assert!(part == kept[*at..*end], "a piece of rank {} at {at}", self.rank);
        }
        Ok(())
    }

    fn put_private_later(&mut self, node: &Node, random: &mut Random) -> Result<(), Error> {
        let (at, len) = range(random);
        let bytes = pattern(random.next(), len);
        let (result, bytes) = node.put_nb(self.private.plus(at as u64), bytes).wait();
        result?;
        self.in_private[at..at + len].copy_from_slice(&bytes);
        Ok(())
    }

    /// Nobody but this rank adds to this word.
    fn add(&mut self, node: &Node) -> Result<(), Error> {
        assert_eq!(node.fetch_add(self.word, 3)?, self.added, "this rank's word at rank {}", self.rank);
        self.added += 3;
        Ok(())
    }

    fn ask(
        &mut self,
        node: &Node,
        random: &mut Random,
        ask: HandlerId,
        answers: &[AtomicU64],
    ) -> Result<(), Error> {
        self.asked += 1;
        let n = self.asked;
        node.request_medium(self.rank, ask, [n, 0, 0, 0], &pattern(n, random.below(4000)))?;
        let answered = || answers[self.rank as usize].load(Ordering::SeqCst) >= n;
        node.wait_until(|| answered() || node.lost_peers().contains(&self.rank))?;
        if answered() { Ok(()) } else { Err(Error::PeerLost { peer: self.rank }) }
    }

    fn at(&self, heap: bool, at: usize) -> Remote {
        if heap { self.heap.add(at).into() } else { self.private.plus(at as u64) }
    }
}

/// A start and a length inside a place.
fn range(random: &mut Random) -> (usize, usize) {
    let len = random.below(3000);
    (random.below(PLACE - len), len)
}

/// Ranges of a place in rising order that do not overlap, each in the heap (`true`) or in private memory.
fn cuts(random: &mut Random) -> Vec<(bool, usize, usize)> {
    let mut ends: Vec<usize> = (0..2 + random.below(30)).map(|_| random.below(PLACE)).collect();
    ends.sort_unstable();
    ends.windows(2).map(|ends| (random.below(2) == 0, ends[0], ends[1])).collect()
}
