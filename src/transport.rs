//! The ways to reach peers: shared memory, for those on this host; libfabric, for the others; both, for the engine.

pub(crate) mod alarm;
pub(crate) mod memory;
pub(crate) mod mixed;
pub(crate) mod ofi;
pub(crate) mod peers;
pub(crate) mod shm;
#[cfg(test)]
mod tests;
