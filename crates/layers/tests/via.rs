//! VIA in Rust, in a job of one: what a peer sends that it should not.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use layers::via::wire::{Greeting, Link, Message, Outcome};
use layers::via::{
    Attributes, ErrorCode, Host, MemoryAttributes, NetAddress, RELIABLE_DELIVERY, Side, Terms, ViState, Via,
};
use standpipe::{AllMemory, Config, HandlerId, Node, ProgressThread};

/// Errors that were told, and a bell for who waits for one.
#[derive(Default)]
struct Told {
    codes: Mutex<Vec<ErrorCode>>,
    bell: Condvar,
}

impl Told {
    /// Waits until so many of that code have been told.
    fn wait_for(&self, code: ErrorCode, count: usize) {
        let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing =
            |codes: &mut Vec<ErrorCode>| codes.iter().filter(|told| **told == code).count() < count;
        let limit = Duration::from_secs(60);
        let (codes, _) =
            self.bell.wait_timeout_while(codes, limit, is_missing).unwrap_or_else(PoisonError::into_inner);
        assert!(codes.iter().filter(|told| **told == code).count() >= count, "{codes:?}");
    }
}

/// VIA, a node that is no part of it, and what is told of errors.
struct Process {
    via: Via,
    stranger: Node,
    told: Arc<Told>,
    nic: u32,
}

impl Process {
    fn new() -> Process {
        let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
        let node = Node::open(config).expect("a job of one opens");
        let stranger = node.clone();
        let told = Arc::new(Told::default());
        let telling = Arc::clone(&told);
        // SAFETY: the tests name memory to it that they keep until VIA has ended.
        let memory = unsafe { AllMemory::promised() };
        let via = Via::open(
            node,
            memory,
            Arc::new(move |error| {
                telling.codes.lock().unwrap_or_else(PoisonError::into_inner).push(error.code);
                telling.bell.notify_all();
            }),
        )
        .expect("it opens");
        let nic = via.open_nic();
        Process { via, stranger, told, nic }
    }

    fn vi(&self) -> u32 {
        let terms = Terms {
            reliability: RELIABLE_DELIVERY,
            max_transfer: 1 << 20,
            qos: 0,
            allows_write: true,
            allows_read: true,
        };
        self.via.create_vi(self.nic, Attributes { terms, ptag: 0 }, (0, 0)).expect("there is room")
    }

    /// Two VIs that are connected with each other.
    fn pair(&self) -> (u32, u32) {
        let (one, two) = (self.vi(), self.vi());
        let at = |name: &str| NetAddress { host: Host::Rank(0), discriminator: name.as_bytes().to_vec() };
        self.via.request_equal(one, &at("one"), &at("two"), None).expect("it is idle");
        self.via.request_equal(two, &at("two"), &at("one"), None).expect("it is idle");
        self.via.equal_wait(one).expect("both have asked");
        self.via.equal_wait(two).expect("both have asked");
        (one, two)
    }

    /// Sends words to VIA's handler, as a hostile peer would.
    fn send(&self, words: [u64; 4], payload: &[u8]) {
        let handler = HandlerId::of("via", "message");
        self.stranger.request_medium(0, handler, words, payload).expect("there is room");
    }
}

impl Process {
    fn state(&self, vi: u32) -> ViState {
        self.via.query_vi(vi).expect("it is there").state
    }

    /// Waits until all that was sent before has been handled: refusals are counted in order.
    fn wait_for_refusals(&self, count: u64) {
        self.stranger.wait_until(|| self.via.refused() >= count).expect("they come");
        assert_eq!(self.via.refused(), count);
    }
}

/// A descriptor of one segment, aligned as VIA wants it, and its bytes behind it.
#[repr(C, align(64))]
struct Posted {
    words: [u32; 16],
    bytes: [u8; 64],
}

impl Posted {
    /// Registers it, and says where it is, and its handle.
    fn register(&mut self, process: &Process) -> (u64, u32) {
        let at = (&raw mut *self).expose_provenance() as u64;
        let len = size_of::<Posted>() as u64;
        let handle = process.via.register(process.nic, (at, len), MemoryAttributes::default());
        (at, handle.expect("there is room"))
    }

    /// Makes it one of so many bytes.
    fn fill(&mut self, at: u64, handle: u32, len: u32) {
        self.words = [0; 16];
        let first = at + 64;
        // SegCount, Length; address, handle and length of the segment.
        (self.words[3], self.words[6]) = (1, len);
        (self.words[8], self.words[9]) = (first as u32, (first >> 32) as u32);
        (self.words[10], self.words[11]) = (handle, len);
    }
}

