//! The papers' experiments in virtual time, and ours on the same ground: what the studies' tables and figures show.
//!
//! Each is a function of its sizes alone: the same numbers come out on every machine.

mod applications;
mod figures;
mod pair;
mod pindown;
mod policies;
mod scale;

pub use applications::{Recorded, RecordedRank, Replayed};
pub use figures::{Curve, Figures, Shape, ahead};
pub use pindown::{PinDown, PinDownPoint};
pub use policies::{Accesses, Kept, with_order};
pub use scale::Scale;

pub use engine::registration::{Order, Strategy};

use engine::registration::{Keep, Quota, Settings};
use engine::span::BucketSize;

/// The Firehose paper's settings on its machine of 2003: a bucket is a page, a move names up to a put of 64 KiB, the
/// memory that may be pinned is split 75 to 25 between peers and victims, and victims go in the order in which they
/// became victims.
///
/// M is the working set at which the paper's curves bend.
pub fn paper_settings() -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page is a size that buckets can have"),
        run_max: 16,
        peers_bytes: 450 << 20,
        victims_bytes: 150 << 20,
        victims_borrow: false,
        quota: Quota::Even,
        order: Order::Lru,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: u64::MAX,
    }
}

/// The same settings with buckets of so many pages, a power of two, in registrations as large as before.
///
/// # Panics
/// If that is not a power of two, or more than a registration has.
pub fn with_buckets(settings: Settings, pages: u32) -> Settings {
    assert!(pages.is_power_of_two() && pages <= settings.run_max, "{pages} pages in a bucket");
    let shift = settings.bucket.bytes().ilog2() + pages.ilog2();
    let bucket = BucketSize::new(shift).expect("a few pages are a size that buckets can have");
    Settings { bucket, run_max: settings.run_max / pages, ..settings }
}
