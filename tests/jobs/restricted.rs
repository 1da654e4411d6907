//! Processes that may not use cross-memory attach, for real: by seccomp filters, by missing ptrace rights;
//! and processes with small limits. Each rank lays its restriction on itself before it opens its node.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{
    Heard, Private, config, heap_of, itself, job_of, look_up, pattern, private_of, publish, role, say,
    scatter,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use standpipe::launch::{End, Launch, LaunchError};
use standpipe::{
    Error, Landed, Mechanism, Memory, Node, OpenError, Operation, PathReason, ProgressThread, PutPiece, Rank,
    Remote,
};

/// What the ranks lay on themselves.
const RESTRICTION: &str = "STANDPIPE_TEST_RESTRICTION";
/// The only rank that does, or `all`.
const WHOSE: &str = "STANDPIPE_TEST_WHOSE";
/// The user that has no rights but its own.
const NOBODY: u32 = 65534;

#[test]
fn under_a_filter_that_says_no_everything_goes_by_message() {
    Heard::default().run_well(job_of(2, "work").env(RESTRICTION, "EPERM").env(WHOSE, "all"));
}

#[test]
fn under_a_filter_that_denies_the_call_exists_too() {
    Heard::default().run_well(job_of(2, "work").env(RESTRICTION, "ENOSYS").env(WHOSE, "all"));
}

#[test]
fn a_target_that_is_not_restricted_itself_serves_one_that_is() {
    Heard::default().run_well(job_of(2, "work").env(RESTRICTION, "EPERM").env(WHOSE, "0"));
}

#[test]
fn without_progress_at_the_target_a_message_waits_until_its_deadline() {
    Heard::default().run_well(job_of(2, "no progress").env(RESTRICTION, "EPERM").env(WHOSE, "0"));
}

#[test]
fn without_ptrace_rights_everything_goes_by_message() {
    as_nobody("undumpable", "all");
}

#[test]
fn a_target_that_may_not_be_attached_to_serves_all_the_same() {
    as_nobody("undumpable", "1");
}

#[test]
fn rights_given_up_in_the_middle_are_made_up_for_by_messages() {
    as_nobody("later", "1");
}

#[test]
fn without_lockable_memory_nothing_changes() {
    as_nobody("memlock", "all");
}

#[test]
fn with_too_few_descriptors_the_error_says_so() {
    let heard = Heard::default();
    let outcome = heard.run(job_of(CRAMPED + 1, "cramped").keep_going(true));
    assert!(outcome.ranks.iter().all(|rank| rank.end == End::Exited(0)), "{}", heard.all());
    let said: Vec<String> = (0..CRAMPED).flat_map(|rank| heard.said(rank)).collect();
    println!("{}", said.join("\n"));
    assert!(said[0].starts_with("not opened: "), "one descriptor is not enough");
    assert!(said.iter().any(|line| line.starts_with("not connected: ")), "{said:?}");
    assert!(said.last().is_some_and(|line| line == "connected"), "{CRAMPED} descriptors are enough");
}

#[test]
fn with_too_little_address_space_the_error_names_the_setting() {
    let taken = address_space_bytes();
    if taken > NARROW {
        // Sanitizers reserve terabytes.
        return testbed::skip(format_args!(
            "{taken} bytes of address space are taken before anything has begun"
        ));
    }
    Heard::default().run_well(job_of(2, "narrow"));
}

#[test]
fn a_forked_child_is_refused_its_parents_node_and_harms_nobody() {
    Heard::default().run_well(job_of(2, "forking"));
    if let Err(error) = standpipe::network::look_for(Some("tcp")) {
        return testbed::skip(&error);
    }
    Heard::default().run_well(job_of(2, "forking").env("STANDPIPE_TRANSPORT", "ofi:tcp"));
}

/// On such a host the kernel refuses masks that have no room for all of its processors.
#[test]
fn on_a_host_of_more_than_1024_processors_they_are_counted() {
    Heard::default().run_well(job_of(1, "many cores"));
}

/// The kernel ends processes that make a file longer than that.
#[test]
fn with_too_short_files_the_error_names_the_setting() {
    let output = itself("short").output().expect("this program runs");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stdout));
}

fn short() {
    let longest = Rlimit { current: Some(4 << 20), maximum: Some(4 << 20) };
    setrlimit(Resource::Fsize, longest).expect("less is always allowed");
    let error = Node::open_in(config().heap_bytes(8 << 20), None).map(drop).expect_err("no room for it");
    assert!(error.to_string().contains("STANDPIPE_HEAP"), "{error}");
}

