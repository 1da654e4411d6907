//! Fast Messages 2.x: every statement on the layer, as C programs see it.

mod support;

use std::path::PathBuf;

use support::{Job, Programs, Ran};

const HEADER: &str = include_str!("fm/fm_test.h");
const STREAMS: &str = include_str!("fm/streams.c");
const ORDER: &str = include_str!("fm/order.c");
const EXTRACT: &str = include_str!("fm/extract.c");
const BEGIN: &str = include_str!("fm/begin.c");
const MISUSE: &str = include_str!("fm/misuse.c");
const TABLE: &str = include_str!("fm/table.c");
const LOST: &str = include_str!("fm/lost.c");
const ENDS: &str = include_str!("fm/ends.c");
const CREDITS: &str = include_str!("fm/credits.c");
const THREADS: &str = include_str!("fm/threads.c");

/// Position-independent, and at a fixed address.
const PIE: [&str; 2] = ["-fPIE", "-pie"];
const FIXED: [&str; 3] = ["-fno-pie", "-no-pie", "-O2"];

/// A program of `tests/fm/`, with what they share in front.
fn compile(programs: &Programs, text: &str, flags: &[&str]) -> PathBuf {
    let text = format!("{HEADER}{}", text.replace("#include \"fm_test.h\"\n", ""));
    programs.compile_text("program.c", &text, flags)
}

/// Runs such a program in each of its modes: every rank says that it is done.
fn all_done(job: &Job, text: &str, args: &[&str]) {
    let programs = Programs::new();
    let program = compile(&programs, text, &PIE);
    let job = args.iter().fold(job.clone(), |job, arg| job.arg(*arg));
    let ran = job.run_well(&program);
    (0..job.ranks).for_each(|rank| assert!(ran.says(&format!("node {rank} is done")), "{ran:#?}"));
    let said_more = ran.lines.iter().any(|(_, line)| line.starts_with("standpipe: "));
    assert!(!said_more, "{ran:#?}");
}

/// How often a rank wrote a line that begins and ends with these.
fn count(ran: &Ran, start: &str, end: &str) -> usize {
    ran.lines.iter().filter(|(_, line)| line.starts_with(start) && line.ends_with(end)).count()
}

/// A job, of no size yet, over a network, where there is such a thing.
fn network() -> Option<Job> {
    support::network().map(|transport| Job::default().env("STANDPIPE_TRANSPORT", transport))
}

#[test]
fn the_bucket_sort_runs() {
    let programs = Programs::new();
    for flags in [&["-fPIE", "-pie", "-std=gnu89"][..], &FIXED, &support::STRICT] {
        let program = programs.compile("fm_bucketsort.c", flags);
        for ranks in 1..=4 {
            let ran = Job::of(ranks).run_well(&program);
            assert!(ran.says(&format!("sorted {} keys on {ranks} nodes", ranks * 50_000)), "{ran:#?}");
        }
    }
}

#[test]
fn the_bucket_sort_runs_over_a_network() {
    let Some(job) = network() else { return };
    let programs = Programs::new();
    let program = programs.compile("fm_bucketsort.c", &PIE);
    let ran = Job { ranks: 3, ..job }.arg("20000").run_well(&program);
    assert!(ran.says("sorted 60000 keys on 3 nodes"), "{ran:#?}");
}

#[test]
fn two_jobs_run_side_by_side() {
    let programs = Programs::new();
    let program = programs.compile("fm_bucketsort.c", &PIE);
    std::thread::scope(|scope| {
        let run = |ranks| {
            let program = &program;
            move || Job::of(ranks).run_well(program)
        };
        let jobs: Vec<_> = (2..4).map(|ranks| (ranks, scope.spawn(run(ranks)))).collect();
        for (ranks, job) in jobs {
            let ran = job.join().expect("it ends well");
            assert!(ran.says(&format!("sorted {} keys on {ranks} nodes", ranks * 50_000)), "{ran:#?}");
        }
    });
}

#[test]
fn messages_come_whole_and_in_order() {
    (1..=4).for_each(|ranks| all_done(&Job::of(ranks), ORDER, &[]));
}

#[test]
fn messages_come_whole_and_in_order_over_a_network() {
    let Some(job) = network() else { return };
    all_done(&Job { ranks: 3, ..job }, ORDER, &[]);
}

/// Also that it may send, and that part of a message leaves before its end.
#[test]
fn a_handler_starts_on_the_first_packet() {
    all_done(&Job::of(2), STREAMS, &["first packet"]);
}

#[test]
fn handlers_of_several_messages_interleave() {
    all_done(&Job::of(4), STREAMS, &["first packet"]);
}

#[test]
fn handlers_interleave_over_a_network() {
    let Some(job) = network() else { return };
    all_done(&Job { ranks: 3, ..job }, STREAMS, &["first packet"]);
}

