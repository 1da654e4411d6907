//! A launched rank that waits in somebody else's wait is served all the same: a thread of the library polls
//! where the program does not, and keeps out of the way where it does.

use crate::support;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use standpipe::{Error, GlobalPtr, Node, Reduction, Remote};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{Heard, LIMIT, Private, config, job_of, pattern, private_of, say};

/// Requests of a client.
const REQUESTS: u64 = 50;

/// Messages that handlers of this process have heard, and of them those on a thread of the library's.
static HEARD: AtomicU64 = AtomicU64::new(0);
static HEARD_BY_OURS: AtomicU64 = AtomicU64::new(0);

/// Settings of a job by each transport.
fn ways() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut ways = vec![vec![]];
    ways.extend(support::network().map(|name| vec![("STANDPIPE_TRANSPORT", name)]));
    ways
}

fn run_everywhere(ranks: u32, role: &str) {
    for settings in ways() {
        run_with(ranks, role, &settings);
    }
}

/// Runs a job whose ranks must end well.
fn run_with(ranks: u32, role: &str, settings: &[(&str, &str)]) {
    println!("{role}, {settings:?}");
    let heard = Heard::default();
    heard.run_well(settings.iter().fold(job_of(ranks, role), |job, (name, value)| job.env(name, value)));
    println!("{}", heard.all());
}

#[test]
fn a_channel_that_a_handler_fills_gets_its_messages() {
    run_everywhere(2, "channel");
}

#[test]
fn a_task_that_awaits_a_channel_which_a_handler_fills_is_woken() {
    run_everywhere(2, "task");
}

#[test]
fn private_memory_is_reached_by_message_while_its_owner_waits_elsewhere() {
    run_with(2, "private", &[("STANDPIPE_ATTACH", "never")]);
}

#[test]
fn a_collective_goes_on_at_a_member_that_waits_elsewhere() {
    run_everywhere(4, "member");
}

#[test]
fn who_polls_again_is_left_alone() {
    run_with(2, "again", &[]);
}

#[test]
fn who_stands_by_sleeps() {
    run_with(2, "idle", &[]);
}

/// Nobody serves a rank under `off`: whoever waits in vain is told of the setting.
#[test]
fn a_deadline_that_passes_names_the_setting_of_who_is_not_served() {
    for settings in ways() {
        let own = [("STANDPIPE_PROGRESS", "off"), ("STANDPIPE_ATTACH", "never")];
        run_with(2, "late", &[&own[..], &settings].concat());
    }
}

#[test]
fn a_wait_without_a_deadline_says_once_in_the_log_for_whom_it_waits() {
    for settings in ways() {
        let own = [("STANDPIPE_PROGRESS", "off"), ("STANDPIPE_ATTACH", "never")];
        run_with(2, "log", &[&own[..], &settings].concat());
        run_with(2, "log", &[&own[..], &settings, &[("STANDPIPE_TEST_AWAITS", "1")]].concat());
    }
}

#[test]
fn child() {
    let Some(role) = support::role() else { return };
    match role.as_str() {
        "channel" => channel(),
        "task" => task(),
        "private" => private(),
        "member" => member(),
        "again" => again(),
        "idle" => idle(),
        "late" => late(),
        "log" => log(),
        _ => panic!("no role: {role}"),
    }
}

fn is_ours() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("standpipe"))
}

fn count() {
    HEARD_BY_OURS.fetch_add(u64::from(is_ours()), Ordering::SeqCst);
    HEARD.fetch_add(1, Ordering::SeqCst);
}

/// A node that sends on what it hears, and counts answers.
fn node_with(send_on: impl FnMut(u64) + Send + 'static) -> Node {
    let send_on = Mutex::new(send_on);
    let hear = move |call: &mut standpipe::Call<'_>| {
        let value = call.args()[0];
        (send_on.lock().expect("no panic"))(value);
    };
    Node::open(config().handler("hear", hear).handler("count", |_| count())).expect("a node")
}

/// Asks for answers, one after the other, and says how long they took.
fn ask(node: &Node) {
    let (hear, begun) = (node.handler("hear").expect("registered"), Instant::now());
    let mut first = Duration::ZERO;
    for request in 1..=REQUESTS {
        node.request(0, hear, [request, 0, 0, 0]).expect("sent");
        node.wait_until(|| HEARD.load(Ordering::SeqCst) == request).expect("answered");
        if request == 1 {
            first = begun.elapsed();
        }
    }
    say(format!("first {first:?}, others {:?}", (begun.elapsed() - first) / (REQUESTS - 1) as u32));
}

