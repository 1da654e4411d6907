use engine::Rights;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::*;

fn granted(rights: Rights, to: Option<&[Rank]>) -> Granted {
    Granted { start: 0x1000, len: 100, rights, to: to.map(|ranks| Arc::new(ranks.to_vec())) }
}

fn opened() -> (Arc<Ledger>, PeerLedger) {
    let ledger = Arc::new(Ledger::create(true).expect("a segment"));
    let peers = PeerLedger::open(ledger.fd()).expect("it is one");
    (ledger, peers)
}

#[test]
fn a_peer_finds_what_is_granted_until_it_is_barred() {
    let (ledger, peers) = opened();
    let grant = GrantId { line: 5, generation: 77 };
    let at = |offset| Place::granted(grant, offset);
    assert_eq!(peers.look(at(0), 1, Direction::Get, 3), Look::Unknown);
    assert!(ledger.show(grant, &granted(Rights::Read, None)));
    for (offset, len, direction, said) in [
        (0, 100, Direction::Get, Look::At(0x1000)),
        (99, 1, Direction::Get, Look::At(0x1063)),
        (99, 2, Direction::Get, Look::Beyond),
        (1 << 39, 1, Direction::Get, Look::Beyond),
        (0, u64::MAX, Direction::Get, Look::Beyond),
        (0, 1, Direction::Put, Look::NotGranted),
    ] {
        assert_eq!(peers.look(at(offset), len, direction, 3), said, "{offset:#x} {len:#x} {direction:?}");
    }
    let other = Place::granted(GrantId { generation: 78, ..grant }, 0);
    assert_eq!(peers.look(other, 1, Direction::Get, 3), Look::Revoked);
    assert_eq!((ledger.bar(5, None), peers.epoch()), (2, 2));
    assert_eq!(peers.look(at(0), 1, Direction::Get, 3), Look::Revoked);
    let last = GrantId { line: GRANTS_MAX - 1, generation: 1 };
    assert!(ledger.show(last, &granted(Rights::ReadWrite, None)));
    assert_eq!(peers.look(Place::granted(last, 1), 9, Direction::Put, 0), Look::At(0x1001));
    let beyond = GrantId { line: GRANTS_MAX, generation: 1 };
    assert_eq!(peers.look(Place::granted(beyond, 1), 9, Direction::Put, 0), Look::Unknown);
}

#[test]
fn a_ledger_that_must_be_short_has_fewer_lines_and_of_the_others_the_owner_knows() {
    assert_eq!(
        [0, 24_639, 24_640, 24_703, 24_704, u64::MAX].map(bytes_within),
        [24_640, 24_640, 24_640, 24_640, 24_704, BYTES]
    );
    let ledger = Ledger::create_of((TABLE + 3) * LINE, true).expect("a segment");
    let peers = PeerLedger::open(ledger.fd()).expect("it is one");
    let grants = [0, 2, 3, GRANTS_MAX - 1].map(|line| GrantId { line, generation: 1 });
    let shown = grants.map(|grant| ledger.show(grant, &granted(Rights::Read, None)));
    assert_eq!(shown, [true, true, false, false]);
    let look = |grant| peers.look(Place::granted(grant, 0), 1, Direction::Get, 0);
    assert_eq!(grants.map(look), [Look::At(0x1000), Look::At(0x1000), Look::Unknown, Look::Unknown]);
    assert_eq!(grants.map(|grant| ledger.bar(grant.line, None)), [2, 3, 4, 5]);
    assert_eq!(grants.map(look), [Look::Revoked, Look::Revoked, Look::Unknown, Look::Unknown]);
}

#[test]
fn a_grant_is_for_those_who_are_listed_and_of_many_the_owner_knows() {
    let (ledger, peers) = opened();
    let grant = GrantId { line: 0, generation: 7 };
    let look = |me| peers.look(Place::granted(grant, 0), 8, Direction::Get, me);
    ledger.show(grant, &granted(Rights::Read, Some(&[2, 5, 70_000])));
    assert_eq!([2, 5, 70_000].map(look), [Look::At(0x1000); 3]);
    assert_eq!([0, 3, 70_001].map(look), [Look::NotGranted; 3]);
    ledger.show(grant, &granted(Rights::Read, Some(&[0, 1, 2, 3, 4, 5, 6, 7])));
    assert_eq!([0, 7, 8].map(look), [Look::At(0x1000), Look::At(0x1000), Look::NotGranted]);
    ledger.show(grant, &granted(Rights::Read, Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8])));
    assert_eq!(look(3), Look::Unknown);
    ledger.show(grant, &granted(Rights::Read, Some(&[])));
    assert_eq!(look(0), Look::NotGranted);
}

