//! The processes of the command's own jobs.

use standpipe::{Config, ConfigError, Exposure};

/// The configuration by which each of them opens its node. It has the user's settings, except that it always
/// exposes all memory: the command owns that memory, and its peers use it.
///
/// # Errors
/// Where a setting cannot be used.
pub fn config() -> Result<Config, ConfigError> {
    Ok(Config::from_env()?.exposure(Exposure::Everything))
}
