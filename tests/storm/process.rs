//! A process of the storm: its node, its threads, and the line by which the supervisor orders it about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use standpipe::host::monotonic_ns;
use standpipe::{Call, Config, Error, Exposure, Node, Payload, Rank};

use crate::memory::{COMMON, EVERYBODY, Memory, NOTED, Places, THREADS, WORDS, checksum, filled, slot};
use crate::support::config;
use crate::teams::Teams;
use crate::thread::{Reader, Worker};

/// Where the supervisor listens, in the abstract namespace.
pub(crate) const LINE: &str = "STANDPIPE_TEST_LINE";
/// The number of a process that is no rank of a job.
pub(crate) const ID: &str = "STANDPIPE_TEST_ID";
/// How long the storm is rough, for those who have to know.
pub(crate) const ROUGH_MS: &str = "STANDPIPE_TEST_ROUGH_MS";

/// Questions that a process keeps at a time.
const KEPT_MAX: usize = 40;

/// What the threads of a process are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Rough,
    Calm,
    Leaving,
}

/// Another process: its number in the storm, that at this node, and where its memory is.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) id: usize,
    pub(crate) number: Rank,
    /// By which it is called; a rank of a job by its number.
    pub(crate) address: String,
    pub(crate) places: Places,
}

/// What the threads of a process share.
pub(crate) struct Shared {
    pub(crate) node: Node,
    pub(crate) id: usize,
    pub(crate) seed: u64,
    pub(crate) memory: Arc<Memory>,
    pub(crate) answers: Arc<Answers>,
    /// Whether memory may be unmapped that others know of.
    pub(crate) unmaps: bool,
    peers: Mutex<Vec<Known>>,
    live: Mutex<BTreeSet<usize>>,
    mode: AtomicU8,
    lost: Mutex<BTreeSet<usize>>,
    /// What all threads together have added to a word at each other process.
    common: Mutex<BTreeMap<usize, u64>>,
    doing: Mutex<BTreeMap<&'static str, (String, Instant)>>,
    line: Arc<Line>,
}

/// For each thread, which question was answered last, and how.
#[derive(Default)]
pub(crate) struct Answers([Mutex<(u64, u64)>; THREADS]);

impl Answers {
    /// The answer to the `n`-th question of a thread.
    pub(crate) fn to(&self, thread: usize, n: u64) -> Option<u64> {
        let (answered, value) = *self.0[thread].lock().expect("no panic");
        (answered == n).then_some(value)
    }

    fn come(&self, thread: usize, n: u64, value: u64) {
        let mut last = self.0[thread].lock().expect("no panic");
        // One who was lost meanwhile may answer late.
        if n > last.0 {
            *last = (n, value);
        }
    }
}

/// The line to the supervisor.
struct Line(Mutex<UnixStream>);

impl Line {
    fn say(&self, text: &str) {
        let mut stream = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Where the supervisor is gone, reading its orders ends this process.
        let _ = writeln!(stream, "{}", text.replace('\n', " / "));
    }
}

impl Shared {
    pub(crate) fn mode(&self) -> Mode {
        [Mode::Rough, Mode::Calm, Mode::Leaving][usize::from(self.mode.load(Ordering::SeqCst))]
    }

    fn turn(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
        self.node.wake();
    }

    /// Those who were met since so many had been.
    pub(crate) fn met_since(&self, count: usize) -> Vec<Known> {
        self.peers.lock().expect("no panic")[count..].to_vec()
    }

    /// Who lives once no more are killed.
    pub(crate) fn live(&self) -> BTreeSet<usize> {
        self.live.lock().expect("no panic").clone()
    }

    /// A call has told that this process is lost.
    pub(crate) fn lose(&self, id: usize, by: &str) {
        if self.lost.lock().expect("no panic").insert(id) {
            self.line.say(&format!("lost {id} {} {by}", monotonic_ns()));
        }
    }

    pub(crate) fn doing(&self, thread: &'static str, what: String) {
        self.doing.lock().expect("no panic").insert(thread, (what, Instant::now()));
    }

    pub(crate) fn added(&self, id: usize, sum: u64) {
        *self.common.lock().expect("no panic").entry(id).or_default() += sum;
    }

