use super::*;
use loom::cell::UnsafeCell as Watched;
use loom::sync::Arc;
use loom::thread;

/// A number of which loom reports any two accesses that are not ordered.
type Lock = BiasedLock<Watched<u64>>;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn add_to(guard: &BiasedGuard<'_, Watched<u64>>) {
    // SAFETY: the pointer is to the cell's number, which lives in the lock that the guard borrows; that no
    // other thread reaches it meanwhile is what the model checks, and loom stops it where that is not so.
    guard.with_mut(|value| unsafe { *value += 1 });
}

fn add(lock: &Lock, turns: u64) {
    for _ in 0..turns {
        add_to(&lock.lock());
    }
}

fn value(lock: &Lock) -> u64 {
    // SAFETY: as in `add_to`: the guard keeps everybody else out for as long as the word is read.
    lock.lock().with(|value| unsafe { *value })
}

/// One thread owns the lock already and takes it again, `others` come and take it away.
fn owner_against(preemptions: usize, turns: u64, others: u64) {
    check(preemptions, move || {
        let lock = Arc::new(BiasedLock::new(Watched::new(0)));
        add(&lock, 1);
        assert_eq!(lock.bias.load(Ordering::Relaxed), own_token());
        let coming: Vec<_> = (0..others)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || add(&lock, 1))
            })
            .collect();
        add(&lock, turns);
        coming.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(value(&lock), 1 + turns + others);
        assert_eq!(lock.bias.load(Ordering::Relaxed), SHARED);
    });
}

#[test]
fn loom_biased_one_revoker() {
    owner_against(4, 2, 1);
}

/// One turn: with more, the owner and a revoker can both wait for the other revoker, and loom goes on to try
/// how often two threads that only wait may be run before the third, to which there is no end.
#[test]
fn loom_biased_two_revokers() {
    owner_against(2, 1, 2);
}

/// Nobody owns it yet: who comes first is open.
#[test]
fn loom_biased_first_lock_is_contended() {
    check(3, || {
        let lock = Arc::new(BiasedLock::new(Watched::new(0)));
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || add(&lock, 2))
        };
        add(&lock, 2);
        other.join().unwrap();
        assert_eq!(value(&lock), 4);
    });
}

/// A try that fails leaves a revocation half done, for the owner or the next to finish.
#[test]
fn loom_biased_try_lock() {
    check(3, || {
        let lock = Arc::new(BiasedLock::new(Watched::new(0)));
        add(&lock, 1);
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let mut added = 0;
                for _ in 0..2 {
                    if let Some(guard) = lock.try_lock() {
                        add_to(&guard);
                        added += 1;
                    }
                }
                added
            })
        };
        let mut added = 1;
        if let Some(guard) = lock.try_lock() {
            add_to(&guard);
            added += 1;
        }
        add(&lock, 1);
        added += 1 + other.join().unwrap();
        assert_eq!(value(&lock), added);
    });
}

/// A borrower comes while the owner may be in, and leaves it its bias.
#[test]
fn loom_biased_borrow() {
    check(3, || {
        let lock = Arc::new(BiasedLock::new(Watched::new(0)));
        add(&lock, 1);
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                // SAFETY: as in `add_to`: the lock lends the number to this thread alone.
                lock.try_borrow(|value| value.with_mut(|value| unsafe { *value += 1 })).is_some()
            })
        };
        add(&lock, 2);
        let added = 3 + u64::from(other.join().unwrap());
        assert_eq!(value(&lock), added);
        assert_eq!(lock.bias.load(Ordering::Relaxed), own_token(), "it is the owner's still");
    });
}

/// A borrower and a thread that takes the bias for good, at once.
#[test]
fn loom_biased_borrow_and_revoke() {
    check(2, || {
        let lock = Arc::new(BiasedLock::new(Watched::new(0)));
        add(&lock, 1);
        let revoker = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || add(&lock, 1))
        };
        let borrower = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                // SAFETY: as in `add_to`: the lock lends the number to this thread alone.
                lock.try_borrow(|value| value.with_mut(|value| unsafe { *value += 1 })).is_some()
            })
        };
        add(&lock, 1);
        revoker.join().unwrap();
        let added = 3 + u64::from(borrower.join().unwrap());
        assert_eq!(value(&lock), added);
    });
}
