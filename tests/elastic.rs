//! Nodes that nobody launched, on one host: they meet at sockets, and share memory.

#[path = "support/meetings.rs"]
mod meetings;
#[path = "support/members.rs"]
mod members;
mod support;

use std::collections::BTreeMap;

use standpipe::bootstrap::Broker;
use standpipe::watch::{Job, RankView, Snapshot, jobs};
use standpipe::{AddressError, ConnectError, Error, GlobalPtr, Listen, Node, Operation, Rights, Transport};

use members::{Member, Other, config};

/// What the nodes of this program reach each other by.
const OVER: &str = "shm";

#[test]
fn child() {
    match support::role().as_deref() {
        Some("deaf") => deaf(),
        Some("forks") => forks(),
        _ => members::play(),
    }
}

#[test]
fn two_processes_reach_each_other() {
    meetings::two_processes_reach_each_other();
}

#[test]
fn two_processes_reach_each_other_by_message() {
    meetings::two_processes_reach_each_other_by_message();
}

#[test]
fn yama_lets_those_attach_that_a_node_names() {
    use standpipe::host::{ptrace_scope, traces_anyone};
    if ptrace_scope() != Some(1) || traces_anyone() != Some(false) {
        testbed::skip(
            "this kernel has no Yama that binds this process: set kernel.yama.ptrace_scope to 1, and give up \
             CAP_SYS_PTRACE",
        );
        return;
    }
    // The parent of both is this process.
    let own = std::process::id().to_string();
    for (tracer, may) in
        [("auto", false), ("never", false), ("parent", true), (&own, true), ("any", true), ("1", true)]
    {
        let there = members::Other::start(&format!("traced by {tracer}"));
        let mut here = members::Other::start("serve");
        assert_eq!(here.order(&format!("connect {}", support::hex(&there.address)), "peer"), "1");
        let expected = if may { "Some(Ok(()))" } else { "Some(Err(PtraceDenied))" };
        assert_eq!(here.order("attach 1", "attach"), expected, "{tracer}");
    }
}

#[test]
fn one_that_is_killed_is_lost_within_100_ms() {
    meetings::one_that_is_killed_is_lost_within_100_ms();
}

#[test]
fn a_child_made_by_fork_has_a_node_of_its_own() {
    let here = members::Member::new(members::config());
    let mut child = members::Other::start("forked");
    let peer = here.node.connect_to(&child.address).expect("connected");
    here.ask(peer, 1).expect("answered");
    here.node.put(child.word(peer, 3), 77_u64).expect("put");
    assert_eq!(child.order("read 3", "word"), "77");
}

#[test]
fn one_that_is_killed_is_lost_though_a_child_of_its_lives_on() {
    meetings::one_that_is_killed_is_lost_though_a_child_of_its_lives_on();
}

#[test]
fn whoever_waits_for_one_that_is_killed_is_told() {
    meetings::whoever_waits_for_one_that_is_killed_is_told();
}

#[test]
fn others_join_at_any_time_and_one_that_is_started_again_is_another() {
    meetings::others_join_at_any_time_and_one_that_is_started_again_is_another();
}

#[test]
fn many_that_come_and_go_at_once_are_each_heard_and_missed() {
    meetings::many_that_come_and_go_at_once_are_each_heard_and_missed();
}

#[test]
fn one_that_is_stopped_does_not_hold_up_who_calls_it() {
    meetings::one_that_is_stopped_does_not_hold_up_who_calls_it();
}

#[test]
fn colliding_handlers_make_no_peers() {
    meetings::colliding_handlers_make_no_peers();
}

#[test]
fn only_what_is_exposed_is_reached() {
    meetings::only_what_is_exposed_is_reached();
}

#[test]
fn room_for_peers_ends_with_the_number() {
    meetings::room_for_peers_ends_with_the_number();
}

/// Sockets of this process that others can connect to, as the kernel lists them: each once, as it may list
/// one twice while others change.
fn listening() -> Vec<String> {
    let fds = std::fs::read_dir("/proc/self/fd").expect("there").filter_map(Result::ok);
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    let own: Vec<String> = targets.filter_map(inode).collect();
    let mut found = BTreeMap::new();
    // The state or the flags that say so, the field where they stand, and that of the inode.
    for (file, at, value, inode) in [("tcp", 3, "0A", 9), ("tcp6", 3, "0A", 9), ("unix", 3, "00010000", 6)] {
        let Ok(table) = std::fs::read_to_string(format!("/proc/self/net/{file}")) else { continue };
        found.extend(table.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let ours = own.iter().any(|own| fields.get(inode) == Some(&own.as_str()));
            (ours && fields[at] == value).then(|| (fields[inode].to_owned(), line.to_owned()))
        }));
    }
    found.into_values().collect()
}