    pub(crate) fn say(&self, text: &str) {
        self.line.say(text);
    }

    fn state(&self) -> String {
        let doing = self.doing.lock().expect("no panic");
        let each =
            doing.iter().map(|(thread, (what, since))| format!("{thread}: {what} for {:?}", since.elapsed()));
        each.collect::<Vec<_>>().join("; ")
    }
}

/// What a process of the storm does.
pub(crate) fn run() {
    let name = std::env::var(LINE).expect("set by the supervisor");
    let name = SocketAddr::from_abstract_name(name).expect("a name");
    let stream = UnixStream::connect_addr(&name).expect("the supervisor listens");
    let orders = BufReader::new(stream.try_clone().expect("a descriptor"));
    let line = Arc::new(Line(Mutex::new(stream)));
    let last_words = Arc::clone(&line);
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        last_words.say(&format!("failed {}: {panic}", thread.name().unwrap_or("?")));
        // SAFETY: ends the process at once, whatever state its threads are in; nothing runs after it.
        unsafe { libc::_exit(101) }
    }));
    let shared = open(line);
    let threads = start(&shared);
    obey(shared, orders, threads);
}

fn open(line: Arc<Line>) -> Arc<Shared> {
    let seed = std::env::var(crate::SEED).expect("set by the supervisor").parse().expect("a number");
    let (memory, answers) = (Arc::new(OnceLock::new()), Arc::new(Answers::default()));
    let node = Node::shared(with_handlers(node_config(), &memory, &answers)).expect("a node");
    let id = std::env::var(ID).map_or(node.rank() as usize, |id| id.parse().expect("a number"));
    let made = Arc::new(Memory::new(&node));
    assert!(memory.set(Arc::clone(&made)).is_ok());
    // Who leaves frees nothing: others may use it until they know.
    std::mem::forget(Arc::clone(&made));
    line.say(&format!("id {id} {}", std::process::id()));
    let address = match std::env::var(ID) {
        Ok(_) => crate::verdict::hex(node.address().expect("a node that listens").as_bytes()),
        Err(_) => node.rank().to_string(),
    };
    line.say(&format!("open {address} {}", made.places()));
    // The broker's, whose name has the job's.
    let job = std::env::var("STANDPIPE_JOB").ok();
    for socket in job.into_iter().chain(crate::verdict::own_sockets()) {
        line.say(&format!("socket {socket}"));
    }
    let common = Mutex::default();
    let (peers, live, lost, doing) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
    let (mode, unmaps) = (AtomicU8::new(Mode::Rough as u8), std::env::var("STANDPIPE_STRATEGY").is_err());
    Arc::new(Shared {
        node,
        id,
        seed,
        memory: made,
        answers,
        unmaps,
        peers,
        live,
        mode,
        lost,
        common,
        doing,
        line,
    })
}

/// How a process opens its node, and each of its clients.
pub(crate) fn node_config() -> Config {
    let config = config().timeout(crate::supervisor::CALL_MAX);
    if std::env::var(ID).is_ok() { config.exposure(Exposure::Everything) } else { config }
}

