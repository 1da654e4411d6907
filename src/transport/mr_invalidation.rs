//! Which private memory of this process may be kept registered, and what is no longer the memory that it was.
//!
//! The monitor ([`vm::monitor`]) writes down what changes; whoever holds the engine [applies](apply_changes)
//! it before asking the engine for anything, and before each poll: a peer's request is an operation, too. So
//! no operation that starts after a change has returned uses a registration from before it. Memory is watched
//! before it is registered, and what cannot be watched is not registered: it goes by message. But what
//! another copy of the library in this process watches, each operation of this process registers for itself.

use std::sync::Arc;

use engine::registration::RegisterError;
use engine::{Node, Transport};
use rustix::io::Errno;
use vm::{Changed, Follower, Monitor, NotWatchable};

/// How a transport that registers private memory learns of changes of it.
#[derive(Default)]
pub(crate) enum ChangeSource {
    /// The thread that changes memory tells the engine, or registrations do not outlive what they are made
    /// of.
    #[default]
    NotNeeded,
    /// The kernel tells the monitor, and the follower, which is out while it tells the engine.
    Monitored(Arc<Monitor>, Option<Follower>),
    /// Nobody can tell.
    Unavailable,
}

/// How long memory may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayKeep {
    /// As long as it is the same: changes are told.
    WhileItIs,
    /// For one operation of this process: another watches the memory.
    ForOne,
}

/// A transport that registers private memory.
pub(crate) trait CachesRegistrations: Transport {
    /// Its knowledge of changes of that memory; `None` where it registers none.
    fn memory(&mut self) -> Option<&mut ChangeSource>;
}

impl ChangeSource {
    /// Memory that is watched, if it can be.
    pub(crate) fn watched() -> ChangeSource {
        match Monitor::of_process() {
            Ok(monitor) => {
                let follower = monitor.follow();
                ChangeSource::Monitored(monitor, Some(follower))
            }
            Err(error) => {
                tracing::warn!(%error, "private memory is not kept registered: it goes by message");
                ChangeSource::Unavailable
            }
        }
    }

    /// To be asked before memory is registered: for how long it may be.
    ///
    /// # Errors
    /// [`RegisterError`], where it must not be.
    pub(crate) fn may_keep(&self, addr: u64, len: u64) -> Result<MayKeep, RegisterError> {
        match self {
            ChangeSource::NotNeeded => Ok(MayKeep::WhileItIs),
            ChangeSource::Monitored(monitor, _) => match monitor.watch(addr, len) {
                Ok(()) => Ok(MayKeep::WhileItIs),
                Err(NotWatchable::NotMapped) => Err(RegisterError::Fault),
                // Another copy of the library in this process, mostly.
                Err(NotWatchable::Refused(Errno::BUSY)) => Ok(MayKeep::ForOne),
                Err(_) => Err(RegisterError::Untold),
            },
            ChangeSource::Unavailable => Err(RegisterError::Untold),
        }
    }
}

/// Tells the engine of all changes that have returned. One load where there is none.
#[inline]
pub(crate) fn apply_changes<T: CachesRegistrations>(node: &mut Node<T>) {
    if let Some(ChangeSource::Monitored(_, follower)) = node.transport().memory()
        && !follower.as_ref().is_none_or(Follower::is_current)
    {
        apply_all_changes(node);
    }
}

#[cold]
fn apply_all_changes<T: CachesRegistrations>(node: &mut Node<T>) {
    let Some(ChangeSource::Monitored(_, follower)) = node.transport().memory() else { return };
    let Some(mut follower) = follower.take() else { return };
    follower.catch_up(|changed| match changed {
        Changed::Range { start, end } => node.invalidate(start, end - start),
        Changed::Everything => node.invalidate(0, u64::MAX),
    });
    if let Some(ChangeSource::Monitored(_, out)) = node.transport().memory() {
        *out = Some(follower);
    }
}

#[cfg(test)]
pub(crate) mod tests;
