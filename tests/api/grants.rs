//! Memory that is granted by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::{
    Audience, Code, Config, Error, Exposure, Foreign, GetPiece, GlobalPtr, Grant, GrantError, GrantName,
    HandlerId, Landed, Mechanism, Memory, Node, Operation, PutPiece, Rank, Remote, Rights, Signal, Strided,
};

use super::{LIMIT, Way, alone, ask, config, job, tell};

const LEN: usize = 300_000;

/// Nodes that let their peers reach all of their memory, that do not, and that nobody can attach.
const KINDS: [fn() -> Config; 3] = [
    || config(),
    || config().exposure(Exposure::Ranges),
    || Way::Message.config().exposure(Exposure::Ranges),
];

/// Tells the others a name, and hears that of the other one.
fn swap(node: &Node, what: &str, name: GrantName) -> Remote {
    let other = 1 - node.rank();
    tell(node, what, name.to_words());
    Remote::granted(other, GrantName::from_words(ask(node, what, other)).expect("a name"))
}

fn given_back<B: standpipe::Buffer>(mut grant: Grant<B>) -> B {
    grant.revoke().expect("it is granted");
    grant.wait_idle(LIMIT).expect("its users go on")
}

#[test]
fn all_operations_take_granted_memory() {
    for (at, kind) in KINDS.into_iter().enumerate() {
        let landed = Arc::new(AtomicU64::new(0));
        let handled = |landed: &Arc<AtomicU64>| {
            let landed = Arc::clone(landed);
            kind().handler("landed", move |call| {
                let Some((Landed::Granted(name, 64), 5000)) = call.landed() else {
                    panic!("{:?}", call.landed())
                };
                landed.fetch_add(name.len(), Ordering::Relaxed);
            })
        };
        job(
            2,
            |_| handled(&landed),
            |node| {
                let grant = node.grant(vec![7_u8; LEN], Rights::ReadWrite, Audience::ALL).expect("granted");
                let there = swap(node, "memory", grant.name());
                let (mut all, data) = (vec![0_u8; LEN], vec![3_u8; LEN]);
                node.get_bytes(there, &mut all).expect("it is granted");
                assert!(all.iter().all(|byte| *byte == 7));
                node.barrier().expect("both have read");
                node.put_bytes(there, &data[..8]).expect("it is granted");
                let pieces = [8, 16, 40_000].map(|at| PutPiece { to: there.plus(at), from: &data[..8] });
                node.put_list(&pieces).expect("it is granted");
                let [mut first, mut second] = [[0_u8; 8]; 2];
                let mut gets = [
                    GetPiece { from: there.plus(40_000), into: &mut first },
                    GetPiece { from: there.plus(100), into: &mut second },
                ];
                node.get_list(&mut gets).expect("it is granted");
                assert_eq!((first, second), ([3; 8], [7; 8]));
                let rows = Strided {
                    block: 4,
                    counts: &[2],
                    remote_strides: &[100],
                    local_strides: &[4],
                    ..Strided::default()
                };
                node.put_strided(there.plus(200), &[4; 8], &rows).expect("it is granted");
                node.put_nb(there.plus(400), vec![5_u8; 8]).wait().0.expect("it is granted");
                node.put_nbi(there.plus(408), &[6_u8; 8]).and_then(|()| node.quiet()).expect("it is granted");
                let word = node.heap().alloc_zeroed::<u64>(1).expect("room");
                tell(node, "word", word.ptr(0).to_words());
                let counter = GlobalPtr::from_words(ask(node, "word", 1 - node.rank()));
                node.put_signal(there.plus(416), &[9_u8; 8], Signal::add(counter, 1)).expect("it is granted");
                let long = HandlerId::of("", "landed");
                node.request_long(long, [0; 4], there.plus(64), &[8; 5000]).expect("it is granted");
                node.wait_until(|| landed.load(Ordering::Relaxed) >= 2 * LEN as u64).expect("both messages");
                if at == 2 {
                    let by_kernel =
                        [Operation::Put, Operation::Get].map(|what| node.stats().get(what, Mechanism::Cma));
                    assert!(
                        by_kernel.iter().all(|tally| tally.count == 0),
                        "nobody may attach: {by_kernel:?}"
                    );
                }
                node.barrier().expect("both have put");
                assert_eq!(word.read(0), 1);
                let own = given_back(grant);
                let expected = |at: usize| match at {
                    64..5064 => 8,
                    0..24 | 40_000..40_008 => 3,
                    _ => 7,
                };
                assert!((0..LEN).all(|at| own[at] == expected(at)));
                node.barrier().expect("before the other one ends");
            },
        );
    }
}

