use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// Only a lock that could be biased when it was made is: says so aloud where the kernel refuses.
fn biased_lock<T>(value: T) -> Option<BiasedLock<T>> {
    let lock = BiasedLock::new(value);
    if lock.bias.load(Ordering::Relaxed) == SHARED {
        testbed::skip("no private membarrier here");
        return None;
    }
    Some(lock)
}

fn shared_lock<T>(value: T) -> BiasedLock<T> {
    BiasedLock::with_bias(value, SHARED)
}

fn bias_of<T>(lock: &BiasedLock<T>) -> u64 {
    lock.bias.load(Ordering::Relaxed)
}

/// What another thread gets of the lock by trying.
fn tried_elsewhere<T: Send + Copy>(lock: &BiasedLock<T>) -> Option<T> {
    thread::scope(|scope| scope.spawn(|| lock.try_lock().map(|guard| *guard)).join().unwrap())
}

fn assert_refuses_reentry<T>(lock: &BiasedLock<T>) {
    assert!(lock.try_lock().is_none());
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).unwrap_err();
    assert!(panicked.downcast_ref::<&str>().unwrap().contains("already holds"));
    assert!(lock.try_lock().is_none(), "the refusal released it");
}

#[test]
fn the_owner_stays_the_owner_while_nobody_else_locks() {
    let Some(lock) = biased_lock(0) else { return };
    for n in 0..100 {
        let mut guard = lock.lock();
        assert_eq!(*guard, n);
        *guard += 1;
    }
    assert_eq!(*lock.try_lock().unwrap(), 100);
    assert_eq!(bias_of(&lock), own_token());
    assert_eq!(lock.shared.load(Ordering::Relaxed) & IN, 0);
}

#[test]
fn a_second_thread_ends_the_bias_for_good() {
    let Some(lock) = biased_lock(1) else { return };
    *lock.lock() += 1;
    assert_eq!(tried_elsewhere(&lock), Some(2));
    assert_eq!(bias_of(&lock), SHARED);
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 3);
    assert_eq!(bias_of(&lock), SHARED);
}

#[test]
fn reentry_is_refused_to_the_owner() {
    let Some(lock) = biased_lock(0) else { return };
    let first = lock.lock();
    assert_refuses_reentry(&lock);
    drop(first);
    let second = lock.lock();
    assert_refuses_reentry(&lock);
    drop(second);
    assert!(lock.try_lock().is_some());
}

#[test]
fn reentry_is_refused_when_all_compete() {
    let lock = shared_lock(0);
    let guard = lock.lock();
    assert_refuses_reentry(&lock);
    drop(guard);
    assert!(lock.try_lock().is_some());
}

/// Between the two: the owner is still in by its bias, which another thread has taken away.
#[test]
fn reentry_is_refused_while_the_bias_is_revoked() {
    let Some(lock) = biased_lock(7) else { return };
    let guard = lock.lock();
    assert_eq!(tried_elsewhere(&lock), None);
    assert_eq!(bias_of(&lock), REVOKING);
    assert_refuses_reentry(&lock);
    drop(guard);
    assert_eq!(tried_elsewhere(&lock), Some(7));
    assert_eq!(bias_of(&lock), SHARED);
}

/// The owner comes back before anybody has finished what a try began.
#[test]
fn the_owner_itself_completes_a_revocation() {
    let Some(lock) = biased_lock(7) else { return };
    let guard = lock.lock();
    assert_eq!(tried_elsewhere(&lock), None);
    drop(guard);
    assert_eq!(*lock.lock(), 7);
    assert_eq!(bias_of(&lock), SHARED);
    assert_eq!(tried_elsewhere(&lock), Some(7));
}

#[test]
fn a_revoker_waits_out_a_long_section() {
    let Some(lock) = biased_lock(0) else { return };
    let mut guard = lock.lock();
    let left = AtomicBool::new(false);
    thread::scope(|scope| {
        let revoker = scope.spawn(|| {
            let guard = lock.lock();
            assert!(left.load(Ordering::Relaxed), "entered while the owner was in");
            *guard
        });
        while bias_of(&lock) != REVOKING {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        *guard = 9;
        left.store(true, Ordering::Relaxed);
        drop(guard);
        assert_eq!(revoker.join().unwrap(), 9);
    });
}

#[test]
fn a_panic_releases_the_lock() {
    for lock in biased_lock(0).into_iter().chain([shared_lock(0)]) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = lock.lock();
            *guard = 5;
            panic!("while holding it");
        }));
        assert!(result.is_err());
        assert_eq!(*lock.try_lock().expect("released"), 5);
        assert_eq!(tried_elsewhere(&lock), Some(5));
    }
}

#[test]
fn an_owner_that_has_exited_is_followed() {
    let lock = BiasedLock::new(vec![1]);
    thread::scope(|scope| scope.spawn(|| lock.lock().push(2)).join().unwrap());
    lock.lock().push(3);
    assert_eq!(*lock.lock(), [1, 2, 3]);
}

#[test]
fn a_held_shared_lock_is_refused_to_others() {
    let lock = shared_lock(3);
    let guard = lock.lock();
    assert_eq!(tried_elsewhere(&lock), None);
    drop(guard);
    assert_eq!(tried_elsewhere(&lock), Some(3));
}

