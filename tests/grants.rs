//! Grants among processes that nobody launched: whoever takes memory back has it to itself, whatever those do
//! who were at it.

mod support;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use standpipe::{
    Address, Audience, Config, Error, Foreign, GlobalPtr, Grant, GrantError, GrantName, HeapArray, Mechanism,
    Node, Operation, Rank, Remote, Rights, Transport,
};

use support::{LIMIT, hex, in_role, said, say, unhex};

/// Bytes of the grant that comes and goes.
const LEN: usize = 4096;
/// The bit that those set in each word who write there.
const WRITTEN: u64 = 1 << 63;
/// The value of memory that is granted to nobody.
const FREE: u64 = 0xeeee_eeee_eeee_eeee;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Kernel,
    Message,
    Network,
}

impl Way {
    fn named(name: &str) -> Way {
        [Way::Kernel, Way::Message, Way::Network]
            .into_iter()
            .find(|way| format!("{way:?}") == name)
            .expect("a way")
    }

    fn config(self) -> Config {
        let config = Config::new().heap_bytes(16 << 20).timeout(LIMIT);
        match self {
            Way::Kernel => config,
            Way::Message => config.attach_never(),
            Way::Network => {
                let named = std::env::var(testbed::PROVIDERS).unwrap_or_else(|_| "tcp".into());
                let provider = named.split(',').next().unwrap_or_default();
                config.transport(Transport::parse(&format!("ofi:{provider}")).expect("a transport"))
            }
        }
    }
}

/// Words that peers reach by grants, and this process by atomics.
struct Memory(Vec<AtomicU64>);

impl Memory {
    fn new(bytes: usize) -> &'static Memory {
        let memory = Memory((0..bytes / 8).map(|_| AtomicU64::new(FREE)).collect());
        // Nothing of a test's process is freed before it ends.
        Box::leak(Box::new(memory))
    }

    fn fill(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// Whether all words have one of these values.
    fn holds(&self, values: &[u64]) -> bool {
        self.0.iter().all(|word| values.contains(&word.load(Ordering::Relaxed)))
    }

    fn grant(&'static self, node: &Node) -> Grant<Foreign<()>> {
        let start = self.0.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: the memory is never freed, and this process uses it by atomics alone.
        let memory = unsafe { Foreign::new(start, self.0.len() * 8, ()) };
        node.grant(memory, Rights::ReadWrite, Audience::ALL).expect("granted")
    }
}

/// The owner: its node, and the word of its heap by which it tells the grant that there is now.
struct Owner {
    node: Node,
    told: HeapArray<u64>,
    way: Way,
}

impl Owner {
    fn new(way: Way) -> Owner {
        let node = Node::open_in(way.config(), None).expect("a node");
        let told = node.heap().alloc_zeroed::<u64>(2).expect("room");
        Owner { node, told, way }
    }

    fn tell(&self, grant: &Grant<Foreign<()>>) {
        let [id, len] = grant.name().to_words();
        self.told.write(1, len);
        self.told.write(0, id);
    }

    /// Starts a process that uses what is granted, in this manner.
    fn user(&self, manner: &str) -> User {
        let (address, at) =
            (hex(self.node.address().expect("an address").as_bytes()), self.told.ptr(0).offset());
        let role = format!("{manner} {:?} {address} {at}", self.way);
        let mut command = in_role(std::process::Command::new("/proc/self/exe"), &role);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this program runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        User { child, lines }
    }
}

