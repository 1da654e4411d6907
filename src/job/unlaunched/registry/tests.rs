use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::job::plumbing::env::JobName;
use crate::job::plumbing::host_id::HostId;
use crate::job::unlaunched::address::Told;

const LIMIT: Duration = Duration::from_secs(20);
const SHARED: &str = "ab";

/// A rendezvous that serves until the tests end, the way there, and what happens.
fn serve() -> (Rendezvous, Receiver<Visit>, SocketAddr) {
    let registry = Registry::open_by("127.0.0.1:0", &SHARED.repeat(32)).expect("a free port");
    let at = registry.address().expect("it is bound");
    let (tells, told) = channel();
    std::thread::spawn(move || registry.serve(move |visit| _ = tells.send(visit.clone())));
    (Rendezvous::new(&at.to_string(), &SHARED.repeat(32)).expect("good settings"), told, at)
}

fn address() -> Address {
    let name = JobName::random().expect("random");
    Told::new(HostId::own(), &name, Secret::random().expect("random")).to_address()
}

#[test]
fn what_is_left_under_a_name_is_found_also_by_who_came_before() {
    let (way, told, _) = serve();
    let (first, second) = (address(), address());
    let finds = {
        let way = way.clone();
        std::thread::spawn(move || way.find("server", LIMIT).expect("it comes"))
    };
    std::thread::sleep(Duration::from_millis(20));
    way.leave("server", &first, LIMIT).expect("room");
    assert_eq!(finds.join().expect("no panic"), first);
    // For ever is a time like any other.
    way.leave("server", &second, Duration::MAX).expect("instead of the first");
    assert_eq!(way.find("server", Duration::MAX).expect("there"), second);
    for within in [Duration::from_secs(1), HANDSHAKE_WITHIN + Duration::from_millis(200)] {
        let error = way.find("nobody", within).expect_err("nobody left one");
        assert!(matches!(&error, RendezvousError::Timeout { name, .. } if name == "nobody"), "{error}");
    }
    let visits: Vec<Visit> = (0..4).map(|_| told.recv_timeout(LIMIT).expect("told")).collect();
    let left = |visit: &&Visit| matches!(visit, Visit::Left { name, .. } if name == "server");
    assert_eq!(visits.iter().filter(left).count(), 2, "{visits:?}");
}

#[test]
fn strangers_learn_and_leave_nothing() {
    let (way, told, at) = serve();
    way.leave("server", &address(), LIMIT).expect("room");
    assert!(matches!(told.recv_timeout(LIMIT), Ok(Visit::Left { .. })));
    let other = Rendezvous::new(&at.to_string(), &"cd".repeat(32)).expect("good settings");
    let error = other.find("server", LIMIT).expect_err("another secret");
    assert!(error.to_string().contains("does not have this secret"), "{error}");
    assert!(matches!(told.recv_timeout(LIMIT), Ok(Visit::Stranger { .. })));
    let mut noisy = TcpStream::connect(at).expect("it listens");
    noisy.write_all(&[0xff; 3000]).expect("room");
    let _ = noisy.shutdown(std::net::Shutdown::Write);
    let _ = noisy.read(&mut [0]);
    assert!(matches!(told.recv_timeout(LIMIT), Ok(Visit::Stranger { .. })));
    // With the secret, and no sense.
    let secret = parse_secret(&SHARED.repeat(32)).expect("good");
    let leave = |name: &str, address: &[u8]| {
        tcp_server::written(&Ask::Leave { name: name.to_owned(), address: address.to_vec() })
    };
    let good = address();
    for words in [&b"noise"[..], &leave("", good.as_bytes()), &leave("server", b"no address")] {
        let stream = TcpStream::connect(at).expect("it listens");
        let soon = || Instant::now() + LIMIT;
        let mut channel =
            tcp_server::begin(Alone::new(stream), &secret, soon()).expect("the secret is right");
        channel.say(words, soon()).expect("said");
        assert!(channel.hear(tcp_server::WORDS_MAX, soon()).is_err());
    }
    assert!(way.find("server", LIMIT).is_ok(), "what was left is still there");
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let secret = SHARED.repeat(32);
    for (at, secret, name, given) in [
        ("nowhere", &*secret, PLACE, "\"nowhere\""),
        ("host:99999", &secret, PLACE, "\"host:99999\""),
        // Not the secret itself.
        ("host:1", "short", SECRET, "5 letters"),
    ] {
        let error = Rendezvous::new(at, secret).expect_err("cannot be used");
        assert!(matches!(error, RendezvousError::Setting { name: named, .. } if named == name), "{error}");
        assert!(error.to_string().ends_with(&format!(", but {given}")), "{error}");
    }
    let unset = Rendezvous::new("host:1", "").expect_err("no secret");
    assert!(unset.to_string().starts_with("STANDPIPE_SECRET is not set: it takes 64 hex"), "{unset}");
    let way = Rendezvous::new("127.0.0.1:1", &secret).expect("good settings");
    let long = "n".repeat(NAME_MAX + 1);
    assert!(matches!(way.find(&long, LIMIT), Err(RendezvousError::Name { len: 256 })));
}

