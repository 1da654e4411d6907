use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn queue(capacity: usize) -> CompletionQueue<u32> {
    CompletionQueue::new(capacity).expect("a descriptor")
}

/// Whether the descriptor can be read.
#[cfg(not(miri))]
fn can_be_read(queue: &CompletionQueue<u32>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&at_once)).expect("it is polled") == 1
}

#[cfg(miri)]
fn can_be_read(queue: &CompletionQueue<u32>) -> bool {
    queue.descriptor.is_raised()
}

fn begin(queue: &CompletionQueue<u32>, thing: u32) -> Place {
    assert!(queue.reserve(), "there is room");
    queue.begin(thing)
}

fn begin_ended(queue: &CompletionQueue<u32>, thing: u32) {
    assert!(queue.reserve(), "there is room");
    queue.begin_ended(thing).wake(|| panic!("nobody sleeps"));
}

fn end(queue: &CompletionQueue<u32>, place: Place, thing: u32) {
    queue.end(place, |it| *it == thing).wake(|| panic!("nobody sleeps"));
}

fn take(queue: &CompletionQueue<u32>) -> Option<u32> {
    queue.take(|| panic!("nobody sleeps"))
}

#[test]
fn things_come_out_once_in_the_order_of_their_ends() {
    let queue = queue(4);
    let (first, second) = (begin(&queue, 1), begin(&queue, 2));
    begin_ended(&queue, 3);
    assert_eq!((take(&queue), take(&queue), queue.len()), (Some(3), None, 2));
    end(&queue, second, 2);
    end(&queue, first, 1);
    // Once more, and by who does not know that it has ended before.
    end(&queue, second, 2);
    assert_eq!((take(&queue), take(&queue), take(&queue)), (Some(2), Some(1), None));
    assert!(queue.is_empty());
}

#[test]
fn a_place_is_another_things_once_it_has_been_taken() {
    let queue = queue(1);
    let place = begin(&queue, 1);
    end(&queue, place, 1);
    assert_eq!(take(&queue), Some(1));
    let again = begin(&queue, 2);
    assert_eq!(again, place);
    end(&queue, place, 1);
    assert_eq!(take(&queue), None, "the one that ended late was another");
    end(&queue, again, 2);
    assert_eq!(take(&queue), Some(2));
}

#[test]
fn no_more_fit_than_it_was_made_for() {
    assert!(!queue(0).reserve());
    let queue = queue(2);
    assert!(queue.reserve());
    begin_ended(&queue, 1);
    assert!(!queue.reserve());
    queue.release().wake(|| panic!("nobody sleeps"));
    begin(&queue, 2);
    assert!(!queue.reserve());
    assert_eq!(take(&queue), Some(1));
    assert!(queue.reserve() && !queue.reserve());
    assert_eq!((queue.take_all(), queue.len()), (vec![2], 1));
}

#[test]
fn the_descriptor_can_be_read_while_there_is_something_to_take() {
    let queue = queue(4);
    begin_ended(&queue, 1);
    assert!(!can_be_read(&queue), "nobody looks at it yet");
    queue.observe();
    assert!(can_be_read(&queue));
    let place = begin(&queue, 2);
    assert_eq!(take(&queue), Some(1));
    assert!(!can_be_read(&queue));
    end(&queue, place, 2);
    begin_ended(&queue, 3);
    assert!(can_be_read(&queue));
    assert_eq!(take(&queue), Some(2));
    assert!(can_be_read(&queue), "one is left");
    assert_eq!(take(&queue), Some(3));
    assert!(!can_be_read(&queue));
    begin_ended(&queue, 4);
    assert_eq!(queue.take_all(), [4]);
    assert!(!can_be_read(&queue));
}

#[test]
fn a_nudge_is_seen_once_and_only_where_something_is_under_way() {
    let queue = queue(4);
    queue.observe();
    queue.nudge().wake(|| panic!("nobody sleeps"));
    assert!(!can_be_read(&queue));
    let place = begin(&queue, 1);
    queue.nudge().wake(|| panic!("nobody sleeps"));
    assert!(can_be_read(&queue));
    assert_eq!(take(&queue), None);
    assert!(!can_be_read(&queue));
    queue.raise_always();
    assert_eq!((take(&queue), can_be_read(&queue)), (None, true));
    end(&queue, place, 1);
    assert_eq!((take(&queue), can_be_read(&queue)), (Some(1), false));
}

#[test]
fn tasks_are_woken_once_and_sleepers_while_they_are_counted() {
    let queue = queue(4);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let places: Vec<Place> = (1..=3).map(|thing| begin(&queue, thing)).collect();
    let first = queue.wake_later(&waker, None).expect("nothing has ended");
    let first = queue.wake_later(&waker, Some(first)).expect("nothing has ended");
    let second = queue.wake_later(&waker, None).expect("nothing has ended");
    end(&queue, places[0], 1);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "one end wakes one task");
    assert!(queue.wake_later(&waker, None).is_none(), "one is there");
    queue.leave(first).wake(|| panic!("nobody sleeps"));
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "it was left to the second");
    queue.leave(second).wake(|| panic!("nobody sleeps"));
    assert_eq!(take(&queue), Some(1));
    end(&queue, places[1], 2);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "they have left");

    let sleepers = (queue.sleeper(), queue.sleeper());
    drop(sleepers.0);
    let mut threads_woken = 0;
    queue.end(places[2], |it| *it == 3).wake(|| threads_woken += 1);
    assert_eq!(threads_woken, 1);
    drop(sleepers.1);
    begin_ended(&queue, 4);
}

#[test]
fn who_waits_is_let_go_when_there_is_nothing_to_wait_for() {
    let queue = queue(4);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(queue.wake_later(&waker, None).is_none(), "nothing is to come");
    assert!(queue.reserve());
    let waits = |queue: &CompletionQueue<u32>| queue.wake_later(&waker, None).is_some();
    assert!(waits(&queue) && waits(&queue));
    queue.release().wake(|| panic!("nobody sleeps"));
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    let place = begin(&queue, 1);
    assert!(waits(&queue) && waits(&queue));
    end(&queue, place, 1);
    assert_eq!((woken.0.load(Ordering::SeqCst), take(&queue)), (3, Some(1)));
    assert_eq!(woken.0.load(Ordering::SeqCst), 4, "the other finds that it is empty");
}

#[test]
fn what_is_taken_out_keeps_its_room_and_what_has_ended_stays() {
    let queue = queue(2);
    let first = begin(&queue, 1);
    begin_ended(&queue, 1);
    assert_eq!((queue.take_out(|it| *it == 1), queue.len()), (vec![1], 2));
    assert!(queue.take_out(|_| true).is_empty(), "the other has ended");
    end(&queue, first, 1);
    queue.begin_ended(9).wake(|| panic!("nobody sleeps"));
    assert_eq!((take(&queue), take(&queue), take(&queue), queue.len()), (Some(1), Some(9), None, 0));
}
