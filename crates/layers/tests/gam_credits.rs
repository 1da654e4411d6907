//! Generic Active Messages between two processes: credits that come back several at once, the longest stores,
//! and a peer that gives back what it was not asked for. Over shared memory, and over a network where there
//! is one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use layers::gam::{Arguments, CREDITS, Function, Gam, GamError, MAX_SIZE, Program};
use standpipe::launch::Launch;
use standpipe::{AllMemory, Config, HandlerId, Node, ProgressThread, Rank};

/// The variable of the environment that has a process play a part.
const ROLE: &str = "GAM_TEST_ROLE";

/// Counts.
const COUNT: Function = 0x1000;
/// Keeps its word.
const KEEP: Function = 0x2000;
/// Replies with the bytes that a store has brought, to the address that is its argument.
const BOUNCE: Function = 0x3000;

type Layer = Gam<Noting>;

#[derive(Default)]
struct Noting {
    came: AtomicU64,
    bytes: AtomicU64,
    kept: AtomicU64,
    layer: OnceLock<Weak<Layer>>,
}

impl Program for Noting {
    fn has_function(&self, function: Function) -> bool {
        [COUNT, KEEP, BOUNCE].contains(&function)
    }

    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>) {
        match arguments {
            Arguments::Words([addr]) if function == KEEP => self.kept.store(*addr, Ordering::Release),
            Arguments::Memory { addr, len, arg } if function == BOUNCE => self.bounce(from, (addr, len), arg),
            Arguments::Memory { len, .. } => _ = self.bytes.fetch_add(len as u64, Ordering::Release),
            _ => {}
        }
        self.came.fetch_add(1, Ordering::Release);
    }
}

impl Noting {
    fn bounce(&self, from: Rank, (addr, len): (u64, usize), to: u64) {
        let layer = self.layer.get().and_then(Weak::upgrade).expect("it is open");
        let bytes = std::ptr::with_exposed_provenance(addr as usize);
        let reply = |len| layer.reply_xfer(from.into(), (bytes, len), to, (COUNT, 0));
        assert_eq!(reply(MAX_SIZE as i64 + 1), Err(too_long()));
        assert_eq!(reply(len as i64), Ok(()));
    }

    fn came(&self) -> u64 {
        self.came.load(Ordering::Acquire)
    }
}

fn too_long() -> GamError {
    GamError::Size { bytes: 16_385, most: 16_384 }
}

/// Plays a part in two processes, over each transport that there is.
fn two(role: &str) {
    let named = std::env::var("STANDPIPE_TRANSPORT").ok();
    let has_network = standpipe::network::look_for(Some("tcp")).is_ok();
    if !has_network {
        testbed::skip("no libfabric with the provider tcp");
    }
    for transport in ["shm", "ofi:tcp"] {
        let is_wanted = named.as_deref().is_none_or(|named| named == transport);
        if is_wanted && (transport == "shm" || has_network) {
            two_over(role, transport);
        }
    }
}

fn two_over(role: &str, transport: &str) {
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    let launch = Launch::new("/proc/self/exe").args(["--exact", "child", "--nocapture"]);
    let launch = launch.env(ROLE, role).env("STANDPIPE_TRANSPORT", transport).ranks(2).say(|_| {});
    let launch = launch.on_line(move |_, _, line| {
        let mut said = heard.lock().expect("no panic");
        *said += &String::from_utf8_lossy(line);
        said.push('\n');
    });
    let outcome = launch.run().expect("the job starts");
    let said = said.lock().expect("no panic");
    assert_eq!(outcome.status(), 0, "{role} over {transport}: {outcome:?}\n{said}");
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::abort();
    });
    let node = Node::shared(Config::from_env().expect("a job's").progress(ProgressThread::Off));
    let node = node.expect("the job is there");
    if role == "hostile" && node.rank() == 1 {
        return hostile(&node);
    }
    // SAFETY: the processes name buffers of theirs that last until both have closed the layer.
    let memory = unsafe { AllMemory::promised() };
    let gam = Arc::new(Layer::new(node.clone(), memory, Noting::default()).expect("the layer opens"));
    gam.program().layer.get_or_init(|| Arc::downgrade(&gam));
    gam.join().expect("both come");
    match role.as_str() {
        "longest" => longest(&gam),
        "one way" => flood(&gam, [gam.my_proc() == 0, gam.my_proc() == 1]),
        "both ways" => flood(&gam, [true, true]),
        "a few" => a_few(&gam, &node),
        "idle" => idle(&gam, &node),
        "hostile" => victim(&gam),
        other => panic!("there is no part {other}"),
    }
    if role != "hostile" {
        gam.close().expect("both leave");
        assert_eq!(gam.refused(), 0);
    }
    if role.ends_with("way") || role.ends_with("ways") {
        // The other one has left, and so has had every reply.
        assert_eq!(gam.null_replies(), gam.handled());
    }
}

