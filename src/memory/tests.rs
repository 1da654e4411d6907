//! Whole engines whose registrations really pin, and memory that changes at both ends.

#[path = "../../crates/vm/tests/memory_changes/area.rs"]
mod area;
mod pinning;
#[path = "../../crates/vm/tests/memory_changes/pins.rs"]
mod pins;

use area::{Area, PAGE};
use engine::Direction;
use pinning::Pair;

/// How often each change is made.
const ROUNDS: u32 = 300;

/// How often at one place.
const ROUNDS_A_PLACE: u32 = 30;

const PAGES: u64 = 3;

/// Transfers both ways, and between them changes the memory of both ends, of one, or of the other; wants the bytes of the
/// time. Returns what was one-sided, and what was told.
fn holds(change: impl Fn(&Area)) -> Option<(u64, u64)> {
    let mut pair = Pair::new()?;
    for part in 0..ROUNDS / ROUNDS_A_PLACE {
        let (here, there) = (Area::new(PAGES), Area::new(PAGES));
        for round in part * ROUNDS_A_PLACE..(part + 1) * ROUNDS_A_PLACE {
            let byte = (round % 200) as u8 + 1;
            for (direction, from, to) in [(Direction::Put, &here, &there), (Direction::Get, &there, &here)] {
                from.fill(byte);
                to.fill(0xff);
                pair.transfer(direction, here.addr, there.addr, here.len);
                assert_eq!(bytes_of(to), [byte; (PAGES * PAGE) as usize], "round {round}, {direction:?}");
                if round % 3 != 1 {
                    change(&here);
                }
                if round % 3 != 2 {
                    change(&there);
                }
            }
        }
    }
    Some(pair.counts())
}

fn bytes_of(area: &Area) -> Vec<u8> {
    // SAFETY: the test has readable memory mapped there, in which nothing but bytes lives, and nobody writes it now.
    unsafe { std::slice::from_raw_parts(area.start().cast::<u8>(), area.len()) }.to_vec()
}

fn advise(area: &Area, advice: i32) {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    area.call("madvise", |at, len| unsafe { libc::madvise(at, len, advice) }.into());
}

#[test]
fn memory_that_stays_is_registered_once_and_reached_one_sided() {
    let Some((one_sided, told)) = holds(|_| {}) else { return };
    // Each place is asked for by one transfer at first; then all are hits. What is told is that places are left.
    let left = 3 * u64::from(ROUNDS / ROUNDS_A_PLACE);
    assert!(one_sided >= u64::from(ROUNDS) && told <= left, "{one_sided} hits, {told} told");
}

#[test]
fn memory_that_is_unmapped_and_mapped_again_is_never_mistaken() {
    let change = |area: &Area| {
        // SAFETY: the area is this test's alone, and nothing in it is borrowed.
        area.call("munmap", |at, len| unsafe { libc::syscall(libc::SYS_munmap, at, len) });
        area.map_anew();
    };
    let Some((_, told)) = holds(change) else { return };
    assert!(told > u64::from(ROUNDS), "{told} told");
}

#[test]
fn memory_that_is_mapped_over_is_never_mistaken() {
    assert!(holds(Area::map_anew).is_none_or(|(_, told)| told > u64::from(ROUNDS)));
}

#[test]
fn memory_that_is_moved_onto_is_never_mistaken() {
    let change = |area: &Area| {
        let other = Area::new(PAGES);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        other.fill(0xee);
        // SAFETY: both areas are this test's alone, and nothing in them is borrowed.
        other.call("mremap", |at, len| unsafe { libc::mremap(at, len, len, flags, area.start()) } as i64);
    };
    assert!(holds(change).is_none_or(|(_, told)| told > u64::from(ROUNDS)));
}

#[test]
fn memory_whose_pages_are_removed_is_never_mistaken() {
    for advice in [libc::MADV_DONTNEED, libc::MADV_FREE] {
        assert!(holds(|area| advise(area, advice)).is_none_or(|(_, told)| told > 0));
    }
}

/// It is shared, so that nothing of it is kept, and all goes by message.
#[test]
fn memory_of_files_is_never_registered() {
    let file = rustix::fs::memfd_create("changing", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, PAGES * PAGE).expect("memory");
    let Some(mut pair) = Pair::new() else { return };
    let (here, there) = (Area::new(PAGES), Area::reserved(PAGES));
    there.map(std::os::fd::AsRawFd::as_raw_fd(&file), libc::MAP_SHARED);
    for byte in 1..100 {
        here.fill(byte);
        pair.transfer(Direction::Put, here.addr, there.addr, here.len);
        assert_eq!(bytes_of(&there), [byte; (PAGES * PAGE) as usize]);
        rustix::fs::ftruncate(&file, 0).expect("it may shrink");
        rustix::fs::ftruncate(&file, PAGES * PAGE).expect("it may grow");
    }
    assert_eq!(pair.counts().0, 0, "nothing is one-sided");
}

/// If these were not mistaken, no other test here would show anything.
#[test]
fn engines_that_are_not_told_mistake_memory() {
    let Some(mut pair) = Pair::new() else { return };
    pair.be_deaf();
    let (here, there) = (Area::new(PAGES), Area::new(PAGES));
    for byte in [1, 2] {
        here.fill(byte);
        pair.transfer(Direction::Put, here.addr, there.addr, here.len);
        let is_right = bytes_of(&there) == [byte; (PAGES * PAGE) as usize];
        assert_eq!(is_right, byte == 1, "only what was registered as it is now is found");
        there.map_anew();
        here.map_anew();
    }
}
