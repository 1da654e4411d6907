//! Jobs of studies that measure between real processes over a network, beside what the simulator predicts of
//! costs that were measured there.

pub(super) mod case;
pub(super) mod costs;
pub(super) mod job;
mod rank;
mod ranks;

pub(super) use ranks::Part;
