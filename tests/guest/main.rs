//! A guest in somebody else's process: its threads, its signals, its forks, how it ends, and that it may be
//! unloaded.
//!
//! Each test runs this program again in a role, as what it is about would end or disturb the other tests.

#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use standpipe::{Address, CloseError, Config, Error, Exposure, Node, ProgressThread, Remote, Rights};
use support::{eventually, itself, network, role};

/// No role takes longer, but for those that say so.
const LIMIT: Duration = Duration::from_secs(60);

/// What a role that ends by `exit` ends with.
const STATUS: i32 = 7;

/// Seconds after which a forked child that waits for what is not there is ended.
const STUCK_S: u32 = 20;

/// Signals that a program may block, to take them in its own way.
const TAKEN: [i32; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM, libc::SIGPROF];

#[test]
fn no_thread_is_there_before_the_first_node() {
    runs("threads", "shm", 0);
}

#[test]
fn no_thread_takes_a_signal_that_is_meant_for_the_program() {
    runs("signals", "shm", 0);
    if let Some(network) = network() {
        runs("signals", network, 0);
    }
}

#[test]
fn a_program_may_end_in_any_way_while_its_node_is_open() {
    for way in ["exit", "exit-in-handler", "exit-while-waiting", "at-exit", "static"] {
        runs(way, "shm", STATUS);
    }
}

#[test]
fn handles_may_go_with_their_threads() {
    runs("thread-locals", "shm", 0);
}

#[test]
fn forks_at_any_moment_harm_nobody() {
    runs("forks", "shm", 0);
    if let Some(network) = network() {
        runs("forks", network, 0);
    }
}

#[test]
fn a_runtime_of_tasks_forks_and_takes_its_signals() {
    runs("tokio", "shm", 0);
    if let Some(network) = network() {
        runs("tokio", network, 0);
    }
}

#[test]
fn a_launcher_that_is_gone_is_an_error_and_no_signal() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    drop(theirs);
    let mut command = itself("orphan");
    command.env("PMI_FD", "0").env("PMI_RANK", "0").env("PMI_SIZE", "2");
    let status = command.stdin(std::os::fd::OwnedFd::from(ours)).status().expect("it starts");
    assert!(status.success(), "{status}");
}

#[test]
fn a_library_that_is_unloaded_stays_while_its_threads_run() {
    runs("unload", "shm", 0);
}

