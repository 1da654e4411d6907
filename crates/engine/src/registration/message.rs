//! The contents of the messages by which peers ask for registration: lists of runs and of firehoses.
//!
//! ```text
//! move runs to attach (12 bytes each: first bucket, count), firehoses to detach (4 bytes each), a put's data
//! moved firehoses attached (24 bytes each: first bucket, key, count, the owner's name for it)
//! ```

use super::table::HolderId;
use super::{Key, Run};

/// Bytes of a run to attach, and of a firehose to detach.
pub(crate) const ATTACH_BYTES: usize = 12;
pub(crate) const DETACH_BYTES: usize = 4;
/// Bytes of a firehose that is given.
pub(crate) const GIVEN_BYTES: usize = 24;

/// The first bucket that no address lies in: a bucket has at least 2^12 bytes.
const BUCKETS_END: u64 = 1 << 52;

/// A move, taken apart: nothing is copied, for peers may name many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move<'a> {
    /// Runs that an address space can have.
    runs: &'a [[u8; ATTACH_BYTES]],
    holders: &'a [[u8; DETACH_BYTES]],
    pub(crate) data: &'a [u8],
}

impl Move<'_> {
    /// The runs that are asked for.
    pub(crate) fn attach(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().map(run_to_attach)
    }

    /// The firehoses that are given up.
    pub(crate) fn detach(&self) -> impl Iterator<Item = HolderId> {
        self.holders.iter().map(|bytes| HolderId(u32::from_le_bytes(*bytes)))
    }
}

/// A firehose as its owner gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) run: Run,
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
}

/// Writes a move's payload. The receiver is told the numbers of runs and firehoses besides.
pub(crate) fn put_move(attach: &[Run], detach: &[HolderId], data: &[u8], into: &mut Vec<u8>) {
    into.clear();
    for run in attach {
        into.extend(run.first.to_le_bytes());
        into.extend(run.count.to_le_bytes());
    }
    detach.iter().for_each(|holder| into.extend(holder.0.to_le_bytes()));
    into.extend(data);
}

/// Takes a move's payload apart; `None` where that is not one.
pub(crate) fn take_move(payload: &[u8], attach: u64, detach: u64) -> Option<Move<'_>> {
    let (attach, detach) = (usize::try_from(attach).ok()?, usize::try_from(detach).ok()?);
    let (runs, rest) = payload.split_at_checked(attach.checked_mul(ATTACH_BYTES)?)?;
    let (holders, data) = rest.split_at_checked(detach.checked_mul(DETACH_BYTES)?)?;
    let (runs, holders) = (runs.as_chunks().0, holders.as_chunks().0);
    runs.iter().map(run_to_attach).all(is_possible).then_some(Move { runs, holders, data })
}

/// Writes a list of firehoses to detach alone.
pub(crate) fn put_detached(detach: &[HolderId], into: &mut Vec<u8>) {
    put_move(&[], detach, &[], into);
}

/// The firehoses of a list of so many; `None` where the payload is not one.
pub(crate) fn take_detached(payload: &[u8], detach: u64) -> Option<Move<'_>> {
    take_move(payload, 0, detach).filter(|parts| parts.data.is_empty())
}

/// Appends a firehose to the payload of an answer.
pub(crate) fn put_given(given: &Given, into: &mut Vec<u8>) {
    into.extend(given.run.first.to_le_bytes());
    into.extend(given.key.0.to_le_bytes());
    into.extend(given.run.count.to_le_bytes());
    into.extend(given.holder.0.to_le_bytes());
}

/// Takes the payload of an answer apart; `None` where that is not one.
pub(crate) fn take_given(payload: &[u8]) -> Option<impl Iterator<Item = Given>> {
    let (all, rest) = payload.as_chunks::<GIVEN_BYTES>();
    let is_answer = rest.is_empty() && all.iter().map(given_from).all(|given| is_possible(given.run));
    is_answer.then(|| all.iter().map(given_from))
}

fn run_to_attach(bytes: &[u8; ATTACH_BYTES]) -> Run {
    Run { first: u64_at(bytes, 0), count: u32_at(bytes, 8) }
}

fn given_from(bytes: &[u8; GIVEN_BYTES]) -> Given {
    let run = Run { first: u64_at(bytes, 0), count: u32_at(bytes, 16) };
    Given { run, key: Key(u64_at(bytes, 8)), holder: HolderId(u32_at(bytes, 20)) }
}

/// Whether these are some buckets that an address space can have.
fn is_possible(run: Run) -> bool {
    let end = run.first.checked_add(u64::from(run.count));
    run.count > 0 && end.is_some_and(|end| end <= BUCKETS_END)
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run() -> impl Strategy<Value = Run> {
        (0u64..1 << 50, 1u32..1 << 20).prop_map(|(first, count)| Run { first, count })
    }

    proptest! {
        #[test]
        fn moves_survive_the_wire(
            attach in proptest::collection::vec(run(), 0..5), detach in proptest::collection::vec(any::<u32>(), 0..5),
            data: Vec<u8>,
        ) {
            let detach: Vec<HolderId> = detach.into_iter().map(HolderId).collect();
            let mut payload = Vec::new();
            put_move(&attach, &detach, &data, &mut payload);
            let parts = take_move(&payload, attach.len() as u64, detach.len() as u64).expect("it is a move");
            prop_assert!(parts.attach().eq(attach) && parts.detach().eq(detach) && parts.data == data);
        }

        #[test]
        fn answers_survive_the_wire(runs in proptest::collection::vec((run(), any::<u64>(), any::<u32>()), 0..5)) {
            let given: Vec<Given> =
                runs.into_iter().map(|(run, key, holder)| Given { run, key: Key(key), holder: HolderId(holder) }).collect();
            let mut payload = Vec::new();
            given.iter().for_each(|given| put_given(given, &mut payload));
            prop_assert!(take_given(&payload).is_some_and(|taken| taken.eq(given)));
        }

        #[test]
        fn any_bytes_are_taken_apart_or_refused(payload: Vec<u8>, attach: u64, detach: u64) {
            if let Some(parts) = take_move(&payload, attach, detach) {
                prop_assert!(parts.attach().all(|run| run.count > 0 && run.first < BUCKETS_END));
            }
            let _ = take_given(&payload);
        }
    }
}