#[test]
fn nothing_of_a_node_is_where_a_program_prints() {
    let status = itself("streamless").status().expect("this program runs");
    assert_eq!(status.code(), Some(0), "what is wrong cannot be printed");
}

fn streamless() {
    let is_null = |number: i32| {
        std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to == Path::new("/dev/null"))
    };
    for number in 0..=2 {
        // SAFETY: nothing of this process prints or reads from here on, and `std` opens none of them again.
        unsafe { libc::close(number) };
    }
    let node = Node::open_in(config(), None).expect("a node");
    let address = node.address().expect("it listens");
    let other = Node::open_in(config(), None).expect("another");
    other.connect_to(&address).expect("they meet");
    std::process::exit(if (0..=2).all(is_null) { 0 } else { 3 });
}

#[test]
fn who_may_not_watch_processes_is_told_of_that_and_not_of_the_program() {
    let output = itself("unwatching launcher").output().expect("this program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn unwatching_launcher() {
    forbid(&[libc::SYS_pidfd_open], libc::EPERM);
    let error = Launch::new("true").run().expect_err("the launcher cannot watch it");
    assert!(matches!(error, LaunchError::Unwatched { .. }), "{error}");
    assert!(error.to_string().contains("pidfd_open") && error.status() == 125, "{error}");
}

/// Runs the ranks, and their launcher, as a user without rights over other processes.
fn as_nobody(restriction: &str, whose: &str) {
    let mut command = itself("launcher");
    command.env(RESTRICTION, restriction).env(WHOSE, whose);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    match command.output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => {
            testbed::skip(format_args!("no process of user {NOBODY} can be started here ({error})"))
        }
    }
}

/// Not a test: what the ranks and launchers of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "launcher" => {
            let later = std::env::var(RESTRICTION).is_ok_and(|restriction| restriction == "later");
            Heard::default().run_well(job_of(2, if later { "later" } else { "work" }));
        }
        "short" => short(),
        "streamless" => streamless(),
        "unwatching launcher" => unwatching_launcher(),
        "work" => work(),
        "no progress" => no_progress(),
        "later" => later(),
        "cramped" => cramped(),
        "narrow" => narrow(),
        "many cores" => many_cores(),
        "forking" => forking(),
        other => panic!("no role {other}"),
    }
}

/// The restriction of the rank's process; says why this process cannot attach to the other one then.
fn restrict() -> Result<(), PathReason> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (restriction, whose, rank) = (variable(RESTRICTION), variable(WHOSE), variable("STANDPIPE_RANK"));
    let (mine, theirs) = (whose == "all" || whose == rank, whose != rank);
    match restriction.as_str() {
        "EPERM" if mine => forbid_attach(libc::EPERM),
        "ENOSYS" if mine => forbid_attach(libc::ENOSYS),
        "undumpable" if mine => set_dumpable_behavior(DumpableBehavior::NotDumpable).expect("allowed"),
        "memlock" if mine => {
            setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) })
                .expect("less is allowed");
        }
        _ => {}
    }
    match restriction.as_str() {
        "EPERM" | "ENOSYS" if mine => Err(PathReason::CallForbidden),
        "undumpable" if theirs => Err(PathReason::PtraceDenied),
        _ => Ok(()),
    }
}

fn forbid_attach(errno: i32) {
    forbid(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev], errno);
}

fn forbid(calls: &[i64], errno: i32) {
    let arch = std::env::consts::ARCH.try_into().expect("a machine that filters are made for");
    let denied = SeccompAction::Errno(errno as u32);
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a short program");
    apply_filter_all_threads(&program).expect("a process may restrict itself");
}

const BYTES: usize = 300_000;

/// Constants lie in pages that nobody may write.
static CONSTANT: [u8; 4096] = [42; 4096];

