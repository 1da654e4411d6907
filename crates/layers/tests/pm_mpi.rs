//! PM's Rust side in jobs of real processes: the message-passing interface, its shares of locked memory, and
//! what becomes of damaged messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use layers::pm::mpi::Mpi;
use layers::pm::{Context, Handle, LockBy, Pm, PmError, PmOpenError, Started};
use standpipe::launch::Launch;
use standpipe::{AllMemory, Config, HandlerId, Node, ProgressThread, Rank};

const ROLE: &str = "LAYERS_TEST_ROLE";
const PAGES: LockBy = LockBy::Address { budget_bytes: 192 << 10 };
/// A share of it: less than a message.
const SHARE: u64 = 64 << 10;
const LONG: usize = 300_000;

/// Runs this program again, as so many processes that play a role, and gives what they wrote.
fn job(ranks: u32, role: &str) -> String {
    job_with(ranks, role, &[])
}

fn job_with(ranks: u32, role: &str, env: &[(&str, &str)]) -> String {
    let lines = Arc::new(std::sync::Mutex::new(String::new()));
    let heard = Arc::clone(&lines);
    let launch = Launch::new("/proc/self/exe").args(["--exact", "child", "--nocapture"]).env(ROLE, role);
    let launch = env.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
    let launch = launch.ranks(ranks).say(|_| {}).on_line(move |_, _, line| {
        let mut lines = heard.lock().expect("no panic");
        *lines += &String::from_utf8_lossy(line);
        lines.push('\n');
    });
    let outcome = launch.run().expect("the job starts");
    let lines = std::mem::take(&mut *lines.lock().expect("no panic"));
    assert_eq!(outcome.status(), 0, "{role} of {ranks}: {outcome:?}\n{lines}");
    lines
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::abort();
    });
    match role.as_str() {
        "shares" => shares(PAGES),
        "pieces" => shares(LockBy::Pin),
        "matching" => matching(),
        "blocked" => blocked(),
        "damaged" => damaged(),
        "copies" => copies(),
        "polling" => polling(),
        "hostile" => hostile(),
        "full" => full(),
        "speed" => speed(),
        role => panic!("no role is {role}"),
    }
}

fn open(by: LockBy) -> Pm {
    let node = Node::open(Config::from_env().expect("settings").progress(ProgressThread::Off)).expect("open");
    // SAFETY: the tests name memory of their own only, which is there until each call has ended.
    let memory = unsafe { AllMemory::promised() };
    Pm::open(node, memory, by).expect("PM opens")
}

/// All long messages of a circle are under way at once, with shares that have a part of one: none stops.
#[test]
fn sends_and_receives_in_a_circle_go_on_with_shares_of_their_own() {
    for ranks in 1..=3 {
        job(ranks, "shares");
    }
}

/// The same where nothing can be locked.
#[test]
fn where_nothing_is_locked_long_messages_go_in_pieces() {
    // A network may register, and lock.
    job_with(2, "pieces", &[("STANDPIPE_TRANSPORT", "shm")]);
}

