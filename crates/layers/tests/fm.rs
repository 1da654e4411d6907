//! Fast Messages in Rust, in a job of one that sends to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use layers::Copies;
use layers::fm::{BeginError, Done, Fm, Incoming, Notice, SendError};
use standpipe::{Config, Error, HandlerId, Node, ProgressThread};

/// Handlers by number.
const COUNT: u32 = 0;
const SUM: u32 = 1;
const NONE: u32 = 9;

#[derive(Default)]
struct Program {
    came: AtomicU64,
    sum: AtomicU64,
}

impl Program {
    fn dispatch(&self, incoming: &Incoming<'_>) -> Option<Done> {
        match incoming.handler() {
            COUNT => {}
            SUM => {
                let mut bytes = [0; 100];
                let mut left = incoming.announced();
                while left > 0 {
                    let got = incoming.receive(&mut bytes);
                    let sum: u64 = bytes[..got as usize].iter().map(|byte| u64::from(*byte)).sum();
                    self.sum.fetch_add(sum, Ordering::Relaxed);
                    left -= got;
                }
                assert_eq!(incoming.receive(&mut bytes), 0);
            }
            _ => return None,
        }
        self.came.fetch_add(1, Ordering::Relaxed);
        Some(Done::Continue)
    }
}

fn open() -> (Node, Fm, Arc<Program>) {
    let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
    let node = Node::open(config).expect("a job of one opens");
    let program = Arc::new(Program::default());
    let its = Arc::clone(&program);
    let fm = Fm::open(node.clone(), move |incoming| its.dispatch(incoming)).expect("it opens");
    (node, fm, program)
}

fn send(fm: &Fm, handler: u32, pieces: &[&[u8]]) {
    let announced = pieces.iter().map(|piece| piece.len() as u64).sum();
    let message = fm.begin(0, announced, handler).expect("there is such a node").expect("none is open");
    for piece in pieces {
        fm.send_piece(message, piece).expect("it is open");
    }
    fm.end(message).expect("it is open");
}

/// A piece that fills packets, or ends its message, goes from where it lies. Parts of packets are copied.
#[test]
fn a_whole_piece_is_not_copied_and_parts_of_packets_are() {
    let (_node, fm, program) = open();
    for (pieces, copied) in [
        (&[&[1; 8][..]][..], 0),
        (&[&[1; 8192]], 0),
        (&[&[1; 100_000]], 0),
        (&[&[1; 4], &[1; 4]], 8),
        (&[&[1; 4096], &[1; 8192]], 4096 + 4096),
        (&[&[1; 8192], &[1; 100]], 0),
        (&[&[1; 8193], &[1; 100]], 1 + 100),
    ] {
        let (before, sum) = (fm.copies(), program.sum.load(Ordering::Relaxed));
        send(&fm, SUM, pieces);
        fm.extract(u64::MAX);
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        assert_eq!(program.sum.load(Ordering::Relaxed) - sum, bytes);
        let Copies { sent, received } = fm.copies();
        // At the receiver each byte is copied once, to where its handler wants it.
        assert_eq!((sent - before.sent, received - before.received), (copied, bytes), "{bytes} bytes");
    }
    assert_eq!(fm.finalize(), Ok(()));
}

#[test]
fn a_stack_is_used_again() {
    let (_node, fm, program) = open();
    for _ in 0..1000 {
        send(&fm, SUM, &[&[1; 8]]);
        send(&fm, SUM, &[&[1; 20_000]]);
        fm.extract(u64::MAX);
    }
    assert_eq!(program.came.load(Ordering::Relaxed), 2000);
    // One is made where a message begins while all that there are have handlers that wait.
    assert_eq!(fm.counts().stacks, 1);
}

