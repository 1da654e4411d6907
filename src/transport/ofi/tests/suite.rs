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

/// Names the cases to run, with commas between them, or says `all`. Where it is not set, a test of a strategy
/// runs a third of the cases: all of them with each take minutes, most of which opens and closes endpoints.
/// Without time, each test runs a fourth of its cases.
const CASES: &str = "STANDPIPE_TEST_CASES";

/// Which cases a test runs unless it is told.
#[derive(Clone, Copy)]
enum Cases {
    All,
    /// Every third, from this one on.
    Third(usize),
}

/// These cases, over every provider that is here.
fn holds(cases: Cases, registration: Option<Settings>) {
    holds_with(cases, registration, |setting| setting);
}

/// The same, with the setting changed.
fn holds_with(cases: Cases, registration: Option<Settings>, change: impl Fn(Setting<'_>) -> Setting<'_>) {
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let send_timeout = Duration::from_secs(100);
        let setting = Setting {
            provider: &provider,
            registration,
            confirms: false,
            registers_local: false,
            pins: false,
            send_timeout,
        };
        let setting = change(setting);
        run(cases, &mut |size| OfiCluster::new(size, setting));
    }
}

fn run(wanted: Cases, make: conformance::Make<'_, OfiCluster>) {
    let named = std::env::var(CASES).ok();
    let cases = conformance::cases();
    let has_time = named.is_some() || testbed::has_time_for("three in four cases of the suite");
    let is_wanted = |at: usize, name: &str| match (named.as_deref(), wanted) {
        (None, _) if !has_time && !(at / 3).is_multiple_of(4) => false,
        (None, Cases::All) => true,
        (Some(named), _) => named.split(',').any(|one| one == name || one == "all"),
        (None, Cases::Third(first)) => at % 3 == first,
    };
    for one in named.iter().flat_map(|named| named.split(',')).filter(|one| *one != "all") {
        assert!(cases.iter().any(|(name, _)| *name == one), "no case {one}");
    }
    for (_, (name, case)) in cases.into_iter().enumerate().filter(|(at, (name, _))| is_wanted(*at, name)) {
        eprintln!("conformance: {name}");
        case(make);
    }
}

#[test]
fn the_suite_holds_by_message() {
    holds(Cases::All, None);
}

#[test]
fn the_suite_holds_with_firehose() {
    holds(Cases::Third(0), Strategy::Firehose.settings(firehose(256, 64)));
}

#[test]
fn the_suite_holds_with_hardly_anything_registered() {
    holds(Cases::Third(1), Strategy::Firehose.settings(firehose(8, 2)));
}

#[test]
fn the_suite_holds_where_arrival_must_be_found_out() {
    holds_with(Cases::Third(2), Strategy::Firehose.settings(firehose(256, 64)), |setting| Setting {
        confirms: true,
        ..setting
    });
}

#[test]
fn the_suite_holds_where_local_memory_must_be_registered() {
    holds_with(Cases::Third(0), Strategy::Firehose.settings(firehose(256, 64)), |setting| Setting {
        registers_local: true,
        ..setting
    });
}

#[test]
fn the_suite_holds_where_heaps_are_registered_page_by_page() {
    page_by_page(Cases::Third(1), firehose(256, 64));
}

#[test]
fn the_suite_holds_where_hardly_any_page_of_heaps_is_registered() {
    page_by_page(Cases::Third(2), firehose(8, 2));
}

fn page_by_page(cases: Cases, firehose: Settings) {
    holds_with(cases, Strategy::Firehose.settings(firehose), |setting| Setting {
        registers_local: true,
        pins: true,
        ..setting
    });
}

/// A test for each of these strategies: together with firehose all that want settings.
macro_rules! strategies {
    ($($test:ident: $strategy:ident, $third:literal;)*) => {
        $(
            #[test]
            fn $test() {
                holds(Cases::Third($third), Strategy::$strategy.settings(firehose(64, 16)));
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
    the_suite_holds_where_everything_is_pinned: PinEverything, 0;
    the_suite_holds_where_all_bounces: Bounce, 1;
    the_suite_holds_where_rendezvous_unpins: RendezvousUnpin, 2;
    the_suite_holds_where_rendezvous_keeps: RendezvousKeep, 0;
    the_suite_holds_with_a_pin_down_cache: PinDown, 1;
}
