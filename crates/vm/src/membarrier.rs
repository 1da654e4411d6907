//! The two halves of an asymmetric fence.
//!
//! A sender that publishes a message and then looks whether the receiver wants waking needs a full fence
//! between the two, on every message. With `membarrier(2)` the receiver, who sleeps rarely, makes every
//! processor that runs a registered process execute a fence at the moment it goes to sleep, and senders go
//! without.
//!
//! The process whose fences are spared must have called [`register`] with success. The process that calls
//! [`heavy_fence`] must have, too, or it would fall back to a fence of its own, which does not reach the
//! senders. So a sender uses [`FenceMode::Asymmetric`](crate::FenceMode) only when both ends say that they
//! are registered, and [`FenceMode::Symmetric`](crate::FenceMode) otherwise.
//!
//! Threads of one process have a pair of their own, `register_private` and `private_fence`, which interrupts
//! no other process.

use std::sync::OnceLock;

use crate::sync::{Ordering, fence};

// From linux/membarrier.h; libc has no names for them on every target.
#[cfg(not(any(loom, miri)))]
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
#[cfg(not(any(loom, miri)))]
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
#[cfg(not(any(loom, miri)))]
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
#[cfg(not(any(loom, miri)))]
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

static REGISTERED: OnceLock<bool> = OnceLock::new();
static REGISTERED_PRIVATE: OnceLock<bool> = OnceLock::new();

/// Lets this process take part in asymmetric fences, and says whether it does. Only the first call in a
/// process asks the kernel; any thread may call.
pub fn register() -> bool {
    *REGISTERED.get_or_init(|| membarrier(Command::Register))
}

/// Makes every running thread of every registered process execute a full fence before it returns (a
/// microsecond or two), or only fences this thread if this process is not registered. Any thread may call.
///
/// One call serves any number of rings: store all their attentions, fence once, check them all.
pub fn heavy_fence() {
    let everywhere = REGISTERED.get().copied().unwrap_or(false) && membarrier(Command::Fence);
    if !everywhere {
        fence(Ordering::SeqCst);
    }
}

/// Lets the threads of this process fence each other with [`private_fence`], and says whether they may. Only
/// the first call in a process asks the kernel.
pub fn register_private() -> bool {
    *REGISTERED_PRIVATE.get_or_init(|| membarrier(Command::RegisterPrivate))
}

/// Makes every running thread of this process execute a full fence before it returns (some microseconds), and
/// says whether that was done. After [`register_private`] has said yes, only a system call filter installed
/// since can refuse it.
pub fn private_fence() -> bool {
    membarrier(Command::FencePrivate)
}

enum Command {
    Register,
    Fence,
    RegisterPrivate,
    FencePrivate,
}

#[cfg(not(any(loom, miri)))]
fn membarrier(command: Command) -> bool {
    let number = match command {
        Command::Register => REGISTER_GLOBAL_EXPEDITED,
        Command::Fence => GLOBAL_EXPEDITED,
        Command::RegisterPrivate => REGISTER_PRIVATE_EXPEDITED,
        Command::FencePrivate => PRIVATE_EXPEDITED,
    };
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, number, 0, 0) == 0 }
}

/// Neither loom nor Miri has the call. There the light half is a full fence, so that one here makes the pair.
/// Between processes, which they do not have either, only the symmetric fences are used.
#[cfg(any(loom, miri))]
fn membarrier(command: Command) -> bool {
    match command {
        Command::Register | Command::Fence => false,
        Command::RegisterPrivate => true,
        Command::FencePrivate => {
            fence(Ordering::SeqCst);
            true
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_fence_works_registered_or_not() {
        heavy_fence();
        let first = register();
        assert_eq!(register(), first);
        heavy_fence();
        if !first {
            testbed::skip("no membarrier here");
        }
    }

    #[test]
    fn the_private_fence_works_once_registered() {
        let registered = register_private();
        assert_eq!(register_private(), registered);
        assert!(private_fence() || !registered);
        if !registered {
            testbed::skip("no private membarrier here");
        }
    }
}