/// Both ranks work with the other's private memory, one after the other, while that one only computes.
fn work() {
    let attach = restrict();
    let landed = Arc::new(AtomicU64::new(0));
    let (at_request, at_reply) = (Arc::clone(&landed), Arc::clone(&landed));
    let config = config()
        .handler("landed", move |call| {
            let Some((Landed::Private(_), 9000)) = call.landed() else { panic!("{:?}", call.landed()) };
            let back = call.node().handler("back").expect("registered");
            // SAFETY: the sender says where its own `Private` is, which it keeps until the reply has come.
            let to = unsafe { Remote::raw(call.from(), call.args()[0]) };
            call.reply_long(back, [0; 4], to, &pattern(8, 9000)).expect("reply");
            at_request.fetch_add(1, Ordering::SeqCst);
        })
        .handler("back", move |_| {
            at_reply.fetch_add(100, Ordering::SeqCst);
        });
    let node = Node::open(config).expect("a node");
    let peer = 1 - node.rank();
    let memory = Private::from(&pattern(3, BYTES));
    memory.set(0, 0);
    memory.set(1, 0);
    memory.show(&node, "memory");
    let heap = node.heap().alloc_from(&pattern(4, 10_000)).expect("room");
    publish(&node, "heap", heap.ptr(0).to_words());
    publish(&node, "constant", [CONSTANT.as_ptr().expose_provenance() as u64, 0]);
    node.connect(peer).expect("connected");
    assert_eq!(node.attach(peer), Some(attach));
    for turn in 0..2 {
        node.barrier().expect("barrier");
        if node.rank() != turn {
            while memory.byte(1) == 0 {
                memory.set(0, memory.byte(0).wrapping_add(1));
            }
            continue;
        }
        moves(&node, peer);
        faults(&node, peer);
        asks(&node, peer, &landed);
        check_stats(&node, attach);
        node.put_bytes(private_of(&node, peer, "memory").plus(1), &[1]).expect("the last put");
    }
    // Where the peer could be attached to, nobody served it while it computed: its handlers run only now.
    node.wait_until(|| landed.load(Ordering::SeqCst) == 101).expect("both long messages and their answers");
    assert!(memory.bytes()[250_000..259_000] == pattern(8, 9000), "the answer's payload landed");
    node.barrier().expect("barrier");
    assert!(memory.bytes()[2..40_000] == pattern(3, BYTES)[2..40_000], "nothing else was touched");
    assert_eq!(CONSTANT[4000], 42);
    node.barrier().expect("barrier");
}

/// Puts and gets of all kinds; the peer computes, as its count shows.
fn moves(node: &Node, peer: Rank) {
    let (there, heap) = (private_of(node, peer, "memory"), heap_of::<u8>(node, peer, "heap"));
    let mut counts = std::collections::BTreeSet::new();
    while counts.len() < 3 {
        let mut bytes = vec![0; 40_000];
        node.get_bytes(there, &mut bytes).expect("get");
        assert!(bytes[2..] == pattern(3, BYTES)[2..40_000], "the peer's private memory");
        counts.insert(bytes[0]);
    }
    let (at, block) = (50_000, pattern(5, 100_000));
    node.put_bytes(there.plus(at), &block).expect("put");
    let (result, got) = node.get_nb(there.plus(at), vec![0_u8; block.len()]).wait();
    assert!(result.is_ok() && got == block, "what was put comes back");
    let (result, _) = node.put_nb(there.plus(at + 7), pattern(6, 5000)).wait();
    result.expect("put");
    node.put_nbi(there.plus(at + 20_000), &pattern(6, 5000)[..]).expect("put");
    node.quiet().expect("all is there");
    scatter(node, [there.plus(at + 40_000), Remote::from(heap.add(5)), there.plus(at + 90_000)]);
}

fn faults(node: &Node, peer: Rank) {
    // SAFETY: constants cannot be changed, and at so low an address nothing is mapped.
    let (constant, low) =
        unsafe { (Remote::raw(peer, look_up(node, peer, "constant")[0]), Remote::raw(peer, 64)) };
    let fault = |result: Result<(), Error>| match result {
        Err(Error::Fault { peer: at, memory: Memory::Private, .. }) if at == peer => {}
        other => panic!("{other:?} where a fault was due"),
    };
    let mut got = [0; 4096];
    node.get_bytes(constant, &mut got).expect("constants can be read");
    assert_eq!(got, CONSTANT);
    fault(node.put_bytes(constant, &[1; 100]));
    fault(node.put_bytes(low, &[1; 100]));
    fault(node.get_bytes(low, &mut got));
    let good = private_of(node, peer, "memory").plus(100_000);
    fault(node.put_list(&[good, low].map(|to| PutPiece { to, from: &[1; 50] })));
    node.put_nbi(low, &[1_u8; 10]).map_or_else(|error| fault(Err(error)), |()| fault(node.quiet()));
    node.quiet().expect("an error is told once");
}

/// A long message lands at the peer. Its handler, which answers in kind, runs though the program computes, if
/// the peer has a progress thread.
fn asks(node: &Node, peer: Rank, landed: &AtomicU64) {
    let there = private_of(node, peer, "memory").plus(200_000);
    let handler = node.handler("landed").expect("registered");
    let own = look_up(node, node.rank(), "memory")[0] + 250_000;
    let serves = matches!(node.attach(peer), Some(Err(_)));
    node.request_long(handler, [own, 0, 0, 0], there, &pattern(9, 9000)).expect("request");
    let mut got = vec![0; 9000];
    node.get_bytes(there, &mut got).expect("get");
    assert!(got == pattern(9, 9000), "the payload landed");
    if serves {
        node.wait_until(|| landed.load(Ordering::SeqCst) >= 100).expect("the peer's progress thread answers");
    }
}

