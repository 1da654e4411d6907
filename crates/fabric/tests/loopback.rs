//! Two endpoints in one process, over every provider that works here.

mod common;

use common::{LIMIT, Memory, Pair, done, find, next, open, providers, run};
use fabric::{Completion, Errno, Error, Fabric, Hints, Op, Options, Post, RemotePiece, Sleep, Until};
use std::time::{Duration, Instant};

/// Runs a test over every provider there is that offers what the hints want, by default and with manual
/// progress.
fn over_all(hints: Hints, options: &Options, test: impl Fn(&str, Pair)) {
    let mut seen = Vec::new();
    for (name, manual) in providers().iter().flat_map(|name| [(name, false), (name, true)]) {
        let Some(provider) = find(name, Hints { manual, ..hints.clone() }) else { continue };
        let full_name = provider.description().provider.clone();
        if seen.contains(&(full_name.clone(), manual)) {
            continue;
        }
        match Pair::open(&provider, options) {
            Ok(pair) => {
                println!("over {full_name}, manual: {manual}");
                test(&full_name, pair);
            }
            Err(error) if options.wait => {
                testbed::skip(format_args!("{full_name}, manual: {manual}: {error}"))
            }
            Err(error) => panic!("{full_name} was offered, and then {error}"),
        }
        seen.push((full_name, manual));
    }
}

#[test]
fn what_is_written_is_there_and_can_be_read() {
    over_all(Hints::default(), &Options::default(), |_, mut pair| {
        for len in [1, 8, 100, 4096, 70_000, 1 << 20] {
            let target = Memory::registered(&mut pair.b, len, len as u64);
            let source = Memory::local(&mut pair.a, len, 2 * len as u64 + 1);
            let back = Memory::local(&mut pair.a, len, 2 * len as u64 + 2);
            source.fill(|at| (at * 7 + len) as u8);
            let at = target.at(0, pair.b_of_a);
            // SAFETY: the memory is leaked and nobody touches it until the completion.
            let wrote = pair.run(|a| unsafe { a.write(source.piece(), at, 5) }.expect("taken or busy"));
            assert_eq!(wrote, done(5, Op::Write));
            // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
            let read = pair.run(|a| unsafe { a.read(back.piece(), at, 6) }.expect("taken or busy"));
            assert_eq!(read, done(6, Op::Read));
            assert_eq!(back.bytes(), source.bytes(), "{len} bytes read back");
            assert_eq!(target.bytes(), source.bytes(), "{len} bytes at the target");
            assert_eq!(pair.a.in_flight(), 0);
        }
        pair.a.close().expect("nothing is left");
        pair.b.close().expect("nothing is left");
    });
}

#[test]
fn a_delivered_write_is_at_the_target_when_it_completes() {
    over_all(Hints { delivery: true, ..Hints::default() }, &Options::default(), |_, mut pair| {
        for len in [8, 5000, 1 << 20] {
            let target = Memory::registered(&mut pair.b, len, len as u64);
            let source = Memory::local(&mut pair.a, len, 2 * len as u64 + 1);
            source.fill(|at| (at * 3 + len) as u8);
            let to = target.at(0, pair.b_of_a);
            let piece = RemotePiece { addr: to.addr, len, key: to.key };
            let post = |a: &mut fabric::Endpoint| {
                // SAFETY: the memory is leaked and nobody touches it until the completion.
                unsafe { a.write_pieces(&[source.piece()], to.peer, &[piece], Until::Delivered, 9) }
                    .expect("taken or busy")
            };
            assert_eq!(pair.run(post), done(9, Op::Write));
            assert_eq!(target.bytes(), source.bytes(), "without another poll of the target");
        }
    });
}

