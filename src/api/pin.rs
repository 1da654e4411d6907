//! Memory that a program keeps registered.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::node::{PinId, Pinning};
use engine::registration::RegisterError;

use crate::api::node::Node;
use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::error::Error;
use crate::runtime::core::NodeCore;

/// Memory that stays registered until this is dropped, as [`Node::pin`] gives it. Any thread may hold and
/// drop it, handlers as well; it does not keep the node open.
#[must_use = "what is pinned is let go of when this is dropped"]
pub struct Pinned {
    core: Weak<NodeCore>,
    /// `None`: it is of a heap that is registered as a whole, as long as the node.
    pin: Option<PinId>,
    len: u64,
}

debug_is_display!(PinError);

/// Why memory is not pinned. Nothing is kept then.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// This node registers no memory. All peers are near, or the network reaches memory that is not
    /// registered. Or no peer has been met yet over one that does. Or the strategy is
    /// [`Strategy::Bounce`](crate::Strategy::Bounce), by which all goes by message.
    #[error("pinning: this node registers no memory")]
    NotOffered,
    /// The budget does not leave so much beside what is pinned already and what transfers use now.
    #[error(
        "pinning: {wanted} bytes of whole registrations do not fit, beside what is pinned already, into the {budget} bytes that this process may use itself; STANDPIPE_PIN or Config::pin_bytes makes it more"
    )]
    NoRoom {
        /// Bytes that it would take, of whole registrations: one that is there may cover more than was
        /// asked for.
        wanted: u64,
        /// Bytes that this process may refer to at a time.
        budget: u64,
    },
    /// The system, or the card, pins no more memory for this process.
    #[error("pinning {len} bytes: the system pins no more memory for this process; see `ulimit -l`")]
    Limit {
        /// Bytes asked for.
        len: u64,
    },
    /// Part of the memory is not mapped, or may not be accessed, or has just been mapped anew.
    #[error("pinning {len} bytes at {addr:#x}: part of them is not mapped, or may not be accessed")]
    Fault {
        /// The first byte's address.
        addr: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The library would not hear of changes of that memory now, and so keeps no registration of it. It has
    /// just been given back to the system (`MADV_DONTNEED`), and may be pinned in some milliseconds. Or
    /// another copy of the library in this process watches it, or it is of a kind that the kernel does not
    /// watch, as a mapped file.
    #[error(
        "pinning {len} bytes at {addr:#x}: changes of that memory would not be told now; try again if it was just given back to the system"
    )]
    Unwatched {
        /// The first byte's address.
        addr: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The call itself was refused, or waited too long.
    #[error(transparent)]
    Node(#[from] Error),
}

impl PinError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            PinError::NotOffered => Code::NotOffered,
            PinError::NoRoom { .. } | PinError::Limit { .. } => Code::NoRoom,
            PinError::Fault { .. } => Code::LocalFault,
            PinError::Unwatched { .. } => Code::Denied,
            PinError::Node(error) => error.code(),
        }
    }
}

into_io_error!(PinError);

/// How often memory is pinned anew that changes while it is pinned: a change of what lay there before is told
/// late.
const TRIES: u32 = 8;

