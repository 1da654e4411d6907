//! Standpipe's engine in virtual time: a network card that pins, costs from files, and faults from a seed.
//!
//! A [`Cluster`] is any number of real [`engine::Node`]s in one process, over a simulated network. Their
//! messages and one-sided operations take the time that [`Costs`] say; their cards touch nothing that is not
//! registered, pin what is, and note every access that was wrong; a seed decides every delay and every
//! failure, so that a run can be had again, bit by bit.
//!
//! Read in this order: [`Costs`], [`Cluster`], [`Faults`]; inside, `world` (messages), `gathering` (those
//! that leave later), `onesided` and `access` (copies), `nic` (registrations), `space` (memory).
#![forbid(unsafe_code)]

mod access;
mod causality;
mod cluster;
mod costs;
pub mod experiments;
mod faults;
mod flight;
mod gathering;
mod incarnation;
mod known_peer;
mod memory;
mod memory_fault;
mod message;
mod nic;
mod onesided;
mod outbox;
mod pinning;
mod process;
mod queue;
pub mod recording;
mod replay;
mod space;
pub mod storm;
mod trace;
mod transport;
mod violation;
mod world;

pub use engine::Direction;

pub use cluster::{Cluster, Plan, Step};
pub use costs::{Costs, CostsError};
pub use faults::{Faults, FaultsError};
pub use replay::{Act, Ran, ReplayError, Tally, replay};
pub use space::Access;
pub use transport::{Reach, SimTransport};
pub use violation::{Breach, Violation};
