//! A rank of a burst: it has memory, bursts or is burst upon, and looks at each byte afterwards.

use std::net::{Shutdown, TcpStream};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal as Kill, kill_process};
use standpipe::{Error, GlobalPtr, HeapArray, Node, Rank, Remote};

use crate::cases::{Case, Memory, Operation, SIZES, State};
use crate::support::{LIMIT, Private, config, say};

/// The case, and the folder that its ranks tell each other in what no message must: nothing has connected
/// them then.
pub(crate) const CASE: &str = "STANDPIPE_TEST_CASE";
pub(crate) const FOLDER: &str = "STANDPIPE_TEST_FOLDER";

/// Seconds that a burst may take, where that is not ten: an emulated machine is slow.
const CASE_SECONDS: &str = "STANDPIPE_TEST_BURST_CASE_S";

/// Bytes of the memory that a burst goes to or comes from, at most: operations that find no place of their
/// own there carry what others do.
const AREA: usize = 8 << 20;

/// How long a call to a peer that stands still may take.
const HURRY: Duration = Duration::from_millis(30);

/// How long connections that were cut have to be noticed: what is under way on one that is gone is lost with
/// it.
const NOTICE: Duration = Duration::from_millis(50);

/// Words that are counted in.
pub(crate) const SIGNALLED: usize = 0;
pub(crate) const ADDED: usize = 1;
const WORDS: usize = 2;

/// What a rank has, and what it knows of the other.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) case: Case,
    pub(crate) peer: Rank,
    area: HeapArray<u8>,
    private: Private,
    words: HeapArray<u64>,
    pub(crate) handled: Arc<AtomicU64>,
    pub(crate) answered: Arc<AtomicU64>,
    folder: PathBuf,
    theirs: Theirs,
    /// What each slot's operations carry: made before the burst, so that nothing but calls takes time in it.
    carried: Vec<Vec<u8>>,
    /// What each thread has come to.
    pub(crate) at: Vec<AtomicUsize>,
}

/// Where the other's memory lies.
#[derive(Default)]
struct Theirs {
    area: u64,
    private: u64,
    words: u64,
    pid: i32,
}

pub(crate) fn run() {
    let case = Case::parse(&std::env::var(CASE).expect("set by the test")).expect("a case");
    let mut member = open(case);
    member.meet();
    let bursts = member.node.rank() == 0 || case.both || case.operation == Operation::Collective;
    if member.node.rank() == 0 {
        member.prepare();
        member.tell("begin", "");
    } else {
        member.hear("begin");
    }
    let member = Arc::new(member);
    watch(&member);
    let result = if bursts { crate::burst::burst(&member) } else { Ok(()) };
    let cut = case.state == State::Cut;
    let lost = |error: &Error| cut && matches!(error, Error::PeerLost { .. });
    match &result {
        Err(error) if !lost(error) => panic!("{case}: {error}"),
        result => member.tell("burst", if result.is_ok() { "well" } else { "lost" }),
    }
    // What was under way when a connection was cut may have been lost with it: then all that holds is that
    // everybody was told.
    if member.hear("burst") == "well" && result.is_ok() {
        member.verify();
    } else {
        say("cut off");
    }
    member.tell("over", "");
    member.hear("over");
}

fn open(case: Case) -> Member {
    let (handled, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (handles, answers) = (Arc::clone(&handled), Arc::clone(&answered));
    // What takes too long is to be found where it hangs.
    let config = config()
        .timeout(2 * limit())
        .handler("ask", move |call| {
            if call.landed().is_none() {
                assert!(call.payload() == pattern(call.args()[0] as usize, call.payload().len()), "{case}");
            }
            handles.fetch_add(1, Ordering::SeqCst);
            let answer = call.node().handler("answer").expect("registered");
            // Who is lost needs none.
            let _ = call.reply(answer, call.args());
        })
        .handler("answer", move |_| _ = answers.fetch_add(1, Ordering::SeqCst));
    let node = Node::open(config).expect("a node");
    let len = case.slots() * case.stride();
    let mut bytes = vec![0; len];
    if matches!(case.operation, Operation::Get | Operation::GetNb) {
        (0..case.slots()).for_each(|slot| case.lay(&mut bytes, slot));
    }
    let area = node.heap().alloc_from(&bytes).expect("room");
    let words = node.heap().alloc_zeroed(WORDS).expect("room");
    let folder = PathBuf::from(std::env::var(FOLDER).expect("set by the test"));
    let (peer, private, theirs) = (1 - node.rank(), Private::from(&bytes), Theirs::default());
    let carried = (0..case.slots()).map(|slot| pattern(slot, case.len())).collect();
    let at = (0..case.threads).map(|_| AtomicUsize::new(0)).collect();
    Member { node, case, peer, area, private, words, handled, answered, folder, theirs, carried, at }
}

/// What is written in a slot.
pub(crate) fn pattern(slot: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (slot * 31 + at * 7 + (at >> 8) + 1) as u8).collect()
}

