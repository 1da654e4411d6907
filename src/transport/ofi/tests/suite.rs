//! The conformance suite, over every provider, and every strategy of registration.

use std::time::Duration;

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;

use super::cluster::{OfiCluster, Setting, providers};

/// Buckets of a page, so many for peers and for victims.
pub(super) fn firehose(peers: u64, victims: u64) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 16,
        peers_bytes: peers << 12,
        victims_bytes: victims << 12,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: 4 << 12 },
        order: Order::Sieve,
        keep: Keep::Firehoses,
        put_in_move_max: 512,
        recall_within: 100_000_000_000,
    }
}

/// Every case, over every provider that is here.
fn holds(registration: Option<Settings>, confirms: bool) {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let patience = Duration::from_secs(100);
        let setting = Setting { provider: &provider, registration, confirms, patience };
        conformance::run_all(&mut |size| OfiCluster::new(size, setting));
    }
}

#[test]
fn the_suite_holds_by_message() {
    holds(None, false);
}

#[test]
fn the_suite_holds_with_firehose() {
    holds(Strategy::Firehose.settings(firehose(256, 64)), false);
}

#[test]
fn the_suite_holds_with_hardly_anything_registered() {
    holds(Strategy::Firehose.settings(firehose(8, 2)), false);
}

#[test]
fn the_suite_holds_where_arrival_must_be_found_out() {
    holds(Strategy::Firehose.settings(firehose(256, 64)), true);
}

#[test]
fn the_suite_holds_with_every_other_strategy() {
    for strategy in Strategy::ALL {
        if let Some(settings) = strategy.settings(firehose(64, 16)).filter(|_| strategy != Strategy::Firehose)
        {
            eprintln!("with {}", strategy.name());
            holds(Some(settings), false);
        }
    }
}