fn with_handlers(config: Config, memory: &Arc<OnceLock<Arc<Memory>>>, answers: &Arc<Answers>) -> Config {
    let (renewed, landed, noted) = (Arc::clone(memory), Arc::clone(memory), Arc::clone(memory));
    let answers = Arc::clone(answers);
    let get = |memory: &OnceLock<Arc<Memory>>| Arc::clone(memory.get().expect("others are told of it later"));
    let kept: Mutex<VecDeque<(u64, Payload)>> = Mutex::default();
    let config = config.handler("ask", move |call| {
        let [n, thread, seed, len] = call.args();
        assert!(call.payload() == filled(seed, call.payload().len()), "a question of {}", call.from());
        let sum = checksum(call.payload());
        if seed % 3 == 0 {
            // Some outlive many others.
            let mut kept = kept.lock().expect("no panic");
            kept.push_back((seed, call.take_payload().expect("few are kept")));
            if kept.len() > KEPT_MAX {
                let (seed, payload) = kept.pop_front().expect("there are many");
                assert!(*payload == *filled(seed, payload.len()), "a question that was kept");
            }
        }
        answer(call, [thread, n, sum, seed + 1], &filled(seed + 1, len as usize));
    });
    let config = config.handler("renew", move |call| {
        let [n, thread, slot, what] = call.args();
        let (area, moves) = ((what >> 1) as usize, what & 1 == 1);
        let node = call.node();
        let place = get(&renewed).renew(&node.heap(), area, slot as usize, moves);
        answer(call, [thread, n, place, 0], &[]);
    });
    let config = config.handler("long", move |call| {
        let [n, thread, slot, what] = call.args();
        let (area, at) = ((what >> 32) as usize, (what & 0xffff_ffff) as usize);
        let (_, len) = call.landed().expect("a long one");
        let sum = get(&landed).sum(area, slot as usize, at, len as usize);
        answer(call, [thread, n, sum, 0], &[]);
    });
    let config = config.handler("note", move |call| {
        let [slot, number, ..] = call.args();
        let memory = get(&noted);
        let at = slot as usize * WORDS + NOTED;
        let before = memory.words.read(at);
        assert_eq!(before + 1, number, "notes of slot {slot} come in order, each once");
        memory.words.write(at, number);
    });
    config.handler("answer", move |call| {
        let [thread, n, value, seed] = call.args();
        assert!(call.payload() == filled(seed, call.payload().len()), "an answer of {}", call.from());
        answers.come(thread as usize, n, value);
    })
}

fn answer(call: &mut Call<'_>, args: [u64; 4], payload: &[u8]) {
    let answer = call.node().handler("answer").expect("registered");
    match call.reply_medium(answer, args, payload) {
        // It may be leaving itself.
        Ok(()) | Err(Error::PeerLost { .. } | Error::Closed { .. }) => {}
        Err(error) => panic!("an answer to {}: {error}", call.from()),
    }
}

type Thread = std::thread::JoinHandle<()>;

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Thread {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread")
}

/// The threads that work until all is calm.
fn start(shared: &Arc<Shared>) -> Vec<Thread> {
    let mut threads: Vec<Thread> = (0..THREADS)
        .map(|index| {
            let mut worker = Worker::new(Arc::clone(shared), index);
            spawn(worker.name(), move || worker.run())
        })
        .collect();
    if shared.node.size() > 1 {
        let teams = Teams::new(Arc::clone(shared));
        threads.push(spawn("teams", move || teams.run()));
    }
    shared.say("ready");
    threads
}

/// Meets others, one after the other.
fn meet(shared: &Shared, others: &Receiver<(usize, String, Places)>) {
    for (id, address, places) in others {
        shared.doing("meeter", format!("meeting {id}"));
        let begun = Instant::now();
        let number = match shared.node.size() {
            1 => shared.node.connect_to(crate::verdict::unhex(&address)).map_err(|error| error.to_string()),
            _ => Ok(address.parse().expect("a rank")),
        };
        match number {
            Ok(number) => {
                shared.peers.lock().expect("no panic").push(Known { id, number, address, places });
                shared.say(&format!("met {id} {}", begun.elapsed().as_micros()));
            }
            Err(error) => shared.say(&format!("unmet {id} {} {error}", begun.elapsed().as_micros())),
        }
        shared.doing("meeter", "nothing".into());
    }
}