#[test]
fn pieces_are_scattered_and_gathered_in_order() {
    over_all(Hints::default(), &Options::default(), |_, mut pair| {
        let target = Memory::registered(&mut pair.b, 400, 1);
        let source = Memory::local(&mut pair.a, 300, 2);
        let back = Memory::local(&mut pair.a, 300, 3);
        source.fill(|at| at as u8);
        let to = target.at(0, pair.b_of_a);
        let piece = |(offset, len)| RemotePiece { addr: to.addr + offset as u64, len, key: to.key };
        // Devices take several pieces on this side only.
        let one = pair.a.description().remote_pieces == 1;
        let places: &[(usize, usize)] = if one { &[(20, 250)] } else { &[(200, 120), (10, 130)] };
        let near: Vec<RemotePiece> = places.iter().copied().map(piece).collect();
        let far = [source.part(50, 100), source.part(150, 150)];
        let wrote = pair.run(|a| {
            // SAFETY: the memory is leaked and nobody touches it until the completion.
            unsafe { a.write_pieces(&far, to.peer, &near, Until::Reusable, 1) }.expect("taken or busy")
        });
        assert_eq!(wrote, done(1, Op::Write));
        let into = [back.part(0, 200), back.part(200, 50)];
        let read = pair.run(|a| {
            // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
            unsafe { a.read_pieces(&into, to.peer, &near, 2) }.expect("taken or busy")
        });
        assert_eq!(read, done(2, Op::Read));
        let sent = &source.bytes()[50..300];
        assert_eq!(&back.bytes()[..250], sent);
        let there = target.bytes();
        let arrived: Vec<&[u8]> = places.iter().map(|(offset, len)| &there[*offset..offset + len]).collect();
        assert_eq!(arrived.concat(), sent);
        let many = vec![piece((0, 1)); fabric::PIECES_MAX + 1];
        // SAFETY: nothing is posted, so no memory is read or written.
        let refused = unsafe { pair.a.read_pieces(&into, to.peer, &many, 3) };
        assert!(matches!(refused, Err(Error::TooMuch { len: 17, .. })), "{refused:?}");
        assert_eq!(pair.a.in_flight(), 0);
    });
}

#[test]
fn messages_arrive_each_in_its_buffer() {
    over_all(Hints::default(), &Options::default(), |_, mut pair| {
        let mut buffers = Vec::new();
        for at in 0..4 {
            let buffer = Memory::local(&mut pair.b, 20_000, 10 + at);
            // SAFETY: the memory is leaked and nobody touches it until the completion.
            let posted = unsafe { pair.b.receive(buffer.piece(), 100 + at) };
            assert_eq!(posted, Ok(Post::Posted));
            buffers.push(buffer);
        }
        for (at, len) in [(0, 16), (1, 700), (2, 20_000)] {
            let source = Memory::local(&mut pair.a, len, 20 + at as u64);
            source.fill(|byte| (byte + at) as u8);
            let mut got = None;
            let to = pair.b_of_a;
            let sent = run(
                &mut pair.a,
                // SAFETY: the memory is leaked and nobody touches it until the completion.
                |a| unsafe { a.send(source.piece(), to, 50) }.expect("taken or busy"),
                || got = got.take().or(pair.b.poll().expect("the queue works")),
            );
            assert_eq!(sent, done(50, Op::Send));
            let got = got.unwrap_or_else(|| next(&mut pair.b, || assert_eq!(pair.a.poll(), Ok(None))));
            assert_eq!(got, Completion::Done { token: 100 + at as u64, op: Op::Receive, len });
            assert_eq!(&buffers[at].bytes()[..len], source.bytes());
        }
    });
}

#[test]
fn a_few_bytes_are_written_inline() {
    over_all(Hints::default(), &Options::default(), |_, mut pair| {
        let target = Memory::registered(&mut pair.b, 64, 1);
        let start = Instant::now();
        while pair.a.write_inline(b"fire hose", target.at(3, pair.b_of_a)).expect("taken or busy")
            == Post::Busy
        {
            assert_eq!((pair.a.poll(), pair.b.poll()), (Ok(None), Ok(None)));
        }
        while &target.bytes()[3..12] != b"fire hose" {
            assert_eq!((pair.a.poll(), pair.b.poll()), (Ok(None), Ok(None)));
            assert!(start.elapsed() < LIMIT, "it never arrives");
        }
        let much = vec![7; pair.a.description().inline_bytes + 1];
        let refused = pair.a.write_inline(&much, target.at(0, pair.b_of_a));
        assert!(matches!(refused, Err(Error::TooMuch { call: "fi_inject_write", .. })), "{refused:?}");
    });
}

