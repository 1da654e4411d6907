//! What a node refuses: everything to a child made by `fork`, also where a thread of the parent's was in the
//! middle of something, and everything to all once it has closed.

use std::time::Duration;

use super::config::{Config, Exposure, ProgressThread};
use super::node::Node;
use crate::base::lock::lock;
use crate::{
    AtomicOp, CloseError, ConnectError, DirectoryError, Error, GetPiece, GlobalPtr, HeapError, PinError,
    PutPiece, Remote, RemoteRun, Rights, Signal, SignalWait,
};

/// Longer than anything takes here, and a time that some calls are to take.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// Seconds after which a child that waits for what is not there is ended.
const STUCK_S: u32 = 20;

fn config() -> Config {
    let config = Config::new().progress(ProgressThread::Off).exposure(Exposure::Ranges);
    config.handler("h", |_| {}).heap_bytes(1 << 20)
}

/// Two nodes that have met.
fn pair() -> (Node, Node, u32) {
    let (a, b) = (Node::open(config()).expect("opened"), Node::open(config()).expect("opened"));
    let address = b.address().expect("it listens");
    let peer = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| a.connect_to(&address));
        while !connecting.is_finished() {
            b.progress();
        }
        connecting.join().expect("no panic").expect("connected")
    });
    (a, b, peer)
}

/// Has a child look. Returns how it ended: 0 where it found nothing wrong, 256 where it panicked, and SIGALRM
/// where a call waits for ever.
fn in_a_child(look: impl FnOnce()) -> i32 {
    // SAFETY: the child runs on this thread alone, allocates by the system's library, which is made for that,
    // and ends without going on in the test.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it sets a clock of the child's own, which ends it.
            unsafe { libc::alarm(STUCK_S) };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
            let status = i32::from(outcome.is_err());
            // SAFETY: it ends the child and runs nothing more of it.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it waits for our own child and writes to a word of this frame.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

#[track_caller]
fn forked<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Forked { .. })), "{result:?}");
}

#[track_caller]
fn closed<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Closed { .. })), "{result:?}");
}

