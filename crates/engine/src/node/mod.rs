//! The engine's node: the state of every operation that one process has under way, and its answers to its peers.
//!
//! Calls come in, [`Transport`] verbs go out. The caller drives: after starting operations it calls [`Node::poll`]
//! until that returns [`Polled::Idle`], runs the handlers that [`Polled::Deliver`] names, and asks [`Node::outcome`]
//! what became of its operations. Calling again pays after a message arrived (the transport knows when) and, while
//! operations with deadlines are under way, after [`Node::expire`]; that is called when the earliest deadline passes,
//! and when [`Node::wants_time`] says so. A peer that was lost may be replaced by another process of its rank:
//! [`Node::take_replaced`] tells of that.
//!
//! [`Transport`]: crate::Transport

mod am;
mod barrier;
mod collective;
mod progress;
mod registration;
mod table;
mod transfer;
mod waiting;

pub use crate::collective::TeamId;
pub use am::{AmBody, AmSend, Delivery, Polled};
pub use collective::buffers::{Kept, Memories};
pub use collective::runner::Start;
pub use collective::small::state::Exchanged;
pub use registration::state::RegistrationCounters;
pub use table::{KEEPER as BARRIER_KEEPER, Node, Outcome};
pub use transfer::bounce::STAGED_CHUNKS_MIN;