#[test]
fn a_full_queue_is_busy_and_empties() {
    const DEPTH: u32 = 40;
    over_all(Hints::default(), &Options { depth: DEPTH, ..Options::default() }, |_, mut pair| {
        let target = Memory::registered(&mut pair.b, 100_000, 1);
        let source = Memory::local(&mut pair.a, 100_000, 2);
        source.fill(|at| at as u8);
        let at = target.at(0, pair.b_of_a);
        let (mut posted, mut ended, mut refused) = (0_u64, 0_u64, 0);
        let start = Instant::now();
        while ended < 500 {
            // SAFETY: the memory is leaked and nobody writes it until the last completion.
            while unsafe { pair.a.write(source.piece(), at, posted) } == Ok(Post::Posted) {
                posted += 1;
                assert!(pair.a.in_flight() <= DEPTH as usize);
            }
            refused += u64::from(posted > ended);
            let completion = pair.a.poll().expect("the queue works");
            assert!(
                matches!(completion, None | Some(Completion::Done { op: Op::Write, .. })),
                "{completion:?}"
            );
            ended += u64::from(completion.is_some());
            assert_eq!(posted - ended, pair.a.in_flight() as u64);
            assert_eq!(pair.b.poll(), Ok(None));
            assert!(start.elapsed() < LIMIT, "{ended} of {posted}");
        }
        assert!(refused > 0, "{posted} of such size never filled the queue");
        while pair.a.in_flight() > 0 {
            pair.next();
        }
    });
}

#[test]
fn a_sleeper_is_woken() {
    let options = Options { wait: true, ..Options::default() };
    over_all(Hints::default(), &options, |name, mut pair| {
        let buffer = Memory::local(&mut pair.b, 100, 1);
        let source = Memory::local(&mut pair.a, 100, 2);
        // Once for the connection, then for the measure.
        for round in 0..2 {
            // SAFETY: the memory is leaked and nobody touches it until the completion.
            assert_eq!(unsafe { pair.b.receive(buffer.piece(), round) }, Ok(Post::Posted));
            let (mut sleeps, start) = (0, Instant::now());
            let mut sender = Some(std::thread::spawn({
                let (mut a, to, piece) = (pair.a, pair.b_of_a, SendPiece(source.piece()));
                move || {
                    std::thread::sleep(Duration::from_millis(100));
                    // SAFETY: the memory is leaked and nobody touches it until the completion.
                    let sent =
                        run(&mut a, |a| unsafe { a.send(piece.get(), to, 9) }.expect("taken or busy"), || ());
                    assert_eq!(sent, done(9, Op::Send));
                    let until = Instant::now() + Duration::from_millis(50);
                    while Instant::now() < until {
                        assert_eq!(a.poll(), Ok(None));
                    }
                    a
                }
            }));
            let got = loop {
                assert!(start.elapsed() < LIMIT, "{sleeps} sleeps and nothing");
                if let Some(completion) = pair.b.poll().expect("the queue works") {
                    break completion;
                }
                if pair.b.try_wait().expect("it has a descriptor") == Sleep::Now {
                    sleeps += 1;
                    sleep_on(&pair.b);
                }
            };
            assert_eq!(got, Completion::Done { token: round, op: Op::Receive, len: 100 });
            // Some are awake all the time: libfabric 1.17's net once connected, rxm until it is.
            if name != "net" && round > 0 {
                assert!(sleeps < 100, "{sleeps} sleeps of {name} are no sleep");
            }
            pair.a = sender.take().expect("started above").join().expect("it sends");
        }
    });
}

/// A piece of leaked memory, for another thread.
struct SendPiece(fabric::Local);
// SAFETY: the memory is leaked, and the test touches it only when no operation does.
unsafe impl Send for SendPiece {}
impl SendPiece {
    fn get(&self) -> fabric::Local {
        self.0
    }
}

fn sleep_on(endpoint: &fabric::Endpoint) {
    let fd = endpoint.wait_fd().expect("opened for waiting");
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let woken = rustix::event::poll(&mut fds, Some(&limit)).expect("a descriptor");
    assert_eq!(woken, 1, "nobody woke it");
}

