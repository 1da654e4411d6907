//! What BIP does in a job that shows only in its counts, which C programs do not see.

use std::env::current_exe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use layers::Copies;
use layers::bip::{Bip, BipError, SMALL_WORDS, TagBuffers};
use standpipe::{AllMemory, Config, Mechanism, Node, Operation, ProgressThread};

/// Runs that test of this program as a job of two, which must end well.
fn job(rank: &str) {
    job_with(rank, &[]);
}

/// The same, with these variables.
fn job_with(rank: &str, env: &[(&str, &str)]) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&lines);
    let mut launch = standpipe::launch::Launch::new(current_exe().expect("Linux tells where it is"))
        .args(["--exact", rank, "--ignored", "--nocapture"])
        .ranks(2)
        .say(|_| {})
        .on_line(move |rank, _, line| {
            let line = format!("{rank}: {}", String::from_utf8_lossy(line));
            heard.lock().expect("nobody panics with it").push(line);
        });
    for (name, value) in env {
        launch = launch.env(*name, *value);
    }
    let outcome = launch.run().expect("the job starts");
    assert_eq!(outcome.status(), 0, "{:#?}", lines.lock());
}

fn open(tags: &[TagBuffers]) -> (Node, Bip) {
    let config = Config::from_env().expect("the test sets nothing wrong").progress(ProgressThread::Off);
    let node = Node::shared(config).expect("the job is there");
    // SAFETY: every address below is of a vector that lives longer than the calls that it is given to.
    let memory = unsafe { AllMemory::promised() };
    let bip = Bip::open(node.clone(), memory, tags).expect("all open it");
    (node, bip)
}

#[test]
fn copies() {
    job("rank_of_copies");
}

/// A short message is copied once at each side; read in place, not at the receiver. A long one is copied by
/// nobody: the receiver gets it once.
#[test]
#[ignore = "a rank of `copies`"]
fn rank_of_copies() {
    let (node, bip) = open(&[]);
    let mut words = vec![7_u32; 100_000];
    let place = words.as_mut_ptr().cast::<u8>();
    let bytes = u64::from(SMALL_WORDS) * 4;
    if bip.mynode() == 0 {
        for (len, sent) in [(SMALL_WORDS, bytes), (SMALL_WORDS, 2 * bytes), (100_000, 2 * bytes)] {
            bip.send(1, 1, place, len as i32).expect("it arrives");
            assert_eq!(bip.copies(), Copies { sent, received: 0 });
        }
    } else {
        bip.recv(1, place, SMALL_WORDS as i32).expect("it arrives");
        assert_eq!(bip.copies(), Copies { sent: 0, received: bytes });
        bip.get_message(1).expect("it arrives");
        bip.free_message(1).expect("it is held");
        bip.recv(1, place, 100_000).expect("it arrives");
        assert_eq!(bip.copies(), Copies { sent: 0, received: bytes });
        let gets = node.stats().get(Operation::Get, Mechanism::Cma);
        assert!(gets.bytes == 400_000 || node.attach(0) != Some(Ok(())), "{gets:?}");
        assert_eq!(words, vec![7; 100_000]);
    }
    bip.leave();
}

#[test]
fn full_lanes() {
    job("rank_of_full_lanes");
}

/// A short message is copied once, however often its lane is full when it is tried, and arrives as it was at
/// its first try.
#[test]
#[ignore = "a rank of `full_lanes`"]
fn rank_of_full_lanes() {
    let (node, bip) = open(&[]);
    for words in [16, SMALL_WORDS as usize] {
        let mut message = vec![7_u32; words];
        let place = message.as_mut_ptr().cast::<u8>();
        // The receiver takes messages only once a heap, which needs no progress, tells it how many there are.
        node.barrier().expect("both are there");
        if bip.mynode() == 0 {
            let before = bip.copies().sent;
            let send = || bip.isend(1, 1, place, words as i32).expect("it is on its way");
            let (mut sent, mut last) = (1, send());
            while bip.stest(last).expect("it is known") {
                (sent, last) = (sent + 1, send());
            }
            for _ in 0..100 {
                assert_eq!(bip.stest(last), Ok(false));
            }
            let held_back = bip.counts().held_back;
            let copied = (bip.copies().sent - before) / (4 * words as u64);
            assert!(copied == sent || held_back > 0 && copied == sent - 1, "{copied} of {sent}, {held_back}");
            node.directory().publish(&format!("sent {words}"), &sent.to_le_bytes()).expect("there is room");
            bip.swait(last).expect("it arrives");
        } else {
            let name = format!("sent {words}");
            let found = || node.directory().lookup(&name).expect("it can be looked for");
            let sent = loop {
                if let Some(sent) = found() {
                    break u64::from_le_bytes(sent[..].try_into().expect("a count"));
                }
                std::thread::yield_now();
            };
            for _ in 0..sent {
                bip.recv(1, place, words as i32).expect("it arrives");
                assert_eq!(message, vec![7; words]);
            }
        }
    }
    bip.leave();
}

