//! What only two processes can show: a segment sent by descriptor, rings and bells across it, and
//! cross-memory attach to memory that the other one says nothing about. The second process is this test
//! binary again.
#![cfg(not(any(loom, miri)))]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use vm::cma::{self, CmaError, Iov};
use vm::{Attention, Bell, Consumer, FenceMode, Producer, RingLayout, Segment, Words, bell_words};

const ROLE: &str = "STANDPIPE_VM_TEST_ROLE";
const LAYOUT: RingLayout = RingLayout { slots: 16, payload_bytes: 4096, spill_bytes: 0 };
const LIMIT: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 20_000;

/// Another process, in a role of this file; killed when dropped.
struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, segment: Option<&Segment>) -> Other {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "the_other_process", "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A descriptor without close-on-exec, which the child finds by its number.
        let inherited = segment.map(|s| rustix::io::dup(s.fd()).expect("a descriptor"));
        if let Some(fd) = &inherited {
            command.env("STANDPIPE_VM_TEST_FD", fd.as_raw_fd().to_string());
        }
        let mut child = command.spawn().expect("this binary starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Other { child, to, from }
    }

    /// The next line that the role prints, past what the test harness prints.
    fn line(&mut self) -> String {
        for line in (&mut self.from).lines() {
            if let Some((_, line)) = line.expect("text").split_once("role: ") {
                return line.to_owned();
            }
        }
        panic!("the other process has ended");
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("it listens");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what the other process does. Without a role it does nothing.
#[test]
fn the_other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => echo(),
        Ok("memory") => memory(),
        _ => {}
    }
}

fn wait_for_word() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line or the end");
    line.trim().to_owned()
}

/// One direction of the exchange: a ring, and the bell of the process that receives.
struct Way {
    ring: Words,
    bell: Bell<Words>,
}

fn ways(segment: &Segment) -> [Way; 2] {
    let bytes = |words: usize| (words as u64 * 8).next_multiple_of(4096);
    let way = bytes(LAYOUT.words()) + bytes(bell_words(1));
    [0, way].map(|start| {
        let memory = segment.memory();
        let ring = memory.words(start, LAYOUT.words()).expect("long enough");
        let bell = memory.words(start + bytes(LAYOUT.words()), bell_words(1)).expect("long enough");
        Way { ring, bell: Bell::new(bell, 1).expect("enough words") }
    })
}

fn fence() -> FenceMode {
    if vm::membarrier::register() { FenceMode::Asymmetric } else { FenceMode::Symmetric }
}

fn send(producer: &mut Producer<Words>, bell: &Bell<Words>, n: u64, payload: &[u8]) {
    let start = Instant::now();
    loop {
        match producer.push(&[n; 7], payload) {
            Ok(pushed) if pushed.doorbell => return bell.ring(0),
            Ok(_) => return,
            Err(_) => std::thread::yield_now(),
        }
        assert!(start.elapsed() < LIMIT, "the ring stays full");
    }
}

/// Takes one message, polling a little and sleeping then, as a node does.
fn receive(consumer: &mut Consumer<Words>, bell: &Bell<Words>, payload: &mut Vec<u8>) -> u64 {
    let mut body = [0; 7];
    loop {
        for _ in 0..100 {
            if consumer.pop(&mut body, payload).expect("an honest peer") {
                consumer.set_attention(Attention::Polled);
                return body[6];
            }
        }
        consumer.set_attention(Attention::Doorbell);
        vm::membarrier::heavy_fence();
        let ticket = bell.announce();
        if !consumer.ready() && !bell.has_pending() {
            assert_eq!(ticket.sleep(Some(LIMIT)), vm::Wake::Rung, "a wake-up was lost");
        }
        bell.take_pending(|_| ());
    }
}

