//! `vipl.h`: VIPL's calls. Each checks its pointers and handles, and gives a `VIP_RETURN`.
//!
//! A handle is a number that is never used twice, as a pointer that nobody follows. So any other pointer of a
//! program's is known for what it is, also after what it named has ended.

pub mod connecting;
pub mod descriptors;
pub mod names;
pub mod queues;
pub mod resources;
mod state;
mod types;

pub use self::types::{
    MemAttributes, NetAddress, NicAttributes, VIP_CQ_CALLBACK, VIP_ERROR_HANDLER, VIP_VI_CALLBACK,
    ViAttributes, VipErrorDescriptor,
};
