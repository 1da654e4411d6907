//! Protection tags, and memory that is registered: each region is a grant, as far as peers may reach it.

use std::collections::HashMap;

use standpipe::{AllMemory, Audience, Foreign, Grant, GrantName, Node, Rights};

use super::descriptor::{Segment, pointer};
use super::error::ViaError;

/// Bytes that one region may have.
pub const REGION_BYTES_MAX: u64 = 1 << 39;
/// Regions at a time.
pub const REGIONS_MAX: usize = 1 << 16;
/// Protection tags at a time.
pub const PTAGS_MAX: usize = 1 << 16;

/// The attributes of registered memory: `VIP_MEM_ATTRIBUTES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryAttributes {
    /// Its protection tag; 0 is the one that is always there.
    pub ptag: u32,
    /// Whether peers may write it.
    pub allows_write: bool,
    /// Whether peers may read it.
    pub allows_read: bool,
}

impl MemoryAttributes {
    fn rights(self) -> Option<Rights> {
        match (self.allows_write, self.allows_read) {
            (true, true) => Some(Rights::ReadWrite),
            (true, false) => Some(Rights::Write),
            (false, true) => Some(Rights::Read),
            (false, false) => None,
        }
    }
}

struct Region {
    nic: u32,
    addr: u64,
    len: u64,
    attributes: MemoryAttributes,
    /// Peers reach the memory by it; dropping it takes it back.
    grant: Option<Grant<Foreign<()>>>,
}

impl Region {
    fn covers(&self, ptag: u32, addr: u64, len: u64) -> bool {
        self.attributes.ptag == ptag
            && addr.checked_sub(self.addr).is_some_and(|at| at <= self.len && len <= self.len - at)
    }
}

/// Memory that a peer may reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reachable {
    pub(super) name: GrantName,
    /// The address of its first byte in its process.
    pub(super) base: u64,
}

/// All that this process has registered.
#[derive(Default)]
pub(super) struct Regions {
    regions: HashMap<u32, Region>,
    /// With the NIC of each.
    ptags: HashMap<u32, u32>,
    /// Handles are given out in turn, so that an old one stays none for long.
    last: u32,
}

impl Regions {
    pub(super) fn add_ptag(&mut self, ptag: u32, nic: u32) -> Result<(), ViaError> {
        if self.ptags.len() >= PTAGS_MAX {
            return Err(ViaError::Resource);
        }
        self.ptags.insert(ptag, nic);
        Ok(())
    }

    /// Whether that NIC has such a tag.
    pub(super) fn has_ptag(&self, ptag: u32, nic: u32) -> bool {
        ptag == 0 || self.ptags.get(&ptag) == Some(&nic)
    }

    /// Gives a tag up, unless memory has it.
    pub(super) fn remove_ptag(&mut self, ptag: u32, nic: u32) -> Result<(), ViaError> {
        if ptag == 0 || !self.has_ptag(ptag, nic) {
            return Err(ViaError::InvalidParameter);
        }
        if self.regions.values().any(|region| region.attributes.ptag == ptag) {
            return Err(ViaError::Resource);
        }
        self.ptags.remove(&ptag);
        Ok(())
    }

    fn grant(
        node: &Node,
        memory: AllMemory,
        (addr, len): (u64, u64),
        attributes: MemoryAttributes,
    ) -> Result<Option<Grant<Foreign<()>>>, ViaError> {
        let Some(rights) = attributes.rights() else { return Ok(None) };
        let buffer = memory.buffer(pointer(addr), len as usize, ());
        node.grant(buffer, rights, Audience::ALL).map(Some).map_err(|_| ViaError::Resource)
    }

    /// Registers memory, and gives its handle.
    pub(super) fn register(
        &mut self,
        (node, memory): (&Node, AllMemory),
        nic: u32,
        (addr, len): (u64, u64),
        attributes: MemoryAttributes,
    ) -> Result<u32, ViaError> {
        if addr == 0 || len == 0 || addr.checked_add(len).is_none() {
            return Err(ViaError::InvalidParameter);
        }
        if !self.has_ptag(attributes.ptag, nic) {
            return Err(ViaError::InvalidPtag);
        }
        if len > REGION_BYTES_MAX || self.regions.len() >= REGIONS_MAX {
            return Err(ViaError::Resource);
        }
        let grant = Regions::grant(node, memory, (addr, len), attributes)?;
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.regions.contains_key(&self.last) {
                break;
            }
        }
        self.regions.insert(self.last, Region { nic, addr, len, attributes, grant });
        Ok(self.last)
    }

    /// Takes a registration back: peers reach the memory no more.
    pub(super) fn deregister(&mut self, nic: u32, addr: u64, handle: u32) -> Result<(), ViaError> {
        self.region(nic, addr, handle)?;
        self.regions.remove(&handle);
        Ok(())
    }

    fn region(&mut self, nic: u32, addr: u64, handle: u32) -> Result<&mut Region, ViaError> {
        let region = self.regions.get_mut(&handle).ok_or(ViaError::InvalidParameter)?;
        let is_in_it = addr >= region.addr && addr - region.addr < region.len;
        if region.nic == nic && is_in_it { Ok(region) } else { Err(ViaError::InvalidParameter) }
    }

    pub(super) fn attributes(
        &mut self,
        nic: u32,
        addr: u64,
        handle: u32,
    ) -> Result<MemoryAttributes, ViaError> {
        Ok(self.region(nic, addr, handle)?.attributes)
    }

    /// Changes what memory is for. Peers that knew it ask anew.
    pub(super) fn set_attributes(
        &mut self,
        (node, memory): (&Node, AllMemory),
        nic: u32,
        (addr, handle): (u64, u32),
        attributes: MemoryAttributes,
    ) -> Result<(), ViaError> {
        if !self.has_ptag(attributes.ptag, nic) {
            self.region(nic, addr, handle)?;
            return Err(ViaError::InvalidPtag);
        }
        let region = self.region(nic, addr, handle)?;
        // The old one goes first: from here on nobody reaches the memory by it.
        region.grant = None;
        region.attributes = attributes;
        region.grant = Regions::grant(node, memory, (region.addr, region.len), attributes)?;
        Ok(())
    }

    /// Whether memory is registered by that handle and under that tag.
    pub(super) fn covers(&self, handle: u32, ptag: u32, addr: u64, len: u64) -> bool {
        self.regions.get(&handle).is_some_and(|region| region.covers(ptag, addr, len))
    }

    /// Whether a descriptor may name all of these.
    pub(super) fn cover(&self, segments: &[Segment], ptag: u32) -> bool {
        segments.iter().all(|segment| self.covers(segment.handle, ptag, segment.addr, segment.len.into()))
    }

    /// The name by which a peer reaches memory, if it may.
    pub(super) fn reachable(
        &self,
        handle: u32,
        ptag: u32,
        (addr, len): (u64, u64),
        is_write: bool,
    ) -> Option<Reachable> {
        let region = self.regions.get(&handle).filter(|region| region.covers(ptag, addr, len))?;
        let attributes = region.attributes;
        let is_allowed = if is_write { attributes.allows_write } else { attributes.allows_read };
        let name = region.grant.as_ref().filter(|_| is_allowed)?.name();
        Some(Reachable { name, base: region.addr })
    }

    /// Forgets all that a NIC has.
    pub(super) fn remove_nic(&mut self, nic: u32) {
        self.regions.retain(|_, region| region.nic != nic);
        self.ptags.retain(|_, of| *of != nic);
    }
}