#[test]
fn what_is_not_granted_is_refused_with_its_values() {
    for kind in KINDS {
        job(
            2,
            |_| kind(),
            |node| {
                let other = 1 - node.rank();
                let readable = node.share(Arc::<[u8]>::from(vec![1; 100]), Audience::ALL).expect("granted");
                let not_for_you =
                    node.grant(vec![1_u8; 100], Rights::ReadWrite, [node.rank()]).expect("granted");
                let grant = node.grant(vec![1_u8; 100], Rights::ReadWrite, [0, 1]).expect("granted");
                let read = swap(node, "readable", readable.name());
                let not_mine = swap(node, "not for you", not_for_you.name());
                let there = swap(node, "memory", grant.name());
                let mut into = [0; 8];

                let put = node.put_bytes(read.plus(3), &[2; 8]);
                let Err(Error::NotGranted { peer, rights, offset, len, .. }) = put else { panic!("{put:?}") };
                assert_eq!((peer, rights, offset, len), (other, Rights::Write, 3, 8));
                let get = node.get_bytes(not_mine, &mut into);
                let Err(Error::NotGranted { peer, rights, offset, len, .. }) = get else { panic!("{get:?}") };
                assert_eq!((peer, rights, offset, len), (other, Rights::Read, 0, 8));
                for beyond in [93, 100, 1 << 30, u64::MAX] {
                    let get = node.get_bytes(there.plus(beyond), &mut into);
                    let Err(Error::Fault { peer, memory: Memory::Granted, addr, .. }) = get else {
                        panic!("{get:?}")
                    };
                    assert_eq!((peer, addr), (other, beyond.min((1 << 40) - 1)));
                }
                // Another node's name, and one that nobody ever had.
                let [foreign, forged] =
                    [readable.name(), GrantName::from_words([70_000, 8]).expect("a name")];
                for name in [foreign, forged] {
                    let get = node.get_bytes(Remote::granted(other, name), &mut into);
                    let Err(error @ Error::Revoked { peer, grant, offset: 0, len: 8 }) = get else {
                        panic!("{get:?}")
                    };
                    assert_eq!((peer, grant, error.code()), (other, name.id(), Code::Revoked));
                }
                node.barrier().expect("both have tried");
                drop(grant);
                node.barrier().expect("both have revoked");
                let [list, wrapped] = [there, there.plus(50)];
                let put =
                    node.put_list(&[PutPiece { to: list, from: &[1] }, PutPiece { to: wrapped, from: &[1] }]);
                assert!(matches!(put, Err(Error::Revoked { .. })), "{put:?}");
                assert!(matches!(
                    node.put_nb(there, vec![0_u8; 5]).wait().0,
                    Err(Error::Revoked { len: 5, .. })
                ));
                assert!(given_back(readable).iter().all(|byte| *byte == 1), "nothing was put");
                node.barrier().expect("before the other one ends");
            },
        );
    }
}

#[test]
fn grants_end_once_and_give_their_memory_back_once() {
    let node = alone(config());
    let mut grant = node.grant(vec![1_u64, 2, 3], Rights::Read, Audience::ALL).expect("granted");
    let id = grant.name().id();
    assert_eq!(grant.wait_idle(Duration::ZERO), Err(GrantError::NotRevoked { grant: id }));
    assert_eq!((grant.revoke(), grant.revoke()), (Ok(()), Err(GrantError::Revoked { grant: id })));
    assert_eq!(grant.repoint(vec![0; 3], LIMIT), Err(GrantError::Revoked { grant: id }));
    assert_eq!(grant.wait_idle(Duration::ZERO), Ok(vec![1, 2, 3]));
    assert_eq!(grant.wait_idle(Duration::ZERO), Err(GrantError::Revoked { grant: id }));
    // With its node it has ended.
    let mut left = node.grant(vec![5_u8], Rights::Read, Audience::ALL).expect("granted");
    drop(node);
    assert_eq!(left.revoke().map_err(|error| error.code()), Err(Code::Revoked));
    assert_eq!(left.wait_idle(Duration::ZERO), Ok(vec![5]));
}