#[test]
fn a_line_that_its_owner_never_finishes_is_not_waited_for() {
    let (ledger, peers) = opened();
    let grant = GrantId { line: 0, generation: 7 };
    ledger.show(grant, &granted(Rights::Read, None));
    ledger.line(0)[0].fetch_add(1, Ordering::Relaxed);
    assert_eq!(peers.look(Place::granted(grant, 0), 8, Direction::Get, 1), Look::Unknown);
}

#[test]
fn announcements_are_seen_until_they_end_and_only_by_the_owner_of_an_older_epoch() {
    let (ledger, peers) = opened();
    let announced = ledger.announce(7, 3).expect("a word");
    assert_eq!([peers.uses(7, 4), peers.uses(7, 3), peers.uses(8, 4)], [true, false, false]);
    drop(announced);
    assert!(!peers.uses(7, 4));
    assert_eq!([peers.watches(0), peers.watches(65_535)], [false; 2]);
    ledger.watch(65_535);
    assert_eq!([peers.watches(0), peers.watches(65_535), peers.watches(65_534)], [false, true, false]);
    // The first process has number 0.
    let announced = ledger.announce(0, 1).expect("a word");
    assert!(peers.uses(0, 2));
    drop(announced);
    assert!(!peers.uses(0, u64::MAX));
}

#[test]
fn threads_have_words_until_they_end_and_beyond_their_number_none() {
    let (ledger, peers) = opened();
    let (first, second) =
        (&std::sync::Barrier::new(WORDS as usize + 1), &std::sync::Barrier::new(WORDS as usize + 1));
    std::thread::scope(|scope| {
        for _ in 0..WORDS {
            scope.spawn(|| {
                let announced = ledger.announce(1, 1).expect("a word for each");
                first.wait();
                second.wait();
                drop(announced);
            });
        }
        first.wait();
        assert!(peers.uses(1, 2));
        assert!(ledger.announce(1, 1).is_none(), "there is none left");
        second.wait();
    });
    assert!(!peers.uses(1, 2));
    // A scope may end before its threads' last acts do.
    let begun = std::time::Instant::now();
    while ledger.announce(1, 1).is_none() {
        assert!(begun.elapsed().as_secs() < 20, "ended threads keep their words");
        std::thread::yield_now();
    }
}

/// A file as a hostile peer may send it.
fn file(len: u64, seals: SealFlags) -> std::os::fd::OwnedFd {
    let fd = memfd_create("hostile", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&fd, len).expect("it has no seals");
    fcntl_add_seals(&fd, seals).expect("it has no seals");
    fd
}

#[test]
fn what_is_no_ledger_is_refused() {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let why = |fd: std::os::fd::OwnedFd| PeerLedger::open(fd).map(drop);
    assert_eq!(why(file(BYTES, SealFlags::empty())), Err(SegmentError::Unsealed), "it may be cut short");
    assert_eq!(why(file(0, sealed)), Err(SegmentError::BadLength { len: 0 }));
    // Part of a page is there as a whole, and without the mark.
    for cut in [1, LINE, 4096, TABLE * LINE - 4096] {
        let refused = why(file(cut, sealed));
        assert!(
            matches!(refused, Err(SegmentError::Os { .. } | SegmentError::NotMemfd)),
            "{cut}: {refused:?}"
        );
    }
    assert_eq!(why(file(BYTES, sealed)), Err(SegmentError::NotMemfd), "nothing is in it");
    let (pipe, _end) = std::io::pipe().expect("a pipe");
    assert_eq!(why(pipe.into()), Err(SegmentError::NotMemfd));
    let null = std::fs::File::open("/dev/null").expect("it is there");
    assert_eq!(why(null.into()), Err(SegmentError::NotMemfd));
}

/// A ledger that is sealed by nobody but against shrinking, and ends in its table.
#[test]
fn lines_behind_a_ledgers_end_are_the_owners_to_know() {
    let short = Segment::create("short", (TABLE + 2) * LINE).expect("a segment");
    short.memory().store(0, MARK).expect("inside");
    short.memory().store(LINES_AT, u64::MAX).expect("inside");
    let peers = PeerLedger::open(short.fd()).expect("it has a whole head");
    let look = |line| peers.look(Place::granted(GrantId { line, generation: 0 }, 0), 8, Direction::Get, 0);
    assert_eq!([0, 1].map(look), [Look::Revoked; 2]);
    // The rest of the page is there, and nobody grants by it.
    assert!(
        [2, 1000, GRANTS_MAX - 1, GRANTS_MAX, u32::MAX >> 8]
            .map(look)
            .iter()
            .all(|look| { matches!(look, Look::Revoked | Look::Unknown) })
    );
}

