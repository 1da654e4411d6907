//! Fast Messages 2.x: every statement on the layer, as C programs see it.

mod support;

#[test]
fn the_bucket_sort_runs() {
    let programs = support::Programs::new();
    for flags in [&["-fPIE", "-pie", "-std=gnu89"][..], &["-no-pie", "-fno-pie"], &support::STRICT] {
        let program = programs.compile("fm_bucketsort.c", flags);
        for ranks in 1..=4 {
            let ran = support::Job::of(ranks).run_well(&program);
            assert!(ran.says(&format!("sorted {} keys on {ranks} nodes", ranks * 50_000)), "{ran:#?}");
        }
    }
}
