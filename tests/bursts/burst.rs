//! The burst itself: each operation, by as many threads as the case says.

use std::sync::atomic::Ordering;

use standpipe::{AtomicOp, DirectoryError, Error, PutPiece, Reduction, Signal, Strided};

use crate::cases::Operation;
use crate::process::{ADDED, Member, SIGNALLED, pattern};

/// Bytes of all values that a burst publishes, at most: heaps are not made for more.
const PUBLISHED: usize = 16 << 20;

/// All of a rank's operations, until they are complete.
pub(crate) fn burst(member: &Member) -> Result<(), Error> {
    if member.case.operation == Operation::Collective {
        // All ranks call them in one order.
        return collectives(member);
    }
    let results: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let threads = 0..member.case.threads;
        let spawn = |thread: usize| {
            let builder = std::thread::Builder::new().name(format!("burst {thread}"));
            builder.spawn_scoped(scope, move || share(member, thread)).expect("a thread")
        };
        let all: Vec<_> = threads.map(spawn).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    results.into_iter().collect::<Result<(), Error>>()?;
    member.node.quiet()?;
    if member.case.operation == Operation::Request {
        let all = member.case.count as u64;
        let told = || member.answered.load(Ordering::SeqCst) == all || !member.node.lost_peers().is_empty();
        member.node.wait_until(told)?;
    }
    Ok(())
}

/// One thread's share of the operations.
fn share(member: &Member, thread: usize) -> Result<(), Error> {
    let case = &member.case;
    let numbers = (thread..case.count).step_by(case.threads);
    match case.operation {
        Operation::GetNb => gets(member, thread, numbers),
        Operation::Atomic => atomics(member, thread, numbers),
        _ => numbers.into_iter().try_for_each(|number| {
            member.at[thread].fetch_add(1, Ordering::SeqCst);
            single(member, number)
        }),
    }
}

/// One operation that is complete, or left to `quiet`.
fn single(member: &Member, number: usize) -> Result<(), Error> {
    let Member { node, case, .. } = member;
    let slot = number % case.slots();
    let (to, len, carried) = (member.place(slot), case.len(), member.carried(slot));
    match case.operation {
        Operation::Put => node.put_bytes(to, carried),
        Operation::PutNbi => node.put_nbi(to, carried),
        Operation::PutSignal => node.put_signal_nbi(to, carried, Signal::add(member.word(SIGNALLED), 1)),
        Operation::Get => {
            let mut into = vec![0; len];
            node.get_bytes(to, &mut into)?;
            assert!(into == carried, "{case}: other bytes than are there");
            Ok(())
        }
        Operation::List => {
            let piece = |(number, from)| PutPiece { to: to.plus((number * len.div_ceil(3)) as u64), from };
            let pieces: Vec<PutPiece<'_>> = carried.chunks(len.div_ceil(3)).enumerate().map(piece).collect();
            node.put_list_nbi(&pieces)
        }
        Operation::Strided => {
            let block = len / 4;
            let (apart, here) = ([2 * block as i64], [block as isize]);
            let shape = Strided {
                block,
                counts: &[4],
                remote_strides: &apart,
                local_strides: &here,
                ..Strided::default()
            };
            node.put_strided_nbi(to, carried, &shape)
        }
        Operation::Request => {
            let ask = node.handler("ask").expect("registered");
            let args = [slot as u64, 0, 0, 0];
            match len > standpipe::MEDIUM_MAX {
                true => node.request_long(ask, args, to, carried),
                false => node.request_medium(member.peer, ask, args, carried),
            }
        }
        Operation::Directory => names(member, number),
        Operation::GetNb | Operation::Atomic | Operation::Collective => unreachable!("these go together"),
    }
}

fn gets(member: &Member, thread: usize, numbers: impl Iterator<Item = usize>) -> Result<(), Error> {
    let case = &member.case;
    let start = |number: usize| {
        member.at[thread].fetch_add(1, Ordering::SeqCst);
        (
            number % case.slots(),
            member.node.get_nb(member.place(number % case.slots()), vec![0_u8; case.len()]),
        )
    };
    let events: Vec<_> = numbers.map(start).collect();
    for (slot, event) in events {
        let (result, bytes) = event.wait();
        result?;
        assert!(bytes == member.carried(slot), "{case}: other bytes than are there");
    }
    Ok(())
}

fn atomics(member: &Member, thread: usize, numbers: impl Iterator<Item = usize>) -> Result<(), Error> {
    let start = |_| {
        member.at[thread].fetch_add(1, Ordering::SeqCst);
        member.node.update_nb(member.word(ADDED), AtomicOp::Add, 1_u64)
    };
    let events: Vec<_> = numbers.map(start).collect();
    events.into_iter().try_for_each(|event| event.wait().0)
}

/// Publishes a name, and looks it up.
fn names(member: &Member, number: usize) -> Result<(), Error> {
    let Member { node, case, .. } = member;
    let name = format!("{number} of {}", node.rank());
    let value = pattern(number, case.len().min(PUBLISHED / case.count).min(standpipe::VALUE_MAX));
    let published = node.directory().publish(&name, &value).and_then(|()| node.directory().lookup(&name));
    match published {
        Ok(found) => assert!(found == Some(value), "{case}: another value than was published"),
        Err(DirectoryError::Peer(error)) => return Err(error),
        Err(error) => panic!("{case}: {error}"),
    }
    Ok(())
}

/// Sums and broadcasts, all begun before any is waited for.
fn collectives(member: &Member) -> Result<(), Error> {
    let Member { node, case, .. } = member;
    let (team, words) = (node.world(), case.len().div_ceil(8));
    let start = |number: usize| {
        member.at[0].fetch_add(1, Ordering::SeqCst);
        let values = vec![number as u64 + u64::from(node.rank()); words];
        match number % 2 {
            0 => team.all_reduce_nb(values, Reduction::Sum),
            _ => team.broadcast_nb(values, 1),
        }
    };
    let events: Vec<_> = (0..case.count).map(start).collect();
    for (number, event) in events.into_iter().enumerate() {
        let (result, values) = event.wait();
        result?;
        let wanted = if number % 2 == 0 { 2 * number as u64 + 1 } else { number as u64 + 1 };
        assert!(values.len() == words && values.iter().all(|value| *value == wanted), "{case}");
    }
    Ok(())
}
