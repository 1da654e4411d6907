use super::*;
use crate::test_pages::{PAGE, Pages};
use proptest::prelude::*;

fn me() -> u32 {
    std::process::id()
}

fn iov(addr: u64, len: u64) -> Iov {
    Iov { addr, len }
}

fn read(remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    // SAFETY: the tests name their own test pages, which nothing borrows, or nothing at all.
    unsafe { read_from(me(), remote, local) }
}

fn write(remote: &[Iov], local: &[Iov]) -> Result<(), CmaError> {
    // SAFETY: the tests name their own test pages, which nothing borrows, on both sides, or nothing at all.
    unsafe { write_to(me(), remote, local) }
}

#[test]
fn eight_bytes_go_both_ways() {
    let (there, here) = (Pages::new(1), Pages::new(1));
    there.fill(0, 7);
    read(&[iov(there.addr(0), 8)], &[iov(here.addr(0) + 3, 8)]).unwrap();
    assert_eq!([2, 3, 10, 11].map(|i| here.byte(i)), [0, 7, 7, 0]);
    here.fill(0, 9);
    write(&[iov(there.addr(0) + 16, 8)], &[iov(here.addr(0), 8)]).unwrap();
    assert_eq!([15, 16, 23, 24].map(|i| there.byte(i)), [7, 9, 9, 7]);
}

#[test]
fn nothing_is_nothing() {
    assert_eq!(read(&[], &[]), Ok(()));
    assert_eq!(write(&[iov(0, 0)], &[]), Ok(()));
    assert_eq!(read(&[iov(0, 3)], &[iov(0, 2)]), Err(CmaError::Mismatch { remote: 3, local: 2 }));
    let (all, more) = (vec![iov(0, u64::MAX); 2000], vec![iov(0, u64::MAX); 1500]);
    assert_eq!(read(&all, &more), Err(CmaError::Os { errno: Errno::INVAL }));
}

#[test]
fn a_remote_page_missing_is_named_with_what_was_done() {
    for protect in [Pages::unmap, Pages::forbid] {
        let (there, here) = (Pages::new(8), Pages::new(8));
        protect(&there, 3);
        let pieces: Vec<Iov> = (0..8).map(|i| iov(there.addr(i) + 100, 1000)).collect();
        let local = [iov(here.addr(0), 8000)];
        let fault = CmaError::Fault { addr: there.addr(3) + 100, len: 1000, done: 3000 };
        assert_eq!(read(&pieces, &local), Err(fault));
        assert_eq!(write(&pieces, &local), Err(fault));
        // In the middle of a piece, and at the very first byte.
        let across = [iov(there.addr(2), 2 * PAGE)];
        let local = [iov(here.addr(0), 2 * PAGE)];
        let fault = CmaError::Fault { addr: there.addr(2), len: 2 * PAGE, done: PAGE };
        assert_eq!(read(&across, &local), Err(fault));
        assert_eq!(write(&across, &local), Err(fault));
        let fault = CmaError::Fault { addr: there.addr(3), len: 8, done: 0 };
        assert_eq!(read(&[iov(there.addr(3), 8)], &[iov(here.addr(0), 8)]), Err(fault));
        assert_eq!(write(&[iov(there.addr(3), 8)], &[iov(here.addr(0), 8)]), Err(fault));
    }
}

#[test]
fn a_local_page_missing_is_not_blamed_on_the_peer() {
    for protect in [Pages::unmap, Pages::forbid] {
        let (there, here) = (Pages::new(8), Pages::new(8));
        protect(&here, 3);
        let pieces: Vec<Iov> = (0..8).map(|i| iov(here.addr(i) + 100, 1000)).collect();
        let remote = [iov(there.addr(0), 8000)];
        let fault = CmaError::LocalFault { addr: here.addr(3) + 100, len: 1000, done: 3000 };
        assert_eq!(read(&remote, &pieces), Err(fault));
        assert_eq!(write(&remote, &pieces), Err(fault));
        let fault = CmaError::LocalFault { addr: here.addr(2), len: 2 * PAGE, done: PAGE };
        let (remote, across) = ([iov(there.addr(0), 2 * PAGE)], [iov(here.addr(2), 2 * PAGE)]);
        assert_eq!(read(&remote, &across), Err(fault));
        assert_eq!(write(&remote, &across), Err(fault));
    }
}