fn other(gam: &Layer) -> i64 {
    i64::from(1 - gam.my_proc())
}

fn wait(gam: &Layer, done: impl Fn() -> bool) {
    while !done() {
        gam.poll_idle().expect("the other one lives");
    }
}

/// Tells the other one where the buffer lies: where that one's does.
fn exchange(gam: &Layer, buffer: &mut [u8]) -> u64 {
    let addr = buffer.as_mut_ptr().expose_provenance() as u64;
    gam.request(other(gam), KEEP, &Arguments::Words(&[addr])).expect("a word");
    wait(gam, || gam.program().kept.load(Ordering::Acquire) != 0);
    gam.program().kept.load(Ordering::Acquire)
}

#[test]
fn the_longest_stores_gets_and_replies_carry_16384_bytes_and_no_more() {
    two("longest");
}

fn longest(gam: &Layer) {
    assert_eq!(MAX_SIZE, 16_384);
    // The bit that the layer itself uses.
    let function = COUNT | 1 << 62;
    let marked = gam.request(other(gam), function, &Arguments::Words(&[]));
    assert_eq!(marked, Err(GamError::NotAFunction { function }));
    let (most, over) = (16_384, 16_385);
    // Two places: one for the other one's stores, one for its replies.
    let mut inbox = vec![0_u8; 2 * MAX_SIZE];
    let pattern = |seed: u32| move |at: usize| (at * 7 + (at >> 8)) as u8 ^ seed as u8;
    let source: Vec<u8> = (0..MAX_SIZE + 1).map(pattern(gam.my_proc())).collect();
    let mut got = vec![0_u8; MAX_SIZE + 1];
    let (to, there) = (other(gam), exchange(gam, &mut inbox));
    // The other one's address. It may have gone on since.
    let came = 1;
    let here = inbox.as_mut_ptr().expose_provenance() as u64 + MAX_SIZE as u64;
    assert_eq!(gam.store(to, source.as_ptr(), there, over, (COUNT, 0)), Err(too_long()));
    assert_eq!(gam.store_async(to, source.as_ptr(), there, over, (COUNT, 0), (COUNT, 0)), Err(too_long()));
    assert_eq!(gam.get(to, there, got.as_mut_ptr(), over, (COUNT, 0)), Err(too_long()));
    gam.store(to, source.as_ptr(), there, most, (BOUNCE, here)).expect("a store");
    // That of the other one, and the reply to this one's.
    wait(gam, || gam.program().came() == came + 2);
    let (stored, replied) = inbox.split_at(MAX_SIZE);
    assert!(replied == &source[..MAX_SIZE], "it came back as it was");
    let theirs: Vec<u8> = (0..MAX_SIZE).map(pattern(1 - gam.my_proc())).collect();
    assert!(stored == theirs, "it came as it was");
    gam.barrier().expect("both come");
    gam.get(to, there, got.as_mut_ptr(), most, (COUNT, 0)).expect("a get");
    wait(gam, || gam.program().came() == came + 3);
    assert!(got[..MAX_SIZE] == source[..MAX_SIZE] && got[MAX_SIZE] == 0, "it is there, and no more");
    gam.barrier().expect("both come");
    gam.store_async(to, source.as_ptr(), there, most, (COUNT, 0), (COUNT, 0)).expect("another store");
    // Its end, and that of the other one.
    wait(gam, || gam.program().came() == came + 5);
    assert_eq!(gam.program().bytes.load(Ordering::Relaxed), 4 * MAX_SIZE as u64);
}

#[test]
fn one_process_may_send_another_more_than_there_are_credits() {
    two("one way");
}

#[test]
fn two_processes_may_send_each_other_more_than_there_are_credits() {
    two("both ways");
}

/// Each silent request, and each store: none of their handlers replies.
const MANY: u64 = 1_003;

fn flood(gam: &Layer, [sends, receives]: [bool; 2]) {
    let mut inbox = vec![0_u8; MAX_SIZE];
    let source = vec![gam.my_proc() as u8 + 1; MAX_SIZE];
    let there = exchange(gam, &mut inbox);
    if sends {
        for number in 0..MANY {
            gam.request(other(gam), COUNT, &Arguments::Words(&[number])).expect("a request");
            let sent = gam.store(other(gam), source.as_ptr(), there, MAX_SIZE as i64, (COUNT, 0));
            sent.expect("a store");
        }
    }
    if receives {
        wait(gam, || gam.program().came() == 1 + 2 * MANY);
        assert!(inbox.iter().all(|byte| i64::from(*byte) == other(gam) + 1));
    }
    // The inbox stays until both have left.
    gam.barrier().expect("both come");
}