#[test]
fn the_lowest_rank_of_a_host_does_not_wait_for_others_longer_than_it_may() {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr()).expect("a port").port();
    let secret = "5".repeat(64);
    let mut ranks: Vec<_> = (0..2)
        .map(|rank| {
            let mut command = itself("leaves");
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("STANDPIPE_SECRET", &secret);
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500");
            command.env("STANDPIPE_PORT", port.to_string()).stdin(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    for rank in &mut ranks {
        assert!(rank.wait().expect("it was started").success());
    }
}

#[test]
fn child() {
    match role().as_deref() {
        None => {}
        Some("threads") => threads(),
        Some("signals") => signals(),
        Some("exit") => exit(),
        Some("exit-in-handler") => exit_in_handler(),
        Some("exit-while-waiting") => exit_while_waiting(),
        Some("at-exit") => at_exit(),
        Some("static") => statics(),
        Some("thread-locals") => thread_locals(),
        Some("forks") => forks(),
        Some("tokio") => tasks(),
        Some("unload") => unload(),
        Some("leaves") => leaves(),
        Some("orphan") => orphan(),
        Some(role) => panic!("no role {role}"),
    }
}

/// Runs a role over a transport, and wants it to end with that status in time.
fn runs(role: &str, transport: &str, status: i32) {
    let mut command: Command = itself(role);
    command.env("STANDPIPE_TRANSPORT", transport).stdin(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let until = Instant::now() + LIMIT;
    let ended = loop {
        match child.try_wait().expect("it was started") {
            Some(ended) => break Some(ended),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if ended.is_none() {
        child.kill().expect("it was started");
        let _ = child.wait();
    }
    assert_eq!(ended.and_then(|ended| ended.code()), Some(status), "{role} over {transport}: {ended:?}");
}

fn config() -> Config {
    let config = Config::from_env().expect("good settings").heap_bytes(8 << 20);
    config.progress(ProgressThread::On).copiers(1)
}

/// Opens a node as a program in C does, which a signal tells of a closed connection.
fn orphan() {
    // SAFETY: the default action is no function that could be gone or do what a handler may not, and nobody
    // else in this process sets it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let error = Node::open(config()).expect_err("the launcher is gone");
    assert!(error.to_string().contains("PMI_FD"), "{error}");
}

/// Two nodes of this process that have met.
fn pair() -> (Node, Node, u32) {
    let config = || config().exposure(Exposure::Everything).handler("h", |_| {});
    let (a, b) = (Node::open(config()).expect("opened"), Node::open(config()).expect("opened"));
    let address: Address = b.address().expect("it listens");
    let peer = a.connect_to(&address).expect("connected");
    (a, b, peer)
}

/// The threads of this process, with the signals that each of them blocks.
fn blocked() -> BTreeMap<String, (String, u64)> {
    let mut found = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().to_owned()
        };
        let mask = u64::from_str_radix(&field("SigBlk:"), 16).expect("a mask");
        found.insert(task.file_name().to_string_lossy().into_owned(), (field("Name:"), mask));
    }
    found
}

fn threads() {
    let before = blocked().len();
    let config = config();
    let _ = standpipe::rendezvous::Rendezvous::from_env();
    assert_eq!(blocked().len(), before, "{:?}", blocked());
    let node = Node::open(config).expect("opened");
    assert!(blocked().len() > before);
    node.close(LIMIT).expect("nothing is under way");
    assert!(eventually(|| blocked().len() == before), "{:?}", blocked());
}

fn signals() {
    let before = blocked();
    let (a, b, peer) = pair();
    // Whatever starts a thread at its first use.
    a.request(peer, a.handler("h").expect("it is there"), [0; 4]).expect("sent");
    let words = vec![0_u8; 1 << 20];
    // SAFETY: the words live to the end, and nothing is put there.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    a.get_nb(there, vec![0_u8; 1 << 20]).wait().0.expect("got");
    let ours = || -> Vec<_> {
        blocked().into_iter().filter(|(id, _)| !before.contains_key(id)).map(|(_, thread)| thread).collect()
    };
    assert!(ours().len() >= 4, "{:?}", ours());
    for (name, mask) in ours() {
        for signal in TAKEN {
            assert!(mask & 1 << (signal - 1) != 0, "{name} takes signal {signal}");
        }
    }
    // Two threads on small stacks run nothing of the program's. One that begins has another's name, and takes
    // nothing yet.
    let is_small = |name: &str| ["standpipe-end", "standpipe-monit"].contains(&name);
    let takes_faults = |(name, mask): (String, u64)| mask & 1 << (libc::SIGSEGV - 1) == 0 || is_small(&name);
    assert!(eventually(|| ours().into_iter().all(takes_faults)), "{:?}", ours());
    drop((a, b));
}

/// Ends the process as C programs do: handlers of `atexit` and destructors of statics run, and those of other
/// threads' locals do not.
fn end() -> ! {
    // SAFETY: it ends the process, and nothing that runs meanwhile is this test's.
    unsafe { libc::exit(STATUS) }
}

fn exit() {
    let (a, _b, _) = pair();
    let array = a.heap().alloc_zeroed::<u64>(8).expect("room");
    a.put_nbi(array.ptr(0), &[1_u64]).expect("put");
    end();
}

fn exit_in_handler() {
    let node = Node::open(config().handler("end", |_| end())).expect("opened");
    node.request(node.rank(), node.handler("end").expect("it is there"), [0; 4]).expect("sent");
    let _ = node.wait_until(|| false);
}

fn exit_while_waiting() {
    let node = Node::open(config()).expect("opened");
    let (waits, waiting) = mpsc::channel();
    let other = node.clone();
    std::thread::spawn(move || {
        let _ = other.wait_until(|| {
            let _ = waits.send(());
            false
        });
    });
    waiting.recv().expect("it waits");
    end();
}

static LAST: Mutex<Option<Node>> = Mutex::new(None);

fn at_exit() {
    extern "C" fn close() {
        let node = LAST.lock().expect("no panic").take().expect("it was opened");
        node.barrier().expect("alone");
        node.close(LIMIT).expect("nothing is under way");
    }
    // SAFETY: the handler is a function for the program's whole life.
    assert_eq!(unsafe { libc::atexit(close) }, 0);
    *LAST.lock().expect("no panic") = Some(Node::open(config()).expect("opened"));
    end();
}

fn statics() {
    *LAST.lock().expect("no panic") = Some(Node::open(config()).expect("opened"));
    std::process::exit(STATUS);
}

struct AtEnd(Option<Node>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            let array = node.heap().alloc_from(&[1_u64]).expect("room");
            node.put(array.ptr(0), 2).expect("put");
            node.fetch_add(array.ptr(0), 1).expect("added");
            drop(node.get_nb(array.ptr(0), vec![0_u64]));
            assert_eq!(node.get(array.ptr(0)), Ok(3));
        }
    }
}

thread_local! {
    static EARLY: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
    static LATE: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
}

/// Thread-local destructors run in an order that nobody knows: ours may be over when the program's run.
fn thread_locals() {
    let node = Node::open(config()).expect("opened");
    for _ in 0..20 {
        let node = node.clone();
        let thread = std::thread::spawn(move || {
            // Registered before the library's own, and after it.
            EARLY.with(|early| early.borrow_mut().0 = Some(node.clone()));
            let array = node.heap().alloc_zeroed::<u64>(8).expect("room");
            node.put(array.ptr(0), 1).expect("put");
            LATE.with(|late| late.borrow_mut().0 = Some(node));
        });
        thread.join().expect("no panic in a destructor");
    }
    node.close(LIMIT).expect("nothing is under way");
}

fn forks() {
    let (a, b, peer) = pair();
    let words: Vec<std::sync::atomic::AtomicU8> = (0..200_000).map(|i| (i as u8).into()).collect();
    // SAFETY: the words live to the end of this function, and nothing is put there.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    let array = b.heap().alloc_zeroed::<u64>(8).expect("room");
    let (theirs, over) = (array.ptr(0).at(peer), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut into = vec![0_u8; words.len()];
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    a.get_bytes(there, &mut into).expect("got");
                    a.fetch_add(theirs, 1).expect("added");
                    a.request(peer, a.handler("h").expect("it is there"), [0; 4]).expect("sent");
                    drop(a.heap().alloc_zeroed::<u8>(9000).expect("room"));
                    drop(b.expose(&words[..], Rights::Read));
                    assert!(into.iter().enumerate().all(|(i, byte)| *byte == i as u8));
                }
            });
        }
        for _ in 0..100 {
            assert_eq!(in_a_child(|| is_refused(&a, peer)), 0, "a child was not refused all");
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    a.quiet().expect("nothing failed");
    let total = array.read(0);
    assert_eq!(a.get(theirs), Ok(total), "no child has changed it");
}