#[test]
fn counts() {
    job("rank_of_counts");
}

/// What finds no buffer is counted, and so is what was held back.
#[test]
#[ignore = "a rank of `counts`"]
fn rank_of_counts() {
    let (_node, bip) = open(&[TagBuffers::new(1, 10, 1).expect("it can be declared")]);
    let mut words = [0_u32; 2];
    let place = words.as_mut_ptr().cast::<u8>();
    if bip.mynode() == 0 {
        for _ in 0..1034 {
            bip.send(1, 1, place, 1).expect("it arrives");
        }
        assert_eq!(bip.counts().held_back, 0, "1,024, and the 10 that were declared");
        bip.send(1, 1, place, 2).expect("it arrives");
        assert_eq!(bip.counts().held_back, 1);
    } else {
        // It comes in while this waits for something else.
        let never = bip.irecv(2, place, 1).expect("none is posted");
        while bip.counts().unbuffered < 1024 {
            assert_eq!(bip.rtest(never), Ok(None));
        }
        for _ in 0..1034 {
            assert_eq!(bip.recv(1, place, 1).expect("it arrives").words, 1);
        }
        assert_eq!(bip.recv(1, place, 2).expect("it arrives").words, 2);
        assert_eq!(bip.counts().refused, 0);
    }
    bip.leave();
}

#[test]
fn withdrawn() {
    job_with("rank_of_withdrawn", &[("STANDPIPE_ATTACH", "never")]);
}

/// A long message that is being got when its receiver leaves is written no further.
#[test]
#[ignore = "a rank of `withdrawn`"]
fn rank_of_withdrawn() {
    const WORDS: usize = 16 << 20;
    let (node, bip) = open(&[]);
    let mut words = vec![bip.mynode() ^ 1; WORDS];
    let place = words.as_mut_ptr().cast::<u8>();
    if bip.mynode() == 0 {
        let id = bip.isend(1, 1, place, WORDS as i32).expect("it is on its way");
        assert_eq!(bip.swait(id), Err(BipError::Ended { node: 1 }));
        // The sender answers for long enough that the receiver gets all of it.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            node.progress();
        }
        bip.leave();
        return;
    }
    let id = bip.irecv(1, place, WORDS as i32).expect("none is posted");
    // SAFETY: the vector is there; what is written to it meanwhile is written by this thread's calls.
    while unsafe { place.cast::<u32>().read_volatile() } == 0 {
        assert_eq!(bip.rtest(id), Ok(None), "it begins to come before all of it has come");
    }
    bip.leave();
    let missing = words.iter().filter(|word| **word == 0).count();
    assert!(missing > 0, "all of it came while it left");
}

#[test]
fn refused() {
    job("rank_of_refused");
}

/// A long message that its receiver has no room for, or that lies nowhere, fails at both sides; the next is
/// sent and received.
#[test]
#[ignore = "a rank of `refused`"]
fn rank_of_refused() {
    const LONG: i32 = SMALL_WORDS as i32 + 1;
    let (_node, bip) = open(&[]);
    let mut words = vec![7_u32; LONG as usize];
    let place = words.as_mut_ptr().cast::<u8>();
    if bip.mynode() == 0 {
        let (tag, words, most) = (1, SMALL_WORDS + 1, SMALL_WORDS);
        let no_room = BipError::NoRoom { node: 1, tag, words, most };
        assert_eq!(bip.send(1, 1, place, LONG), Err(no_room.clone()));
        let send = bip.isend(1, 1, place, LONG).expect("it may start");
        let tested = loop {
            match bip.stest(send) {
                Ok(false) => {}
                ended => break ended,
            }
        };
        assert_eq!((tested, bip.swait(send)), (Err(no_room.clone()), Err(no_room)));
        let nowhere = std::ptr::without_provenance(4096);
        assert_eq!(
            bip.send(1, 1, nowhere, LONG),
            Err(BipError::NoSource { node: 1, tag, addr: 4096, words })
        );
        bip.send(1, 1, place, LONG).expect("it arrives");
    } else {
        for _ in 0..2 {
            let received = bip.recv(1, place, LONG - 1);
            assert!(matches!(received, Err(BipError::TooLong { .. })), "{received:?}");
        }
        let received = bip.recv(1, place, LONG);
        assert!(matches!(received, Err(BipError::BadSource { .. })), "{received:?}");
        assert_eq!(bip.recv(1, place, LONG).expect("it arrives").words, SMALL_WORDS + 1);
    }
    bip.leave();
}
