//! Generic Active Messages, by C programs that are compiled against `am.h` and `gam.h`.

mod support;

use support::{Job, Programs, STRICT, run_alone, text};

#[test]
fn a_request_runs_its_handler_and_the_reply_comes_back() {
    let programs = Programs::new();
    let program = programs.compile_text(
        "ping.c",
        r#"
#include <stdio.h>
#include "am.h"
static volatile long got;
static void pong(vnn_t from, long a, long b) { got = a * 10 + b + from; }
static void ping(vnn_t from, long a) { am_reply_2(from, pong, a, am_my_proc()); }
int main(int argc, char **argv) {
    am_enable(argc > 1 ? 3 : 1, argc, argv);
    vnn_t right = (am_my_proc() + 1) % am_procs();
    am_request_1(right, ping, 7);
    am_wait_for(got != 0);
    printf("%d got %ld\n", am_my_proc(), got);
    am_disable();
    return got == 70 + 2 * right ? 0 : 3;
}
"#,
        &STRICT,
    );
    let alone = run_alone(&program, &[]);
    assert!(alone.status.success(), "{}", text(&alone));
    let forked = run_alone(&program, &["3"]);
    assert!(forked.status.success(), "{}", text(&forked));
    let lines = String::from_utf8_lossy(&forked.stdout).into_owned();
    for said in ["0 got 72", "1 got 74", "2 got 70"] {
        assert!(lines.contains(said), "{}", text(&forked));
    }
    let ran = Job::of(3).arg("3").same_addresses().run_well(&program);
    assert!(ran.says("2 got 70"), "{ran:?}");
}
