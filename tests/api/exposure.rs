//! Private memory of which only ranges are exposed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use standpipe::{Error, Exposure, GlobalPtr, PutPiece, Remote, Rights, Signal, Strided};

use super::{LIMIT, alone, config, job};

const LEN: usize = 30_000;

/// Messages cut what they move at multiples of this, and each part is refused by itself: memory begins at
/// one, so that what is small is one part.
const CHUNK: usize = 8192;

#[test]
fn peers_reach_what_is_exposed_and_nothing_else() {
    job(
        2,
        |_| config().exposure(Exposure::Ranges),
        |node| {
            let other = 1 - node.rank();
            let room: Vec<AtomicU8> = (0..LEN + CHUNK).map(|_| AtomicU8::new(7)).collect();
            let begin = room.as_ptr().align_offset(CHUNK);
            let memory = &room[begin..begin + LEN];
            let word = node.heap().alloc_zeroed::<u64>(1).expect("room");
            let own = [memory.as_ptr().expose_provenance() as u64, word.ptr(0).offset()];
            let name = |rank| format!("memory of {rank}");
            node.directory().publish(&name(node.rank()), bytemuck::bytes_of(&own)).expect("published");
            let found = node.directory().wait(&name(other), LIMIT).expect("published");
            let [there, counter]: [u64; 2] = bytemuck::pod_read_unaligned(&found);
            let counter = GlobalPtr::<u64>::new(other, counter);
            // SAFETY: atomic bytes, which take writes at any time and stay until the last barrier.
            let at = |offset: u64| unsafe { Remote::raw(other, there + offset) };
            let refused = |offset: u64, len, rights| {
                Err(Error::NotExposed { peer: other, addr: there + offset, len, rights })
            };

            let both = node.expose(&memory[10_000..20_000], Rights::ReadWrite);
            let readable = node.expose(&raw const memory[20_000..], Rights::Read);
            node.barrier().expect("exposed");
            assert_eq!(node.put_bytes(at(10_000), &[1; 10_000]), Ok(()));
            assert_eq!(node.get_bytes(at(10_000), &mut [0; 20_000]), Ok(()));
            assert_eq!(node.put_bytes(at(20_000), &[9]), refused(20_000, 1, Rights::Write));
            assert_eq!(node.get_bytes(at(9_999), &mut [0]), refused(9_999, 1, Rights::Read));
            let list =
                [PutPiece { to: at(11_000), from: &[2; 8] }, PutPiece { to: at(5_000), from: &[9; 8] }];
            assert_eq!(node.put_list(&list), refused(5_000, 8, Rights::Write));
            let rows = Strided {
                block: 4,
                counts: &[2],
                remote_strides: &[15_000],
                local_strides: &[4],
                ..Strided::default()
            };
            assert_eq!(node.put_strided(at(6_000), &[9; 8], &rows), refused(6_000, 4, Rights::Write));
            assert_eq!(node.put_nb(at(100), vec![9_u8; 16]).wait().0, refused(100, 16, Rights::Write));
            let signalled = node.put_signal(at(200), &[9_u8; 16], Signal::add(counter, 1));
            assert_eq!(signalled, refused(200, 16, Rights::Write));
            let forgotten = node.put_nbi(at(300), &[9_u8; 16]).and_then(|()| node.quiet());
            assert_eq!(forgotten, refused(300, 16, Rights::Write));
            assert_eq!(node.get(counter), Ok(0), "the heap is there to be shared, and was not signalled");
            // What a collective works on its members name themselves.
            let mut all = vec![0_u8; 120_000];
            node.world().all_gather(&[node.rank() as u8 + 1; 60_000], &mut all).expect("both take part");
            assert_eq!((all[0], all[119_999]), (1, 2));

            node.barrier().expect("before anything is withdrawn");
            drop((both, readable));
            node.memory_sync().expect("given back");
            node.barrier().expect("withdrawn");
            assert_eq!(node.get_bytes(at(10_000), &mut [0; 8]), refused(10_000, 8, Rights::Read));
            assert_eq!(node.put_bytes(at(10_000), &[9; 8]), refused(10_000, 8, Rights::Write));
            node.barrier().expect("all is done");
            let rest = memory[..10_000].iter().chain(&memory[20_000..]);
            assert!(rest.map(|byte| byte.load(Ordering::Relaxed)).all(|byte| byte == 7));
        },
    );
}

/// Nodes that nobody launched know nothing of each other's memory, and ask by message where it lies. The
/// owner only sleeps.
#[test]
fn who_exposes_memory_and_makes_no_progress_answers_where_it_lies() {
    let memory = vec![7_u8; LEN];
    let place = memory.as_ptr().expose_provenance() as u64;
    let answered = Arc::new(AtomicU64::new(0));
    let answers = Arc::clone(&answered);
    let owner = alone(
        config()
            .handler("where", move |call| {
                let told = call.node().handler("told").expect("registered");
                call.reply(told, [place, 0, 0, 0]).expect("a request");
            })
            .handler("told", |_| ()),
    );
    let _exposed = owner.expose(&memory[..], Rights::Read);
    let asker = alone(
        config()
            .handler("where", |_| ())
            .handler("told", move |call| answers.store(call.args()[0], Ordering::SeqCst)),
    );
    let peer = asker.connect_to(owner.address().expect("a node that listens")).expect("they meet");
    asker.request(peer, asker.handler("where").expect("registered"), [0; 4]).expect("sent");
    asker.wait_until(|| answered.load(Ordering::SeqCst) != 0).expect("answered");
    let mut bytes = vec![0; LEN];
    // SAFETY: the owner's vector, which nobody writes and which stays until both nodes are gone.
    let there = unsafe { Remote::raw(peer, answered.load(Ordering::SeqCst)) };
    asker.get_bytes(there, &mut bytes).expect("exposed");
    assert!(bytes == memory);
}

#[test]
fn where_everything_is_exposed_a_range_changes_nothing() {
    job(
        2,
        |rank| if rank == 0 { config().exposure(Exposure::Ranges) } else { config() },
        |node| {
            let memory = AtomicU8::new(5);
            let addr = std::ptr::from_ref(&memory).expose_provenance() as u64;
            let name = |rank| format!("byte of {rank}");
            node.directory().publish(&name(node.rank()), &addr.to_le_bytes()).expect("published");
            let found = node.directory().wait(&name(1 - node.rank()), LIMIT).expect("published");
            let there = u64::from_le_bytes(found.try_into().expect("eight bytes"));
            // SAFETY: a byte that is only read, and stays until the barrier.
            let there = unsafe { Remote::raw(1 - node.rank(), there) };
            let mut byte = [0];
            drop(node.expose(&[0_u8; 4][..], Rights::Write));
            match (node.rank(), node.get_bytes(there, &mut byte)) {
                (0, got) => assert_eq!((got, byte), (Ok(()), [5]), "rank 1 exposes everything"),
                (_, got) => assert!(matches!(got, Err(Error::NotExposed { peer: 0, .. })), "{got:?}"),
            }
            node.barrier().expect("done");
        },
    );
}