/// Makes every call that can fail: `refused` looks at how.
fn all_is_refused(node: &Node, peer: u32, mine: GlobalPtr<u64>, is_refused: fn(&Error) -> bool) {
    #[track_caller]
    fn check<T: std::fmt::Debug>(result: Result<T, Error>, is_refused: fn(&Error) -> bool) {
        assert!(result.as_ref().is_err_and(is_refused), "{result:?}");
    }
    let (theirs, there): (GlobalPtr<u64>, Remote) =
        (GlobalPtr::new(peer, 0), GlobalPtr::<u8>::new(peer, 0).into());
    for at in [mine, theirs] {
        check(node.put(at, 1), is_refused);
        check(node.get(at), is_refused);
        check(node.put_slice(at, &[1; 4]), is_refused);
        check(node.get_slice(at, &mut [0; 4]), is_refused);
        check(node.fetch_add(at, 1), is_refused);
        check(node.compare_swap(at, 0, 1), is_refused);
        check(node.atomic_load(at), is_refused);
        check(node.atomic_store(at, 1), is_refused);
        check(node.atomic_store_nbi(at, 1), is_refused);
        check(node.atomic_load_nb(at).wait().0, is_refused);
        check(node.atomic_store_nb(at, 1).wait().0, is_refused);
        check(node.update_nbi(at, AtomicOp::Add, 1), is_refused);
        check(node.update_nb(at, AtomicOp::Add, 1).wait().0, is_refused);
        check(node.fetch_nb(at, AtomicOp::Add, 1).wait().0, is_refused);
        check(node.compare_swap_nb(at, 0, 1).wait().0, is_refused);
        check(node.put_signal(at, &[1_u64], Signal::add(at, 1)), is_refused);
        check(node.put_signal_nb(at, vec![1_u64], Signal::add(at, 1)).wait().0, is_refused);
        check(node.put_nb(at, vec![0_u8; 3]).wait().0, is_refused);
        check(node.get_nb(at, vec![0_u8; 3]).wait().0, is_refused);
        check(node.put_nbi(at, &[0_u8; 3]), is_refused);
        check(node.prefetch(at, 8), is_refused);
    }
    check(node.put_list(&[PutPiece { to: there, from: b"a" }]), is_refused);
    check(node.get_list(&mut [GetPiece { from: there, into: &mut [0] }]), is_refused);
    check(node.put_vector(&[RemoteRun { at: there, len: 1 }], &[b"a"]), is_refused);
    let h = crate::HandlerId::of("", "h");
    check(node.request(peer, h, [0; 4]), is_refused);
    check(node.request_medium(peer, h, [0; 4], b"a"), is_refused);
    check(node.request_long(h, [0; 4], there, b"a"), is_refused);
    check(node.register("a", "b", |_| {}), is_refused);
    check(node.withdraw(h), is_refused);
    check(node.has_handler(peer, h), is_refused);
    check(node.world_of("a").map(drop), is_refused);
    check(node.try_request(peer, h, [0; 4]), is_refused);
    check(node.try_request_medium(peer, h, [0; 4], b"a"), is_refused);
    check(node.try_request_long(h, [0; 4], there, b"a"), is_refused);
    check(node.request_long_nb(h, [0; 4], there, vec![0_u8; 3]).wait().0, is_refused);
    assert!(matches!(node.pin(&[0_u8]), Err(PinError::Node(error)) if is_refused(&error)));
    check(node.near_team().map(drop), is_refused);
    check(node.local_ptr(mine, 1), is_refused);
    assert!(matches!(node.heap().free(mine), Err(HeapError::Forked | HeapError::Closed)));
    check(node.prepare_medium(peer, 0, 1).map(drop), is_refused);
    check(node.completions::<()>(1).map(drop), is_refused);
    check(node.connect(peer), is_refused);
    check(node.barrier(), is_refused);
    check(node.quiet(), is_refused);
    check(node.fence(), is_refused);
    check(node.quiet_with(peer), is_refused);
    check(node.fence_with(peer), is_refused);
    check(node.memory_sync(), is_refused);
    check(node.wait_until(|| false), is_refused);
    check(node.wait_signal(mine, 0), is_refused);
    check(node.wait_signal_from(0, mine, 0), is_refused);
    check(node.test_signal(mine, 0), is_refused);
    for waits in [&[SignalWait::new(mine, 0)][..], &[]] {
        check(node.wait_any_signal(waits), is_refused);
        check(node.wait_some_signals(waits), is_refused);
        check(node.wait_all_signals(waits), is_refused);
        check(node.test_signals(waits), is_refused);
    }
    let team = node.world();
    check(team.barrier(), is_refused);
    check(team.all_reduce(&mut [1_u32], crate::Reduction::Sum), is_refused);
    check(team.all_gather_nb(vec![1_u32]).wait().0, is_refused);
    check(team.split(None, 0), is_refused);
    let heap = node.heap().alloc::<u8>(1).map(drop);
    assert!(matches!(heap, Err(HeapError::Forked | HeapError::Closed)), "{heap:?}");
    let directory = node.directory();
    let checked = |result: Result<(), DirectoryError>| match result {
        Err(DirectoryError::Peer(error)) => is_refused(&error),
        _ => false,
    };
    assert!(checked(directory.publish("name", b"value")));
    assert!(checked(directory.withdraw("name").map(drop)));
    assert!(checked(directory.lookup("name").map(drop)));
    assert!(checked(directory.wait("name", Duration::ZERO).map(drop)));
    for call in [node.address().map(drop), node.connect_to("standpipe:").map(drop)] {
        assert!(matches!(call, Err(ConnectError::Forked { .. } | ConnectError::Closed)), "{call:?}");
    }
}

/// What cannot fail says what a node says that knows nobody and has done nothing.
fn nothing_is_told(node: &Node, peer: u32) {
    assert!(!node.has_failed() && node.handler("h").is_some());
    assert!(!node.progress() && node.peers().is_empty() && node.lost_peers().is_empty());
    assert!(node.attach(peer).is_none() && node.provider().is_none());
    assert_eq!(node.stats(), crate::Stats::default());
    node.wake();
    node.prepare(&[0_u8; 8]);
    drop(node.expose(&[0_u8; 8], Rights::Read));
    assert!(node.world().job_rank(0).is_none());
    let _ = node.latencies();
    assert_eq!(node.registrations(), Default::default());
}

