//! Nodes that nobody launched: real processes that find each other by their addresses, come, leave, die and come again.

mod support;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use standpipe::bootstrap::Broker;
use standpipe::{AddressError, Config, Error, GlobalPtr, MeetError, Node, Rank, Remote};

use support::{LIMIT, Private, eventually, itself, pattern, role, said, say};

/// Words of the array that every process has first in its heap.
const WORDS: usize = 16;

/// Bytes of the private memory that every process has.
const PRIVATE: usize = 100_000;

/// A node, what it shares, and the sum of what it was told and answered.
struct Member {
    node: Node,
    array: standpipe::HeapArray<u64>,
    private: Private,
    noted: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl Member {
    fn new(config: Config) -> Member {
        let (noted, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (notes, answers) = (Arc::clone(&noted), Arc::clone(&answered));
        let config = config
            .handler("note", move |call| {
                notes.fetch_add(call.args()[0], Ordering::SeqCst);
                let answer = call.node().handler("answer").expect("registered");
                call.reply(answer, call.args()).expect("a request");
            })
            .handler("answer", move |call| {
                answers.fetch_add(call.args()[0], Ordering::SeqCst);
            });
        let node = Node::open_in(config, None).expect("a node");
        let array = node.heap().alloc_zeroed::<u64>(WORDS).expect("room");
        Member { node, array, private: Private::new(PRIVATE), noted, answered }
    }

    /// Sends a note of `tag` to a peer, and waits for the answer.
    fn ask(&self, peer: Rank, tag: u64) -> Result<(), Error> {
        let want = self.answered.load(Ordering::SeqCst) + tag;
        self.node.request(peer, self.node.handler("note").expect("registered"), [tag, 0, 0, 0])?;
        self.node.wait_until(|| {
            self.answered.load(Ordering::SeqCst) >= want || self.node.lost_peers().contains(&peer)
        })
    }
}

fn config() -> Config {
    support::config()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.map(|pair| byte(pair).expect("digits")).collect()
}

#[test]
fn child() {
    let Some(role) = role() else { return };
    let member = match role.as_str() {
        "by message" => Member::new(config().attach_never()),
        _ => Member::new(config()),
    };
    let node = &member.node;
    say(format!("address {}", hex(node.address().expect("a door").as_bytes())));
    let first = member.private.addr();
    say(format!("place {} {first}", member.array.ptr(0).offset()));
    if role == "idle" {
        // Makes no progress, and calls nothing.
        std::thread::sleep(LIMIT);
        return;
    }
    let (orders, given) = std::sync::mpsc::channel();
    let wakes = node.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = orders.send(line);
            wakes.wake();
        }
        std::process::exit(0);
    });
    let mut order = None;
    loop {
        let waited = node.wait_until(|| {
            order = given.try_recv().ok();
            order.is_some()
        });
        if let (Ok(()), Some(order)) = (waited, order.take()) {
            let words: Vec<&str> = order.split(' ').collect();
            match words[..] {
                ["end"] => return,
                ["connect", address] => {
                    say(format!("peer {}", node.connect_to(unhex(address)).expect("connected")));
                }
                ["put", peer, offset, value] => {
                    let [peer, offset, value] =
                        [peer, offset, value].map(|text| text.parse::<u64>().expect("a number"));
                    let done =
                        node.put(GlobalPtr::new(peer as Rank, offset), value).and_then(|()| node.quiet());
                    say(format!("put {done:?}"));
                }
                ["read", index] => {
                    say(format!("word {}", member.array.read(index.parse().expect("a number"))))
                }
                ["ask", peer, tag] => {
                    let done = member.ask(peer.parse().expect("a number"), tag.parse().expect("a number"));
                    say(format!("ask {done:?}"));
                }
                ["noted"] => say(format!("noted {}", member.noted.load(Ordering::SeqCst))),
                ["private"] => say(format!("private {}", hex(&member.private.bytes()[..64]))),
                _ => panic!("no order: {order}"),
            }
        }
    }
}

/// Another process with a node.
struct Other {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    address: Vec<u8>,
    /// Where its array and its private memory are.
    array: u64,
    private: u64,
}