#[test]
fn a_handler_sends_on_what_it_receives() {
    all_done(&Job::of(4), STREAMS, &["forward"]);
}

#[test]
fn what_a_handler_has_not_received_is_thrown_away() {
    all_done(&Job::of(2), STREAMS, &["early"]);
}

#[test]
fn a_message_may_be_shorter_than_announced() {
    all_done(&Job::of(2), STREAMS, &["fewer"]);
}

#[test]
fn extract_stops_after_the_packet_that_reaches_its_bound() {
    all_done(&Job::of(2), EXTRACT, &["budget"]);
}

#[test]
fn a_handler_that_quits_ends_the_call_that_runs_it() {
    all_done(&Job::of(2), EXTRACT, &["quit"]);
}

#[test]
fn a_sender_waits_only_when_the_room_is_full() {
    all_done(&Job::of(2), EXTRACT, &["all fit"]);
    all_done(&Job::of(2), EXTRACT, &["one too many"]);
}

#[test]
fn a_send_that_waits_extracts() {
    (1..=3).for_each(|ranks| all_done(&Job::of(ranks), EXTRACT, &["mutual"]));
}

#[test]
fn a_send_that_waits_extracts_over_a_network() {
    let Some(job) = network() else { return };
    all_done(&Job { ranks: 2, ..job }, EXTRACT, &["mutual"]);
}

#[test]
fn a_handler_may_extract_sixteen_deep() {
    all_done(&Job::of(1), EXTRACT, &["nested"]);
}

#[test]
fn a_handler_may_extract_the_rest_of_its_own_message() {
    all_done(&Job::of(2), EXTRACT, &["own"]);
}

#[test]
fn a_queue_is_locked_from_begin_to_end() {
    all_done(&Job::of(2), BEGIN, &["locked"]);
    all_done(&Job::of(2), BEGIN, &["locked outside"]);
}

#[test]
fn a_handler_gets_null_where_there_is_no_room() {
    // Of 128 packets, less what is not given back one by one, which is none yet.
    for (packets, succeed) in [("1", "128"), ("16", "8"), ("65", "1")] {
        all_done(&Job::of(2), BEGIN, &["handler", packets, succeed]);
    }
}

#[test]
fn a_handler_never_gets_more_than_its_share() {
    let programs = Programs::new();
    let program = compile(&programs, BEGIN, &PIE);
    let ran = Job::of(2).arg("handler").arg("66").arg("0").run_well(&program);
    let line =
        "standpipe: FM_extract: a message of 66 packets cannot be sent by a handler, where 65 are the most";
    assert_eq!(
        count(&ran, line, "") + count(&ran, &line.replace("extract", "begin_message"), ""),
        1,
        "{ran:#?}"
    );
}

#[test]
fn misuse_is_an_error_line() {
    let programs = Programs::new();
    let program = compile(&programs, MISUSE, &["-Wno-all"]);
    for ranks in 1..=2 {
        let ran = Job::of(ranks).arg("all").run_well(&program);
        let each = ranks as usize;
        for (start, end, times) in [
            ("standpipe: FM_initialize: called a second time", "nothing changes", 1),
            (
                "standpipe: FM_send_piece: a piece of 11 bytes, where 10 are left of the 20",
                "nothing is sent",
                1,
            ),
            (
                "standpipe: FM_send_piece: a piece of 1 bytes, where 0 are left of the 20",
                "nothing is sent",
                1,
            ),
            ("standpipe: FM_send_piece: 5 bytes at 0x0", "nothing is sent", 1),
            ("standpipe: FM_send_piece: -1 bytes at", "nothing is sent", 1),
            ("standpipe: FM_send_piece: no message that has been begun and not ended", "nothing is sent", 4),
            ("standpipe: FM_end_message: no message that has been begun and not ended", "", 4),
            ("standpipe: FM_receive: called outside handlers", "nothing is received", 2),
            ("standpipe: FM_receive: not the stream of this handler", "nothing is received", 2),
            ("standpipe: FM_receive: 5 bytes to NULL", "nothing is received", 1),
            (
                "standpipe: FM_receive: 21 bytes of a message of node",
                "that has 20 left: these are received",
                1,
            ),
            ("standpipe: FM_receive: 1 bytes of a message of node", "that has 0 left: these are received", 1),
            ("standpipe: FM_finalize: called in a handler", "return first", 1),
            ("standpipe: FM_set_parameter: parameter 1 after FM_initialize", "it stays as it is", 1),
            ("standpipe: ", "before the first FM_extract", 2),
        ] {
            assert_eq!(count(&ran, start, end), times * each, "{start}: {ran:#?}");
        }
        assert_eq!(count(&ran, "standpipe: ", ""), 24 * each, "{ran:#?}");
        assert_eq!(count(&ran, "it goes on", ""), each, "{ran:#?}");
    }
}

