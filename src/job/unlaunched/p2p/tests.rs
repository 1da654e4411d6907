//! Listeners of one process, and strangers at them.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::peer_ids::{Who, Wire};
use super::state::{Admit, Tell};
use super::*;
use crate::job::launched::Watcher;
use crate::job::launched::member::{JoinError, Notice};
use crate::job::launched::socket::{Received, connect_to, receive, send};
use crate::job::launched::wire::{Decline, How, Refusal, Reply, Request, WIRE_VERSION, decode, encode};
use crate::job::plumbing::env::JobEnv;
use crate::job::plumbing::identity_proof::Proof;

pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A listener to room for so many others, and what is told there: arrivals as (number, place), and notices.
fn peer_listener(room: u32) -> (PeerListener, Receiver<(u32, u32)>, Receiver<Notice>) {
    let (arrived, arrivals) = channel();
    let (noticed, notices) = channel();
    // Some tests do not ask.
    let admit = move |Arrival { number, place, .. }| {
        let _ = arrived.send((number, place));
        Ok(())
    };
    let (admit, tell) = (Box::new(admit), Box::new(move |notice| _ = noticed.send(notice)));
    let peer_listener = PeerListener::open(config(room, true, admit, tell), Listen::Auto).expect("opened");
    (peer_listener, arrivals, notices)
}

pub(super) fn config(room: u32, near: bool, admit: Admit, tell: Tell) -> ListenerConfig {
    let segments = [(); 3].map(|()| File::open("/dev/null").expect("every system has it").into());
    let silence = Some(LIMIT);
    let introduce = Box::new(|| Ok(b"a card".to_vec()));
    ListenerConfig {
        segments,
        first: 1,
        places: 1 + room,
        near,
        listens: true,
        silence,
        introduce,
        admit,
        tell,
    }
}

pub(super) fn soon() -> Instant {
    Instant::now() + LIMIT
}

pub(super) fn told(peer_listener: &PeerListener) -> Told {
    Told::parse(peer_listener.address().as_bytes()).expect("its own")
}

#[test]
fn a_caller_and_the_called_have_places_at_each_other() {
    let ((a, at_a, _), (b, at_b, lost_b)) = (peer_listener(4), peer_listener(4));
    let address = b.address();
    assert_eq!(a.call(address.as_bytes(), soon()).expect("let in"), 1);
    assert_eq!((at_a.recv_timeout(LIMIT), at_b.recv_timeout(LIMIT)), (Ok((1, 1)), Ok((1, 1))));
    assert_eq!(a.call(address.as_bytes(), soon()).expect("known"), 1, "it is a peer already");
    assert_eq!(b.call(a.address().as_bytes(), soon()).expect("known"), 1, "whoever called");

    let (c, at_c, _) = peer_listener(4);
    assert_eq!(c.call(address.as_bytes(), soon()).expect("let in"), 1);
    assert_eq!((at_c.recv_timeout(LIMIT), at_b.recv_timeout(LIMIT)), (Ok((1, 2)), Ok((2, 1))));
    a.request_progress(1);
    assert_eq!(lost_b.recv_timeout(LIMIT), Ok(Notice::Serve));
    drop(a);
    assert_eq!(lost_b.recv_timeout(LIMIT), Ok(Notice::Lost { rank: 1, how: How::Left }));
}

#[test]
fn a_node_that_comes_again_is_another() {
    let (a, at_a, lost_a) = peer_listener(4);
    for number in 1..=3 {
        let (b, ..) = peer_listener(1);
        assert_eq!(b.call(a.address().as_bytes(), soon()).expect("let in"), 1);
        assert_eq!(at_a.recv_timeout(LIMIT), Ok((number, 1)));
        drop(b);
        assert_eq!(lost_a.recv_timeout(LIMIT), Ok(Notice::Lost { rank: number, how: How::Left }));
    }
}

#[test]
fn two_that_call_each_other_become_peers_once() {
    for _ in 0..30 {
        let ((a, at_a, _), (b, at_b, _)) = (peer_listener(8), peer_listener(8));
        let (to_a, to_b) = (a.address(), b.address());
        let (by_a, by_b) = std::thread::scope(|scope| {
            let by_a = scope.spawn(|| a.call(to_b.as_bytes(), soon()));
            let by_b = scope.spawn(|| b.call(to_a.as_bytes(), soon()));
            (by_a.join().expect("no panic").expect("peers"), by_b.join().expect("no panic").expect("peers"))
        });
        let (at_a, at_b): (Vec<_>, Vec<_>) = (at_a.try_iter().collect(), at_b.try_iter().collect());
        assert_eq!((at_a, at_b), (vec![(by_a, by_b)], vec![(by_b, by_a)]));
    }
}

