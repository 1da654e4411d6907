//! Outlets: more endpoints of the same domain, for writes and reads alone.

use crate::channel::Channel;
use crate::error::Error;
use crate::provider::Description;

/// Names an outlet of one endpoint: from it, writes and reads are started to the endpoint's peers, with the memory that
/// is registered with the endpoint, and nothing comes in. It can be closed by itself, which ends all that was started
/// from it, and nothing else. Means nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutletId {
    index: u32,
    generation: u32,
}

/// An outlet to be used.
pub struct Outlet<'a> {
    pub(crate) channel: &'a mut Channel,
    pub(crate) peers: &'a [u64],
    pub(crate) description: &'a Description,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    channel: Option<Box<Channel>>,
}

/// The outlets of an endpoint.
#[derive(Default)]
pub(crate) struct Outlets {
    all: Vec<Entry>,
    /// How many were left to the process instead of being closed: each keeps its connections and buffers.
    left: usize,
}

/// As many may be left.
const LEFT_MAX: usize = 8;

impl Outlets {
    /// Whether there may be one more.
    pub(crate) fn check_left(&self) -> Result<(), Error> {
        if self.left < LEFT_MAX { Ok(()) } else { Err(Error::OutletsLeft { left: self.left }) }
    }

    pub(crate) fn insert(&mut self, channel: Channel) -> OutletId {
        let free = self.all.iter().position(|entry| entry.channel.is_none());
        let index = free.unwrap_or_else(|| {
            self.all.push(Entry::default());
            self.all.len() - 1
        });
        let entry = &mut self.all[index];
        entry.channel = Some(Box::new(channel));
        OutletId { index: index as u32, generation: entry.generation }
    }

    #[inline]
    fn entry(&mut self, id: OutletId) -> Result<&mut Entry, Error> {
        let entry = self.all.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation);
        entry.ok_or(Error::NoOutlet { index: id.index })
    }

    #[inline]
    pub(crate) fn get(&mut self, id: OutletId) -> Result<&mut Channel, Error> {
        self.entry(id)?.channel.as_deref_mut().ok_or(Error::NoOutlet { index: id.index })
    }

    /// Closes one, or leaves it to the process; after an error it is still open.
    pub(crate) fn close(&mut self, id: OutletId) -> Result<(), Error> {
        let channel = self.get(id)?;
        let closed = match channel.close() {
            // A queue without an endpoint stays: nothing is lent to that.
            Err(_) if channel.ep.is_closed() => {
                channel.leak();
                true
            }
            closed => closed?,
        };
        self.left += usize::from(!closed);
        let entry = self.entry(id)?;
        entry.channel = None;
        entry.generation = entry.generation.wrapping_add(1);
        Ok(())
    }

    /// Those that are open.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Channel> {
        self.all.iter().filter_map(|entry| entry.channel.as_deref())
    }

    /// Closes all, up to the first that cannot be. Whether none was left to the process, now or before.
    pub(crate) fn close_all(&mut self) -> Result<bool, Error> {
        for channel in self.all.iter_mut().filter_map(|entry| entry.channel.as_deref_mut()) {
            self.left += usize::from(!channel.close()?);
        }
        Ok(self.left == 0)
    }

    pub(crate) fn leak(&mut self) {
        self.all.iter_mut().filter_map(|entry| entry.channel.as_deref_mut()).for_each(Channel::leak);
    }
}
