//! Jobs of real processes: every rank is the test program again, running its test named `child` alone, in a
//! role.
//!
//! A test file that uses this has a test `child` that returns at once where [`role`] gives nothing, and does
//! what the role says otherwise. In a program of several files, such as `jobs`, each has its own.
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::BTreeSet;
use std::fmt::Display;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use standpipe::launch::{End, Launch, Outcome};
use standpipe::{Config, GetPiece, GlobalPtr, Node, PutPiece, Rank, Remote};

/// No call of a test takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// No rank and no launcher of a test lives longer, unless it says so.
const LIFE: Duration = Duration::from_secs(120);

const ROLE: &str = "STANDPIPE_TEST_ROLE";
/// The folder of the test program whose files are modules with a `child` each.
const JOBS: &str = "tests/jobs/";
/// Tells a role's lines from those of the test harness around it.
const MARK: &str = "@@";

/// What this process is to do, if it is a rank or launcher of a test. It then ends by itself, come what may.
pub(crate) fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    die_after(LIFE);
    Some(role)
}

/// Ends this process then, however it hangs.
pub(crate) fn die_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        eprintln!("a test process still ran after {time:?}");
        std::process::abort();
    });
}

/// Of a test program, what makes it play a role alone, if `asks` wants that.
///
/// # Panics
/// Where that file has no test `child`: the harness runs nothing then, and says that all is well.
fn as_child(asks: &Location<'_>) -> [String; 3] {
    static THERE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let file = asks.file().split_once(JOBS).map(|(_, file)| file.trim_end_matches(".rs"));
    let child = file.map_or_else(|| "child".to_owned(), |file| format!("{file}::child"));
    if THERE.lock().unwrap_or_else(PoisonError::into_inner).insert(child.clone()) {
        let list = std::process::Command::new("/proc/self/exe").args(["--list", "--exact", &child]).output();
        let listed = String::from_utf8_lossy(&list.expect("this program runs").stdout).into_owned();
        assert!(listed.contains(&format!("{child}: test")), "no test {child}, which {asks} asks for");
    }
    ["--exact".to_owned(), child, "--nocapture".to_owned()]
}

/// This very program, whoever may search its folder, and the arguments that make it play a role that the
/// caller's file has.
#[track_caller]
pub(crate) fn itself(role: &str) -> std::process::Command {
    in_role(std::process::Command::new("/proc/self/exe"), role)
}

/// A test program, with the arguments that make it play a role that the caller's file has.
#[track_caller]
pub(crate) fn in_role(mut program: std::process::Command, role: &str) -> std::process::Command {
    program.args(as_child(Location::caller())).env(ROLE, role);
    program
}

/// A job whose ranks play `role`, which the caller's file has.
#[track_caller]
pub(crate) fn job_of(ranks: u32, role: &str) -> Launch {
    job_in_role(Launch::new("/proc/self/exe"), ranks, role)
}

/// The same of another test program, or of what becomes one.
#[track_caller]
pub(crate) fn job_in_role(program: Launch, ranks: u32, role: &str) -> Launch {
    program.args(as_child(Location::caller())).env(ROLE, role).ranks(ranks)
}

/// The transport over the network that every machine with libfabric has, if this one does.
pub(crate) fn network() -> Option<&'static str> {
    let hints = fabric::Hints { provider: Some("tcp".into()), ..fabric::Hints::default() };
    let all = fabric::Fabric::load().ok().and_then(|fabric| fabric.providers(&hints).ok());
    if all.is_none_or(|all| all.is_empty()) {
        testbed::skip("no libfabric with the provider tcp");
        return None;
    }
    Some("ofi:tcp")
}

/// Writes a line for [`Heard`] to find.
pub(crate) fn say(text: impl Display) {
    println!("{MARK}{text}");
}

/// The part of a line that [`say`] wrote.
pub(crate) fn said(line: &str) -> Option<&str> {
    line.split_once(MARK).map(|(_, text)| text)
}

/// What the ranks of a job write.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    lines: Arc<Mutex<Vec<(Rank, String)>>>,
}

impl Heard {
    /// Runs the job to its end.
    pub(crate) fn run(&self, launch: Launch) -> Outcome {
        let lines = Arc::clone(&self.lines);
        let launch = launch.on_line(move |rank, _, line| {
            let line = String::from_utf8_lossy(line).into_owned();
            lines.lock().expect("no panic").push((rank, line));
        });
        launch.say(|_| {}).run().expect("the job starts")
    }