#[test]
fn a_child_is_refused_its_parents_node_whatever_locks_are_held() {
    let (a, b, peer) = pair();
    let array = a.heap().alloc_zeroed::<u64>(8).expect("room");
    let words = [7_u64; 8];
    let exposed = b.expose(&words[..], Rights::Read);
    // SAFETY: the words live to the end of the test, and are only read.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    let mut event = a.get_nb(there, vec![0_u64; 8]);
    assert!(!event.is_complete(), "its owner has made no progress");
    let mut group = a.group();
    group.add(a.get_nb(there, vec![0_u64; 8]));
    let queue = a.completions(2).expect("a descriptor");
    queue.reserve().expect("room").get(1, there, vec![0_u64; 8]);
    // The parent's stay for after the locks.
    let (mut array, mut event, mut group, mut queue) = (Some(array), Some(event), Some(group), Some(queue));
    let (hold, held) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let (hold, held, node) = (&hold, &held, &a);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _guards = (node.core.engine(), lock(&node.core.published), lock(&node.core.opening.outside));
            let _handlers = node.core.handlers.hold();
            hold.wait();
            held.wait();
        });
        hold.wait();
        let status = in_a_child(|| {
            let array = array.take().expect("the child's copy");
            let (mut event, mut group) = (event.take().expect("a copy"), group.take().expect("a copy"));
            all_is_refused(node, peer, array.ptr(0), |error| matches!(error, Error::Forked { .. }));
            nothing_is_told(node, peer);
            assert!(event.is_complete() && event.wait_at_most(Duration::ZERO) == Ok(true));
            forked(event.wait().0);
            assert_eq!(group.left(), 0);
            forked(group.wait().0);
            let queue = queue.take().expect("a copy");
            forked(queue.reserve().map(drop));
            forked(queue.take());
            forked(queue.wait_any());
            assert_eq!((queue.len(), queue.cancel_all()), (0, 0));
            std::os::fd::AsFd::as_fd(&queue);
            drop((queue, array, a.clone(), b.clone()));
        });
        held.wait();
        assert_eq!(status, 0);
    });
    drop(exposed);
}

#[test]
fn a_child_may_open_a_node_of_its_own() {
    let parents = Node::open(config()).expect("opened");
    let status = in_a_child(|| {
        let own = Node::open(config()).expect("opened");
        let array = own.heap().alloc_from(&[1_u64, 2]).expect("room");
        own.put(array.ptr(1), 3).expect("put");
        assert_eq!((own.get(array.ptr(1)), array.read(0)), (Ok(3), 1));
        forked(parents.quiet());
    });
    assert_eq!(status, 0);
    parents.barrier().expect("the parent's is as it was");
}

#[test]
fn a_node_that_has_closed_takes_no_calls() {
    let (a, b, peer) = pair();
    let array = a.heap().alloc_zeroed::<u64>(8).expect("room");
    let (other, again) = (a.clone(), a.clone());
    assert_eq!(a.close(LONG), Ok(()));
    all_is_refused(&other, peer, array.ptr(0), |error| matches!(error, Error::Closed { .. }));
    assert!(!other.progress() && other.peers().is_empty());
    assert_eq!(other.lost_peers(), [], "it has left, and they live");
    drop(other.expose(&[0_u8; 8], Rights::Read));
    let refused = again.close(LONG);
    assert!(matches!(refused, Err(CloseError::Refused(Error::Closed { .. }))), "{refused:?}");
    b.wait_until(|| !b.lost_peers().is_empty()).expect("it finds that the other has left");
}

#[test]
fn closing_ends_what_other_threads_wait_for() {
    let (a, b, peer) = pair();
    let words = [7_u64; 8];
    // SAFETY: the words live to the end of the test, and are only read.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    let counter = a.heap().alloc_zeroed::<u64>(1).expect("room");
    // Its owner makes no progress, and does not expose it.
    let (event, awaited) =
        (a.within(LONG).get_nb(there, vec![0_u64; 8]), a.within(LONG).get_nb(there, vec![0_u64; 8]));
    std::thread::scope(|scope| {
        // Waits that would end too late, and otherwise, if closing ended none.
        scope.spawn(|| closed(a.within(LONG).wait_until(|| false)));
        scope.spawn(|| closed(a.within(LONG).wait_signal(counter.ptr(0), 1)));
        scope.spawn(|| closed(a.within(LONG).wait_all_signals(&[SignalWait::new(counter.ptr(0), 1)])));
        scope.spawn(|| closed(event.wait().0));
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            closed(runtime.block_on(awaited).0);
        });
        std::thread::sleep(SHORT);
        let undone = a.clone().close(SHORT);
        assert!(matches!(undone, Err(CloseError::Undone(Error::Timeout { .. }))), "{undone:?}");
    });
    drop(b);
}