/// A server that does nothing but wait in a channel, and a client.
fn channel() {
    let (sender, receiver) = mpsc::channel();
    let node = node_with(move |value| sender.send(value).expect("it receives"));
    node.barrier().expect("barrier");
    match node.rank() {
        0 => {
            let answer = node.handler("count").expect("registered");
            for request in 1..=REQUESTS {
                assert_eq!(receiver.recv_timeout(LIMIT), Ok(request), "nobody runs the handler");
                node.request(1, answer, [0; 4]).expect("sent");
            }
        }
        _ => ask(&node),
    }
    node.barrier().expect("barrier");
}

/// As [`channel`], under tokio.
fn task() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let node = node_with(move |value| sender.send(value).expect("it receives"));
    node.barrier().expect("barrier");
    match node.rank() {
        0 => {
            let answer = node.handler("count").expect("registered");
            let serve = async {
                for request in 1..=REQUESTS {
                    assert_eq!(receiver.recv().await, Some(request));
                    node.request(1, answer, [0; 4]).expect("sent");
                }
            };
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(serve);
        }
        _ => ask(&node),
    }
    node.barrier().expect("barrier");
}

/// An owner that waits in a channel until its memory has been got.
fn private() {
    let (sender, receiver) = mpsc::channel();
    let node = node_with(move |value| sender.send(value).expect("it receives"));
    let memory = Private::from(&pattern(u64::from(node.rank()), 20_000));
    memory.show(&node, "memory");
    node.barrier().expect("barrier");
    match node.rank() {
        0 => assert_eq!(receiver.recv_timeout(LIMIT), Ok(7)),
        _ => {
            let (result, bytes) = node.get_nb(private_of(&node, 0, "memory"), vec![0; 20_000]).wait();
            assert_eq!((result, bytes), (Ok(()), pattern(0, 20_000)));
            node.request(0, node.handler("hear").expect("registered"), [7, 0, 0, 0]).expect("sent");
        }
    }
    node.barrier().expect("barrier");
}

/// Members of a collective, of which all but rank 0 begin it, and then make no call until it is over there.
fn member() {
    let node = Node::open(config()).expect("a node");
    let is_over = node.heap().alloc_zeroed::<u64>(1).expect("room");
    support::publish(&node, "over", is_over.ptr(0).to_words());
    let all: Vec<GlobalPtr<u64>> =
        (0..node.size()).map(|rank| GlobalPtr::from_words(support::look_up(&node, rank, "over"))).collect();
    node.barrier().expect("barrier");
    let event = node.world().all_reduce_nb(vec![u64::from(node.rank()); 1000], Reduction::Sum);
    if node.rank() == 0 {
        assert_eq!(event.wait(), (Ok(()), vec![6; 1000]));
        all.into_iter().for_each(|word| node.put(word, 1).expect("put"));
    } else {
        assert!(support::eventually(|| is_over.read(0) == 1), "rank 0 waits");
        assert_eq!(event.wait(), (Ok(()), vec![6; 1000]));
    }
    node.barrier().expect("barrier");
}

/// How often the progress thread has gone to sleep. It gives itself its name, in its own time.
fn sleeps() -> u64 {
    let mut sleeps = None;
    support::eventually(|| {
        sleeps = sleeps_now();
        sleeps.is_some()
    });
    sleeps.expect("there is one")
}

fn sleeps_now() -> Option<u64> {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let statuses =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let mut ours =
        statuses.filter(|status| status.lines().next().is_some_and(|line| line.ends_with("standpipe-progr")));
    let status = ours.next()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
}

/// A server that is served while it waits in a channel, and then polls itself.
fn again() {
    let (sender, receiver) = mpsc::channel();
    let node = node_with(move |value| {
        count();
        sender.send(value).expect("it receives");
    });
    node.barrier().expect("barrier");
    let hear = node.handler("hear").expect("registered");
    if node.rank() == 0 {
        assert_eq!(receiver.recv_timeout(LIMIT), Ok(7));
        assert_eq!(HEARD_BY_OURS.load(Ordering::SeqCst), 1, "this thread was in the channel");
    } else {
        node.request(0, hear, [7, 0, 0, 0]).expect("sent");
        HEARD.fetch_add(1, Ordering::SeqCst);
    }
    node.barrier().expect("barrier");
    let (begun, before, rounds) = (Instant::now(), sleeps(), 3000);
    for round in 2..rounds + 2 {
        if node.rank() == 1 {
            node.request(0, hear, [round, 0, 0, 0]).expect("sent");
        }
        node.wait_until(|| HEARD.load(Ordering::SeqCst) == round).expect("heard");
        if node.rank() == 0 {
            node.request(1, hear, [round, 0, 0, 0]).expect("sent");
        }
    }
    let looks = begun.elapsed().as_millis() as u64 / 10;
    let (ours, slept) = (HEARD_BY_OURS.load(Ordering::SeqCst), sleeps() - before);
    say(format!("{ours} of {rounds} by our thread, which slept {slept} times in {:?}", begun.elapsed()));
    assert!(ours < rounds / 10, "{ours} of {rounds} handlers ran on our thread");
    assert!(slept < rounds / 10 + 2 * looks, "our thread was woken {slept} times");
    node.barrier().expect("barrier");
}

