//! Joining a job, from the inside of one process: who is let in, who is told what, and what strangers can do.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, connect, listen, recv, send, sendmsg, socket_with,
};
use standpipe::bootstrap::{Broker, How, JobEnv, JoinError, Membership, Notice, PeerHandlesError, Refusal};

const PATIENCE: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A member whose segments are the files `control` and `heap`, and what it is told.
fn join_with(env: &JobEnv, control: &File, heap: &File) -> Result<(Membership, Receiver<Notice>), JoinError> {
    let (tell, told) = channel();
    let on_notice = Box::new(move |notice| {
        let _ = tell.send(notice);
    });
    Ok((Membership::join(env, [control.as_fd(), heap.as_fd(), heap.as_fd()], soon(), on_notice)?, told))
}

fn join(env: &JobEnv) -> Result<(Membership, Receiver<Notice>), JoinError> {
    let file = File::open("/dev/null").expect("every system has it");
    join_with(env, &file, &file)
}

fn refusal(env: &JobEnv) -> Refusal {
    match join(env).expect_err("not to be let in") {
        JoinError::Refused(refusal) => refusal,
        other => panic!("refused for another reason: {other}"),
    }
}

/// `env` with one of its variables changed.
fn forged(env: &JobEnv, variable: &str, value: &str) -> JobEnv {
    let vars = env.vars();
    let lookup = |name: &str| {
        let (_, honest) = vars.iter().find(|(key, _)| *key == name)?;
        Some(OsString::from(if name == variable { value } else { honest }))
    };
    JobEnv::from_lookup(lookup).expect("well formed").expect("a job")
}

fn tempfile(text: &str) -> File {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    let mut file = File::from(fd);
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn same_file(file: &File, fd: OwnedFd) -> bool {
    let other = File::from(fd).metadata().expect("an open file");
    file.metadata().expect("an open file").ino() == other.ino()
}

#[test]
fn members_get_each_others_segments() {
    let broker = Broker::start(3).expect("a broker");
    let files: Vec<(File, File)> = (0..3).map(|_| (tempfile("control"), tempfile("heap"))).collect();
    let members: Vec<Membership> = (0..)
        .zip(&files)
        .map(|(rank, (control, heap))| join_with(&broker.env(rank), control, heap).expect("let in").0)
        .collect();
    for member in &members {
        assert_eq!((member.size(), member.launcher_pid()), (3, std::process::id()));
        for (peer, (control, heap)) in (0..).zip(&files) {
            let handles = member.connect(peer, soon()).expect("joined");
            assert_eq!(handles.pid, std::process::id());
            assert!(same_file(control, handles.control) && same_file(heap, handles.heap));
        }
    }
}

#[test]
fn whoever_must_not_join_is_told_why() {
    let broker = Broker::start(3).expect("a broker");
    let (_member, _told) = join(&broker.env(1)).expect("let in");

    let wrong_secret = "0".repeat(64);
    assert_eq!(refusal(&forged(&broker.env(0), "STANDPIPE_SECRET", &wrong_secret)), Refusal::Secret);
    assert_eq!(refusal(&forged(&broker.env(0), "STANDPIPE_SIZE", "4")), Refusal::Size { ours: 3, theirs: 4 });
    let Refusal::RankTaken { rank: 1, pid, program } = refusal(&broker.env(1)) else {
        panic!("rank 1 is taken")
    };
    assert_eq!(pid, std::process::id());
    assert!(program.starts_with("launch_join"), "{program}");

    // None of it has harmed the job.
    join(&broker.env(0)).expect("let in");
}

/// Set for the process that [`another_users_process_is_refused`] starts.
const AS_ANOTHER_USER: &str = "LAUNCH_TEST_AS_ANOTHER_USER";

#[test]
fn another_users_process_is_refused() {
    const NOBODY: u32 = 65_534;
    if std::env::var_os(AS_ANOTHER_USER).is_some() {
        let env = JobEnv::from_env().expect("well formed").expect("set by the test below");
        println!("@@{:?}", join(&env).map(|_| ()));
        let mut answer = [0; 512];
        let (len, _) = recv(stranger(&env), &mut answer, RecvFlags::empty()).expect("answered unasked");
        println!("@@{:?}", &answer[..len]);
        return;
    }
    if !rustix::process::geteuid().is_root() {
        testbed::skip("only root can start a process of another user");
        return;
    }
    let broker = Broker::start(1).expect("a broker");
    // In a directory that the other user can get at.
    let this = std::env::current_exe().expect("a running program has a path");
    let copy = std::env::temp_dir().join(format!("launch_join-{}", std::process::id()));
    std::fs::copy(this, &copy).expect("room for a copy");
    let mut command = std::process::Command::new(&copy);
    command.args(["--exact", "another_users_process_is_refused", "--nocapture"]).current_dir("/");
    let output = command.env(AS_ANOTHER_USER, "1").envs(broker.env(0).vars()).uid(NOBODY).output();
    std::fs::remove_file(&copy).expect("copied above");
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    // Its own look at the socket tells it before it shows the secret.
    let theirs = rustix::process::geteuid().as_raw();
    let foreign = JoinError::ForeignBroker { ours: NOBODY, theirs };
    assert!(said.contains(&format!("@@Err({foreign})")), "{said}");
    // Reply::Refused, Refusal::Uid { ours: 0, theirs: 65534 }: so the broker says to whoever does not look.
    let refused = [&b"SPJ\n\x05\x00\x01\x02\x00"[..], b"\xfe\xff\x03"].concat();
    assert!(said.contains(&format!("@@{refused:?}")), "{said}");
    join(&broker.env(0)).expect("the job goes on");
}

#[test]
fn ranks_that_have_left_meet_anew() {
    let broker = Broker::start(3).expect("a broker");
    let [(first, told), (second, _)] = [0, 1].map(|rank| join(&broker.env(rank)).expect("let in"));
    drop(second);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 1, how: How::Left }));
    // Rank 1 is in the next round, where nobody else is yet; for the first one it stays lost.
    let (again, told_again) = join(&broker.env(1)).expect("it may come again");
    let hasty = again.connect(0, Instant::now() + Duration::from_millis(20));
    assert!(matches!(hasty, Err(PeerHandlesError::Timeout { peer: 0, .. })), "{hasty:?}");
    assert!(matches!(first.connect(1, soon()), Err(PeerHandlesError::Lost { peer: 1, how: How::Left })));
    assert!(matches!(refusal(&broker.env(1)), Refusal::RankTaken { rank: 1, .. }));
    drop(first);
    let (zero, _) = join(&broker.env(0)).expect("it may come again");
    zero.connect(1, soon()).expect("it is there");
    again.connect(0, soon()).expect("it is there");
    // Rank 2 comes to the first round, though that is over, and leaves it for the second.
    let (late, told_late) = join(&broker.env(2)).expect("let in");
    let lost: Vec<_> = (0..2).map(|_| told_late.recv_timeout(PATIENCE).expect("told")).collect();
    assert_eq!(lost, [0, 1].map(|rank| Notice::Lost { rank, how: How::Left }));
    drop(late);
    let (late, _) = join(&broker.env(2)).expect("it may come again");
    late.connect(1, soon()).expect("it is there");
    assert!(told_again.try_recv().is_err(), "nobody is lost in the second round");
    // And so on.
    drop((zero, again, late));
    let third = [0, 1, 2].map(|rank| join(&broker.env(rank)).expect("it may come again"));
    third[2].0.connect(0, soon()).expect("it is there");
}

