//! Jobs under limits of locked memory, as a user without privileges: over shared memory and `tcp`, which pin
//! nothing, and over providers that pin, where `cargo xtask verbs` names them.

mod support;

use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use standpipe::{Landed, Mechanism, Node, Operation, PathReason, Rank, Remote};
use support::{
    Heard, Private, Random, config, heap_of, itself, job_of, network, pattern, private_of, publish, role,
    said, say, scatter,
};

/// The user that has no rights but its own.
const NOBODY: u32 = 65534;

/// What a launcher lays on itself and so on its ranks, in bytes, or `unlimited`.
const LIMIT: &str = "STANDPIPE_TEST_MEMLOCK";
const LIMITS: [&str; 3] = ["65536", "8388608", "unlimited"];

/// The only one to test, where time is short.
const ONLY: &str = "STANDPIPE_TEST_ONLY_MEMLOCK";

fn limits() -> impl Iterator<Item = &'static str> {
    let only = std::env::var(ONLY).ok();
    LIMITS.into_iter().filter(move |limit| only.as_deref().is_none_or(|only| only == *limit))
}

const TRANSPORT: &str = "STANDPIPE_TRANSPORT";
const STRATEGY: &str = "STANDPIPE_STRATEGY";
const PIN: &str = "STANDPIPE_PIN";

/// What may be pinned beyond what a node takes when it opens.
const BUDGET: u64 = 256 << 10;

#[test]
fn between_processes_of_one_host_locked_memory_does_not_matter() {
    for limit in limits() {
        let Some(told) = told("work", "shm", limit) else { continue };
        for rank in 0..2 {
            assert_eq!(told.of(rank, "provider"), "none");
            assert_eq!(told.count(rank, "no-room"), 0, "{}", told.0.join("\n"));
            if told.of(rank, "attach") == "yes" {
                assert!(
                    told.count(rank, "cma") > 0 && told.count(rank, "message") == 0,
                    "{}",
                    told.0.join("\n")
                );
            }
        }
    }
}

#[test]
fn over_tcp_everything_works_and_what_finds_no_room_is_counted() {
    let Some(transport) = network() else { return };
    for limit in limits() {
        let Some(told) = told("work", transport, limit) else { continue };
        works(&told, "tcp", limit);
    }
}

#[test]
fn providers_that_pin_work_or_are_named_with_what_is_used_instead() {
    let Ok(named) = std::env::var(testbed::PROVIDERS) else {
        return testbed::skip(format_args!("{} names no provider that pins", testbed::PROVIDERS));
    };
    for (provider, limit) in
        named.split(',').flat_map(|provider| limits().map(move |limit| (provider, limit)))
    {
        let Some(asked) = told("work", &format!("ofi:{provider}"), limit) else { continue };
        let opened = asked.of(0, "provider") == provider;
        println!("{provider} under {limit}: {}", if opened { "opened" } else { asked.of(0, "not opened") });
        assert!(opened || limit != "unlimited", "{}", asked.0.join("\n"));
        if opened {
            works(&asked, provider, limit);
        } else {
            let why = asked.of(0, "not opened");
            assert!(why.contains(provider) && why.contains("ENOMEM"), "{why}");
        }
        let Some(best) = told("work", "ofi", limit) else { continue };
        works(&best, if opened { provider } else { "tcp" }, limit);
    }
}

#[test]
fn no_more_is_pinned_than_the_budget_allows() {
    let named = std::env::var(testbed::PROVIDERS).ok();
    let Some(provider) = named.as_deref().or_else(|| network().map(|_| "tcp")) else { return };
    let limit = if named.is_some() { "unlimited" } else { "8388608" };
    for provider in provider.split(',') {
        let Some(told) = told("pin", &format!("ofi:{provider}"), limit) else { continue };
        for rank in 0..2 {
            println!("{provider}, rank {rank}: {}", told.0.join("; "));
            assert!(told.count(rank, "pinned-most") <= BUDGET, "{}", told.0.join("\n"));
            // Who says that more is not pinned must see what is.
            assert!(provider == "tcp" || told.count(rank, "pinned-most") > 0, "{}", told.0.join("\n"));
            assert!(told.count(rank, "registered") > 0, "{}", told.0.join("\n"));
        }
    }
}

