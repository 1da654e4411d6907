//! How processes meet, and learn of each other's end.

pub mod bootstrap;
pub mod rendezvous;
