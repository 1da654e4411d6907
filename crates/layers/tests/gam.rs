//! Generic Active Messages in Rust, in a job of one: messages that no library of ours sends, counts, copies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use layers::gam::{Arguments, Function, Gam, GamError, MAX_SIZE, Program};
use standpipe::{AllMemory, Config, HandlerId, MEDIUM_MAX, Node, ProgressThread, Rank};

/// One after the other: a process has one node.
static ONE: Mutex<()> = Mutex::new(());

const KNOWN: Function = 0x1000;
const OTHER: Function = 0x2000;

/// A program that notes what is called.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<(Function, Rank, String)>>>);

impl Program for Noted {
    fn has_function(&self, function: Function) -> bool {
        [KNOWN, OTHER].contains(&function)
    }

    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>) {
        let mut noted = self.0.lock().expect("nobody panics with it");
        noted.push((function, from, format!("{arguments:?}")));
    }
}

impl Noted {
    fn take(&self) -> Vec<(Function, Rank, String)> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics with it"))
    }
}

fn with_layer<P: Program + Clone + 'static>(program: &P, act: impl FnOnce(&Gam<P>, &Node)) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = Config::new().progress(ProgressThread::Off);
    let node = Node::shared(config).expect("a job of one opens");
    // SAFETY: these tests name memory of their own that outlives the calls, with its length.
    let memory = unsafe { AllMemory::promised() };
    let gam = Gam::new(node.clone(), memory, program.clone()).expect("the layer opens");
    gam.join().expect("one meets itself");
    act(&gam, &node);
    gam.close().expect("one leaves alone");
}

fn until(node: &Node, done: impl Fn() -> bool) {
    node.within(std::time::Duration::from_secs(30)).wait_until(done).expect("it comes");
}

#[test]
fn messages_that_no_library_of_ours_sends_are_refused_and_counted() {
    let noted = Noted::default();
    with_layer(&noted, |gam, node| {
        let id = |name| HandlerId::of("gam", name);
        let payload = [7_u8; 9];
        let messages: [(&str, &[u8], u64); 7] = [
            ("words 0", &payload, KNOWN),
            ("words, double", &payload, KNOWN),
            ("words 4", &payload, KNOWN),
            ("words 4", &[], KNOWN),
            ("store", &[], KNOWN),
            ("null", &payload, 0),
            ("words 3", &[], 0xdead_beef),
        ];
        for (number, (name, payload, function)) in (1..).zip(messages) {
            node.request_medium(0, id(name), [function, 1, 2, 3], payload).expect("it is sent");
            until(node, || gam.refused() >= number);
            assert_eq!(gam.refused(), number, "{name}");
        }
        // A null request is no error, and runs nothing.
        node.request(0, id("null"), [u64::MAX; 4]).expect("it is sent");
        // Each was replied to, and each reply is of a request that this layer never sent.
        until(node, || gam.null_replies() == 8 && gam.refused() >= 7 + 8);
        assert_eq!(gam.refused(), 7 + 8);
        assert!(noted.take().is_empty());
    });
}

