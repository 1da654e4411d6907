//! Nodes that nobody launched, each a process that does as it is ordered, and how tests order them about.
//!
//! A test file that uses this has a test `child` that calls [`play`].
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use standpipe::{Config, Error, Exposure, GlobalPtr, Node, Rank, Remote, Transport};

use crate::support::{self, LIMIT, Private, eventually, hex, itself, role, said, say, unhex};

/// Words of the array that every process has first in its heap.
pub(crate) const WORDS: usize = 16;

/// Bytes of the private memory that every process has.
pub(crate) const PRIVATE: usize = 100_000;

/// A node, what it shares, and the sum of what it was told and answered.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) array: standpipe::HeapArray<u64>,
    pub(crate) private: Private,
    pub(crate) noted: Arc<AtomicU64>,
    pub(crate) answered: Arc<AtomicU64>,
}

impl Member {
    pub(crate) fn new(config: Config) -> Member {
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
    pub(crate) fn ask(&self, peer: Rank, tag: u64) -> Result<(), Error> {
        let want = self.answered.load(Ordering::SeqCst) + tag;
        self.node.request(peer, self.node.handler("note").expect("registered"), [tag, 0, 0, 0])?;
        self.node.wait_until(|| {
            self.answered.load(Ordering::SeqCst) >= want || self.node.lost_peers().contains(&peer)
        })
    }
}

/// What all nodes of the test program open with: what they reach each other by is its `OVER`. Everything is
/// exposed, as by what means private memory is reached is looked at, too.
pub(crate) fn config() -> Config {
    let config = support::config().transport(Transport::parse(crate::OVER).expect("a transport"));
    config.exposure(Exposure::Everything)
}

/// Plays a role, if this process has one: a node that does as it is ordered.
pub(crate) fn play() {
    let Some(role) = role() else { return };
    if role == "forked" && !is_a_child() {
        return;
    }
    let member = match role.as_str() {
        "by message" => Member::new(config().attach_never()),
        "found" => Member::new(support::config()),
        // A process that Yama is to let others attach to: whose children, says the rest.
        role => Member::new(match role.strip_prefix("traced by ") {
            Some(tracer) => {
                let mut config = config();
                config.set("tracer", tracer).expect("a tracer");
                config
            }
            None => config(),
        }),
    };
    let node = &member.node;
    say(format!("address {}", hex(node.address().expect("a node that listens").as_bytes())));
    let first = member.private.addr();
    say(format!("place {} {first}", member.array.ptr(0).offset()));
    if role == "idle" {
        // Makes no progress, and calls nothing.
        std::thread::sleep(LIMIT);
        return;
    }
    let given = orders_for(node);
    let mut order = None;
    loop {
        let waited = node.wait_until(|| {
            order = given.try_recv().ok();
            order.is_some()
        });
        if let (Ok(()), Some(order)) = (waited, order.take()) {
            if order == "end" {
                return;
            }
            obey(&member, &order);
        }
    }
}

/// Does what one line orders, and says what has come of it.
fn obey(member: &Member, order: &str) {
    let node = &member.node;
    let words: Vec<&str> = order.split(' ').collect();
    match words[..] {
        ["connect", address] => match node.connect_to(unhex(address)) {
            Ok(peer) => say(format!("peer {peer}")),
            Err(error) => say(format!("peer not: {error}")),
        },
        ["address"] => {
            say(format!("address {}", hex(node.address().expect("a node that listens").as_bytes())))
        }
        ["attach", peer] => {
            say(format!("attach {:?}", node.attach(peer.parse().expect("a number"))));
        }
        ["lost"] => say(format!("lost {:?}", node.lost_peers())),
        ["get", peer, offset] => {
            let [peer, offset] = [peer, offset].map(|text| text.parse::<u64>().expect("a number"));
            say(format!("got {:?}", node.get(GlobalPtr::<u64>::new(peer as Rank, offset))));
        }
        ["add", peer, offset] => {
            let [peer, offset] = [peer, offset].map(|text| text.parse::<u64>().expect("a number"));
            let word = GlobalPtr::<u64>::new(peer as Rank, offset);
            say(format!("added {:?}", node.fetch_add(word, 1)));
        }
        ["put", peer, offset, value] => {
            let [peer, offset, value] =
                [peer, offset, value].map(|text| text.parse::<u64>().expect("a number"));
            let done = node.put(GlobalPtr::new(peer as Rank, offset), value).and_then(|()| node.quiet());
            say(format!("put {done:?}"));
        }
        ["read", index] => say(format!("word {}", member.array.read(index.parse().expect("a number")))),
        ["ask", peer, tag] => {
            let done = member.ask(peer.parse().expect("a number"), tag.parse().expect("a number"));
            say(format!("ask {done:?}"));
        }
        ["noted"] => say(format!("noted {}", member.noted.load(Ordering::SeqCst))),
        ["fork"] => {
            live_on_as_a_child();
            say("forked");
        }
        ["private"] => say(format!("private {}", hex(&member.private.bytes()[..64]))),
        _ => panic!("no order: {order}"),
    }
}

/// The lines of standard input, each of which wakes the node. Its end is this process's.
fn orders_for(node: &Node) -> std::sync::mpsc::Receiver<String> {
    let (orders, given) = std::sync::mpsc::channel();
    let wakes = node.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = orders.send(line);
            wakes.wake();
        }
        std::process::exit(0);
    });
    given
}