/// A node that listens nowhere, and calls on the one that it is told of.
fn deaf() {
    assert_eq!(listening(), Vec::<String>::new(), "before there is a node");
    let (address, word) = (std::env::var("ADDRESS").expect("given"), std::env::var("WORD").expect("given"));
    let member = Member::new(config().listen(Listen::Nowhere));
    let peer = member.node.connect_to(support::unhex(&address)).expect("it listens");
    member.node.put(GlobalPtr::new(peer, word.parse().expect("a number")), 77_u64).expect("put");
    let ask = member.ask(peer, 5);
    assert_eq!((ask, member.answered.load(std::sync::atomic::Ordering::SeqCst)), (Ok(()), 5));
    assert!(matches!(member.node.address(), Err(ConnectError::NotListening)));
    assert_eq!(listening(), Vec::<String>::new());
    let heard = Node::open_in(config(), None).expect("a node");
    heard.address().expect("a node that listens");
    let found = listening();
    assert_eq!(found.len(), 2, "the count sees what there is: {found:#?}");
}

#[test]
fn a_node_that_listens_nowhere_calls_others_of_its_host() {
    let here = Member::new(config());
    let address = support::hex(here.node.address().expect("a node that listens").as_bytes());
    let mut other = support::itself("deaf");
    other.env("ADDRESS", address).env("WORD", here.array.ptr(3).offset().to_string());
    let mut other = other.spawn().expect("started");
    let mut ended = None;
    // It wants an answer.
    let waited = here.node.within(support::LIMIT).wait_until(|| {
        ended = other.try_wait().expect("ours");
        ended.is_some()
    });
    let _ = other.kill();
    assert_eq!(waited, Ok(()));
    assert!(ended.expect("waited for").success());
    assert_eq!(here.array.read(3), 77);
    // Over a network what is called must be able to call back.
    let far = Member::new(config().listen(Listen::Nowhere).transport(Transport::Ofi { provider: None }));
    assert!(matches!(
        far.node.connect_to(here.node.address().expect("a node that listens")),
        Err(ConnectError::NotListening)
    ));
    assert!(matches!(far.node.address(), Err(ConnectError::NotListening)));
}

#[test]
fn no_network_is_opened_for_what_is_no_address() {
    let far = Member::new(config().transport(Transport::Ofi { provider: None }));
    assert!(matches!(far.node.connect_to([0; 12]), Err(ConnectError::Address(_))));
    assert_eq!(far.node.provider(), None);
}

