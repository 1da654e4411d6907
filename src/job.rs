//! How processes meet, and learn of each other's end.
//!
//! Each folder uses only those below it:
//!
//! | folder | what meets there |
//! |---|---|
//! | `launchers/` | a job that MPI's, Slurm's or torchrun's launcher started; each host's part meets at a broker of its own |
//! | `unlaunched/` | nodes that nobody launched: they listen, call addresses, and leave these at a rendezvous |
//! | `launched/` | a job that `standpipe run` started: a broker, its members, and those who look at it |
//! | `plumbing/` | secrets, sockets' addresses, encrypted channels and the like, of which the others are made |

pub mod bootstrap;
pub(crate) mod launched;
pub(crate) mod launchers;
pub(crate) mod plumbing;
pub mod rendezvous;
pub(crate) mod unlaunched;