#[test]
fn malformed_messages_are_refused_and_told_of() {
    let process = Process::new();
    let (one, two) = process.pair();
    let link = Link { vi: one, attempt: 1 };
    let connect = Message::Connect { from: link }.words();
    let greeting = Greeting { terms: Terms::default(), process: 0, own: vec![1; 64], wanted: vec![2; 64] };
    let mut long = greeting.to_bytes();
    long[24] = 200;
    let offer = Message::Offer { to: link, ticket: 0, immediate: None, bytes: 100 }.words();
    let hostile: [([u64; 4], &[u8]); 10] = [
        ([0; 4], b"x"),
        ([u64::MAX; 4], b"x"),
        ([16, 0, 0, 0], b"x"),
        (connect, b"x"),
        (connect, &long),
        (connect, &greeting.to_bytes()[..50]),
        ([connect[0], 1, 0, connect[3]], &greeting.to_bytes()),
        (offer, b"no multiple of 24 bytes"),
        (offer, &[0; 24]),
        (Message::Disconnect { to: link }.words(), b"x"),
    ];
    for (words, payload) in hostile {
        process.send(words, payload);
    }
    process.wait_for_refusals(10);
    process.told.wait_for(ErrorCode::Catastrophic, 10);
    // Nothing has come of them.
    assert_eq!((process.state(one), process.state(two)), (ViState::Connected, ViState::Connected));
    process.via.close();
}

#[test]
fn messages_of_no_connection_do_nothing() {
    let process = Process::new();
    let (one, two) = process.pair();
    let idle = process.vi();
    for link in [
        Link { vi: one, attempt: 7 },
        Link { vi: idle, attempt: 0 },
        Link { vi: idle, attempt: 1 },
        Link { vi: u32::MAX, attempt: 1 },
    ] {
        process.send(Message::Data { to: link, ticket: 0, immediate: None, is_answered: true }.words(), b"x");
        let offer = Message::Offer { to: link, ticket: 0, immediate: None, bytes: 5 };
        process.send(offer.words(), &layers::via::wire::to_piece([1, 5, 5]));
        for message in [
            Message::Disconnect { to: link },
            Message::Reject { to: link },
            Message::NoMatch { to: link },
            Message::Outcome { to: link, ticket: 0, outcome: Outcome::Transport },
            Message::Found { to: link, ticket: 0, is_there: false },
            Message::Written { to: link, ticket: 0, immediate: 1, bytes: 1, is_answered: true },
            Message::Accepted { to: link, is_wanted: true },
            Message::Withdraw { from: Link { vi: idle, attempt: 9 } },
        ] {
            process.stranger.request(0, HandlerId::of("via", "message"), message.words()).expect("room");
        }
    }
    // An outcome of a descriptor that there is not, of a connection that there is.
    let to = Link { vi: one, attempt: 1 };
    let outcome = Message::Outcome { to, ticket: 9, outcome: Outcome::Done };
    process.stranger.request(0, HandlerId::of("via", "message"), outcome.words()).expect("room");
    process.send([0; 4], b"the last one");
    process.wait_for_refusals(1);
    assert_eq!((process.state(one), process.state(two)), (ViState::Connected, ViState::Connected));
    assert_eq!(process.state(idle), ViState::Idle);
    process.via.close();
}

#[test]
fn an_offer_of_memory_that_is_not_granted_breaks_its_connection_alone() {
    let process = Process::new();
    let (one, two) = process.pair();
    let (three, four) = process.pair();
    let mut posted = Posted { words: [0; 16], bytes: [7; 64] };
    let (at, handle) = posted.register(&process);
    posted.fill(at, handle, 64);
    process.via.post(one, Side::Receive, at, handle).expect("there is room");
    let to = Link { vi: one, attempt: 1 };
    let name = process.stranger.grant(vec![0_u8; 64], standpipe::Rights::Write, [0]).expect("there is room");
    let [id, len] = name.name().to_words();
    let offer = Message::Offer { to, ticket: 0, immediate: None, bytes: 64 };
    process.send(offer.words(), &layers::via::wire::to_piece([id, len, 64]));
    let ended = process.via.wait_done(one, Side::Receive, None).expect("it ends");
    assert_eq!((ended.at, ended.is_well), (at, false));
    assert_eq!(process.state(one), ViState::Error);
    assert_eq!(posted.bytes, [7; 64]);
    assert_eq!((process.state(three), process.state(four)), (ViState::Connected, ViState::Connected));
    process.via.disconnect(one).expect("it is there");
    process.via.disconnect(two).expect("it is there");
    process.via.close();
}

#[test]
fn calls_after_the_end_are_errors() {
    let process = Process::new();
    let (one, _) = process.pair();
    process.via.close();
    assert_eq!(process.state(one), ViState::Idle);
    let at = NetAddress { host: Host::Rank(0), discriminator: Vec::new() };
    let within = Some(Duration::from_secs(60));
    assert!(process.via.request(one, &at, &at, within).is_err());
    assert!(process.via.wait_for_client(process.nic, &at, within).is_err());
    process.via.close();
}
