//! Shared memory: peers on this host.
//!
//! Every process has two sealed memory segments that its peers map when they first talk to it. The *heap* is
//! what users put to and get from with plain loads and stores. The *control* segment ([`control`]) holds who
//! the process is, its doorbell, the barrier's counter and two message rings for every possible sender, whose
//! pages exist only once that sender talks. All other memory is reached by cross-memory attach ([`copy`]), or
//! through messages where that is forbidden; [`copiers`] make large copies, where a node has any.
//! [`super::peers`] says who is reachable how; [`transport`] is the engine's transport; [`stats_page`] is
//! what a process lets watchers read.

pub(crate) mod atomic;
pub(crate) mod control;
mod copiers;
pub(crate) mod copy;
pub(crate) mod heap_pages;
mod held;
pub(crate) mod ledger;
mod node_verbs;
pub(crate) mod own;
mod pair;
pub(crate) mod reach;
pub(crate) mod stats_page;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
mod undumped;
mod unheard;

pub(crate) use control::Control;
pub(crate) use copiers::COPIED_APART_MIN;
pub(crate) use copy::{Lent, PieceList};
pub(crate) use own::OwnMemory;
pub(crate) use reach::Attach;
pub(crate) use transport::ShmTransport;