/// Tasks await by events and by a queue while their process forks and is sent signals, which it takes itself.
fn tasks() {
    static TAKEN_HERE: AtomicUsize = AtomicUsize::new(0);
    static TAKEN_BY_OURS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: i32) {
        let mut name = [0_u8; 16];
        // SAFETY: it writes the thread's name, of at most 16 bytes, and may be called in a handler.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let taken = if name.starts_with(b"standpipe") { &TAKEN_BY_OURS } else { &TAKEN_HERE };
        taken.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the handler counts, and does nothing that a handler may not; nothing else takes the signal.
    unsafe { libc::signal(libc::SIGUSR1, count as extern "C" fn(i32) as libc::sighandler_t) };
    let (a, b, peer) = pair();
    let words = vec![7_u8; 400_000];
    // SAFETY: the words live to the end of this function, and are only read.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (node, over) = (a.clone(), Arc::clone(&over));
            runtime.spawn(async move {
                let (mut turns, queue) = (0, node.completions(4).expect("a descriptor"));
                while !over.load(Ordering::SeqCst) {
                    let len = [100, 400_000][turns % 2];
                    let bytes = if task % 2 == 0 {
                        let (result, bytes) = node.get_nb(there, vec![0_u8; len]).await;
                        result.map(|()| bytes)
                    } else {
                        queue.reserve().expect("room").get(1, there, vec![0_u8; len]);
                        let done = queue.next().await.expect("not forked").expect("one is under way");
                        done.result.map(|()| done.buffer)
                    };
                    assert!(bytes.expect("got").iter().all(|byte| *byte == 7));
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    let queue = a.completions::<Vec<u8>>(1).expect("a descriptor");
    for _ in 0..40 {
        // SAFETY: it sends this process a signal that it takes.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        let status = in_a_child(|| {
            let forked = matches!(queue.take(), Err(Error::Forked { .. })) && queue.reserve().is_err();
            forked && is_refused(&a, peer)
        });
        assert_eq!(status, 0, "a child was not refused all");
    }
    over.store(true, Ordering::SeqCst);
    let turns: Vec<usize> = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).collect();
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    assert!(TAKEN_HERE.load(Ordering::SeqCst) > 0 && TAKEN_BY_OURS.load(Ordering::SeqCst) == 0);
    drop((queue, runtime));
    a.close(LIMIT).expect("nothing is under way");
    drop(b);
}

