//! Listeners that are called on over the network, here over loopback, and strangers at them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use vm::forks::Alone;

use super::network_handshake::{Answer, Hello, PROLOGUE, WORDS_MAX, read, written};
use super::state::Admit;
use super::tcp_acceptor::UNAUTHENTICATED_MAX;
use super::tests::{LIMIT, config, soon, told};
use super::*;
use crate::job::launched::member::{JoinError, Notice};
use crate::job::launched::wire::{Decline, How};
use crate::job::plumbing::channel::{Channel, HANDSHAKE_WITHIN};
use crate::job::plumbing::identity_proof::Proof;

/// Who has come: its number here, this one's place there, the secret of the two, and whether it was called.
struct Come {
    number: u32,
    place: u32,
    secret: Secret,
    called: bool,
}

/// A listener to room for so many others, which come over the network; who comes, and what is told of them.
fn far_door(room: u32) -> (PeerListener, Receiver<Come>, Receiver<Notice>) {
    let (arrived, arrivals) = channel();
    let admit = move |Arrival { number, place, way, .. }| {
        let PeerRoute::Far(Introduction { card, secret, called, met }) = way else {
            panic!("it came by a socket")
        };
        assert_eq!(card, b"a card");
        assert!(met.is_some(), "it was reached at some address");
        let _ = arrived.send(Come { number, place, secret, called });
        Ok(())
    };
    let (peer_listener, notices) = door_that(room, Box::new(admit));
    (peer_listener, arrivals, notices)
}

fn door_that(room: u32, admit: Admit) -> (PeerListener, Receiver<Notice>) {
    let (noticed, notices) = channel();
    let config = config(room, false, admit, Box::new(move |notice| _ = noticed.send(notice)));
    (PeerListener::open(config, Listen::Auto).expect("opened"), notices)
}

/// The system is told of no longer silence than it takes.
#[test]
fn far_nodes_meet_whatever_silence_they_allow() {
    for silence in [Duration::ZERO, Duration::from_secs(131_069), Duration::from_secs(1 << 50), Duration::MAX]
    {
        let [a, b] = [(); 2].map(|()| {
            let mut config = config(1, false, Box::new(|_| Ok(())), Box::new(|_| {}));
            config.silence = Some(silence);
            PeerListener::open(config, Listen::Auto).expect("opened")
        });
        assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), 1, "{silence:?}");
    }
}

fn next(arrivals: &Receiver<Come>) -> Come {
    arrivals.recv_timeout(LIMIT).expect("it has come")
}

/// Where a listener listens on this host.
fn way(peer_listener: &PeerListener) -> SocketAddr {
    let ways = told(peer_listener).ways;
    *ways.iter().find(|way| way.ip().is_loopback() && way.is_ipv4()).expect("loopback is up")
}

fn vanished(rank: u32) -> Result<Notice, std::sync::mpsc::RecvTimeoutError> {
    Ok(Notice::Lost { rank, how: How::Vanished })
}

#[test]
fn two_that_meet_have_places_at_each_other_and_a_secret_of_their_own() {
    let ((a, at_a, _), (b, at_b, lost_b)) = (far_door(4), far_door(4));
    let to_b = b.address();
    assert!(!told(&b).near && told(&b).ways.len() > 1, "{:?}", told(&b));
    assert_eq!(a.call(to_b.as_bytes(), soon()).expect("let in"), 1);
    let (here, there) = (next(&at_a), next(&at_b));
    assert_eq!(((here.number, here.place), (there.number, there.place)), ((1, 1), (1, 1)));
    assert_eq!((here.called, there.called), (true, false));
    assert!(here.secret.matches(&there.secret) && !here.secret.matches(&told(&b).secret));
    assert_eq!(a.call(to_b.as_bytes(), soon()).expect("known"), 1, "it is a peer already");
    assert_eq!(b.call(a.address().as_bytes(), soon()).expect("known"), 1, "whoever called");

    let (c, at_c, lost_c) = far_door(4);
    assert_eq!(c.call(to_b.as_bytes(), soon()).expect("let in"), 1);
    let (third, there) = (next(&at_c), next(&at_b));
    assert_eq!(((third.number, third.place), (there.number, there.place)), ((1, 2), (2, 1)));
    assert!(third.secret.matches(&there.secret) && !third.secret.matches(&here.secret));

    drop(a);
    assert_eq!(lost_b.recv_timeout(LIMIT), vanished(1));
    assert_eq!(b.call(c.address().as_bytes(), soon()).expect("known"), 2);
    b.forget(2);
    assert_eq!(lost_b.recv_timeout(LIMIT), vanished(2));
    // Before it has heard of that, the other takes it for a peer still.
    assert_eq!(lost_c.recv_timeout(LIMIT), vanished(1));
    assert_eq!(c.call(to_b.as_bytes(), soon()).expect("let in anew"), 2);
}

