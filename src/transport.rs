//! The ways to reach peers: [`shm`], for those on this host; [`ofi`], for the others; the [`router`]
//! between them. The [`contract`] says what each has, the [`list`] which there are.

#[cfg(all(test, debug_assertions))]
mod channels;
pub(crate) mod contract;
pub(crate) mod list;
pub(crate) mod mr_invalidation;
pub(crate) mod net_wakeup;
pub(crate) mod ofi;
pub(crate) mod peers;
pub(crate) mod protocol;
pub(crate) mod router;
pub(crate) mod shm;
#[cfg(test)]
mod tests;
