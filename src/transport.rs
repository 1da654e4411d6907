//! The ways to reach peers. One so far: shared memory, for peers on this host.

pub(crate) mod shm;