impl Case {
    /// Bytes of one operation, which strides cut into four blocks.
    pub(crate) fn len(&self) -> usize {
        if self.operation == Operation::Strided { self.bytes / 4 * 4 } else { self.bytes }
    }

    /// From one slot's first byte to the next one's: blocks lie as far apart as they are long.
    pub(crate) fn stride(&self) -> usize {
        (2 * self.bytes).next_multiple_of(64)
    }

    pub(crate) fn slots(&self) -> usize {
        (AREA / self.stride()).min(self.count)
    }

    /// Lays what an operation carries where it lands.
    fn lay(&self, area: &mut [u8], slot: usize) {
        let (carried, start) = (pattern(slot, self.len()), slot * self.stride());
        let block = if self.operation == Operation::Strided { self.len() / 4 } else { self.len() };
        for (number, bytes) in carried.chunks(block).enumerate() {
            let at = start + 2 * number * block;
            area[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Member {
    /// What operations on a slot carry.
    pub(crate) fn carried(&self, slot: usize) -> &[u8] {
        &self.carried[slot]
    }

    /// Where a slot begins at the other.
    pub(crate) fn place(&self, slot: usize) -> Remote {
        let at = (slot * self.case.stride()) as u64;
        match self.case.memory {
            Memory::Heap => GlobalPtr::<u8>::new(self.peer, self.theirs.area + at).into(),
            // SAFETY: bytes of the other's `Private`, which takes writes at any time and stays until both
            // ranks are over.
            Memory::Private => unsafe { Remote::raw(self.peer, self.theirs.private + at) },
        }
    }

    pub(crate) fn word(&self, number: usize) -> GlobalPtr<u64> {
        GlobalPtr::new(self.peer, self.theirs.words + 8 * number as u64)
    }

    /// Learns where the other's memory lies, without a word between the two nodes.
    fn meet(&mut self) {
        let [area, words] = [self.area.ptr(0).offset(), self.words.ptr(0).offset()];
        self.tell("place", &format!("{area} {} {words} {}", self.private.addr(), std::process::id()));
        let text = self.hear("place");
        let words: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
        self.theirs = Theirs { area: words[0], private: words[1], words: words[2], pid: words[3] as i32 };
    }

    fn file(&self, what: &str, rank: Rank) -> PathBuf {
        self.folder.join(format!("{what}.{rank}"))
    }

    fn tell(&self, what: &str, text: &str) {
        let (file, half) = (self.file(what, self.node.rank()), self.file("half", self.node.rank()));
        std::fs::write(&half, text).and_then(|()| std::fs::rename(&half, &file)).expect("the test's folder");
    }

    /// What the other has told, which may come late: meanwhile this rank serves it.
    fn hear(&self, what: &str) -> String {
        let (file, begun) = (self.file(what, self.peer), Instant::now());
        loop {
            if let Ok(text) = std::fs::read_to_string(&file) {
                return text;
            }
            assert!(begun.elapsed() < 3 * LIMIT, "{}: rank {} has not told {what}", self.case, self.peer);
            if !self.node.progress() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Brings the link to the state that the burst is to find it in.
    fn prepare(&self) {
        let warm = || {
            for len in SIZES.into_iter().filter(|len| *len <= self.case.bytes) {
                let mut bytes = vec![0; len];
                self.node.get_bytes(self.place(0), &mut bytes).expect("got");
                self.node.put_bytes(self.place(0), &bytes).expect("put");
            }
            self.node.fetch_add(self.word(ADDED), 0).expect("added");
        };
        match self.case.state {
            State::Cold => {}
            State::Met => self.meet_by_few_bytes(),
            State::Warm => warm(),
            State::Lost => {
                warm();
                let pid = Pid::from_raw(self.theirs.pid).expect("a process");
                kill_process(pid, Kill::STOP).expect("it is this test's");
                let late = self.node.within(HURRY).get_bytes(self.place(0), &mut vec![0; self.case.bytes]);
                assert!(matches!(late, Ok(()) | Err(Error::Timeout { .. })), "{}: {late:?}", self.case);
                kill_process(pid, Kill::CONT).expect("it is this test's");
                // It goes on, and is trusted again; what connected before does not.
                self.node.fetch_add(self.word(ADDED), 0).expect("added");
            }
            State::Cut => {
                warm();
                cut_connections();
                let begun = Instant::now();
                while begun.elapsed() < NOTICE {
                    self.node.progress();
                }
            }
        }
    }

    /// Asks for the key of the other's heap, and waits until it has come.
    fn meet_by_few_bytes(&self) {
        for _ in 0..3 {
            let mut bytes = [0; 8];
            self.node.get_bytes(self.place(0), &mut bytes[..7]).expect("got");
            self.node.fetch_add(self.word(ADDED), 0).expect("added");
        }
    }

    /// All that the other has sent here is there, and as it was sent.
    fn verify(&self) {
        let Member { case, .. } = self;
        if self.node.rank() == 0 && !case.both {
            return;
        }
        let count = case.count as u64;
        match case.operation {
            Operation::Atomic => assert_eq!(self.words.read(ADDED), count, "{case}"),
            Operation::Request => assert_eq!(self.handled.load(Ordering::SeqCst), count, "{case}"),
            Operation::Collective | Operation::Directory => return,
            Operation::PutSignal => assert_eq!(self.words.read(SIGNALLED), count, "{case}"),
            _ => {}
        }
        let lands = case.operation != Operation::Request || case.len() > standpipe::MEDIUM_MAX;
        if case.operation == Operation::Atomic || !lands {
            return;
        }
        let mut wanted = vec![0; case.slots() * case.stride()];
        (0..case.slots()).for_each(|slot| case.lay(&mut wanted, slot));
        let found = if case.memory == Memory::Heap { self.area.to_vec() } else { self.private.bytes() };
        let wrong = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        assert_eq!(wrong.map(|at| (at, found[at])), None, "{case}: a byte of {} is wrong", wanted.len());
    }
}

/// Cuts all connections of this process over the network.
fn cut_connections() {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.collect::<Vec<i32>>() {
        let is_socket = std::fs::read_link(Path::new("/proc/self/fd").join(number.to_string()))
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        if !is_socket {
            continue;
        }
        // SAFETY: it is open, as it was just listed and nothing of this process is closing any now.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stream) = fd.try_clone_to_owned().map(TcpStream::from) else { continue };
        // Of other sockets there is no such address.
        if stream.peer_addr().is_ok() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// How long a burst may take.
fn limit() -> Duration {
    let seconds = std::env::var(CASE_SECONDS).ok().map(|text| text.parse().expect("a number"));
    Duration::from_secs(seconds.unwrap_or(10))
}

/// Ends this process when the burst takes too long, and says what its threads are at.
fn watch(member: &Arc<Member>) {
    let (member, limit) = (Arc::downgrade(member), limit());
    let watched = std::thread::Builder::new().name("watch".into()).spawn(move || {
        let begun = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let Some(member) = member.upgrade() else { return };
            if member.file("burst", member.node.rank()).exists() {
                return;
            }
            let is_burst = member.node.rank() == 0 || member.case.both;
            if is_burst && begun.elapsed() > limit {
                say(format!("after {limit:?} still at {}; {}", member.case, member.doing()));
                std::process::abort();
            }
        }
    });
    watched.expect("a thread");
}

impl Member {
    /// What each thread of the burst has come to, and what each thread of the process is in.
    fn doing(&self) -> String {
        let at: Vec<usize> = self.at.iter().map(|at| at.load(Ordering::SeqCst)).collect();
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let thread = |task: PathBuf| {
            let [name, call, wait] = ["comm", "syscall", "wchan"].map(|file| text(task.join(file)));
            format!("{name} in {} {wait}", call.split(' ').next().unwrap_or("?"))
        };
        let threads: Vec<String> = tasks.map(|task| thread(task.path())).collect();
        let (asked, lost) = (self.node.registrations(), self.node.lost_peers());
        let threads = threads.join(", ");
        format!("operations begun by each thread: {at:?}; threads: {threads}; {asked:?}; lost: {lost:?}")
    }
}
