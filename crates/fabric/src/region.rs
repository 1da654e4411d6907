//! Registered memory, in every mode that a provider may ask for but that of raw keys, which are longer than
//! a number.

use crate::error::Error;
use crate::ffi::{self, fid_domain, fid_ep, fid_mr, offers};
use crate::object::Owned;
use crate::provider::MrMode;
use std::ffi::c_void;

/// The accesses that a registration allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Sending from it, and receiving, writing and reading on this side.
    pub local: bool,
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may write it.
    pub remote_write: bool,
}

impl Access {
    /// Everything.
    pub const ALL: Access = Access { local: true, remote_read: true, remote_write: true };
    /// Use by this process's own operations.
    pub const LOCAL: Access = Access { local: true, remote_read: false, remote_write: false };

    fn bits(self) -> u64 {
        let local = ffi::FI_SEND | ffi::FI_RECV | ffi::FI_READ | ffi::FI_WRITE;
        [
            (self.local, local),
            (self.remote_read, ffi::FI_REMOTE_READ),
            (self.remote_write, ffi::FI_REMOTE_WRITE),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// The descriptor that a provider wants for a local buffer; [`Desc::NONE`] where it does not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desc(pub(crate) *mut c_void);

impl Desc {
    /// For memory that is not registered.
    pub const NONE: Desc = Desc(std::ptr::null_mut());
}

// SAFETY: it is a number to everyone but the provider, to which it is given in posts, whose contract speaks
// of it.
unsafe impl Send for Desc {}
// SAFETY: as above; nothing is reached through it from here.
unsafe impl Sync for Desc {}

/// A registration: a number that means something to its endpoint only, and not after it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId {
    index: u32,
    generation: u32,
}

/// Registered memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// To close it by.
    pub id: RegionId,
    /// The key by which a peer reaches the memory, besides its address.
    pub key: u64,
    /// For posts that use the memory on this side.
    pub desc: Desc,
    /// The peers' name for the memory's first byte: its address if the mode says `virt_addr`, else 0.
    pub remote_addr: u64,
}

struct Entry {
    generation: u32,
    mr: Option<Owned<fid_mr>>,
}

/// The registrations of an endpoint.
#[derive(Default)]
pub(crate) struct Regions {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// The memory to register.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) addr: *mut u8,
    pub(crate) len: usize,
    pub(crate) access: Access,
    pub(crate) wanted_key: u64,
}

impl Regions {
    /// Registers memory, and binds and enables the registration where the mode wants that.
    ///
    /// # Safety
    /// As for [`Endpoint::register`](crate::Endpoint::register).
    pub(crate) unsafe fn register(
        &mut self,
        domain: &Owned<fid_domain>,
        ep: &Owned<fid_ep>,
        mode: MrMode,
        memory: Memory,
    ) -> Result<Region, Error> {
        if mode.raw {
            return Err(Error::Absent { call: "a key of 64 bits" });
        }
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        let mut mr = unsafe { made(domain, memory) }?;
        if mode.endpoint {
            mr.bind("fi_mr_bind", ep, 0)?;
            // SAFETY: this command takes no argument: nothing is read or written through it.
            unsafe { mr.control("fi_mr_enable", ffi::FI_ENABLE, std::ptr::null_mut()) }?;
        }
        let key = key(&mut mr);
        let remote_addr = if mode.virt_addr { memory.addr as u64 } else { 0 };
        // SAFETY: the registration is open; this copies a field of it.
        let desc = Desc(unsafe { (*mr.as_ptr()).mem_desc });
        Ok(Region { id: self.insert(mr), key, desc, remote_addr })
    }

    fn insert(&mut self, mr: Owned<fid_mr>) -> RegionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, mr: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.mr = Some(mr);
        RegionId { index, generation: entry.generation }
    }

    pub(crate) fn close(&mut self, id: RegionId) -> Result<(), Error> {
        let entry = self.entries.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation);
        let gone = Error::NoRegion { index: id.index };
        let entry = entry.ok_or(gone.clone())?;
        entry.mr.as_mut().ok_or(gone)?.close()?;
        entry.mr = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.index);
        Ok(())
    }

    /// Closes all, up to the first that cannot be.
    pub(crate) fn close_all(&mut self) -> Result<(), Error> {
        self.entries.iter_mut().filter_map(|entry| entry.mr.as_mut()).try_for_each(Owned::close)
    }

    pub(crate) fn leak(&mut self) {
        self.entries.iter_mut().filter_map(|entry| entry.mr.as_mut()).for_each(Owned::leak);
    }
}

/// # Safety
/// As for [`Endpoint::register`](crate::Endpoint::register).
unsafe fn made(domain: &Owned<fid_domain>, memory: Memory) -> Result<Owned<fid_mr>, Error> {
    const CALL: &str = "fi_mr_reg";
    // SAFETY: the domain is open, so its table of registration is alive.
    let reg =
        unsafe { offers!((*domain.as_ptr()).mr, fi_ops_mr, reg) }.ok_or(Error::Absent { call: CALL })?;
    let Memory { addr, len, access, wanted_key } = memory;
    // SAFETY: the domain is open, and the caller vouches for the memory; the call writes a registration of
    // ours.
    unsafe {
        Owned::made(CALL, |mr| {
            let no_context = std::ptr::null_mut();
            reg(domain.fid(), addr.cast(), len, access.bits(), 0, wanted_key, 0, mr, no_context)
        })
    }
}

fn key(mr: &mut Owned<fid_mr>) -> u64 {
    // SAFETY: the registration is open, borrowed alone, and enabled where it must be, so the key is there.
    unsafe { (*mr.as_ptr()).key }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