#[test]
fn two_that_call_each_other_over_the_network_become_peers_once() {
    for _ in 0..20 {
        let ((a, at_a, _), (b, at_b, _)) = (far_door(8), far_door(8));
        let (to_a, to_b) = (a.address(), b.address());
        let (by_a, by_b) = std::thread::scope(|scope| {
            let by_a = scope.spawn(|| a.call(to_b.as_bytes(), soon()));
            let by_b = scope.spawn(|| b.call(to_a.as_bytes(), soon()));
            (by_a.join().expect("no panic").expect("peers"), by_b.join().expect("no panic").expect("peers"))
        });
        let all = |arrivals: &Receiver<Come>| -> Vec<_> {
            arrivals.try_iter().map(|come| (come.number, come.place)).collect()
        };
        assert_eq!((all(&at_a), all(&at_b)), (vec![(by_a, by_b)], vec![(by_b, by_a)]));
    }
}

/// The call of the one whose name is lower counts only once it has got through: where it never does, the
/// other's is let in.
#[test]
fn one_direction_is_enough() {
    let (one, other) = (far_door(4), far_door(4));
    let swaps = told(&other.0).node() < told(&one.0).node();
    let ((a, at_a, _), (b, at_b, _)) = if swaps { (other, one) } else { (one, other) };
    // Takes connections, and never says a word, as if what is said were lost on the way.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let Told { host, secret, .. } = told(&b);
    let ways = vec![silent.local_addr().expect("bound")];
    let to_b = Told::new(host, &told(&b).node(), secret).over_network(ways, false).to_address();
    std::thread::scope(|scope| {
        let by_a = scope.spawn(|| a.call(to_b.as_bytes(), soon()));
        let _knocks = silent.accept().expect("it calls");
        let also_by_a = scope.spawn(|| a.call(to_b.as_bytes(), soon()));
        let begun = Instant::now();
        assert_eq!(b.call(a.address().as_bytes(), soon()).expect("let in"), 1);
        assert_eq!(also_by_a.join().expect("no panic").expect("a peer"), 1);
        assert!(begun.elapsed() < HANDSHAKE_WITHIN / 2, "{:?}", begun.elapsed());
        assert_eq!(by_a.join().expect("no panic").expect("a peer by now"), 1);
    });
    let all = |arrivals: &Receiver<Come>| -> Vec<_> {
        arrivals.try_iter().map(|come| (come.number, come.place, come.called)).collect()
    };
    assert_eq!((all(&at_a), all(&at_b)), (vec![(1, 1, false)], vec![(1, 1, true)]));
}

#[test]
fn a_stranger_without_the_secret_learns_nothing_and_takes_no_place() {
    let ((a, ..), (b, at_b, _)) = (far_door(1), far_door(1));
    let Told { host, ways, .. } = told(&b);
    let other = Secret::random().expect("random");
    let forged = Told::new(host, &told(&b).node(), other).over_network(ways, false).to_address();
    for _ in 0..2 {
        let error = a.call(forged.as_bytes(), soon()).expect_err("another secret");
        assert!(matches!(&error, CallError::Unreachable(tried) if tried.contains("secret")), "{error:?}");
    }
    assert!(at_b.try_recv().is_err());
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), 1);
}

#[test]
fn one_that_ends_while_it_is_called_is_gone_and_not_one_with_another_secret() {
    let (a, ..) = far_door(1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (node, secret) = (JobName::random().expect("random"), Secret::random().expect("random"));
    let ways = vec![listener.local_addr().expect("bound")];
    let address = Told::new(HostId::own(), &node, secret).over_network(ways, false).to_address();
    let ends = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody calls");
        // As the system does for a process that ends: in the order in which they were opened.
        drop(listener);
        drop(stream);
    });
    let error = a.call(address.as_bytes(), soon()).expect_err("it has ended");
    assert!(matches!(error, CallError::Join(JoinError::NoBroker)), "{error:?}");
    ends.join().expect("no panic");
}

#[test]
fn noise_at_the_network_door_harms_nobody() {
    let ((a, ..), (b, at_b, _)) = (far_door(3), far_door(3));
    let hears_the_end = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        while matches!(stream.read(&mut [0; 1000]), Ok(1..)) {}
    };
    for noise in [&b""[..], b"\0\0", &[0xff; 3000], &[0; 70_000], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(way(&b)).expect("the listener is open");
        let _ = stream.write_all(noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        hears_the_end(stream);
    }
    // With the secret, and then words that no node says: none, noise, too many, half a greeting.
    let node = JobName::random().expect("random");
    let hello = greeting(&b, &node, &told(&a).secret);
    for words in [&b""[..], b"noise", &vec![7; WORDS_MAX + 1], &hello[..hello.len() - 1]] {
        let mut channel = enter(&b);
        let _ = channel.say(words, soon());
        assert!(channel.hear(WORDS_MAX, soon()).is_err(), "{} bytes", words.len());
    }
    assert!(at_b.try_recv().is_err());
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), 1);
    assert_eq!(next(&at_b).number, 1);
}