#[test]
fn a_stranger_with_another_secret_is_declined_and_takes_no_place() {
    let ((a, ..), (b, at_b, _)) = (peer_listener(1), peer_listener(1));
    let forged = Told::new(HostId::own(), &told(&b).node(), Secret::random().expect("random"));
    for _ in 0..3 {
        let error = a.call(forged.to_address().as_bytes(), soon()).expect_err("another secret");
        assert!(matches!(error, CallError::Declined(Decline::Secret)), "{error:?}");
    }
    assert!(at_b.try_recv().is_err());
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), 1);
}

#[test]
fn whoever_is_not_there_or_does_not_answer_is_not_waited_for() {
    let (a, ..) = peer_listener(2);
    let (b, ..) = peer_listener(2);
    let gone = b.address();
    drop(b);
    let error = a.call(gone.as_bytes(), soon()).expect_err("gone");
    assert!(matches!(error, CallError::Join(JoinError::NoBroker)), "{error:?}");

    // Somebody listens, and never says a word.
    let name = JobName::random().expect("random");
    let _silent = listen_at(&name).expect("a free name");
    let silent = Told::new(HostId::own(), &name, Secret::random().expect("random")).to_address();
    let error = a.call(silent.as_bytes(), Instant::now() + Duration::from_millis(50)).expect_err("silence");
    assert!(matches!(error, CallError::Join(JoinError::Timeout { .. })), "{error:?}");

    let oneself = a.call(a.address().as_bytes(), soon()).expect_err("oneself");
    assert!(matches!(oneself, CallError::Oneself), "{oneself:?}");
    let elsewhere = HostId { boot: "another".into(), ..HostId::own() };
    let elsewhere = Told::new(elsewhere, &name, Secret::random().expect("random")).to_address();
    let error = a.call(elsewhere.as_bytes(), soon()).expect_err("elsewhere");
    assert!(matches!(error, CallError::Elsewhere), "{error:?}");
}

/// However often a node is called that does not answer, it takes one number; and where it answers late it is
/// a peer, also if nobody calls it any more.
#[test]
fn a_node_that_does_not_answer_takes_one_number() {
    let (a, at_a, _) = peer_listener(2);
    let name = JobName::random().expect("random");
    let listener = listen_at(&name).expect("a free name");
    let silent = Told::new(HostId::own(), &name, Secret::random().expect("random")).to_address();
    for _ in 0..20 {
        let error =
            a.call(silent.as_bytes(), Instant::now() + Duration::from_millis(5)).expect_err("silence");
        assert!(matches!(error, CallError::Join(JoinError::Timeout { .. })), "{error:?}");
    }
    let (b, ..) = peer_listener(1);
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("there is room"), 2);
    assert_eq!(at_a.recv_timeout(LIMIT), Ok((2, 1)));

    let called = rustix::net::accept(&listener).expect("it has called");
    let Received::Datagram { bytes, .. } = receive(&called) else { panic!("it has asked") };
    let asked = decode::<Request>(&bytes).expect("well said");
    assert!(matches!(asked, Request::Meet { place: 1, places: 3, .. }), "{asked:?}");
    let segment = File::open("/dev/null").expect("every system has it");
    let met = encode(&Reply::Met { place: 7, places: 9 });
    send(&called, &met, &[segment.as_fd(); 3]).expect("sent");
    assert_eq!(at_a.recv_timeout(LIMIT), Ok((1, 7)));
    assert_eq!(a.call(silent.as_bytes(), soon()).expect("a peer by now"), 1);
    assert!(rustix::net::accept(&listener).is_err(), "nobody has called again");
}

/// Two that call each other become peers once, also where one has given up waiting before the other heard it.
#[test]
fn two_that_call_each_other_late_become_peers_once() {
    for _ in 0..30 {
        let ((a, at_a, lost_a), (b, at_b, lost_b)) = (peer_listener(8), peer_listener(8));
        let (to_a, to_b) = (a.address(), b.address());
        let by_b = std::thread::scope(|scope| {
            // Nothing is heard at b for a while.
            let peer_ids = b.shared.peer_ids();
            let error =
                a.call(to_b.as_bytes(), Instant::now() + Duration::from_millis(2)).expect_err("silence");
            assert!(matches!(error, CallError::Join(JoinError::Timeout { .. })), "{error:?}");
            // Were b's call heard at a before a's is at b, only one of the two would count.
            let (node, secret) = (told(&b).node(), told(&b).secret.clone());
            let who = Who { proof: Proof::of(&secret, &node, &told(&a).node()), node };
            let expected = a.shared.expect(&who);
            assert_eq!(expected.is_err(), told(&a).node() < told(&b).node(), "{expected:?}");
            if let Ok(number) = expected {
                a.shared.peer_ids().give_back(number);
                a.shared.settle(&who);
            }
            let by_b = scope.spawn(|| b.call(to_a.as_bytes(), soon()));
            drop(peer_ids);
            by_b.join().expect("no panic").expect("peers")
        });
        let by_a = a.call(to_b.as_bytes(), soon()).expect("peers");
        assert_eq!(b.call(to_a.as_bytes(), soon()).expect("known"), by_b);
        let (at_a, at_b): (Vec<_>, Vec<_>) = (at_a.try_iter().collect(), at_b.try_iter().collect());
        assert_eq!((at_a, at_b), (vec![(by_a, by_b)], vec![(by_b, by_a)]));
        assert!(lost_a.try_recv().is_err() && lost_b.try_recv().is_err());
    }
}

