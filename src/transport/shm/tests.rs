//! The transport without a node's threads and waiting.

mod cluster;
mod hostile;
mod ledgers;
mod spills;
mod suite;
mod vandal;
mod warmth;