/// Opens a node and forks. `true` in the child; the parent has seen its end.
fn is_a_child() -> bool {
    let parents = Member::new(config());
    // SAFETY: no other thread of this process holds a lock that the child wants: they sleep.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(parents);
        return true;
    }
    // SAFETY: it waits for our own child, and is told of no status.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    false
}

/// Forks a child that does nothing, and ends once nobody gives orders any more.
fn live_on_as_a_child() {
    // SAFETY: the child calls nothing but the system, and ends without any destructor.
    if unsafe { libc::fork() } != 0 {
        return;
    }
    let mut orders = libc::pollfd { fd: 0, events: 0, revents: 0 };
    for _ in 0..600 {
        // SAFETY: it is told of one descriptor, a value of this frame.
        if unsafe { libc::poll(&mut orders, 1, 100) } > 0 {
            break;
        }
    }
    // SAFETY: it ends the child and runs nothing of it.
    unsafe { libc::_exit(0) }
}

/// Another process with a node.
pub(crate) struct Other {
    pub(crate) child: Child,
    pub(crate) orders: ChildStdin,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: Vec<u8>,
    /// Where its array and its private memory are.
    pub(crate) array: u64,
    pub(crate) private: u64,
}

impl Other {
    pub(crate) fn start(role: &str) -> Other {
        Other::start_by(itself(role))
    }

    /// A process that this command starts.
    pub(crate) fn start_by(mut command: Command) -> Other {
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
    pub(crate) fn hear(&mut self, what: &str) -> String {
        loop {
            let line = self.lines.next().expect("it says more").expect("text");
            if let Some(text) = said(&line).and_then(|text| text.strip_prefix(what)) {
                return text.trim_start().to_owned();
            }
        }
    }

    pub(crate) fn order(&mut self, order: &str, answer: &str) -> String {
        writeln!(self.orders, "{order}").expect("it reads");
        self.hear(answer)
    }

    pub(crate) fn word(&self, peer: Rank, index: u64) -> GlobalPtr<u64> {
        GlobalPtr::new(peer, self.array).add(index as usize)
    }

    /// Its private memory, which it leaves to others until it ends.
    pub(crate) fn private(&self, peer: Rank) -> Remote {
        // SAFETY: bytes of a `Private`, which takes writes by others at any time; it lives as long as its
        // process, and of one that has ended nothing is reached.
        unsafe { Remote::raw(peer, self.private) }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
    }

    /// Stops all its threads, which takes a moment.
    pub(crate) fn stop(&self) {
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