/// Says as soon as it can whom the library knows to be lost, whatever is under way with them.
fn watch(shared: &Shared) {
    let mut told = BTreeSet::new();
    while shared.mode() != Mode::Leaving {
        let lost = shared.node.lost_peers();
        for peer in shared.met_since(0).iter().filter(|peer| lost.contains(&peer.number)) {
            if told.insert(peer.id) {
                shared.say(&format!("noticed {} {}", peer.id, monotonic_ns()));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The reader does nothing for longer: each of its waits is to end after milliseconds.
const STUCK: Duration = Duration::from_secs(5);

/// Says what each thread of this process is in, should the reader be stuck.
fn witness(shared: &Shared) {
    while shared.mode() != Mode::Leaving {
        let since = shared.doing.lock().expect("no panic").get("reader").map(|(_, since)| *since);
        if since.is_some_and(|since| since.elapsed() > STUCK) {
            return shared.say(&format!("state stuck: {}", threads().join("; ")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Of each thread its name, its state, and the system call that it is in, with what the first argument is if
/// that is a descriptor.
fn threads() -> Vec<String> {
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let thread = |task: PathBuf| {
        let (name, call) = (text(task.join("comm")), text(task.join("syscall")));
        let state = text(task.join("stat")).rsplit(") ").next().and_then(|rest| rest.chars().next());
        let first =
            call.split(' ').nth(1).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let open = first.and_then(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok());
        format!("{name} {} {call} {}", state.unwrap_or('?'), open.unwrap_or_default().display())
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process has threads").flatten();
    tasks.map(|task| thread(task.path())).collect()
}

/// Does as it is ordered, until it is to leave or to end: then the node is closed, by a thread of its own, so
/// that orders are heard meanwhile, and after that this process.
fn obey(shared: Arc<Shared>, orders: impl BufRead, threads: Vec<Thread>) {
    let (to_meet, others) = channel();
    let (meeter, watcher, watched) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    let (host, owner, user) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    let mut reader = Reader::new(Arc::clone(&shared));
    let mut helpers = vec![
        spawn("meeter", move || meet(&meeter, &others)),
        spawn("guest", move || crate::guests::come_and_go(&host)),
        spawn("owner", move || crate::grants::come_and_go(&owner)),
        spawn("user", move || crate::grants::reach(&user)),
        spawn("watcher", move || watch(&watcher)),
        spawn("witness", move || witness(&watched)),
        spawn("reader", move || reader.run()),
    ];
    // A process of a job has one node.
    if shared.node.size() == 1 {
        let passed = Arc::clone(&shared);
        helpers.push(spawn("passer", move || crate::passers::come_and_go(&passed)));
    }
    let (mut threads, mut rest) = (Some(threads), Some((helpers, to_meet, Arc::clone(&shared))));
    let shared_by_others = Arc::downgrade(&shared);
    drop(shared);
    for order in orders.lines().map_while(Result::ok) {
        let Some(shared) = shared_by_others.upgrade() else { continue };
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["meet", id, address, places] => {
                let id = id.parse().expect("a number");
                let Some((_, to_meet, _)) = &rest else { continue };
                to_meet.send((id, address.to_owned(), Places::parse(places))).expect("it meets others");
            }
            ["state"] => shared.say(&format!("state {}", shared.state())),
            ["calm", live] => {
                *shared.live.lock().expect("no panic") =
                    live.split(',').map(|id| id.parse().expect("a number")).collect();
                shared.turn(Mode::Calm);
                let threads = threads.take().expect("told once");
                spawn("calm", move || calm(&shared, threads));
            }
            ["check", total] => {
                let found = shared.memory.word(slot(0, 0), EVERYBODY);
                assert_eq!(found.to_string(), total, "what everybody has added here");
                shared.say("checked");
            }
            ["leave"] => {
                shared.turn(Mode::Leaving);
                let (mut all, to_meet, own) = rest.take().expect("told once");
                drop(to_meet);
                all.extend(threads.take().into_iter().flatten());
                spawn("leaver", move || leave(own, all));
            }
            _ => panic!("no order: {order}"),
        }
    }
    // Nobody is left to order it about, or to hear it.
    std::process::exit(102);
}

/// Ends the threads, the node, and the process.
fn leave(shared: Arc<Shared>, threads: Vec<Thread>) {
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    shared.doing("leaver", "closing the node".into());
    let line = Arc::clone(&shared.line);
    let mut shared = Some(shared);
    // Whoever hears orders may be at one.
    while let Some(used) = shared.take() {
        shared = Arc::try_unwrap(used).map(drop).err();
    }
    line.say("left");
    std::process::exit(0);
}

/// Lets the threads come to their ends, and looks at what they did together.
fn calm(shared: &Shared, threads: Vec<Thread>) {
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let sums = shared.common.lock().expect("no panic").clone();
    for peer in shared.met_since(0).iter().filter(|peer| shared.live().contains(&peer.id)) {
        let word = peer.places.word::<u64>(peer.number, slot(shared.id, 0), COMMON);
        let found = shared.node.get(word).expect("it lives");
        assert_eq!(Some(&found), sums.get(&peer.id), "what this process's threads have added at {}", peer.id);
    }
    shared.say("verified");
}