#[test]
fn what_is_sent_runs_with_what_it_was_given() {
    let noted = Noted::default();
    with_layer(&noted, |gam, _| {
        gam.request(0, KNOWN, &Arguments::Words(&[1, u64::MAX])).expect("to itself");
        gam.request(0, OTHER, &Arguments::DoubleWords(0.5, 1, 2)).expect("to itself");
        let said = noted.take();
        assert_eq!(said[0], (KNOWN, 0, format!("{:?}", Arguments::Words(&[1, u64::MAX]))));
        assert_eq!(said[1], (OTHER, 0, format!("{:?}", Arguments::DoubleWords(0.5, 1, 2))));
        assert_eq!((gam.null_replies(), gam.handled()), (2, 2));
    });
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_values() {
    with_layer(&Noted::default(), |gam, _| {
        let request = |dest, function, words: &[u64]| gam.request(dest, function, &Arguments::Words(words));
        assert_eq!(request(1, KNOWN, &[]), Err(GamError::NoSuchProcess { dest: 1, procs: 1 }));
        assert_eq!(request(-1, KNOWN, &[]), Err(GamError::NoSuchProcess { dest: -1, procs: 1 }));
        assert_eq!(request(i64::MAX, KNOWN, &[]), Err(GamError::NoSuchProcess { dest: i64::MAX, procs: 1 }));
        assert_eq!(request(0, 5, &[]), Err(GamError::NotAFunction { function: 5 }));
        assert_eq!(request(0, KNOWN, &[0; 5]), Err(GamError::Words { words: 5 }));
        assert_eq!(gam.reply(0, KNOWN, &Arguments::Words(&[])), Err(GamError::NoReplyDue { dest: 0 }));
        let most = vec![0; MEDIUM_MAX + 1];
        let sent = |len: usize| gam.request(0, KNOWN, &Arguments::Medium(&most[..len], 0, 0));
        assert_eq!(sent(MEDIUM_MAX), Ok(()));
        let too_long = GamError::Size { bytes: MEDIUM_MAX as i64 + 1, most: MEDIUM_MAX };
        assert_eq!(sent(MEDIUM_MAX + 1), Err(too_long));
        let stored = |len: i64| gam.store(0, most.as_ptr(), 0, len, (KNOWN, 0));
        assert_eq!(stored(-1), Err(GamError::Size { bytes: -1, most: MAX_SIZE }));
        let over = MAX_SIZE as i64 + 1;
        assert_eq!(stored(over), Err(GamError::Size { bytes: over, most: MAX_SIZE }));
        assert_eq!(gam.handled(), 1);
    });
}

/// A program that keeps what came: where its peer's buffer lies, and how many bytes have come in which way.
#[derive(Clone, Default)]
struct Kept(Arc<[AtomicU64; 3]>);

impl Program for Kept {
    fn has_function(&self, function: Function) -> bool {
        function == KNOWN
    }

    fn call(&self, _: Function, _: Rank, arguments: Arguments<'_>) {
        let [told, read, stored] = &*self.0;
        match arguments {
            Arguments::Words(&[addr]) => told.store(addr, Ordering::Release),
            Arguments::Medium(bytes, ..) => _ = read.fetch_add(bytes.len() as u64, Ordering::Release),
            Arguments::Memory { len, .. } => _ = stored.fetch_add(len as u64, Ordering::Release),
            _ => panic!("nobody sends these: {arguments:?}"),
        }
    }
}

/// Two processes, each of which sends the other a word, a medium message, a store, and gets.
fn one_of_two() {
    let node = Node::shared(Config::from_env().expect("a job's").progress(ProgressThread::Off));
    let node = node.expect("the job is there");
    let (kept, other) = (Kept::default(), 1 - i64::from(node.rank()));
    // SAFETY: the two processes name buffers of theirs that last until both have closed the layer.
    let memory = unsafe { AllMemory::promised() };
    let gam = Gam::new(node, memory, kept.clone()).expect("the layer opens");
    gam.join().expect("both come");
    let (mut inbox, mut got, source) = (vec![0_u8; 1000], vec![0_u8; 1000], vec![9_u8; 1000]);
    let wait = |which: usize, count: u64| {
        while kept.0[which].load(Ordering::Acquire) < count {
            gam.poll_idle().expect("the other one lives");
        }
    };
    let addr = inbox.as_mut_ptr().expose_provenance() as u64;
    gam.request(other, KNOWN, &Arguments::Words(&[addr])).expect("a word");
    wait(0, 1);
    let there = kept.0[0].load(Ordering::Acquire);
    gam.store(other, source.as_ptr(), there, 1000, (KNOWN, 0)).expect("a store");
    gam.store_async(other, source.as_ptr(), there, 1000, (KNOWN, 0), (KNOWN, 0)).expect("another");
    wait(2, 3000);
    gam.get(other, there, got.as_mut_ptr(), 1000, (KNOWN, 0)).expect("a get");
    wait(2, 4000);
    assert_eq!((gam.copies().sent, gam.copies().received), (0, 0));
    gam.request_bytes(other, KNOWN, (source.as_ptr(), 100), [0; 2]).expect("a medium message");
    wait(1, 100);
    assert_eq!((gam.copies().sent, gam.copies().received), (100, 0));
    gam.close().expect("both leave");
    assert_eq!((inbox, got), (source.clone(), source));
}

#[test]
fn medium_messages_alone_are_copied_by_the_layer() {
    if std::env::var_os("STANDPIPE_JOB").is_some() {
        return one_of_two();
    }
    let test = std::env::current_exe().expect("Linux tells where it is");
    let launch = standpipe::launch::Launch::new(test).ranks(2);
    let outcome = launch.args(["--exact", "medium_messages_alone_are_copied_by_the_layer"]).run();
    assert_eq!(outcome.expect("the job starts").status(), 0);
}

/// How many requests each of two processes sends to the other.
const MANY: u64 = 2_000;

/// Requests, while another thread makes progress as another layer's calls do, and so runs handlers.
fn one_of_two_with_a_thread() {
    let config = Config::from_env().expect("its environment is in order");
    let node = Node::shared(config.progress(ProgressThread::Off)).expect("invited");
    // SAFETY: this test passes no addresses of memory, of this process or another, to any call of the layer.
    let memory = unsafe { AllMemory::promised() };
    let gam = Gam::new(node.clone(), memory, Counted::default()).expect("the layer opens");
    gam.join().expect("both come");
    let (other, is_over) = (i64::from(1 - gam.my_proc()), AtomicBool::new(false));
    let is_done = |count: u64| gam.program().0.load(Ordering::Relaxed) >= count;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                node.progress();
            }
        });
        for number in 0..MANY {
            gam.request(other, KNOWN, &Arguments::Words(&[number]))
                .expect("no handler of this thread's runs");
            gam.request(1 - other, KNOWN, &Arguments::Words(&[number])).expect("nor for one to itself");
        }
        while !is_done(2 * MANY) {
            gam.poll_idle().expect("both are there");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Every credit has come back, or this would not return.
    gam.close().expect("both leave");
    assert_eq!((gam.program().0.load(Ordering::Relaxed), gam.refused()), (2 * MANY, 0));
    assert_eq!((gam.handled(), gam.null_replies()), (2 * MANY, 2 * MANY));
}

/// A program that counts what is called.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicU64>);

impl Program for Counted {
    fn has_function(&self, function: Function) -> bool {
        function == KNOWN
    }

    fn call(&self, _: Function, _: Rank, _: Arguments<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn handlers_that_run_in_another_layers_thread_disturb_no_call() {
    if std::env::var_os("STANDPIPE_JOB").is_some() {
        return one_of_two_with_a_thread();
    }
    let test = std::env::current_exe().expect("Linux tells where it is");
    let launch = standpipe::launch::Launch::new(test).ranks(2);
    let outcome =
        launch.args(["--exact", "handlers_that_run_in_another_layers_thread_disturb_no_call"]).run();
    assert_eq!(outcome.expect("the job starts").status(), 0);
}
