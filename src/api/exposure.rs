//! The part of its private memory that a node lets its peers read and write.

use std::sync::{Arc, Weak};

use engine::Rights;

use crate::api::node::Node;
use crate::runtime::core::NodeCore;

/// Private memory that is exposed to all peers, until this is dropped or the node ends.
#[derive(Debug)]
#[must_use = "what is exposed is withdrawn when this is dropped"]
pub struct Exposed {
    core: Weak<NodeCore>,
    addr: u64,
    len: u64,
    rights: Rights,
}

/// Exposing private memory.
impl Node {
    /// Lets peers read or write private memory of this process, from now on until the result is dropped:
    /// `&vec[..]`, or any other slice or pointer to one. Nothing is read, written or copied here. Ranges may
    /// overlap: each counts until it is withdrawn. Where
    /// [`Exposure::Everything`](crate::Exposure::Everything) is set that changes nothing.
    ///
    /// The holder of the memory must keep it as long as it is exposed, as [`Remote::raw`](crate::Remote::raw)
    /// demands of every caller that names it. Dropping the result withdraws it: no message that comes later
    /// gets there. Peers that were given a key for it over a network give that back before they hear anything
    /// more from this node; [`Node::memory_sync`] waits until they have.
    ///
    /// Peers of this host reach what is exposed by messages, which this process serves. Under
    /// [`ProgressThread::Auto`](crate::ProgressThread::Auto) the first call starts the progress thread, which
    /// then also runs handlers, as peers may ask first what lies where.
    ///
    /// Any thread may call it, handlers as well. In a child made by `fork`, and once
    /// the node has closed, it exposes nothing.
    pub fn expose<T>(&self, memory: *const [T], rights: Rights) -> Exposed {
        let (addr, len) =
            (memory.cast::<T>().expose_provenance() as u64, memory.len().saturating_mul(size_of::<T>()));
        let exposed = Exposed { core: Arc::downgrade(&self.core), addr, len: len as u64, rights };
        if self.may_call("exposing").is_err() {
            return exposed;
        }
        self.core.engine().expose(exposed.addr, exposed.len, rights);
        if self.core.threads.may_attend
            && self.core.peers.own().identity.ranges_only
            && let Err(error) = self.core.attend()
        {
            tracing::warn!(%error, "no progress thread: what is exposed is served only while this process makes progress");
        }
        exposed
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade().filter(|core| !core.is_forked()) {
            core.engine().withdraw(self.addr, self.len, self.rights);
        }
    }
}