#[test]
fn a_job_has_so_many_rounds() {
    let broker = Broker::start(1).expect("a broker");
    for _ in 0..256 {
        drop(join(&broker.env(0)).expect("it may come again"));
    }
    assert_eq!(refusal(&broker.env(0)), Refusal::Rounds { most: 256 });
}

/// Of a process that ends, all rounds hear, whichever it was in; and nobody else gets its rank.
#[test]
fn whoever_has_ended_is_lost_in_every_round() {
    let broker = Broker::start_supervised(3).expect("a broker");
    let members = [0, 1].map(|rank| join(&broker.env(rank)).expect("let in"));
    // It ends in the first round, where it has never come.
    broker.ended(2, 4711, How::Killed(9));
    assert_eq!(members[0].1.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 2, how: How::Killed(9) }));
    assert_eq!(refusal(&broker.env(2)), Refusal::RankOver { rank: 2, how: How::Killed(9) });
    drop(members);
    let [(zero, told), (one, _)] = [0, 1].map(|rank| join(&broker.env(rank)).expect("it may come again"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 2, how: How::Killed(9) }));
    // It ends in the second round.
    drop(one);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 1, how: How::Left }));
    broker.ended(1, std::process::id(), How::Exited(1));
    drop(zero);
    let (zero, told) = join(&broker.env(0)).expect("it may come again");
    let lost: Vec<_> = (0..2).map(|_| told.recv_timeout(PATIENCE).expect("told")).collect();
    assert!(lost.contains(&Notice::Lost { rank: 1, how: How::Exited(1) }), "{lost:?}");
    assert!(matches!(zero.connect(1, soon()), Err(PeerHandlesError::Lost { peer: 1, .. })));
}

#[test]
fn without_a_broker_there_is_no_job() {
    let env = Broker::start(1).expect("a broker").env(0);
    assert!(matches!(join(&env), Err(JoinError::NoBroker)));
}

