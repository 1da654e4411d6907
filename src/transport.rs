//! The ways to reach peers: shared memory, for those on this host; libfabric, for the others; both, for the
//! engine.

pub(crate) mod mr_invalidation;
pub(crate) mod net_wakeup;
pub(crate) mod ofi;
pub(crate) mod peers;
pub(crate) mod router;
pub(crate) mod shm;
#[cfg(test)]
mod tests;