fn echo() {
    let fd: i32 = std::env::var("STANDPIPE_VM_TEST_FD").expect("given").parse().expect("a number");
    // SAFETY: the parent left this descriptor open for us, and nothing else in this process knows of it.
    let segment = Segment::open(unsafe { OwnedFd::from_raw_fd(fd) }).expect("a segment");
    segment.open_to(segment.len()).expect("it is opened");
    let [there, back] = ways(&segment);
    let mut consumer = Consumer::new(there.ring, LAYOUT).expect("a good layout");
    let mut producer = Producer::new(back.ring, LAYOUT, fence()).expect("a good layout");
    let mut payload = Vec::new();
    for _ in 0..MESSAGES {
        let n = receive(&mut consumer, &there.bell, &mut payload);
        send(&mut producer, &back.bell, n, &payload);
    }
}

#[test]
fn messages_go_there_and_back_with_both_sides_falling_asleep() {
    let segment = Segment::create("two-processes", 1 << 16).expect("a segment");
    let [there, back] = ways(&segment);
    let mut producer = Producer::new(there.ring, LAYOUT, fence()).expect("a good layout");
    let mut consumer = Consumer::new(back.ring, LAYOUT).expect("a good layout");
    let _other = Other::start("echo", Some(&segment));
    let mut payload = Vec::new();
    for n in 0..MESSAGES {
        let data = vec![n as u8; n as usize % 500];
        send(&mut producer, &there.bell, n, &data);
        assert_eq!(receive(&mut consumer, &back.bell, &mut payload), n);
        assert_eq!(payload, data);
    }
}

/// Says where its memory is, keeps out of the way, and checks at the end what was written.
fn memory() {
    let mut bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
    let nonce = 0x5eed_5eed_u64;
    println!("role: {} {}", (&raw mut bytes[0]) as u64, (&raw const nonce) as u64);
    assert_eq!(wait_for_word(), "check");
    println!("role: {} {}", bytes[0], bytes[9_999]);
    wait_for_word();
}

#[test]
fn memory_of_a_process_that_only_waits_is_read_and_written() {
    let mut other = Other::start("memory", None);
    let pid = other.child.id();
    let line = other.line();
    let mut addresses = line.split(' ').map(|word| word.parse::<u64>().expect("an address"));
    let (Some(bytes), Some(nonce)) = (addresses.next(), addresses.next()) else {
        panic!("two addresses: {line}")
    };
    let _ = vm::host::allow_any_tracer();
    match cma::probe(pid, nonce, 0x5eed_5eed) {
        Err(CmaError::Denied { errno }) => {
            return testbed::skip(format_args!("no cross-memory attach here ({errno})"));
        }
        result => assert_eq!(result, Ok(())),
    }
    assert_eq!(cma::probe(pid, nonce, 1), Err(CmaError::Stranger));

    let mut found = vec![0_u8; 10_000];
    let remote = [Iov { addr: bytes + 5_000, len: 5_000 }, Iov { addr: bytes, len: 5_000 }];
    let local = [Iov { addr: found.as_mut_ptr() as u64, len: 10_000 }];
    // SAFETY: the local piece is the vector just made, which nothing else uses.
    unsafe { cma::read_from(pid, &remote, &local) }.expect("readable");
    assert!((0..10_000).all(|i| found[i] == ((i + 5_000) % 10_000 % 251) as u8));

    let (first, last) = ([77_u8], [88_u8]);
    let local = [&first, &last].map(|byte| Iov { addr: byte.as_ptr() as u64, len: 1 });
    let remote = [Iov { addr: bytes, len: 1 }, Iov { addr: bytes + 9_999, len: 1 }];
    // SAFETY: the local pieces are only read; the other process waits for these writes.
    unsafe { cma::write_to(pid, &remote, &local) }.expect("writable");
    other.say("check");
    assert_eq!(other.line(), "77 88");

    let fault = Err(CmaError::Fault { addr: 8, len: 1, done: 0 });
    // SAFETY: the same piece; nothing is mapped at the remote address.
    assert_eq!(unsafe { cma::write_to(pid, &[Iov { addr: 8, len: 1 }], &local[..1]) }, fault);
    other.child.kill().expect("ours");
    other.child.wait().expect("ours");
    // SAFETY: the same piece, into a process that is gone.
    assert_eq!(unsafe { cma::write_to(pid, &remote[..1], &local[..1]) }, Err(CmaError::Gone));
}
