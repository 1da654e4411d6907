//! The ways to reach peers: shared memory, for those on this host; libfabric, for the others.

#[cfg_attr(not(test), expect(dead_code, reason = "no node is opened over it yet: its tests do"))]
pub(crate) mod ofi;
pub(crate) mod shm;
