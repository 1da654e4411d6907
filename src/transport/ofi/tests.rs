//! The transport over the providers that work on one machine, without a node's threads and waiting.

mod bursts;
mod changes;
mod cluster;
mod cost;
mod doubts;
mod elsewhere;
mod endings;
mod failing;
mod faults;
mod gathering;
mod heaps;
mod hostile;
mod processes;
mod spans;
mod suite;
