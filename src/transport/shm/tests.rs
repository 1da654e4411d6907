//! The transport without a node's threads and waiting.

mod cluster;
mod suite;