#[test]
fn a_message_for_no_handler_is_one_line_and_thrown_away() {
    let programs = Programs::new();
    let program = compile(&programs, MISUSE, &[]);
    let ran = Job::of(1).arg("all").run_well(&program);
    for handler in [999, 65_535] {
        let line =
            format!("sent a message to handler {handler}, which is not registered here: it is thrown away");
        assert_eq!(ran.lines.iter().filter(|(_, said)| said.contains(&line)).count(), 1, "{ran:#?}");
    }
}

#[test]
fn calls_before_and_after_end_the_program_or_are_an_error_line() {
    let programs = Programs::new();
    let program = compile(&programs, MISUSE, &[]);
    let calls = [
        ("begin", "FM_begin_message", true),
        ("piece", "FM_send_piece", true),
        ("end", "FM_end_message", true),
        ("receive", "FM_receive", true),
        ("extract", "FM_extract", true),
        ("finalize", "FM_finalize", false),
        ("reallocate", "FM_reallocate_credit", false),
    ];
    for (call, name, ends) in calls {
        for (when, why) in [("early", "before FM_initialize"), ("late", "after FM_finalize")] {
            let output = support::run_alone(&program, &[&format!("{call} {when}")]);
            let text = support::text(&output);
            assert!(text.contains(&format!("standpipe: {name}: {why}: ")), "{text}");
            assert_eq!(output.status.code(), Some(i32::from(ends)), "{text}");
            assert_eq!(text.contains("it goes on"), !ends, "{text}");
        }
    }
    let output = support::run_alone(&program, &["initialize late"]);
    assert_eq!(output.status.code(), Some(1), "{}", support::text(&output));
    assert!(support::text(&output).contains("standpipe: FM_initialize: after FM_finalize"));
}

#[test]
fn numbers_of_nothing_end_the_program() {
    let programs = Programs::new();
    let program = compile(&programs, MISUSE, &[]);
    for (call, line) in [
        ("no such node", "standpipe: FM_begin_message: there is no node 1, in a job of 1"),
        ("no such node at all", "standpipe: FM_begin_message: there is no node -1, in a job of 1"),
        ("no such handler", "standpipe: FM_begin_message: handler 65536, where 65535 is the last"),
    ] {
        let output = support::run_alone(&program, &[call]);
        let text = support::text(&output);
        assert!(text.contains(line) && output.status.code() == Some(1), "{text}");
    }
}

#[test]
fn handlers_are_registered_by_number_in_order_or_in_the_table() {
    let programs = Programs::new();
    for flags in [&PIE[..], &FIXED] {
        let program = compile(&programs, TABLE, flags);
        for ranks in 1..=2 {
            let ran = Job::of(ranks).run_well(&program);
            for (start, end) in [
                ("standpipe: FM_register_handler: NULL is no handler", ""),
                ("standpipe: FM_register_handler: handler 1024, where 1023 is the last", "room for more"),
                ("standpipe: FM_register_handler: all 1024 handlers are registered", "room for more"),
            ] {
                assert_eq!(count(&ran, start, end), ranks as usize, "{start}: {ran:#?}");
            }
            assert_eq!(count(&ran, "standpipe: ", ""), 3 * ranks as usize, "{ran:#?}");
        }
    }
}

#[test]
fn parameters_are_set_before_initialize() {
    let programs = Programs::new();
    for flags in [&PIE[..], &FIXED] {
        let program = compile(&programs, TABLE, flags);
        for (most, fills) in [("10", 1), ("1024", 1), ("65536", 0)] {
            let ran = Job::of(2).arg(most).run_well(&program);
            for given in ["0", "-1", "65537"] {
                let line = format!(
                    "standpipe: FM_set_parameter: {given} handlers, where 1 to 65536 can be asked for"
                );
                assert_eq!(count(&ran, &line, ""), 2, "{ran:#?}");
            }
            for name in ["0", "13"] {
                let line = format!("standpipe: FM_set_parameter: there is no parameter {name}: ");
                assert_eq!(count(&ran, &line, ""), 2, "{ran:#?}");
            }
            assert_eq!(count(&ran, "standpipe: FM_register_handler: ", ""), 4 + 2 * fills, "{ran:#?}");
            assert_eq!(count(&ran, "standpipe: ", ""), 14 + 2 * fills, "{ran:#?}");
        }
    }
}

#[test]
fn initialize_waits_for_all() {
    all_done(&Job::of(3), ENDS, &["late"]);
}

#[test]
fn finalize_throws_away_what_is_left() {
    all_done(&Job::of(3), ENDS, &["left over"]);
}

