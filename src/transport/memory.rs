//! Which private memory of this process may be kept registered, and what is no longer the memory that it was.
//!
//! The monitor ([`vm::monitor`]) writes down what changes; whoever holds the engine [hears](hear) of it before asking the
//! engine for anything, and before each poll: a peer's request is an operation, too. So no operation that starts after a
//! change has returned uses a registration from before it. Memory is watched before it is registered, and what cannot be
//! watched is not registered: it goes by message.

use std::sync::Arc;

use engine::registration::RegisterError;
use engine::{Node, Transport};
use vm::{Changed, Follower, Monitor, NotWatchable};

/// What a transport that registers private memory knows of changes of it.
#[derive(Default)]
pub(crate) enum Memory {
    /// Whoever changes memory tells the engine, or registrations do not outlive what they are made of.
    #[default]
    Unwatched,
    /// The kernel tells the monitor, and the follower, which is out while it tells the engine.
    Watched(Arc<Monitor>, Option<Follower>),
    /// Nobody can tell.
    Untold,
}

/// A transport that registers private memory.
pub(crate) trait Registers: Transport {
    /// What it knows of changes of that memory; `None` where it registers none.
    fn memory(&mut self) -> Option<&mut Memory>;
}

impl Memory {
    /// Memory that is watched, if it can be.
    pub(crate) fn watched() -> Memory {
        match Monitor::of_process() {
            Ok(monitor) => {
                let follower = monitor.follow();
                Memory::Watched(monitor, Some(follower))
            }
            Err(error) => {
                tracing::warn!(%error, "private memory is not kept registered: it goes by message");
                Memory::Untold
            }
        }
    }

    /// To be asked before memory is registered, for as long as it is kept.
    ///
    /// # Errors
    /// [`RegisterError`], where it must not be.
    pub(crate) fn may_keep(&self, addr: u64, len: u64) -> Result<(), RegisterError> {
        match self {
            Memory::Unwatched => Ok(()),
            Memory::Watched(monitor, _) => monitor.watch(addr, len).map_err(|error| match error {
                NotWatchable::NotMapped => RegisterError::Fault,
                _ => RegisterError::Untold,
            }),
            Memory::Untold => Err(RegisterError::Untold),
        }
    }
}

/// Tells the engine of all changes that have returned. One load where there is none.
#[inline]
pub(crate) fn hear<T: Registers>(node: &mut Node<T>) {
    if let Some(Memory::Watched(_, follower)) = node.transport().memory()
        && !follower.as_ref().is_none_or(Follower::is_current)
    {
        hear_all(node);
    }
}

#[cold]
fn hear_all<T: Registers>(node: &mut Node<T>) {
    let Some(Memory::Watched(_, follower)) = node.transport().memory() else { return };
    let Some(mut follower) = follower.take() else { return };
    follower.catch_up(|changed| match changed {
        Changed::Range { start, end } => node.invalidate(start, end - start),
        Changed::Everything => node.invalidate(0, u64::MAX),
    });
    if let Some(Memory::Watched(_, out)) = node.transport().memory() {
        *out = Some(follower);
    }
}

#[cfg(test)]
pub(crate) mod tests;
