use super::*;
use loom::sync::Arc;
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn queue() -> Arc<CompletionQueue<u32>> {
    Arc::new(CompletionQueue::new(2).expect("a model of a descriptor"))
}

/// One thread ends what another has begun, which takes while the descriptor says that there is something. At
/// last it says what is so.
#[test]
fn loom_queue_the_descriptor_says_whether_there_is_something() {
    check(|| {
        let queue = queue();
        queue.observe();
        assert!(queue.reserve());
        let place = queue.begin(1);
        let ender = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.end(place, |it| *it == 1).wake(|| ());
                assert!(queue.reserve());
                queue.begin_ended(2).wake(|| ());
            })
        };
        let mut taken = Vec::new();
        if queue.descriptor.is_raised() {
            taken.extend(queue.take(|| ()));
            assert_eq!(taken, [1], "it is raised only where there is something");
        }
        ender.join().unwrap();
        assert!(queue.descriptor.is_raised());
        taken.extend(std::iter::from_fn(|| queue.take(|| ())));
        assert_eq!(taken, [1, 2]);
        assert!(!queue.descriptor.is_raised());
    });
}

/// Two threads take what one of them ends: each thing comes out once.
#[test]
fn loom_queue_each_comes_out_once() {
    check(|| {
        let queue = queue();
        queue.observe();
        let taker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take(|| ()))
        };
        assert!(queue.reserve());
        queue.begin_ended(1).wake(|| ());
        let mut all: Vec<u32> = queue.take(|| ()).into_iter().collect();
        all.extend(taker.join().unwrap());
        assert_eq!((all, queue.descriptor.is_raised()), (vec![1], false));
        assert!(queue.is_empty() && queue.take(|| ()).is_none());
    });
}

/// A task that registers while what it waits for is taken by another is woken, or told to look again.
#[test]
fn loom_queue_no_task_waits_for_nothing() {
    struct Flag(loom::sync::atomic::AtomicBool);
    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, loom::sync::atomic::Ordering::SeqCst);
        }
    }
    check(|| {
        let queue = queue();
        let woken = std::sync::Arc::new(Flag(loom::sync::atomic::AtomicBool::new(false)));
        assert!(queue.reserve());
        let place = queue.begin(1);
        let taker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.end(place, |it| *it == 1).wake(|| ());
                assert_eq!(queue.take(|| ()), Some(1));
            })
        };
        let waits = queue.wake_later(&std::sync::Arc::clone(&woken).into(), None).is_some();
        taker.join().unwrap();
        assert!(!waits || woken.0.load(loom::sync::atomic::Ordering::SeqCst));
    });
}

/// A thread counts itself, looks, and only then sleeps: it has seen what had ended, or is woken for it.
#[test]
fn loom_queue_no_sleeper_is_forgotten() {
    check(|| {
        let queue = queue();
        assert!(queue.reserve());
        let place = queue.begin(1);
        let ender = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut woken = false;
                queue.end(place, |it| *it == 1).wake(|| woken = true);
                woken
            })
        };
        let sleeper = queue.sleeper();
        let seen = queue.take(|| ());
        assert!(ender.join().unwrap() || seen == Some(1));
        drop(sleeper);
    });
}