/// Who calls and gives up before it is heard takes no number.
#[test]
fn a_caller_that_has_hung_up_takes_no_number() {
    let (a, at_a, _) = peer_listener(1);
    let segment = File::open("/dev/null").expect("every system has it");
    for _ in 0..20 {
        // Its thread waits for the table of peers before it lets anybody in.
        let peer_ids = a.shared.peer_ids();
        let caller = connect_to(&told(&a).node()).expect("the listener is open");
        let request = encode(&meet(&told(&a), &[9; 16]));
        send(&caller, &request, &[segment.as_fd(); 3]).expect("sent");
        drop((caller, peer_ids));
    }
    let (b, ..) = peer_listener(1);
    b.call(a.address().as_bytes(), soon()).expect("there is room");
    assert_eq!((at_a.recv_timeout(LIMIT), at_a.try_recv().is_err()), (Ok((1, 1)), true));
}

#[test]
fn a_node_that_has_had_its_number_of_peers_says_so() {
    let ((a, ..), (b, ..), (c, ..)) = (peer_listener(1), peer_listener(1), peer_listener(1));
    a.call(b.address().as_bytes(), soon()).expect("let in");
    let error = c.call(b.address().as_bytes(), soon()).expect_err("full there");
    assert!(matches!(error, CallError::Declined(Decline::Full { peers: 1 })), "{error:?}");
    let error = a.call(c.address().as_bytes(), soon()).expect_err("full here");
    assert!(matches!(error, CallError::Full { places: 2 }), "{error:?}");
}

#[test]
fn what_cannot_be_used_is_declined_with_the_reason() {
    let (a, ..) = peer_listener(1);
    let admit = |_: Arrival| Err("é".repeat(300));
    let picky =
        PeerListener::open(config(1, true, Box::new(admit), Box::new(|_| {})), Listen::Auto).expect("opened");
    let error = a.call(picky.address().as_bytes(), soon()).expect_err("declined");
    let what = "é".repeat(100);
    assert!(
        matches!(&error, CallError::Declined(Decline::Unfit { what: said }) if *said == what),
        "{error:?}"
    );
    let error = picky.call(a.address().as_bytes(), soon()).expect_err("unfit");
    assert!(matches!(&error, CallError::Unfit(what) if what.len() == 600), "{error:?}");
}

/// What somebody says who has an address, and says that it is this node, whose secret it has not.
fn meet(to: &Told, node: &[u8; 16]) -> Request {
    let guess = Secret::random().expect("the kernel has random bytes");
    let proof = Proof::of(&guess, &JobName::of(node), &to.node());
    Request::Meet { secret: to.secret.clone(), node: *node, proof, place: 1, places: 2 }
}

#[test]
fn whoever_says_that_it_is_another_node_is_not_taken_for_that_one() {
    let ((a, at_a, _), (b, at_b, _)) = (peer_listener(4), peer_listener(4));
    let impostor = connect_to(&told(&a).node()).expect("the listener is open");
    let segment = File::open("/dev/null").expect("every system has it");
    let request = encode(&meet(&told(&a), &told(&b).node().bytes()));
    send(&impostor, &request, &[segment.as_fd(); 3]).expect("sent");
    assert_eq!(at_a.recv_timeout(LIMIT), Ok((1, 1)), "it knows the address, so it is let in");
    let number = a.call(b.address().as_bytes(), soon()).expect("let in");
    assert_eq!((number, at_b.recv_timeout(LIMIT)), (2, Ok((1, 2))), "the node that has the address is asked");
    assert_eq!(b.call(a.address().as_bytes(), soon()).expect("known"), 1);
}

#[test]
fn what_is_said_before_the_connection_is_known_is_said_then() {
    let ((a, ..), (b, at_b, lost_b)) = (peer_listener(4), peer_listener(4));
    // As another thread does that finds the peer in the table before the table of peers has it.
    a.request_progress(1);
    a.call(b.address().as_bytes(), soon()).expect("let in");
    at_b.recv_timeout(LIMIT).expect("it has come");
    assert_eq!(lost_b.recv_timeout(LIMIT), Ok(Notice::Serve));
}

