//! Calls that cannot be told a deadline, or do not keep it, made on a thread of their own.
//!
//! A launcher's PMIx server may ignore the time that a fence is given, and the system's resolver takes its
//! own. A caller that waits for them here waits no longer than it wants to; a call that is late is left to
//! itself, with its thread.

use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::base::lock::lock;

/// How long the thread may take to end when it is not needed any more.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::job) enum Unanswered {
    /// The call has not ended in time.
    Late,
    /// There is no thread for it.
    NoThread(io::Error),
}

impl From<Unanswered> for io::Error {
    fn from(unanswered: Unanswered) -> io::Error {
        match unanswered {
            Unanswered::Late => ErrorKind::TimedOut.into(),
            Unanswered::NoThread(error) => error,
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), Unanswered> {
    vm::threads::spawn("standpipe-aside", work).map(drop).map_err(Unanswered::NoThread)
}

/// Makes one call, and waits for it until `deadline`.
///
/// # Errors
/// [`Unanswered`].
pub(in crate::job) fn once<R: Send + 'static>(
    call: impl FnOnce() -> R + Send + 'static,
    deadline: Instant,
) -> Result<R, Unanswered> {
    let (gives, given) = channel();
    // Nobody waits any more for what comes too late.
    spawn(move || {
        let _ = gives.send(call());
    })?;
    let given = given.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    given.map_err(|_| Unanswered::Late)
}

type QueuedCall<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Something that lives on a thread of its own, where all calls of it are made.
pub(in crate::job) struct BlockingCaller<T> {
    /// `None` from when on a call was late, or all is over.
    calls: Option<Sender<QueuedCall<T>>>,
    ended: Mutex<Receiver<()>>,
}

impl<T: 'static> BlockingCaller<T> {
    /// Has it made there.
    ///
    /// # Errors
    /// [`Unanswered`]; and within, what `make` says.
    pub(in crate::job) fn start<E: Send + 'static>(
        make: impl FnOnce() -> Result<T, E> + Send + 'static,
        deadline: Instant,
    ) -> Result<Result<BlockingCaller<T>, E>, Unanswered> {
        let (calls, work) = channel::<QueuedCall<T>>();
        let (ends, ended) = channel();
        let (gives, made) = channel();
        spawn(move || {
            let mut it = match make() {
                Ok(it) => it,
                Err(error) => {
                    let _ = gives.send(Err(error));
                    return;
                }
            };
            let _ = gives.send(Ok(()));
            work.into_iter().for_each(|call| call(&mut it));
            drop(it);
            let _ = ends.send(());
        })?;
        let made = made.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let made = made.map_err(|_| Unanswered::Late)?;
        Ok(made.map(|()| BlockingCaller { calls: Some(calls), ended: Mutex::new(ended) }))
    }

    /// Makes a call there. After one that was late there are no more.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub(in crate::job) fn run<R: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut T) -> R + Send + 'static,
        deadline: Instant,
    ) -> Result<R, Unanswered> {
        let (gives, given) = channel();
        let call = move |it: &mut T| {
            let _ = gives.send(call(it));
        };
        self.calls.as_ref().and_then(|calls| calls.send(Box::new(call)).ok()).ok_or(Unanswered::Late)?;
        let given = given.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        given.map_err(|_| {
            self.calls = None;
            Unanswered::Late
        })
    }
}

impl<T> Drop for BlockingCaller<T> {
    fn drop(&mut self) {
        if self.calls.take().is_some() {
            // Late once more: it ends with the process.
            let _ = lock(&self.ended).recv_timeout(END_WITHIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Says so when it is dropped.
    struct Thing(u32, Arc<AtomicBool>);

    impl Drop for Thing {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    fn after(time: Duration) -> Instant {
        Instant::now() + time
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn calls_are_made_in_turn_and_the_end_is_waited_for() {
        let dropped = Arc::new(AtomicBool::new(false));
        let thing = Thing(0, Arc::clone(&dropped));
        let mut caller =
            BlockingCaller::start(|| Ok::<_, ()>(thing), after(LONG)).expect("in time").expect("made");
        for n in 1..4 {
            let add = |thing: &mut Thing| {
                thing.0 += 1;
                thing.0
            };
            assert_eq!(caller.run(add, after(LONG)).expect("in time"), n);
        }
        drop(caller);
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!(BlockingCaller::<()>::start(|| Err(7), after(LONG)).expect("in time").err(), Some(7));
    }

    #[test]
    fn what_is_late_is_waited_for_no_longer() {
        let start = Instant::now();
        let sleep = || std::thread::sleep(LONG);
        assert!(once(sleep, after(SHORT)).is_err());
        let slow = move || {
            sleep();
            Ok::<_, ()>(())
        };
        assert!(BlockingCaller::start(slow, after(SHORT)).is_err());
        let mut caller =
            BlockingCaller::start(|| Ok::<_, ()>(()), after(LONG)).expect("in time").expect("made");
        assert!(caller.run(move |()| sleep(), after(SHORT)).is_err());
        assert!(caller.run(|()| (), after(LONG)).is_err(), "the thread still sleeps");
        drop(caller);
        assert!(start.elapsed() < LONG);
    }
}