#[test]
fn connecting_waits_for_the_peer_to_join() {
    let broker = Broker::start(2).expect("a broker");
    let (zero, _told) = join(&broker.env(0)).expect("let in");
    let hasty = zero.connect(1, Instant::now() + Duration::from_millis(20));
    assert!(matches!(hasty, Err(PeerHandlesError::Timeout { peer: 1, waited }) if waited.as_millis() >= 20));
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| zero.connect(1, soon()))).collect();
        std::thread::sleep(Duration::from_millis(50));
        let _one = join(&broker.env(1)).expect("let in");
        for thread in waiting {
            thread.join().expect("no panic").expect("joined meanwhile");
        }
    });
    assert!(matches!(zero.connect(2, soon()), Err(PeerHandlesError::NoSuchRank { peer: 2, size: 2 })));
}

#[test]
fn leaving_is_told_to_all_also_to_those_who_join_later() {
    let broker = Broker::start(3).expect("a broker");
    let (zero, told_zero) = join(&broker.env(0)).expect("let in");
    drop(join(&broker.env(1)).expect("let in"));
    let notice = Notice::Lost { rank: 1, how: How::Left };
    assert_eq!(told_zero.recv_timeout(PATIENCE), Ok(notice));
    let (_two, told_two) = join(&broker.env(2)).expect("let in");
    assert_eq!(told_two.recv_timeout(PATIENCE), Ok(notice));
    assert!(matches!(zero.connect(1, soon()), Err(PeerHandlesError::Lost { peer: 1, how: How::Left })));
}

#[test]
fn the_launchers_account_of_an_end_is_passed_on() {
    let broker = Broker::start_supervised(4).expect("a broker");
    let (zero, told) = join(&broker.env(0)).expect("let in");

    // A process that never joined, while somebody waits for it.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| zero.connect(1, soon()));
        std::thread::sleep(Duration::from_millis(20));
        broker.ended(1, 4711, How::Killed(9));
        let waited = waiting.join().expect("no panic");
        assert!(matches!(waited, Err(PeerHandlesError::Lost { peer: 1, how: How::Killed(9) })));
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 1, how: How::Killed(9) }));

    // The end of a process in whose stead another joined does not count.
    let (two, _) = join(&broker.env(2)).expect("let in");
    broker.ended(2, 4711, How::Exited(0));
    zero.connect(2, soon()).expect("still there");

    // A member that had taken leave before it ended has left, whatever the launcher saw.
    drop(two);
    broker.ended(2, std::process::id(), How::Exited(0));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::Lost { rank: 2, how: How::Left }));
    assert!(told.try_recv().is_err(), "told once");
}

#[test]
fn when_the_broker_goes_everybody_knows() {
    let broker = Broker::start(2).expect("a broker");
    let (zero, told) = join(&broker.env(0)).expect("let in");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| zero.connect(1, soon()));
        std::thread::sleep(Duration::from_millis(20));
        drop(broker);
        let waited = waiting.join().expect("no panic");
        assert!(matches!(waited, Err(PeerHandlesError::BrokerGone)));
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Notice::BrokerGone));
    assert!(matches!(zero.connect(1, soon()), Err(PeerHandlesError::BrokerGone)));
}

#[test]
fn a_panicking_callback_leaves_nobody_waiting() {
    let broker = Broker::start(3).expect("a broker");
    let file = File::open("/dev/null").expect("every system has it");
    let on_notice = Box::new(|_| panic!("as the test wants"));
    let zero = Membership::join(&broker.env(0), [file.as_fd(); 3], soon(), on_notice);
    let zero = zero.expect("let in");
    drop(join(&broker.env(1)).expect("let in"));
    assert!(matches!(zero.connect(2, soon()), Err(PeerHandlesError::BrokerGone)));
}

fn socket_name(env: &JobEnv) -> SocketAddrUnix {
    let (_, name) = &env.vars()[0];
    SocketAddrUnix::new_abstract_name(format!("standpipe-{name}").as_bytes()).expect("a short name")
}

fn new_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn stranger(env: &JobEnv) -> OwnedFd {
    let socket = new_socket();
    connect(&socket, &socket_name(env)).expect("the broker listens");
    socket
}

