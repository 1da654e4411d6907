//! Packets that have arrived and wait to be extracted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::body::Body;
use super::wire::Packet;

/// Something that waits to be extracted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) from: u32,
    pub(crate) what: Arrived,
}

#[derive(Debug)]
pub(crate) enum Arrived {
    Packet(Packet, Body),
    /// The sender gave its message up.
    Cut,
    /// The sender is gone.
    Lost,
}

thread_local! {
    static OWN: Own = Own::new();
}

/// Arrivals of the calling thread's, while it extracts: no other thread takes any then, so nothing is locked.
pub(crate) struct Own {
    token: u64,
    queue: RefCell<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Where the instance of the layer lies that they are for.
    of: usize,
    arrivals: VecDeque<Arrival>,
}

impl Own {
    fn new() -> Own {
        static TOKENS: AtomicU64 = AtomicU64::new(1);
        Own { token: TOKENS.fetch_add(1, Ordering::Relaxed), queue: RefCell::default() }
    }

    /// Tells the calling thread from others; never 0 while it lives.
    pub(crate) fn token() -> u64 {
        OWN.try_with(|own| own.token).unwrap_or(0)
    }

    /// Queues an arrival for the instance of the layer that lies there, if the thread of that token calls.
    /// Gives it back where another thread does, or the thread has queued some for another instance.
    #[inline]
    pub(crate) fn push(of: usize, token: u64, arrival: Arrival) -> Option<Arrival> {
        let mut arrival = Some(arrival);
        // A thread that ends has queued nothing.
        let _ = OWN.try_with(|own| {
            let mut queue = own.queue.borrow_mut();
            if own.token == token && (queue.arrivals.is_empty() || queue.of == of) {
                queue.of = of;
                if let Some(arrival) = arrival.take() {
                    queue.arrivals.push_back(arrival);
                }
            }
        });
        arrival
    }

    /// Takes the first one that the calling thread has queued for that instance.
    #[inline]
    pub(crate) fn pop(of: usize) -> Option<Arrival> {
        Own::change(of, VecDeque::pop_front).flatten()
    }

    /// Takes all that the calling thread has queued for that instance.
    #[inline]
    pub(crate) fn take_all(of: usize) -> VecDeque<Arrival> {
        Own::change(of, std::mem::take).unwrap_or_default()
    }

    #[inline]
    fn change<R>(of: usize, act: impl FnOnce(&mut VecDeque<Arrival>) -> R) -> Option<R> {
        let changed = OWN.try_with(|own| {
            let mut queue = own.queue.borrow_mut();
            (queue.of == of && !queue.arrivals.is_empty()).then(|| act(&mut queue.arrivals))
        });
        changed.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(from: u32) -> Arrival {
        Arrival { from, what: Arrived::Cut }
    }

    #[test]
    fn a_thread_queues_its_own_for_one_instance_at_a_time() {
        let token = Own::token();
        assert!(Own::push(8, token, from(1)).is_none() && Own::push(8, token, from(2)).is_none());
        assert_eq!(Own::push(16, token, from(3)).map(|back| back.from), Some(3));
        assert_eq!(Own::push(8, token + 1, from(4)).map(|back| back.from), Some(4));
        assert!(Own::pop(16).is_none());
        assert_eq!(Own::pop(8).map(|arrival| arrival.from), Some(1));
        assert!(Own::take_all(16).is_empty());
        assert_eq!(Own::take_all(8).into_iter().map(|arrival| arrival.from).collect::<Vec<_>>(), [2]);
        assert!(Own::push(16, token, from(5)).is_none() && Own::pop(16).is_some());
        let elsewhere = std::thread::spawn(Own::token).join().expect("it does not panic");
        assert_ne!(elsewhere, token);
    }
}