/// The other process may have mapped its memory again when it is found out who is to blame.
#[test]
fn a_local_end_that_is_there_is_never_to_blame() {
    let (there, here) = (Pages::new(1), Pages::new(2));
    here.fill(0, 7);
    let (remote, local) = ([iov(there.addr(0), 8)], [iov(here.addr(0), 8)]);
    for direction in [Direction::Read, Direction::Write] {
        let cursors = (Cursor::new(&remote, 2), Cursor::new(&local, 2));
        let rest = Rest { direction, pid: me(), remote: cursors.0, local: cursors.1, done: 2 };
        // SAFETY: test pages that nothing borrows, on both sides.
        let fault = unsafe { rest.fault() };
        assert_eq!(fault, CmaError::Fault { addr: there.addr(0), len: 8, done: 2 });
    }
    assert_eq!([0, 2, 7].map(|at| here.byte(at)), [7; 3], "to find out changes no byte");
}

#[test]
fn read_only_pages_are_read_and_not_written() {
    let (there, here) = (Pages::new(2), Pages::new(2));
    there.make_read_only(1);
    let (remote, local) = ([iov(there.addr(0), 2 * PAGE)], [iov(here.addr(0), 2 * PAGE)]);
    assert_eq!(read(&remote, &local), Ok(()));
    assert_eq!(
        write(&remote, &local),
        Err(CmaError::Fault { addr: there.addr(0), len: 2 * PAGE, done: PAGE })
    );
    let (there, here) = (here, there);
    let (remote, local) = ([iov(there.addr(0), 2 * PAGE)], [iov(here.addr(0), 2 * PAGE)]);
    assert_eq!(write(&remote, &local), Ok(()));
    let fault = CmaError::LocalFault { addr: here.addr(0), len: 2 * PAGE, done: PAGE };
    assert_eq!(read(&remote, &local), Err(fault));
}

#[test]
fn addresses_that_are_nobodys_are_faults() {
    let here = Pages::new(1);
    let good = iov(here.addr(0), 8);
    for addr in [0, 8, 1 << 47, 1 << 63, 0xffff_8000_0000_0000, u64::MAX - 3] {
        let bad = iov(addr, 8);
        assert_eq!(read(&[bad], &[good]), Err(CmaError::Fault { addr, len: 8, done: 0 }), "{addr:#x}");
        assert_eq!(write(&[bad], &[good]), Err(CmaError::Fault { addr, len: 8, done: 0 }), "{addr:#x}");
        assert_eq!(read(&[good], &[bad]), Err(CmaError::LocalFault { addr, len: 8, done: 0 }), "{addr:#x}");
        assert_eq!(write(&[good], &[bad]), Err(CmaError::LocalFault { addr, len: 8, done: 0 }), "{addr:#x}");
        // The kernel refuses a list with an impossible local address as a whole; we still say which one.
        let fault = Err(CmaError::LocalFault { addr, len: 8, done: 8 });
        assert_eq!(read(&[good, good, good], &[good, bad, good]), fault, "{addr:#x}");
    }
}

#[test]
fn lists_longer_than_the_kernel_takes_go_in_batches() {
    let (there, here) = (Pages::new(64), Pages::new(64));
    let total = 64 * PAGE;
    for page in 0..64 {
        there.fill(page, page as u8 + 1);
    }
    let cut = |base: u64, len: u64| (0..total / len).map(|i| iov(base + i * len, len)).collect::<Vec<_>>();
    for (len_there, len_here) in [(64, total), (total, 32), (64, 128), (128, 64), (16, 16)] {
        for page in 0..64 {
            here.fill(page, 0);
        }
        read(&cut(there.addr(0), len_there), &cut(here.addr(0), len_here)).unwrap();
        assert!((0..total).all(|i| here.byte(i) == (i / PAGE) as u8 + 1));
    }
    there.unmap(40);
    let fault = CmaError::Fault { addr: there.addr(40), len: 64, done: 40 * PAGE };
    assert_eq!(read(&cut(there.addr(0), 64), &cut(here.addr(0), 64)), Err(fault));
}