fn check_stats(node: &Node, attach: Result<(), PathReason>) {
    let stats = node.stats();
    let count = |operation, mechanism| stats.get(operation, mechanism).count;
    let (by, not_by) = if attach.is_ok() {
        (Mechanism::Cma, Mechanism::Message)
    } else {
        (Mechanism::Message, Mechanism::Cma)
    };
    for operation in [Operation::Put, Operation::Get] {
        assert!(count(operation, by) >= 3, "{stats:?}");
        assert_eq!(count(operation, not_by), 0, "{stats:?}");
    }
    let reason = attach.err().unwrap_or(PathReason::PrivateReachable);
    assert!(stats.why(reason) >= 8, "{stats:?}");
    let reasons = PathReason::ALL.into_iter().filter(|why| ![reason, PathReason::HeapMapped].contains(why));
    assert!(reasons.clone().all(|why| stats.why(why) == 0), "{stats:?}");
}

/// Rank 1 gives up that others may attach to it, as a process does that changes its user, and computes.
fn later() {
    let node = Node::open(config()).expect("a node");
    let memory = Private::from(&pattern(3, BYTES));
    memory.set(1, 0);
    memory.show(&node, "memory");
    node.connect(1 - node.rank()).expect("connected");
    node.barrier().expect("barrier");
    if node.rank() == 1 {
        while memory.byte(1) == 0 {
            std::hint::spin_loop();
        }
        set_dumpable_behavior(DumpableBehavior::NotDumpable).expect("allowed");
        memory.set(1, 2);
        while memory.byte(1) != 3 {
            std::hint::spin_loop();
        }
    } else {
        let there = private_of(&node, 1, "memory");
        assert_eq!(node.attach(1), Some(Ok(())));
        node.put_bytes(there.plus(1), &[1]).expect("put");
        let mut got = vec![0; BYTES];
        while got[1] != 2 {
            node.get_bytes(there, &mut got).expect("by whatever way");
        }
        assert!(got[2..] == pattern(3, BYTES)[2..], "the peer's private memory");
        node.put_bytes(there.plus(1), &[3]).expect("put");
        assert_eq!(node.attach(1), Some(Err(PathReason::PtraceDenied)));
    }
    node.barrier().expect("barrier");
}

/// Rank 1 may have no progress thread: what needs one waits until it makes progress.
fn no_progress() {
    let _ = restrict();
    let node = Node::open(config().progress(ProgressThread::Off)).expect("a node");
    let memory = Private::from(&pattern(3, 1000));
    memory.show(&node, "memory");
    let words = node.heap().alloc_zeroed::<u64>(1).expect("room");
    publish(&node, "words", words.ptr(0).to_words());
    node.connect(1 - node.rank()).expect("connected");
    node.barrier().expect("barrier");
    if node.rank() == 1 {
        while words.read(0) == 0 {
            std::hint::spin_loop();
        }
    } else {
        let there = private_of(&node, 1, "memory");
        let mut got = [0; 1000];
        let result = node.within(Duration::from_millis(300)).get_bytes(there, &mut got);
        assert_eq!(result, Err(Error::Timeout { peer: 1, unattended: true }));
        let event = node.get_nb(there, vec![0_u8; 1000]);
        node.put(heap_of::<u64>(&node, 1, "words"), 1).expect("put");
        let (result, bytes) = event.wait();
        assert!(result.is_ok() && bytes == pattern(3, 1000), "served at last: {result:?}");
    }
    node.barrier().expect("barrier");
}

/// Ranks that may have 1, 2, 3 and so on file descriptors more than they have; one more rank has enough.
const CRAMPED: Rank = 24;

fn cramped() {
    let rank = own_rank();
    let limit = getrlimit(Resource::Nofile);
    if rank < CRAMPED {
        // Listing them takes one more.
        let open = std::fs::read_dir("/proc/self/fd").expect("Linux").count() as u64 - 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(open + 1 + u64::from(rank)), ..limit })
            .expect("less is allowed");
    }
    let node = match Node::open(config()) {
        Ok(node) => node,
        Err(error @ (OpenError::Segment(_) | OpenError::Join(_) | OpenError::Os(_))) => {
            return say(format!("not opened: {error}"));
        }
        Err(error) => panic!("{error}"),
    };
    if rank == CRAMPED {
        let all: Vec<Rank> = (0..CRAMPED).collect();
        return node.wait_until(|| node.lost_peers() == all).expect("all others leave");
    }
    match node.connect(CRAMPED) {
        Ok(()) => say("connected"),
        Err(error @ Error::Connect { .. }) => say(format!("not connected: {error}")),
        Err(error) => panic!("{error}"),
    }
}

