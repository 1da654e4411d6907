//! A hook of the program's, by which it ends waits: an interpreter looks at its signals so.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Tells whether the wait that the calling thread is in is to end.
pub type Interrupt = Box<dyn Fn() -> bool + Send + Sync>;

/// How often a wait asks, at most: to ask may take a lock of an interpreter's.
const EVERY: Duration = Duration::from_millis(50);

static HOOK: RwLock<Option<Arc<Interrupt>>> = RwLock::new(None);

/// Whether there is one: waits without any look at nothing else.
static IS_SET: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The hook has ended this thread's last wait.
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// From now on waits of this process's calls ask this, in the thread that waits: at least each 150 ms, and
/// not more often than each 50. Where it says `true`, the wait ends with
/// [`Error::Interrupted`](crate::Error::Interrupted), as at a deadline. `None` ends that.
///
/// It must not call this library. Any thread may set it, at any time; waits that have begun ask the one that
/// was set then.
pub fn interrupt_waits(hook: Option<Interrupt>) {
    let mut set = HOOK.write().unwrap_or_else(PoisonError::into_inner);
    IS_SET.store(hook.is_some(), Ordering::Release);
    *set = hook.map(Arc::new);
}

/// A wait's own view of the hook.
pub(crate) struct Asking(Option<(Arc<Interrupt>, Instant)>);

impl Asking {
    /// A wait begins.
    #[inline]
    pub(crate) fn begin() -> Asking {
        HAS_ENDED.set(false);
        if !IS_SET.load(Ordering::Acquire) {
            return Asking(None);
        }
        let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
        Asking(hook.map(|hook| (hook, Instant::now())))
    }

    /// Whether the hook ends the wait. Asked between two looks for what is waited for.
    #[inline]
    pub(crate) fn ends(&mut self) -> bool {
        let Some((hook, asked)) = &mut self.0 else { return false };
        if asked.elapsed() < EVERY {
            return false;
        }
        *asked = Instant::now();
        let ends = hook();
        HAS_ENDED.set(ends);
        ends
    }
}

/// Whether the hook has ended this thread's last wait.
pub(crate) fn has_ended() -> bool {
    HAS_ENDED.get()
}