fn is_refused(node: &Node, peer: u32) -> bool {
    let forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked { .. }));
    let there = standpipe::GlobalPtr::<u64>::new(peer, 0);
    forked(node.put(there, 1))
        && forked(node.quiet())
        && forked(node.fetch_add(there, 1).map(drop))
        && forked(node.atomic_load(there).map(drop))
        && forked(node.atomic_store(there, 1))
        && forked(node.request(peer, node.handler("h").expect("it is there"), [0; 4]))
        && forked(node.get_nb(there, vec![0_u8; 3]).wait().0)
        && matches!(node.clone().close(LIMIT), Err(CloseError::Refused(Error::Forked { .. })))
        && node.heap().alloc::<u8>(1).is_err()
        && !node.progress()
}

/// Forks a child that looks. Returns how it ended: 0 where it found things so.
fn in_a_child(look: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs on this thread alone, allocates by the system's library, which is made for that,
    // and ends without going on in the test.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it sets a clock of the child's own, which ends it.
            unsafe { libc::alarm(STUCK_S) };
            let status = if look() { 0 } else { 1 };
            // SAFETY: it ends the child and runs nothing more of it.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it waits for our own child and writes to a word of this frame.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

fn unload() {
    let test = std::env::current_exe().expect("this test has a file");
    let folder = test.ancestors().nth(2).expect("tests are built two folders below").join("examples");
    let file = folder.join("libguest_library.so");
    assert!(file.exists(), "{} is not built: cargo build --examples", file.display());
    let is_there = || std::fs::read_to_string("/proc/self/maps").expect("Linux").contains("libguest_library");
    let name = std::ffi::CString::new(file.to_str().expect("a path of this project's")).expect("no zero");
    // SAFETY: the library runs nothing of its own when it is loaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null() && is_there());
    let find = |name: &std::ffi::CStr| {
        // SAFETY: the handle is open, and the name a string that ends with a zero.
        let at = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        // SAFETY: the library's functions of these names take nothing, and return a number.
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(at) }
    };
    let (open, work, close) = (find(c"guest_open"), find(c"guest_use"), find(c"guest_close"));
    // On a thread that ends: locals of one that lives would keep the library by themselves.
    let on_a_thread = |calls: &'static [usize]| {
        let all = [open, work, close];
        let thread = std::thread::spawn(move || calls.iter().map(|call| all[*call]()).max());
        assert_eq!(thread.join().expect("no panic"), Some(0), "{calls:?}");
    };
    on_a_thread(&[0, 1]);
    // SAFETY: the handle is open, and nobody closes it a second time.
    assert_eq!(unsafe { libc::dlclose(library) }, 0);
    // Its threads go on.
    std::thread::sleep(Duration::from_millis(300));
    on_a_thread(&[1, 2]);
    assert!(is_there(), "it was unloaded when its last thread ended");
}

/// Rank 0, which others of its host need, gives up waiting for rank 1 in time.
fn leaves() {
    let node = Node::open(config()).expect("opened");
    node.barrier().expect("both are there");
    if node.rank() == 1 {
        let other = node.clone();
        node.wait_until(|| other.is_lost(0)).expect("it leaves");
        std::thread::sleep(Duration::from_secs(1));
        return;
    }
    let begun = Instant::now();
    let late = node.close(Duration::from_millis(300));
    assert!(
        matches!(&late, Err(CloseError::Unfinished { what, .. }) if what.contains("other processes")),
        "{late:?}"
    );
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    // What the other one needs goes on, until it has left.
    std::thread::sleep(Duration::from_secs(2));
}