impl Other {
    fn start(role: &str) -> Other {
        let mut command = itself(role);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs");
        let orders = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut other = Other { child, orders, lines, address: Vec::new(), array: 0, private: 0 };
        other.address = unhex(&other.hear("address"));
        let place = other.hear("place");
        let (array, private) = place.split_once(' ').expect("two numbers");
        (other.array, other.private) = (array.parse().expect("a number"), private.parse().expect("a number"));
        other
    }

    /// What it says of this.
    fn hear(&mut self, what: &str) -> String {
        loop {
            let line = self.lines.next().expect("it says more").expect("text");
            if let Some(text) = said(&line).and_then(|text| text.strip_prefix(what)) {
                return text.trim_start().to_owned();
            }
        }
    }

    fn order(&mut self, order: &str, answer: &str) -> String {
        writeln!(self.orders, "{order}").expect("it reads");
        self.hear(answer)
    }

    fn word(&self, peer: Rank, index: u64) -> GlobalPtr<u64> {
        GlobalPtr::new(peer, self.array).add(index)
    }

    /// Its private memory, which it leaves to others until it ends.
    fn private(&self, peer: Rank) -> Remote {
        // SAFETY: bytes of a `Private`, which takes writes by others at any time; it lives as long as its process, and of
        // one that has ended nothing is reached.
        unsafe { Remote::raw(peer, self.private) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
    }

    /// Stops all its threads, which takes a moment.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat =
                std::fs::read_to_string(thread.expect("readable").path().join("stat")).expect("it is there");
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        };
        let threads = format!("/proc/{}/task", self.child.id());
        assert!(eventually(|| std::fs::read_dir(&threads).expect("it is there").all(is_stopped)));
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both of two processes reach all that the other has; then one leaves.
fn all_that_two_can_do(role: &str) {
    let here = Member::new(config());
    let mut other = Other::start(role);
    let peer = here.node.connect_to(&other.address).expect("connected");
    assert_eq!((peer, here.node.connect_to(&other.address).expect("connected")), (1, 1));
    assert_eq!((here.node.peers(), here.node.rank(), here.node.size()), (vec![1], 0, 1));

    here.node.put(other.word(peer, 3), 42).expect("put");
    assert_eq!(here.node.fetch_add(other.word(peer, 3), 1), Ok(42));
    assert_eq!(here.node.get(other.word(peer, 3)), Ok(43));
    assert_eq!(other.order("read 3", "word"), "43");

    let bytes = pattern(1, PRIVATE);
    here.node.put_bytes(other.private(peer), &bytes).expect("put");
    here.node.quiet().expect("complete");
    let mut back = vec![0_u8; PRIVATE];
    here.node.get_bytes(other.private(peer), &mut back).expect("got");
    assert!(back == bytes, "other bytes than were put");
    assert_eq!(other.order("private", "private"), hex(&bytes[..64]));

    for tag in [1, 10, 100] {
        here.ask(peer, tag).expect("answered");
    }
    assert_eq!((here.answered.load(Ordering::SeqCst), other.order("noted", "noted").as_str()), (111, "111"));

    // The other way round: this node has the number 1 there, and need make no call but to answer messages.
    let mine = hex(here.node.address().expect("a door").as_bytes());
    assert_eq!(other.order(&format!("connect {mine}"), "peer"), "1");
    let offset = here.array.ptr(5).offset();
    assert_eq!(other.order(&format!("put 1 {offset} 7"), "put"), "Ok(())");
    assert_eq!(here.array.read(5), 7);
    writeln!(other.orders, "ask 1 5").expect("it reads");
    here.node.wait_until(|| here.noted.load(Ordering::SeqCst) == 5).expect("told");
    assert_eq!(other.hear("ask"), "Ok(())");

    writeln!(other.orders, "end").expect("it reads");
    assert!(eventually(|| here.node.lost_peers() == [peer]));
    assert_eq!(here.node.get(other.word(peer, 3)), Err(Error::PeerLost { peer }));
    assert_eq!(here.ask(peer, 1), Err(Error::PeerLost { peer }));
    assert!(here.node.peers().is_empty());
    // What this node does with itself goes on.
    here.node.barrier().expect("alone");
}

#[test]
fn two_processes_reach_each_other() {
    all_that_two_can_do("serve");
}

#[test]
fn two_processes_reach_each_other_by_message() {
    all_that_two_can_do("by message");
}

#[test]
fn one_that_is_killed_is_lost_within_100_ms() {
    let here = Member::new(config());
    let mut took = Vec::new();
    for number in 1..=5 {
        let mut other = Other::start("serve");
        assert_eq!(here.node.connect_to(&other.address).expect("connected"), number);
        here.ask(number, 1).expect("answered");
        let word = other.word(number, 0);
        // Only to know that it has nothing else to do: it says so.
        other.order("read 0", "word");
        let killed = Instant::now();
        other.signal(Signal::KILL);
        let lost = loop {
            match here.node.put(word, 1) {
                Ok(()) => assert!(killed.elapsed() < LIMIT, "never lost"),
                Err(error) => break error,
            }
        };
        took.push(killed.elapsed());
        assert_eq!(lost, Error::PeerLost { peer: number });
    }
    println!("lost after {took:?}");
    // Others work beside this test: the best of five is what the library takes.
    assert!(took.iter().min().expect("five") < &Duration::from_millis(100), "{took:?}");
}

#[test]
fn whoever_waits_for_one_that_is_killed_is_told() {
    let here = Member::new(config().attach_never());
    let other = Other::start("idle");
    let peer = here.node.connect_to(&other.address).expect("connected");
    // What goes by message to one that is stopped waits.
    other.stop();
    let mut event = here.node.get_nb(other.private(peer), vec![0_u8; PRIVATE]);
    assert_eq!(event.wait_at_most(Duration::from_millis(20)), Ok(false));
    let killed = Instant::now();
    other.signal(Signal::KILL);
    let (result, _) = event.wait();
    assert_eq!(result, Err(Error::PeerLost { peer }));
    println!("told after {:?}", killed.elapsed());
}

#[test]
fn others_join_at_any_time_and_one_that_is_started_again_is_another() {
    let here = Member::new(config());
    let (mut first, mut second) = (Other::start("serve"), Other::start("serve"));
    let old = here.node.connect_to(&first.address).expect("connected");
    here.node.put(first.word(old, 0), 1).expect("put");

    // A third joins both, and they go on.
    let to_first = hex(&first.address);
    assert_eq!(second.order(&format!("connect {to_first}"), "peer"), "1");
    let offset = first.array;
    assert_eq!(second.order(&format!("put 1 {offset} 5"), "put"), "Ok(())");
    assert_eq!(here.node.get(first.word(old, 0)), Ok(5));
    let third = here.node.connect_to(&second.address).expect("connected");
    assert_eq!(third, old + 1);
    here.ask(third, 1).expect("answered");

    // One dies; its successor may have its array at the very same offset.
    let gone = std::mem::replace(&mut first, Other::start("serve"));
    gone.signal(Signal::KILL);
    assert!(eventually(|| here.node.lost_peers() == [old]));
    let new = here.node.connect_to(&first.address).expect("connected");
    assert_eq!(new, third + 1);
    assert_eq!(gone.array, first.array);
    let lost = Error::PeerLost { peer: old };
    assert_eq!(here.node.put(gone.word(old, 0), 9), Err(lost.clone()));
    assert_eq!(here.node.get(gone.word(old, 0)), Err(lost.clone()));
    assert_eq!(here.node.fetch_add(gone.word(old, 0), 9), Err(lost.clone()));
    assert_eq!(here.node.put_bytes(gone.private(old), &[9]), Err(lost.clone()));
    assert_eq!(here.ask(old, 9), Err(lost));
    assert!(matches!(here.node.connect_to(&gone.address), Err(MeetError::Gone)));
    assert_eq!((first.order("read 0", "word"), first.order("noted", "noted")), ("0".into(), "0".into()));

    here.node.put(first.word(new, 0), 2).expect("put");
    here.ask(new, 3).expect("answered");
    here.ask(third, 3).expect("the others go on");
    assert_eq!(here.node.peers(), [third, new]);
    assert_eq!(second.order("put 1 0 1", "put"), "Err(peer 1 is lost)");
}

#[test]
fn many_that_come_and_go_at_once_are_each_heard_and_missed() {
    const LINES: u32 = 3;
    const ROUNDS: u32 = 4;
    let here = Member::new(config());
    let mine = hex(here.node.address().expect("a door").as_bytes());
    let come_and_go = &|line: u32| {
        for round in 0..ROUNDS {
            let mut other = Other::start("serve");
            assert_eq!(other.order(&format!("connect {mine}"), "peer"), "1");
            let (index, value) = (line as usize, u64::from(round) + 1);
            let offset = here.array.ptr(index).offset();
            assert_eq!(other.order(&format!("put 1 {offset} {value}"), "put"), "Ok(())");
            assert_eq!(here.array.read(index), value);
            assert_eq!(other.order("ask 1 1", "ask"), "Ok(())");
            // Every other one is killed, in the middle of a question.
            writeln!(other.orders, "{}", if (line + round).is_multiple_of(2) { "end" } else { "ask 1 0" })
                .expect("it reads");
        }
    };
    std::thread::scope(|scope| {
        let lines: Vec<_> = (0..LINES).map(|line| scope.spawn(move || come_and_go(line))).collect();
        while !lines.iter().all(|line| line.is_finished()) {
            here.node.wait_until(|| lines.iter().all(|line| line.is_finished())).expect("nobody hangs");
        }
    });
    let all: Vec<Rank> = (1..=LINES * ROUNDS).collect();
    assert!(eventually(|| here.node.lost_peers() == all), "{:?}", here.node.lost_peers());
    assert_eq!(here.noted.load(Ordering::SeqCst), u64::from(LINES * ROUNDS));
    assert!(here.node.peers().is_empty());
}

#[test]
fn one_that_is_stopped_does_not_hold_up_who_calls_it() {
    let here = Member::new(config());
    let other = Other::start("idle");
    other.stop();
    let begun = Instant::now();
    let error = here.node.within(Duration::from_millis(100)).connect_to(&other.address).expect_err("stopped");
    assert!(matches!(error, MeetError::Timeout { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    other.signal(Signal::CONT);
    let peer = here.node.connect_to(&other.address).expect("it goes on");
    here.node.put(other.word(peer, 0), 1).expect("put");
}

#[test]
fn what_is_no_address_is_told_by_name() {
    let here = Member::new(config());
    let whole = here.node.address().expect("a door").into_bytes();
    let bad = |bytes: &[u8]| match here.node.connect_to(bytes) {
        Err(MeetError::Address(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(&[]), AddressError::Length { len: 0 });
    assert!(matches!(bad(b"something else altogether"), AddressError::Foreign { .. }));
    assert!(matches!(bad(&whole[..whole.len() - 1]), AddressError::Damaged { .. }));
    assert!(matches!(here.node.connect_to(&whole), Err(MeetError::Oneself)));
    // A number that was never given is nobody's.
    let nobody = GlobalPtr::<u64>::new(1, 0);
    assert_eq!(here.node.get(nobody), Err(Error::NoSuchPeer { peer: 1, size: 1 }));
    assert!(!whole.is_empty() && format!("{:?}", here.node.address()) == "Ok(Address(..))");
}

#[test]
fn other_handlers_make_no_peers() {
    let plain = Node::open_in(config(), None).expect("a node");
    let here = Member::new(config());
    let error = plain.connect_to(here.node.address().expect("a door")).expect_err("other handlers");
    let text = error.to_string();
    assert!(text.contains("\"answer\" is registered here, not there"), "{text}");
    assert!(here.node.peers().is_empty() && plain.peers().is_empty());
}

#[test]
fn room_for_peers_ends_with_the_number() {
    let node = |peers| Node::open_in(config().peers_max(peers), None).expect("a node");
    let (one, two, none) = (node(1), node(2), node(0));
    let other = node(9);
    let address = other.address().expect("a door");
    assert_eq!(one.connect_to(&address).expect("connected"), 1);
    assert_eq!(two.connect_to(&address).expect("connected"), 1);
    let error = two.connect_to(one.address().expect("a door")).expect_err("full there");
    assert!(error.to_string().contains("room for 1 peers"), "{error}");
    let error = one.connect_to(two.address().expect("a door")).expect_err("full here");
    assert!(matches!(error, MeetError::Full { peers: 1 }), "{error}");
    let error = none.connect_to(&address).expect_err("no room at all");
    assert!(matches!(error, MeetError::Full { peers: 0 }), "{error}");
}

#[test]
fn a_launched_job_has_no_door() {
    let broker = Broker::start(1).expect("a broker");
    let node = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    assert!(matches!(node.address(), Err(MeetError::InJob { size: 1 })));
    assert!(matches!(node.connect_to([]), Err(MeetError::InJob { size: 1 })));
}