fn shares(by: LockBy) {
    let mut pm = open(by);
    let (rank, size) = pm.rank_and_size();
    let context = pm.open_context(0, true).expect("it is free");
    let mut mpi = Mpi::new(context, SHARE, SHARE);
    let (next, before) = (i64::from((rank + 1) % size), (rank + size - 1) % size);
    let sent: Vec<Vec<u8>> = (0..6).map(|tag| vec![rank as u8 * 10 + tag as u8; LONG + tag]).collect();
    let mut got = vec![vec![0_u8; LONG + 6]; 6];
    let mut requests = Vec::new();
    for (tag, data) in sent.iter().enumerate() {
        requests.push(mpi.send(&mut pm, next, tag as u32, data.as_ptr(), data.len()).expect("a node"));
    }
    for (tag, into) in got.iter_mut().enumerate() {
        let (source, tag) = (Some(i64::from(before)), Some(tag as u32));
        requests.push(mpi.receive(&mut pm, source, tag, into.as_mut_ptr(), into.len()).expect("a node"));
    }
    for request in requests.into_iter().rev() {
        mpi.wait(&mut pm, request).expect("it goes on");
    }
    for (tag, got) in got.iter().enumerate() {
        let byte = before as u8 * 10 + tag as u8;
        assert!(got[..LONG + tag].iter().all(|got| *got == byte), "{tag}");
        assert!(got[LONG + tag..].iter().all(|got| *got == 0), "{tag}: nothing beyond");
    }
    let (counters, cache) = (mpi.counters(), pm.pin_down());
    assert_eq!((counters.eager, counters.refused, pm.refused()), (0, 0, 0));
    if by == LockBy::Pin {
        assert!(counters.written == 0 && counters.in_pieces >= 6, "{counters:?}");
    } else {
        assert!(counters.written >= 6 * 4 && counters.delayed > 0, "{counters:?}");
        assert!(cache.held_bytes <= cache.budget_bytes && cache.evictions > 0, "{cache:?}");
    }
    // A last word, so that nobody leaves early.
    let token = mpi.send(&mut pm, next, 100, got[0].as_ptr(), 1).expect("a node");
    mpi.wait(&mut pm, token).expect("short");
    let token = mpi.receive(&mut pm, None, Some(100), got[1].as_mut_ptr(), 1).expect("any");
    assert_eq!(mpi.wait(&mut pm, token).expect("it comes").source, before);
    pm.close();
}

/// Tags, any source, order, messages before their receives, and such as are too long.
#[test]
fn messages_match_by_source_and_tag_in_their_order() {
    job(1, "matching");
}

fn matching() {
    let mut pm = open(PAGES);
    let context = pm.open_context(5, true).expect("it is free");
    let mut mpi = Mpi::new(context, SHARE, SHARE);
    let data: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
    let mut got = vec![0_u8; 10_000];
    let lens = [1_usize, 4096, 4097, 10_000];
    for tag in [7, 8] {
        for len in lens {
            mpi.send(&mut pm, 0, tag, data.as_ptr(), len).expect("a node");
        }
    }
    for len in lens {
        let request = mpi.receive(&mut pm, None, Some(8), got.as_mut_ptr(), got.len()).expect("any");
        let status = mpi.wait(&mut pm, request).expect("it came before");
        assert_eq!((status.source, status.tag, status.len), (0, 8, len));
        assert_eq!(got[..len], data[..len]);
    }
    for (len, room) in lens.into_iter().zip([0, 4095, 4096, 9_999]) {
        let request = mpi.receive(&mut pm, Some(0), None, got.as_mut_ptr(), room).expect("a node");
        assert_eq!(mpi.wait(&mut pm, request), Err(PmError::Invalid), "{len} bytes in {room}");
    }
    assert_eq!(mpi.send(&mut pm, 1, 0, data.as_ptr(), 1), Err(PmError::Invalid));
    assert_eq!(mpi.receive(&mut pm, Some(-1), None, got.as_mut_ptr(), 1), Err(PmError::Invalid));
    assert_eq!((mpi.counters().eager, mpi.counters().refused), (4, 0));
    pm.close();
}

/// The program itself has locked all that may be: what cannot lock goes in pieces, and nothing stops.
#[test]
fn memory_that_others_have_locked_stops_nothing() {
    job(1, "blocked");
}

fn blocked() {
    let mut pm = open(PAGES);
    let context = pm.open_context(0, true).expect("it is free");
    let mut all = vec![0_u8; 184 << 10];
    pm.lock(context, None, all.as_mut_ptr(), all.len()).expect("room");
    let mut mpi = Mpi::new(context, SHARE, SHARE);
    let (data, mut got) = (vec![3_u8; LONG], vec![0_u8; LONG]);
    let send = mpi.send(&mut pm, 0, 1, data.as_ptr(), LONG).expect("a node");
    let receive = mpi.receive(&mut pm, None, None, got.as_mut_ptr(), LONG).expect("any");
    mpi.wait(&mut pm, receive).expect("it goes on");
    mpi.wait(&mut pm, send).expect("it goes on");
    assert!(got == data && mpi.counters().written == 0 && mpi.counters().in_pieces > 0);
    pm.close();
}

/// What a peer sends that is no message is refused and counted, and told of once as a damaged message.
#[test]
fn damaged_messages_are_refused_and_told_of_once() {
    job(1, "damaged");
}