/// Ranks that sleep, with nothing to be done for anybody.
fn idle() {
    let node = node_with(|_| {});
    node.barrier().expect("barrier");
    let (before, used) = (sleeps(), vm::host::cpu_time());
    std::thread::sleep(Duration::from_secs(2));
    let (slept, used) = (sleeps() - before, vm::host::cpu_time() - used);
    say(format!("slept {slept} times, used {used:?}"));
    assert!(slept < 100, "it has looked {slept} times in two seconds");
    assert!(used < Duration::from_millis(40), "{used:?} of two seconds");
    node.barrier().expect("barrier");
}

/// Rank 0 makes no progress for a while: what rank 1 does meanwhile.
fn beside_one_that_makes_no_progress(node: &Node, act: impl FnOnce(&Node, Remote)) {
    let memory = Private::from(&pattern(0, 20_000));
    memory.show(node, "memory");
    let sleeps = node.heap().alloc_zeroed::<u64>(1).expect("room");
    support::publish(node, "sleeps", sleeps.ptr(0).to_words());
    let told = GlobalPtr::<u64>::from_words(support::look_up(node, 1, "sleeps"));
    let theirs = private_of(node, 0, "memory");
    node.barrier().expect("barrier");
    if node.rank() == 0 {
        node.put(told, 1).expect("put");
        std::thread::sleep(Duration::from_millis(2500));
    } else {
        node.wait_until(|| sleeps.read(0) == 1).expect("put");
        // Rank 0 is in its put until this node has told it that that is done.
        let told = node.within(Duration::from_millis(300)).wait_until(|| false);
        assert!(told.is_err_and(|error| error.is_timeout()));
        act(node, theirs);
    }
    node.barrier().expect("barrier");
}

fn late() {
    let node = node_with(|_| {});
    beside_one_that_makes_no_progress(&node, |node, theirs| {
        let hurried = node.within(Duration::from_millis(100));
        let mut bytes = [0; 20_000];
        let error = hurried.get_bytes(theirs, &mut bytes).expect_err("not served");
        assert_eq!(error, Error::Timeout { peer: 0, unattended: true });
        assert!(error.to_string().contains("STANDPIPE_PROGRESS is off there"), "{error}");
        let hear = node.handler("hear").expect("registered");
        node.request(0, hear, [0; 4]).expect("sent");
        let error = hurried.wait_until(|| false).expect_err("not answered");
        // Of a message that a network has taken nobody knows whether it is heard.
        let is_named = error.to_string().contains("STANDPIPE_PROGRESS is off there");
        assert!(is_named || node.provider().is_some(), "{error}");
    });
}

/// Notes warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        self.0.lock().expect("no panic").push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn log() {
    let node = node_with(|_| {});
    let warnings = Warnings::default();
    // Threads of the library's may say it, too.
    tracing::subscriber::set_global_default(warnings.clone()).expect("the first");
    beside_one_that_makes_no_progress(&node, |node, theirs| {
        let patient = node.within(LIMIT);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let got = match std::env::var("STANDPIPE_TEST_AWAITS") {
            Ok(_) => runtime.block_on(async { patient.get_nb(theirs, vec![0_u8; 20_000]).await.0 }),
            Err(_) => patient.get_nb(theirs, vec![0_u8; 20_000]).wait().0,
        };
        got.expect("served in the end");
        patient.get_bytes(theirs, &mut [0; 20_000]).expect("served still");
        let warnings = warnings.0.lock().expect("no panic").clone();
        let named = warnings.iter().filter(|text| text.contains("STANDPIPE_PROGRESS is off there"));
        assert_eq!(named.count(), 1, "{warnings:?}");
    });
}
