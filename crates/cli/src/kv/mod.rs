//! The key-value-cache study: workers that hold blocks of a language model's cache in ordinary memory replay a
//! trace of requests and pull each other's blocks.

pub mod generate;
pub mod pattern;
pub mod statistics;
pub mod store;
pub mod trace;
