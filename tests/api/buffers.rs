//! Buffers of every kind: put from, got into, given back, and dropped.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use standpipe::{
    Append, Buffer, Error, Foreign, GetBuffer, Part, ProgressThread, PutBuffer, RawPiece, Remote,
};

use super::*;

const BYTES: usize = 30_000;

/// Puts from a buffer of these bytes to the start of a peer's memory, and looks there.
#[track_caller]
fn puts<B: PutBuffer>(node: &Node, to: Remote, buffer: B, bytes: &[u8]) -> B {
    let (result, buffer) = node.put_nb(to, buffer).wait();
    assert_eq!(result, Ok(()));
    let mut there = vec![0; bytes.len()];
    node.get_bytes(to, &mut there).expect("got");
    assert!(there == bytes);
    buffer
}

/// Gets into a buffer, which is given back.
#[track_caller]
fn gets<B: GetBuffer>(node: &Node, from: Remote, buffer: B) -> B {
    let (result, buffer) = node.get_nb(from, buffer).wait();
    assert_eq!(result, Ok(()));
    buffer
}

#[test]
fn every_buffer_is_put_from_and_got_into() {
    for way in WAYS {
        job(
            2,
            |_| way.config().progress(ProgressThread::On),
            |node| {
                let mut mine = vec![0u8; BYTES];
                let theirs = exchange_private(node, &mut mine);
                let bytes: Vec<u8> = pattern(u64::from(node.rank()), BYTES);
                let boxed = puts(node, theirs, bytes.clone().into_boxed_slice(), &bytes);
                assert!(boxed[..] == bytes);
                puts(node, theirs, Arc::<[u8]>::from(bytes.clone()), &bytes);
                puts(node, theirs, &b"static"[..], b"static");
                puts(node, theirs, "text".to_owned(), b"text");
                puts(node, theirs, Bytes::from(bytes.clone()).slice(1..), &bytes[1..]);
                puts(node, theirs, BytesMut::from(&bytes[..]), &bytes);
                puts(node, theirs, node.heap().alloc_from(&bytes).expect("room"), &bytes);
                puts(node, theirs, Part::new(bytes.clone(), 7..1007), &bytes[7..1007]);
                puts(node, theirs, (), b"");
                puts(node, theirs, bytes.clone(), &bytes);

                assert!(
                    gets(node, theirs, vec![0_u64; 1000].into_boxed_slice())[0].to_le_bytes() == bytes[..8]
                );
                assert!(gets(node, theirs, BytesMut::zeroed(BYTES)) == bytes);
                let array = gets(node, theirs, node.heap().alloc_zeroed::<u8>(BYTES).expect("room"));
                assert!(array.to_vec() == bytes);
                let part = gets(node, theirs, Part::new(vec![0_u8; BYTES], 100..200)).into_inner();
                assert!(part[100..200] == bytes[..100] && part[200..].iter().all(|byte| *byte == 0));
                let vector = gets(node, theirs, Append::new(vec![5_u8, 6], BYTES)).into_inner();
                assert!(vector[..2] == [5, 6] && vector[2..] == bytes);
                let many = gets(node, theirs, Append::new(BytesMut::with_capacity(3), BYTES)).into_inner();
                assert!(many == bytes);
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn a_get_that_fails_appends_nothing() {
    for way in WAYS {
        job(
            2,
            |_| way.config().progress(ProgressThread::On),
            |node| {
                let nowhere = nowhere(right_of(node));
                let (result, vector) = node.get_nb(nowhere, Append::new(vec![5_u8], BYTES)).wait();
                assert!(matches!(result, Err(Error::Fault { .. })), "{result:?}");
                assert_eq!(vector.into_inner(), [5]);
                let (vector, rest) = node.get_nb(nowhere, Append::new(vec![5_u8], 3)).wait_local();
                assert!(rest.wait().0.is_err());
                assert_eq!(vector.into_inner(), [5]);
                node.barrier().expect("barrier");
            },
        );
    }
}

/// What keeps some memory, and counts that it was dropped. It calls the library meanwhile.
struct Keeper(Box<[u8]>, Node, Arc<AtomicUsize>);

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.1.stats();
        assert!(self.1.heap().alloc::<u8>(1).is_ok());
        self.1.put_nbi(self.1.heap().alloc_zeroed::<u8>(1).expect("room").ptr(0), &[1_u8]).expect("put");
        self.2.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn foreign_memory_goes_with_its_keeper() {
    for way in WAYS {
        job(
            2,
            |_| way.config().progress(ProgressThread::On),
            |node| {
                let mut mine = pattern(u64::from(right_of(node)), BYTES);
                let theirs = exchange_private(node, &mut mine);
                let dropped = Arc::new(AtomicUsize::new(0));
                let keeper = || {
                    let memory = Box::into_raw(vec![0_u8; BYTES].into_boxed_slice());
                    // SAFETY: it was a box a moment ago, and nobody else makes one of it.
                    let keeper = Keeper(unsafe { Box::from_raw(memory) }, node.clone(), Arc::clone(&dropped));
                    (keeper.0.as_ptr().cast_mut(), keeper)
                };
                let wanted = pattern(u64::from(node.rank()), BYTES);
                let (start, kept) = keeper();
                // SAFETY: the keeper has the bytes, and nobody else uses them.
                let buffer = gets(node, theirs, unsafe { Foreign::new(start, BYTES, kept) });
                assert!(buffer.into_keeper().0[..] == wanted);
                assert_eq!(dropped.load(Ordering::SeqCst), 1);

                let (start, kept) = keeper();
                let piece = |at: usize, len| RawPiece {
                    remote: theirs.plus(at as u64),
                    start: start.wrapping_add(BYTES - at - len),
                    len,
                };
                // SAFETY: the keeper has the bytes, and nobody else uses them.
                let (result, kept) =
                    unsafe { node.get_raw_nb(&[piece(0, 10_000), piece(20_000, 10_000)], kept) }.wait();
                assert_eq!(result, Ok(()));
                assert!(kept.0[20_000..] == wanted[..10_000] && kept.0[..10_000] == wanted[20_000..]);
                assert!(kept.0[10_000..20_000].iter().all(|byte| *byte == 0));
                // SAFETY: the keeper has the bytes until this returns, and nobody else uses them.
                unsafe { node.get_raw(&[piece(10_000, 10_000)]) }.expect("got");
                assert!(kept.0[10_000..20_000] == wanted[10_000..20_000]);
                node.barrier().expect("all have looked");
                // SAFETY: the keeper has the bytes, and nobody else uses them.
                unsafe { node.put_raw(&[piece(0, 1), piece(7, 0)]) }.expect("put");
                drop(kept);

                // Dropped events drop it when they have ended, with no lock held.
                for _ in 0..20 {
                    let (start, kept) = keeper();
                    // SAFETY: the keeper has the bytes, and nobody else uses them.
                    drop(node.get_nb(theirs, unsafe { Foreign::new(start, BYTES, kept) }));
                }
                node.quiet().expect("all have ended");
                node.wait_until(|| dropped.load(Ordering::SeqCst) == 22).expect("they are dropped");
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn pieces_with_an_event_are_of_one_peer() {
    job(
        2,
        |_| config(),
        |node| {
            let mut byte = 0_u8;
            let start = &raw mut byte;
            let piece =
                |rank| RawPiece { remote: standpipe::GlobalPtr::<u8>::new(rank, 0).into(), start, len: 1 };
            // SAFETY: it fails before anything is started, so that nothing is used.
            let (result, ()) = unsafe { node.get_raw_nb(&[piece(0), piece(1)], ()) }.wait();
            assert_eq!(result, Err(Error::Elsewhere { peer: 1, expected: 0 }));
            let nothing = RawPiece { start: std::ptr::null_mut(), len: 0, ..piece(0) };
            // SAFETY: there are no bytes, and so no memory to be valid.
            unsafe { node.put_raw(&[nothing]).and_then(|()| node.get_raw(&[nothing])) }
                .expect("nothing to do");
            // SAFETY: as there are no bytes, the pointer may be null.
            let empty = unsafe { Foreign::new(std::ptr::null_mut(), 0, ()) };
            assert_eq!(node.get_nb(nothing.remote, empty).wait().0, Ok(()));
            // SAFETY: there are no pieces, and so no memory to be valid.
            assert_eq!(unsafe { node.put_raw_nb(&[], 7) }.wait(), (Ok(()), 7));
            node.barrier().expect("barrier");
        },
    );
}

#[test]
#[should_panic(expected = "bytes 2..4 of a buffer of 3")]
fn a_part_lies_in_its_buffer() {
    let _ = Part::new(vec![0_u8; 3], 2..4);
}

#[test]
fn buffers_of_nothing_are_no_trouble() {
    let node = alone(config());
    let array = node.heap().alloc_from(&[1_u8]).expect("room");
    for _ in 0..2 {
        assert_eq!(node.get_nb(array.ptr(0), Vec::<u8>::new()).wait(), (Ok(()), vec![]));
        assert_eq!(node.get_nb(array.ptr(0), Append::new(vec![3_u8], 0)).wait().1.into_inner(), [3]);
        assert_eq!(node.put_nb(array.ptr(0), Bytes::new()).wait().0, Ok(()));
    }
    assert_eq!(Append::new(vec![1_u16], 3).byte_len(), 6);
}