/// All peers are lost to a node that closes, which is not what its callers are to hear of them.
#[test]
fn calls_that_closing_overtakes_say_that_the_node_has_closed() {
    for _ in 0..20 {
        let (a, b, peer) = pair();
        let array = b.heap().alloc_zeroed::<u64>(8).expect("room");
        let theirs = GlobalPtr::<u64>::new(peer, array.ptr(0).offset());
        let words = [7_u64; 8];
        // SAFETY: the words live to the end of the round, and are only read.
        let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
        let until_closed = |call: &dyn Fn() -> Result<(), Error>| {
            let error = loop {
                if let Err(error) = call() {
                    break error;
                }
            };
            closed(Err::<(), _>(error));
        };
        let h = crate::HandlerId::of("", "h");
        std::thread::scope(|scope| {
            scope.spawn(|| until_closed(&|| a.put(theirs, 1)));
            scope.spawn(|| until_closed(&|| a.get_slice(theirs, &mut [0; 8])));
            scope.spawn(|| until_closed(&|| a.fetch_add(theirs, 1).map(drop)));
            scope.spawn(|| until_closed(&|| a.put_signal(theirs, &[1_u64], Signal::add(theirs, 1))));
            scope.spawn(|| until_closed(&|| a.within(LONG).get_nb(there, vec![0_u64; 8]).wait().0));
            scope.spawn(|| until_closed(&|| a.within(LONG).request_medium(peer, h, [0; 4], b"a")));
            scope.spawn(|| until_closed(&|| a.world().barrier()));
            std::thread::sleep(SHORT / 10);
            let _ = a.clone().close(SHORT / 10);
        });
        drop(b);
    }
}

#[test]
fn closing_does_not_wait_for_a_handler_longer_than_it_may() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let (enter, entered) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let config = Config::new().progress(ProgressThread::On).handler("long", move |call| {
        let refused = call.node().close(LONG);
        assert!(matches!(refused, Err(CloseError::Refused(Error::InHandler { .. }))), "{refused:?}");
        let _ = enter.send(());
        let _ = lock(&released).recv();
        // Handlers that take for granted what was registered do not fail because they run last.
        let known = call.node().handler("long").expect("it was registered");
        let _ = tell.send(call.reply(known, [0; 4]));
    });
    let node = Node::open(config).expect("opened");
    node.request(node.rank(), node.handler("long").expect("it is there"), [0; 4]).expect("sent");
    entered.recv_timeout(LONG).expect("the progress thread runs it");
    let begun = std::time::Instant::now();
    let late = node.close(SHORT);
    assert!(matches!(late, Err(CloseError::Unfinished { .. })) && begun.elapsed() < LONG / 2, "{late:?}");
    drop(release);
    let refused = told.recv_timeout(LONG).expect("it goes on");
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
}

#[test]
fn closing_may_take_for_ever_and_ends_at_once() {
    let (a, b, _) = pair();
    assert_eq!(a.close(Duration::MAX), Ok(()));
    drop(b);
}

/// Ends a thread beside when the other one goes.
struct EndsAtDrop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A task leaves nothing behind, however its await ends: what would be left is looked at with each message.
#[test]
fn tasks_that_have_awaited_leave_nothing_behind() {
    let (a, b, peer) = pair();
    let words = [7_u64; 8];
    let exposed = b.expose(&words[..], Rights::Read);
    // SAFETY: the words live to the end of the test, and are only read.
    let there = unsafe { Remote::raw(peer, words.as_ptr().expose_provenance() as u64) };
    let over = std::sync::atomic::AtomicBool::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                b.progress();
            }
        });
        // Also when what follows fails.
        let _end = EndsAtDrop(&over);
        runtime.block_on(async {
            for turn in 0..300 {
                let mut event = a.get_nb(there, vec![0_u64; 8]);
                match turn % 3 {
                    0 => assert_eq!(event.await.0, Ok(())),
                    1 => {
                        // As a `select!` that it loses, if it does not win.
                        let poll = std::future::poll_fn(|cx| {
                            std::task::Poll::Ready(std::pin::Pin::new(&mut event).poll(cx))
                        });
                        if poll.await.is_pending() {
                            let (_, rest) = event.wait_local();
                            drop(rest);
                        }
                    }
                    _ => {
                        let node = a.within(Duration::from_micros(1));
                        let _ = node.get_nb(there, vec![0_u64; 8]).await;
                        let _ = event.cancel();
                    }
                }
            }
        });
        a.quiet().expect("all has ended");
    });
    a.core.wake_for_ended();
    assert_eq!(a.core.watched_operations(), 0);
    drop(exposed);
}
