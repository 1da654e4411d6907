//! PM from C: messages, contexts, locked memory, and every error that its manual names.
#![cfg(test)]

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each test program uses its own part of this")]
mod support;

use support::{Job, Programs};

#[test]
fn the_stencil_is_right() {
    let programs = Programs::new();
    for flags in [&["-fPIE", "-pie"][..], &["-no-pie"]] {
        let program = programs.compile("pm_stencil.c", flags);
        for ranks in 1..=4 {
            let ran = Job::of(ranks).arg("100").arg("50").run_well(&program);
            assert!(ran.says("steps: right"), "{ran:#?}");
        }
    }
}