    /// Runs the job, and wants every rank to end well.
    pub(crate) fn run_well(&self, launch: Launch) {
        let outcome = self.run(launch);
        assert!(outcome.ranks.iter().all(|rank| rank.end == End::Exited(0)), "{outcome:?}\n{}", self.all());
    }

    /// What `rank` has said so far.
    pub(crate) fn said(&self, rank: Rank) -> Vec<String> {
        let lines = self.lines.lock().expect("no panic");
        let lines = lines.iter().filter(|(from, _)| *from == rank);
        lines.filter_map(|(_, line)| said(line)).map(str::to_owned).collect()
    }

    /// Everything written so far, for a person to read.
    pub(crate) fn all(&self) -> String {
        let lines = self.lines.lock().expect("no panic");
        lines.iter().map(|(rank, line)| format!("[{rank}] {line}\n")).collect()
    }
}

/// Whether `condition` comes true in time.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + LIMIT;
    while !condition() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Whether there is such a process, not counting one that is dead and not yet reaped.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// What tests open their nodes with: nothing waits for ever.
pub(crate) fn config() -> Config {
    Config::from_env().expect("good settings").heap_bytes(64 << 20).timeout(LIMIT)
}

/// Memory of an ordinary vector that peers may read and write.
pub(crate) struct Private {
    bytes: Vec<AtomicU8>,
}

impl Private {
    /// `len` bytes of zero.
    pub(crate) fn new(len: usize) -> Private {
        Private { bytes: (0..len).map(|_| AtomicU8::new(0)).collect() }
    }

    pub(crate) fn from(bytes: &[u8]) -> Private {
        Private { bytes: bytes.iter().map(|byte| AtomicU8::new(*byte)).collect() }
    }

    /// Lets every rank know where the memory is.
    pub(crate) fn show(&self, node: &Node, name: &str) {
        publish(node, name, [self.addr(), self.bytes.len() as u64]);
    }

    /// Where the first byte is.
    pub(crate) fn addr(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn byte(&self, index: usize) -> u8 {
        self.bytes[index].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, index: usize, value: u8) {
        self.bytes[index].store(value, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }
}

/// The [`Private`] memory that `peer` shows under a name.
pub(crate) fn private_of(node: &Node, peer: Rank, name: &str) -> Remote {
    let [addr, _] = look_up(node, peer, name);
    // SAFETY: bytes of a `Private`, which takes writes by others at any time; its owner keeps it until
    // everyone has met at the job's last barrier or is gone.
    unsafe { Remote::raw(peer, addr) }
}

/// Publishes two words of this rank.
pub(crate) fn publish(node: &Node, name: &str, words: [u64; 2]) {
    let name = format!("{name} of {}", node.rank());
    node.directory().publish(&name, bytemuck::bytes_of(&words)).expect("published");
}

/// Bytes of memory that this process has to itself.
pub(crate) fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("it is there");
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line of it");
    let kib = line.split_ascii_whitespace().next().expect("a number");
    kib.parse::<u64>().expect("a number") << 10
}

/// The words that `peer` publishes under a name.
pub(crate) fn look_up(node: &Node, peer: Rank, name: &str) -> [u64; 2] {
    let value = node.directory().wait(&format!("{name} of {peer}"), LIMIT).expect("every rank publishes it");
    bytemuck::pod_read_unaligned(&value)
}

/// The heap array that `peer` publishes under a name.
pub(crate) fn heap_of<T>(node: &Node, peer: Rank, name: &str) -> GlobalPtr<T> {
    GlobalPtr::from_words(look_up(node, peer, name))
}

/// Puts a list of pieces to a peer's memory at three places, of 3,000, 9,000 and 10 bytes, and gets it back.
pub(crate) fn scatter(node: &Node, places: [Remote; 3]) {
    let parts = [pattern(7, 3000), pattern(8, 9000), pattern(9, 10)];
    let pieces: Vec<PutPiece<'_>> =
        places.iter().zip(&parts).map(|(to, from)| PutPiece { to: *to, from }).collect();
    node.put_list(&pieces).expect("put");
    let mut got = [vec![0; 3000], vec![0; 9000], vec![0; 10]];
    let mut pieces: Vec<GetPiece<'_>> =
        places.iter().zip(&mut got).map(|(from, into)| GetPiece { from: *from, into }).collect();
    node.get_list(&mut pieces).expect("get");
    assert!(got == parts, "the list comes back");
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.map(|pair| byte(pair).expect("digits")).collect()
}

/// Bytes that nobody would write by accident: by sender, receiver and purpose.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

/// A small generator of numbers that are the same for the same seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