/// Pinning.
impl Node {
    /// Registers memory of this process, and keeps it registered until the result is dropped: `&vec[..]`, or
    /// any other slice or pointer to one, also of the heap. Transfers to or from there need not register it,
    /// be they this process's or a peer's that asks. All of it is pinned when this returns, or nothing.
    ///
    /// No transfer needs this: what is used is registered anyway, and stays so while that pays. It is for
    /// programs that know better, as of a buffer that is used rarely and must be fast then. Pins may overlap.
    /// They count against the part of the budget ([`Config::pin_bytes`](crate::Config::pin_bytes)) that is
    /// for this process's own use. Transfers that find no room beside them go through messages, which
    /// `PathReason::NoRoom` counts. When a pin is dropped the memory stays registered until room is needed,
    /// as in the pin-down cache of PM (Tezuka et al.).
    ///
    /// Memory that is unmapped, or mapped anew, is pinned no more, and does not stay in memory for a pin's
    /// sake: see [`Pinned::is_held`]. Memory of a heap is unmapped by nobody: freeing a block ends no pin.
    /// Nothing is read, written or copied here.
    ///
    /// It waits while what is in the way is given up, for the node's timeout at most. Any thread may call it;
    /// handlers may, and get [`Error::InHandler`] where it would have to wait.
    ///
    /// # Errors
    /// See [`PinError`].
    pub fn pin<T>(&self, memory: *const [T]) -> Result<Pinned, PinError> {
        self.may_call("pinning")?;
        let addr = memory.cast::<T>().expose_provenance() as u64;
        let len = memory.len().saturating_mul(size_of::<T>()) as u64;
        if addr.checked_add(len).is_none() {
            return Err(PinError::Fault { addr, len });
        }
        let begun = Instant::now();
        let (mut pinned, mut now) = self.pin_once(addr, len, self.timeout)?;
        for _ in 1..TRIES {
            if now != Pinning::Gone {
                break;
            }
            // That was told of memory that lay at these addresses before, as another thread has unmapped it.
            drop(pinned);
            let left = self.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            (pinned, now) = self.pin_once(addr, len, left)?;
        }
        match now {
            Pinning::Held => Ok(pinned),
            Pinning::Failed(RegisterError::Limit) => Err(PinError::Limit { len }),
            // Heaps are registered page by page, or as a whole: only of the former is it known.
            Pinning::Failed(RegisterError::Untold) if self.has_in_heap(addr, len) => {
                Ok(Pinned { core: Arc::downgrade(&self.core), pin: None, len })
            }
            Pinning::Failed(RegisterError::Untold) => Err(PinError::Unwatched { addr, len }),
            Pinning::Failed(RegisterError::Fault) | Pinning::Gone | Pinning::Pending => {
                Err(PinError::Fault { addr, len })
            }
        }
    }
}

impl Node {
    /// Pins it, and waits until it is known how that ends, for so long.
    fn pin_once(&self, addr: u64, len: u64, within: Option<Duration>) -> Result<(Pinned, Pinning), PinError> {
        let pin = self.core.engine().pin(addr, len).map_err(|error| match error {
            engine::node::PinError::NotOffered => PinError::NotOffered,
            engine::node::PinError::NoRoom { wanted, budget } => PinError::NoRoom { wanted, budget },
        })?;
        // From here on it is let go of, however this ends.
        let pinned = Pinned { core: Arc::downgrade(&self.core), pin: Some(pin), len };
        let settled = || Some(self.core.engine().pinning(pin)).filter(|now| *now != Pinning::Pending);
        let now = match settled() {
            Some(now) => now,
            None => {
                self.may_wait("pinning")?;
                let late =
                    || self.gave_up("pinning", Error::WaitTimeout { waited_for: "memory to be pinned" });
                self.wait(within, settled).ok_or_else(late)?
            }
        };
        Ok((pinned, now))
    }

    fn has_in_heap(&self, addr: u64, len: u64) -> bool {
        let heap = self.core.peers.itself().heap();
        let from = addr.checked_sub(heap.base_addr());
        from.and_then(|from| from.checked_add(len)).is_some_and(|end| end <= heap.len())
    }
}

impl Pinned {
    /// Whether all of it is pinned still: it is unless its memory has been unmapped or mapped anew, even in
    /// part, or the node has ended. Never waits; also in handlers.
    pub fn is_held(&self) -> bool {
        let core = self.core.upgrade().filter(|core| !core.is_forked() && !core.peers.has_closed());
        let held = |pin| core.as_ref().map(|core| core.engine().pinning(pin) == Pinning::Held);
        self.pin.map_or(core.is_some(), |pin| held(pin).unwrap_or_default())
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no bytes were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade().filter(|core| !core.is_forked()) {
            self.pin.into_iter().for_each(|pin| core.engine().unpin(pin));
        }
    }
}