#[test]
fn more_than_the_kernel_copies_at_once_is_continued() {
    let bytes: u64 = 4 << 20;
    let pieces = 520;
    let (there, here) = (Pages::new(1024), Pages::new(1025));
    // Over and over the same memory: more than 2 GiB to copy, eight MiB to have.
    let mut remote = vec![iov(there.addr(0), bytes); pieces];
    let mut local = vec![iov(here.addr(0), bytes); pieces];
    remote.push(iov(there.addr(0), 1));
    local.push(iov(here.addr(1024), 1));
    there.fill(0, 5);
    read(&remote, &local).unwrap();
    assert_eq!((here.byte(0), here.byte(bytes), here.byte(bytes + 1)), (5, 5, 0));
}

#[test]
fn a_process_that_is_gone_is_gone() {
    let mut child = std::process::Command::new("true").spawn().expect("a child");
    let pid = child.id();
    child.wait().expect("its end");
    let here = Pages::new(1);
    let piece = [iov(here.addr(0), 8)];
    // SAFETY: test pages that nothing borrows; there is no other side.
    assert_eq!(unsafe { read_from(pid, &piece, &piece) }, Err(CmaError::Gone));
    // SAFETY: test pages that nothing borrows are only read; no process is there to be written to.
    assert_eq!(unsafe { write_to(pid, &piece, &piece) }, Err(CmaError::Gone));
}

#[test]
fn the_probe_tells_strangers() {
    let nonce = 0x1234_5678_9abc_def0_u64;
    let addr = (&raw const nonce) as u64;
    assert_eq!(probe(me(), addr, nonce), Ok(()));
    assert_eq!(probe(me(), addr, nonce + 1), Err(CmaError::Stranger));
    assert_eq!(probe(me(), 8, nonce), Err(CmaError::Fault { addr: 8, len: 8, done: 0 }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any two ways of cutting the same number of bytes, some of them in more pieces than one call takes.
    #[test]
    fn any_lists_arrive_in_order(
        there_cuts in prop::collection::vec(0..400_u64, 1..2500),
        here_cuts in prop::collection::vec(0..400_u64, 1..2500),
        bad in prop::option::of(0..64_usize),
    ) {
        let (there, here) = (Pages::new(64), Pages::new(64));
        for page in 0..64 {
            there.fill(page, page as u8 + 1);
        }
        let total = (64 * PAGE).min(there_cuts.iter().sum()).min(here_cuts.iter().sum());
        let remote = cut(there.addr(0), total, &there_cuts);
        let local = cut(here.addr(0), total, &here_cuts);
        if let Some(page) = bad {
            there.unmap(page);
        }
        let done = match (read(&remote, &local), bad) {
            (Ok(()), _) => total,
            (Err(CmaError::Fault { addr, len, done }), Some(page)) => {
                prop_assert_eq!(done, page as u64 * PAGE);
                prop_assert!(addr <= there.addr(page) && there.addr(page) < addr + len);
                done
            }
            (Err(error), _) => return Err(TestCaseError::fail(error.to_string())),
        };
        for i in 0..64 * PAGE {
            let expected = if i < done { (i / PAGE) as u8 + 1 } else { 0 };
            prop_assert_eq!(here.byte(i), expected);
        }
    }
}

fn cut(base: u64, total: u64, lens: &[u64]) -> Vec<Iov> {
    let mut at = 0;
    let mut pieces = Vec::new();
    for len in lens {
        let len = (*len).min(total - at);
        pieces.push(iov(base + at, len));
        at += len;
    }
    pieces
}