#[test]
fn what_is_wrong_with_a_call_is_an_error() {
    let (_node, fm, program) = open();
    for node in [1, u64::from(u32::MAX) + 1, u64::MAX] {
        let refused = fm.begin(node, 1, COUNT);
        assert!(matches!(refused, Err(BeginError::NoSuchNode { node: 1.., nodes: 1 })), "{refused:?}");
    }
    let message = fm.begin(0, 10, COUNT).expect("there is such a node").expect("none is open");
    assert!(matches!(fm.begin(0, 10, COUNT), Ok(None)));
    assert_eq!(fm.send_piece(message, &[0; 4]), Ok(()));
    let too_long = SendError::TooLong { given: 7, left: 6, announced: 10 };
    assert_eq!(fm.send_piece(message, &[0; 7]), Err(too_long));
    assert_eq!((fm.end(message), fm.end(message)), (Ok(()), Err(SendError::NotOpen)));
    assert_eq!(fm.send_piece(message, &[]), Err(SendError::NotOpen));
    send(&fm, NONE, &[]);
    send(&fm, NONE, &[&[0; 9000]]);
    fm.extract(u64::MAX);
    assert_eq!((fm.counts().unhandled, program.came.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(fm.take_notices(), [Notice::NoHandler { handler: NONE, from: 0 }]);
}

#[test]
fn the_layer_opens_once_on_a_node() {
    let (node, fm, _) = open();
    let again = Fm::open(node.clone(), |_| None);
    assert!(matches!(again, Err(layers::fm::OpenError::Node(Error::HandlerTaken { .. }))), "{again:?}");
    assert_eq!(fm.finalize(), Ok(()));
}

/// A peer may send the layer's Active Messages with anything in them.
#[test]
fn what_no_process_of_the_layer_sends_is_refused_and_counted() {
    const FIRST: u64 = 1 << 8;
    const LAST: u64 = 1 << 9;
    const INLINE: u64 = 1 << 10;
    let (node, fm, program) = open();
    let packets = HandlerId::of("fm", "packet");
    let hostile: [([u64; 4], usize); 10] = [
        ([0; 4], 0),
        ([u64::MAX; 4], 0),
        ([u64::MAX; 4], 8192),
        // Credits that nobody has paid.
        ([2 | 0xffff << 16, 0, 0, 0], 0),
        ([2 | 1 << 16, 0, 0, 0], 0),
        // The middle, and the end, of no message.
        ([1, 8192, 0, 0], 8192),
        ([1 | LAST, u64::MAX, 0, 0], 1),
        ([3, 0, 0, 0], 0),
        // More than was announced.
        ([1 | FIRST | LAST | INLINE | 16 << 11, 15, 0, 0], 0),
        ([1 | FIRST, 100, 0, 0], 101),
    ];
    for (args, len) in hostile {
        let sent = match len {
            0 => node.request(0, packets, args),
            _ => node.request_medium(0, packets, args, &vec![7; len]),
        };
        sent.expect("the node sends it");
        fm.extract(u64::MAX);
    }
    assert_eq!(fm.counts().refused, hostile.len() as u64);
    assert_eq!(fm.take_notices(), [Notice::Refused { from: 0 }]);
    send(&fm, SUM, &[&[1; 50_000]]);
    fm.extract(u64::MAX);
    assert_eq!((program.came.load(Ordering::Relaxed), program.sum.load(Ordering::Relaxed)), (1, 50_000));
}

/// One that pays no credits has no more than its share queued here.
#[test]
fn a_sender_that_pays_no_credits_has_no_more_than_its_share() {
    let (node, fm, program) = open();
    let packets = HandlerId::of("fm", "packet");
    // A whole message of nothing, for handler 0.
    let empty = [1 | 1 << 8 | 1 << 9 | 1 << 10, 0, 0, 0];
    for _ in 0..fm.window() + 10 {
        node.request(0, packets, empty).expect("the node sends it");
        while node.progress() {}
    }
    assert_eq!(fm.counts().refused, 10);
    // The credits that go back for them are refused as well: nobody has paid.
    fm.extract(u64::MAX);
    assert_eq!(program.came.load(Ordering::Relaxed), u64::from(fm.window()));
}

#[test]
fn a_handler_that_panics_ends_the_call_and_the_next_one_works() {
    let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
    let node = Node::open(config).expect("a job of one opens");
    let came = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&came);
    let fm = Fm::open(node, move |incoming| {
        assert!(incoming.handler() != 1, "as the test wants it");
        its.fetch_add(1, Ordering::Relaxed);
        Some(Done::Quit)
    })
    .expect("it opens");
    send(&fm, 1, &[&[0; 9000]]);
    send(&fm, 2, &[&[0; 9000]]);
    send(&fm, 2, &[]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fm.extract(u64::MAX)));
    assert!(panicked.is_err() && !fm.in_handler());
    fm.extract(u64::MAX);
    assert_eq!(came.load(Ordering::Relaxed), 1);
    fm.extract(u64::MAX);
    assert_eq!(came.load(Ordering::Relaxed), 2);
    assert_eq!(fm.finalize(), Ok(()));
}

/// A handler that waits for what never comes leaves what it has to be dropped where it is.
#[test]
fn a_handler_that_waits_is_never_unwound() {
    struct Noisy(Arc<AtomicU64>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
    let node = Node::open(config).expect("a job of one opens");
    let dropped = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&dropped);
    let fm = Fm::open(node, move |incoming| {
        let _noisy = Noisy(Arc::clone(&its));
        incoming.receive(&mut [0; 20_000]);
        Some(Done::Continue)
    })
    .expect("it opens");
    let message = fm.begin(0, 20_000, 0).expect("there is such a node").expect("none is open");
    fm.send_piece(message, &[0; 8192]).expect("it is open");
    assert_eq!(fm.extract(u64::MAX), 8192);
    assert_eq!(fm.finalize(), Ok(()));
    assert_eq!((fm.counts().set_aside, dropped.load(Ordering::Relaxed)), (1, 0));
    let not_ended = Notice::NotEnded { node: 0, given: 8192, announced: 20_000 };
    assert_eq!(fm.take_notices(), [Notice::SetAside { from: 0 }, not_ended]);
}

/// Each message that a peer begins and gives up may leave a handler's stack behind. One that does nothing
/// else is refused in the end.
#[test]
fn a_peer_that_gives_up_one_message_after_another_is_refused() {
    let config = Config::from_env().expect("the settings are right").progress(ProgressThread::Off);
    let node = Node::open(config).expect("a job of one opens");
    let fm = Fm::open(node.clone(), move |incoming| {
        incoming.receive(&mut [0; 100]);
        Some(Done::Continue)
    })
    .expect("it opens");
    let packets = HandlerId::of("fm", "packet");
    let (first, cut) = ([1 | 1 << 8 | 1 << 10 | 8 << 11, 100, 0, 0], [3, 0, 0, 0]);
    for _ in 0..2000 {
        for args in [first, cut] {
            node.request(0, packets, args).expect("the node sends it");
        }
        fm.extract(u64::MAX);
    }
    let counts = fm.counts();
    assert!(fm.is_lost(0), "{counts:?}");
    assert_eq!((counts.set_aside, counts.stacks), (256, 256));
    let told = [Notice::SetAside { from: 0 }, Notice::Refused { from: 0 }, Notice::Lost { node: 0 }];
    assert_eq!(fm.take_notices(), told);
}