#[test]
fn a_node_listens_at_the_one_address_that_it_is_given() {
    let at = |text: &str| Listen::parse(text).expect("an address");
    let one = Member::new(config().listen(at("127.0.0.1:0")));
    one.node.address().expect("a free port");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = taken.local_addr().expect("it is bound");
    let refused = Member::new(config().listen(Listen::At(place)));
    let error = refused.node.address().expect_err("it is taken");
    assert!(matches!(&error, ConnectError::Listen { at, .. } if *at == place), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot listen at {place}, as STANDPIPE_LISTEN says")));
    drop(taken);
    // A process that another test is just starting may still have it.
    assert!(support::eventually(|| refused.node.address().is_ok()), "it is free now");
    let address = refused.node.address().expect("as it was just before");
    assert!(std::net::TcpStream::connect(place).is_ok(), "there, and nowhere else:");
    assert!(std::net::TcpStream::connect(("127.0.0.2", place.port())).is_err());
    assert_eq!(one.node.connect_to(&address).expect("near ones come by the socket"), 1);
}

/// A forked child that ends what it has copies of ends nothing of its parent's.
#[test]
fn a_forked_child_may_drop_what_its_parent_has() {
    let output = support::itself("forks").output().expect("it ran");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn forks() {
    let (here, other) = (Member::new(config()), Other::start("serve"));
    let peer = here.node.connect_to(&other.address).expect("connected");
    let words = here.node.heap().alloc_zeroed::<u64>(100_000).expect("room");
    words.write(99_999, 7);
    let team = here.node.world().split(Some(0), 0).expect("a split").expect("a color");
    let exposed =
        here.node.expose(&raw const *Box::leak(vec![0_u8; 4096].into_boxed_slice()), Rights::ReadWrite);
    // SAFETY: no other thread of this process holds a lock of the allocator's or of this library's just now,
    // so that the child can drop what it has copies of, after which it ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((words, team, exposed, here));
        // SAFETY: ends the child at once, whatever else its copy of the process has open; nothing of it is
        // used afterwards.
        unsafe { libc::_exit(7) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, which nobody else waits for, and the place for its status is a
    // local that outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    assert_eq!(words.read(99_999), 7);
    assert_eq!((here.node.peers(), here.node.lost_peers()), (vec![peer], vec![]));
    assert_eq!(here.node.connect_to(&other.address).expect("still there"), peer);
}

/// Whoever has seen its end is not told that it is a peer, though nobody here has seen it.
#[test]
fn a_process_that_has_ended_is_no_peer() {
    let here = Member::new(config());
    for peer in 1..=8 {
        let mut other = Other::start("serve");
        assert_eq!(here.node.connect_to(&other.address).expect("connected"), peer);
        other.child.kill().expect("ours");
        other.child.wait().expect("ours");
        let called = here.node.connect_to(&other.address);
        assert!(matches!(called, Err(ConnectError::Gone)), "{called:?}");
    }
}

#[test]
fn what_is_no_address_is_told_by_name() {
    let here = Member::new(config());
    let whole = here.node.address().expect("a node that listens").into_bytes();
    let bad = |bytes: &[u8]| match here.node.connect_to(bytes) {
        Err(ConnectError::Address(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(&[]), AddressError::Length { len: 0 });
    assert!(matches!(bad(b"something else altogether"), AddressError::Foreign { .. }));
    assert!(matches!(bad(&whole[..whole.len() - 1]), AddressError::Cut { .. }));
    assert!(matches!(here.node.connect_to(&whole), Err(ConnectError::Oneself)));
    // A number that was never given is nobody's.
    let nobody = GlobalPtr::<u64>::new(1, 0);
    assert_eq!(here.node.get(nobody), Err(Error::NoSuchPeer { peer: 1, size: 1 }));
    assert!(!whole.is_empty() && format!("{:?}", here.node.address()) == "Ok(Address(..))");
}

#[test]
fn a_launched_job_has_no_door() {
    let broker = Broker::start(1).expect("a broker");
    let node = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    assert!(matches!(node.address(), Err(ConnectError::InJob { size: 1 })));
    assert!(matches!(node.connect_to([]), Err(ConnectError::InJob { size: 1 })));
}

/// The node of that process, as its user finds it from outside.
fn seen(pid: u32) -> Option<Job> {
    let is_node = |job: &Job| !job.is_launched() && job.launcher_pid() == pid;
    jobs().expect("there is /proc").into_iter().find(is_node)
}

#[test]
fn a_node_is_seen_from_outside_and_nothing_is_left_of_one_that_is_killed() {
    let here = Member::new(config());
    let mut other = members::Other::start("seen");
    let peer = here.node.connect_to(&other.address).expect("peers");
    for _ in 0..3 {
        assert_eq!(here.ask(peer, 5), Ok(()));
    }
    assert_eq!(other.order("noted", "noted"), "15");
    let pid = other.child.id();
    let job = seen(pid).expect("it has a door");
    assert!(job.size() == 1 && job.has(pid) && !job.has(std::process::id()), "{job:?}");
    let mut watch = job.watch().expect("let in");
    let handled = |rank: &RankView| rank.stats().total(Operation::Handled).count;
    let is_told = |look: Snapshot| {
        let [rank] = &look.ranks[..] else { panic!("{look:?}") };
        assert_eq!(rank.pid, Some(pid));
        handled(rank) == 3 && rank.peers().is_some() && rank.latencies().is_some()
    };
    assert!(
        support::eventually(|| is_told(watch.look().expect("it runs"))),
        "its figures are those of the node"
    );
    other.signal(rustix::process::Signal::KILL);
    assert!(support::eventually(|| watch.look().expect("an end is no error").ended));
    other.child.wait().expect("ours");
    assert!(seen(pid).is_none(), "neither socket nor memory");
}