#[test]
fn a_process_that_has_used_few_credits_gets_them_back_to_leave() {
    two("a few");
}

/// As many as their receiver keeps back, which has nothing to give back in idle polls.
fn a_few(gam: &Layer, node: &Node) {
    if gam.my_proc() == 0 {
        for number in 0..u64::from(CREDITS / 2 - 1) {
            gam.request(1, COUNT, &Arguments::Words(&[number])).expect("a request");
        }
        return;
    }
    let few = u64::from(CREDITS / 2 - 1);
    // Without a poll of the layer's, none of which finds nothing.
    while gam.null_replies() < few {
        node.progress();
    }
}

#[test]
fn thirty_requests_leave_at_once_after_earlier_ones_were_handled() {
    // A network takes fewer until they are received.
    two_over("idle", "shm");
}

/// Process 1 handles a few requests, looks for more in vain, and polls no more. The two tell each other by
/// words of their heaps, without a poll.
fn idle(gam: &Layer, node: &Node) {
    let flags = node.heap().alloc_zeroed::<u64>(2).expect("there is room");
    gam.barrier().expect("both have them");
    let tell = |flag: usize| {
        let there = flags.ptr(flag).at(1 - node.rank());
        node.put(there, 1_u64).expect("it lives");
    };
    let await_flag = |flag: usize| {
        while flags.read(flag) == 0 {
            std::thread::yield_now();
        }
    };
    if gam.my_proc() == 0 {
        for number in 0..u64::from(CREDITS / 2 - 1) {
            gam.request(1, COUNT, &Arguments::Words(&[number])).expect("a request");
        }
        await_flag(0);
        // It takes what has been given back, if it needs it.
        for number in 0..u64::from(CREDITS) {
            gam.request(1, COUNT, &Arguments::Words(&[number])).expect("it waits for nobody");
        }
        tell(1);
    } else {
        wait(gam, || gam.program().came() == u64::from(CREDITS / 2 - 1));
        let end = Instant::now() + Duration::from_millis(50);
        while Instant::now() < end {
            gam.poll_idle().expect("the other one lives");
        }
        tell(0);
        await_flag(1);
    }
    gam.barrier().expect("both come");
}

#[test]
fn credits_that_were_not_taken_are_refused_and_those_that_were_come_back() {
    two("hostile");
}

/// Credits that a hostile peer gives back, and how many messages or replies the layer refuses then.
const RETURNED: [(u64, u64); 6] = [(2, 2), (0, 1), (32, 1), (u64::MAX, 1), (6, 6), (1 << 32, 1)];

fn victim(gam: &Layer) {
    wait(gam, || gam.refused() == 3);
    let mut refused = 3;
    for (returned, more) in RETURNED {
        refused += more;
        gam.request(1, COUNT, &Arguments::Words(&[returned])).expect("a credit is left");
        wait(gam, || gam.refused() == refused);
    }
    // All that are out by now, this one's included.
    let all = RETURNED.len() as u64 + 1;
    gam.request(1, COUNT, &Arguments::Words(&[all])).expect("a credit is left");
    for _ in 0..4 * CREDITS {
        gam.request(1, COUNT, &Arguments::Words(&[1])).expect("they come back");
    }
    gam.close().expect("all have come back");
    assert_eq!(gam.refused(), refused);
}

/// Another program by the same names: it replies by as many empty replies as it is told.
fn hostile(node: &Node) {
    let id = |name| HandlerId::of("gam", name);
    node.register("gam", "words 1", move |call| {
        let [_, returned, ..] = call.args();
        call.reply(id("null"), [returned, 0, 0, 0]).expect("it is due");
    })
    .expect("it is free");
    node.register("gam", "leave", |_| {}).expect("it is free");
    let team = node.world_of("gam").expect("the layer's");
    team.barrier().expect("both come");
    node.request(0, id("returned"), [1, 0, 0, 0]).expect("it is there");
    node.request(0, id("returned"), [u64::MAX; 4]).expect("it is there");
    node.request_medium(0, id("returned"), [1, 0, 0, 0], &[7]).expect("it is there");
    team.all_gather_nb(vec![1_u8]).wait().0.expect("the other one comes to leave");
    node.clone().close(Duration::from_secs(5)).expect("both leave");
}