/// What holds of a job that opened at this provider.
fn works(told: &Told, provider: &str, limit: &str) {
    for rank in 0..2 {
        // Libfabric names what it puts on top of a provider, too.
        assert!(told.of(rank, "provider").starts_with(provider), "under {limit}: {}", told.0.join("\n"));
        let reasons = told.count(rank, "no-room") + told.count(rank, "network");
        assert!(reasons >= told.count(rank, "message"), "under {limit}: {}", told.0.join("\n"));
        // Half of this limit is the budget, and the block that is put is larger.
        assert!(limit != "65536" || told.count(rank, "no-room") > 0, "{}", told.0.join("\n"));
        assert!(limit == "65536" || told.count(rank, "registered") > 0, "{}", told.0.join("\n"));
    }
}

/// What the ranks of a job say: `RANK NAME: VALUE`.
struct Told(Vec<String>);

impl Told {
    fn of(&self, rank: Rank, name: &str) -> &str {
        let start = format!("{rank} {name}: ");
        self.0.iter().find_map(|line| line.strip_prefix(&start)).unwrap_or("")
    }

    fn count(&self, rank: Rank, name: &str) -> u64 {
        let value = self.of(rank, name);
        value
            .parse()
            .unwrap_or_else(|_| panic!("rank {rank} says {value:?} of {name}: {}", self.0.join("\n")))
    }
}

/// Runs a job of two ranks in `role`, under this limit and without privileges. `None`, said aloud: it cannot
/// be had here.
fn told(role: &str, transport: &str, limit: &str) -> Option<Told> {
    // Where this process may, it makes room for every limit that its children lay on themselves.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    let (bytes, hard) = (limit.parse::<u64>().ok(), getrlimit(Resource::Memlock).maximum);
    if hard.is_some_and(|hard| bytes.is_none_or(|bytes| bytes > hard)) {
        testbed::skip(format_args!("{limit} bytes of locked memory are more than may be had here, {hard:?}"));
        return None;
    }
    let mut command = itself("launcher");
    command
        .env(LIMIT, limit)
        .env("STANDPIPE_TEST_WORK", role)
        .env(TRANSPORT, transport)
        .env(STRATEGY, "firehose");
    if role == "pin" {
        command.env(PIN, BUDGET.to_string());
    }
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            testbed::skip(format_args!("no process of user {NOBODY} can be started here ({error})"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{transport} under {limit}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(Told(text.lines().filter_map(said).map(str::to_owned).collect()))
}

/// Not a test: what the ranks and launchers of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "launcher" => {
            let limit = std::env::var(LIMIT).expect("told").parse().ok();
            setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit })
                .expect("no more than before");
            let heard = Heard::default();
            heard.run_well(job_of(2, &std::env::var("STANDPIPE_TEST_WORK").expect("told")));
            (0..2).flat_map(|rank| heard.said(rank)).for_each(say);
        }
        "work" => work(),
        "pin" => pin(),
        other => panic!("no role {other}"),
    }
}

/// Tells the test something of this rank.
fn tell(rank: Rank, name: &str, value: impl std::fmt::Display) {
    say(format!("{rank} {name}: {value}"));
}

fn tell_stats(node: &Node) {
    let (stats, rank) = (node.stats(), node.rank());
    let count = |by| {
        let moves = [Operation::Put, Operation::Get];
        moves.map(|operation| stats.get(operation, by).count).iter().sum::<u64>()
    };
    tell(rank, "provider", node.provider().as_deref().unwrap_or("none"));
    tell(rank, "attach", if node.attach(1 - rank) == Some(Ok(())) { "yes" } else { "no" });
    for (name, by) in
        [("cma", Mechanism::Cma), ("registered", Mechanism::Registered), ("message", Mechanism::Message)]
    {
        tell(rank, name, count(by));
    }
    for why in [PathReason::NoRoom, PathReason::Network] {
        tell(rank, why.name(), stats.why(why));
    }
}

const BLOCK: usize = 100_000;

