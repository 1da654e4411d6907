//! VIA: connections whose work queues a program fills with descriptors.
//!
//! The interface is that of VIPL 1.0, with the names of 0.95. A VI has a queue of sends and one of receives.
//! A send takes the receive that was posted first at the other end. A remote write or read takes none, unless
//! the write has immediate data.
//!
//! | VIA | here |
//! |---|---|
//! | NIC | the process's node |
//! | connection | two VIs' numbers in each message, with which attempt of theirs it is |
//! | send | up to [`EAGER_MAX`] bytes a request with its payload; of longer ones the receiver gets the bytes |
//! | registered memory, protection tag | a grant, whose name is told to connected VIs with the tag alone |
//! | remote write, remote read | a put, a get |
//! | the NIC's own progress | a thread, while the program makes none |

mod address;
mod arriving;
mod connecting;
mod cq;
#[doc(hidden)]
pub mod descriptor;
mod dialing;
mod error;
mod features;
mod hosts;
mod meeting;
mod names;
mod port;
mod posting;
mod queue;
mod regions;
mod resources;
mod sending;
mod shared;
mod state;
mod threads;
mod vi;
#[doc(hidden)]
pub mod wire;

pub use self::address::{Host, NIC_ADDRESS_BYTES, is_device};
pub use self::cq::{CqNotify, ENTRIES_MAX};
pub use self::dialing::{Caller, NetAddress};
pub use self::error::{AsyncError, ErrorCode, Resource, ViaError};
pub use self::features::FEATURES;
pub use self::port::Via;
pub use self::posting::Ended;
pub use self::queue::DESCRIPTORS_MAX;
pub use self::regions::{MemoryAttributes, PTAGS_MAX, REGION_BYTES_MAX, REGIONS_MAX};
pub use self::resources::{CQS_MAX, TRANSFER_MAX, VIS_MAX, ViQuery};
pub use self::sending::EAGER_MAX;
pub use self::state::ErrorHandler;
pub use self::vi::{Attributes, Notify, RELIABLE_DELIVERY, RELIABLE_RECEPTION, Side, UNRELIABLE, ViState};
pub use self::wire::{DISCRIMINATOR_MAX, Terms};
