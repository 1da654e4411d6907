//! Standpipe's engine in virtual time.
//!
//! [`Costs`] say what everything takes there: one documented file a machine.
#![forbid(unsafe_code)]

mod costs;

pub use costs::{Costs, CostsError};