#[test]
fn who_did_not_ask_for_waiting_cannot_sleep() {
    let Some(provider) = find("tcp", Hints::default()) else { return };
    let mut endpoint = open(&provider, &Options::default());
    assert!(endpoint.wait_fd().is_none());
    assert_eq!(endpoint.try_wait(), Err(Error::Absent { call: "fi_trywait" }));
}

#[test]
fn addresses_and_peers_that_mean_nothing_are_refused() {
    over_all(Hints::default(), &Options::default(), |name, mut pair| {
        for bad in [&b""[..], b"short", &[0xff; 600]] {
            assert_eq!(pair.a.add_peer(bad), Err(Error::BadAddress { len: bad.len() }));
        }
        // As long as an address, and of a family that nobody knows: those that are added later must not
        // suffer.
        let foreign = vec![0xff; pair.a.address().len()];
        assert_eq!(pair.a.add_peer(&foreign), Err(Error::BadAddress { len: foreign.len() }));
        let memory = Memory::registered(&mut pair.a, 8, 1);
        if name == "sockets" {
            return testbed::skip("sockets of libfabric 2 cannot remove an address");
        }
        pair.a.remove_peer(pair.b_of_a).expect("it was added");
        let gone = Error::NoPeer { index: 0 };
        assert_eq!(pair.a.remove_peer(pair.b_of_a), Err(gone.clone()));
        // SAFETY: nothing is posted, so no memory is read or written.
        assert_eq!(unsafe { pair.a.send(memory.piece(), pair.b_of_a, 1) }, Err(gone.clone()));
        // SAFETY: nothing is posted, so no memory is read or written.
        assert_eq!(unsafe { pair.a.write(memory.piece(), memory.at(0, pair.b_of_a), 1) }, Err(gone));
        assert_eq!(pair.a.in_flight(), 0);
        assert_eq!(pair.a.add_peer(pair.b.address()), Ok(pair.b_of_a), "the number is free again");
    });
}

#[test]
fn a_key_is_taken_once_and_free_again_after_closing() {
    let Some(provider) = find("tcp", Hints::default()) else { return };
    let mut endpoint = open(&provider, &Options::default());
    let first = Memory::registered(&mut endpoint, 100, 7);
    let second = Memory::new(100);
    let piece = second.piece();
    // SAFETY: the memory is leaked and touched through raw pointers only.
    let mut again = || unsafe { endpoint.register(piece.addr, piece.len, fabric::Access::ALL, 7) };
    assert_eq!(again(), Err(Error::Call { call: "fi_mr_reg", errno: Errno::ENOKEY }));
    let id = first.region.as_ref().expect("registered").id;
    assert_eq!(endpoint.deregister(id), Ok(()));
    assert_eq!(endpoint.deregister(id), Err(Error::NoRegion { index: 0 }));
    // SAFETY: as above, the memory is leaked and nobody touches it until the completion.
    let again = unsafe { endpoint.register(piece.addr, piece.len, fabric::Access::ALL, 7) };
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn what_is_asked_for_decides_what_is_found() {
    let Ok(fabric) = Fabric::load() else { return testbed::skip("no libfabric") };
    let ask = |hints: &Hints| fabric.providers(hints).expect("a list");
    assert!(ask(&Hints { provider: Some("no such provider".into()), ..Hints::default() }).is_empty());
    let all = ask(&Hints::default());
    assert!(!all.is_empty());
    let zero = Hints { domain: Some("a\0b".into()), ..Hints::default() };
    assert_eq!(fabric.providers(&zero).expect_err("no name"), Error::BadText { what: "the domain's name" });
    let json = serde_json::to_value(all[0].description()).expect("plain values");
    assert!(json["mr_mode"]["virt_addr"].is_boolean() && json["key_bytes"].is_u64(), "{json}");
}

#[test]
fn signal_handlers_stay() {
    let caught = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("SigCgt:")).expect("it has such a line");
        line.to_owned()
    };
    let before = caught();
    over_all(Hints::default(), &Options::default(), |_, _| assert_eq!(caught(), before));
}
