//! The processes of the command's own jobs.

use standpipe::{Config, ConfigError, Exposure};

/// What each of them opens its node with: the user's settings, but that its memory is exposed whatever they say. It is the
/// command's, nobody else's.
///
/// # Errors
/// Where a setting cannot be used.
pub(crate) fn config() -> Result<Config, ConfigError> {
    Ok(Config::from_env()?.exposure(Exposure::Everything))
}
