//! Jobs of real processes: each rank is this program again, in a role that its test's file has.

#[path = "../support/hosts.rs"]
mod hosts;
#[path = "../support/pids.rs"]
mod pids;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/traced.rs"]
mod traced;

mod footprint;
mod gathering;
mod hosted;
mod job;
mod kill;
mod launch;
mod launch_signals;
mod outages;
mod own_memory;
mod restricted;
mod reuse;
mod served;
mod settle;
mod shared;
mod teams;
mod vast;
mod waits;
mod watch;
