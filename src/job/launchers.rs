//! A job that another launcher started: how its processes tell each other where they are, and meet.

mod exchange;
mod host;

pub use exchange::{ExchangeError, check_launcher_words, launched_by};
pub(crate) use host::Host;
pub use host::HostError;