#[test]
fn no_call_waits_longer_than_it_was_told_to() {
    let secret = SHARED.repeat(32);
    // At the one nobody listens, at the other nobody answers.
    let nobody = Rendezvous::new("127.0.0.1:1", &secret).expect("good settings");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = silent.local_addr().expect("it is bound").to_string();
    let silent = Rendezvous::new(&at, &secret).expect("good settings");
    for (way, words) in [(nobody, "nobody listens there"), (silent, "it did not answer in time")] {
        let limit = Duration::from_millis(200);
        let timed = |ask: &dyn Fn() -> RendezvousError| {
            let begun = Instant::now();
            let error = ask();
            assert!(begun.elapsed() < limit + HANDSHAKE_WITHIN / 2, "{:?}", begun.elapsed());
            assert!(
                matches!(&error, RendezvousError::Io { .. }) && error.to_string().contains(words),
                "{error}"
            );
        };
        timed(&|| way.find("x", limit).expect_err("nobody is there"));
        timed(&|| way.leave("x", &address(), limit).expect_err("nobody is there"));
    }
}

#[test]
fn a_port_that_is_taken_is_told() {
    let (_, _, at) = serve();
    let error = Registry::open_by(&at.to_string(), &SHARED.repeat(32)).expect_err("it is taken");
    assert!(error.to_string().starts_with(&format!("cannot listen at {at}: another program")), "{error}");
}

#[test]
fn those_who_wait_leave_room_for_the_one_they_wait_for() {
    let registry = Registry::open_by("127.0.0.1:0", &SHARED.repeat(32)).expect("a free port");
    let at = registry.address().expect("it is bound").to_string();
    let way = Rendezvous::new(&at, &SHARED.repeat(32)).expect("good settings");
    let state = Arc::clone(&registry.state);
    // So many wait that the next is not let wait.
    state.kept().waiting = WAITING_MAX;
    assert_eq!(state.find("server", soon(LIMIT)), None);
    let comes = address();
    // Whoever has come before the place could hear it is heard when it can.
    let finds = {
        let way = way.clone();
        std::thread::spawn(move || way.find("server", 2 * LIMIT))
    };
    std::thread::sleep(HANDSHAKE_WITHIN + Duration::from_millis(300));
    std::thread::spawn(move || registry.serve(|_| {}));
    way.leave("server", &comes, LIMIT).expect("room");
    assert_eq!(finds.join().expect("no panic").expect("it comes"), comes);
    assert_eq!(state.kept().waiting, WAITING_MAX, "who has waited waits no more");
}

/// A node's address names other ways once its host's interfaces have changed.
#[test]
fn a_node_withdraws_what_it_left_before_its_ways_changed() {
    let (way, ..) = serve();
    let (name, secret) = (JobName::random().expect("random"), Secret::random().expect("random"));
    let by = |ways: &[&str], secret: &Secret| {
        let ways = ways.iter().map(|way| way.parse().expect("an address")).collect();
        Told::new(HostId::own(), &name, secret.clone()).over_network(ways, true).to_address()
    };
    let first = by(&["10.0.0.1:7"], &secret);
    way.leave("server", &first, LIMIT).expect("room");
    // Who only knows the node's name is not the node.
    way.withdraw("server", &by(&[], &Secret::random().expect("random")), LIMIT).expect("done");
    assert_eq!(way.find("server", LIMIT).expect("it is there"), first);
    way.withdraw("server", &by(&["10.0.0.3:7", "10.0.0.1:7"], &secret), LIMIT).expect("done");
    assert!(way.find("server", Duration::from_millis(300)).is_err());
}

#[test]
fn what_is_withdrawn_is_not_found_and_nobody_withdraws_what_came_after() {
    let (way, told, _) = serve();
    let (first, second) = (address(), address());
    way.leave("server", &first, LIMIT).expect("room");
    way.leave("server", &second, LIMIT).expect("instead of the first");
    way.withdraw("server", &first, LIMIT).expect("it is there no more");
    assert_eq!(way.find("server", LIMIT).expect("there"), second);
    way.withdraw("server", &second, LIMIT).expect("it is there");
    let error = way.find("server", Duration::from_millis(300)).expect_err("withdrawn");
    assert!(matches!(error, RendezvousError::Timeout { .. }), "{error}");
    let withdrawn = |visit: &Visit| matches!(visit, Visit::Withdrawn { .. });
    let visits: Vec<Visit> = (0..4).map(|_| told.recv_timeout(LIMIT).expect("told")).collect();
    assert_eq!(visits.iter().filter(|visit| withdrawn(visit)).count(), 1, "{visits:?}");
}

#[test]
fn it_listens_at_addresses_of_both_families() {
    let registry = Registry::open_by("[::]:0", &SHARED.repeat(32)).expect("a free port");
    let port = registry.address().expect("it is bound").port();
    TcpStream::connect(("127.0.0.1", port)).expect("an address of IPv4");
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        TcpStream::connect(("::1", port)).expect("one of IPv6");
    }
}