#[test]
fn a_message_that_is_never_ended_sets_its_handler_aside() {
    let programs = Programs::new();
    let ran = Job::of(2).arg("given up").run_well(&compile(&programs, ENDS, &PIE));
    for (node, line) in [
        (0, "a message of node 1 will never be complete"),
        (1, "FM_finalize: a message to node 0 was not ended, with 8192 of 16384 bytes: it is thrown away"),
    ] {
        let said = ran.lines.iter().filter(|(rank, said)| *rank == node && said.contains(line)).count();
        assert_eq!(said, 1, "{ran:#?}");
    }
}

/// A job whose node that dies is killed, and whose others end by themselves.
fn killed(job: Job, mode: &str, dies: u32) -> Ran {
    let programs = Programs::new();
    let ran = job.keep_going().arg(mode).run(&compile(&programs, LOST, &PIE));
    assert_eq!(ran.status, 128 + 9, "{ran:#?}");
    (0..job_ranks(mode)).filter(|rank| *rank != dies).for_each(|rank| {
        assert!(ran.says(&format!("node {rank} is done")), "{ran:#?}");
    });
    ran
}

fn job_ranks(mode: &str) -> u32 {
    if mode == "send" { 2 } else { 3 }
}

#[test]
fn a_lost_node_ends_a_send_and_messages_to_it_are_thrown_away() {
    let ran = killed(Job::of(2), "send", 1);
    assert_eq!(
        count(&ran, "standpipe: FM_", "node 1 is lost: messages to it are thrown away"),
        1,
        "{ran:#?}"
    );
}

/// What others send meanwhile keeps nobody from seeing it.
#[test]
fn a_lost_node_ends_a_send_while_others_send() {
    killed(Job::of(3), "send of many", 1);
}

#[test]
fn a_lost_node_ends_a_send_over_a_network() {
    let Some(job) = network() else { return };
    killed(Job { ranks: 2, ..job }, "send", 1);
}

#[test]
fn the_handler_of_a_lost_sender_is_set_aside_and_others_go_on() {
    let ran = killed(Job::of(3), "message", 1);
    let line = "a message of node 1 will never be complete";
    assert!(ran.lines.iter().any(|(rank, said)| *rank == 0 && said.contains(line)), "{ran:#?}");
}

#[test]
fn what_such_a_handler_was_sending_is_given_up() {
    let ran = killed(Job::of(3), "chain", 0);
    for (at, of) in [(1, 0), (2, 1)] {
        let line = format!("a message of node {of} will never be complete");
        assert!(ran.lines.iter().any(|(rank, said)| *rank == at && said.contains(&line)), "{ran:#?}");
    }
}

#[test]
fn a_lost_node_ends_finalize() {
    let ran = killed(Job::of(3), "finalize", 1);
    assert_eq!(count(&ran, "standpipe: FM_finalize: ", "lost"), 2, "{ran:#?}");
}

#[test]
fn threads_send_and_extract_and_handlers_run_one_at_a_time() {
    all_done(&Job::of(2), THREADS, &["all"]);
    all_done(&Job::of(3), THREADS, &["all"]);
}

#[test]
fn a_handler_goes_on_on_its_own_thread() {
    all_done(&Job::of(2), THREADS, &["two"]);
}

#[test]
fn the_handlers_of_a_thread_that_ends_are_set_aside() {
    let programs = Programs::new();
    let ran = Job::of(2).arg("ends").run_well(&compile(&programs, THREADS, &PIE));
    assert!(ran.says("a message of node 1 will never be complete"), "{ran:#?}");
}

#[test]
fn a_handler_that_quits_does_not_take_others_of_its_thread_along() {
    all_done(&Job::of(3), THREADS, &["quits"]);
}

/// Also where that thread takes nothing from the network.
#[test]
fn packets_that_another_thread_consumes_give_their_credits_back() {
    all_done(&Job::of(2), CREDITS, &["goes on"]);
}

#[test]
fn packets_of_a_handler_that_extracts_its_own_give_their_credits_back() {
    all_done(&Job::of(2), CREDITS, &["nested"]);
}

#[test]
fn packets_that_a_thread_leaves_behind_give_their_credits_back() {
    let programs = Programs::new();
    let program = compile(&programs, CREDITS, &PIE);
    let ran = Job::of(2).arg("ends").run_well(&program);
    assert!(ran.says("node 0 is done") && ran.says("node 1 is done"), "{ran:#?}");
    assert!(ran.says("a message of node 1 will never be complete"), "{ran:#?}");
}

/// The thread that it waits on may never come back.
#[test]
fn finalize_throws_away_what_a_handler_of_another_thread_has() {
    all_done(&Job::of(2), CREDITS, &["stays"]);
}

/// A node that is slow is not lost.
#[test]
fn a_send_outlasts_the_timeout_of_a_receiver_that_computes() {
    all_done(&Job::of(2).env("STANDPIPE_TIMEOUT_MS", "1000"), CREDITS, &["computes"]);
}
