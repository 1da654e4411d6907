//! Transfers: puts, gets and atomics, by whatever path `engine::path` chooses for them.

pub(super) mod access;
mod atomics;
pub(super) mod bounce;
pub(super) mod bounce_pool;
mod by_grant;
mod chunks;
mod fast;
pub(super) mod fast_table;
mod keyed;
mod put_get;
pub(super) mod state;