#[test]
fn what_no_grant_can_be_is_refused() {
    let node = alone(config());
    assert_eq!(node.share(Vec::<u8>::new(), Audience::ALL).map(drop), Err(GrantError::Empty));
    for len in [1 << 40, 1 << 63, usize::MAX] {
        // SAFETY: nothing is granted, so nothing is ever reached.
        let nowhere = unsafe { Foreign::new(std::ptr::without_provenance_mut(8), len, ()) };
        let (addr, most, len) = (8, (1 << 40) - 1, len as u64);
        assert_eq!(
            node.share(nowhere, Audience::ALL).map(drop),
            Err(GrantError::TooLong { addr, len, most })
        );
    }
    let nobody = node.share(vec![1_u8], [0, 7]).map(drop);
    assert_eq!(nobody, Err(GrantError::Node(Error::NoSuchPeer { peer: 7, size: 1 })));
    assert_eq!(node.share_many([vec![1_u8], vec![]], Audience::ALL).map(drop), Err(GrantError::Empty));
    let mut grant = node.grant(vec![1_u8; 4], Rights::ReadWrite, Audience::ALL).expect("granted");
    let (grant_id, expected) = (grant.name().id(), 4);
    let longer = grant.repoint(vec![0; 5], LIMIT);
    assert_eq!(longer, Err(GrantError::Length { grant: grant_id, given: 5, expected }));
    assert_eq!(grant.repoint(vec![9; 4], LIMIT), Ok(vec![1; 4]));
    let mut into = [0; 4];
    node.get_bytes(Remote::granted(0, grant.name()), &mut into).expect("it is granted");
    assert_eq!(into, [9; 4]);
}

#[test]
fn a_team_is_granted_to_as_it_is_and_heaps_are_granted_like_other_memory() {
    job(
        3,
        |_| config().exposure(Exposure::Ranges),
        |node| {
            let pair = node.world().split((node.rank() < 2).then_some(0), 0).expect("all split");
            let mut grant: Option<(Grant<_>, Grant<_>)> = None;
            if let (0, Some(pair)) = (node.rank(), &pair) {
                let team = node.grant(vec![1_u8; 64], Rights::ReadWrite, pair).expect("granted");
                let array = node.heap().alloc_from(&[6_u32; 16]).expect("room");
                let heap = node.grant(array, Rights::ReadWrite, Audience::ALL).expect("granted");
                tell(node, "team's", team.name().to_words());
                tell(node, "heap's", heap.name().to_words());
                grant = Some((team, heap));
            }
            let named = |what| Remote::granted(0, GrantName::from_words(ask(node, what, 0)).expect("a name"));
            let mut into = [0; 64];
            let get = node.get_bytes(named("team's"), &mut into);
            match node.rank() {
                2 => assert!(matches!(get, Err(Error::NotGranted { peer: 0, .. })), "{get:?}"),
                _ => assert_eq!((get, into), (Ok(()), [1; 64])),
            }
            node.get_bytes(named("heap's"), &mut into).expect("it is granted to all");
            assert_eq!(into[..8], [6, 0, 0, 0, 6, 0, 0, 0]);
            node.barrier().expect("all have read");
            drop(grant);
        },
    );
}