/// Past the handshake, by the secret that this listener's address names.
fn enter(peer_listener: &PeerListener) -> Channel {
    let stream = TcpStream::connect(way(peer_listener)).expect("the listener is open");
    Channel::begin(Alone::new(stream), &told(peer_listener).secret, PROLOGUE, soon())
        .expect("the secret is right")
}

/// What a node of this name and secret says first.
fn greeting(to: &PeerListener, node: &JobName, secret: &Secret) -> Vec<u8> {
    let proof = Proof::of(secret, node, &told(to).node());
    let (salt, card) = ([3; 16], b"a card".to_vec());
    written(&Hello { node: node.bytes(), proof, place: 1, places: 2, salt, card })
}

#[test]
fn whoever_takes_the_name_of_another_is_not_taken_for_that_one() {
    let ((a, at_a, _), (b, at_b, _)) = (far_door(4), far_door(4));
    let mut impostor = enter(&a);
    let guess = Secret::random().expect("random");
    impostor.say(&greeting(&a, &told(&b).node(), &guess), soon()).expect("said");
    let heard = impostor.hear(WORDS_MAX, soon()).expect("answered");
    assert!(matches!(read(&heard).expect("an answer"), Answer::Met { place: 1, .. }));
    assert_eq!(next(&at_a).number, 1, "it knows the address, so it is let in");
    assert_eq!(
        a.call(b.address().as_bytes(), soon()).expect("let in"),
        2,
        "the node of that address is asked"
    );
    assert_eq!(next(&at_b).place, 2);
}

#[test]
fn a_far_peer_that_speaks_where_nothing_is_said_is_cut_off() {
    let (a, at_a, lost_a) = far_door(4);
    let (node, secret) = (JobName::random().expect("random"), Secret::random().expect("random"));
    let mut peer = enter(&a);
    peer.say(&greeting(&a, &node, &secret), soon()).expect("said");
    peer.hear(WORDS_MAX, soon()).expect("answered");
    next(&at_a);
    peer.say(b"more", soon()).expect("said");
    assert_eq!(lost_a.recv_timeout(LIMIT), vanished(1));
    assert!(peer.hear(WORDS_MAX, soon()).is_err());
}

#[test]
fn guests_that_say_nothing_are_shown_out_and_the_next_come_in() {
    let ((a, ..), (b, ..)) = (far_door(1), far_door(1));
    let begun = Instant::now();
    let silent: Vec<TcpStream> = (0..UNAUTHENTICATED_MAX)
        .map(|_| TcpStream::connect(way(&b)).expect("the listener is open"))
        .collect();
    // Waits for room; what it takes is what the silent are given.
    assert_eq!(a.call(b.address().as_bytes(), soon()).expect("let in"), 1);
    assert!(begun.elapsed() < HANDSHAKE_WITHIN + Duration::from_secs(5), "{:?}", begun.elapsed());
    for mut stream in silent {
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert!(begun.elapsed() < LIMIT);
}

#[test]
fn who_is_gone_or_elsewhere_is_told_apart() {
    let ((a, ..), (b, ..)) = (far_door(2), far_door(2));
    let (gone, Told { ways, .. }) = (b.address(), told(&b));
    drop(b);
    let error = a.call(gone.as_bytes(), soon()).expect_err("gone");
    assert!(matches!(error, CallError::Join(JoinError::NoBroker)), "{error:?}");
    // What is loopback there is not there.
    let there = HostId { boot: "another".into(), ..HostId::own() };
    let secret = Secret::random().expect("random");
    let loopback = ways.into_iter().filter(|way| way.ip().is_loopback()).collect();
    let told = Told::new(there, &JobName::random().expect("random"), secret).over_network(loopback, true);
    let error = a.call(told.to_address().as_bytes(), soon()).expect_err("elsewhere");
    assert!(matches!(error, CallError::Elsewhere), "{error:?}");
}

#[test]
fn a_far_node_that_cannot_be_used_is_declined_and_its_number_given_again() {
    let (a, at_a, lost) = far_door(3);
    let (picky, _) = door_that(1, Box::new(|_| Err("no".repeat(300))));
    for _ in 0..2 {
        let error = a.call(picky.address().as_bytes(), soon()).expect_err("declined");
        assert!(
            matches!(&error, CallError::Declined(Decline::Unfit { what }) if what.len() == 600),
            "{error:?}"
        );
    }
    // It has room for one: the number is given again, too.
    for here in [1, 2] {
        let error = picky.call(a.address().as_bytes(), soon()).expect_err("unfit");
        assert!(matches!(&error, CallError::Unfit(what) if what.len() == 600), "{error:?}");
        assert_eq!(lost.recv_timeout(LIMIT), vanished(here));
    }
    assert_eq!(next(&at_a).number, 1, "nobody had the number");
    let (full, ..) = far_door(0);
    let error = a.call(full.address().as_bytes(), soon()).expect_err("full there");
    assert!(matches!(error, CallError::Declined(Decline::Full { peers: 0 })), "{error:?}");
}
