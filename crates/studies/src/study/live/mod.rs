//! Studies between real processes over a network, beside what the simulator predicts of costs that were measured there.

mod case;
mod costs;
mod experiment;
pub(super) mod firehose;
mod job;
mod outcome;
pub(super) mod pindown;
pub mod rank;
mod shown;
