//! The papers' experiments in virtual time, and ours on the same ground: what the studies' tables and figures
//! show.
//!
//! Each is a function of its sizes alone: the same numbers come out on every machine.

mod applications;
mod figures;
mod pair;
mod pindown;
mod policies;
mod scale;

pub use applications::{Again, Recorded, RecordedRank, Replayed};
pub use figures::{Curve, Figures, Shape, ahead};
pub use pindown::{PinDown, PinDownPoint};
pub use policies::{Accesses, Kept, with_order};
pub use scale::Scale;

pub use engine::registration::{Order, Settings, Strategy};

use engine::registration::{Keep, Quota};
use engine::span::BucketSize;

/// The Firehose paper's settings on its machine of 2003: a bucket is a page, a move names up to a put of 64
/// KiB, the memory that may be pinned is split 75 to 25 between peers and victims, and victims go in the
/// order in which they became victims.
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
