//! BIP as its manual has it: every statement on it, by C programs that run as jobs.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use support::{Job, Programs, Ran, STRICT};

/// A program of `tests/bip`, compiled once.
fn c_program(name: &str, flags: &[&str]) -> PathBuf {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    let source = support::folder("tests/bip").join(name);
    PROGRAMS.get_or_init(Programs::new).compile_at(&source, flags)
}

fn cases() -> &'static Path {
    static CASES: OnceLock<PathBuf> = OnceLock::new();
    CASES.get_or_init(|| c_program("cases.c", &STRICT))
}

/// A case that ends well in jobs of these sizes.
fn case(name: &str, sizes: &[u32]) {
    for ranks in sizes {
        Job::of(*ranks).arg(name).run_well(cases());
    }
}

#[test]
fn variables() {
    for ranks in 1..=4 {
        let ran = Job::of(ranks).arg("variables").run_well(cases());
        for rank in 0..ranks {
            assert!(ran.says(&format!("node {rank} of {ranks}")), "{ran:?}");
        }
    }
}

#[test]
fn lengths() {
    case("lengths", &[2]);
}

#[test]
fn order() {
    case("order", &[2, 3, 4]);
}

#[test]
fn rendezvous() {
    case("rendezvous", &[2]);
}

#[test]
fn tags() {
    case("tags", &[2]);
}

#[test]
fn untagged() {
    case("untagged", &[2]);
}

#[test]
fn overflow() {
    case("overflow", &[2]);
}

#[test]
fn declared() {
    case("declared", &[2]);
}

#[test]
fn held_back() {
    case("held_back", &[2]);
}

#[test]
fn in_place() {
    case("in_place", &[2]);
}

#[test]
fn short_only() {
    case("short_only", &[2]);
}

#[test]
fn exchange() {
    case("exchange", &[2]);
}

#[test]
fn all_to_all() {
    case("all_to_all", &[1, 2, 3, 4]);
}

#[test]
fn leaving() {
    for ranks in 2..=4 {
        assert!(Job::of(ranks).arg("leaving").run_well(cases()).says("all received"));
    }
}

#[test]
fn withdrawn() {
    case("withdrawn", &[2, 3]);
    Job::of(2).arg("withdrawn").env("STANDPIPE_ATTACH", "never").run_well(cases());
}

/// Where getting takes time, a call that does not wait finds a long message before it is there.
#[test]
fn passed_over() {
    case("passed_over", &[2]);
    let ran = Job::of(2).arg("passed_over").env("STANDPIPE_ATTACH", "never").run_well(cases());
    assert!(ran.says("passed over ") && !ran.says("passed over 0 times"), "{ran:#?}");
}

#[test]
fn full_lane() {
    // Over a network a process moves its own bytes, in its calls.
    let ran = Job::of(3).arg("full_lane").env("STANDPIPE_TRANSPORT", "shm").run_well(cases());
    assert!(ran.says(" messages fill the lane") && !ran.says("1024 messages"), "{ran:#?}");
}

#[test]
fn drained() {
    case("drained", &[1, 2, 3]);
}

/// However many there are, each hears that the others have ended.
#[test]
fn last() {
    // Devices may be too few for so many processes.
    let many = Job::of(66).env("STANDPIPE_TRANSPORT", "shm");
    for job in [Job::of(2), Job::of(3), many] {
        let ran = job.arg("last").run(cases());
        assert!(
            ran.status == 1 && ran.says("standpipe: bip_trecv: no other node is there, or all"),
            "{ran:#?}"
        );
    }
}

#[test]
fn polling() {
    case("polling", &[2]);
}

#[test]
fn threads() {
    case("threads", &[2]);
}

#[test]
fn large() {
    case("large", &[2]);
}

/// Jobs of one host run side by side.
#[test]
fn jobs_side_by_side() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| case("exchange", &[2]));
        }
    });
}

#[test]
fn forked() {
    case("forked", &[2]);
}

