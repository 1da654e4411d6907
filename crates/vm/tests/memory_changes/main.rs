//! Memory that changes under a cache of registrations, one test a way to change it, while other threads
//! transfer the same memory: whoever transfers after a change gets the new bytes. The pins are real, so that
//! a cache that is not told reads the old ones.
//!
//! `STANDPIPE_CHANGE_ROUNDS` says how often each test changes memory.

mod area;
mod cache;
mod faults;
mod gaps;
mod pairs;
mod pins;
mod removals;
mod rows;
mod unwatched;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use area::{Area, PAGE};
use cache::Cache;

/// How often a test changes memory, in short form.
const ROUNDS: u32 = 1000;

pub(crate) fn rounds() -> u32 {
    std::env::var("STANDPIPE_CHANGE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"))
}

/// How often memory is changed at one place.
const ROUNDS_A_PLACE: u32 = 50;

/// Pages of the memory that changes.
const PAGES: u64 = 4;

/// Runs `work` while other threads transfer the area's memory, and some that stays what it is.
pub(crate) fn among_transfers(cache: &Arc<Cache>, area: &Area, work: impl FnOnce()) {
    let still = Area::new(2);
    still.fill(0x77);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; PAGE as usize];
            while !stop.load(Ordering::Relaxed) {
                // What comes of it is nobody's business, but it pins whatever is there at the time.
                for at in 0..area.len / PAGE {
                    cache.transfer(area.addr + at * PAGE, &mut bytes);
                }
                assert!(cache.transfer(still.addr + 100, &mut bytes[..200]));
                assert_eq!(bytes[..200], [0x77; 200]);
                std::thread::yield_now();
            }
        });
        // Stops the other thread when `work` panics, too.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        work();
    });
}

/// Changes memory with `change` again and again, and wants each transfer to have the bytes of its time.
pub(crate) fn holds(name: &str, change: impl FnMut(&Area, &Cache)) {
    holds_at(name, || Area::new(PAGES), change);
}

/// The same, at places that `make` makes: each for a while only, as what is once in doubt may stay so.
pub(crate) fn holds_at(name: &str, make: impl Fn() -> Area, mut change: impl FnMut(&Area, &Cache)) {
    let Some(cache) = Cache::new(true) else { return };
    for part in 0..rounds().div_ceil(ROUNDS_A_PLACE) {
        let area = make();
        among_transfers(&cache, &area, || {
            for round in 0..ROUNDS_A_PLACE {
                area_is_read_as_written(name, &cache, &area, part * ROUNDS_A_PLACE + round);
                change(&area, &cache);
            }
        });
    }
    let (hits, misses, refused) = cache.counts();
    println!("{name}: {hits} hits, {misses} pinned, {refused} not kept ({:?})", cache.last_refusal());
}

/// In pieces as the other threads transfer, so that what they have pinned is used, then in others.
fn area_is_read_as_written(name: &str, cache: &Cache, area: &Area, round: u32) {
    let mut bytes = [0; (PAGES * PAGE) as usize];
    let byte = (round % 255) as u8 + 1;
    for piece in [PAGE, PAGES * PAGE - PAGE / 2] {
        area.fill(byte);
        for at in (0..=area.len - piece).step_by(piece as usize) {
            let into = &mut bytes[..piece as usize];
            assert!(cache.transfer(area.addr + at, into));
            let stale = into.iter().position(|found| *found != byte);
            assert_eq!(stale, None, "{name}: round {round} got a stale byte");
        }
    }
}
