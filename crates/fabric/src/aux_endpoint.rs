//! Auxiliary endpoints: more endpoints of the same domain, for writes and reads alone.
//!
//! Either writes and reads are started from one, or peers' writes come in by one that they were told the
//! address of. When that is closed, nothing comes in by it any more, whatever the network still carries.

use crate::error::Error;
use crate::provider::Description;
use crate::queued_endpoint::QueuedEndpoint;

/// Names an auxiliary endpoint of one endpoint. From it, writes and reads are started to the endpoint's
/// peers, with the memory that is registered with the endpoint. Peers that know its
/// [address](AuxEndpoint::address) write and read that memory by it. It can be closed by itself, which ends
/// all that was started from it or comes in by it, and nothing else. Means nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuxEndpointId {
    index: u32,
    generation: u32,
}

/// An auxiliary endpoint to be used.
pub struct AuxEndpoint<'a> {
    pub(crate) queued: &'a mut QueuedEndpoint,
    pub(crate) peers: &'a [u64],
    pub(crate) description: &'a Description,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    queued: Option<Box<QueuedEndpoint>>,
}

/// The auxiliary endpoints of an endpoint.
#[derive(Default)]
pub(crate) struct AuxEndpoints {
    all: Vec<Entry>,
    /// How many were left to the process instead of being closed: each keeps its connections and buffers.
    left: usize,
}

/// As many may be left.
const LEFT_MAX: usize = 8;

impl AuxEndpoints {
    /// Whether there may be one more.
    pub(crate) fn check_left(&self) -> Result<(), Error> {
        if self.left < LEFT_MAX { Ok(()) } else { Err(Error::AuxEndpointsLeft { left: self.left }) }
    }

    pub(crate) fn insert(&mut self, queued: QueuedEndpoint) -> AuxEndpointId {
        let free = self.all.iter().position(|entry| entry.queued.is_none());
        let index = free.unwrap_or_else(|| {
            self.all.push(Entry::default());
            self.all.len() - 1
        });
        let entry = &mut self.all[index];
        entry.queued = Some(Box::new(queued));
        AuxEndpointId { index: index as u32, generation: entry.generation }
    }

    #[inline]
    fn entry(&mut self, id: AuxEndpointId) -> Result<&mut Entry, Error> {
        let entry = self.all.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation);
        entry.ok_or(Error::NoAuxEndpoint { index: id.index })
    }

    #[inline]
    pub(crate) fn get(&mut self, id: AuxEndpointId) -> Result<&mut QueuedEndpoint, Error> {
        self.entry(id)?.queued.as_deref_mut().ok_or(Error::NoAuxEndpoint { index: id.index })
    }

    /// Whether closing one would leave it open now.
    pub(crate) fn cannot_close(&self, id: AuxEndpointId) -> bool {
        let entry = self.all.get(id.index as usize).filter(|entry| entry.generation == id.generation);
        entry.and_then(|entry| entry.queued.as_deref()).is_some_and(QueuedEndpoint::cannot_close)
    }

    /// Closes one, or leaves it to the process; after an error it is still open.
    pub(crate) fn close(&mut self, id: AuxEndpointId) -> Result<(), Error> {
        let queued = self.get(id)?;
        let closed = match queued.close() {
            // A queue without an endpoint stays: nothing is lent to that.
            Err(_) if queued.ep.is_closed() => {
                queued.leak();
                true
            }
            closed => closed?,
        };
        self.left += usize::from(!closed);
        let entry = self.entry(id)?;
        entry.queued = None;
        entry.generation = entry.generation.wrapping_add(1);
        Ok(())
    }

    /// The open ones.
    pub(crate) fn open(&self) -> impl Iterator<Item = &QueuedEndpoint> {
        self.all.iter().filter_map(|entry| entry.queued.as_deref())
    }

    /// Closes all, up to the first that cannot be. Whether none was left to the process, now or before.
    pub(crate) fn close_all(&mut self) -> Result<bool, Error> {
        for queued in self.all.iter_mut().filter_map(|entry| entry.queued.as_deref_mut()) {
            self.left += usize::from(!queued.close()?);
        }
        Ok(self.left == 0)
    }

    pub(crate) fn leak(&mut self) {
        self.all.iter_mut().filter_map(|entry| entry.queued.as_deref_mut()).for_each(QueuedEndpoint::leak);
    }
}