#[test]
fn handlers_grant_and_revoke_and_many_are_granted_at_once() {
    let told: Arc<std::sync::Mutex<Option<Grant<Vec<u8>>>>> = Arc::default();
    let kept = Arc::clone(&told);
    let node = alone(config().handler("grant", move |call| {
        let mut kept = kept.lock().expect("nobody panics");
        match kept.take() {
            None => {
                *kept = Some(call.node().grant(vec![1; 8], Rights::Read, Audience::ALL).expect("granted"))
            }
            Some(mut grant) => {
                grant.revoke().expect("it is granted");
                assert_eq!(grant.wait_idle(LIMIT), Ok(vec![1; 8]));
            }
        }
    }));
    let grant = HandlerId::of("", "grant");
    node.request(node.rank(), grant, [0; 4]).expect("it is there");
    node.wait_until(|| told.lock().is_ok_and(|told| told.is_some())).expect("granted");
    let name = told.lock().expect("nobody panics").as_ref().map(Grant::name).expect("granted");
    let there = Remote::granted(0, name);
    node.get_bytes(there, &mut [0; 8]).expect("it is granted");
    node.request(node.rank(), grant, [0; 4]).expect("it is there");
    node.wait_until(|| told.lock().is_ok_and(|told| told.is_none())).expect("revoked");
    assert!(matches!(node.get_bytes(there, &mut [0; 8]), Err(Error::Revoked { .. })));

    let many = node.share_many((0..10_000_u64).map(|at| vec![at; 2]), Audience::ALL).expect("granted");
    for (at, grant) in (0..).zip(&many).step_by(997) {
        let mut into = [0_u64; 2];
        let there = Remote::granted(0 as Rank, grant.name());
        node.get_bytes(there, bytemuck::cast_slice_mut(&mut into)).expect("it is granted");
        assert_eq!(into, [at; 2]);
    }
}

/// As users of NIXL name memory, and MPI's dynamic windows.
#[test]
fn memory_that_is_named_by_its_address_is_reached_by_the_grant_that_covers_it() {
    job(
        2,
        |_| config().exposure(Exposure::Ranges),
        |node| {
            let other = 1 - node.rank();
            let memory: &'static [AtomicU64] = Vec::leak((0..4096).map(AtomicU64::new).collect());
            let start = memory.as_ptr().cast::<u8>().cast_mut();
            let foreign = || {
                // SAFETY: the memory is never freed, and this process uses it by atomics alone.
                unsafe { Foreign::new(start, 8 * memory.len(), ()) }
            };
            tell(node, "address", [start.expose_provenance() as u64, 0]);
            let [addr, _] = ask(node, "address", other);
            // SAFETY: atomics, which take writes at any time and are never freed.
            let at = |index: u64| unsafe { Remote::raw(other, addr + 8 * index) };
            let mut word = [0; 8];
            node.barrier().expect("nothing is granted");
            assert!(matches!(node.get_bytes(at(0), &mut word), Err(Error::NotExposed { .. })));
            node.barrier().expect("both have tried");
            for round in 0..3 {
                let read = node.grant(foreign(), Rights::Read, Audience::ALL).expect("granted");
                let both = node.grant(foreign(), Rights::ReadWrite, [other]).expect("granted");
                node.barrier().expect("both have granted");
                let by_kernel = |operation| node.stats().get(operation, Mechanism::Cma).count;
                let (gets, puts) = (by_kernel(Operation::Get), by_kernel(Operation::Put));
                let done = || by_kernel(Operation::Get) > gets && by_kernel(Operation::Put) > puts;
                let begun = std::time::Instant::now();
                // The owner's name for it comes with a later answer. Over a network it serves messages.
                while !done() && std::env::var_os(super::TRANSPORT).is_none() {
                    assert!(begun.elapsed() < LIMIT, "it is never reached by the kernel");
                    node.get_bytes(at(7), &mut word).expect("it is granted");
                    assert_eq!(u64::from_ne_bytes(word), 7);
                    node.put_bytes(at(9), &9_u64.to_ne_bytes()).expect("it is granted");
                }
                let mut words = [[0; 8]; 100];
                let mut list: Vec<GetPiece<'_>> = (0..)
                    .zip(&mut words)
                    .map(|(index, into)| GetPiece { from: at(40 * index), into: &mut into[..] })
                    .collect();
                for _ in 0..3 {
                    node.get_list(&mut list).expect("it is granted");
                }
                drop(list);
                assert!((0..).zip(words).all(|(index, word)| u64::from_ne_bytes(word) == 40 * index));
                node.barrier().expect("both have read");
                if round == 1 {
                    both.revoke().expect("it is granted");
                    node.barrier().expect("both have revoked");
                    assert!(matches!(node.put_bytes(at(0), &word), Err(Error::NotExposed { .. })));
                    node.get_bytes(at(0), &mut word).expect("it is granted to be read");
                    node.barrier().expect("both have read");
                }
                drop((read, both));
                node.barrier().expect("both have revoked all");
                assert!(matches!(node.get_bytes(at(0), &mut word), Err(Error::NotExposed { .. })));
                node.barrier().expect("both have tried");
            }
        },
    );
}