struct User {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl User {
    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("it says more").expect("text");
            if let Some(text) = said(&line) {
                return text.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn child() {
    let Some(role) = support::role() else { return };
    if role == "short" {
        return grant_more_than_are_shown();
    }
    let words: Vec<&str> = role.split(' ').collect();
    let [manner, way, address, at] = words[..] else { panic!("{role}") };
    let node = Node::open_in(Way::named(way).config(), None).expect("a node");
    let owner = node.connect_to(Address::from_bytes(unhex(address)).expect("an address")).expect("connected");
    let told = GlobalPtr::<u64>::new(owner, at.parse().expect("a number"));
    match manner {
        "reads" | "writes" => use_what_comes(&node, told, manner == "writes"),
        "counts" => count_what_comes(&node, told),
        _ => put_for_ever(&node, told, manner),
    }
}

fn name_of(node: &Node, told: GlobalPtr<u64>) -> Option<(u64, Remote)> {
    let (id, len) = (node.get(told).expect("the owner is there"), node.get(told.add(1)).expect("as well"));
    let name = GrantName::from_words([id, len])?;
    Some((id, Remote::granted(told.peer(), name)))
}

/// Reads or writes whatever grant there is, until there is none, and checks each word that it gets.
fn use_what_comes(node: &Node, told: GlobalPtr<u64>, writes: bool) {
    let (mut done, mut revoked, mut into) = (0_u64, 0_u64, vec![0_u64; LEN / 8]);
    say("begins");
    while let Some((id, there)) = name_of(node, told) {
        let used = match writes {
            true => {
                into.fill(id | WRITTEN);
                node.put_bytes(there, bytemuck::cast_slice(&into))
            }
            false => node.get_bytes(there, bytemuck::cast_slice_mut(&mut into)),
        };
        match used {
            Ok(()) => {
                assert!(into.iter().all(|word| *word & !WRITTEN == id), "{id:#x}: {:#x?}", &into[..8]);
                done += 1;
            }
            Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let counted = |by| {
        let stats = node.stats();
        stats.get(Operation::Put, by).count + stats.get(Operation::Get, by).count
    };
    say(format_args!("{done} {revoked} {}", counted(Mechanism::Cma)));
}

/// Adds to the first word of whatever grant there is, until there is none, and says how often it has. The
/// upper half of the word is the name's.
fn count_what_comes(node: &Node, told: GlobalPtr<u64>) {
    let (mut done, mut revoked) = (0_u64, 0_u64);
    say("begins");
    while let Some((id, there)) = name_of(node, told) {
        match node.fetch_add(there.word::<u64>(), 1) {
            Ok(old) => {
                assert_eq!(old >> 32, id >> 32, "{old:#x} by {id:#x}");
                done += 1;
            }
            Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("{error}"),
        }
    }
    say(format_args!("{done} {revoked}"));
}

/// Puts all of a grant again and again, and ends in one of several manners.
fn put_for_ever(node: &Node, told: GlobalPtr<u64>, manner: &str) {
    let (_, there) = name_of(node, told).expect("it is granted");
    let len = node.get(told.add(1)).expect("the owner is there") as usize;
    let bytes = vec![0x77_u8; len];
    node.put_bytes(there, &bytes[..8]).expect("the owner is met");
    let worker = node.clone();
    let putting = std::thread::spawn(move || while worker.put_bytes(there, &bytes).is_ok() {});
    std::thread::sleep(Duration::from_millis(10));
    say("puts");
    if manner == "execs" {
        use std::os::unix::process::CommandExt;
        panic!("{}", std::process::Command::new("sleep").arg("60").exec());
    }
    let _ = putting.join();
    say("refused");
}

/// Rounds that one set of users sees: they end long before a test's processes do by themselves.
const ROUNDS: u64 = 3_000;

/// By name: how often memory comes and goes in all, near, by message and over `tcp`.
/// `STANDPIPE_TEST_GRANTS=1000000 cargo test --release --test grants near` takes minutes. A put that is
/// killed is of 1 GiB then. `STANDPIPE_TEST_PROVIDERS` names another provider than `tcp`, as `tools/rdma-vm`
/// has one: `verbs;ofi_rxm`.
const BY_NAME: &str = "STANDPIPE_TEST_GRANTS";

/// Grants the same memory again and again, while others read and write it, and has it to itself in between.
fn comes_and_goes(way: Way) {
    let is_named = std::env::var_os(testbed::PROVIDERS).is_some();
    if way == Way::Network && !is_named && support::network().is_none() {
        return;
    }
    let rounds = std::env::var(BY_NAME).map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let (owner, memory) = (Owner::new(way), Memory::new(LEN));
    for seed in 0..rounds.div_ceil(ROUNDS) {
        some_rounds(&owner, memory, seed);
    }
}

fn some_rounds(owner: &Owner, memory: &'static Memory, seed: u64) {
    let first = memory.grant(&owner.node);
    memory.fill(first.name().to_words()[0]);
    owner.tell(&first);
    let mut users = ["reads", "writes", "writes"].map(|manner| owner.user(manner));
    users.iter_mut().for_each(|user| assert_eq!(user.hear(), "begins"));
    let (mut grant, mut random) = (Some(first), support::Random::new(seed));
    for _ in 0..ROUNDS {
        let mut now = grant.take().unwrap_or_else(|| memory.grant(&owner.node));
        let id = now.name().to_words()[0];
        memory.fill(id);
        owner.tell(&now);
        let until = Instant::now() + Duration::from_micros(random.below(30) as u64);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        now.revoke().expect("it is granted");
        now.wait_idle(LIMIT).expect("they go on");
        assert!(memory.holds(&[id, id | WRITTEN]), "something older was put");
        memory.fill(FREE);
        std::hint::spin_loop();
        assert!(memory.holds(&[FREE]), "something was put after it was taken back");
    }
    owner.told.write(0, u64::MAX);
    let all = users.map(|mut user| user.hear());
    println!("{:?}: {ROUNDS} rounds; done, revoked and by the kernel: {all:?}", owner.way);
    let by_kernel = |said: &String| said.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    let by_kernel: u64 = all.iter().map(|said| by_kernel(said).expect("a number")).sum();
    assert_eq!(by_kernel > 0, owner.way == Way::Kernel, "{all:?}");
    assert!(memory.holds(&[FREE]));
}

#[test]
fn memory_that_is_taken_back_is_ones_own_near() {
    comes_and_goes(Way::Kernel);
}

#[test]
fn memory_that_is_taken_back_is_ones_own_by_message() {
    comes_and_goes(Way::Message);
}

#[test]
fn memory_that_is_taken_back_is_ones_own_over_a_network() {
    comes_and_goes(Way::Network);
}

/// Grants the same word again and again, while others add to it, and has it to itself as soon as it has
/// revoked the name.
fn counts(way: Way) {
    if way == Way::Network && support::network().is_none() {
        return;
    }
    let (owner, memory) = (Owner::new(way), Memory::new(64));
    let first = memory.grant(&owner.node);
    let word = &memory.0[0];
    let begin = |grant: &Grant<Foreign<()>>| {
        let id = grant.name().to_words()[0];
        word.store(id >> 32 << 32, Ordering::Relaxed);
        owner.tell(grant);
        id >> 32
    };
    begin(&first);
    let mut users = [(); 2].map(|()| owner.user("counts"));
    users.iter_mut().for_each(|user| assert_eq!(user.hear(), "begins"));
    let (mut grant, mut random, mut counted) = (Some(first), support::Random::new(7), 0);
    for round in 0..ROUNDS {
        // Those who have begun may have counted by the first name already.
        let mut now = grant.take().unwrap_or_else(|| memory.grant(&owner.node));
        let tag = if round == 0 { word.load(Ordering::Relaxed) >> 32 } else { begin(&now) };
        let until = Instant::now() + Duration::from_micros(random.below(100) as u64);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        now.revoke().expect("it is granted");
        // What comes by the name now comes too late.
        let last = word.swap(FREE, Ordering::SeqCst);
        assert_eq!(last >> 32, tag, "something older was counted");
        counted += last & u64::from(u32::MAX);
        std::hint::spin_loop();
        assert_eq!(word.load(Ordering::Relaxed), FREE, "something was counted after it was taken back");
        now.wait_idle(LIMIT).expect("nobody is at it");
    }
    owner.told.write(0, u64::MAX);
    let all = users.map(|mut user| user.hear());
    println!("{way:?}: {ROUNDS} rounds; counted {counted}; done and revoked: {all:?}");
    let done = |said: &String| said.split(' ').next().and_then(|count| count.parse::<u64>().ok());
    let done: u64 = all.iter().map(|said| done(said).expect("a number")).sum();
    assert!(done > 0 && done == counted, "{done} were told that they counted, and {counted} did");
    assert!(memory.holds(&[FREE]));
}

#[test]
fn each_addition_by_a_name_counts_once_and_none_once_it_is_revoked_near() {
    counts(Way::Kernel);
}

#[test]
fn each_addition_by_a_name_counts_once_and_none_once_it_is_revoked_over_tcp() {
    counts(Way::Network);
}

/// Nobody writes memory any more that was taken back.
fn stays_free(memory: &Memory) {
    memory.fill(FREE);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(5));
        assert!(memory.holds(&[FREE]), "something was put after it was taken back");
    }
}

#[test]
fn one_that_is_killed_amid_a_put_leaves_the_memory_alone() {
    let bytes = if std::env::var_os(BY_NAME).is_some() { 1 << 30 } else { 64 << 20 };
    let owner = Owner::new(Way::Kernel);
    let memory = Memory::new(bytes);
    for round in 0..5 {
        let mut grant = memory.grant(&owner.node);
        owner.tell(&grant);
        let mut user = owner.user("puts");
        assert_eq!(user.hear(), "puts");
        std::thread::sleep(Duration::from_millis(3 * round));
        user.signal(Signal::KILL);
        grant.revoke().expect("it is granted");
        grant.wait_idle(LIMIT).expect("it is gone");
        stays_free(memory);
    }
}

#[test]
fn one_that_is_stopped_keeps_the_memory_until_it_goes_on_or_is_killed() {
    let owner = Owner::new(Way::Kernel);
    let memory = Memory::new(8 << 20);
    let mut in_use = 0;
    for round in 0..100 {
        let mut grant = memory.grant(&owner.node);
        owner.tell(&grant);
        let mut user = owner.user("puts");
        assert_eq!(user.hear(), "puts");
        user.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(5));
        grant.revoke().expect("it is granted");
        let id = grant.name().id();
        match grant.wait_idle(Duration::from_millis(20)) {
            Ok(_) => {}
            Err(GrantError::StillInUse { grant: named, peer }) => {
                assert_eq!((named, owner.node.peers().contains(&peer)), (id, true));
                in_use += 1;
                user.signal(if round % 2 == 0 { Signal::KILL } else { Signal::CONT });
                grant.wait_idle(LIMIT).expect("it is gone, or has gone on");
            }
            Err(error) => panic!("{error}"),
        }
        stays_free(memory);
        let stats = owner.node.stats();
        assert_eq!(stats.revocations_in_use(), in_use, "each that ended so is counted");
        assert!(stats.revocations_waited() >= in_use, "and is one of those that found somebody there");
        if in_use >= 4 {
            return;
        }
    }
    panic!("{in_use} of 100 that were stopped were at the memory");
}

#[test]
fn one_that_executes_another_program_amid_a_put_leaves_the_memory_alone() {
    let owner = Owner::new(Way::Kernel);
    let memory = Memory::new(64 << 20);
    let mut grant = memory.grant(&owner.node);
    owner.tell(&grant);
    let mut user = owner.user("execs");
    assert_eq!(user.hear(), "puts");
    let name = format!("/proc/{}/comm", user.child.id());
    let is_another = || std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep");
    assert!(support::eventually(is_another));
    grant.revoke().expect("it is granted");
    grant.wait_idle(LIMIT).expect("its memory is gone");
    stays_free(memory);
}

/// Counts where memory is dropped.
struct Keeper(Arc<AtomicU64>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Grants memory, has a process put into it, stops that, and ends the grant with it as told. `None`: it was
/// not at the memory at that moment.
fn stopped_at<T>(
    owner: &Owner,
    grant: Grant<Foreign<Keeper>>,
    end: impl FnOnce(Grant<Foreign<Keeper>>) -> Option<T>,
) -> (User, Option<T>) {
    let [id, len] = grant.name().to_words();
    owner.told.write(1, len);
    owner.told.write(0, id);
    let mut user = owner.user("puts");
    assert_eq!(user.hear(), "puts");
    user.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(5));
    let ended = end(grant);
    (user, ended)
}

fn grant_counted(node: &Node, memory: &Memory, dropped: &Arc<AtomicU64>) -> Grant<Foreign<Keeper>> {
    let start = memory.0.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: the memory is never freed, and this process uses it by atomics alone.
    let foreign = unsafe { Foreign::new(start, memory.0.len() * 8, Keeper(Arc::clone(dropped))) };
    node.grant(foreign, Rights::ReadWrite, Audience::ALL).expect("granted")
}

/// Drops a grant while one is at its memory, and wants that dropped once it is gone, as somebody does this.
fn is_kept_until_none_is_at_it(closes: bool, mut meanwhile: impl FnMut(&Owner)) {
    let memory = Memory::new(8 << 20);
    let dropped = Arc::new(AtomicU64::new(0));
    let count = || dropped.load(Ordering::SeqCst);
    for _ in 0..100 {
        let owner = Owner::new(Way::Kernel);
        let grant = grant_counted(&owner.node, memory, &dropped);
        let before = count();
        let (user, kept) = stopped_at(&owner, grant, |grant| {
            if closes {
                owner.node.clone().close(LIMIT).expect("closed");
            }
            drop(grant);
            (count() == before).then_some(())
        });
        if kept.is_none() {
            continue;
        }
        meanwhile(&owner);
        assert_eq!(count(), before, "it is still at the memory");
        user.signal(Signal::KILL);
        let is_dropped = || {
            meanwhile(&owner);
            count() == before + 1
        };
        assert!(support::eventually(is_dropped), "its user is gone");
        return stays_free(memory);
    }
    panic!("none of 100 that were stopped was at the memory");
}

#[test]
fn memory_that_is_dropped_while_one_is_at_it_is_kept_until_none_is() {
    is_kept_until_none_is_at_it(false, |owner| _ = owner.node.progress());
}

#[test]
fn memory_that_was_dropped_is_freed_by_later_grants_where_nobody_makes_progress() {
    let share = |owner: &Owner| drop(owner.node.share(vec![1_u8; 8], Audience::ALL).expect("granted"));
    is_kept_until_none_is_at_it(false, share);
}

#[test]
fn memory_whose_node_has_closed_is_freed_by_grants_of_other_nodes() {
    let other = Node::open_in(Way::Kernel.config(), None).expect("a node");
    let share = |_: &Owner| drop(other.share(vec![1_u8; 8], Audience::ALL).expect("granted"));
    is_kept_until_none_is_at_it(true, share);
}

#[test]
fn memory_comes_back_after_its_node_has_closed_while_others_have_handles() {
    let memory = Memory::new(8 << 20);
    for round in 0..100 {
        let owner = Owner::new(Way::Kernel);
        let grant = grant_counted(&owner.node, memory, &Arc::default());
        let id = grant.name().id();
        let (user, kept) = stopped_at(&owner, grant, |mut grant| {
            owner.node.clone().close(LIMIT).expect("closed");
            match grant.wait_idle(Duration::from_millis(20)) {
                Ok(_) => None,
                Err(GrantError::StillInUse { grant: named, .. }) if named == id => Some(grant),
                Err(error) => panic!("{error}"),
            }
        });
        let Some(mut grant) = kept else { continue };
        user.signal(if round % 2 == 0 { Signal::KILL } else { Signal::CONT });
        grant.wait_idle(LIMIT).expect("it is gone, or has found the node closed");
        return stays_free(memory);
    }
    panic!("none of 100 that were stopped was at the memory");
}

/// The system ends processes that make a file longer than that: such an owner shows fewer grants.
#[test]
fn an_owner_whose_files_must_be_short_grants_as_many_and_some_by_message() {
    let mut command = in_role(std::process::Command::new("/proc/self/exe"), "short");
    assert!(command.status().expect("this program runs").success());
}

fn grant_more_than_are_shown() {
    let longest = Some(17 << 20);
    setrlimit(Resource::Fsize, Rlimit { current: longest, maximum: longest }).expect("less is allowed");
    // What a node has for each peer is a file as well.
    let open = || Node::open_in(Way::Kernel.config().peers_max(2), None).expect("a node");
    let (owner, user) = (open(), open());
    let grants = owner.share_many((0..300_000_u64).map(|at| vec![at; 1]), Audience::ALL).expect("granted");
    let peer = user.connect_to(owner.address().expect("an address")).expect("connected");
    let mut word = [0; 8];
    let mut get = |at: u64| {
        let name = grants[at as usize].name();
        user.get_bytes(Remote::granted(peer, name), &mut word).expect("it is granted");
        assert_eq!(u64::from_ne_bytes(word), at);
        user.stats().get(Operation::Get, Mechanism::Cma).count
    };
    // The owner has met the user by then.
    get(0);
    let met = get(0);
    assert!(get(270_000) > met, "its line is within the file");
    let met = get(270_000);
    assert_eq!(get(299_999), met, "its line is not");
}

#[test]
fn names_of_one_that_was_started_again_mean_nothing() {
    let (first, second) = (Owner::new(Way::Kernel), Owner::new(Way::Kernel));
    let (old, new) = (Memory::new(LEN).grant(&first.node), Memory::new(LEN).grant(&second.node));
    let peer: Rank = first.node.connect_to(second.node.address().expect("an address")).expect("connected");
    let mut into = [0; 8];
    first.node.get_bytes(Remote::granted(peer, new.name()), &mut into).expect("it is granted");
    let get = first.node.get_bytes(Remote::granted(peer, old.name()), &mut into);
    assert!(matches!(get, Err(Error::Revoked { .. })), "{get:?}");
}