/// Makes progress until that holds, for some seconds at most.
fn progress_until(pm: &mut Pm, holds: impl Fn(&Pm) -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds(pm) && Instant::now() < until {
        pm.progress();
    }
    assert!(holds(pm));
}

fn damaged() {
    let mut pm = open(PAGES);
    let context = pm.open_context(0, true).expect("it is free");
    let (hostile, node) = (HandlerId::of("pm", "message"), pm.node().clone());
    for (args, payload) in [
        ([9, 0, 0, 0], &[1_u8][..]),
        ([1 | 80 << 8, 0, 0, 0], &[1]),
        ([1, 0, 0, 0], &[]),
        ([2 | 16 << 24, 0, 0, 0], &[]),
        ([1 | 1 << 24, 0, 0, 0], &[1]),
        ([3, 1, 0, 0], &[]),
    ] {
        node.request_medium(0, hostile, args, payload).expect("it is sent");
    }
    // As many as the window has, and one more.
    for _ in 0..17 {
        node.request_medium(0, hostile, [1 | 3 << 8, 0, 0, 0], b"more").expect("it is sent");
    }
    progress_until(&mut pm, |pm| pm.refused() >= 7);
    assert_eq!(pm.refused(), 7);
    assert_eq!(pm.receive(context), Err(PmError::Io));
    assert_eq!(pm.receive(context), Err(PmError::NoBuffers));
    let other = pm.open_context(3, true).expect("it is free");
    for _ in 0..16 {
        pm.receive(other).expect("it came");
        pm.release(other).expect("it was received");
    }
    assert_eq!(pm.receive(other), Err(PmError::Io), "credits that nobody was due");
    assert_eq!(pm.is_done(context, Started::Writes), Ok(()));
    let word = Box::leak(Box::new(0_u8));
    let local = pm.lock(context, None, word, 1).expect("room");
    assert_eq!(pm.write(context, 0, Handle(u64::MAX), local, 1), Err(PmError::Invalid));
    pm.close();
}

/// Messages are written and read where the transport has them; only beyond what it keeps they are copied.
#[test]
fn nothing_is_copied_by_the_layer_while_payloads_can_be_kept() {
    job(1, "copies");
}

fn copies() {
    let mut pm = open(PAGES);
    let contexts: Vec<Context> =
        (0..40).map(|channel| pm.open_context(channel, true).expect("it is free")).collect();
    for context in &contexts[..32] {
        send_window(&mut pm, *context, 17);
    }
    assert_eq!((pm.copies().sent, pm.copies().received), (0, 0), "512 messages are kept where they came");
    send_window(&mut pm, contexts[32], 17);
    assert_eq!((pm.copies().sent, pm.copies().received), (0, 16 * 17), "and no more");
    send_window(&mut pm, contexts[33], 16);
    assert_eq!(pm.copies().sent, 16 * 16, "of short ones all");
    for _ in 0..16 {
        pm.receive(contexts[33]).expect("it came");
        pm.release(contexts[33]).expect("it was received");
    }
    assert_eq!(pm.copies().received, 16 * 17 + 16 * 16, "at both sides");
    pm.close();
}

/// Sends 16 messages of so many bytes to itself, and has them arrive.
fn send_window(pm: &mut Pm, context: Context, len: usize) {
    for _ in 0..16 {
        pm.send_buffer(context, 0, len).expect("a buffer");
        pm.send(context).expect("sent");
    }
    let handled = |pm: &Pm| pm.node().stats().total(standpipe::Operation::Handled).count;
    for _ in 0..100 {
        pm.progress();
    }
    assert!(handled(pm) >= 16);
}

/// A heap that has no room for the table of locks is told of as that.
#[test]
fn a_full_heap_is_the_reason_that_is_given() {
    job_with(1, "full", &[("STANDPIPE_HEAP", "4M")]);
}

fn full() {
    let node = Node::open(Config::from_env().expect("settings").progress(ProgressThread::Off)).expect("open");
    let mut all = Vec::new();
    for bytes in [1 << 20, 64 << 10] {
        while let Ok(array) = node.heap().alloc::<u8>(bytes) {
            all.push(array);
        }
    }
    // SAFETY: nothing is named to PM, which does not open.
    let memory = unsafe { AllMemory::promised() };
    let opened = Pm::open(node.clone(), memory, PAGES);
    assert!(matches!(opened, Err(PmOpenError::Heap(_))));
}