/// Bad calls, and what each says before it ends the process with status 1.
const FAULTS: [(&str, &str); 40] = [
    ("before_init", "bip_tsend: bip_init has not been called"),
    ("before_init_recv", "bip_recv: bip_init has not been called"),
    ("before_init_test", "bip_rtest: bip_init has not been called"),
    ("before_init_get", "bip_tgetmsg: bip_init has not been called"),
    ("before_init_free", "bip_tfreemsg: bip_init has not been called"),
    ("taginit_tag", "bip_taginit: there is no tag -1"),
    ("taginit_none", "bip_taginit: tag 1 cannot have 0 buffers of 1 words"),
    ("taginit_many", "bip_taginit: tag 1 cannot have 1048577 buffers of 1 words: give it 1 to 1048576"),
    ("taginit_size", "bip_taginit: tag 1 cannot have 1 buffers of 0 words"),
    ("init_twice", "bip_init: it has been called before"),
    ("taginit_late", "bip_taginit: tag 1 was declared after bip_init"),
    ("to_itself", "bip_tsend: node 0 cannot send to itself"),
    ("to_nobody", "bip_tsend: there is no node 2 in a job of 2"),
    ("to_negative", "bip_tisend: there is no node -1 in a job of 2"),
    ("send_tag", "bip_tsend: there is no tag -1"),
    ("recv_tag", "bip_trecv: there is no tag -2147483648"),
    ("send_length", "bip_tsend: a message cannot have -1 words"),
    ("recv_length", "bip_tirecv: a message cannot have -7 words"),
    ("send_null", "bip_send: the buffer is NULL"),
    ("recv_null", "bip_recv: the buffer is NULL"),
    ("source_null", "bip_trecvx: the pointer for the source is NULL"),
    ("length_null", "bip_tgetmsg: the pointer for the length is NULL"),
    ("two_sends", "bip_tisend: send 131071 has not ended"),
    ("two_receives", "bip_trecv: a receive for tag 7 is pending"),
    ("receive_not_asked", "bip_tirecv: a receive for tag 7 is pending"),
    ("receive_while_posted", "bip_tngetmsg: a receive for tag 7 is pending"),
    ("short_while_posted", "bip_tnrecv: a receive for tag 7 is pending"),
    ("no_send", "bip_swait: there is no send 12345"),
    ("no_send_negative", "bip_stest: there is no send -1"),
    ("no_receive", "bip_rwait: there is no receive 65576"),
    ("old_receive", "bip_rtest: there is no receive"),
    ("send_as_receive", "bip_rwait: there is no receive"),
    ("receive_as_send", "bip_swait: there is no send"),
    ("free_nothing", "bip_tfreemsg: no message of tag 7 is being read in place"),
    ("free_twice", "bip_tfreemsg: no message of tag 7 is being read in place"),
    ("get_twice", "bip_tgetmsg: a message of tag 7 is being read in place"),
    ("short_too_long", "bip_trecv: a message of 1 words of node 1 came for tag 7, where at most 0"),
    ("queued_too_long", "bip_trecv: a message of 1 words of node 1 came for tag 7, where at most 0"),
    ("long_too_long", "bip_trecv: a message of 1025 words of node 1 came for tag 8, where at most 1024"),
    ("posted_too_long", "bip_rtest: a message of 1025 words of node 1 came for tag 8, where at most 1024"),
];

#[test]
fn faults() {
    let program = c_program("faults.c", &STRICT);
    for (name, says) in FAULTS {
        let ran = Job::of(2).arg(name).run(&program);
        assert_eq!(ran.status, 1, "{name}: {ran:#?}");
        assert!(ran.says(&format!("standpipe: {says}")), "{name}: {ran:#?}");
    }
    // Of a long message both sides say what is wrong, whichever of them ends first.
    let ran = Job::of(2).arg("not_there").keep_going().run(&program);
    assert!(ran.status == 1 && ran.says("standpipe: bip_trecv: node 1 sent a message of tag "), "{ran:#?}");
    assert!(ran.says("node 0 found no 1025 words to read at "), "{ran:#?}");
    let ran = Job::of(1).arg("alone").run(&program);
    assert!(ran.status == 1 && ran.says("standpipe: bip_recv: no other node is there"), "{ran:#?}");
}

/// A message that its sender says is huge takes memory only as it comes.
#[test]
fn huge() {
    let program = c_program("faults.c", &STRICT);
    let ran = Job::of(2).arg("huge").run(&program);
    assert!(ran.status == 1 && ran.says("standpipe: bip_tgetmsg: ") && ran.says("little memory"), "{ran:#?}");
}

/// Waits that the loss of node 1 ends, and the call that says so.
const LOSSES: [(&str, &str); 10] = [
    ("in_recv", "bip_trecv"),
    ("in_rwait", "bip_rwait"),
    ("in_rtest", "bip_rtest"),
    ("in_getmsg", "bip_tgetmsg"),
    ("in_ngetmsg", "bip_tngetmsg"),
    ("in_nrecv", "bip_tnrecv"),
    ("in_swait", "bip_swait"),
    ("in_stest", "bip_stest"),
    ("in_short_sends", "bip_tsend"),
    ("after_a_message", "bip_trecv"),
];

/// All but node 1 say that a node is lost, in the call that they were in. The first of them names node 1; the
/// others may hear first of one that has ended for that reason.
fn assert_lost(ran: &Ran, call: &str, ranks: u32) {
    assert!(ran.says(&format!("standpipe: {call}: node 1 is lost")), "{call}: {ran:#?}");
    for rank in (0..ranks).filter(|rank| *rank != 1) {
        let says = |(from, line): &(u32, String)| {
            *from == rank
                && line.starts_with(&format!("standpipe: {call}: node "))
                && line.ends_with(" is lost")
        };
        assert!(ran.lines.iter().any(says), "{call}, rank {rank}: {ran:#?}");
    }
}

