//! Removals of pages that another thread changes meanwhile.

use std::time::{Duration, Instant};

use crate::area::{Area, PAGE};
use crate::cache::Cache;
use crate::pairs::{self, Pair, pairs};

/// A transfer that pins while the pages are about to go must not be found when they are gone.
#[test]
fn removals_that_others_meet() {
    let mut failed = Vec::new();
    for pair in pairs() {
        let Some(cache) = Cache::new(true) else { return };
        let rounds = pair.rounds();
        let stale = (0..rounds).filter(|round| !is_right_after(&pair, &cache, *round)).count();
        let (hits, misses, refused) = cache.counts();
        println!("{}: {rounds} rounds, {hits} hits, {misses} pinned, {refused} not kept", pair.name());
        if stale > 0 {
            failed.push(format!("{}: {stale} of {rounds} got a stale byte", pair.name()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn is_right_after(pair: &Pair, cache: &Cache, round: u32) -> bool {
    let area = Area::new(pairs::PAGES);
    let byte = (round % 200) as u8 + 1;
    let mut bytes = [0; (pairs::PAGES * PAGE) as usize];
    area.fill(0xff);
    assert!(cache.transfer(area.addr, &mut bytes));
    pair.change(&area, || {
        // What comes of it is nobody's business, but it pins whatever is there at the time.
        cache.transfer(area.addr, &mut bytes);
        std::thread::yield_now();
    });
    area.fill(byte);
    assert!(cache.transfer(area.addr, &mut bytes));
    bytes.iter().all(|found| *found == byte)
}

/// Where all other threads sleep, who removes pages has them kept again soon, and finds what was written
/// since. In a process of its own, as other tests' threads run.
#[test]
fn removals_are_over_where_all_others_sleep() {
    const ALONE: &str = "STANDPIPE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "removals::removals_are_over_where_all_others_sleep", "--nocapture"]);
        let output = child.env(ALONE, "").output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        let has_run = output.status.success() && said.contains(" 1 passed");
        return assert!(has_run, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let Some(cache) = Cache::new(true) else { return };
    let area = Area::new(2);
    let mut bytes = [0; 2 * PAGE as usize];
    for round in 0..50 {
        area.fill(round);
        let (start, before) = (Instant::now(), cache.counts().1);
        // It may be that a look is not due yet.
        while cache.counts().1 == before {
            assert!(
                cache.transfer(area.addr, &mut bytes) && bytes == [round; 2 * PAGE as usize],
                "round {round}"
            );
            assert!(start.elapsed() < Duration::from_secs(20), "round {round}: {:?}", cache.last_refusal());
        }
        // SAFETY: the area is this test's alone, and nothing in it is borrowed.
        area.call("madvise", |at, len| unsafe { libc::madvise(at, len, libc::MADV_DONTNEED) }.into());
    }
    let (hits, misses, refused) = cache.counts();
    println!("{hits} hits, {misses} pinned, {refused} not kept");
}