/// A message lies in the receiver's lane, and nothing handles it until the receiver polls.
#[test]
fn nothing_arrives_but_by_polling() {
    job(2, "polling");
}

fn polling() {
    let handled = |pm: &Pm| pm.node().stats().total(standpipe::Operation::Handled).count;
    let mut pm = open(PAGES);
    let context = pm.open_context(0, true).expect("it is free");
    let job = std::env::var("STANDPIPE_JOB").expect("this is a job");
    let name: String = job.chars().filter(char::is_ascii_alphanumeric).take(100).collect();
    let mark = std::env::temp_dir().join(format!("standpipe-pm-{name}"));
    pm.node().world_of("test").expect("a team").barrier().expect("all");
    if pm.rank_and_size().0 == 1 {
        pm.send_buffer(context, 0, 8).expect("a buffer");
        pm.send(context).expect("sent");
        std::fs::write(&mark, "sent").expect("there is room");
        while pm.receive(context).is_err() {}
        std::fs::remove_file(&mark).expect("it is there");
    } else {
        let before = handled(&pm);
        while !mark.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(handled(&pm), before, "it has been sent, and nobody polled");
        pm.receive(context).expect("it comes by the first poll");
        assert_eq!(handled(&pm), before + 1);
        pm.send_buffer(context, 1, 8).expect("a buffer");
        pm.send(context).expect("sent");
    }
    pm.close();
}

/// A receiver that replies with a handle of nothing: its message goes in pieces, and others' go on.
#[test]
fn one_write_that_fails_is_no_other_ones_failure() {
    job(2, "hostile");
    if standpipe::network::look_for(Some("tcp")).is_ok() {
        job_with(2, "hostile", &[("STANDPIPE_TRANSPORT", "ofi:tcp")]);
    }
}

fn hostile() {
    let mut pm = open(PAGES);
    let context = pm.open_context(0, true).expect("it is free");
    if pm.rank_and_size().0 == 1 {
        reply_in_vain(&mut pm, context);
        pm.close();
        return;
    }
    let mut mpi = Mpi::new(context, SHARE, SHARE);
    let (data, mut got) = (vec![7_u8; LONG], vec![0_u8; LONG]);
    let hostile = mpi.send(&mut pm, 1, 5, data.as_ptr(), 50_000).expect("a node");
    let send = mpi.send(&mut pm, 0, 6, data.as_ptr(), LONG).expect("a node");
    let receive = mpi.receive(&mut pm, Some(0), Some(6), got.as_mut_ptr(), LONG).expect("a node");
    assert_eq!(mpi.wait(&mut pm, hostile).map(|status| status.len), Ok(50_000), "it goes in pieces");
    assert_eq!(mpi.wait(&mut pm, send).map(|status| status.len), Ok(LONG));
    assert_eq!(mpi.wait(&mut pm, receive).map(|status| status.len), Ok(LONG));
    assert!(got == data);
    assert_eq!(mpi.wait(&mut pm, receive), Err(PmError::Invalid), "its result has been taken");
    let counters = mpi.counters();
    assert!(counters.in_pieces >= 1 && counters.written >= 4, "{counters:?}");
    // Each part of three messages waits once at most, at either end.
    assert!(counters.delayed <= 2 * 6, "{counters:?}");
    while pm.is_done(context, Started::Sends).is_err() {}
    pm.close();
}

/// A packet of the interface's.
fn packet(words: [u64; 5]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Asks for a whole message by a handle that is none, and takes its pieces.
fn reply_in_vain(pm: &mut Pm, context: Context) {
    let mut left = 50_000;
    while left > 0 {
        let Ok((at, len)) = pm.receive(context) else { continue };
        let mut bytes = vec![0; len];
        // SAFETY: PM has just said that these bytes are there.
        let memory = unsafe { AllMemory::promised() };
        memory.read(at, &mut bytes);
        pm.release(context).expect("it was received");
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("a word"));
        match word(0) {
            2 => {
                let reply = packet([3, word(2), 77, 0xFFF0 << 48 | 0x1000, 50_000]);
                let buffer = pm.send_buffer(context, 0, reply.len()).expect("a buffer");
                memory.write(buffer, &reply);
                pm.send(context).expect("sent");
            }
            5 => {
                assert_eq!(word(1), 77, "the receive that was named");
                left -= len - 40;
            }
            kind => panic!("a packet of kind {kind}"),
        }
    }
}

