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
fn holds(registration: Option<Settings>) {
    holds_with(registration, |setting| setting);
}

/// Names the cases to run, with commas between them, instead of all.
const CASES: &str = "STANDPIPE_TEST_CASES";

/// The same, with the setting changed.
fn holds_with(registration: Option<Settings>, change: impl Fn(Setting<'_>) -> Setting<'_>) {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let patience = Duration::from_secs(100);
        let setting = Setting {
            provider: &provider,
            registration,
            confirms: false,
            registers_local: false,
            pins: false,
            patience,
        };
        let setting = change(setting);
        run(&mut |size| OfiCluster::new(size, setting));
    }
}

fn run(make: conformance::Make<'_, OfiCluster>) {
    let Ok(wanted) = std::env::var(CASES) else { return conformance::run_all(make) };
    let cases = conformance::cases();
    for wanted in wanted.split(',') {
        let case = cases.iter().find(|(name, _)| *name == wanted);
        eprintln!("conformance: {wanted}");
        case.unwrap_or_else(|| panic!("no case {wanted}")).1(make);
    }
}

#[test]
fn the_suite_holds_by_message() {
    holds(None);
}

#[test]
fn the_suite_holds_with_firehose() {
    holds(Strategy::Firehose.settings(firehose(256, 64)));
}

#[test]
fn the_suite_holds_with_hardly_anything_registered() {
    holds(Strategy::Firehose.settings(firehose(8, 2)));
}

#[test]
fn the_suite_holds_where_arrival_must_be_found_out() {
    holds_with(Strategy::Firehose.settings(firehose(256, 64)), |setting| Setting {
        confirms: true,
        ..setting
    });
}

#[test]
fn the_suite_holds_where_local_memory_must_be_registered() {
    holds_with(Strategy::Firehose.settings(firehose(256, 64)), |setting| Setting {
        registers_local: true,
        ..setting
    });
}

#[test]
fn the_suite_holds_where_heaps_are_registered_page_by_page() {
    page_by_page(firehose(256, 64));
}

#[test]
fn the_suite_holds_where_hardly_any_page_of_heaps_is_registered() {
    page_by_page(firehose(8, 2));
}

fn page_by_page(firehose: Settings) {
    holds_with(Strategy::Firehose.settings(firehose), |setting| Setting {
        registers_local: true,
        pins: true,
        ..setting
    });
}

/// A test for each of these strategies: together with firehose all that want settings.
macro_rules! strategies {
    ($($test:ident: $strategy:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                holds(Strategy::$strategy.settings(firehose(64, 16)));
            }
        )*

        #[test]
        fn every_strategy_has_its_suite() {
            let tested = [Strategy::Firehose, $(Strategy::$strategy),*];
            for strategy in Strategy::ALL {
                let wants_settings = strategy.settings(firehose(64, 16)).is_some();
                assert_eq!(tested.contains(&strategy), wants_settings, "{}", strategy.name());
            }
        }
    };
}

strategies! {
    the_suite_holds_where_everything_is_pinned: PinEverything,
    the_suite_holds_where_all_bounces: Bounce,
    the_suite_holds_where_rendezvous_unpins: RendezvousUnpin,
    the_suite_holds_where_rendezvous_keeps: RendezvousKeep,
    the_suite_holds_with_a_pin_down_cache: PinDown,
}