/// Adds one, over a window in which another thread's addition would be lost.
fn increment(value: &mut u64) {
    let before = *value;
    std::hint::black_box(&value);
    *value = before + 1;
}

fn hammer(lock: &Arc<BiasedLock<u64>>, threads: u64, turns: u64) {
    let together = Arc::new(Barrier::new(threads as usize));
    let hammering: Vec<_> = (0..threads)
        .map(|_| {
            let (lock, together) = (Arc::clone(lock), Arc::clone(&together));
            thread::spawn(move || {
                together.wait();
                for turn in 0..turns {
                    match lock.try_lock() {
                        Some(mut guard) if turn % 4 == 0 => increment(&mut guard),
                        tried => {
                            drop(tried);
                            increment(&mut lock.lock());
                        }
                    }
                }
            })
        })
        .collect();
    hammering.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn no_increment_is_lost_among_many_threads() {
    let (threads, turns) = if cfg!(miri) { (3, 20) } else { (4, 20_000) };
    for lock in [BiasedLock::new(0), shared_lock(0)].map(Arc::new) {
        hammer(&lock, threads, turns);
        assert_eq!(*lock.lock(), threads * turns);
    }
}

/// The moment that matters comes once in the life of a lock, so this takes many of them: the owner goes in
/// and out without a pause, and others come at some moment of that.
#[test]
fn no_increment_is_lost_at_the_revocation() {
    let (locks, turns) = if cfg!(miri) { (5, 10) } else { (300, 400) };
    for round in 0..locks {
        let lock = BiasedLock::new(0);
        let started = Barrier::new(3);
        let add = |turns: u64| (0..turns).for_each(|_| increment(&mut lock.lock()));
        thread::scope(|scope| {
            for late in 1..=2 {
                let (started, add) = (&started, &add);
                scope.spawn(move || {
                    started.wait();
                    (0..round * late % 97).for_each(|_| std::hint::spin_loop());
                    add(turns);
                });
            }
            add(1);
            started.wait();
            add(turns);
        });
        assert_eq!(*lock.lock(), 3 * turns + 1);
    }
}

/// Yielding gives the core to no thread of lower priority: who waits must sleep in the end.
#[test]
#[cfg_attr(miri, ignore = "Miri has no priorities")]
fn a_thread_of_high_priority_lets_one_of_lower_priority_finish() {
    fn run_first(priority: i32) -> bool {
        let core = crate::host::core_numbers().first().copied().unwrap_or(0);
        let parameters = libc::sched_param { sched_priority: priority };
        // SAFETY: it changes this thread's class alone, by plain data.
        let allowed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) } == 0;
        crate::host::bind_to_core(core).is_ok() && allowed
    }
    let lock = Arc::new(shared_lock(0));
    let (locked, is_locked) = std::sync::mpsc::channel();
    let waits = Arc::new(AtomicBool::new(false));
    let low = {
        let (lock, waits) = (Arc::clone(&lock), Arc::clone(&waits));
        thread::spawn(move || {
            let allowed = run_first(10);
            let guard = lock.lock();
            locked.send(allowed).unwrap();
            while allowed && !waits.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(guard);
        })
    };
    if !is_locked.recv().unwrap() {
        low.join().unwrap();
        return testbed::skip("no threads of real-time priority (they take root)");
    }
    let (ended, end) = std::sync::mpsc::channel();
    thread::spawn(move || {
        assert!(run_first(20));
        waits.store(true, Ordering::Relaxed);
        drop(lock.lock());
        ended.send(()).unwrap();
    });
    assert_eq!(
        end.recv_timeout(Duration::from_secs(10)),
        Ok(()),
        "the other thread's core is taken for good"
    );
    low.join().unwrap();
}

/// What another thread borrows of the lock.
fn borrowed_elsewhere<T: Send + Copy>(lock: &BiasedLock<T>) -> Option<T> {
    thread::scope(|scope| scope.spawn(|| lock.try_borrow(|value| *value)).join().unwrap())
}

#[test]
fn who_borrows_leaves_the_owner_its_bias() {
    let Some(lock) = biased_lock(1) else { return };
    assert_eq!(borrowed_elsewhere(&lock), Some(1), "nobody's");
    *lock.lock() += 1;
    assert_eq!(borrowed_elsewhere(&lock), Some(2));
    assert_eq!(bias_of(&lock), own_token());
    let guard = lock.lock();
    assert_eq!(borrowed_elsewhere(&lock), None, "the owner is in");
    drop(guard);
    *lock.lock() += 1;
    assert_eq!((bias_of(&lock), borrowed_elsewhere(&lock)), (own_token(), Some(3)));
    assert_eq!(tried_elsewhere(&lock), Some(3));
    assert_eq!((bias_of(&lock), borrowed_elsewhere(&lock)), (SHARED, Some(3)));
    let panicked = catch_unwind(AssertUnwindSafe(|| lock.try_borrow(|_| panic!("in a turn"))));
    assert!(panicked.is_err());
    assert_eq!(*lock.lock(), 3, "it was left");
}