/// One-way latency and bandwidth beside the bare library's, in the same run: printed.
#[test]
#[ignore = "a measurement"]
fn latency_and_bandwidth_beside_the_bare_library() {
    println!("{}", job(2, "speed"));
}

const ROUNDS: u64 = 20_000;

fn speed() {
    let mut pm = open(LockBy::Address { budget_bytes: 64 << 20 });
    let node = pm.node().clone();
    let peer = 1 - node.rank();
    let context = pm.open_context(0, true).expect("it is free");
    let heard = Arc::new(AtomicU64::new(0));
    let hearing = Arc::clone(&heard);
    let bare = node.register("test", "ping", move |_| {
        hearing.fetch_add(1, Ordering::Relaxed);
    });
    let bare = bare.expect("the name is free");
    for _ in 0..7 {
        node.barrier().expect("all");
        let plain = bare_rounds(&node, bare, &heard);
        node.barrier().expect("all");
        let ours = pm_rounds(&mut pm, context);
        if node.rank() == 0 {
            let micros = |time: Duration| time.as_secs_f64() * 1e6 / ROUNDS as f64 / 2.0;
            let ratio = ours.as_secs_f64() / plain.as_secs_f64();
            println!("bare {:.3} us, pm {:.3} us, ratio {ratio:.2}", micros(plain), micros(ours));
        }
    }
    bandwidth(&mut pm, context, peer);
    pm.close();
}

fn bare_rounds(node: &Node, bare: HandlerId, heard: &AtomicU64) -> Duration {
    let (rank, before, begun) = (node.rank(), heard.load(Ordering::Relaxed), Instant::now());
    for round in 1..=ROUNDS {
        for turn in 0..2 {
            if turn == rank {
                node.request(1 - rank, bare, [round, 0, 0, 0]).expect("sent");
            } else {
                while heard.load(Ordering::Relaxed) < before + round {
                    node.progress();
                }
            }
        }
    }
    begun.elapsed()
}

fn pm_rounds(pm: &mut Pm, context: Context) -> Duration {
    let ((rank, _), begun) = (pm.rank_and_size(), Instant::now());
    for _ in 0..ROUNDS {
        for turn in 0..2 {
            if turn == rank {
                pm.send_buffer(context, i64::from(1 - rank), 8).expect("a buffer");
                pm.send(context).expect("sent");
            } else {
                while pm.receive(context).is_err() {}
                pm.release(context).expect("received");
            }
        }
    }
    begun.elapsed()
}

fn bandwidth(pm: &mut Pm, context: Context, peer: Rank) {
    let (node, len) = (pm.node().clone(), 1 << 20);
    let mut memory = vec![1_u8; len];
    let local = pm.lock(context, None, memory.as_mut_ptr(), len).expect("room");
    let mut all = [[0_u64; 2]; 2];
    let own = [local.0, memory.as_ptr().expose_provenance() as u64];
    node.world_of("test").expect("a team").all_gather(&[own], &mut all).expect("all");
    let [theirs, addr] = all[peer as usize];
    // SAFETY: the peer keeps that memory until the barrier below, and leaves it alone.
    let to = unsafe { standpipe::Remote::raw(peer, addr) };
    for _ in 0..7 {
        if node.rank() == 0 {
            let begun = Instant::now();
            (0..200).for_each(|_| node.put_bytes(to, &memory).expect("put"));
            let plain = begun.elapsed();
            let begun = Instant::now();
            for _ in 0..200 {
                pm.write(context, peer.into(), Handle(theirs), local, len).expect("written");
                while pm.is_done(context, Started::Writes).is_err() {}
            }
            println!("1 MiB: pm {:.3} of a bare put", plain.as_secs_f64() / begun.elapsed().as_secs_f64());
        }
        node.barrier().expect("all");
    }
}