/// Words that mean something somewhere in a ledger, and any others.
fn word() -> impl Strategy<Value = u64> {
    (0_u8..8, any::<u64>()).prop_map(|(sort, bits)| match sort {
        0 => u64::MAX,
        1 => bits % 4,
        2 => 1 << 63 | bits,
        3 => (bits % 8) << announcements::NUMBER_BITS | 7,
        4 => Terms::LIVE | Terms::ALL | Terms::READ | Terms::WRITE | (bits % 3),
        5 => {
            let rights = Terms::LIVE | Terms::READ | Terms::WRITE | Terms::MANY;
            (bits & (rights | 0xff << Terms::LISTED_AT)) | (bits % 3)
        }
        6 => u64::MAX << announcements::NUMBER_BITS | 7,
        _ => bits,
    })
}

proptest! {
    /// A peer's ledger may hold anything. A look at it ends, and leads to nothing beyond what it says of the
    /// grant; and whether it uses something of ours says a word that names us.
    #[test]
    fn whatever_a_ledger_holds_is_read(
        head in proptest::collection::vec((0..FIRST_WORD * LINE / 8, word()), 0..6),
        announced in proptest::collection::vec((0..WORDS, word()), 0..6),
        lines in proptest::collection::vec((0_u64..4 * LINE / 8, word()), 0..30),
        (line, generation, offset, len) in (0_u32..5, 0_u32..3, word(), word()),
        owner in prop_oneof![Just(0_u32), Just(7), 0_u32..1 << 16],
    ) {
        let theirs = Segment::create("hostile", (TABLE + 4) * LINE).expect("a segment");
        let store = |at: u64, value: u64| theirs.memory().store(at, value).expect("inside");
        head.iter().for_each(|(at, value)| store(8 * at, *value));
        store(0, MARK);
        announced.iter().for_each(|(at, value)| store(ANNOUNCED.first + at * LINE, *value));
        lines.iter().for_each(|(at, value)| store(TABLE * LINE + 8 * at, *value));
        let peers = PeerLedger::open(theirs.fd()).expect("it has the mark");
        if let Some(since) = peers.oldest_use(owner) {
            let is_named = |(_, word): &(u64, u64)| *word == since << announcements::NUMBER_BITS | u64::from(owner);
            prop_assert!(announced.iter().any(is_named), "{since} of {owner}");
        }
        let _ = (peers.epoch(), peers.made(), peers.watches(owner));
        let place = Place::granted(GrantId { line, generation }, offset % (1 << 40));
        let (_, within) = place.in_grant().expect("it is in a grant");
        for direction in [Direction::Get, Direction::Put] {
            if let Look::At(addr) = peers.look(place, len, direction, owner) {
                let said = |word: u64| theirs.memory().load::<u64>(table_at(line) + 8 * word).expect("inside");
                prop_assert!(said(0) % 2 == 0, "it is being changed");
                prop_assert_eq!(addr, said(1).wrapping_add(within));
                prop_assert!(within.checked_add(len).is_some_and(|end| end <= said(2)));
                prop_assert!(Terms(said(3)).is_live(generation) && Terms(said(3)).allow(direction));
            }
        }
    }
}

/// An owner that changes its line all the time, properly or not: a look ends, and what it finds by proper
/// changes was together.
#[test]
fn a_line_that_changes_while_it_is_read_is_read_as_it_was_or_not_at_all() {
    let (ledger, peers) = opened();
    let grant = GrantId { line: 0, generation: 7 };
    let over = std::sync::atomic::AtomicBool::new(false);
    let at = |start| Granted { start, ..granted(Rights::Read, None) };
    ledger.show(grant, &at(0x1000));
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            for round in 1_u64.. {
                // Of an even start all 200 bytes are there, of an odd one 100.
                let (start, len) = (0x1000 + round, if round % 2 == 0 { 200 } else { 100 });
                ledger.show(grant, &Granted { len, ..at(start) });
                if over.load(Ordering::Relaxed) {
                    return round;
                }
            }
            0
        });
        let (mut found, mut last) = (0, 0);
        while found < 2000 {
            match peers.look(Place::granted(grant, 0), 200, Direction::Get, 1) {
                Look::At(start) => {
                    assert!(start % 2 == 0 && start >= last, "{start:#x} after {last:#x}");
                    (found, last) = (found + 1, start);
                }
                Look::Beyond | Look::Unknown => {}
                look => panic!("{look:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(changing.join().expect("no panic") > 0);
    });
    // One that breaks the rules: its first word says all the while that nothing changes, or that all does.
    let line = ledger.line(0);
    for first in [0, 1, 2, u64::MAX, u64::MAX - 1] {
        line[0].store(first, Ordering::Release);
        line[1..].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        let look = peers.look(Place::granted(grant, 0), 8, Direction::Get, 1);
        assert_eq!(look, if first % 2 == 0 { Look::Revoked } else { Look::Unknown });
    }
}