/// A grant that stands for other memory now does not lead from the old memory's address there.
#[test]
fn an_address_reaches_nothing_of_a_grant_that_was_repointed() {
    job(
        2,
        |_| config().exposure(Exposure::Ranges),
        |node| {
            let other = 1 - node.rank();
            let memory = |value: u64| -> &'static [AtomicU64] {
                Vec::leak((0..512).map(|_| AtomicU64::new(value)).collect())
            };
            let (old, new) = (memory(1), memory(2));
            let foreign = |memory: &'static [AtomicU64]| {
                // SAFETY: the memory is never freed, and this process uses it by atomics alone.
                unsafe { Foreign::new(memory.as_ptr().cast::<u8>().cast_mut(), 4096, ()) }
            };
            let mut grant = node.grant(foreign(old), Rights::ReadWrite, Audience::ALL).expect("granted");
            tell(node, "addresses", [old, new].map(|memory| memory.as_ptr().expose_provenance() as u64));
            // SAFETY: atomics, which take writes at any time and are never freed.
            let [old_there, new_there] =
                ask(node, "addresses", other).map(|addr| unsafe { Remote::raw(other, addr) });
            let mut word = [0; 8];
            for _ in 0..50 {
                node.get_bytes(old_there, &mut word).expect("it is granted");
                assert_eq!(u64::from_ne_bytes(word), 1);
            }
            node.barrier().expect("both have read");
            grant.repoint(foreign(new), LIMIT).expect("nobody is at it");
            node.barrier().expect("both have re-pointed");
            for _ in 0..50 {
                assert!(matches!(node.get_bytes(old_there, &mut word), Err(Error::NotExposed { .. })));
                assert!(matches!(node.put_bytes(old_there, &[9; 8]), Err(Error::NotExposed { .. })));
                node.get_bytes(new_there, &mut word).expect("it is granted");
                assert_eq!(u64::from_ne_bytes(word), 2);
            }
            node.barrier().expect("both have tried");
            drop(grant);
        },
    );
}

/// More grants than a list may ask for at once: each call learns some.
#[test]
fn a_list_of_addresses_that_many_grants_cover_comes_to_the_kernels_copy() {
    job(
        2,
        |_| config().exposure(Exposure::Ranges),
        |node| {
            let other = 1 - node.rank();
            let blocks: Vec<Vec<u64>> = (0..200).map(|block| vec![block; 8]).collect();
            let addrs: Vec<u64> =
                blocks.iter().map(|block| block.as_ptr().expose_provenance() as u64).collect();
            let grants = node.share_many(blocks, Audience::ALL).expect("granted");
            let list = node.heap().alloc_from(&addrs).expect("room");
            tell(node, "list", list.ptr(0).to_words());
            let mut theirs = vec![0_u64; addrs.len()];
            node.get_slice(GlobalPtr::from_words(ask(node, "list", other)), &mut theirs)
                .expect("it is there");
            let by_kernel = || node.stats().get(Operation::Get, Mechanism::Cma).count;
            let begun = std::time::Instant::now();
            while by_kernel() == 0 && std::env::var_os(super::TRANSPORT).is_none() {
                assert!(begun.elapsed() < LIMIT, "it never goes by the kernel");
                let mut words = vec![[0_u8; 8]; theirs.len()];
                let mut pieces: Vec<GetPiece<'_>> = theirs
                    .iter()
                    .zip(&mut words)
                    // SAFETY: the owner keeps its blocks until the last barrier, and writes none.
                    .map(|(addr, into)| GetPiece { from: unsafe { Remote::raw(other, *addr) }, into })
                    .collect();
                node.get_list(&mut pieces).expect("it is granted");
                drop(pieces);
                assert!((0..).zip(words).all(|(block, word)| u64::from_ne_bytes(word) == block));
            }
            node.barrier().expect("both have read");
            drop(grants);
        },
    );
}