/// What rank 0 may take of address space: far less than a large heap.
const NARROW: u64 = 1 << 36;

/// What this process has taken of address space.
fn address_space_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    size.and_then(|size| size.trim().parse::<u64>().ok()).expect("a number of kB") << 10
}

/// Both ranks' progress threads may hold any lock when rank 0 forks.
fn forking() {
    let node = Node::open(config().handler("note", |_| {})).expect("it opens");
    let (note, peer) = (node.handler("note").expect("registered"), 1 - node.rank());
    let mine = node.heap().alloc_zeroed::<u64>(1000).expect("room");
    node.barrier().expect("both come");
    if node.rank() == 0 {
        for _ in 0..20 {
            node.request(peer, note, [1; 4]).expect("it is not forked");
            // SAFETY: the child makes no call but the node's, and ends without any destructor.
            match unsafe { libc::fork() } {
                0 => {
                    let refused = refused_to_a_child(&node, peer, note);
                    // SAFETY: it ends the child and runs nothing of it.
                    unsafe { libc::_exit(i32::from(!refused)) }
                }
                child => {
                    let mut status = 0;
                    // SAFETY: it waits for our own child and writes to a word of this frame.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    assert_eq!(status, 0, "all is refused to it");
                }
            }
        }
        for value in 0..1000 {
            node.put(mine.ptr(value).at(peer), value as u64).expect("put");
            assert_eq!(node.get(mine.ptr(value).at(peer)).expect("got"), value as u64);
        }
    }
    node.barrier().expect("neither is harmed");
    let all: Vec<u64> = (0..1000).map(|index| mine.read(index)).collect();
    assert!(node.rank() == 0 || all.iter().enumerate().all(|(index, value)| index as u64 == *value));
    node.barrier().expect("both have looked");
}

fn refused_to_a_child(node: &Node, peer: Rank, note: standpipe::HandlerId) -> bool {
    let is_forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked { .. }));
    is_forked(node.request(peer, note, [2; 4]))
        && is_forked(node.barrier())
        && is_forked(node.wait_until(|| false))
        && is_forked(node.world().all_reduce_nb(vec![1_u32], standpipe::Reduction::Sum).wait().0)
        && !node.progress()
}

fn many_cores() {
    let known = (standpipe::host::cores(), standpipe::host::core_numbers());
    let arch = std::env::consts::ARCH.try_into().expect("a machine that filters are made for");
    let is_short = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Lt, 256).expect("plain");
    let rule = SeccompRule::new(vec![is_short]).expect("a rule");
    let rules = [(libc::SYS_sched_getaffinity, vec![rule])].into_iter().collect();
    let denied = SeccompAction::Errno(libc::EINVAL as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a short program");
    apply_filter_all_threads(&program).expect("a process may restrict itself");
    assert_eq!((standpipe::host::cores(), standpipe::host::core_numbers()), known);
    standpipe::host::bind_to_core(known.1[0]).expect("its own");
    Node::open(config()).expect("it opens");
}

/// Rank 0 has address space for neither a large heap of its own nor that of rank 1.
fn narrow() {
    const LARGE: u64 = 1 << 40;
    if own_rank() == 1 {
        let node = Node::open(config().heap_bytes(LARGE)).expect("address space is not limited here");
        return node.wait_until(|| node.lost_peers() == [0]).expect("the other leaves");
    }
    let limit = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(NARROW), ..limit }).expect("less is allowed");
    let named = |text: &str| text.contains("STANDPIPE_HEAP") && text.contains("ulimit -v");
    let error = Node::open(config().heap_bytes(LARGE)).map(drop).expect_err("no room for it");
    assert!(matches!(error, OpenError::Heap { bytes: LARGE, .. }) && named(&error.to_string()), "{error}");
    let node = Node::open(config()).expect("room for a small heap");
    let error = node.connect(1).expect_err("no room for the other's heap");
    assert!(matches!(&error, Error::Connect { peer: 1, why } if named(why)), "{error}");
}

fn own_rank() -> Rank {
    std::env::var("STANDPIPE_RANK").expect("launched").parse().expect("a number")
}
