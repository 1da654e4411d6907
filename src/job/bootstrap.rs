//! How the processes of a job find each other, and how each learns that another is gone.
//!
//! The launcher (or a test) runs a [`Broker`]: one thread behind a Unix socket whose name lies in the
//! abstract namespace, so that it vanishes with its process however that ends. A process that the launcher
//! started finds the [`JobEnv`] in its environment and becomes a [`Membership`]. It shows the job's secret,
//! hands over its control and heap segments, and from then on asks for a peer's segments when it first talks
//! to that peer. A peer that is never talked to costs nothing.
//!
//! The broker watches every member's process and connection and tells all others at once when one is gone. A
//! process that shows the secret may also just look at the job. A watcher is told who is in it, and reads
//! what the members show of their counters in their control segments.
//!
//! The code is in the four folders beside this file, which `job.rs` lists.
//!
//! This module is not part of the stable interface. It is public for the library's own tests and for tests
//! that run a whole job inside one process:
//!
//! ```
//! # use std::time::{Duration, Instant};
//! use standpipe::bootstrap::{Broker, Membership};
//! # let segment = || std::fs::File::open("/dev/null").unwrap();
//! # let (control, heap, ledger) = (segment(), segment(), segment());
//! # use std::os::fd::AsFd;
//! let broker = Broker::start(2).unwrap();
//! let deadline = Instant::now() + Duration::from_secs(5);
//! let join = |rank| {
//!     let segments = [control.as_fd(), heap.as_fd(), ledger.as_fd()];
//!     Membership::join(&broker.env(rank), segments, deadline, Box::new(|_| {})).unwrap()
//! };
//! let (zero, one) = (join(0), join(1));
//! assert_eq!(zero.connect(one.rank(), deadline).unwrap().pid, std::process::id());
//! ```

pub use super::launched::{
    Broker, BrokerError, Decline, How, JOIN_HEADER, JoinError, LookError, Membership, Notice, OnNotice,
    PeerHandles, PeerHandlesError, Refusal,
};
pub use super::launchers::{ExchangeError, HostError, check_launcher_words, launched_by};
pub use super::plumbing::{JobEnv, JobEnvError, RANKS_MAX, check_rendezvous_words};
pub use super::unlaunched::{
    Address, AddressError, Listen, Registry, Rendezvous, RendezvousError, Visit, check_address,
    check_handshake_words,
};
