//! The times of what goes on after its call.

use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{GetPiece, PathReason, PutPiece, Signal, Timed};

use super::*;

const REQUESTS: u64 = 640;

/// How many of a kind were timed.
fn timed(node: &Node, what: Timed) -> u64 {
    node.latencies().get(what).sampled()
}

#[test]
fn requests_are_timed_until_their_reply_or_the_word_that_their_handler_has_run() {
    let answers = Arc::new(AtomicU64::new(0));
    let configure = |_| {
        let answers = Arc::clone(&answers);
        config()
            .handler("ask", |call| {
                let answer = call.node().handler("answer").expect("registered");
                call.reply(answer, [0; 4]).expect("replied once");
            })
            .handler("answer", move |_| _ = answers.fetch_add(1, Ordering::SeqCst))
            .handler("tell", |_| {})
    };
    job(2, configure, |node| {
        if node.rank() == 0 {
            let [ask, tell] = ["ask", "tell"].map(|name| node.handler(name).expect("registered"));
            let every = u64::from(Timed::Request.sampled_of());
            for _ in 0..REQUESTS {
                node.request(1, ask, [0; 4]).expect("sent");
            }
            node.wait_until(|| answers.load(Ordering::SeqCst) == REQUESTS).expect("answered");
            assert_eq!(timed(node, Timed::Request), REQUESTS / every, "each of them once");
            for length in 0..REQUESTS {
                node.request_medium(1, tell, [0; 4], &vec![1; length as usize]).expect("sent");
            }
            node.wait_until(|| timed(node, Timed::Request) == 2 * REQUESTS / every).expect("all are told of");
            let latencies = node.latencies();
            let request = latencies.get(Timed::Request);
            assert!(request.max().is_some_and(|max| max > Duration::ZERO && max < LIMIT), "{request:?}");
        }
        node.barrier().expect("both come");
        assert!(node.rank() == 0 || timed(node, Timed::Request) == 0, "who answers has asked nothing");
    });
}

#[test]
fn operations_that_nobody_waits_for_are_timed_to_their_end() {
    const PUTS: u64 = 48;
    job(
        2,
        |_| Way::Message.config(),
        |node| {
            let mut mine = vec![0_u8; 100];
            let there = exchange_private(node, &mut mine);
            let before = timed(node, Timed::Put);
            for _ in 0..PUTS {
                let (result, _) = node.put_nb(there, vec![1_u8; 60]).wait();
                result.expect("put");
                node.put_nbi(there, &[2_u8; 60]).expect("started");
                node.quiet().expect("put");
            }
            // A thread that helped may still be about to enter the last.
            let every = u64::from(Timed::Put.sampled_of());
            node.wait_until(|| timed(node, Timed::Put) == before + 2 * PUTS / every).expect("all are timed");
            let (result, _) = node.get_nb(there, vec![0_u8; 60]).wait();
            result.expect("got");
            node.wait_until(|| timed(node, Timed::Get) == 1).expect("the first of its kind is");
            node.barrier().expect("both are done");
        },
    );
}

#[test]
fn collectives_that_nobody_waits_for_are_timed_to_their_end() {
    job(
        2,
        |_| config(),
        |node| {
            let before = timed(node, Timed::Collective);
            for _ in 0..2 * Timed::Collective.sampled_of() {
                let (result, sum) =
                    node.world().all_reduce_nb(vec![1_u32; 3], standpipe::Reduction::Sum).wait();
                assert_eq!((result, sum), (Ok(()), vec![2; 3]));
            }
            node.wait_until(|| timed(node, Timed::Collective) == before + 2).expect("all are timed");
            node.barrier().expect("both are done");
        },
    );
}

#[test]
fn lists_and_puts_with_a_signal_that_the_kernel_copies_are_timed() {
    job(
        2,
        |_| config(),
        |node| {
            let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
            node.barrier().expect("both come");
            let mut mine = vec![0_u8; 100];
            let there = exchange_private(node, &mut mine);
            match node.attach(1 - node.rank()) {
                Some(Ok(())) => {}
                // There the kernel copies nothing, and there is nothing to see.
                Some(Err(PathReason::Network)) => return,
                other => return testbed::skip(format_args!("no cross-memory attach: {other:?}")),
            }
            let (puts, gets) = (Timed::Put.sampled_of(), Timed::Get.sampled_of());
            let before = [Timed::Put, Timed::Get].map(|what| timed(node, what));
            for _ in 0..puts {
                node.put_list(&[PutPiece { to: there, from: &[1; 60] }]).expect("put");
                node.put_signal(there, &[2_u8; 60], Signal::add(counter.ptr(0).at(1 - node.rank()), 1))
                    .expect("put");
            }
            for _ in 0..gets {
                node.get_list(&mut [GetPiece { from: there, into: &mut [0; 60] }]).expect("got");
            }
            let after = [Timed::Put, Timed::Get].map(|what| timed(node, what));
            assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 1]);
            node.barrier().expect("both are done");
        },
    );
}
