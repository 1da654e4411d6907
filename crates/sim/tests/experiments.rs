//! The papers' experiments, in sizes that take a second.

use sim::experiments::{Accesses, Curve, Figures, Order, PinDown, Scale, Shape, Strategy, ahead};

/// The paper's machine with a hundredth of its memory.
fn small() -> Figures {
    let mut figures = Figures::paper();
    figures.settings.peers_bytes = 4 << 20;
    figures.settings.victims_bytes = 1 << 20;
    figures.costs.pinnable_bytes = 5 << 20;
    figures.working_sets = [1024, 3072, 4096, 4800, 6144, 8192].map(|kib: u64| kib << 10).to_vec();
    figures.sizes = vec![8, 1 << 10, 16 << 10, 1 << 20];
    figures.puts = 300;
    figures
}

fn curve(figures: &Figures, shape: Shape, strategy: Strategy) -> Curve {
    let mut points = 0;
    let curve = figures.curve(shape, strategy, || points += 1).expect("nothing goes wrong");
    assert_eq!((curve.points.len(), curve.strategy), (points, strategy));
    curve
}

#[test]
fn firehose_is_ahead_of_rendezvous_at_every_size_and_working_set_that_can_be_pinned() {
    let mut figures = small();
    // In so little memory the one put that a move makes room for first is a hundredth of it, and tells
    // beyond.
    figures.working_sets.truncate(4);
    for shape in Shape::ALL {
        let firehose = curve(&figures, shape, Strategy::Firehose);
        let rendezvous = curve(&figures, shape, Strategy::RendezvousKeep);
        let (better, worse) = ahead(shape, &firehose, &rendezvous);
        assert_eq!((better.len(), worse), (firehose.points.len(), Vec::new()), "{shape:?}: {firehose:?}");
        let (better, worse) = ahead(shape, &rendezvous, &firehose);
        assert_eq!((better, worse.len()), (Vec::new(), firehose.points.len()));
    }
}

#[test]
fn curves_bend_where_the_working_set_passes_what_peers_may_hold() {
    let figures = small();
    let trips = curve(&figures, Shape::RoundTripByWorkingSet, Strategy::Firehose).points;
    let us: Vec<f64> = trips.iter().map(|point| point.1).collect();
    assert_eq!(figures.knee(), 4 << 20);
    assert!(
        us[..3].iter().all(|us| (12.0..=17.0).contains(us)),
        "14 and 15 us in the paper, up to M: {us:?}"
    );
    assert!((1.05..2.0).contains(&(us[3] / us[0])), "beyond it some ask, and nothing is unpinned: {us:?}");
    assert!(us[4] > 10.0 * us[3] && us[5] > us[4], "beyond what can be pinned pages are unpinned: {us:?}");
    let bandwidth = curve(&figures, Shape::BandwidthByWorkingSet, Strategy::Firehose).points;
    assert!(bandwidth[2].1 > bandwidth[3].1 && bandwidth[3].1 > 10.0 * bandwidth[5].1, "{bandwidth:?}");
}

#[test]
fn unpinning_each_time_is_off_the_scale() {
    let mut figures = small();
    figures.working_sets.truncate(1);
    let us = curve(&figures, Shape::RoundTripByWorkingSet, Strategy::RendezvousUnpin).points[0].1;
    assert!((5_000.0..7_000.0).contains(&us), "about 6000 us in the paper, {us} here");
    // Sixteen pages are unpinned for 6 ms each, and nothing of the initiator's own.
    let mb_per_s = curve(&figures, Shape::BandwidthByWorkingSet, Strategy::RendezvousUnpin).points[0].1;
    let us = 65_536.0 / mb_per_s;
    assert!((96_000.0..98_000.0).contains(&us), "{us}");
}

#[test]
fn the_pin_down_cache_meets_both_published_bandwidths_and_climbs_between() {
    let experiment = PinDown { puts: 100, ..PinDown::paper() };
    let point = |hits| experiment.point(hits).expect("nothing goes wrong");
    let (none, half, all) = (point(0), point(50), point(100));
    assert_eq!((none.hit_percent, half.hit_percent, all.hit_percent), (0.0, 50.0, 100.0));
    for (ours, paper) in [(none.mb_per_s, 78.7), (all.mb_per_s, 108.8)] {
        assert!((ours / paper - 1.0).abs() < 0.02, "{paper} MB/s in the paper, {ours} here");
    }
    assert!(none.mb_per_s < half.mb_per_s && half.mb_per_s < all.mb_per_s);
}

#[test]
fn leases_beat_the_even_split_where_few_of_many_are_active_and_never_lose() {
    let misses = |nodes, active, leases, working_set_percent| {
        let scale = Scale { working_set_percent, rounds: 6, ..Scale::new(nodes, active, leases) };
        let ran = scale.run().expect("nothing goes wrong");
        assert_eq!(ran.bytes, 8 * ran.transfers().count);
        ran.misses.count as f64
    };
    let times = misses(1024, 8, false, 90) / misses(1024, 8, true, 90);
    assert!(times >= 5.0, "8 of 1,024 active: {times} times fewer misses");
    for (nodes, active, working_set_percent) in [(2, 1, 90), (16, 15, 200)] {
        let (even, leases) = (
            misses(nodes, active, false, working_set_percent),
            misses(nodes, active, true, working_set_percent),
        );
        assert!(leases <= 1.05 * even, "{active} of {nodes} active: {leases} misses against {even}");
    }
}

#[test]
fn more_memory_keeps_more_whatever_the_order() {
    let hot = Accesses::hot_and_scan(50, 2000, 1);
    assert_eq!(hot.footprint(), 1050);
    for order in [Order::Fifo, Order::Lru, Order::Sieve] {
        let keep = |pinned| hot.keep(order, pinned).expect("nothing goes wrong");
        let (little, more) = (keep(40), keep(400));
        assert!(little.hit_percent + 5.0 < more.hit_percent && more.hit_percent < 50.0, "{order:?}");
        assert!((1050..little.registrations).contains(&more.registrations), "{order:?}: {more:?}");
        let all = Accesses::scans(100, 5).keep(order, 200).expect("nothing goes wrong");
        assert_eq!((all.hit_percent, all.registrations), (80.0, 100), "{order:?}: all fits");
    }
}

#[test]
fn the_default_order_keeps_what_is_hot_while_a_scan_goes_by_and_the_others_do_not() {
    // 100 pages are hot, of which each is put to 20 times, and 2,000 are scanned once; the peer may hold 158.
    let accesses = Accesses::hot_and_scan(100, 4000, 1);
    let hits = |order| accesses.keep(order, 210).expect("nothing goes wrong").hit_percent;
    let (sieve, lru, fifo) = (hits(Order::default()), hits(Order::Lru), hits(Order::Fifo));
    assert!(sieve > 44.0, "at most 50 %, of which each hot page misses twice or so: {sieve} %");
    assert!(sieve > 1.2 * lru.max(fifo), "{sieve} % against {lru} and {fifo} %");
}
