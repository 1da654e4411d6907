//! The directory.

use standpipe::{DirectoryError, Error, NAME_MAX, VALUE_MAX};

use super::*;

#[test]
fn values_are_published_replaced_and_withdrawn() {
    job(
        3,
        |_| config(),
        |node| {
            let mine = |n: u64| format!("{n} of {}", node.rank());
            for n in 0..100 {
                node.directory().publish(&mine(n), &n.to_le_bytes()).expect("published");
            }
            node.directory().publish(&mine(5), b"another").expect("replaced");
            node.barrier().expect("barrier");
            for rank in 0..3 {
                for n in 0..100u64 {
                    let found = node.directory().lookup(&format!("{n} of {rank}")).expect("reachable");
                    let expected = if n == 5 { b"another".to_vec() } else { n.to_le_bytes().to_vec() };
                    assert_eq!(found, Some(expected));
                }
            }
            node.barrier().expect("barrier");
            assert_eq!(node.directory().withdraw(&mine(5)), Ok(true));
            assert_eq!(node.directory().withdraw(&mine(5)), Ok(false));
            node.barrier().expect("barrier");
            for rank in 0..3 {
                assert_eq!(node.directory().lookup(&format!("5 of {rank}")), Ok(None));
            }
            node.barrier().expect("barrier");
            node.directory().publish(&mine(5), b"back").expect("published again");
            assert_eq!(node.directory().lookup(&mine(5)), Ok(Some(b"back".to_vec())));
        },
    );
}

#[test]
fn a_name_belongs_to_its_publisher() {
    job(
        2,
        |_| config(),
        |node| {
            if node.rank() == 0 {
                node.directory().publish("the name", b"zero").expect("published");
            }
            node.barrier().expect("barrier");
            if node.rank() == 1 {
                let taken = DirectoryError::Taken { name: "the name".to_owned(), by: 0 };
                assert_eq!(node.directory().publish("the name", b"one"), Err(taken));
                assert_eq!(node.directory().withdraw("the name"), Ok(false), "not this rank's to withdraw");
            }
            node.barrier().expect("barrier");
            assert_eq!(node.directory().lookup("the name"), Ok(Some(b"zero".to_vec())));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn names_and_values_have_limits() {
    let node = alone(config());
    let directory = node.directory();
    assert_eq!(directory.publish("", b""), Err(DirectoryError::Name { len: 0 }));
    let long = "x".repeat(NAME_MAX + 1);
    assert_eq!(directory.lookup(&long), Err(DirectoryError::Name { len: NAME_MAX + 1 }));
    let large = vec![7; VALUE_MAX + 1];
    assert_eq!(directory.publish("n", &large), Err(DirectoryError::Value { len: VALUE_MAX + 1 }));
    directory.publish(&long[1..], &large[1..]).expect("just at the limits");
    assert_eq!(directory.lookup(&long[1..]), Ok(Some(large[1..].to_vec())));
    directory.publish("empty", b"").expect("published");
    assert_eq!(directory.lookup("empty"), Ok(Some(vec![])));
}

#[test]
fn a_full_share_says_so_and_keeps_what_it_has() {
    let node = alone(config());
    let directory = node.directory();
    let published = (0..2000u32).take_while(|n| directory.publish(&n.to_string(), &n.to_le_bytes()).is_ok());
    let published = published.count() as u32;
    let full = directory.publish(&published.to_string(), b"").expect_err("no entry is left");
    assert!(matches!(full, DirectoryError::Full { rank: 0, .. }), "{full}");
    assert!(published >= 1000, "a share of 1,024 entries took {published}");
    for n in 0..published {
        assert_eq!(directory.lookup(&n.to_string()), Ok(Some(n.to_le_bytes().to_vec())));
    }
    directory.publish("7", b"replaced").expect("its own entry");
}

#[test]
fn a_wait_ends_when_the_name_comes_or_the_time_is_up() {
    job(
        2,
        |_| config(),
        |node| {
            let started = Instant::now();
            let never = node.directory().wait("never", Duration::from_millis(50));
            assert!(matches!(never, Err(DirectoryError::Timeout { .. })), "{never:?}");
            assert!(started.elapsed() >= Duration::from_millis(50));
            if node.rank() == 0 {
                std::thread::sleep(Duration::from_millis(50));
                node.directory().publish("late", b"value").expect("published");
            }
            assert_eq!(node.directory().wait("late", LIMIT), Ok(b"value".to_vec()));
            node.barrier().expect("barrier");
        },
    );
}

/// A name that `rank` of a job of `size` keeps; `node` is one of its ranks.
fn name_kept_by_another(node: &Node) -> String {
    let kept_elsewhere = |name: &String| {
        let looked = node.within(Duration::from_millis(1)).directory().lookup(name);
        matches!(looked, Err(DirectoryError::Peer(Error::Timeout { peer: 1, .. })))
    };
    (0..1000).map(|n| n.to_string()).find(kept_elsewhere).expect("half of all names")
}

#[test]
fn a_keeper_who_has_not_joined_is_not_waited_for_longer_than_asked() {
    let broker = Broker::start(2).expect("a broker");
    let node = Node::open_in(Config::new().heap_bytes(1 << 20), Some(&broker.env(0))).expect("a node");
    let name = name_kept_by_another(&node);
    let started = Instant::now();
    let waited = node.directory().wait(&name, Duration::from_millis(100));
    assert!(waited.is_err(), "{waited:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "a wait of 100 ms took {:?}", started.elapsed());
}

#[test]
fn a_lost_publishers_name_is_free_again() {
    let broker = Broker::start(2).expect("a broker");
    let zero = Node::open_in(config(), Some(&broker.env(0))).expect("a node");
    let one = Node::open_in(config(), Some(&broker.env(1))).expect("a node");
    zero.connect(1).expect("joined");
    // Names that rank 0 keeps outlive rank 1.
    let names: Vec<String> = (0..40).map(|n| format!("name {n}")).collect();
    for name in &names {
        one.directory().publish(name, b"one").expect("published");
    }
    drop(one);
    zero.wait_until(|| zero.lost_peers() == [1]).expect("told within the limit");
    let mut kept = 0;
    for name in &names {
        match zero.directory().publish(name, b"zero") {
            Ok(()) => {
                kept += 1;
                assert_eq!(zero.directory().lookup(name), Ok(Some(b"zero".to_vec())));
            }
            Err(error) => assert_eq!(error, DirectoryError::Peer(Error::PeerLost { peer: 1 })),
        }
    }
    assert!(kept > 5, "rank 0 keeps {kept} of {} names", names.len());
}