/// Whether the broker hangs up on `socket` within the test's patience; what it says before is passed over.
fn hung_up(socket: &OwnedFd) -> bool {
    let _ =
        rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE));
    loop {
        match recv(socket, &mut [0; 512], RecvFlags::empty()) {
            Ok((_, 0)) => return true,
            Ok(_) | Err(Errno::CONNRESET) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn strangers_are_shown_out_and_the_job_goes_on() {
    let broker = Broker::start(2).expect("a broker");
    let env = broker.env(0);
    let (zero, told) = join(&env).expect("let in");

    let silent: Vec<OwnedFd> = (0..40).map(|_| stranger(&env)).collect();
    let mut noise = [0u8; 4096];
    let mut state = 0x5eed_u32;
    for len in (1..200).chain([4096]) {
        for byte in &mut noise {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let guest = stranger(&env);
        let _ = send(&guest, &noise[..len], SendFlags::NOSIGNAL);
        let _ = send(&guest, &noise[..len], SendFlags::NOSIGNAL);
        assert!(hung_up(&guest), "{len} bytes of noise");
    }
    let guest = stranger(&env);
    let fds = [guest.as_fd(); 100];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let iov = [std::io::IoSlice::new(b"a hundred descriptors")];
    sendmsg(&guest, &iov, &mut control, SendFlags::NOSIGNAL).expect("sent");
    assert!(hung_up(&guest));

    let begun = Instant::now();
    let (_one, _) = join(&broker.env(1)).expect("let in past forty silent strangers");
    zero.connect(1, soon()).expect("joined");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(told.try_recv().is_err(), "nobody was lost");
    assert!(hung_up(&silent[0]), "silence is not for ever");
}

#[test]
fn a_member_that_floods_without_reading_hurts_only_itself() {
    let broker = Broker::start(3).expect("a broker");
    let env = broker.env(1);
    let (zero, told) = join(&broker.env(0)).expect("let in");
    let flooder = stranger(&env);
    let hex = &env.vars()[1].1;
    let secret = (0..32).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"));
    let header = b"SPJ\n\x05\x00";
    let join_as_one = [&header[..], &[0], &secret.collect::<Vec<u8>>(), &[1, 3, 1], b"f"].concat();
    let fds = [flooder.as_fd(); 3];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&flooder, &[std::io::IoSlice::new(&join_as_one)], &mut control, SendFlags::NOSIGNAL)
        .expect("sent");
    zero.connect(1, soon()).expect("the flooder joined as rank 1");

    let connect_zero = [&header[..], &[1, 0]].concat();
    while send(&flooder, &connect_zero, SendFlags::NOSIGNAL).is_ok() {}
    let notice = Notice::Lost { rank: 1, how: How::Vanished };
    assert_eq!(told.recv_timeout(PATIENCE), Ok(notice));
    let (_two, _) = join(&broker.env(2)).expect("the broker serves the others");
    zero.connect(2, soon()).expect("joined");
}

#[test]
fn a_joiner_of_another_version_is_told_both_versions() {
    // A listener that answers in version 7 of the format, whatever it is told.
    let env = Broker::start(1).expect("a broker").env(0);
    let listener = new_socket();
    bind(&listener, &socket_name(&env)).expect("the broker is gone and its name free");
    listen(&listener, 1).expect("bound above");
    let answer = std::thread::spawn(move || {
        let guest = accept(&listener).expect("the joiner comes");
        recv(&guest, &mut [0; 512], RecvFlags::empty()).expect("it speaks first");
        send(&guest, b"SPJ\n\x07\x00whatever", SendFlags::NOSIGNAL).expect("it listens");
    });
    assert_eq!(refusal(&env), Refusal::Version { ours: 7, theirs: 5 });
    answer.join().expect("no panic");

    // And the broker names its own to a joiner of version 7.
    let broker = Broker::start(1).expect("a broker");
    let guest = stranger(&broker.env(0));
    send(&guest, b"SPJ\n\x07\x00whatever", SendFlags::NOSIGNAL).expect("sent");
    let mut answer = [0; 512];
    let (len, _) = recv(&guest, &mut answer, RecvFlags::empty()).expect("answered");
    // Reply::Refused, Refusal::Version { ours: 3, theirs: 7 }
    assert_eq!(&answer[..len], b"SPJ\n\x05\x00\x01\x00\x05\x07");
}

#[test]
fn a_broker_that_never_answers_costs_the_deadline() {
    let env = Broker::start(1).expect("a broker").env(0);
    let listener = new_socket();
    bind(&listener, &socket_name(&env)).expect("the broker is gone and its name free");
    listen(&listener, 1).expect("bound above");
    let file = File::open("/dev/null").expect("every system has it");
    let deadline = Instant::now() + Duration::from_millis(100);
    let joined = Membership::join(&env, [file.as_fd(); 3], deadline, Box::new(|_| {}));
    assert!(matches!(joined, Err(JoinError::Timeout { waited }) if waited < Duration::from_secs(5)));
}

#[test]
fn a_job_of_256_joins_quickly() {
    const SIZE: u32 = 256;
    let broker = Broker::start(SIZE).expect("a broker");
    let begun = Instant::now();
    let members: Vec<_> = (0..SIZE).map(|rank| join(&broker.env(rank)).expect("let in")).collect();
    println!("{SIZE} members joined one after another in {:?}", begun.elapsed());
    members[0].0.connect(SIZE - 1, soon()).expect("joined");
    assert!(begun.elapsed() < PATIENCE);
}