#[test]
fn a_peer_that_is_given_up_is_called_anew_and_is_another_then() {
    let ((a, _, lost_a), (b, _, lost_b)) = (peer_listener(4), peer_listener(4));
    let first = a.call(b.address().as_bytes(), soon()).expect("let in");
    a.forget(first);
    assert_eq!(lost_a.recv_timeout(LIMIT), Ok(Notice::Lost { rank: first, how: How::Vanished }));
    assert_eq!(lost_b.recv_timeout(LIMIT), Ok(Notice::Lost { rank: 1, how: How::Vanished }));
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), first + 1);
}

#[test]
fn noise_is_answered_or_cut_off_and_harms_nobody() {
    let ((a, _, lost_a), (b, at_b, lost_b)) = (peer_listener(9), peer_listener(9));
    let meet = meet(&told(&b), &[9; 16]);
    let answer = |bytes: &[u8]| {
        let socket = connect_to(&told(&b).node()).expect("the listener is open");
        send(&socket, bytes, &[]).expect("sent");
        loop {
            match receive(&socket) {
                Received::Nothing => std::thread::sleep(Duration::from_millis(1)),
                Received::Datagram { bytes, .. } => return decode::<Reply>(&bytes).expect("well said"),
                Received::Closed | Received::TooLong => panic!("no answer"),
            }
        }
    };
    let malformed = Reply::Refused(Refusal::Malformed);
    // Noise; a request of other talks; one without descriptors; one of another version.
    assert_eq!(answer(b"noise"), malformed);
    assert_eq!(answer(&encode(&Request::Leave)), malformed);
    assert_eq!(answer(&encode(&meet)), Reply::Declined(Decline::NoDescriptors));
    let other = [&b"SPJ\n\xff\xff"[..], &[0; 20]].concat();
    assert_eq!(answer(&other), Reply::Refused(Refusal::Version { ours: WIRE_VERSION, theirs: 0xffff }));

    // A peer that breaks the rules is cut off; at its end that is a loss, too.
    let number = a.call(b.address().as_bytes(), soon()).expect("let in");
    at_b.recv_timeout(LIMIT).expect("it has come");
    let line = a.shared.peer_ids().line(number).expect("a peer");
    let Wire::Near { socket, .. } = &line.wire else { panic!("it came by a socket") };
    send(socket, b"noise", &[]).expect("sent");
    drop(line);
    assert_eq!(lost_b.recv_timeout(LIMIT), Ok(Notice::Lost { rank: 1, how: How::Vanished }));
    assert_eq!(lost_a.recv_timeout(LIMIT), Ok(Notice::Lost { rank: number, how: How::Vanished }));
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in again"), number + 1);
}

#[test]
fn who_has_the_secret_for_it_looks_and_becomes_no_peer() {
    let (a, at_a, noticed) = peer_listener(4);
    let mut watcher = Watcher::attach(&JobEnv::of_listener(&a.for_watchers()), soon()).expect("let in");
    assert_eq!(watcher.launcher_pid(), std::process::id());
    assert!(watcher.look(soon()).expect("the listener is open"));
    assert_eq!(noticed.recv_timeout(LIMIT), Ok(Notice::Look));
    let [itself] = watcher.places() else { panic!("one node") };
    assert!(itself.pid == Some(std::process::id()) && itself.over.is_none());
    // Neither the secret by which peers come, nor any other, lets anybody look.
    let mut by_address = a.for_watchers();
    by_address[NAME_BYTES..].copy_from_slice(a.shared.secret.bytes());
    for peer_listener in
        [by_address, [&a.for_watchers()[..NAME_BYTES], &[7; SECRET_BYTES]].concat().try_into().expect("48")]
    {
        let error =
            Watcher::attach(&JobEnv::of_listener(&peer_listener), soon()).expect_err("another secret");
        assert!(matches!(error, JoinError::Refused(Refusal::Secret)), "{error}");
    }
    // And by that for looking nobody comes.
    let (b, ..) = peer_listener(1);
    let looking = Secret::of(*a.shared.looking.bytes());
    let forged = Told::new(HostId::own(), &told(&a).node(), looking);
    let error = b.call(forged.to_address().as_bytes(), soon()).expect_err("another secret");
    assert!(matches!(error, CallError::Declined(Decline::Secret)), "{error:?}");
    assert!(at_a.try_recv().is_err());
    drop(a);
    assert!((0..100).any(|_| !watcher.look(soon()).expect("over, which is no error")));
}