/// Puts, gets, lists and messages, each way.
fn work() {
    let answers = Arc::new(AtomicU64::new(0));
    let at_reply = Arc::clone(&answers);
    let config = config()
        .handler("ask", |call| {
            let back = call.node().handler("answer").expect("registered below");
            call.reply(back, [call.payload().len() as u64, 0, 0, 0]).expect("replied");
        })
        .handler("answer", move |call| _ = at_reply.fetch_add(call.args()[0], Ordering::SeqCst))
        .handler("landed", |call| {
            assert!(matches!(call.landed(), Some((Landed::Private(_), 9000))), "{:?}", call.landed());
        });
    let node = match Node::open(config) {
        Ok(node) => node,
        Err(error) => {
            let rank = std::env::var("STANDPIPE_RANK").expect("a launcher's rank");
            return tell(rank.parse().expect("a number"), "not opened", error);
        }
    };
    let (peer, memory) = (1 - node.rank(), Private::new(BLOCK));
    memory.show(&node, "memory");
    let heap = node.heap().alloc_zeroed::<u8>(10_000).expect("room");
    publish(&node, "heap", heap.ptr(0).to_words());
    node.connect(peer).expect("connected");
    node.barrier().expect("barrier");
    let there = private_of(&node, peer, "memory");
    let block = pattern(u64::from(node.rank()), BLOCK);
    node.put_bytes(there, &block).expect("put");
    let mut got = vec![0; BLOCK];
    node.get_bytes(there, &mut got).expect("get");
    assert!(got == block, "what was put comes back");
    let heap = Remote::from(heap_of::<u8>(&node, peer, "heap").add(5));
    scatter(&node, [there.plus(1000), heap, there.plus(20_000)]);
    let ask = node.handler("ask").expect("registered");
    (0..10).for_each(|len| node.request_medium(peer, ask, [0; 4], &block[..len]).expect("sent"));
    let landed = node.handler("landed").expect("registered");
    node.request_long(landed, [0; 4], there.plus(50_000), &block[..9000]).expect("sent");
    node.wait_until(|| answers.load(Ordering::SeqCst) == 45).expect("all answers");
    node.barrier().expect("barrier");
    let theirs = pattern(u64::from(peer), BLOCK);
    assert!(memory.bytes()[60_000..] == theirs[60_000..], "what the peer has put");
    tell_stats(&node);
    node.barrier().expect("barrier");
}

const PAGE: usize = 4096;
const PUTS: usize = 300;

/// Puts pages at random over several times the budget, while a thread looks what is pinned.
fn pin() {
    let node = Node::open(config()).expect("a node");
    let alone = pinned_bytes();
    let (peer, pages) = (1 - node.rank(), 5 * BUDGET as usize / PAGE);
    let memory = Private::new((pages + 1) * PAGE);
    memory.show(&node, "memory");
    node.connect(peer).expect("connected");
    let there = private_of(&node, peer, "memory");
    node.barrier().expect("barrier");
    // Connections pin buffers of the provider's own.
    let opened = pinned_bytes();
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(pinned_bytes().saturating_sub(opened), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut random = Random::new(u64::from(node.rank()));
        let source = pattern(1, pages * PAGE);
        for put in 0..PUTS {
            let [from, to] = [random.below(pages), random.below(pages)].map(|page| page * PAGE);
            node.put_bytes(there.plus(to as u64), &source[from..from + PAGE]).expect("put");
            // Also where the thread had no turn.
            if put % 10 == 0 {
                most.fetch_max(pinned_bytes().saturating_sub(opened), Ordering::Relaxed);
            }
        }
        node.barrier().expect("barrier");
        done.store(true, Ordering::Relaxed);
    });
    tell(node.rank(), "pinned-by-opening", alone);
    tell(node.rank(), "pinned-by-connecting", opened - alone);
    tell(node.rank(), "pinned-most", most.load(Ordering::Relaxed));
    tell_stats(&node);
    node.barrier().expect("barrier");
}

/// Bytes of this process that the kernel has pinned for devices.
fn pinned_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("every process has one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("of Linux 3.2 and later");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
