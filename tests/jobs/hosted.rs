//! Jobs whose processes somebody else makes, and ranks that lie at the same addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Heard, config, itself, job_of, role, say};
use standpipe::launch::{HostedJob, LaunchError, RANKS_MAX};
use standpipe::{Call, Code, Node};

#[test]
fn processes_that_the_program_makes_itself_are_one_job_and_hear_of_losses() {
    let job = HostedJob::start(3).expect("there is room for three");
    let start = |rank: u32, role: &str| {
        let child = itself(role).envs(job.variables(rank)).spawn();
        child.expect("this program can be run again")
    };
    let mut children = [start(0, "meets"), start(1, "meets"), start(2, "dies")];
    let ends: Vec<_> = children.iter_mut().map(|child| child.wait().expect("it is a child")).collect();
    assert!(ends[0].success() && ends[1].success(), "{ends:?}");
    assert_eq!(ends[2].code(), Some(9));
}

/// The thread that serves the job is none of a forked child's.
#[test]
fn a_forked_child_may_drop_a_job_and_ends_nothing_of_its_parents() {
    let output = itself("forks").output().expect("this program can be run again");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn forks() {
    let job = HostedJob::start(1).expect("there is room for one");
    // SAFETY: no other thread of this process holds a lock of the allocator's just now, so that the child can
    // drop what it has a copy of, after which it ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(job)));
        // SAFETY: it ends the child at once, and runs nothing that its parent has left to be done at the end.
        unsafe { libc::_exit(if dropped.is_ok() { 7 } else { 8 }) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, which nobody else waits for, and the place for its status is a
    // local that outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    let member = itself("is alone").envs(job.variables(0)).status().expect("this program can be run again");
    assert!(member.success(), "the job goes on: {member}");
}

#[test]
fn a_job_that_none_or_too_many_are_in_is_refused() {
    for ranks in [0, RANKS_MAX + 1] {
        let refused = HostedJob::start(ranks).expect_err("no job has so many");
        assert!(matches!(refused, LaunchError::Broker(_)), "{refused}");
        assert!(refused.to_string().contains(&ranks.to_string()), "{refused}");
    }
}

#[test]
fn ranks_lie_at_the_same_addresses_where_that_is_wanted_and_at_random_ones_otherwise() {
    let addresses = |same: bool| {
        let heard = Heard::default();
        heard.run_well(job_of(3, "addresses").same_addresses(same));
        (0..3).map(|rank| heard.said(rank)).collect::<Vec<Vec<String>>>()
    };
    let same = addresses(true);
    assert!(same[0].len() == 1 && same.iter().all(|said| *said == same[0]), "{same:?}");
    let random = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").expect("Linux has it");
    if random.trim() == "0" {
        return testbed::skip("that addresses differ otherwise: this system places nothing at random");
    }
    let apart = addresses(false);
    assert!(apart.iter().any(|said| *said != apart[0]), "{apart:?}");
}

#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "addresses" => {
            let (function, variable) = (role_address as fn() as usize, &raw const HERE as usize);
            let boxed = Box::new(0_u8);
            // Its first allocations come from the heap that the kernel places.
            say(format!("{function:x} {variable:x} {:x}", (&raw const *boxed).addr() >> 24));
        }
        "forks" => forks(),
        "is alone" => assert_eq!(Node::open(config()).expect("invited").size(), 1),
        "meets" => {
            let goodbyes = Arc::new(AtomicU32::new(0));
            let heard = Arc::clone(&goodbyes);
            let handler = move |_: &mut Call<'_>| _ = heard.fetch_add(1, Ordering::SeqCst);
            let node = Node::open(config().handler("goodbye", handler)).expect("invited");
            let peer = 1 - node.rank();
            assert_eq!(node.size(), 3);
            node.connect(peer).expect("it comes");
            node.wait_until(|| node.is_lost(2)).expect("the third ends");
            assert_eq!(node.connect(2).expect_err("it has gone").code(), Code::PeerLost);
            let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
            node.put(counter.ptr(0).at(node.rank()), 5).expect("here");
            assert!(node.barrier().is_err(), "one of three cannot come");
            // The first to end would be lost to the other, which may not have come so far.
            node.request(peer, node.handler("goodbye").expect("registered"), [0; 4]).expect("it is there");
            node.wait_until(|| goodbyes.load(Ordering::SeqCst) > 0).expect("it says goodbye, too");
        }
        "dies" => {
            let node = Node::open(config()).expect("invited");
            node.connect(0).expect("it comes");
            node.connect(1).expect("it comes");
            std::process::exit(9);
        }
        other => panic!("there is no role {other}"),
    }
}

static HERE: u8 = 0;

fn role_address() {}