#[test]
fn losses() {
    let program = c_program("losses.c", &STRICT);
    for (name, call) in LOSSES {
        for (how, ranks) in [("killed", 2), ("exits", 2), ("killed", 3)] {
            let ran = Job::of(ranks).arg(name).arg(how).keep_going().run(&program);
            assert_lost(&ran, call, ranks);
        }
    }
    let ran = Job::of(3).arg("in_recv").arg("never").keep_going().run(&program);
    assert_lost(&ran, "bip_init", 3);
}

/// Waits for a process whose program has ended well end, too: it waits for the others, and not they for it.
#[test]
fn ends() {
    let program = c_program("losses.c", &STRICT);
    for (name, call) in LOSSES {
        let ran = Job::of(2).arg(name).arg("ends").run(&program);
        let sends = ["in_swait", "in_stest", "in_short_sends"].contains(&name);
        let says = if sends { "node 1 has ended" } else { "no other node is there, or all have ended" };
        assert!(ran.status == 1 && ran.says(&format!("standpipe: {call}: {says}")), "{name}: {ran:#?}");
    }
}

/// The program of this layer, with rows that are short messages, and that are long ones.
fn stencil(ranks: u32, transport: &str) {
    static STENCIL: OnceLock<(Programs, PathBuf)> = OnceLock::new();
    let (_, program) = STENCIL.get_or_init(|| {
        let programs = Programs::new();
        let program = programs.compile("bip_stencil.c", &STRICT);
        (programs, program)
    });
    for columns in ["100", "2500"] {
        let job = Job::of(ranks).arg(columns).arg("10").arg("20").env("STANDPIPE_TRANSPORT", transport);
        let ran = job.run_well(program);
        assert!(ran.says(&format!("{ranks} nodes")) && ran.says("right"), "{ran:#?}");
    }
}

#[test]
fn program() {
    (1..=4).for_each(|ranks| stencil(ranks, "shm"));
}

#[test]
fn position_independent_and_fixed_programs() {
    let kinds: [&[&str]; 3] =
        [&["-fPIE", "-pie"], &["-fno-pie", "-no-pie", "-O1"], &["-O2", "-std=gnu89", "-g", "-w"]];
    for flags in kinds {
        let cases = c_program("cases.c", flags);
        for name in ["variables", "lengths", "in_place"] {
            Job::of(2).arg(name).run_well(&cases);
        }
    }
}

#[test]
fn over_a_network() {
    let Some(network) = support::network() else { return };
    for (name, ranks) in [
        ("lengths", 2),
        ("order", 3),
        ("exchange", 2),
        ("held_back", 2),
        ("in_place", 2),
        ("leaving", 3),
        ("withdrawn", 2),
        ("passed_over", 2),
    ] {
        Job::of(ranks).arg(name).env("STANDPIPE_TRANSPORT", network).run_well(cases());
    }
    stencil(3, network);
}

#[test]
fn losses_over_a_network() {
    let Some(network) = support::network() else { return };
    let program = c_program("losses.c", &STRICT);
    for (name, call) in [("in_recv", "bip_trecv"), ("in_rtest", "bip_rtest"), ("in_swait", "bip_swait")] {
        let job = Job::of(2).arg(name).arg("killed").env("STANDPIPE_TRANSPORT", network).keep_going();
        assert_lost(&job.run(&program), call, 2);
    }
}

/// Where the kernel lets no process read another's memory, long messages go by messages of the library's.
#[test]
fn without_attach() {
    for (name, ranks) in
        [("lengths", 2), ("exchange", 2), ("rendezvous", 2), ("short_only", 2), ("all_to_all", 4)]
    {
        Job::of(ranks).arg(name).env("STANDPIPE_ATTACH", "never").run_well(cases());
    }
}

#[test]
fn nobody_launched_it() {
    let ran = support::run_alone(cases(), &["variables"]);
    assert!(ran.status.success(), "{}", support::text(&ran));
    assert_eq!(ran.stdout, b"node 0 of 1\n");
}

/// Settings that cannot be used are the layer's error, too.
#[test]
fn settings_are_refused_in_words() {
    let ran = Job::of(1).arg("variables").env("STANDPIPE_SPIN_US", "soon").run(cases());
    assert!(
        ran.status == 1 && ran.says("standpipe: bip_init: ") && ran.says("STANDPIPE_SPIN_US"),
        "{ran:#?}"
    );
}

#[test]
fn the_header_says_what_the_layer_does() {
    let header = std::fs::read_to_string(support::folder("include").join("bip.h")).expect("it is there");
    assert!(header.contains(&format!("#define BIPSMALLSIZE {}\n", layers::bip::SMALL_WORDS)));
    assert!(header.contains(&format!("1 to {} buffers", layers::bip::BUFFERS_MAX)));
}
